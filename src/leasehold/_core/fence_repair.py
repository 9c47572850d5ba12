"""After a guard has refused us: make the store's next fence higher than what the resource has seen.

Normally nothing is to be done: somebody came later, so the store has long given out that fence. But a store that lost
its state, or whose clock was set back, gives out fences that the resource refuses for ever.

The number comes from outside, so it is believed only within an hour (in microseconds) above what the store itself has
given out: one wrong value must not use up all fences. Above that an operator decides, with `client.raise_fence`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._core import events as happened
from leasehold.errors import BackendError
from leasehold.spi import Operating
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient, Wish

__all__ = ["repair_fence"]

AN_HOUR = 3_600_000_000


async def repair_fence(opened: OpenClient, wish: Wish) -> None:
    """Called before an acquire when `opened.seen` is not empty; costs nothing else."""
    seen, backend = opened.seen.get(wish.key, 0), opened.backend
    if not seen:
        return
    try:
        if Capability.INSPECT in backend.capabilities and isinstance(backend, Operating):
            await _raise(backend, opened, wish, seen)
    except BackendError:
        return  # the acquire that follows says what is wrong with the store, and a later one tries this again
    opened.seen.pop(wish.key, None)


async def _raise(backend: Operating, opened: OpenClient, wish: Wish, seen: int) -> None:
    given = await backend.raise_fence(wish.key, 1)
    if given < seen <= given + AN_HOUR:
        await backend.raise_fence(wish.key, seen)
        opened.events.emit(happened.FenceRaised(wish.name, seen, "a guarded resource had seen it", "leasehold"))
