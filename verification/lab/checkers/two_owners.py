"""Two holders that believed in the same lock at the same time.

A belief lasts from the return of the call until the local deadline, the news of the loss or the beginning of the
release. That is narrower than what the store did, so every overlap is a real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event, Hold

__all__ = ["two_owners"]


def two_owners(events: Sequence[Event]) -> list[Violation]:
    """Every pair of beliefs that overlap."""
    found: list[Violation] = []
    open_holds: list[Hold] = []
    for hold in holds(events):
        open_holds = [each for each in open_holds if each.believed_until > hold.granted]
        found += [_overlap(each, hold) for each in open_holds if hold.believed_until > hold.granted]
        open_holds.append(hold)
    return found


def _overlap(first: Hold, second: Hold) -> Violation:
    long = min(first.believed_until, second.believed_until) - second.granted
    return Violation(
        "two owners",
        second.granted,
        f"{_name(first)} and {_name(second)} for {long:.3f} s",
        (first.process, second.process),
    )


def _name(hold: Hold) -> str:
    return f"client {hold.process} (fence {hold.fence})"
