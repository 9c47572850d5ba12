"""The guard at the resource: holders that come late, each reading and then writing, in every order.

The value of the resource is the set of updates that it contains. A holder reads the value, adds its own update, and
writes it back. An update that was acknowledged must stay in the value for ever; and a reader must not see the value
change under it by a writer whose fence is lower than its own.

Rules, from what most descriptions say to what the guard does:

    "none"            no fence is looked at
    "writes"          a write below the highest fence is refused
    "reads too"       every access raises the fence, so the first read does
    "two registers"   W for writers and R for readers: a writer needs t >= W and t > R, a reader t > W
    "readers unseen"  as before, but readers leave nothing behind
    "one register"    readers and writers share one, so that readers stand in each other's way
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Guard", "State", "schedules"]

FIRST_FENCE = 33
BEGIN, READ, DONE = range(3)


class Holder(NamedTuple):
    """One holder: how far it is, what it has read, and whether it was refused."""

    phase: int
    read: frozenset[int]
    refused: bool


class State(NamedTuple):
    """The resource, its registers, the holders, and what went wrong."""

    value: frozenset[int]
    writer: int
    reader: int
    holders: tuple[Holder, ...]
    acknowledged: frozenset[int]
    wrong: str


@dataclass(frozen=True)
class Guard:
    """Holders in the order of their fences, from 33 up: "w" reads and writes, "r" reads twice."""

    kinds: str = "ww"
    rule: str = "two registers"

    def initial(self) -> State:
        holders = tuple(Holder(BEGIN, frozenset(), refused=False) for _ in self.kinds)
        return State(frozenset(), 0, 0, holders, frozenset(), "")

    def canonical(self, state: State) -> State:
        return state

    def violation(self, state: State) -> str | None:
        lost = state.acknowledged - state.value
        if lost:
            return f"the acknowledged update of {', '.join(map(str, sorted(lost)))} is lost"
        return state.wrong or None

    def is_over(self, state: State) -> bool:
        """Whether all are done."""
        return all(holder.phase == DONE or holder.refused for holder in state.holders)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, holder in enumerate(state.holders):
            if holder.phase == DONE or holder.refused:
                continue
            fence, writes = FIRST_FENCE + place, self.kinds[place] == "w"
            passes, writer, reader = self._check(state, fence, writes=writes, writing=writes and holder.phase == READ)
            if not passes:
                refused = self._with(state, place, holder._replace(refused=True))
                yield f"{fence} is refused", refused._replace(wrong=self._needless(state, fence, writes=writes))
                continue
            raised = state._replace(writer=writer, reader=reader)
            if holder.phase == BEGIN:
                read = self._with(raised, place, Holder(READ, state.value, refused=False))
                yield f"{fence} reads {_shown(state.value)}", read
            elif writes:
                value = holder.read | {fence}
                written = self._with(raised, place, holder._replace(phase=DONE))
                yield (
                    f"{fence} writes {_shown(value)}",
                    written._replace(value=value, acknowledged=state.acknowledged | {fence}),
                )
            else:
                again = self._with(raised, place, holder._replace(phase=DONE))
                yield f"{fence} reads again {_shown(state.value)}", again._replace(wrong=_changed(state, holder, fence))

    def _check(self, state: State, fence: int, *, writes: bool, writing: bool) -> tuple[bool, int, int]:
        """Whether this access passes, and the two registers after it."""
        writer, reader = state.writer, state.reader
        if self.rule == "none" or (self.rule == "writes" and not writing):
            return True, writer, reader
        if self.rule in ("writes", "reads too", "one register"):
            return fence >= writer, max(writer, fence), reader
        if writes:
            return fence >= writer and fence > reader, max(writer, fence), reader
        return fence > writer, writer, reader if self.rule == "readers unseen" else max(reader, fence)

    def _needless(self, state: State, fence: int, *, writes: bool) -> str:
        """A reader must be refused only because of a writer above it."""
        newer = [FIRST_FENCE + place for place in range(len(self.kinds)) if self.kinds[place] == "w"]
        began = {FIRST_FENCE + place for place, holder in enumerate(state.holders) if holder.phase != BEGIN}
        if writes or any(other > fence and other in began for other in newer):
            return ""
        return f"reader {fence} was refused, although no newer writer was there"

    def _with(self, state: State, place: int, holder: Holder) -> State:
        return state._replace(holders=(*state.holders[:place], holder, *state.holders[place + 1 :]))


def _changed(state: State, holder: Holder, fence: int) -> str:
    older = [update for update in state.value - holder.read if update < fence]
    return f"reader {fence} saw the older update of {older[0]} come in between its reads" if older else ""


def _shown(value: frozenset[int]) -> str:
    return "{" + ", ".join(map(str, sorted(value))) + "}"


def schedules(model: Guard) -> tuple[int, int]:
    """How many orders of two programs there are, and in how many of them something goes wrong.

    A holder that is refused counts its remaining steps too, so that every rule has the same number of orders.
    """
    turns = sorted(set(permutations([place for place in range(len(model.kinds)) for _ in range(2)])))
    return len(turns), sum(_goes_wrong(model, order) for order in turns)


def _goes_wrong(model: Guard, order: tuple[int, ...]) -> bool:
    state = model.initial()
    for place in order:
        holder = state.holders[place]
        if holder.refused or holder.phase == DONE:
            continue
        fence = str(FIRST_FENCE + place)
        state = next(after for words, after in model.steps(state) if words.startswith(fence))
        if model.violation(state):
            return True
    return False
