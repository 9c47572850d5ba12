"""What the parts of one client share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.backends.etcd.connection import Connection
    from leasehold.backends.etcd.floors import Floors
    from leasehold.backends.etcd.layout import Lane, Layout
    from leasehold.backends.etcd.member import Member
    from leasehold.backends.etcd.sessions import Sessions
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
    watches: Watches
    runtime: Runtime
    members: dict[str, Member] = field(default_factory=dict)  # the claims that have a seat, by owner

    def lane(self, claim: Claim) -> Lane:
        """Where the claim stands."""
        return self.layout.lane(claim.key, claim.mode, claim.capacity)

    def unwatch(self, member: Member) -> None:
        """Nobody has to be woken for it any more."""
        if member.watch is not None:
            self.watches.cancel(member.watch)
        member.watch = member.blocker = None

    def forget(self, member: Member) -> None:
        """Its seat is gone."""
        self.unwatch(member)
        if self.members.get(member.claim.owner) is member:
            self.members.pop(member.claim.owner, None)
        member.session.forget(member.seat)
