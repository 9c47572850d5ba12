"""What the answers to a renewal mean, counted over all nodes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.redlock.calls import RENEWED_TOGETHER
from leasehold._core.quorum import decided, majority
from leasehold.errors import BackendError, OutcomeUnknown
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.values import Grant

__all__ = ["Renewals", "enough_renewals"]

GONE, EXTENDED, BROKEN, SITS_OUT, TO_REPAIR = range(5)
MISSING = (None, b"") * RENEWED_TOGETHER


def enough_renewals(count: int) -> Callable[[Sequence[Any]], bool]:
    """A test whether it is decided for every one of so many grants."""

    def enough(answers: Sequence[Any]) -> bool:
        answered = sum(answer is not None for answer in answers)
        if answered == len(answers):
            return True
        if answered < majority(len(answers)):
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
            f"{self._label}: {extended} of {self._nodes} nodes extended it, {self._needed} are needed; {out} sit out",
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
    """One list of codes and reasons out of the answers to several calls; None without an answer of the node.

    A call that failed counts as no answer for as many grants as there may be in one call; the other calls count.
    """
    if not isinstance(answer, list):
        return None
    if len(answer) == 1:
        return answer[0]  # type: ignore[no-any-return]  # the reply to the only call
    return [word for part in answer for word in (MISSING if isinstance(part, Exception) else part)]


def _counted_from_now(grant: Grant) -> Grant:
    return type(grant)(grant.claim, grant.fence, grant.claim.ttl, None, grant.abandoned)
