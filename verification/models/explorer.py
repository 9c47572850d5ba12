"""A breadth-first search through all states of a model. It knows no protocol.

States are hashable values and are visited once. Because the search goes in breadth, the first violation found has a
shortest way to it, and that way is printed as a list of steps that a person can follow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

__all__ = ["Limits", "Model", "Result", "explore"]

S = TypeVar("S", bound="Hashable")

CHECK_EVERY = 20_000  # states between two looks at the clock


class Model(Protocol[S]):
    """What the search needs of a model."""

    def initial(self) -> S:
        """Where everything begins."""

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """Everything that can happen next: what it is, in words, and the state after it."""

    def violation(self, state: S) -> str | None:
        """Which promise is broken in this state, in words; None if none is."""

    def canonical(self, state: S) -> S:
        """One state for all that differ only in which node, or which client, is called what."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far to search; a search that met one of these is not complete."""

    states: int = 3_000_000
    seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class Result(Generic[S]):
    """What a search found. `depth` is the number of steps to the states that are farthest away."""

    states: int
    transitions: int
    depth: int
    seconds: float
    complete: bool
    violation: str | None = None
    trace: tuple[str, ...] = field(default=())

    @property
    def sound(self) -> bool:
        """Whether all states were seen and none breaks a promise."""
        return self.complete and self.violation is None


def explore(
    model: Model[S], limits: Limits | None = None, progress: Callable[[int, int], None] | None = None
) -> Result[S]:
    """Visit every state that can be reached; stop at the first that breaks a promise."""
    return _Search(model, limits or Limits(), progress).run()


class _Search(Generic[S]):
    def __init__(self, model: Model[S], limits: Limits, progress: Callable[[int, int], None] | None) -> None:
        self._model = model
        self._limits = limits
        self._progress = progress
        self._before: dict[S, S | None] = {}  # each state, and one from which it was reached
        self._transitions = 0
        self._depth = 0
        self._started = time.monotonic()

    def run(self) -> Result[S]:
        start = self._model.canonical(self._model.initial())
        self._before[start] = None
        broken = self._model.violation(start)
        if broken is not None:
            return self._result(complete=False, violation=broken, last=start)
        layer = [start]
        while layer:
            following: list[S] = []
            for state in layer:
                for _, reached in self._model.steps(state):
                    self._transitions += 1
                    after = self._model.canonical(reached)
                    if after in self._before:
                        continue
                    self._before[after] = state
                    broken = self._model.violation(after)
                    if broken is not None:
                        self._depth += 1
                        return self._result(complete=False, violation=broken, last=after)
                    following.append(after)
                if self._is_over():
                    return self._result(complete=False)
            if following:
                self._depth += 1
            layer = following
        return self._result(complete=True)

    def _is_over(self) -> bool:
        seen = len(self._before)
        if seen >= self._limits.states:
            return True
        if seen % CHECK_EVERY == 0 and self._progress is not None:
            self._progress(seen, self._depth)
        return time.monotonic() - self._started > self._limits.seconds

    def _result(self, *, complete: bool, violation: str | None = None, last: S | None = None) -> Result[S]:
        return Result(
            states=len(self._before),
            transitions=self._transitions,
            depth=self._depth,
            seconds=time.monotonic() - self._started,
            complete=complete,
            violation=violation,
            trace=() if last is None else self._trace(last),
        )

    def _trace(self, last: S) -> tuple[str, ...]:
        """The steps from the beginning to here, replayed by the model, so that every node keeps its name."""
        way = [last]
        while (before := self._before[way[-1]]) is not None:
            way.append(before)
        steps: list[str] = []
        state = self._model.initial()
        for wanted in reversed(way[:-1]):
            words, state = next(
                (words, after) for words, after in self._model.steps(state) if self._model.canonical(after) == wanted
            )
            steps.append(words)
        return tuple(steps)
