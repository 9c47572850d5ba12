"""The Redlock fence with clocks, and nodes that forget: how long must a node sit out.

Time is a number of ticks. Each node has a clock that differs from the true time by a fixed skew, and every combination
of the given skews is searched. A node accepts a proposed number only within a window of its own clock,
and, after it lost what it knew, only when `sits_out` ticks have passed. Locks are not in the state at all: a lock may
vanish at any time, so a node may always be free.

A node can lose what it knew in three ways, and a guard notices some of them:

    a restart that comes up empty, FLUSHALL, a restart from a snapshot that is older than its last votes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GUARDS", "Quarantine", "State"]

WAITING, ASKING, GRANTED = range(3)

# What each guard notices. A marker kept among the data vanishes with them; the run id in it identifies the process.
GUARDS = {
    "none": frozenset(),
    "uptime": frozenset({"restarts empty", "restarts from an old snapshot"}),
    "marker": frozenset({"restarts empty", "is flushed"}),
    "marker and run id": frozenset({"restarts empty", "is flushed", "restarts from an old snapshot"}),
}
LOSSES = ("restarts empty", "is flushed", "restarts from an old snapshot")


class Node(NamedTuple):
    """One node: its clock's skew, the highest number it accepted, how long it still sits out, whom it voted for."""

    skew: int
    highest: int
    out: int
    answered: tuple[bool, ...]


class Attempt(NamedTuple):
    """One attempt; `floor` is the highest number that was granted before it began."""

    phase: int
    number: int
    floor: int


class State(NamedTuple):
    """Everything at one moment."""

    tick: int
    nodes: tuple[Node, ...]
    attempts: tuple[Attempt, ...]
    wipes: int
    raised: bool


@dataclass(frozen=True)
class Quarantine:
    """The ballot on nodes that forget; see the module. `until` ends the search in time.

    `forgets` is when a node may drop the number of an idle name: "never", "late" (when no number up to it would be
    accepted any more) or "early" (with the lock). `raises`: an operator may lift the numbers so far ahead of the clock
    once, on `raised_on` nodes.
    """

    window: int = 1
    sits_out: int = 3
    guard: str = "marker and run id"
    nodes: int = 3
    attempts: int = 2
    wipes: int = 1
    skews: tuple[int, ...] = (0,)
    until: int = 6
    forgets: str = "never"
    raises: int = 0
    raised_on: int = 2

    def initial(self) -> State:
        empty = Node(self.skews[0], 0, 0, (False,) * self.attempts)
        return State(-1, (empty,) * self.nodes, (Attempt(WAITING, 0, 0),) * self.attempts, self.wipes, raised=False)

    def canonical(self, state: State) -> State:
        return state._replace(nodes=tuple(sorted(state.nodes)))

    def violation(self, state: State) -> str | None:
        granted = [attempt for attempt in state.attempts if attempt.phase == GRANTED]
        numbers = [attempt.number for attempt in granted]
        if len(set(numbers)) < len(numbers):
            return f"a number was granted twice: {sorted(numbers)}"
        for attempt in granted:
            if attempt.number <= attempt.floor:
                return f"{attempt.number} was granted to an attempt that began after {attempt.floor} was granted"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.tick < 0:
            yield from self._set_clocks(state)
            return
        yield from self._begin(state)
        for name, attempt in enumerate(state.attempts):
            if attempt.phase != WAITING:
                yield from self._votes(state, name, attempt)
        for place, node in enumerate(state.nodes):
            yield from self._node_steps(state, place, node)
        if self.raises and not state.raised:
            yield from self._raise(state)
        if state.tick < self.until:
            nodes = tuple(node._replace(out=max(0, node.out - 1)) for node in state.nodes)
            yield f"the clocks tick: {state.tick + 1}", state._replace(tick=state.tick + 1, nodes=nodes)

    def _set_clocks(self, state: State) -> Iterator[tuple[str, State]]:
        clocks: list[tuple[int, ...]] = [()]
        for _ in range(self.nodes):
            clocks = [(*some, skew) for some in clocks for skew in self.skews if not some or skew >= some[-1]]
        for some in clocks:
            nodes = tuple(node._replace(skew=skew) for node, skew in zip(state.nodes, some, strict=True))
            yield f"the clocks of the nodes are off by {some}", state._replace(tick=self.window + 1, nodes=nodes)

    def _begin(self, state: State) -> Iterator[tuple[str, State]]:
        name = next((name for name, attempt in enumerate(state.attempts) if attempt.phase == WAITING), None)
        if name is None:
            return
        floor = max((attempt.number for attempt in state.attempts if attempt.phase == GRANTED), default=0)
        reach = self.window + max(self.skews)
        top = max([state.tick, *(node.highest for node in state.nodes if state.raised)])
        for number in range(max(1, state.tick - reach), top + reach + 1):
            yield (
                f"{'ABCDEFG'[name]} proposes {number}",
                self._with_attempt(state, name, Attempt(ASKING, number, floor)),
            )

    def _votes(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        client = "ABCDEFG"[name]
        for place, node in enumerate(state.nodes):
            if self._accepts(state, node, attempt.number):
                voted = node._replace(
                    highest=attempt.number, answered=(*node.answered[:name], True, *node.answered[name + 1 :])
                )
                yield f"node {place} votes for {client}, number {attempt.number}", self._with_node(state, place, voted)
        if attempt.phase == ASKING and sum(node.answered[name] for node in state.nodes) > self.nodes // 2:
            granted = attempt._replace(phase=GRANTED)
            yield f"{client} is granted, number {attempt.number}", self._with_attempt(state, name, granted)

    def _accepts(self, state: State, node: Node, number: int) -> bool:
        clock = state.tick + node.skew
        return (
            not node.out
            and node.highest < number
            and clock - self.window <= number <= max(clock, node.highest) + self.window
        )

    def _node_steps(self, state: State, place: int, node: Node) -> Iterator[tuple[str, State]]:
        if state.wipes:
            for loss in LOSSES:
                out = self.sits_out if loss in GUARDS[self.guard] else node.out
                wiped = self._with_node(state, place, node._replace(highest=0, out=out))
                yield f"node {place} {loss}", wiped._replace(wipes=state.wipes - 1)
        if node.highest and self._may_forget(state, node):
            yield f"on node {place} the number has expired", self._with_node(state, place, node._replace(highest=0))

    def _may_forget(self, state: State, node: Node) -> bool:
        if self.forgets == "late":
            return state.tick + node.skew - self.window > node.highest
        return self.forgets == "early"

    def _raise(self, state: State) -> Iterator[tuple[str, State]]:
        """An operator lifts the numbers on some nodes, ahead of every clock."""
        lifted = state.tick + self.raises
        nodes = tuple(
            node._replace(highest=max(node.highest, lifted)) if place < self.raised_on else node
            for place, node in enumerate(state.nodes)
        )
        yield (
            f"an operator raises the fence to {lifted} on {self.raised_on} nodes",
            state._replace(nodes=nodes, raised=True),
        )

    def _with_node(self, state: State, place: int, node: Node) -> State:
        return state._replace(nodes=(*state.nodes[:place], node, *state.nodes[place + 1 :]))

    def _with_attempt(self, state: State, name: int, attempt: Attempt) -> State:
        return state._replace(attempts=(*state.attempts[:name], attempt, *state.attempts[name + 1 :]))
