"""The thing that locks protect: a register that is read, changed and written back by the holders of the lock.

It lives outside the store and is reached over a network of its own, so a write can arrive long after its writer was
paused or crashed. A fenced register refuses what is older than the newest fence it has seen; a plain one takes all, and
is the negative control: a run of many seeds in which it loses nothing has tested nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import OutcomeUnknown, StaleFence

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.world import World

__all__ = ["Register"]


class Register:
    """A set of numbers, as a tuple; every update adds one. An update that is missing at the end was lost."""

    def __init__(self, world: World, *, fenced: bool) -> None:
        self.acknowledged: list[int] = []
        self._world = world
        self._fenced = fenced
        self._highest = 0
        self._value: tuple[int, ...] = ()

    @property
    def lost(self) -> list[int]:
        """Acknowledged updates that are not there."""
        return [number for number in self.acknowledged if number not in self._value]

    async def update(self, runtime: SimRuntime, link: Link, fence: int, pause: float) -> None:
        """Read, think, write. With fencing the fence is raised before the first read."""
        number = self._world.next_number()
        if self._fenced:
            await self._travel(runtime, link, lambda: self._raise(fence))
        value = await self._travel(runtime, link, lambda: self._value)
        await runtime.sleep(pause)
        await self._travel(runtime, link, lambda: self._write((*value, number), fence))
        self.acknowledged.append(number)

    def _raise(self, fence: int) -> None:
        if fence < self._highest:
            raise StaleFence("a newer holder was here", fence=fence, highest=self._highest)
        self._highest = fence

    def _write(self, value: tuple[int, ...], fence: int) -> None:
        if self._fenced:
            self._raise(fence)
        self._value = value

    async def _travel(self, runtime: SimRuntime, link: Link, apply: Callable[[], Any]) -> Any:
        """There and back; both ways can take long, and a link that is cut loses the answer."""
        answered = runtime.signal()
        outcome: list[Any] = []

        def arrive() -> None:
            try:
                outcome.append(apply())
            except StaleFence as error:
                outcome.append(error)
            self._world.after(link.delay(), answer)

        def answer() -> None:
            if not link.cut:
                answered.set()

        slow = 20.0 if self._world.random.random() < 0.1 else 1.0
        self._world.after(link.delay() * slow, arrive)
        if not await runtime.wait(answered, runtime.now() + link.timeout):
            raise OutcomeUnknown("the resource did not answer")
        result = outcome.pop()
        if isinstance(result, StaleFence):
            raise StaleFence(str(result), fence=result.fence, highest=result.highest)  # a new one: no cycle of frames
        return result
