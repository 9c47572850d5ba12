"""What the answers to a release mean, counted over all nodes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._core.quorum import majority
from leasehold.errors import OutcomeUnknown
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["freed", "yes_or_no"]


def yes_or_no(answers: Sequence[Any]) -> bool:
    """Whether a majority freed it, or a majority did not have it or only kept it because it was broken."""
    freed = gone = 0
    for answer in answers:
        if answer is not None:
            if answer == 1:
                freed += 1
            elif isinstance(answer, (int, list)):
                gone += 1
    needed = majority(len(answers))
    return freed >= needed or gone >= needed or all(answer is not None for answer in answers)


def freed(answers: Sequence[Any], label: str) -> bool | Loss:
    """Whether this release freed the lock; the break, if an operator was quicker.

    A grant of a bare majority may have lost a node since. A break that no majority knows is none, as for a renewal.
    """
    yes = sum(isinstance(answer, int) and answer == 1 for answer in answers)
    no = sum(isinstance(answer, list) or (isinstance(answer, int) and answer != 1) for answer in answers)
    missing = len(answers) - yes - no
    broken = next((answer for answer in answers if isinstance(answer, list)), None)
    if broken is not None and yes < majority(len(answers)):
        return Loss(LossReason.BROKEN, broken[1].decode(errors="replace"))
    if yes >= 1:
        return yes + missing >= majority(len(answers))
    if no >= majority(len(answers)):
        return False
    raise OutcomeUnknown(
        f"{label}: {no} of {len(answers)} nodes answered the release, and {majority(len(answers))} are needed",
        backend=label,
    )
