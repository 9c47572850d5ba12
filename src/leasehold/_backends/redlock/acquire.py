"""What the answers to one ballot mean: granted, refused, try a higher number, or no majority to vote. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.inspect import read_holder
from leasehold._backends.redlock.calls import MARKER
from leasehold._core.quorum import decided, majority, same_number, waits_for
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.values import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["REMEDY", "Votes", "agreed_on", "enough_votes", "may_have_voted_for"]

BUSY, VOTE, TOO_LOW, OUT_OF_WINDOW, SITS_OUT, WITHDRAWN, OTHER_TERMS = range(7)
REMEDY = f"to change it, stop all clients and delete the key {MARKER} on every node"


def enough_votes(answers: Sequence[Any]) -> bool:
    """Whether it is decided, one way or the other.

    A lost answer decides nothing: others may, and are waited for. A node that only objects to the number is willing to
    vote for another one, so a majority of willing nodes is waited for as well: what they know makes the next proposal.
    """
    yes = objected = no = 0
    for answer in answers:
        if type(answer) is list:
            if answer[0] == VOTE:
                yes += 1
            elif answer[0] in (TOO_LOW, OUT_OF_WINDOW):
                objected += 1
            else:
                no += 1
        elif isinstance(answer, (BackendUnavailable, BackendRejected)):
            no += 1
    nodes = len(answers)
    if decided(yes, no, nodes):
        return True
    return bool(objected) and decided(yes, no + objected, nodes) and yes + objected >= majority(nodes)


def may_have_voted_for(answer: Any, proposed: int, earlier: Sequence[int]) -> Sequence[int]:
    """The numbers of a claim for which a node may have a vote, by its answer to a ballot.

    A silent node may yet vote, and may still have a vote for an earlier number of the same claim.
    """
    if answer is None or isinstance(answer, OutcomeUnknown):
        return *earlier, proposed
    return (answer[2],) if type(answer) is list and answer[0] == VOTE else ()


def agreed_on(settings: bytes) -> str:
    """The settings that the first client of a node set, in words."""
    max_ttl, _, nodes = settings.decode(errors="replace").partition("/")
    return f"was set up with max_ttl={int(max_ttl) / 1000:g} as one of {nodes} nodes"


def _cannot_vote(answer: Any) -> bool:
    """Whether this node surely takes no part: it is down, refuses for good, sits out or has a wrong clock."""
    if type(answer) is list:
        return answer[0] in (OUT_OF_WINDOW, SITS_OUT, WITHDRAWN, OTHER_TERMS)
    return isinstance(answer, (BackendUnavailable, BackendRejected))


class Votes:
    """The answers of all nodes to one proposed number."""

    def __init__(self, answers: Sequence[Any], names: Sequence[str]) -> None:
        self._answers = answers
        self._names = names
        self._needed = majority(len(answers))

    @property
    def granted(self) -> int | None:
        """The number that a majority has voted for."""
        return same_number([reply[2] for reply in self._with(VOTE)], len(self._answers))

    @property
    def highest(self) -> list[int]:
        """The numbers that the refusing nodes know."""
        return [reply[2] for reply in self._with(BUSY, TOO_LOW, OUT_OF_WINDOW)]

    @property
    def wants_another_number(self) -> bool:
        """Whether it failed for the number only: with another one there can be a majority."""
        willing = sum(1 for _ in self._with(VOTE, TOO_LOW, OUT_OF_WINDOW))
        objected = (
            any(True for _ in self._with(TOO_LOW, OUT_OF_WINDOW)) or len({reply[2] for reply in self._with(VOTE)}) > 1
        )
        return objected and willing >= self._needed

    @property
    def was_withdrawn(self) -> bool:
        """Whether a node knows that this claim was given up."""
        return any(True for _ in self._with(WITHDRAWN))

    @property
    def is_refused(self) -> bool:
        """Whether a majority took part and did not agree, or busy nodes rule a majority out.

        A node that is busy has surely not voted, as a dead one has not. Where the dead ones alone rule a majority out,
        it is no refusal.
        """
        if sum(1 for _ in self._with(VOTE, BUSY, TOO_LOW)) >= self._needed:
            return True
        left = len(self._answers) - sum(map(_cannot_vote, self._answers))
        return left - sum(1 for _ in self._with(BUSY)) < self._needed <= left

    def refusal(self, key: str) -> Refusal:
        """Another claim has it, or the votes were split."""
        by_holder: dict[bytes, list[int]] = {}
        for reply in self._with(BUSY):
            by_holder.setdefault(reply[4] or b"", []).append(reply[3])
        if not by_holder:
            return Refusal(key)
        stored, left = max(by_holder.items(), key=lambda item: len(item[1]))
        may_have = len(left)
        if not any(True for _ in self._with(VOTE)):
            may_have += sum(type(answer) is not list for answer in self._answers)
        split = may_have < self._needed  # it has no holder: rival claims are in each other's way
        return Refusal(key, read_holder(stored), None if split else max(1, min(left)) / 1000)

    def failure(self, label: str, window: float) -> BackendError:
        """Why there is no majority that can vote, node by node."""
        reasons = [*self._reasons(window)]
        why = "; ".join(dict.fromkeys(text for text, _ in reasons))
        seconds = self._back_in()
        when = f"; a majority can vote in {seconds:.1f} s" if seconds else ""
        error = self._kind([kind for _, kind in reasons])(
            f"{label}: {len(reasons)} of {len(self._answers)} nodes cannot vote, and {self._needed} votes are needed: "
            f"{why}{when}",
            backend=label,
        )
        error.back_in = seconds
        return error

    def _back_in(self) -> float | None:
        """In how many seconds there is a majority again, if that is only a matter of time."""
        left = [reply[2] / 1000 if reply[0] == SITS_OUT else 0.0 for reply in self._with(VOTE, BUSY, TOO_LOW, SITS_OUT)]
        return waits_for(left, len(self._answers)) or None

    def _kind(self, kinds: list[type[BackendError]]) -> type[BackendError]:
        """Refused for good, surely not granted, or not known: whatever enough nodes answered to rule a majority out."""
        for kind in (BackendRejected, BackendUnavailable):
            sure = sum(issubclass(each, (kind, BackendRejected)) for each in kinds)
            if len(self._answers) - sure < self._needed:
                return kind
        return OutcomeUnknown

    def _reasons(self, window: float) -> Iterator[tuple[str, type[BackendError]]]:
        undecided = not enough_votes(self._answers)  # so time was up
        for name, answer in zip(self._names, self._answers, strict=True):
            if answer is None:
                if undecided:
                    yield f"{name} did not answer in time", OutcomeUnknown
            elif isinstance(answer, Exception):
                yield str(answer), type(answer) if isinstance(answer, BackendError) else OutcomeUnknown
            elif answer[0] == SITS_OUT:
                text = (
                    f"{name} may have forgotten what it granted before, and sits out for {answer[2] / 1000:.1f} s more"
                )
                yield text, BackendUnavailable
            elif answer[0] == OTHER_TERMS:
                yield f"{name} {agreed_on(answer[2])}: give all clients the same URL; {REMEDY}", BackendRejected
            elif answer[0] == OUT_OF_WINDOW:
                yield (
                    f"the clock of {name} is more than {window:g} s away from the median of all: run NTP there",
                    BackendUnavailable,
                )

    def _with(self, *codes: int) -> Iterator[list[Any]]:
        for answer in self._answers:
            if type(answer) is list and answer[0] in codes:
                yield answer
