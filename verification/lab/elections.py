"""Candidates of one election, as real processes: disturb the leader, wait for its successor, compare when each led."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab.election_worker import ROW, now
from verification.lab.process import wait_until
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Candidate", "Candidates", "Span", "overlaps"]

ROOT = Path(__file__).resolve().parents[2]
ROWS = 200
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Span:
    """One term as its process saw it, on the clock of the host; 0 where it did not come so far."""

    process: int
    fence: int
    first: float  # by then a first read of `is_leader` had succeeded
    last: float  # a last read that succeeded had not begun before
    began: float  # of the body
    ended: float


def overlaps(spans: list[Span]) -> list[str]:
    """Terms of two processes that surely were at the same time: a read succeeded after one of a later term had."""
    found = []
    for earlier, later in pairwise(sorted((span for span in spans if span.first), key=lambda span: span.fence)):
        if earlier.process != later.process and earlier.last > later.first:
            found.append(f"{earlier} was still leading at the begin of {later}")
    return found


class Candidate:
    """One process."""

    def __init__(self, words: list[str], path: Path, proxy: FaultProxy | None) -> None:
        self._path = path
        self.proxy = proxy
        path.write_bytes(bytes(ROW.size * ROWS))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "verification.lab.election_worker", *words, str(path)]
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT)

    def spans(self) -> list[Span]:
        """Its terms so far."""
        rows = struct.iter_unpack(ROW.format, self._path.read_bytes())
        return [Span(self.process.pid, int(fence), *instants) for fence, *instants in rows if fence]

    def send(self, number: int) -> float:
        """Send a signal; returns when."""
        instant = now()
        self.process.send_signal(number)
        return instant

    def wait_end_of_body(self, term: Span) -> None:
        """Wait until the body of a term has ended."""
        wait_until(
            lambda: any(span.fence == term.fence and span.ended for span in self.spans()),
            f"the body of {term} does not learn that its term is over",
            PATIENCE,
        )

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Candidates:
    """Some candidates of one election; with `address` each reaches the server through a proxy of its own."""

    def __init__(
        self,
        url: Callable[[str], str],
        address: tuple[str, int] | None,
        *,
        number: int = 3,
        timings: tuple[float, float, float] = (15.0, 10.0, 2.0),
        slow: float = 0.0,
    ) -> None:
        self._url = url
        self._address = address
        self._timings = timings
        self._slow = slow
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="leasehold-election-")))
        self._namespace = f"election {self._folder.name}"
        self._all: list[Candidate] = []
        self._number = number

    def __enter__(self) -> Candidates:
        for _ in range(self._number):
            self.add()
        return self

    def __exit__(self, *_: object) -> None:
        for candidate in self._all:
            candidate.close()
        self._stack.close()

    def add(self) -> Candidate:
        """Start one more."""
        proxy = None if self._address is None else self._stack.enter_context(FaultProxy(self._address))
        place = "" if proxy is None else f"{proxy.address[0]}:{proxy.address[1]}"
        words = [self._url(place), self._namespace, *map(str, self._timings), str(self._slow)]
        candidate = Candidate(words, self._folder / f"{len(self._all)}.terms", proxy)
        self._all.append(candidate)
        return candidate

    def spans(self) -> list[Span]:
        """All terms of all candidates."""
        return [span for candidate in self._all for span in candidate.spans()]

    def leader(self, after: Span | None = None) -> tuple[Candidate, Span]:
        """Wait for a leader, or for the successor of one; it has read that it leads, twice, and its body runs."""
        found: list[tuple[Candidate, Span]] = []

        def look() -> bool:
            for candidate in self._all:
                if candidate.process.poll() is None:
                    for span in candidate.spans():
                        if 0 < span.first < span.last and span.began and (after is None or span.fence > after.fence):
                            found[:] = [(candidate, span)]
            return bool(found)

        wait_until(look, "no successor" if after is not None else "no leader", PATIENCE)
        return found[0]

    def settle(self) -> None:
        """Give candidates that have been started time to wait for their turn."""
        time.sleep(0.5)
