"""From the history of a cell to its result: every check, the figures, and one word."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from verification.lab.adapters import OURS
from verification.lab.checkers.fence_order import fence_order
from verification.lab.checkers.late_loss import late_loss
from verification.lab.checkers.leader_overlap import leader_overlap
from verification.lab.checkers.leaks import leaks
from verification.lab.checkers.linearizable import linearizable
from verification.lab.checkers.lost_update import lost_update
from verification.lab.checkers.once_each import once_each
from verification.lab.checkers.starvation import starvation
from verification.lab.checkers.two_owners import two_owners
from verification.lab.figures import counts, times
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
    before: str = ""  # what it said beside other cells, before it was run again alone

    def to_dict(self) -> dict[str, Any]:
        """For its file."""
        return asdict(self)


def recovery_limit(ttl: float, clients: int) -> float:
    """Every client in turn may need a ttl and a second between its tries; and a server some time to come up."""
    return clients * (ttl + 1.0) + 10.0


def judge(plan: Plan, events: Sequence[Event], ttl: float, clients: int) -> Result:
    """The result of a cell that ran to its end."""
    result = Result(plan.to_dict(), plan.command, PASSED, note(plan), ttl)
    result.counts = counts(events, ttl)
    result.times = times(events, ttl)
    result.timeline = cut_out(events, ttl)
    overlaps = [*two_owners(events), *leader_overlap(events), *linearizable(events)]
    result.counts["double holders"] = sum(each.check in ("two owners", "leader overlap") for each in overlaps)
    overlaps += once_each(events)  # where a store forgets a lock, it forgets the record of a job
    found = [
        *fence_order(events),
        *lost_update(events),
        *late_loss(events, ttl),
        *_starving(plan, events, ttl, clients),
        *leaks(events),
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


def _details(found: Sequence[Violation]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for check in dict.fromkeys(violation.check for violation in found):
        mine = [violation for violation in found if violation.check == check]
        kept += [{"check": check, "count": len(mine), "detail": each.detail} for each in islice(mine, 1)]
    return kept[:MOST_DETAILS]
