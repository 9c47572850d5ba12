"""What this process holds now: `client.held()` and `leasehold.assert_held(name)`.

Both read what the keepers know of their leases. Nothing is noted for them when a lock is taken, so they cost nothing
where they are not called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold._core.keeper import KEEPERS
from leasehold._core.states import HELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold._core.keeper import Keeper
    from leasehold._core.tenure import Tenure
    from leasehold.values import Mode

__all__ = ["Held", "all_keepers", "assert_held", "held_by"]


class Held(NamedTuple):
    """A lease that this process holds, by its own clock."""

    name: str
    fence: int
    mode: Mode
    remaining: float
    """Seconds for which it is surely ours without another answer of the store."""


def held_by(keepers: Iterable[Keeper]) -> tuple[Held, ...]:
    """The leases of these keepers that are held now, in order of name and fence."""
    found = [
        Held(tenure.name, tenure.grant.fence, tenure.grant.claim.mode, remaining)
        for keeper in keepers
        for tenure, remaining in _held_now(keeper)
    ]
    return tuple(sorted(found, key=lambda held: (held.name, held.fence)))


def assert_held(name: str, *, anywhere: bool = False) -> None:
    """Raise `AssertionError` unless this thread or task holds the lock `name`: for functions that must run under it.

    The lock may be of any client, namespace and kind. What counts is the thread or task that acquired it; with
    `anywhere` any of this process will do, for work that a holder hands to others. As `check` it cannot promise that
    the process is not paused afterwards.
    """
    found = [(keeper, tenure) for keeper in all_keepers() for tenure, _ in _held_now(keeper) if tenure.name == name]
    if any(anywhere or tenure.taker == _current(keeper) for keeper, tenure in found):
        return
    if found:
        raise AssertionError(
            f"{name!r} is held by another thread or task of this process, and not by this one; if the work was handed "
            f"over on purpose: assert_held({name!r}, anywhere=True)"
        )
    raise AssertionError(f"{name!r} is not held here; call this inside `with client.lock({name!r}).hold():`")


def all_keepers() -> list[Keeper]:
    """The keepers of all clients of this process, of both faces."""
    while True:
        try:
            return list(KEEPERS)
        except RuntimeError:  # another thread has just opened a client
            continue


def _held_now(keeper: Keeper) -> list[tuple[Tenure, float]]:
    """The leases that are held by the clock, each with the seconds that remain of it."""
    now = keeper._runtime.now()
    held = [each for each in keeper.tenures() if each.state is HELD and not each.is_parked]
    return [(each, each.deadline - now) for each in held if now < each.deadline]


def _current(keeper: Keeper) -> int:
    """The identity of the running thread or task; of none, where the event loop of this keeper does not run."""
    try:
        return id(keeper._runtime.current())
    except RuntimeError:
        return 0
