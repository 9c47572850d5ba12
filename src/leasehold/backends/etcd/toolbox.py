"""What the parts of one client share: the connection, and what is remembered of its claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leasehold.backends.etcd import messages
from leasehold.backends.etcd.layout import after
from leasehold.backends.etcd.member import Member
from leasehold.backends.etcd.seat import read_seat

if TYPE_CHECKING:
    from leasehold.backends.etcd.backlog import Backlog
    from leasehold.backends.etcd.connection import Connection
    from leasehold.backends.etcd.floors import Floors
    from leasehold.backends.etcd.layout import Lane, Layout
    from leasehold.backends.etcd.seat import Seat
    from leasehold.backends.etcd.sessions import Session, Sessions
    from leasehold.backends.etcd.slots import Slots
    from leasehold.backends.etcd.watching import Watches
    from leasehold.spi import Runtime
    from leasehold.values import Claim

__all__ = ["Toolbox"]


@dataclass(frozen=True, slots=True)
class Toolbox:
    """One client's connection and what it remembers."""

    connection: Connection
    layout: Layout
    sessions: Sessions
    floors: Floors
    slots: Slots
    watches: Watches
    backlog: Backlog
    runtime: Runtime
    members: dict[str, Member] = field(default_factory=dict)  # by owner

    def lane(self, claim: Claim) -> Lane:
        """Where the claim stands."""
        return self.layout.lane(claim.key, claim.mode, claim.capacity)

    def member(self, claim: Claim, session: Session) -> Member:
        """The claim as it is remembered, or from now on: whatever is sent for it is sent for the same seat."""
        member = self.members.get(claim.owner)
        if member is None:
            lane = self.lane(claim)
            member = self.members[claim.owner] = Member(claim, lane, session, self.slots.take(lane.prefix))
        elif not member.created and member.session is not session:
            member.changes(session, member.seat)
        return member

    def move(self, member: Member) -> None:
        """Its seat belongs to somebody else: give it another."""
        lane = member.lane
        self.slots.collide(lane.prefix)
        member.slot = self.slots.take(lane.prefix)
        member.changes(member.session, lane.seat(member.slot))

    def unwatch(self, member: Member) -> None:
        """Nobody has to be woken for it any more."""
        if member.watch is not None:
            self.watches.cancel(member.watch)
        member.watch = member.blocker = None

    def forget(self, member: Member) -> None:
        """Its seat is gone."""
        self.unwatch(member)
        self.backlog.leave(member.lane.prefix, member.claim.owner)
        if self.members.get(member.claim.owner) is member:
            del self.members[member.claim.owner]
            if member.slot is not None:
                self.slots.give(member.lane.prefix, member.slot)
        member.session.forget(member.kept)

    def doubt(self, member: Member) -> None:
        """It is over for us, and its seat may still be there: it goes before its session is kept alive again."""
        self.unwatch(member)
        self.backlog.leave(member.lane.prefix, member.claim.owner)
        if self.members.get(member.claim.owner) is member:
            del self.members[member.claim.owner]
            if member.slot is not None:
                self.slots.lose(member.lane.prefix)
        member.session.lets_go(member.kept, self.runtime.now())

    def settle(self, member: Member) -> None:
        """What was in doubt is known now: its seat is gone."""
        member.session.forget(member.kept)
        if member.slot is not None:
            self.slots.regain(member.lane.prefix, member.slot)

    async def find(self, claim: Claim) -> Seat | None:
        """The seat of a claim that this client did not make, or has forgotten."""
        prefix = self.lane(claim).prefix
        answer = await self.connection.range(messages.range_(prefix, after(prefix)))
        return next((seat for seat in map(read_seat, answer.found) if seat.owner == claim.owner), None)
