"""Renewing grants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.etcd import rpc, transactions
from leasehold._backends.etcd.claims import read_claim
from leasehold._backends.etcd.sessions import BATCH, SessionEnded
from leasehold.errors import BackendError, BackendUnavailable
from leasehold.values import Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.etcd.claims import Claims, LocalClaim, StoredClaim
    from leasehold._backends.etcd.rpc import KeyValue
    from leasehold._backends.etcd.sessions import KeepAlive, Session

__all__ = ["Renewer", "reason_of_loss"]

_TAKEN = Loss(LossReason.TAKEN, "the store does not know this grant any more")
_ENDED = Loss(LossReason.SESSION_ENDED, "the etcd lease expired, or its expiry could not be ruled out")
_Placed = list[tuple[int, "LocalClaim"]]  # claims with the places of their grants in the call


async def reason_of_loss(claims: Claims, note: bytes) -> Loss:
    """Why a grant's key is gone: an operator who broke the grant at once has left a note."""
    found = (await claims.connection.range(rpc.read(note))).found
    return Loss(LossReason.BROKEN, found[0].value.decode()) if found else _TAKEN


class Renewer:
    """Renewals of one client's grants."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._connection = claims.connection
        self._sessions = claims.sessions
        self._runtime = claims.runtime

    async def renew(self, grants: Sequence[Grant]) -> list[Grant | Loss | BackendError]:
        """Extend what is still held: a keep-alive for each session, then a read of every key, which proves both."""
        asked = self._runtime.now()
        outcomes: dict[int, Grant | Loss | BackendError] = {}
        by_session: dict[Session, _Placed] = {}
        for place, grant in enumerate(grants):
            local = self._claims.of_grant(grant) or await self._adopt(grant)
            if isinstance(local, Loss):
                outcomes[place] = local
            else:
                by_session.setdefault(local.session, []).append((place, local))
        failures: list[BackendError] = []
        for session, placed in by_session.items():
            try:
                outcomes.update(await self._renew_session(session, placed, asked))
            except BackendError as error:  # the answer for the grants of this session: others may be renewed
                outcomes.update((place, error) for place, _ in placed)
                failures.append(error)
        if failures and len(failures) == len(by_session):
            raise failures[0]
        return [outcomes[place] for place in range(len(grants))]

    async def _renew_session(self, session: Session, placed: _Placed, asked: float) -> dict[int, Grant | Loss]:
        claims = self._claims
        outcomes: dict[int, Grant | Loss] = {}
        kept = []
        for place, local in placed:
            if local.keep_for_a_ttl(asked):
                kept.append((place, local))
            else:
                claims.give_up(local)
                outcomes[place] = await reason_of_loss(claims, local.keys.break_note(local.claim.owner))
        try:
            keep_alive = await self._sessions.keep_alive(session)
        except SessionEnded:
            for place, local in kept:
                claims.forget(local)
                outcomes[place] = _ENDED
            return outcomes
        for start in range(0, len(kept), BATCH):
            outcomes.update(await self._verify(session, keep_alive, kept[start : start + BATCH], asked))
        return outcomes

    async def _verify(
        self, session: Session, keep_alive: KeepAlive, placed: _Placed, asked: float
    ) -> dict[int, Grant | Loss]:
        """A keep-alive extends the session and says nothing about the locks: read every key."""
        as_written = [(local.key, local.written) for _, local in placed]
        request = transactions.verify(as_written, placed[0][1].keys.floor)
        response = await self._connection.txn(request, self._sessions.patience(session), reads=True)
        if not session.prove(keep_alive, response.header):
            raise BackendUnavailable(
                "etcd changed its leader during the renewal, so it does not count; try again",
                backend=self._connection.label,
            )
        outcomes: dict[int, Grant | Loss] = {}
        for number, (place, local) in enumerate(placed):
            loss = None if response.succeeded else await self._loss(local, response.read(number).found)
            if loss is None:
                outcomes[place] = local.grant(asked)
            else:
                self._claims.forget(local)
                outcomes[place] = loss
        return outcomes

    async def _loss(self, local: LocalClaim, found: Sequence[KeyValue]) -> Loss | None:
        """Whether the grant is over, and why; what another client wrote is known from then on."""
        stored = read_claim(found[0]) if found else None
        if stored is None or stored.kv.created != local.created:  # the key may be another claim's
            return await reason_of_loss(self._claims, local.keys.break_note(local.claim.owner))
        if stored.broken is not None:
            return Loss(LossReason.BROKEN, stored.broken)
        if stored.cooling:
            return _TAKEN
        local.written = stored.kv.written
        return None

    async def _adopt(self, grant: Grant) -> LocalClaim | Loss:
        """The claim behind a grant that another client got."""
        found = await self._find(grant)
        if isinstance(found, Loss):
            return found
        return self._claims.adopt(grant.claim, found, self._sessions.borrow(found.kv.lease), held=True)

    async def _find(self, grant: Grant) -> StoredClaim | Loss:
        claim = grant.claim
        stored = await self._claims.find(claim)
        if stored is not None and stored.fence == grant.fence:
            if stored.broken is not None:
                return Loss(LossReason.BROKEN, stored.broken)
            return _TAKEN if stored.cooling else stored
        return await reason_of_loss(self._claims, self._claims.keys_of(claim).break_note(claim.owner))
