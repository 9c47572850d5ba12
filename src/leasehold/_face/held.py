"""What this process holds now: `client.held()` and `leasehold.assert_held(name)`.

Both read what the keepers know of their leases. Nothing is noted for them when a lock is taken, so they cost nothing
where they are not called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold._core.states import HELD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leasehold._core.open_client import OpenClient
    from leasehold._core.tenure import Tenure
    from leasehold._face.client import AsyncClient
    from leasehold.values import Mode

__all__ = ["Held", "assert_held", "held_by", "known_clients"]


class Held(NamedTuple):
    """A lease that this process holds, by its own clock."""

    name: str
    fence: int
    mode: Mode
    remaining: float
    """Seconds for which it is surely ours without another answer of the store."""


def held_by(client: AsyncClient) -> tuple[Held, ...]:
    """The leases of one client that are held now, in order of name and fence."""
    found = [
        Held(tenure.name, tenure.grant.fence, tenure.grant.claim.mode, tenure.deadline - opened.runtime.now())
        for opened, tenure in _tenures([client])
    ]
    return tuple(sorted(found, key=lambda held: (held.name, held.fence)))


def assert_held(name: str, *, anywhere: bool = False) -> None:
    """Raise `AssertionError` unless this thread or task holds the lock `name`: for functions that must run under it.

    The lock may be of any client, namespace and kind. What counts is the thread or task that acquired it; with
    `anywhere` any of this process will do, for work that a holder hands to others. As `check` it cannot promise that
    the process is not paused afterwards.
    """
    found = [(opened, tenure) for opened, tenure in _tenures(known_clients()) if tenure.name == name]
    if any(anywhere or tenure.taker == _current(opened) for opened, tenure in found):
        return
    if found:
        raise AssertionError(
            f"{name!r} is held by another thread or task of this process, and not by this one; if the work was handed "
            f"over on purpose: assert_held({name!r}, anywhere=True)"
        )
    raise AssertionError(f"{name!r} is not held here; call this inside `with client.lock({name!r}).hold():`")


def known_clients() -> list[AsyncClient]:
    """All clients of this process, of both faces."""
    from leasehold._face.client import _CLIENTS  # noqa: PLC0415 - it loads this module

    while True:
        try:
            return list(_CLIENTS)
        except RuntimeError:  # another thread has just made a client
            continue


def _tenures(clients: Iterable[AsyncClient]) -> Iterator[tuple[OpenClient, Tenure]]:
    """What these clients hold now."""
    for client in clients:
        opened = client._opened
        for tenure in () if opened is None else opened.keeper.tenures():
            if tenure.state is HELD and opened is not None and opened.runtime.now() < tenure.deadline:
                yield opened, tenure


def _current(opened: OpenClient) -> int:
    """The identity of the running thread or task; of none, where this client's event loop does not run."""
    try:
        return id(opened.runtime.current())
    except RuntimeError:
        return 0
