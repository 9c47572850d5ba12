"""Asking for a lock, and taking the question back. It knows the order of the requests, not how they are sent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.etcd import requests
from leasehold.backends.etcd.answers import KeyValue
from leasehold.backends.etcd.backlog import MOST_SEATS
from leasehold.backends.etcd.member import recheck
from leasehold.backends.etcd.requests import NewClaim
from leasehold.backends.etcd.seat import encode, read_seat
from leasehold.backends.etcd.trouble import LeaseGone
from leasehold.backends.rules import check_kind
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Grant, Mode, Refusal

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import TxnAnswer
    from leasehold.backends.etcd.floors import Floor
    from leasehold.backends.etcd.member import Member
    from leasehold.backends.etcd.seat import Seat
    from leasehold.backends.etcd.toolbox import Toolbox
    from leasehold.backends.etcd.waiting import Waiting
    from leasehold.values import Claim

__all__ = ["Asking"]

MISSED = 3  # re-checks, after which one who waits inside this client is taken for gone
ROUNDS = 8  # how often a request is made anew because what it relied on had changed


@dataclass(slots=True)
class _Attempt:
    """One call: since when, and what its last request relied on."""

    waits: bool
    asked: float
    floor: Floor
    level: int = 0
    room_at: int = 0  # the revision at which a permit was free


class Asking:
    """New claims of one client."""

    def __init__(self, tools: Toolbox, waiting: Waiting) -> None:
        self._tools = tools
        self._waiting = waiting

    async def try_acquire(self, claim: Claim) -> Grant | Refusal:
        """Grant now or not at all."""
        answer = await self._ask(claim, waits=False)
        return Refusal(claim.key, answer.holder, None, answer.ahead) if isinstance(answer, Place) else answer

    async def join(self, claim: Claim) -> Grant | Place | Refusal:
        """Grant now or give a place in the line; or one behind the others of this client, who are many."""
        backlog, lane = self._tools.backlog, self._tools.lane(claim).prefix
        if claim.owner not in self._tools.members and not backlog.has_room(lane, claim.owner):
            until = self._tools.runtime.now() + MISSED * recheck(claim)
            signal, ahead = backlog.stand(lane, claim.owner, until)
            return Place(claim, signal, recheck(claim), MOST_SEATS + ahead)
        backlog.sit(lane, claim.owner)
        try:
            answer = await self._ask(claim, waits=True)
        except BaseException:
            backlog.leave(lane, claim.owner)
            raise
        if isinstance(answer, Refusal):
            backlog.leave(lane, claim.owner)
        return answer

    async def _ask(self, claim: Claim, *, waits: bool) -> Grant | Place | Refusal:
        tools, lane = self._tools, self._tools.lane(claim)
        attempt = _Attempt(waits, tools.runtime.now(), await tools.floors.get(lane.floor))
        try:
            for _ in range(ROUNDS):
                outcome = await self._ask_once(claim, attempt)
                if outcome is not None:
                    return outcome
        except (BackendUnavailable, BackendRejected):
            self._nothing_was_done(claim)
            raise
        except OutcomeUnknown:
            member = tools.members.get(claim.owner)
            if member is not None:
                member.doubtful = True
            raise
        self._nothing_was_done(claim)
        label = tools.connection.label
        raise BackendUnavailable("others change this lock faster than it can be asked for", backend=label)

    def _nothing_was_done(self, claim: Claim) -> None:
        """Forget a claim that left no trace; an earlier request of it may have."""
        member = self._tools.members.get(claim.owner)
        if member is not None and not member.created and not member.doubtful:
            self._tools.forget(member)

    async def _ask_once(self, claim: Claim, attempt: _Attempt) -> Grant | Place | Refusal | None:
        """One request; None means: ask again, relying on what is known now."""
        tools, lane = self._tools, self._tools.lane(claim)
        session, pulse = await tools.sessions.take(claim.ttl)
        member = tools.member(claim, session)
        attempt.level = tools.floors.level(lane.floor)
        value = encode(claim, attempt.floor.value, time.time())
        new = NewClaim(lane, claim.owner, member.seat, value, session.lease, attempt.floor.written)
        if not member.is_wanted(attempt.asked):  # what an earlier request has brought is being deleted
            tools.doubt(member)
            return Refusal(claim.key)
        if not member.created:
            member.value = value
        try:
            if attempt.waits:
                answer = await tools.connection.txn(requests.join(new, member.enough))
            else:
                answer = await tools.connection.txn(requests.try_acquire(new, attempt.room_at))
        except LeaseGone:
            session.end()
            return None
        session.prove(pulse, answer.header)
        if answer.succeeded:
            member.session = session
            revision = answer.header.revision
            member.sits(KeyValue(member.seat, revision, revision, value), attempt.floor.value)
            return await self._seated(member, answer, attempt)
        if not answer.results:
            answer = await tools.connection.txn(requests.why(new), reads=True)
        return await self._refused(member, attempt, answer)

    async def _seated(self, member: Member, answer: TxnAnswer, attempt: _Attempt) -> Grant | Place | Refusal:
        """The claim has its seat; whether it holds by that."""
        try:
            self._tools.floors.check(member.lane.floor, attempt.floor, member.created, attempt.level)
        except BackendError:
            await self.withdraw(member.claim)
            raise
        if not attempt.waits:
            return self._waiting.granted(member, attempt.asked)
        newest = answer.read(1)
        in_the_way = tuple(kept for kept in newest.found if kept.created < member.created)
        if len(in_the_way) < member.claim.capacity:
            return self._waiting.granted(member, attempt.asked)
        member.ahead = newest.count - (member.claim.mode is not Mode.SHARED)  # a shared one does not see itself there
        member.is_wanted(attempt.asked)
        return self._waiting.stay(member, in_the_way, answer.read(2), answer.header.revision)

    async def _refused(self, member: Member, attempt: _Attempt, answer: TxnAnswer) -> Grant | Place | Refusal | None:
        """Why the claim got no seat; None means: ask again, relying on what is known now."""
        tools, claim, lane = self._tools, member.claim, member.lane
        floor = tools.floors.learn(lane.floor, answer.read(requests.FLOOR))
        tools.floors.check(lane.floor, floor, answer.header.revision, attempt.level)
        first = answer.read(requests.FIRST)
        seats = [read_seat(kept) for kept in (*answer.read(requests.SEAT).found, *first.found)]
        own = next((seat for seat in seats if seat.owner == claim.owner), None)
        refusal = Refusal(claim.key, seats[-1].holder if first.found else None, None, max(0, first.count - 1))
        if own is not None:
            return await self._waiting.repeated(claim, own, refusal, attempt.asked)
        if not answer.read(requests.WITHDRAWN).found:
            if first.found:
                spot = tools.layout.spot(first.found[0].key)
                self._check_kind(member, spot.mode, spot.capacity)
            if answer.read(requests.SEAT).found:
                tools.move(member)
            ahead = answer.read(requests.LANE).count
            if attempt.waits or floor != attempt.floor or ahead < claim.capacity:
                attempt.floor, attempt.room_at = floor, answer.header.revision if ahead else 0
                return None
        tools.forget(member)
        return refusal

    def _check_kind(self, member: Member, mode: Mode, capacity: int) -> None:
        try:
            check_kind(member.claim, mode, capacity, self._tools.connection.label)
        except BaseException:
            self._tools.forget(member)
            raise

    # --- taking it back

    async def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        """Undo the claim whatever became of it; with doubt, refuse late copies of it for one ttl."""
        tools = self._tools
        undo = self._withdraw if doubt else self._delete
        tools.backlog.leave(tools.lane(claim).prefix, claim.owner)
        member = tools.members.get(claim.owner)
        if member is not None:
            tools.doubt(member)
            await undo(claim, member.seat, member.value)
            tools.settle(member)
            return
        seat = await tools.find(claim)
        if seat is not None and not seat.cooling:
            await undo(claim, seat.kept.key, seat.kept.value)
        elif doubt:
            await self._withdraw(claim)

    async def _delete(self, claim: Claim, seat: bytes, value: bytes) -> None:
        """Nothing of this claim is under way: delete its key, and leave no other."""
        answer = await self._tools.connection.txn(requests.delete_if(seat, value))
        if not answer.succeeded:
            await self._delete_changed(claim, [read_seat(kept) for kept in answer.read(0).found])

    async def _withdraw(self, claim: Claim, seat: bytes = b"", value: bytes = b"") -> None:
        tools, withdrawal = self._tools, self._tools.lane(claim).withdrawal(claim.owner)
        for _ in range(ROUNDS):
            session, pulse = await tools.sessions.take(claim.ttl)
            session.notes[withdrawal] = tools.runtime.now() + session.ttl
            request = requests.refuse(withdrawal, session.lease)
            if seat:
                request = requests.withdraw(seat, value, withdrawal, session.lease)
            try:
                answer = await tools.connection.txn(request)
            except LeaseGone:
                session.end()
                continue
            session.prove(pulse, answer.header)
            if not answer.succeeded:
                await self._delete_changed(claim, [read_seat(kept) for kept in answer.read(0).found])
            return

    async def _delete_changed(self, claim: Claim, seats: list[Seat]) -> None:
        """The claim's value is not what we wrote: delete it all the same, unless it cools down after its release."""
        for seat in seats:
            if seat.owner == claim.owner and not seat.cooling:
                await self._tools.connection.txn(requests.release(seat.kept.key, seat.kept.written))
