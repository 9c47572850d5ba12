"""What is held in this process, so that a test can be shown to leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._core.names import name_of
from leasehold._face.held import held_by, known_clients

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.testing.manual import ManualStore

__all__ = ["held_names"]


def held_names(stores: Iterable[ManualStore] = ()) -> set[tuple[str, int]]:
    """Name and fence of every lease that a client of this process holds, and of every grant in these stores.

    A lease that the program has dropped is no longer known to its client, but its grant is in the store until the ttl.
    """
    leases = {(held.name, held.fence) for client in known_clients() for held in held_by(client)}
    grants = {
        (name_of(state.name), holding.fence)
        for store in stores
        for state in store.memory.list("")
        for holding in state.holdings
        if not holding.cooling
    }
    return leases | grants
