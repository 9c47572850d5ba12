"""Standing in line: looking where a claim stands, waiting for whoever is in the way, and the moment it holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leasehold.backends.etcd import requests
from leasehold.backends.etcd.member import Member, recheck
from leasehold.backends.etcd.seat import encode, read_seat
from leasehold.backends.etcd.sessions import SessionEnded
from leasehold.errors import BackendError
from leasehold.spi import Place
from leasehold.values import Grant, Mode, Refusal

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import KeyValue, RangeAnswer, TxnAnswer
    from leasehold.backends.etcd.floors import Floor
    from leasehold.backends.etcd.seat import Seat
    from leasehold.backends.etcd.sessions import Pulse
    from leasehold.backends.etcd.toolbox import Toolbox
    from leasehold.spi import Signal
    from leasehold.values import Claim

__all__ = ["Waiting"]


class Waiting:
    """The claims of one client that stand in line."""

    def __init__(self, tools: Toolbox) -> None:
        self._tools = tools

    async def turn(self, place: Place) -> Grant | Place | Refusal:
        """Whether the claim holds by now; whoever asks keeps its seat."""
        tools, claim = self._tools, place.claim
        asked = tools.runtime.now()
        member = tools.members.get(claim.owner)
        if member is None:
            return await self._found_again(place, asked)
        member.signal = place.signal
        if not member.is_wanted(asked):
            return self._too_late(member)
        session = member.session
        pulse: Pulse | None = None
        try:
            if session.is_due(asked):
                pulse = await tools.sessions.refresh(session)
            else:
                await tools.sessions.sweep(session)
        except SessionEnded:
            tools.forget(member)
            return Refusal(claim.key)
        return await self.look(member, asked, pulse)

    def _too_late(self, member: Member) -> Refusal:
        """Nobody had asked for so long that its key is being deleted."""
        self._tools.doubt(member)
        return Refusal(member.claim.key)

    async def _found_again(self, place: Place, asked: float) -> Grant | Place | Refusal:
        """A place that this client did not give."""
        claim = place.claim
        own = await self._tools.find(claim)
        if own is None:
            return Refusal(claim.key)
        return await self.repeated(claim, own, Refusal(claim.key, queue=place.ahead), asked, place.signal)

    async def repeated(
        self, claim: Claim, own: Seat, refusal: Refusal, asked: float, signal: Signal | None = None
    ) -> Grant | Place | Refusal:
        """A claim that has a seat already, because an answer was lost: the same seat, and its ttl begins anew."""
        tools = self._tools
        if own.cooling or own.broken is not None:
            return refusal
        session = tools.sessions.borrow(own.kept.lease)
        try:
            pulse = await tools.sessions.refresh(session)
        except SessionEnded:  # whatever lives on it must not be believed any more
            await tools.connection.txn(requests.release(own.kept.key, own.kept.written))
            return refusal
        member = tools.members.get(claim.owner)
        if member is None or member.seat != own.kept.key:
            member = tools.members[claim.owner] = Member(claim, tools.lane(claim), session)
            member.ahead = refusal.queue
        if member.created != own.kept.created:
            member.session.forget(member.kept)
            member.session = session
            member.sits(own.kept, own.floor)
        if signal is not None:
            member.signal = signal
        return await self.look(member, asked, pulse)

    async def look(self, member: Member, asked: float, pulse: Pulse | None = None) -> Grant | Place | Refusal:
        """Look where the claim stands: one read of one revision, which needs a majority."""
        tools, claim = self._tools, member.claim
        answer = await tools.connection.txn(self._question(member), reads=True)
        member.session.prove(pulse, answer.header)
        if member.session.is_over(tools.runtime.now()):
            tools.forget(member)
            return Refusal(claim.key)
        if not member.is_wanted(asked):
            return self._too_late(member)
        return self._place(member) if len(answer.results) == 1 else await self._seen(member, asked, answer)

    async def _seen(self, member: Member, asked: float, answer: TxnAnswer) -> Grant | Place | Refusal:
        tools, claim = self._tools, member.claim
        own = answer.read(requests.LOOK_SEAT).found
        if not own or own[0].created != member.created:
            tools.forget(member)
            return Refusal(claim.key)
        seat = read_seat(own[0])
        if seat.cooling or seat.broken is not None:
            return Refusal(claim.key, seat.holder)
        member.written = own[0].written
        in_the_way = answer.read(requests.LOOK_AHEAD).found
        if len(in_the_way) < claim.capacity:
            floor = tools.floors.learn(member.lane.floor, answer.read(requests.LOOK_FLOOR))
            return await self._admitted(member, floor, asked)
        return self.stay(member, in_the_way, answer.read(requests.LOOK_FIRST), answer.header.revision)

    def _question(self, member: Member) -> bytes:
        if member.blocker is None or member.watch is None or not self._tools.watches.is_active(member.watch):
            return requests.look(member.lane, member.seat, member.created, member.enough)
        return requests.look_if_moved(member.lane, member.seat, member.created, member.enough, member.blocker)

    # --- it holds

    async def _admitted(self, member: Member, floor: Floor, asked: float) -> Grant | Refusal:
        """It is our turn. The value is written anew if the floor has risen, or if others wait for the news."""
        others_wait = member.watch is not None and member.claim.mode is Mode.PERMIT
        if member.granted_at is None and (floor.value > member.floor or others_wait):
            member.floor = max(member.floor, floor.value)
            member.value = value = encode(member.claim, member.floor, time.time())
            try:
                answer = await self._tools.connection.txn(requests.mark(member.seat, member.created, value))
            except BackendError:
                member.written = 0  # the next renewal finds out; who waits behind us asks by itself
            else:
                if not answer.succeeded:  # its key is gone
                    self._tools.forget(member)
                    return Refusal(member.claim.key)
                member.written = answer.header.revision
        return self.granted(member, asked)

    def granted(self, member: Member, asked: float) -> Grant | Refusal:
        """The claim holds from now on."""
        self._tools.unwatch(member)
        self._tools.backlog.leave(member.lane.prefix, member.claim.owner)
        if not member.is_wanted(asked):
            return self._too_late(member)
        if member.granted_at is None:
            member.granted_at = self._tools.runtime.now()
        return member.grant(asked)

    # --- it waits

    def _place(self, member: Member) -> Place:
        claim = member.claim
        ahead = max(0, member.ahead - claim.capacity)
        return Place(claim, self._signal(member), recheck(claim), ahead, member.first)

    def _signal(self, member: Member) -> Signal:
        if member.signal is None:
            member.signal = self._tools.runtime.signal()
        return member.signal

    def stay(self, member: Member, in_the_way: tuple[KeyValue, ...], first: RangeAnswer, seen: int) -> Place:
        """Wait for the last one before us; as the first who waits for a permit, for anybody who leaves.

        Behind others who wait for a permit, their grant is news as well: then it is us who are first.
        """
        tools = self._tools
        member.first = read_seat(first.found[0]).holder
        member.ahead = min(member.ahead, first.count - 1)
        tools.unwatch(member)
        signal = self._signal(member)
        permits = member.claim.mode is Mode.PERMIT
        if permits and len(in_the_way) == member.claim.capacity:
            member.watch = tools.watches.watch(*member.lane.ahead, seen, signal)
        else:
            member.blocker = None if permits else (in_the_way[0].key, in_the_way[0].created)
            member.watch = tools.watches.watch(in_the_way[0].key, b"", seen, signal, puts=permits)
        return self._place(member)
