"""Keeping a lock and giving it back. It knows the order of the requests, not how they are sent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold.backends.etcd import messages, requests
from leasehold.backends.etcd.member import Member
from leasehold.backends.etcd.seat import COOLING, read_seat
from leasehold.backends.etcd.sessions import BATCH, SessionEnded
from leasehold.errors import BackendError, BackendUnavailable
from leasehold.values import Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.etcd.answers import KeyValue
    from leasehold.backends.etcd.seat import Seat
    from leasehold.backends.etcd.sessions import Pulse, Session
    from leasehold.backends.etcd.toolbox import Toolbox
    from leasehold.values import Claim

__all__ = ["Holdings"]

ROUNDS = 5  # how often a release is made anew because the key was written meanwhile

_GONE = Loss(LossReason.TAKEN, "the store does not know this grant any more")
_ENDED = Loss(LossReason.SESSION_ENDED, "etcd ended the lease that it lived on, or had to be believed to have")


class Holdings:
    """The grants of one client."""

    def __init__(self, tools: Toolbox) -> None:
        self._tools = tools
        self._connection = tools.connection
        self._sessions = tools.sessions
        self._members = tools.members
        self._runtime = tools.runtime

    def condition(self, grant: Grant) -> tuple[bytes, int, bytes] | None:
        """What must hold in etcd as long as the grant does; for transactions of the user's own."""
        member = self._members.get(grant.claim.owner)
        if member is None or member.fence != grant.fence:
            return None
        return member.seat, member.created, messages.created_at(member.seat, member.created)

    # --- renewing

    async def renew(self, grants: Sequence[Grant]) -> list[Grant | Loss]:
        """Extend what is still held: a keep-alive for each session, then a look at every key, which proves both."""
        asked = self._runtime.now()
        answers: dict[int, Grant | Loss] = {}
        by_session: dict[Session, list[tuple[int, Member]]] = {}
        for place, grant in enumerate(grants):
            member = await self._member(grant)
            if isinstance(member, Loss):
                answers[place] = member
            else:
                by_session.setdefault(member.session, []).append((place, member))
        trouble: BackendError | None = None
        for session, members in by_session.items():
            try:
                answers.update(await self._renew_session(session, members, asked))
            except BackendError as error:  # the others must not suffer for it
                trouble = error
        if trouble is not None:
            raise trouble
        return [answers[place] for place in range(len(grants))]

    async def _renew_session(
        self, session: Session, members: list[tuple[int, Member]], asked: float
    ) -> dict[int, Grant | Loss]:
        answers: dict[int, Grant | Loss] = {}
        wanted = []
        for place, member in members:
            if member.is_wanted(asked):
                wanted.append((place, member))
            else:
                self._tools.doubt(member)
                answers[place] = await self._told(member.lane.verdict(member.claim.owner))
        try:
            pulse = await self._sessions.refresh(session)
        except SessionEnded:
            for place, member in wanted:
                self._tools.forget(member)
                answers[place] = _ENDED
            return answers
        for start in range(0, len(wanted), BATCH):
            answers.update(await self._prove(session, pulse, wanted[start : start + BATCH], asked))
        return answers

    async def _prove(
        self, session: Session, pulse: Pulse, members: list[tuple[int, Member]], asked: float
    ) -> dict[int, Grant | Loss]:
        """A keep-alive proves the session, not the lock: look at every key."""
        seats = [(member.seat, member.written) for _, member in members]
        request = requests.prove(seats, members[0][1].lane.floor)
        answer = await self._connection.txn(request, session.patience, reads=True)
        if not session.prove(pulse, answer.header):
            raise BackendUnavailable("etcd changed its leader in the middle; ask again", backend=self._connection.label)
        answers: dict[int, Grant | Loss] = {}
        for number, (place, member) in enumerate(members):
            loss = None if answer.succeeded else await self._verdict(member, answer.read(number).found)
            if loss is None:
                answers[place] = member.grant(asked)
            else:
                self._tools.forget(member)
                answers[place] = loss
        return answers

    async def _verdict(self, member: Member, found: tuple[KeyValue, ...]) -> Loss | None:
        """Whether the grant is over, and why; what was written by somebody else is known from then on."""
        seat = read_seat(found[0]) if found else None
        if seat is None or seat.kept.created != member.created or seat.cooling:  # the key may be another claim's by now
            return await self._told(member.lane.verdict(member.claim.owner))
        if seat.broken is not None:
            return Loss(LossReason.BROKEN, seat.broken)
        member.written = seat.kept.written
        return None

    async def _told(self, verdict: bytes) -> Loss:
        """Why a grant is gone: somebody may have left word."""
        told = (await self._connection.range(messages.read(verdict))).found
        return Loss(LossReason.BROKEN, told[0].value.decode()) if told else _GONE

    async def _member(self, grant: Grant) -> Member | Loss:
        """The claim behind a grant; one that another client got is looked up."""
        member = self._members.get(grant.claim.owner)
        if member is not None and member.fence == grant.fence:
            return member
        found = await self._find(grant)
        if isinstance(found, Loss):
            return found
        member = Member(grant.claim, self._tools.lane(grant.claim), self._sessions.borrow(found.kept.lease))
        member.sits(found.kept, found.floor)
        self._members[grant.claim.owner] = member
        return member

    async def _find(self, grant: Grant) -> Seat | Loss:
        seat = await self._tools.find(grant.claim)
        if seat is not None and seat.fence == grant.fence and not seat.cooling:
            return seat if seat.broken is None else Loss(LossReason.BROKEN, seat.broken)
        return await self._told(self._tools.lane(grant.claim).verdict(grant.claim.owner))

    # --- releasing

    async def release(self, grant: Grant) -> bool | Loss:
        """Delete this grant's key and no other; with time left of its `min_hold`, let it cool down instead.

        A grant that was broken is freed at once, and its holder told why.
        """
        member = self._members.get(grant.claim.owner)
        if member is None or member.fence != grant.fence:
            return await self._release_unknown(grant)
        left = self._cool_down(grant, member.granted_at)
        try:
            if left > 0:
                freed = await self._cool(member, left)
            else:
                freed = await self._free(grant.claim, member.seat, member.written, member.created)
        except BaseException:  # we may not have been heard: it goes before the session is kept alive again
            member.session.lets_go(member.kept, self._runtime.now())
            raise
        self._tools.forget(member)
        return freed

    async def _release_unknown(self, grant: Grant) -> bool | Loss:
        claim, seat = grant.claim, await self._tools.find(grant.claim)
        if seat is None or seat.cooling or seat.fence != grant.fence:
            return await self._gone(claim)
        if claim.min_hold > 0 and seat.broken is None:
            return await self._cool_key(seat.kept, claim.min_hold)
        return await self._free(claim, seat.kept.key, seat.kept.written, seat.kept.created, seat.broken)

    async def _free(
        self, claim: Claim, key: bytes, written: int, created: int, broken: str | None = None
    ) -> bool | Loss:
        """Delete it as it was last written. If somebody wrote it meanwhile, look at what it is now."""
        for _ in range(ROUNDS):
            answer = await self._connection.txn(requests.release(key, written))
            if answer.succeeded:
                return True if broken is None else Loss(LossReason.BROKEN, broken)
            found = answer.read(0).found
            if not found or found[0].created != created:
                return await self._gone(claim)
            seat = read_seat(found[0])
            if seat.cooling:
                return False
            written, broken = seat.kept.written, seat.broken
        raise BackendUnavailable("others write this claim all the time; try again", backend=self._connection.label)

    async def _gone(self, claim: Claim) -> bool | Loss:
        """The key is not ours any more: an operator may have left word, or it was lost otherwise."""
        loss = await self._told(self._tools.lane(claim).verdict(claim.owner))
        return loss if loss.reason is LossReason.BROKEN else False

    def _cool_down(self, grant: Grant, granted_at: float | None) -> float:
        """How long the lock has to be kept; counted from when we knew of the grant, so never too short."""
        if grant.claim.min_hold <= 0:
            return 0.0
        held = 0.0 if granted_at is None else self._runtime.now() - granted_at
        return grant.claim.min_hold - held

    async def _cool(self, member: Member, left: float) -> bool | Loss:
        claim = member.claim
        found = (await self._connection.range(messages.read(member.seat))).found
        if not found or found[0].created != member.created:
            return await self._gone(claim)
        broken = read_seat(found[0]).broken
        if broken is not None:
            return await self._free(claim, member.seat, found[0].written, member.created, broken)
        return await self._cool_key(found[0], left)

    async def _cool_key(self, kept: KeyValue, left: float) -> bool:
        """The key stays where it is in the line, on a lease of its own that ends with the cool-down."""
        lease = await self._sessions.separate(max(1, math.ceil(left)))
        value = COOLING + read_seat(kept).with_()
        unchanged = messages.condition(messages.written_at(kept.key, kept.written))
        cooling = messages.then(messages.op_put(messages.put(kept.key, value, lease)))
        return (await self._connection.txn(unchanged + cooling)).succeeded
