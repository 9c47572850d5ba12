"""From the history of a cell to its result: every check, the figures, and one word."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from verification.lab.adapters import OURS
from verification.lab.checkers.fence_order import fence_order
from verification.lab.checkers.late_loss import late_loss, notices
from verification.lab.checkers.leader_overlap import leader_overlap
from verification.lab.checkers.leaks import leaks
from verification.lab.checkers.linearizable import linearizable
from verification.lab.checkers.lost_update import count_lost, lost_update
from verification.lab.checkers.once_each import once_each
from verification.lab.checkers.starvation import starvation, times_to_recover
from verification.lab.checkers.two_owners import two_owners
from verification.lab.history import Kind, holds
from verification.lab.matrix import may_overlap, note, why_unfair
from verification.lab.timeline import Timeline, cut_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.checkers import Violation
    from verification.lab.history import Event
    from verification.lab.matrix import Plan

__all__ = ["PASSED", "Result", "judge", "needs_control", "recovery_limit"]

PASSED, FAILED, VOID, IMPOSSIBLE, BROKEN = "passed", "failed", "void", "impossible", "broken"
MOST_DETAILS = 5
TURNS = ("update", "lock")  # workloads in which every client asks again and again


@dataclass(slots=True)
class Result:
    """What is kept of a cell; `reason` says why there is nothing else, or what a reader should know."""

    plan: dict[str, Any]
    command: str
    verdict: str
    reason: str = ""
    ttl: float = 0.0
    version: str = ""
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    times: dict[str, float | None] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)
    allowed: list[dict[str, Any]] = field(default_factory=list)
    timeline: Timeline | None = None

    def to_dict(self) -> dict[str, Any]:
        """For its file."""
        return asdict(self)


def recovery_limit(ttl: float, clients: int) -> float:
    """Every client in turn may need a ttl and a second between its tries; and a server some time to come up."""
    return clients * (ttl + 1.0) + 10.0


def judge(plan: Plan, events: Sequence[Event], ttl: float, clients: int) -> Result:
    """The result of a cell that ran to its end."""
    result = Result(plan.to_dict(), plan.command, PASSED, note(plan), ttl)
    result.counts = _counts(events)
    result.times = _times(events, ttl)
    result.timeline = cut_out(events, ttl)
    overlaps = [*two_owners(events), *leader_overlap(events), *linearizable(events)]
    result.counts["double holders"] = sum(each.check != "not linearizable" for each in overlaps)
    found = [
        *fence_order(events),
        *lost_update(events),
        *late_loss(events, ttl),
        *_starving(plan, events, ttl, clients),
        *leaks(events),
        *once_each(events),
    ]
    (result.allowed if may_overlap(plan) else result.violations).extend(_details(overlaps))
    result.violations.extend(_details(found))
    _conclude(plan, result)
    return result


def _starving(plan: Plan, events: Sequence[Event], ttl: float, clients: int) -> list[Violation]:
    """Where clients take turns; a candidate need not be elected, and a job need not be there for everyone."""
    if plan.workload not in TURNS:
        return []
    return starvation(events, recovery_limit(ttl, clients), together=bool(why_unfair(plan)))


def _conclude(plan: Plan, result: Result) -> None:
    if result.violations:
        result.verdict = FAILED
    elif plan.library == OURS and not (result.counts["grants"] or result.counts["jobs"]):
        result.verdict, result.reason = VOID, "nothing was granted and no job was done"
    elif needs_control(plan) and not result.counts["lost without fence"]:
        result.verdict = VOID
        result.reason = "the unfenced counter lost nothing although clients were paused: this run has shown nothing"
    if may_overlap(plan) and result.counts["double holders"]:
        result.reason = may_overlap(plan)


def needs_control(plan: Plan) -> bool:
    """In the memory of one process all clients are paused together: no other can come in between."""
    return (
        plan.workload == "update" and plan.fault == "pause clients" and plan.store != "memory" and plan.library == OURS
    )


def _counts(events: Sequence[Event]) -> dict[str, int]:
    def count(kind: Kind) -> int:
        return sum(event.kind is kind for event in events)

    return {
        "operations": count(Kind.ACQUIRE),
        "grants": count(Kind.GRANTED),
        "busy": count(Kind.BUSY),
        "errors": count(Kind.FAILED),
        "faults": count(Kind.FAULT),
        "losses": count(Kind.LOST),
        "fenced updates": count(Kind.WROTE),
        "unfenced updates": count(Kind.UNFENCED),
        "stale writes refused": count(Kind.REFUSED),
        "lost with fence": count_lost(events, Kind.WROTE),
        "lost without fence": count_lost(events, Kind.UNFENCED),
        "jobs": count(Kind.DONE),
    }


def _times(events: Sequence[Event], ttl: float) -> dict[str, float | None]:
    late = [max(0.0, since - excuse) for _, since, excuse in notices(events, ttl)]
    recovered = [took for took in times_to_recover(events).values() if took is not None]
    return {
        "notice loss": _noticed(events),
        "late by at most": max(late, default=None),
        "first grant after healing": min(recovered, default=None),
        "last client after healing": max(recovered, default=None),
        "next grant after a kill": _after_kill(events),
    }


def _noticed(events: Sequence[Event]) -> float | None:
    """The longest time from a client's being cut off until it knew that its lease was over."""
    cuts = [event for event in events if event.kind is Kind.FAULT and event.detail.startswith("cut off")]
    mine = holds(events) if cuts else []
    took = [
        hold.lost - cut.t
        for cut in cuts
        for hold in mine
        if hold.process == cut.value and hold.lost is not None and hold.granted < cut.t < hold.lost
    ]
    return max(took, default=None)


def _after_kill(events: Sequence[Event]) -> float | None:
    """The longest time from the end of a holder that was killed until another was granted."""
    mine = holds(events)
    took = []
    for hold in mine:
        if hold.ended is not None and hold.released_from is None and hold.lost is None:
            later = (other.granted - hold.ended for other in mine if other.granted > hold.ended)
            took.append(min(later, default=0.0))
    return max(took, default=None)


def _details(found: Sequence[Violation]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for check in dict.fromkeys(violation.check for violation in found):
        mine = [violation for violation in found if violation.check == check]
        kept += [{"check": check, "count": len(mine), "detail": each.detail} for each in islice(mine, 1)]
    return kept[:MOST_DETAILS]
