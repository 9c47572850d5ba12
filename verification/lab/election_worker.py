"""A candidate of an election that writes down when it surely led; started by `verification.lab.elections`.

Words: URL, namespace, ttl, renew deadline, retry, seconds that its body takes to stop, the file for its terms.
The file is mapped into memory, so that it is complete up to the instant of a SIGKILL. TERM resigns and ends it.
"""

from __future__ import annotations

import mmap
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import leasehold

if TYPE_CHECKING:
    from leasehold._blocking.election import Term

ROW = struct.Struct("5d")  # fence, end of the first read that succeeded, start of the last one, begin and end of body
LOOK = 0.0005


def now() -> float:
    """The clock that all processes of this host share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Stopped(Exception):
    """TERM was received."""


class Book:
    """The terms of this process, one row each."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._places: dict[int, int] = {}
        self._guard = threading.Lock()

    def note(self, fence: int, column: int, instant: float) -> None:
        """Write an instant into the row of a term."""
        with self._guard:
            place = self._places.setdefault(fence, len(self._places) * ROW.size)
        if struct.unpack_from("d", self._map, place)[0] == 0:
            struct.pack_into("d", self._map, place, float(fence))
        struct.pack_into("d", self._map, place + 8 * column, instant)

    def knows(self, fence: int, column: int) -> bool:
        """Whether this instant was written before."""
        place = self._places.get(fence)
        return place is not None and struct.unpack_from("d", self._map, place + 8 * column)[0] != 0


def main() -> None:
    """Campaign in a thread, and read `is_leader` in this one for as long as it runs."""
    url, namespace, ttl, renew_deadline, retry, slow, path = sys.argv[1:]
    book, stop = Book(Path(path)), threading.Event()
    with leasehold.connect(url, namespace=namespace) as client:
        election = client.election("leader", ttl=float(ttl), renew_deadline=float(renew_deadline), retry=float(retry))

        def body(term: Term) -> None:
            book.note(term.fence, 3, now())
            term.lost.wait()
            if not stop.is_set():
                time.sleep(float(slow))
            book.note(term.fence, 4, now())
            if stop.is_set():
                raise Stopped

        def campaign() -> None:
            try:
                election.run(body)
            except (Stopped, leasehold.ClientClosed):
                return

        def end(*_: object) -> None:
            stop.set()
            term = election.term
            if term is not None:
                term.step_down()

        signal.signal(signal.SIGTERM, end)
        campaigning = threading.Thread(target=campaign, daemon=True)
        campaigning.start()
        while not stop.is_set():
            before = now()
            term = election.term if election.is_leader else None
            after = now()
            if term is not None:
                if not book.knows(term.fence, 1):
                    book.note(term.fence, 1, after)
                book.note(term.fence, 2, before)
            time.sleep(LOOK)
        campaigning.join(1.0)  # a candidate that waits is ended by closing the client


if __name__ == "__main__":
    main()
