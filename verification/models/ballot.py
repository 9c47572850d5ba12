"""The Redlock fence: which rule of a node keeps numbers unique and rising? No clock here: anything may take any time.

A state is one column for each node and one row for each attempt. A vote may arrive at any time after its attempt began,
also after the attempt was granted or given up; a lock may vanish from a node at any time (it expired, it was released,
a failed attempt was cleaned up: the model need not distinguish these); messages are lost by not arriving, and a client
crashes by doing nothing more. An attempt is granted at any moment after a majority has voted for it. So every order of
messages is searched without a network in the state.

The promises: U, no number is granted twice; M, an attempt that began after a grant was complete gets a higher number.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ballot", "CounterOfEachNode", "ReadThenWrite", "State"]

FREE = -1
WAITING, ASKING, WRITING, GRANTED = range(4)


class Node(NamedTuple):
    """What one node knows, and its answer to each attempt (0: none; else a yes, with a number)."""

    holder: int
    highest: int
    answered: tuple[int, ...]
    confirmed: tuple[int, ...]  # in the second round of a protocol that has two, or by a renewal


class Attempt(NamedTuple):
    """What one client does; `floor` is the highest number that was granted before it began."""

    phase: int
    number: int
    floor: int


class State(NamedTuple):
    """Everything at one moment."""

    nodes: tuple[Node, ...]
    attempts: tuple[Attempt, ...]
    wipes: int  # how many more times a node may forget everything


def _replaced(row: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*row[:place], value, *row[place + 1 :])


@dataclass(frozen=True)
class Protocol:
    """What all protocols of this file share. Attempts begin in the order of their names: they are all alike."""

    nodes: int = 3
    attempts: int = 3
    wipes: int = 0

    def initial(self) -> State:
        empty = Node(FREE, 0, (0,) * self.attempts, (0,) * self.attempts)
        return State((empty,) * self.nodes, (Attempt(WAITING, 0, 0),) * self.attempts, self.wipes)

    def canonical(self, state: State) -> State:
        """Nodes are all alike too."""
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
        yield from self._begin(state)
        for name, attempt in enumerate(state.attempts):
            if attempt.phase != WAITING:
                yield from self._attempt_steps(state, name, attempt)
        for place, node in enumerate(state.nodes):
            if node.holder != FREE:
                yield (
                    f"on node {place} the lock of {_client(node.holder)} is gone (expired or released)",
                    self._with_node(state, place, node._replace(holder=FREE)),
                )
            if state.wipes and (node.highest or node.holder != FREE):
                wiped = self._with_node(state, place, node._replace(holder=FREE, highest=0))
                yield f"node {place} restarts empty", wiped._replace(wipes=state.wipes - 1)

    def _begin(self, state: State) -> Iterator[tuple[str, State]]:
        raise NotImplementedError

    def _attempt_steps(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        raise NotImplementedError

    @property
    def majority(self) -> int:
        return self.nodes // 2 + 1

    def _waiting(self, state: State) -> int | None:
        """The next attempt that has not begun."""
        for name, attempt in enumerate(state.attempts):
            if attempt.phase == WAITING:
                return name
        return None

    def _floor(self, state: State) -> int:
        return max((attempt.number for attempt in state.attempts if attempt.phase == GRANTED), default=0)

    def _with_node(self, state: State, place: int, node: Node) -> State:
        return state._replace(nodes=(*state.nodes[:place], node, *state.nodes[place + 1 :]))

    def _with_attempt(self, state: State, name: int, attempt: Attempt) -> State:
        return state._replace(attempts=(*state.attempts[:name], attempt, *state.attempts[name + 1 :]))

    def _granted(self, state: State, name: int, number: int) -> tuple[str, State]:
        attempt = state.attempts[name]._replace(phase=GRANTED, number=number)
        return f"{_client(name)} counts its votes: granted, number {number}", self._with_attempt(state, name, attempt)


def _client(name: int) -> str:
    return "ABCDEFG"[name]


@dataclass(frozen=True)
class Ballot(Protocol):
    """The client proposes a number; the node locks and raises in one step if it is free and knows no such number.

    Proposals are arbitrary here, so clocks cannot matter. `rule` is the node's test; `repair` lets a holder that is
    confirmed by a majority put its lock back on a node that is free.
    """

    numbers: int = 4
    rule: str = "lower"  # accept if the highest number is lower; "any": accept whatever is proposed
    repair: bool = False

    def _begin(self, state: State) -> Iterator[tuple[str, State]]:
        name = self._waiting(state)
        if name is None:
            return
        for number in range(1, self.numbers + 1):
            attempt = Attempt(ASKING, number, self._floor(state))
            yield f"{_client(name)} proposes {number} to all nodes", self._with_attempt(state, name, attempt)

    def _attempt_steps(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            if node.holder == FREE and self._accepts(node, attempt.number):
                voted = node._replace(
                    holder=name, highest=max(node.highest, attempt.number), answered=_replaced(node.answered, name, 1)
                )
                yield (
                    f"node {place} votes for {_client(name)}: highest {node.highest} -> {voted.highest}",
                    self._with_node(state, place, voted),
                )
        if attempt.phase == ASKING and sum(node.answered[name] for node in state.nodes) >= self.majority:
            yield self._granted(state, name, attempt.number)
        if self.repair and attempt.phase == GRANTED:
            yield from self._renew_and_repair(state, name, attempt)

    def _accepts(self, node: Node, number: int) -> bool:
        return self.rule == "any" or node.highest < number

    def _renew_and_repair(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        confirmed = sum(node.confirmed[name] for node in state.nodes)
        for place, node in enumerate(state.nodes):
            if node.holder == name and not node.confirmed[name]:
                known = node._replace(confirmed=_replaced(node.confirmed, name, 1))
                yield f"node {place} confirms {_client(name)}", self._with_node(state, place, known)
            if confirmed >= self.majority and node.holder == FREE and node.highest <= attempt.number:
                repaired = node._replace(holder=name, highest=attempt.number)
                yield f"{_client(name)} repairs node {place}", self._with_node(state, place, repaired)


@dataclass(frozen=True)
class CounterOfEachNode(Protocol):
    """Known to be wrong: each node counts for itself when it votes, and the number is the highest answer."""

    def _begin(self, state: State) -> Iterator[tuple[str, State]]:
        name = self._waiting(state)
        if name is not None:
            attempt = Attempt(ASKING, 0, self._floor(state))
            yield f"{_client(name)} asks all nodes", self._with_attempt(state, name, attempt)

    def _attempt_steps(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            if node.holder == FREE and not node.answered[name]:
                count = node.highest + 1
                voted = node._replace(holder=name, highest=count, answered=_replaced(node.answered, name, count))
                yield (
                    f"node {place} votes for {_client(name)} and counts to {count}",
                    self._with_node(state, place, voted),
                )
        if attempt.phase == ASKING:
            answered = [node.answered[name] for node in state.nodes if node.answered[name]]
            for counted in range(self.majority, len(answered) + 1):  # late answers are not waited for
                for number in {max(some) for some in combinations(answered, counted)}:
                    yield self._granted(state, name, number)


@dataclass(frozen=True)
class ReadThenWrite(Protocol):
    """Two rounds: lock a majority and read its numbers, then write the highest plus one to a majority.

    With `strict` a node accepts the write only if its number is lower; without, also if it is there already.
    """

    strict: bool = True

    def _begin(self, state: State) -> Iterator[tuple[str, State]]:
        name = self._waiting(state)
        if name is not None:
            attempt = Attempt(ASKING, 0, self._floor(state))
            yield f"{_client(name)} asks all nodes to lock", self._with_attempt(state, name, attempt)

    def _attempt_steps(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            if node.holder == FREE and not node.answered[name]:
                voted = node._replace(holder=name, answered=_replaced(node.answered, name, node.highest + 1))
                yield (
                    f"node {place} votes for {_client(name)} and says {node.highest}",
                    self._with_node(state, place, voted),
                )
        if attempt.phase == ASKING:
            yield from self._propose(state, name, attempt)
        if attempt.phase >= WRITING:
            yield from self._write(state, name, attempt)

    def _propose(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        answered = [node.answered[name] for node in state.nodes if node.answered[name]]
        for counted in range(self.majority, len(answered) + 1):
            for number in {max(some) for some in combinations(answered, counted)}:
                following = attempt._replace(phase=WRITING, number=number)
                yield f"{_client(name)} writes {number} to all nodes", self._with_attempt(state, name, following)

    def _write(self, state: State, name: int, attempt: Attempt) -> Iterator[tuple[str, State]]:
        for place, node in enumerate(state.nodes):
            there = node.highest >= attempt.number
            if not node.confirmed[name] and not (self.strict and there):
                written = node._replace(
                    highest=max(node.highest, attempt.number), confirmed=_replaced(node.confirmed, name, 1)
                )
                yield (
                    f"node {place} has {node.highest} and accepts {attempt.number} of {_client(name)}",
                    self._with_node(state, place, written),
                )
        if attempt.phase == WRITING and sum(node.confirmed[name] for node in state.nodes) >= self.majority:
            yield self._granted(state, name, attempt.number)
