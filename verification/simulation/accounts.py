"""The rules, written a second time: what the store may answer, and which claim owns what.

`StoreModel` watches every answer of the store and compares it with its own small account of the owners. It is written
from the port's promises and shares no line with any store. How a store counts time is in a `StoreClock`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.spi import Place
from leasehold.values import Grant, Loss, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.values import Claim
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.world import Process, World

__all__ = ["Book", "Ownership", "StoreClock", "StoreModel", "WorldClock", "compatible"]


class StoreClock(Protocol):
    """How a store counts time. An instant that was reached is over."""

    keeps_silent_places: bool  # a place that was not renewed in time may stay until another claim needs it

    def now(self) -> float:
        """What the store's clock shows."""

    def end_of_grant(self, claim: Claim, ttl: float) -> float:
        """The instant at which a grant is over that was made now."""

    def end_of_place(self, recheck: float) -> float:
        """The instant at which a place is over that was renewed now, and should be again after `recheck`."""

    def end_of_mark(self, ttl: float) -> float:
        """The instant from which a withdrawn claim is not refused any more."""


class WorldClock:
    """A store whose clock is the world's own."""

    keeps_silent_places = False

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now

    def end_of_grant(self, claim: Claim, ttl: float) -> float:  # noqa: ARG002 - all are counted alike
        return self._world.now + ttl

    def end_of_place(self, recheck: float) -> float:
        return self._world.now + 3 * recheck

    def end_of_mark(self, ttl: float) -> float:
        return self._world.now + ttl


@dataclass(slots=True)
class Ownership:
    """One ownership as it has to be."""

    claim: Claim
    fence: int
    since: float
    expires: float
    abandoned: bool
    cooling: bool = False
    broken: bool = False
    spare: int = 0  # fences behind its own that no other grant gets

    def has(self, fence: int) -> bool:
        """Whether this is its fence, or one that it keeps free."""
        return self.fence <= fence <= self.fence + self.spare


@dataclass(slots=True)
class Book:
    """The account of one key."""

    records: dict[str, Ownership] = field(default_factory=dict)
    waiting: dict[str, tuple[Claim, float]] = field(default_factory=dict)
    withdrawn: dict[str, float] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)  # owners that were granted once; only looked up
    left: set[str] = field(default_factory=set)  # owners that were withdrawn without doubt; only looked up
    highest: int = 0
    abandoned: bool = False  # the last holder left without releasing

    def settle(self, now: float) -> None:
        """Strike out what has run out."""
        for owner in [owner for owner, record in self.records.items() if record.expires <= now]:
            self.abandoned = self.abandoned or not self.records[owner].cooling
            del self.records[owner]

    def silent(self, now: float) -> list[str]:
        """Who did not ask again for so long that its place may be given up."""
        return [owner for owner, (_, expires) in self.waiting.items() if expires <= now]

    def grant(self, grant: Grant) -> Ownership | None:
        """The record of this very grant; a late copy of its claim may have been granted anew, with another fence."""
        record = self.records.get(grant.claim.owner)
        return None if record is None or not record.has(grant.fence) else record

    def ahead(self, owner: str, now: float) -> list[Claim]:
        """The claims that wait before this one, and are alive."""
        claims = []
        for other, (claim, expires) in self.waiting.items():
            if other == owner:
                break
            if expires > now:
                claims.append(claim)
        return claims

    def admits(self, claim: Claim, now: float) -> bool:
        """Whether nothing ahead is in the way."""
        others = [record.claim for owner, record in self.records.items() if owner != claim.owner]
        return compatible([claim, *others, *self.ahead(claim.owner, now)])


def compatible(claims: Sequence[Claim]) -> bool:
    """Whether all of these may hold one name together."""
    if any(claim.mode is Mode.EXCLUSIVE for claim in claims):
        return len(claims) <= 1
    capacities = [claim.capacity for claim in claims if claim.mode is Mode.PERMIT]
    return not capacities or len(claims) <= min(capacities)


class StoreModel:
    """Watches the store's side: an `Observer` of all links."""

    def __init__(self, world: World, history: History, clock: StoreClock | None = None) -> None:
        self._world = world
        self._history = history
        self.clock: StoreClock = clock or WorldClock(world)
        self.books: dict[str, Book] = {}
        self.broken_at_once: set[str] = set()  # owners; they may believe a little longer, by an operator's order
        self.forgotten: set[str] = set()  # owners whose grants the store lost, or revived, or ended by another clock
        self.waits_out = False  # whether the store lets what it may have forgotten run out before it grants again
        self.passed_over: set[str] = set()  # owners whose clients the store could not reach when it was their turn
        self.come_themselves: set[str] = set()  # owners that wait, and have to call `turn` for what is free
        self.unwithdrawn: set[str] = set()  # owners whose withdrawal or release got no answer
        self.unanswered: set[str] = set()  # owners of which a request failed: they may be withdrawn in the background
        self.released: dict[tuple[str, int], float] = {}  # owners and fences whose release returned, and when
        self.granted_at: dict[str, tuple[float, int]] = {}  # by owner, when it was granted, and with which fence
        self.claims_of: dict[int, set[str]] = {}  # owners of claims by the number of the task that made them

    # --- for other checks

    def is_excused(self, owner: str) -> bool:
        """Whether the store and this holder may disagree, for a reason outside of what is promised."""
        return owner in self.broken_at_once or owner in self.forgotten

    def record(self, key: str, owner: str) -> Ownership | None:
        """The live ownership of this owner, if there is one."""
        book = self.books.get(key)
        record = None if book is None else book.records.get(owner)
        return None if record is None or record.expires <= self.clock.now() else record

    def waits(self, key: str, owner: str) -> bool:
        """Whether this owner stands in the queue."""
        book = self.books.get(key)
        return book is not None and owner in book.waiting and book.waiting[owner][1] > self.clock.now()

    def outlived(self, key: str, owner: str) -> bool:
        """Whether this claim was withdrawn, and so long ago that the store may have forgotten it."""
        book = self.books.get(key)
        return book is not None and book.withdrawn.get(owner, math.inf) <= self.clock.now()

    def is_in_use(self, key: str) -> bool:
        """Whether somebody has this name, or stands in the queue for it."""
        book, now = self.books.get(key), self.clock.now()
        if book is None:
            return False
        return bool(book.waiting) or any(record.expires > now for record in book.records.values())

    # --- the observer

    def sent(self, process: Process, verb: str, subject: Any) -> None:
        """Note who asks; and that nothing is renewed long after its release."""
        task = self._world.current
        if verb in ("try_acquire", "join") and task is not None:
            self.claims_of.setdefault(task.number, set()).add(subject.owner)
        if verb == "renew":
            for grant in subject:
                over = self.released.get((grant.claim.owner, grant.fence))
                if over is not None and self._world.now > over + 0.05 and process.resumed_at < over:
                    self._violate("renewal outlives release", f"{process.name} renews fence {grant.fence}")

    def failed(self, process: Process, verb: str, subject: Any) -> None:  # noqa: ARG002 - the port's shape
        """Remember what could not be undone for sure."""
        if verb in ("withdraw", "leave"):
            self.unwithdrawn.add(subject.owner)
        elif verb == "release":
            self.unwithdrawn.add(subject.claim.owner)
        elif verb in ("try_acquire", "join", "turn"):
            self.unanswered.add(subject.owner)

    def answered(self, verb: str, subject: Any, answer: Any) -> None:
        """The caller has its answer."""

    def applied(self, link: Link, verb: str, subject: Any, answer: Any, sent_at: float) -> None:
        """Compare the store's answer with the account."""
        if verb in ("try_acquire", "join", "turn", "held off"):
            self._claimed(verb, subject, answer)
            if verb == "turn" and isinstance(answer, Refusal) and self._world.now < sent_at + 0.05:
                self._check_place(link, subject)
        elif verb == "renew":
            for grant, each in zip(subject, answer, strict=True):
                self._renewed(grant, each)
        elif verb == "release":
            self._released(subject, freed=answer is True)
        elif verb in ("withdraw", "leave"):
            self._withdrawn(subject, doubt=verb == "withdraw")
        elif verb == "break_":
            self._broken(*subject, done=answer)

    def handed_over(self, grant: Grant) -> None:
        """The store made a waiter the holder, without a call of it."""
        self._granted("hand-over", self._book(grant.claim.key), grant.claim, grant)

    def skipped(self, claim: Claim) -> None:
        """The store gave up a waiter whose client it could not reach."""
        self._book(claim.key).waiting.pop(claim.owner, None)
        self.passed_over.add(claim.owner)

    def _book(self, key: str) -> Book:
        book = self.books.setdefault(key, Book())
        now = self.clock.now()
        book.settle(now)
        if not self.clock.keeps_silent_places:
            for owner in book.silent(now):
                del book.waiting[owner]
        return book

    def _claimed(self, verb: str, claim: Claim, answer: Any) -> None:
        book, now = self._book(claim.key), self.clock.now()
        if claim.owner in book.left:
            self._violate(
                "a request came after its claim was withdrawn without doubt", f"{verb} {claim.key} {claim.owner[:6]}"
            )
        if isinstance(answer, Grant):
            self._granted(verb, book, claim, answer)
        elif isinstance(answer, Place):
            new = verb == "join" and claim.owner not in book.waiting
            if (new or verb == "turn") and self._is_free(book, claim):
                self._violate("waits for a free lock", f"{claim.key} {claim.owner[:6]}")
            book.waiting[claim.owner] = (claim, self.clock.end_of_place(answer.recheck))
        elif isinstance(answer, Refusal):
            tombstone = book.withdrawn.get(claim.owner, -math.inf) > now
            if verb == "try_acquire" and not tombstone and self._is_free(book, claim):
                self._violate("refused a free lock", f"{claim.key} {claim.owner[:6]}")
            if verb in (
                "join",
                "turn",
            ):  # a claim may be tried before it is queued, and the first request may come late
                book.waiting.pop(claim.owner, None)

    def _is_free(self, book: Book, claim: Claim) -> bool:
        """Whether the claim has to be granted; not behind a waiter that was notified and has not called yet."""
        now = self.clock.now()
        if claim.owner in book.records or claim.owner in self.broken_at_once or not book.admits(claim, now):
            return False
        if claim.owner in book.silent(now) and any(expires > now for _, expires in book.waiting.values()):
            return False  # it fell silent, so others may be served before it
        return not any(other.owner in self.come_themselves for other in book.ahead(claim.owner, now))

    def _check_place(self, link: Link, claim: Claim) -> None:
        """A waiter that lives and is not disturbed calls `turn` often enough to keep its place."""
        book = self._book(claim.key)
        if claim.owner in self.passed_over:
            return
        if claim.owner not in book.served and claim.owner not in book.withdrawn and link.well_for > claim.ttl + 0.1:
            self._violate("a live waiter lost its place", f"{link.process.name} {claim.key} {claim.owner[:6]}")

    def _granted(self, verb: str, book: Book, claim: Claim, grant: Grant) -> None:
        now, present = self.clock.now(), book.records.get(claim.owner)
        what = f"{verb} {claim.key} {claim.owner[:6]} fence {grant.fence}"
        if present is not None and not present.cooling and not present.broken:
            if grant.fence != present.fence:
                self._violate("one claim, two fences", what)
            present.expires = self.clock.end_of_grant(claim, grant.ttl)
            return
        if present is not None:
            self._violate("granted while it was cooling or broken", what)
        if book.withdrawn.get(claim.owner, -math.inf) > now:
            self._violate("a withdrawn claim was granted", what)
        if not book.admits(claim, now):
            self._violate("two owners in the store", f"{what} beside {sorted(r.fence for r in book.records.values())}")
        if grant.fence <= book.highest:
            self._violate("fence did not rise in the store", f"{what} after {book.highest}")
        book.highest = max(book.highest, grant.fence + grant.spare)
        self.granted_at[claim.owner] = (self._world.now, grant.fence)
        book.waiting.pop(claim.owner, None)
        if grant.abandoned is not book.abandoned:
            self._violate("wrong about whether the last holder released", f"{what}: {grant.abandoned}")
        ends = self.clock.end_of_grant(claim, grant.ttl)
        book.records[claim.owner] = Ownership(claim, grant.fence, now, ends, book.abandoned, spare=grant.spare)
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
            present.expires = self.clock.end_of_grant(grant.claim, answer.ttl)
            present.spare -= grant.fence - present.fence
            present.fence = grant.fence

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
        held = max(0.0, self.clock.now() - present.since)  # a clock may have been set back
        left = present.claim.min_hold - held
        if left > 0:
            present.cooling, present.expires = True, self.clock.end_of_grant(grant.claim, left)
        else:
            del book.records[grant.claim.owner]

    def _withdrawn(self, claim: Claim, *, doubt: bool) -> None:
        book = self._book(claim.key)
        present = book.records.get(claim.owner)
        if present is not None and not present.cooling:
            book.abandoned = book.abandoned or present.abandoned  # it never got to know
            del book.records[claim.owner]
        book.waiting.pop(claim.owner, None)
        if doubt:
            book.withdrawn[claim.owner] = self.clock.end_of_mark(claim.ttl)
        else:
            book.left.add(claim.owner)

    def _broken(self, key: str, fence: int, at_once: bool, *, done: bool) -> None:  # noqa: FBT001 - the network's order
        book = self._book(key)
        for owner, record in list(book.records.items()):
            if record.has(fence) and not record.cooling and done:
                record.broken = True
                if at_once:
                    self.broken_at_once.add(owner)
                    book.abandoned = True
                    del book.records[owner]

    def _violate(self, check: str, detail: str) -> None:
        self._history.violate(check, detail)
