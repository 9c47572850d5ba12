"""What the answers to a renewal or a release mean, counted over all nodes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._core.quorum import decided, majority
from leasehold.backends.redlock.calls import RENEWED_TOGETHER
from leasehold.errors import BackendError, OutcomeUnknown
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.values import Grant

__all__ = ["Renewals", "check_heard", "enough_renewals", "freed", "yes_or_no"]

GONE, EXTENDED, BROKEN, SITS_OUT, TO_REPAIR = range(5)
UNHEARD = (None, b"") * RENEWED_TOGETHER


def enough_renewals(count: int) -> Callable[[Sequence[Any]], bool]:
    """A test that says whether it is decided for every one of so many grants."""

    def enough(answers: Sequence[Any]) -> bool:
        heard = sum(answer is not None for answer in answers)
        if heard == len(answers):
            return True
        if heard < majority(len(answers)):
            return False
        tally = Renewals(answers, "")
        return all(tally.is_decided(place) for place in range(count))

    return enough


class Renewals:
    """The answers of all nodes to one renewal of several grants."""

    def __init__(self, answers: Sequence[Any], label: str) -> None:
        self._label = label
        self._nodes = len(answers)
        self._needed = majority(len(answers))
        self._replies = [_flat(answer) for answer in answers]
        self._answered = [answer is not None for answer in answers]

    def is_decided(self, place: int) -> bool:
        """Whether further answers cannot change it."""
        codes = self._codes(place)
        yes = codes.count(EXTENDED)
        no = sum(1 for code, answered in zip(codes, self._answered, strict=True) if answered and code != EXTENDED)
        return decided(yes, no, self._nodes)

    def outcome(self, place: int, grant: Grant) -> Grant | Loss | BackendError:
        """Extended by a majority; else broken, gone for good, or not known yet."""
        codes = self._codes(place)
        if codes.count(EXTENDED) >= self._needed:
            return grant if grant.since is None else _counted_from_now(grant)
        if BROKEN in codes:
            return Loss(LossReason.BROKEN, self._why(place))
        lost = codes.count(GONE) + codes.count(TO_REPAIR)
        if self._nodes - lost < self._needed:
            return Loss(LossReason.TAKEN, "no majority of the nodes knows this grant any more")
        extended, out = codes.count(EXTENDED), codes.count(SITS_OUT)
        return OutcomeUnknown(
            f"{self._label}: {extended} of {self._nodes} nodes extended it, and {out} sit out",
            backend=self._label,
        )

    def to_repair(self, place: int) -> list[int]:
        """The nodes that are free and can have the lock back."""
        return [node for node, code in enumerate(self._codes(place)) if code == TO_REPAIR]

    def _codes(self, place: int) -> list[int | None]:
        return [None if reply is None else reply[2 * place] for reply in self._replies]

    def _why(self, place: int) -> str:
        texts = [reply[2 * place + 1] for reply in self._replies if reply is not None and reply[2 * place] == BROKEN]
        return str(texts[0].decode(errors="replace"))


def _flat(answer: Any) -> list[Any] | None:
    """One list of codes and reasons out of the answers to several calls; None if the node was not heard.

    A call that failed was not heard, for as many grants as there may be in one; those of the others count.
    """
    if not isinstance(answer, list):
        return None
    if len(answer) == 1:
        return answer[0]  # type: ignore[no-any-return]  # the reply to the only call
    return [word for part in answer for word in (UNHEARD if isinstance(part, Exception) else part)]


def _counted_from_now(grant: Grant) -> Grant:
    return type(grant)(grant.claim, grant.fence, grant.claim.ttl, None, grant.abandoned)


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
    unheard = len(answers) - yes - no
    broken = next((answer for answer in answers if isinstance(answer, list)), None)
    if broken is not None and yes < majority(len(answers)):
        return Loss(LossReason.BROKEN, broken[1].decode(errors="replace"))
    if yes >= 1:
        return yes + unheard >= majority(len(answers))
    if no >= majority(len(answers)):
        return False
    raise OutcomeUnknown(f"{label}: {no} of {len(answers)} nodes answered the release", backend=label)


def check_heard(answers: Sequence[Any], names: Sequence[str], label: str) -> None:
    """Refuse to judge by what a minority says."""
    needed = majority(len(answers))
    troubles = [
        (str(answer) or type(answer).__name__) if answer is not None else f"{name} did not answer in time"
        for name, answer in zip(names, answers, strict=True)
        if answer is None or isinstance(answer, Exception)
    ]
    if len(answers) - len(troubles) < needed:
        raise OutcomeUnknown(
            f"{label}: {len(troubles)} of {len(answers)} nodes did not answer, and {needed} are needed: "
            f"{'; '.join(dict.fromkeys(troubles))}",
            backend=label,
        )
