"""Redlock in time: whether two clients can believe at once that they hold the lock.

Time is a number of ticks, and all clocks run alike (drift is what the margin of the holder is for; it is not searched
here). Votes, renewals, repairs and releases arrive at any time after they were sent, or never. A holder believes until
its ttl is over, counted from before the request was sent that a majority answered. The number of an attempt rises with
the order in which attempts begin.

`flaw` plants a known mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FLAWS", "Exclusion", "State"]

FREE = -1
WAITING, ASKING, HELD, RELEASED = range(4)

FLAWS = (
    "validity counts from the answer",
    "an extension by a minority counts",
    "a node that sits out confirms",
    "a retry keeps its owner",
    "a clock jumps",
)


class Node(NamedTuple):
    """One node: who holds it and for how long, the highest number, how long it sits out, whom it answered."""

    holder: int
    left: int
    highest: int
    out: int
    answered: tuple[bool, ...]
    renewed: tuple[bool, ...]


class Attempt(NamedTuple):
    """One attempt: ticks since its request was sent, ticks that it still believes, ticks since its renewal was sent."""

    phase: int
    age: int
    belief: int
    renewal: int  # -1: none is under way
    repairing: bool


class State(NamedTuple):
    """Everything at one moment."""

    nodes: tuple[Node, ...]
    attempts: tuple[Attempt, ...]
    wipes: int
    jumps: int


@dataclass(frozen=True)
class Exclusion:
    """Redlock with renewal, repair, release and nodes that forget; see the module."""

    ttl: int = 2
    sits_out: int = 2
    nodes: int = 3
    attempts: int = 2
    wipes: int = 1
    renewals: bool = True
    repair: str = "by a majority"  # or "never", or "on any confirmation"
    flaw: str = ""

    def initial(self) -> State:
        nothing = (False,) * self.attempts
        return State(
            (Node(FREE, 0, 0, 0, nothing, nothing),) * self.nodes,
            (Attempt(WAITING, 0, 0, -1, repairing=False),) * self.attempts,
            self.wipes,
            int(self.flaw == "a clock jumps"),
        )

    def canonical(self, state: State) -> State:
        return state._replace(nodes=tuple(sorted(state.nodes)))

    def violation(self, state: State) -> str | None:
        believing = ["ABCDEFG"[name] for name, attempt in enumerate(state.attempts) if attempt.belief > 0]
        return f"{' and '.join(believing)} believe at once" if len(believing) > 1 else None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._begin(state)
        for name, attempt in enumerate(state.attempts):
            if attempt.phase != WAITING:
                yield from self._votes(state, name, attempt)
            if attempt.phase == HELD:
                yield from self._renewal(state, name, attempt)
                yield from self._release(state, name, attempt)
            if attempt.repairing:
                yield from self._repairs(state, name)
            if attempt.phase == RELEASED or (attempt.phase == ASKING and attempt.age >= self.ttl):
                yield from self._clean_up(state, name)
        yield from self._losses(state)
        yield self._tick(state)

    @property
    def majority(self) -> int:
        return self.nodes // 2 + 1

    def _begin(self, state: State) -> Iterator[tuple[str, State]]:
        name = next((name for name, attempt in enumerate(state.attempts) if attempt.phase == WAITING), None)
        if name is not None:
            asked = state.attempts[name]._replace(phase=ASKING)
            yield f"{'ABCDEFG'[name]} asks all nodes for its vote", self._with_attempt(state, name, asked)

    def _votes(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        client = "ABCDEFG"[name]
        for place, node in enumerate(state.nodes):
            if node.holder == FREE and not node.out and node.highest < name + 1 and not node.answered[name]:
                voted = node._replace(
                    holder=name, left=self.ttl, highest=name + 1, answered=_marked(node.answered, name)
                )
                yield f"node {place} votes for {client}", self._with_node(state, place, voted)
        votes = sum(node.answered[name] for node in state.nodes)
        if attempt.phase == ASKING and votes >= self.majority and attempt.age < self.ttl:
            belief = self.ttl if self.flaw == "validity counts from the answer" else self.ttl - attempt.age
            held = attempt._replace(phase=HELD, age=0, belief=belief)
            yield f"{client} is granted, and believes for {belief} ticks", self._with_attempt(state, name, held)

    def _renewal(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        if not self.renewals or not attempt.belief:
            return
        client = "ABCDEFG"[name]
        if attempt.renewal < 0:
            nodes = tuple(node._replace(renewed=_marked(node.renewed, name, value=False)) for node in state.nodes)
            sent = self._with_attempt(state._replace(nodes=nodes), name, attempt._replace(renewal=0))
            yield f"{client} sends a renewal to all nodes", sent
            return
        for place, node in enumerate(state.nodes):
            if node.holder != name or node.renewed[name]:
                continue
            if node.out and self.flaw != "a node that sits out confirms":
                kept = node._replace(left=self.ttl)
                yield (
                    f"node {place} sits out: it renews {client}, and does not count",
                    self._with_node(state, place, kept),
                )
            else:
                renewed = node._replace(left=self.ttl, renewed=_marked(node.renewed, name))
                yield f"node {place} renews {client}", self._with_node(state, place, renewed)
        yield from self._counted(state, name, attempt)

    def _counted(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        client = "ABCDEFG"[name]
        confirmed = sum(node.renewed[name] for node in state.nodes)
        needed = 1 if self.flaw == "an extension by a minority counts" else self.majority
        if confirmed >= needed:
            belief = max(attempt.belief, self.ttl - attempt.renewal)
            extended = attempt._replace(
                belief=belief, renewal=-1, repairing=attempt.repairing or self.repair != "never"
            )
            yield f"{client} counts: renewed, believes for {belief} ticks", self._with_attempt(state, name, extended)
        elif confirmed and self.repair == "on any confirmation" and not attempt.repairing:
            repairing = attempt._replace(repairing=True)
            yield f"{client} sends repairs on one confirmation", self._with_attempt(state, name, repairing)

    def _repairs(self, state: State, name: int) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            if node.holder == FREE and node.highest <= name + 1:
                repaired = node._replace(holder=name, left=self.ttl, highest=name + 1)
                yield f"node {place} is repaired for {'ABCDEFG'[name]}", self._with_node(state, place, repaired)

    def _release(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        over = attempt._replace(phase=RELEASED, belief=0, renewal=-1)
        yield f"{'ABCDEFG'[name]} releases", self._with_attempt(state, name, over)

    def _clean_up(self, state: State, name: int) -> Iterator[tuple[str, State]]:
        """The release, or the clean-up of a failed attempt, arrives at a node."""
        mine = {name, 1 - name} if self.flaw == "a retry keeps its owner" and name < 2 else {name}
        for place, node in enumerate(state.nodes):
            if node.holder in mine:
                freed = node._replace(holder=FREE, left=0)
                yield f"a clean-up of {'ABCDEFG'[name]} frees node {place}", self._with_node(state, place, freed)

    def _losses(self, state: State) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            if state.wipes:
                wiped = self._with_node(state, place, node._replace(holder=FREE, left=0, highest=0, out=self.sits_out))
                yield f"node {place} forgets everything", wiped._replace(wipes=state.wipes - 1)
            if state.jumps and node.holder != FREE:
                jumped = self._with_node(state, place, node._replace(holder=FREE, left=0))
                yield f"the clock of node {place} jumps ahead", jumped._replace(jumps=state.jumps - 1)

    def _tick(self, state: State) -> tuple[str, State]:
        nodes = tuple(
            node._replace(
                holder=node.holder if node.left > 1 else FREE, left=max(0, node.left - 1), out=max(0, node.out - 1)
            )
            for node in state.nodes
        )
        attempts = tuple(
            attempt._replace(
                age=min(self.ttl, attempt.age + 1) if attempt.phase == ASKING else attempt.age,
                belief=max(0, attempt.belief - 1),
                renewal=-1 if attempt.renewal < 0 or attempt.belief <= 1 else min(self.ttl, attempt.renewal + 1),
            )
            for attempt in state.attempts
        )
        return "a tick passes", state._replace(nodes=nodes, attempts=attempts)

    def _with_node(self, state: State, place: int, node: Node) -> State:
        return state._replace(nodes=(*state.nodes[:place], node, *state.nodes[place + 1 :]))

    def _with_attempt(self, state: State, name: int, attempt: Attempt) -> State:
        return state._replace(attempts=(*state.attempts[:name], attempt, *state.attempts[name + 1 :]))


def _marked(row: tuple[bool, ...], place: int, *, value: bool = True) -> tuple[bool, ...]:
    return (*row[:place], value, *row[place + 1 :])
