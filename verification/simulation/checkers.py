"""The rules, told a second time: what the store may answer, what holders may believe, and in which order fences rise.

`StoreModel` watches every answer of the store and compares it with its own small account of who may hold what. It is
written from the port's promises and shares no line with the store. `Beliefs` watches the holders: whoever believes in a
lease must be in that account at this moment. The functions at the end judge a finished history.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold._core.states import State
from leasehold.spi import Place
from leasehold.values import Grant, Loss, LossReason, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leasehold._core.tenure import Tenure
    from leasehold.values import Claim
    from verification.simulation.history import Grants, History
    from verification.simulation.network import Link
    from verification.simulation.world import Process, World

__all__ = ["Beliefs", "StoreModel", "compatible", "fence_disorder"]

TELLING = 1.25  # the keeper sleeps at most one second; the rest is slack


@dataclass(slots=True)
class _Record:
    """One ownership as it has to be."""

    claim: Claim
    fence: int
    since: float
    expires: float
    abandoned: bool
    cooling: bool = False
    broken: bool = False


@dataclass(slots=True)
class _Book:
    """The account of one key."""

    records: dict[str, _Record] = field(default_factory=dict)
    waiting: dict[str, tuple[Claim, float]] = field(default_factory=dict)
    withdrawn: dict[str, float] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)  # owners that were granted once; only looked up
    highest: int = 0
    abandoned: bool = False  # the last holder left without releasing

    def settle(self, now: float) -> None:
        """Strike out what has run out."""
        for owner in [owner for owner, record in self.records.items() if record.expires <= now]:
            self.abandoned = self.abandoned or not self.records[owner].cooling
            del self.records[owner]
        for owner in [owner for owner, (_, expires) in self.waiting.items() if expires <= now]:
            del self.waiting[owner]

    def grant(self, grant: Grant) -> _Record | None:
        """The record of this very grant; a late copy of its claim may have been granted anew, with another fence."""
        record = self.records.get(grant.claim.owner)
        return None if record is None or record.fence != grant.fence else record

    def ahead(self, owner: str) -> list[Claim]:
        """The claims that wait before this one."""
        claims = []
        for other, (claim, _) in self.waiting.items():
            if other == owner:
                break
            claims.append(claim)
        return claims

    def admits(self, claim: Claim) -> bool:
        """Whether nothing ahead is in the way."""
        others = [record.claim for owner, record in self.records.items() if owner != claim.owner]
        return compatible([claim, *others, *self.ahead(claim.owner)])


def compatible(claims: Sequence[Claim]) -> bool:
    """Whether all of these may hold one name together."""
    if any(claim.mode is Mode.EXCLUSIVE for claim in claims):
        return len(claims) <= 1
    capacities = [claim.capacity for claim in claims if claim.mode is Mode.PERMIT]
    return not capacities or len(claims) <= min(capacities)


class StoreModel:
    """Watches the store's side: an `Observer` of all links."""

    def __init__(self, world: World, history: History) -> None:
        self._world = world
        self._history = history
        self._books: dict[str, _Book] = {}
        self.broken_at_once: set[str] = (
            set()
        )  # owners; their holders may believe a little longer, by an operator's order
        self.unwithdrawn: set[str] = set()  # owners whose withdrawal or release got no answer
        self.released: dict[str, float] = {}  # owners whose release returned, and when
        self.asked_by: dict[int, set[str]] = {}  # owners of claims by the number of the task that asked

    # --- for other checks

    def record(self, key: str, owner: str) -> _Record | None:
        """The live ownership of this owner, if there is one."""
        book = self._books.get(key)
        record = None if book is None else book.records.get(owner)
        return None if record is None or record.expires <= self._world.now else record

    def waits(self, key: str, owner: str) -> bool:
        """Whether this owner stands in the queue."""
        book = self._books.get(key)
        return book is not None and owner in book.waiting and book.waiting[owner][1] > self._world.now

    def outlived(self, key: str, owner: str) -> bool:
        """Whether this claim was withdrawn, and so long ago that the store may have forgotten it."""
        book = self._books.get(key)
        return book is not None and book.withdrawn.get(owner, math.inf) <= self._world.now

    # --- the observer

    def sent(self, process: Process, verb: str, subject: Any) -> None:
        """Note who asks; and that nothing is renewed long after its release."""
        task = self._world.current
        if verb in ("try_acquire", "join") and task is not None:
            self.asked_by.setdefault(task.number, set()).add(subject.owner)
        if verb == "renew":
            for grant in subject:
                over = self.released.get(grant.claim.owner)
                if over is not None and self._world.now > over + 0.05 and process.resumed_at < over:
                    self._violate("renewal outlives release", f"{process.name} renews fence {grant.fence}")

    def failed(self, process: Process, verb: str, subject: Any) -> None:  # noqa: ARG002 - the port's shape
        """Remember what could not be undone for sure."""
        if verb == "withdraw":
            self.unwithdrawn.add(subject.owner)
        elif verb == "release":
            self.unwithdrawn.add(subject.claim.owner)

    def applied(self, link: Link, verb: str, subject: Any, answer: Any, sent_at: float) -> None:
        """Compare the store's answer with the account."""
        if verb in ("try_acquire", "join", "turn"):
            self._claimed(verb, subject, answer)
            if verb == "turn" and isinstance(answer, Refusal) and self._world.now < sent_at + 0.05:
                self._check_place(link, subject)
        elif verb == "renew":
            for grant, each in zip(subject, answer, strict=True):
                self._renewed(grant, each)
        elif verb == "release":
            self._released(subject, freed=answer)
        elif verb == "withdraw":
            self._withdrawn(subject)
        elif verb == "break_":
            self._broken(*subject, done=answer)

    def _book(self, key: str) -> _Book:
        book = self._books.setdefault(key, _Book())
        book.settle(self._world.now)
        return book

    def _claimed(self, verb: str, claim: Claim, answer: Any) -> None:
        book = self._book(claim.key)
        if isinstance(answer, Grant):
            self._granted(verb, book, claim, answer)
        elif isinstance(answer, Place):
            known = claim.owner in book.waiting
            if not known and verb == "join" and claim.owner not in book.records and book.admits(claim):
                self._violate("waits for a free lock", f"{claim.key} {claim.owner[:6]}")
            book.waiting[claim.owner] = (claim, self._world.now + 3 * answer.recheck)
        elif isinstance(answer, Refusal):
            tombstone = book.withdrawn.get(claim.owner, 0.0) > self._world.now
            if verb == "try_acquire" and not tombstone and claim.owner not in book.records and book.admits(claim):
                self._violate("refused a free lock", f"{claim.key} {claim.owner[:6]}")
            book.waiting.pop(claim.owner, None)

    def _check_place(self, link: Link, claim: Claim) -> None:
        """A waiter that lives and is not disturbed asks often enough to keep its place."""
        book = self._book(claim.key)
        if claim.owner not in book.served and claim.owner not in book.withdrawn and link.well_for > claim.ttl + 0.1:
            self._violate("a live waiter lost its place", f"{link.process.name} {claim.key} {claim.owner[:6]}")

    def _granted(self, verb: str, book: _Book, claim: Claim, grant: Grant) -> None:
        now, present = self._world.now, book.records.get(claim.owner)
        what = f"{verb} {claim.key} {claim.owner[:6]} fence {grant.fence}"
        if present is not None and not present.cooling and not present.broken:
            if grant.fence != present.fence:
                self._violate("one claim, two fences", what)
            present.expires = now + grant.ttl
            return
        if present is not None:
            self._violate("granted while it was cooling or broken", what)
        if book.withdrawn.get(claim.owner, 0.0) > now:
            self._violate("a withdrawn claim was granted", what)
        if not book.admits(claim):
            self._violate("two owners in the store", f"{what} beside {sorted(r.fence for r in book.records.values())}")
        if grant.fence <= book.highest:
            self._violate("fence did not rise in the store", f"{what} after {book.highest}")
        book.highest = max(book.highest, grant.fence)
        book.waiting.pop(claim.owner, None)
        if grant.abandoned is not book.abandoned:
            self._violate("told wrongly whether the last holder released", f"{what}: {grant.abandoned}")
        book.records[claim.owner] = _Record(claim, grant.fence, now, now + grant.ttl, book.abandoned)
        book.abandoned = False
        book.served.add(claim.owner)

    def _renewed(self, grant: Grant, answer: Grant | Loss) -> None:
        book = self._book(grant.claim.key)
        present = book.grant(grant)
        alive = present is not None and not present.cooling and not present.broken
        what = f"{grant.claim.key} {grant.claim.owner[:6]} fence {grant.fence}"
        if isinstance(answer, Loss):
            if alive:
                self._violate("a live grant was called lost", what)
            return
        if present is None or not alive:
            self._violate("a renewal revived a dead grant", what)
        elif answer.fence != grant.fence:
            self._violate("a renewal changed the fence", f"{what} to {answer.fence}")
        else:
            present.expires = self._world.now + answer.ttl

    def _released(self, grant: Grant, *, freed: bool) -> None:
        book = self._book(grant.claim.key)
        present = book.grant(grant)
        what = f"{grant.claim.key} {grant.claim.owner[:6]} fence {grant.fence}"
        if present is None or present.cooling:
            if freed:
                self._violate("released what was not held", what)
            return
        if freed == present.broken:
            self._violate("release answered wrongly", what)
        kept_until = present.since + present.claim.min_hold
        if kept_until > self._world.now:
            present.cooling, present.expires = True, kept_until
        else:
            del book.records[grant.claim.owner]

    def _withdrawn(self, claim: Claim) -> None:
        book = self._book(claim.key)
        present = book.records.get(claim.owner)
        if present is not None and not present.cooling:
            book.abandoned = book.abandoned or present.abandoned  # it never got to know
            del book.records[claim.owner]
        book.waiting.pop(claim.owner, None)
        book.withdrawn[claim.owner] = self._world.now + claim.ttl

    def _broken(self, key: str, fence: int, at_once: bool, *, done: bool) -> None:  # noqa: FBT001 - the network's order
        book = self._book(key)
        for owner, record in list(book.records.items()):
            if record.fence == fence and not record.cooling and done:
                record.broken = True
                if at_once:
                    self.broken_at_once.add(owner)
                    book.abandoned = True
                    del book.records[owner]

    def _violate(self, check: str, detail: str) -> None:
        self._history.violate(check, detail)


@dataclass(slots=True)
class _Belief:
    """A lease, as the checker follows it; weakly, because the keeper must see when the holder forgets it."""

    link: Link
    tenure: weakref.ref[Tenure]
    claim: Claim
    fence: int
    ends: float = math.inf  # on the process' clock, where max_hold is over at the latest
    over_since: float | None = None


class Beliefs:
    """Watches the holders' side, after every step of any task."""

    def __init__(self, world: World, history: History, model: StoreModel) -> None:
        self._world = world
        self._history = history
        self._model = model
        self._present: list[_Belief] = []
        self._told: set[int] = set()  # fences whose loss was announced

    def admitted(self, link: Link, tenure: Tenure) -> None:
        """A client has a new lease."""
        self._present.append(_Belief(link, weakref.ref(tenure), tenure.grant.claim, tenure.grant.fence))

    def limit(self, fence: int, max_hold: float | None) -> None:
        """The call that took this lease has returned, and it must not be believed longer than this."""
        for belief in self._present:
            if belief.fence == fence and max_hold is not None:
                belief.ends = belief.link.process.clock() + max_hold

    def lost(self, link: Link, fence: int, reason: LossReason) -> None:
        """A client announced a loss."""
        self._history.counts["losses"] += 1
        if fence in self._told:
            self._history.violate("loss told twice", f"{link.process.name} fence {fence}")
        self._told.add(fence)
        if reason in (LossReason.EXPIRED, LossReason.UNCONFIRMED):
            self._check_needless(link, fence, reason)

    def look(self) -> None:
        """Check everybody's belief now."""
        ended = False
        believers: dict[str, list[Claim]] = {}
        for belief in self._present:
            if self._believed(belief):
                believers.setdefault(belief.claim.key, []).append(belief.claim)
            ended = ended or belief.over_since is not None
        if ended:
            self._present = [belief for belief in self._present if not self._is_settled(belief)]
        for key, claims in believers.items():
            if len(claims) > 1 and not compatible(claims):
                self._history.violate("two holders believe", f"{key} {[claim.owner[:6] for claim in claims]}")

    def _believed(self, belief: _Belief) -> bool:
        process, tenure = belief.link.process, belief.tenure()
        if process.crashed or tenure is None:
            belief.over_since = belief.over_since or self._world.now
            return False
        if tenure.grant.fence != belief.fence:
            self._history.violate("a fence changed", f"{process.name} {belief.fence} to {tenure.grant.fence}")
        clock = process.clock()
        if tenure.state is not State.HELD or clock >= tenure.deadline:
            belief.over_since = belief.over_since or self._world.now
            return False
        if belief.over_since is not None:
            self._history.violate("a lease that was over came back", f"{process.name} fence {belief.fence}")
        if clock >= belief.ends:
            self._history.violate("believed beyond max_hold", f"{process.name} fence {belief.fence}")
        if belief.claim.owner in self._model.broken_at_once:
            return False
        record = self._model.record(belief.claim.key, belief.claim.owner)
        if record is None or record.fence != belief.fence or record.cooling:
            self._history.violate(
                "believes in a grant the store does not have", f"{process.name} {belief.claim.key} {belief.fence}"
            )
        return True

    def _is_settled(self, belief: _Belief) -> bool:
        """Whether there is nothing more to expect of a belief that may be over."""
        if belief.over_since is None:
            return False
        process, tenure = belief.link.process, belief.tenure()
        if process.crashed or tenure is None or tenure.state is State.RELEASED or belief.fence in self._told:
            return True
        if process.paused or tenure.state is State.RELEASING:
            return False
        late = self._world.now - max(belief.over_since, process.resumed_at)
        if late > TELLING:
            self._history.violate("loss not told in time", f"{process.name} fence {belief.fence}, {late:.2f} s late")
        return False

    def _check_needless(self, link: Link, fence: int, reason: LossReason) -> None:
        """A lease that is renewed does not run out while its process and network are well."""
        belief = next((each for each in self._present if each.fence == fence), None)
        tenure = None if belief is None else belief.tenure()
        if belief is None or tenure is None or not tenure.renewable:
            return
        # A request that vanished is repeated after a third of the ttl, one that failed much sooner.
        well_for = link.well_for
        if well_for > belief.claim.ttl / 3 + 0.1 and belief.claim.owner not in self._model.broken_at_once:
            self._history.violate(
                "lost without need", f"{link.process.name} fence {fence}, {reason}, undisturbed for {well_for:.2f} s"
            )


def fence_disorder(grants: Iterable[Grants]) -> str | None:
    """The first pair of grants of one name whose fences do not follow their order in time, or None."""
    by_name: dict[str, list[Grants]] = {}
    for grant in grants:
        by_name.setdefault(grant.name, []).append(grant)
    for name, mine in sorted(by_name.items()):
        seen: dict[int, Grants] = {}
        for grant in mine:
            if grant.fence in seen:
                return f"{name}: fence {grant.fence} was given twice"
            seen[grant.fence] = grant
        returned = sorted(mine, key=lambda grant: grant.returned)
        highest, place = 0, 0
        for grant in sorted(mine, key=lambda grant: grant.began):
            while place < len(returned) and returned[place].returned < grant.began:
                highest = max(highest, returned[place].fence)
                place += 1
            if grant.fence <= highest:
                return f"{name}: fence {grant.fence} came after {highest}"
    return None
