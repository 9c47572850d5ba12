"""What is held in this process, so that a test can be shown to leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._core.names import name_of
from leasehold._face.held import all_keepers, held_by

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.testing.manual import ManualStore

__all__ = ["held_names"]


def held_names(stores: Iterable[ManualStore] = ()) -> set[tuple[str, int]]:
    """Name and fence of every lease that this process holds, and of every grant in these stores.

    A lease that the program has dropped is not kept any more, but its grant is in the store until its ttl is over.
    """
    leases = {(held.name, held.fence) for held in held_by(all_keepers())}
    grants = {
        (name_of(state.name), holding.fence)
        for store in stores
        for state in store.memory.list("")
        for holding in state.holdings
        if not holding.cooling
    }
    return leases | grants
