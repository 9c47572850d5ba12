"""What happened in one cell: events with the monotonic time of the host, one JSON object per line. It only writes down.

All processes of a host share the clock, so that intervals of two clients can be compared. A client writes each line
with one call to a pipe: the lines that a killed client has written are complete, and lines never mix.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["NEMESIS", "Event", "Hold", "Kind", "Pen", "holds", "now", "read_history"]

NEMESIS = 0  # the process number of what disturbs; clients count from 1


class Kind(StrEnum):
    """What an event says."""

    STARTED = "started"  # a client runs
    ENDED = "ended"  # a client was ended, in order or by a signal
    ACQUIRE = "acquire"  # a call begins
    GRANTED = "granted"  # … and returns a grant
    BUSY = "busy"  # … or finds the lock taken for as long as it may wait
    FAILED = "failed"  # a call of any kind raised an error: its effect is unknown
    TICK = "tick"  # a holder looks at its lease and believes in it until `until`
    LOST = "lost"  # a holder is told, or finds by its clock, that its lease is over
    RELEASE = "release"  # a call begins
    RELEASED = "released"  # … and returns; `detail` is "yes" if that freed the lock
    WRITING = "writing"  # a fenced write of `value` begins
    WROTE = "wrote"  # … and is acknowledged
    REFUSED = "refused"  # … or refused, because a later holder was there
    UNFENCED = "unfenced"  # a write of `value` without a fence is acknowledged
    STOPPING = "stopping"  # a client is about to stop itself as a whole
    LEADS = "leads"  # a candidate reads that it leads, in the term of `fence`, until `until`
    RAN = "ran"  # the body of a job ran for the slot in `detail`
    DONE = "done"  # … and the run was recorded as done
    FAULT = "fault"  # a disturbance begins; `detail` says which, `value` is the client that it hits, if only one
    CALM = "calm"  # … and ends
    HEALED = "healed"  # no disturbance any more until the end
    FINAL = "final"  # what the database has at the end; `detail` names the counter
    LEFT = "left"  # `value` things of the kind `detail` are left after the end


@dataclass(frozen=True, slots=True)
class Event:
    """One line. `call` is the number of the attempt within its client; a grant keeps the number of its attempt."""

    t: float
    process: int
    kind: Kind
    call: int = 0
    fence: int | None = None
    until: float | None = None
    value: int | None = None
    detail: str = ""

    def to_json(self) -> str:
        """One line, without what is not said."""
        return json.dumps({name: value for name, value in asdict(self).items() if value not in (None, "")})

    @classmethod
    def from_json(cls, line: str) -> Event:
        """Fields that this version does not know are ignored."""
        known = {each.name for each in fields(cls)}
        words = {name: value for name, value in json.loads(line).items() if name in known}
        return cls(**{**words, "kind": Kind(words["kind"])})


def now() -> float:
    """The clock that all processes of this host share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Pen:
    """Writes the events of one client to a pipe."""

    def __init__(self, pipe: int, process: int) -> None:
        self._pipe = pipe
        self.process = process

    def note(
        self,
        kind: Kind,
        *,
        t: float | None = None,
        process: int | None = None,
        call: int = 0,
        fence: int | None = None,
        until: float | None = None,
        value: int | None = None,
        detail: str = "",
    ) -> float:
        """Write an event that happened now, or at `t`, to this client or to another; returns its time."""
        instant = now() if t is None else t
        event = Event(
            instant, self.process if process is None else process, kind, call, fence, until, value, detail[:200]
        )
        os.write(self._pipe, event.to_json().encode() + b"\n")
        return instant


def read_history(path: Path) -> list[Event]:
    """In the order of time; a line that was cut off at the end of a run is left out."""
    return sorted(_events(path.read_text().splitlines()), key=lambda event: event.t)


def _events(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        if line.endswith("}"):
            yield Event.from_json(line)


@dataclass(slots=True)
class Hold:
    """One grant as its holder saw it.

    `until`: up to when it believed in it at most, by its local deadline; later than `released_from` does not count.
    """

    process: int
    call: int
    asked: float
    granted: float
    until: float
    fence: int | None = None
    last_tick: float = 0.0
    lost: float | None = None
    released_from: float | None = None  # a release was begun
    released_at: float | None = None  # … and answered
    was_freed: bool | None = None  # by the answer
    ended: float | None = None  # the process was killed

    @property
    def believed_until(self) -> float:
        """When the holder stopped believing: at its deadline, at the news, at the release, at its own end."""
        ends = [self.until, self.lost, self.released_from, self.ended]
        return min(end for end in ends if end is not None)


def holds(events: Sequence[Event]) -> list[Hold]:
    """Every grant of a history, in the order in which they were granted."""
    asked: dict[tuple[int, int], float] = {}
    found: dict[tuple[int, int], Hold] = {}
    for event in events:
        place = (event.process, event.call)
        hold = found.get(place)
        if event.kind is Kind.ACQUIRE:
            asked[place] = event.t
        elif event.kind is Kind.GRANTED:
            until = event.t if event.until is None else event.until
            found[place] = Hold(*place, asked.get(place, event.t), event.t, until, event.fence, event.t)
        elif event.kind is Kind.ENDED:
            for each in found.values():
                if each.process == event.process and each.ended is None:
                    each.ended = event.t
        elif hold is not None:
            _extend(hold, event)
    return sorted(found.values(), key=lambda each: each.granted)


def _extend(hold: Hold, event: Event) -> None:
    if event.kind is Kind.TICK:
        hold.last_tick = event.t
        hold.until = max(hold.until, event.until or 0.0)
    elif event.kind is Kind.LOST and hold.lost is None:
        hold.lost = event.t
    elif event.kind is Kind.RELEASE and hold.released_from is None:
        hold.released_from = event.t
    elif event.kind is Kind.RELEASED and hold.released_at is None:
        hold.released_at, hold.was_freed = event.t, event.detail == "yes"
