"""Asking for a lock, and taking the question back. It knows the order of the requests, not how they are sent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.etcd import requests
from leasehold.backends.etcd.answers import KeyValue
from leasehold.backends.etcd.member import Member
from leasehold.backends.etcd.seat import encode, read_seat
from leasehold.backends.etcd.trouble import LeaseGone
from leasehold.backends.rules import check_kind
from leasehold.errors import BackendError, BackendUnavailable
from leasehold.spi import Place
from leasehold.values import Grant, Mode, Refusal

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import TxnAnswer
    from leasehold.backends.etcd.floors import Floor
    from leasehold.backends.etcd.layout import Lane
    from leasehold.backends.etcd.toolbox import Toolbox
    from leasehold.backends.etcd.waiting import Waiting
    from leasehold.values import Claim

__all__ = ["Asking"]

ROUNDS = 8  # how often a request is made anew because what it relied on had changed


@dataclass(slots=True)
class _Attempt:
    """One call: what is asked, since when, and what the last request relied on."""

    claim: Claim
    lane: Lane
    waits: bool
    asked: float
    floor: Floor
    level: int = 0
    room_at: int = 0  # the revision at which a permit was free, and nobody before us

    def request(self, value: bytes, lease: int) -> bytes:
        lane, owner = self.lane, self.claim.owner
        if self.waits:
            return requests.join(lane, owner, value, lease, self.floor)
        request = requests.try_acquire if not self.room_at else requests.try_permit(self.room_at)
        return request(lane, owner, value, lease, self.floor)


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
        """Grant now or give a place in the line."""
        return await self._ask(claim, waits=True)

    async def _ask(self, claim: Claim, *, waits: bool) -> Grant | Place | Refusal:
        tools, lane = self._tools, self._tools.lane(claim)
        attempt = _Attempt(claim, lane, waits, tools.runtime.now(), await tools.floors.get(lane.floor))
        seat = lane.seat(claim.owner)
        for _ in range(ROUNDS):
            session, pulse = await tools.sessions.take(claim.ttl)
            attempt.level = tools.floors.level(lane.floor)
            value = encode(claim, attempt.floor.value, time.time())
            session.wants(seat, attempt.asked + session.ttl)
            try:
                answer = await tools.connection.txn(attempt.request(value, session.lease))
            except LeaseGone:
                session.ended = True
                continue
            session.prove(pulse, answer.header)
            if answer.succeeded:
                revision = answer.header.revision
                member = Member(claim, lane, session, KeyValue(seat, revision, revision), attempt.floor.value)
                tools.members[claim.owner] = member
                return await self._seated(member, answer, attempt)
            session.forget(seat)
            outcome = await self._refused(attempt, answer)
            if outcome is not None:
                return outcome
        label = tools.connection.label
        raise BackendUnavailable("others change this lock faster than it can be asked for", backend=label)

    async def _seated(self, member: Member, answer: TxnAnswer, attempt: _Attempt) -> Grant | Place | Refusal:
        """The claim has its seat; whether it holds by that."""
        try:
            self._tools.floors.check(member.lane.floor, attempt.floor, answer.header.revision, attempt.level)
        except BackendError:
            await self.withdraw(member.claim)
            raise
        if not attempt.waits:
            return self._waiting.granted(member, attempt.asked)
        # An exclusive claim and a permit count themselves, a shared one counts only exclusive ones.
        member.ahead = answer.read(1).count - (member.claim.mode is not Mode.SHARED)
        if member.ahead < member.claim.capacity:
            return self._waiting.granted(member, attempt.asked)
        return await self._waiting.look(member, attempt.asked)

    async def _refused(self, attempt: _Attempt, answer: TxnAnswer) -> Grant | Place | Refusal | None:
        """Why the claim got no seat; None means: ask again, relying on what is known now."""
        tools, claim, lane = self._tools, attempt.claim, attempt.lane
        floor = tools.floors.learn(lane.floor, answer.read(requests.FLOOR))
        tools.floors.check(lane.floor, floor, answer.header.revision, attempt.level)
        first = answer.read(requests.FIRST)
        holder = read_seat(first.found[0]).holder if first.found else None
        refusal = Refusal(claim.key, holder, None, max(0, first.count - 1))
        own = answer.read(requests.SEAT).found
        if own:
            return await self._waiting.repeated(claim, own[0], refusal, attempt.asked)
        if answer.read(requests.WITHDRAWN).found:
            return refusal
        if first.found:
            spot = tools.layout.spot(first.found[0].key)
            check_kind(claim, spot.mode, spot.capacity, tools.connection.label)
        ahead = answer.read(requests.LANE).count
        if floor != attempt.floor or ahead < claim.capacity:
            attempt.floor, attempt.room_at = floor, answer.header.revision if ahead else 0
            return None
        return refusal

    async def withdraw(self, claim: Claim) -> None:
        """Undo the claim whatever became of it, and refuse late copies of it for one ttl."""
        tools, lane = self._tools, self._tools.lane(claim)
        seat, withdrawal = lane.seat(claim.owner), lane.withdrawal(claim.owner)
        member = tools.members.pop(claim.owner, None)
        if member is not None:
            tools.unwatch(member)
            member.session.wants(seat, 0.0)  # if we are not heard now, it goes before its session is kept alive again
        for _ in range(ROUNDS):
            session, pulse = await tools.sessions.take(claim.ttl)
            session.wants(withdrawal, tools.runtime.now() + session.ttl)
            try:
                answer = await tools.connection.txn(requests.withdraw(seat, withdrawal, session.lease))
            except LeaseGone:
                session.ended = True
                continue
            session.prove(pulse, answer.header)
            session.forget(seat)
            if member is not None:
                member.session.forget(seat)
            return
