"""`Backoff`: how long to wait before the next try. The core takes its pauses from it, and so may a program.

`delay` is pure: randomness comes in as a number in [0, 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from leasehold._durations import LONGEST, seconds
from leasehold._record import record
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from leasehold._durations import Duration
    from leasehold.values import Holder

__all__ = ["QUEUE_OR_POLL", "Backoff", "HowToWait", "Jitter"]

Jitter: TypeAlias = Literal["full", "equal", "none"]

FIRST_STEPS = (0.010, 0.050, 0.200)


@record(frozen=True, slots=True, init=False)
class Backoff:
    """Pauses that grow: `steps` one after the other, then each `factor` times the one before, up to `longest`.

    By default 10, 50 and 200 ms, then half a second for ever. `jitter` keeps those who failed together from coming back
    together: "full" draws evenly from nothing to the whole pause, "equal" from its upper half, so that none comes
    back at once, "none" waits the pause itself. `tries` is how often to try in all; None: no limit.

    Given to `acquire`, `hold` or `locked` it says how to wait for a lock. As a loop it repeats work of your own:

        for attempt in Backoff(tries=5):
            ...  # `break` when it is done; otherwise the loop sleeps, then tries again

    With `async for` it sleeps on the event loop. When the tries are used up the loop ends, and its `else` runs.
    """

    steps: tuple[float, ...]
    factor: float
    longest: float
    jitter: Jitter
    tries: int | None

    def __init__(
        self,
        steps: Iterable[Duration] = FIRST_STEPS,
        *,
        factor: float = 2.5,
        longest: Duration = 0.5,
        jitter: Jitter = "equal",
        tries: int | None = None,
    ) -> None:
        if isinstance(steps, str):
            raise ConfigurationError(f"steps must be several pauses, such as ('10ms', '50ms'), not the text {steps!r}")
        pauses = tuple(seconds(step, "a step of a backoff") for step in steps)
        if not pauses or 0 in pauses:
            raise ConfigurationError(f"steps must be at least one pause, and none of them 0, not {pauses!r}")
        if not _is_number(factor) or not 1 <= factor <= LONGEST:
            raise ConfigurationError(f"factor must be a number of at least 1, not {factor!r}: pauses never shrink")
        if jitter not in get_args(Jitter):
            raise ConfigurationError(f"jitter must be one of {', '.join(get_args(Jitter))}, not {jitter!r}")
        if tries is not None and (not _is_number(tries, int) or tries < 1):
            raise ConfigurationError(f"tries must be a whole number of at least 1, or None for no limit, not {tries!r}")
        most = seconds(longest, "longest")
        if most < max(pauses):
            raise ConfigurationError(
                f"longest ({most:g} s) is shorter than a step ({max(pauses):g} s); make it as long as the longest step"
            )
        for name, value in zip(self.__slots__, (pauses, float(factor), most, jitter, tries), strict=True):
            object.__setattr__(self, name, value)

    def delay(self, attempt: int, draw: float) -> float:
        """The pause after the try with this number, counted from 0; `draw` is in [0, 1)."""
        pause = self._pause(attempt)
        if self.jitter == "equal":
            return pause * (0.5 + draw / 2)
        return pause * draw if self.jitter == "full" else pause

    def is_last(self, attempt: int) -> bool:
        """Whether there is no other try after the one with this number, counted from 0."""
        return self.tries is not None and attempt + 1 >= self.tries

    def __iter__(self) -> Iterator[int]:
        """The number of each try, from 0; sleeps before every one but the first."""
        from time import sleep  # noqa: PLC0415 - the core, which has no clock, uses the other methods

        from leasehold._runtimes.randomness import jitter as draw  # noqa: PLC0415

        attempt = 0
        while True:
            yield attempt
            if self.is_last(attempt):
                return
            sleep(self.delay(attempt, draw()))
            attempt += 1

    async def __aiter__(self) -> AsyncIterator[int]:
        """The same on an event loop."""
        from asyncio import sleep  # noqa: PLC0415

        from leasehold._runtimes.randomness import jitter as draw  # noqa: PLC0415

        attempt = 0
        while True:
            yield attempt
            if self.is_last(attempt):
                return
            await sleep(self.delay(attempt, draw()))
            attempt += 1

    def _pause(self, attempt: int) -> float:
        """Before jitter."""
        known = len(self.steps)
        if attempt < known:
            return self.steps[attempt]
        pause = self.steps[-1]
        for _ in range(attempt - known + 1):
            if pause >= self.longest or self.factor == 1:
                break
            pause *= self.factor
        return min(pause, self.longest)


class HowToWait(NamedTuple):
    """How one call waits for a lock, and whom it tells meanwhile: the checked options of `acquire` and `hold`."""

    backoff: Backoff | None = None  # try again after its pauses; None: in the store's queue, where it has one
    on_wait: Callable[[int | None, Holder | None, float], object] | None = None


QUEUE_OR_POLL = HowToWait()


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds or (int, float)) and not isinstance(value, bool)
