"""The public contract suite in the simulator: a driver beside the ones for threads and asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.runtime import SimRuntime, SimTaskHandle
from verification.simulation.world import Cancelled, World, park

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from leasehold._runtimes.clock import Clock
    from leasehold.spi import Runtime

__all__ = ["SimDriver"]

BREATH = 0.001


class SimDriver:
    """Runs a case in a world of its own; an interruption is a cancelled task."""

    name = "simulation"

    def __init__(self, seed: int = 0) -> None:
        self._world = World(seed)
        self._runtime = SimRuntime(self._world.process("contract"))

    def runtime(self, clock: Clock | None = None) -> Runtime:
        """The runtime of the one process; its time is virtual, so a clock turned by hand is not needed."""
        if clock is not None:
            raise TypeError("the simulator has a clock of its own")
        return self._runtime

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it to its end."""
        try:
            self._world.run(coroutine, self._runtime.process)
            failed = [f"{task.name}: {task.error!r}" for task in self._world.failures]
            if failed:
                raise AssertionError(f"tasks failed: {failed}")
        finally:
            self._world.end()

    async def breathe(self) -> None:
        """Let other tasks run."""
        await self._runtime.sleep(BREATH)

    async def interrupt(self, make: Callable[[], Coroutine[Any, Any, Any]], at: int, _within: str = "") -> bool:
        """Cancel the task at its n-th suspension."""
        task = self._runtime.process.spawn(_cancelled_on_the_way(self._world, make(), at), "interrupted")
        task.quiet = True
        await SimTaskHandle(self._runtime, task).join()
        if isinstance(task.error, Cancelled):
            return True
        if task.error is not None:
            raise task.error
        return False


async def _cancelled_on_the_way(world: World, coroutine: Coroutine[Any, Any, Any], at: int) -> None:
    await _Counted(world, coroutine, at)


class _Counted:
    """An awaitable that cancels its task at the n-th suspension of another one."""

    def __init__(self, world: World, coroutine: Coroutine[Any, Any, Any], at: int) -> None:
        self._world = world
        self._coroutine = coroutine
        self._left = at

    def __await__(self) -> Generator[None, None, Any]:
        thrown: BaseException | None = None
        while True:
            try:
                if thrown is None:
                    self._coroutine.send(None)
                else:
                    self._coroutine.throw(thrown)
            except StopIteration as done:
                return done.value
            thrown = None
            self._left -= 1
            if self._left == 0:
                assert self._world.current is not None
                self._world.current.cancel()
            try:
                yield from park(self._world)
            except BaseException as error:
                thrown = error
