"""A few seconds of a history, as data for a picture: who believed to hold the lock when, and what was done to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verification.lab.history import Kind, holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event, Hold

__all__ = ["Timeline", "cut_out"]

LENGTH = 5.0  # in ttls
MOST_SPANS = 200


@dataclass(slots=True)
class Timeline:
    """Instants are seconds from its beginning. Each entry: lane, from, to or instant, and what is written to it."""

    length: float
    holds: list[tuple[int, float, float, int | None]] = field(default_factory=list)
    faults: list[tuple[int, float, float, str]] = field(default_factory=list)  # lane 0: all clients
    marks: list[tuple[int, float, str]] = field(default_factory=list)  # lost, refused, written late


def cut_out(events: Sequence[Event], ttl: float) -> Timeline | None:
    """Around the first refused write, else the first loss, else the first fault, else the first grant."""
    begin = _interesting(events, ttl)
    if begin is None:
        return None
    end = begin + LENGTH * ttl
    timeline = Timeline(round(end - begin, 3))
    for hold in holds(events):
        if hold.granted < end and hold.believed_until > begin and len(timeline.holds) < MOST_SPANS:
            timeline.holds.append((hold.process, *_inside(hold, begin, end), hold.fence))
    timeline.faults = _faults(events, begin, end)
    for event in events:
        if event.kind in (Kind.LOST, Kind.REFUSED, Kind.ENDED) and begin <= event.t <= end:
            timeline.marks.append((event.process, round(event.t - begin, 4), str(event.kind)))
    return timeline


def _interesting(events: Sequence[Event], ttl: float) -> float | None:
    for kind, before in ((Kind.REFUSED, 3.0), (Kind.LOST, 2.0), (Kind.FAULT, 0.5), (Kind.GRANTED, 0.1)):
        for event in events:
            if event.kind is kind:
                return event.t - before * ttl
    return None


def _inside(hold: Hold, begin: float, end: float) -> tuple[float, float]:
    return round(max(hold.granted, begin) - begin, 4), round(min(hold.believed_until, end) - begin, 4)


def _faults(events: Sequence[Event], begin: float, end: float) -> list[tuple[int, float, float, str]]:
    found = []
    open_faults: dict[int, Event] = {}
    for event in events:
        lane = event.value or 0
        if event.kind is Kind.FAULT:
            open_faults[lane] = event
        elif event.kind is Kind.CALM and lane in open_faults:
            started = open_faults.pop(lane)
            if started.t < end and event.t > begin:
                span = (round(max(started.t, begin) - begin, 4), round(min(event.t, end) - begin, 4))
                found.append((lane, *span, started.detail))
    return found
