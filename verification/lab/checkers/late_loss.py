"""The holder knows of its loss within the ttl after the last confirmed renewal.

What a holder believes is bounded from outside as well: nothing is confirmed to a client that is cut off, so that its
belief must be over one ttl after the cut. A process cannot act while it does not run: the longest time around the loss
in which it wrote nothing, because it was stopped or the machine was busy, is not its fault.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import Kind, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from verification.lab.history import Event, Hold

__all__ = ["late_loss", "notices"]

TOLERANCE = 0.25  # of the scheduler, beyond what the ticks of the client itself show


def notices(events: Sequence[Event], ttl: float) -> Iterator[tuple[Hold, float, float]]:
    """For every lease that was lost: the hold, how long after its end this was known, and the excuse."""
    cuts = [event for event in events if event.kind is Kind.FAULT and event.detail.startswith("cut off")]
    alive: dict[int, list[float]] = {}
    for event in events:
        if event.kind is not Kind.ENDED:
            alive.setdefault(event.process, []).append(event.t)
    for hold in holds(events):
        if hold.lost is None:
            continue
        hits = (cut.t for cut in cuts if cut.value == hold.process and hold.granted < cut.t < hold.lost)
        cut = max(hits, default=None)
        due = hold.until if cut is None else min(hold.until, cut + ttl)
        yield hold, hold.lost - due, _longest_silence(alive[hold.process], due - TOLERANCE, hold.lost)


def _longest_silence(times: Sequence[float], begin: float, end: float) -> float:
    gaps = (later - earlier for earlier, later in pairwise(times) if later >= begin and earlier <= end)
    return max(gaps, default=0.0)


def late_loss(events: Sequence[Event], ttl: float) -> list[Violation]:
    """Losses that were known too late, and beliefs that outlived a cut by more than the ttl."""
    found = []
    for hold, late, excuse in notices(events, ttl):
        if late > TOLERANCE + excuse and hold.lost is not None:
            detail = f"client {hold.process} knew of its loss {late:.3f} s after its lease was over"
            found.append(Violation("late loss", hold.lost, detail, (hold.process,)))
    return [*found, *_beliefs_beyond_a_cut(events, ttl)]


def _beliefs_beyond_a_cut(events: Sequence[Event], ttl: float) -> Iterator[Violation]:
    ticks: dict[int, list[Event]] = {}
    for event in events:
        if event.kind is Kind.TICK:
            ticks.setdefault(event.process, []).append(event)
    for cut, end in _cuts(events):
        held = {hold.call for hold in holds(events) if hold.process == cut.value and hold.granted < cut.t}
        mine = [each for each in ticks.get(cut.value or 0, []) if cut.t < each.t < end and each.call in held]
        if any((tick.until or 0.0) > cut.t + ttl + TOLERANCE for tick in mine):
            detail = f"client {cut.value} believed for longer than its ttl after it was cut off"
            yield Violation("late loss", cut.t + ttl, detail, (cut.value or 0,))


def _cuts(events: Sequence[Event]) -> Iterator[tuple[Event, float]]:
    """Each cut of one client, and when it was healed."""
    open_cuts: dict[int | None, Event] = {}
    for event in events:
        if event.kind is Kind.FAULT and event.detail.startswith("cut off"):
            open_cuts[event.value] = event
        elif event.kind is Kind.CALM and event.value in open_cuts:
            yield open_cuts.pop(event.value), event.t
    for cut in open_cuts.values():
        yield cut, events[-1].t
