"""`Operators`: the blocking twin of `leasehold.operators`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._runtimes.threads import run
from leasehold.blocking._mirror import mirrors
from leasehold.operators import AsyncOperators

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.client import AsyncClient
    from leasehold.durations import Duration
    from leasehold.findings import Finding
    from leasehold.values import LastRun, LockState

__all__ = ["Operators"]


@mirrors(AsyncOperators)
class Operators:
    _twin: AsyncClient

    @mirrors(AsyncOperators.inspect)
    def inspect(self, name: str) -> LockState | None:
        return run(self._twin.inspect(name))

    @mirrors(AsyncOperators.examine)
    def examine(self) -> Sequence[Finding]:
        return run(self._twin.examine())

    @mirrors(AsyncOperators.locks)
    def locks(self, prefix: str = "") -> Sequence[LockState]:
        return run(self._twin.locks(prefix))

    @mirrors(AsyncOperators.break_lock)
    def break_lock(self, name: str, *, fence: int, reason: str, by: str | None = None, now: bool = False) -> bool:
        return run(self._twin.break_lock(name, fence=fence, reason=reason, by=by, now=now))

    @mirrors(AsyncOperators.raise_fence)
    def raise_fence(self, name: str, fence: int, *, reason: str, by: str | None = None) -> int:
        return run(self._twin.raise_fence(name, fence, reason=reason, by=by))

    @mirrors(AsyncOperators.pause)
    def pause(self, name: str, *, reason: str, by: str | None = None, duration: Duration | None = None) -> None:
        run(self._twin.pause(name, reason=reason, by=by, duration=duration))

    @mirrors(AsyncOperators.resume)
    def resume(self, name: str, *, by: str | None = None) -> bool:
        return run(self._twin.resume(name, by=by))

    @mirrors(AsyncOperators.last_run)
    def last_run(self, name: str, *, slot: str | None = None) -> LastRun | None:
        return run(self._twin.last_run(name, slot=slot))

    @mirrors(AsyncOperators.forget)
    def forget(self, name: str, *, slot: str, reason: str, by: str | None = None) -> bool:
        return run(self._twin.forget(name, slot=slot, reason=reason, by=by))
