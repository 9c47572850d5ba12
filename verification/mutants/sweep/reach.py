"""What is known about the tests: how long each takes and which lines it reaches; kept on disk between runs."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from verification.mutants.sweep.places import Place

__all__ = ["Known", "Reach", "digest"]


@dataclass(frozen=True, slots=True)
class Known:
    """One test, as it went on the library without a bug."""

    test: str
    version: str  # of the file that it is in
    seconds: float
    passed: bool
    lines: dict[str, list[int]]

    @property
    def size(self) -> int:
        """How many lines it reaches."""
        return sum(map(len, self.lines.values()))


def digest(*paths: Path) -> str:
    """Changes with the content of these files."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


class Reach:
    """The map from lines to tests. It is valid for one state of the library."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[tuple[str, str], Known] = {}
        self._by_line: dict[tuple[str, int], list[Known]] = {}
        self.load()

    def load(self) -> None:
        """Read what was written since, by a child of this process or by an earlier run."""
        if self._file.exists():
            for text in self._file.read_text().splitlines():
                known = Known(**json.loads(text))
                self._known[known.test, known.version] = known

    def has(self, test: str, version: str) -> bool:
        return (test, version) in self._known

    def choose(self, tests: dict[str, str]) -> None:
        """Only these tests, in these versions, are asked for from now on."""
        self._by_line = {}
        for key in tests.items():
            known = self._known.get(key)
            if known is None or not known.passed:
                continue
            for file, lines in known.lines.items():
                for line in lines:
                    self._by_line.setdefault((file, line), []).append(known)

    def quickest(self, tests: dict[str, str]) -> list[Known]:
        """Those of these tests that passed, the quickest first."""
        found = [known for key in tests.items() if (known := self._known.get(key)) is not None and known.passed]
        return sorted(found, key=lambda known: known.seconds)

    def tests_of(self, place: Place, source: bytes, budget: float) -> list[Known]:
        """Those that reach the place until their time is more than the budget; the quick and special ones first.

        A test that reaches few lines besides says more about this one than a story that passes by.
        """
        lines = [place.line] if place.function else _users(place, source)
        found = {known.test: known for line in lines for known in self._by_line.get((place.file, line), ())}
        chosen, total = [], 0.0
        for known in sorted(found.values(), key=lambda known: known.seconds * (100 + known.size)):
            chosen.append(known)
            total += known.seconds
            if total > budget:
                break
        return chosen


def _users(place: Place, source: bytes) -> list[int]:
    """The lines of a module that mention what a statement outside of functions defines; all lines if none does."""
    text = source.decode().splitlines()
    words = [re.compile(rf"\b{re.escape(name)}\b") for name in place.names]
    found = [number for number, line in enumerate(text, 1) if any(word.search(line) for word in words)]
    inside = [number for number in found if number != place.line]
    return inside if len(inside) > 1 else list(range(1, len(text) + 1))
