"""The hybrid clock of stores that can fail over: number = max(last + 1, the store's clock).

One store, whose last number and clock make the next one. It fails over once, to a copy that does not know the last
grants and whose clock differs by `lead` (old minus new). `run_ahead` bounds how far numbers may be ahead of the clock
(a burst of grants within one tick). `gap` is the time from the last grant before the failover to the first after it.
The claim: numbers rise if and only if gap > lead + run_ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HybridClock", "State"]

START = 10  # so that no clock is ever below 1


class State(NamedTuple):
    """Everything at one moment; `granted` is the highest number so far, `again` one that broke the order."""

    tick: int
    failed_over: bool
    known: int  # what the primary of now knows; 0: nothing, or it expired
    known_since: int  # its clock when it granted that
    left_behind: int  # what the old primary knows after the failover, for a split brain
    granted: int
    granted_at: int
    broken: int


@dataclass(frozen=True)
class HybridClock:
    """Grants, a failover that loses some of them, and a number that may expire; see the module.

    `keep` is how long an idle name's number is kept: None for ever; counted from "number" or from "grant".
    `split_brain`: the old primary goes on granting beside the new one. `remembers`: the only client adds one to the
    highest number it has seen.
    """

    lead: int = 1
    run_ahead: int = 1
    gap: int = 3
    keep: int | None = None
    keep_from: str = "number"
    failovers: bool = True
    split_brain: bool = False
    remembers: bool = False
    until: int = 8

    def initial(self) -> State:
        return State(
            START, failed_over=False, known=0, known_since=0, left_behind=0, granted=0, granted_at=START, broken=0
        )

    def canonical(self, state: State) -> State:
        return state

    def violation(self, state: State) -> str | None:
        return f"{state.broken} was granted after {state.granted}" if state.broken else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.tick < START + self.until:
            yield f"a tick passes: {state.tick + 1}", state._replace(tick=state.tick + 1)
        if not state.failed_over or state.tick - state.granted_at >= self.gap or state.known:
            yield from self._grant(state, self._clock(state), state.known)
        if state.failed_over and self.split_brain:
            yield from self._grant_beside(state)
        if self.failovers and not state.failed_over and state.granted:
            lost = state._replace(failed_over=True, known=0, known_since=0, left_behind=state.known * self.split_brain)
            yield "failover: the new primary knows nothing of these grants", lost
        if self.keep is not None and state.known:
            begin = state.known if self.keep_from == "number" else state.known_since
            if self._clock(state) > begin + self.keep:
                yield "the number of this idle name expires", state._replace(known=0)

    def _clock(self, state: State) -> int:
        return state.tick if state.failed_over else state.tick + self.lead

    def _grant(self, state: State, clock: int, known: int) -> Iterator[tuple[str, State]]:
        number = max(known + 1, clock, state.granted + 1 if self.remembers else 0)
        if number - clock <= self.run_ahead:
            granted = self._granted(state, number)._replace(known=number, known_since=clock)
            yield f"the primary, clock {clock}, grants {number}", granted

    def _grant_beside(self, state: State) -> Iterator[tuple[str, State]]:
        """The old primary did not notice that it is not the primary any more."""
        clock = state.tick + self.lead
        number = max(state.left_behind + 1, clock)
        if number - clock <= self.run_ahead:
            granted = self._granted(state, number)._replace(left_behind=number)
            yield f"the old primary, clock {clock}, grants {number}", granted

    def _granted(self, state: State, number: int) -> State:
        broken = number if number <= state.granted else 0
        return state._replace(granted=max(state.granted, number), granted_at=state.tick, broken=broken)
