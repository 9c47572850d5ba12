"""A blocking runtime whose waits are planned by the test: each one does what is next in `plan`, or turns the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.testing.clock import ManualClock
from leasehold.testing.runtimes import ManualThreadRuntime

if TYPE_CHECKING:
    from collections.abc import Callable


class PlannedWaits(ManualThreadRuntime):
    """Each wait is noted in `waits`; the running thread is `me`."""

    def __init__(self) -> None:
        self.clock = ManualClock(autojump=None)
        super().__init__(self.clock)
        self.waits: list[float | None] = []
        self.plan: list[Callable[[], object]] = []
        self.me: Any = "me"
        self.current = lambda: self.me  # type: ignore[method-assign]

    async def wait(self, signal: Any, deadline: float | None) -> bool:
        self.waits.append(deadline)
        if self.plan:
            self.plan.pop(0)()
        elif deadline is not None and not signal.is_set():
            self.clock.advance(max(0.0, deadline - self.now()))
        return bool(signal.is_set())
