"""How a pause and the last run of a job are shown, for people and for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from leasehold.cli.durations import show_duration
from leasehold.cli.output import printable, who

if TYPE_CHECKING:
    from leasehold.values import LastRun, Pause

__all__ = ["last_run_as_data", "last_run_lines", "pause_lines"]


def pause_lines(paused: Pause | None) -> list[str]:
    """A pause as lines of a block."""
    if paused is None:
        return []
    since = "" if paused.paused_for is None else f" {show_duration(paused.paused_for)} ago"
    left = "" if paused.expires_in is None else f"; {show_duration(paused.expires_in)} left"
    return [f"  paused   by {printable(paused.by)}{since}: {printable(paused.reason)}{left}"]


def last_run_lines(last: LastRun | None) -> list[str]:
    """The last run of a job as lines of a block."""
    if last is None:
        return []
    outcome = last.outcome if last.closed or last.outcome == "forgotten" else f"{last.outcome}; its slot is open"
    lines = [
        f"  last run for slot {printable(last.slot)}: {outcome}",
        f"    runner   {printable(who(last.runner))}",
        f"    finished {_moment(last.finished)}",
    ]
    if last.began is not None:
        lines.insert(2, f"    began    {_moment(last.began)}")
    if last.fence is not None:
        lines.append(f"    fence    {last.fence}")
    if last.again is not None:
        lines.append(f"    again    {printable(last.again)}")
    if last.forgotten is not None:
        lines.append(f"    forgotten: {printable(last.forgotten)}")
    return lines


def last_run_as_data(last: LastRun | None) -> dict[str, Any] | None:
    """The same for --json."""
    if last is None:
        return None
    runner = last.runner
    return {
        "slot": last.slot,
        "outcome": last.outcome,
        "closed": last.closed,
        "runner": {"host": runner.host, "pid": runner.pid, "label": runner.label, "reason": runner.reason},
        "began": last.began,
        "finished": last.finished,
        "fence": last.fence,
        "again": last.again,
        "forgotten": last.forgotten,
    }


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
