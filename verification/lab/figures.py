"""The figures of a history: how often, and how long at least and at most. What is too long is for others to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers.late_loss import notices
from verification.lab.checkers.lost_update import count_lost
from verification.lab.checkers.starvation import times_to_recover
from verification.lab.history import Kind, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from verification.lab.history import Event

__all__ = ["RECOVERY", "counts", "times"]

RECOVERY = 1.0  # seconds beyond the ttl in which the lock of a holder that was killed is granted again


def counts(events: Sequence[Event], ttl: float) -> dict[str, int]:
    """How often each thing happened."""

    def count(kind: Kind) -> int:
        return sum(event.kind is kind for event in events)

    killed = list(_after_kills(events))
    return {
        "operations": count(Kind.ACQUIRE),
        "grants": count(Kind.GRANTED),
        "busy": count(Kind.BUSY),
        "errors": count(Kind.FAILED),
        "faults": count(Kind.FAULT),
        "losses": count(Kind.LOST),
        "cut holders": len(list(_after_cuts(events))),
        "killed holders": len(killed),
        "killed holders, late": sum(took > ttl + RECOVERY for took in killed),
        "fenced updates": count(Kind.WROTE),
        "unfenced updates": count(Kind.UNFENCED),
        "stale writes refused": count(Kind.REFUSED),
        "lost with fence": count_lost(events, Kind.WROTE),
        "lost without fence": count_lost(events, Kind.UNFENCED),
        "jobs": count(Kind.DONE),
    }


def times(events: Sequence[Event], ttl: float) -> dict[str, float | None]:
    """The least and the most of what was measured in seconds; None where nothing was."""
    late = [max(0.0, since - excuse) for _, since, excuse in notices(events, ttl)]
    recovered = [took for took in times_to_recover(events).values() if took is not None]
    noticed, killed = list(_after_cuts(events)), list(_after_kills(events))
    return {
        "notice loss, least": min(noticed, default=None),
        "notice loss": max(noticed, default=None),
        "late by at most": max(late, default=None),
        "first grant after healing": min(recovered, default=None),
        "last client after healing": max(recovered, default=None),
        "next grant after a kill, least": min(killed, default=None),
        "next grant after a kill": max(killed, default=None),
    }


def _after_cuts(events: Sequence[Event]) -> Iterator[float]:
    """How long after each cut its holder knew that its lease was over."""
    cuts = [event for event in events if event.kind is Kind.FAULT and event.detail.startswith("cut off")]
    mine = holds(events) if cuts else []
    for cut in cuts:
        for hold in mine:
            if hold.process == cut.value and hold.lost is not None and hold.granted < cut.t < hold.lost:
                yield hold.lost - cut.t


def _after_kills(events: Sequence[Event]) -> Iterator[float]:
    """How long after each kill of a holder another was granted; not where a server was away meanwhile.

    Where further clients were killed meanwhile, which may have been next in line, it is counted from the last of them.
    """
    mine = holds(events)
    kills = [event.t for event in events if event.kind is Kind.ENDED]
    away = list(_disturbances_of_all(events))
    for hold in mine:
        if hold.ended is None or hold.believed_until < hold.ended:
            continue
        later = [other.granted for other in mine if other.granted > hold.ended]
        if later and not any(begin < min(later) and end > hold.ended for begin, end in away):
            yield min(later) - max(kill for kill in kills if kill < min(later))


def _disturbances_of_all(events: Sequence[Event]) -> Iterator[tuple[float, float]]:
    """From and until when something else than one client was disturbed."""
    begun: float | None = None
    for event in events:
        if event.kind is Kind.FAULT and event.value is None and begun is None:
            begun = event.t
        elif event.kind is Kind.CALM and event.value is None and begun is not None:
            yield begun, event.t
            begun = None
    if begun is not None:
        yield begun, events[-1].t
