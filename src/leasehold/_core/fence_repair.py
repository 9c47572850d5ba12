"""After a guard has refused a write: make the store's next fence higher than what the resource has seen.

As a rule there is nothing to repair: a later holder exists, so the store has long given out that fence. But a store
that lost its state, or whose clock was set back, gives out fences that the resource refuses for ever.

The number comes from outside, so it is trusted only up to an hour (in microseconds) above what the store itself has
given out: one wrong value must not use up all fences. Above that an operator decides, with `client.raise_fence`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._core import events as happened
from leasehold.errors import BackendError
from leasehold.spi import Operating
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold._face.lock_spec import LockSpec

__all__ = ["repair_fence"]

AN_HOUR = 3_600_000_000


async def repair_fence(opened: OpenClient, spec: LockSpec) -> None:
    """Called before an acquire only when `opened.seen` is not empty, so that other acquires cost nothing more."""
    seen, backend = opened.seen.get(spec.key, 0), opened.backend
    if not seen:
        return
    try:
        if Capability.INSPECT in backend.capabilities and isinstance(backend, Operating):
            await _raise(backend, opened, spec, seen)
    except BackendError:
        return  # the acquire that follows reports what is wrong with the store; the next one repeats this
    opened.seen.pop(spec.key, None)


async def _raise(backend: Operating, opened: OpenClient, spec: LockSpec, seen: int) -> None:
    given = await backend.raise_fence(spec.key, 1)
    if given < seen <= given + AN_HOUR:
        await backend.raise_fence(spec.key, seen)
        opened.events.emit(happened.FenceRaised(spec.name, seen, "a guarded resource had seen it", "leasehold"))
