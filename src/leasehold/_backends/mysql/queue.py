"""A crowd at one name: exclusive claims of many clients, each verb one query, whose every step the server takes.

The rules of `leasehold.kit.rules` decide everything else. Here is the one case that a busy queue consists of, in SQL:
one exclusive claim holds, others wait, nothing has run out, nothing is paused or kept for a min_hold. Where a query
finds anything else it changes nothing, and the caller goes by the rules.

The row of the name is written first, so it is locked from there to the commit, and what is read after that is
changed only by a waiter that keeps its place alive. A query is sent as a whole: no client is waited for in between.

A release grants to the first waiter in its own transaction, for three re-checks, until the new holder has shown that it
lives. The waiter is woken after that, by another query (see `notifications`): to end a statement may take the server a
while, and no release is to wait for it. Variables are of the session, and are set
before they are used in each query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold._backends.mysql.packets import binary, optional_binary
from leasehold._backends.mysql.statements import MICRO, NOW, holder_from, micros
from leasehold.kit.holder import holder_to_json
from leasehold.kit.rows import Row, State
from leasehold.kit.rules import RECHECK, RECHECKS_MISSED, SPARE, Queued, place_lifetime
from leasehold.values import MAX_FENCE, Grant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.mysql.packets import Result, Values
    from leasehold.values import Claim

__all__ = ["HandOver", "PlaceRow", "hand_over", "join_queue", "read_place"]

WINDOW = micros(RECHECKS_MISSED * RECHECK)  # what a waiter is granted at first; a place lives as long

# --- release

_HAND_OVER = (
    b"BEGIN;"
    b"UPDATE leasehold_lock SET version = version + 1, fence = LAST_INSERT_ID(fence) "
    b"WHERE name = %(name)b AND shape = 2 AND abandoned_until = 0 AND fence < %(most)d;"
    b"SELECT IF(ROW_COUNT() = 1 AND SUM(expires <= " + NOW + b") = 0 AND SUM(state <= 2) = 1 "
    b"AND SUM(state = 3 AND mode <> 'exclusive') = 0, MIN(IF(state = 3, number, NULL)), NULL), "
    b"MIN(IF(state = 1 AND owner = %(owner)b AND fence <= %(fence)d AND %(fence)d <= LAST_INSERT_ID() "
    b"AND broken IS NULL AND min_hold = 0, number, NULL)), GREATEST(LAST_INSERT_ID() + 1, " + NOW + b", %(first)d) "
    b"INTO @leasehold_next, @leasehold_own, @leasehold_fence FROM leasehold_claim WHERE name = %(name)b;"
    b"DELETE FROM leasehold_claim WHERE name = %(name)b AND number = @leasehold_own AND @leasehold_next IS NOT NULL;"
    b"UPDATE leasehold_claim SET state = 1, fence = @leasehold_fence, since = " + NOW + b", "
    b"expires = " + NOW + b" + LEAST(ttl, %(window)d) "
    b"WHERE name = %(name)b AND number = @leasehold_next AND ROW_COUNT() = 1;"
    b"UPDATE leasehold_lock SET fence = @leasehold_fence + %(spare)d WHERE name = %(name)b AND ROW_COUNT() = 1;"
    b"SET @leasehold_listener = IF(ROW_COUNT() = 1, "
    b"(SELECT COALESCE(listener, '') FROM leasehold_claim WHERE name = %(name)b AND number = @leasehold_next), NULL);"
    b"COMMIT;"
    b"SELECT @leasehold_listener"
)


class HandOver(NamedTuple):
    """What a release did; `listener` is how the client of the new holder is woken, if it listens."""

    is_done: bool
    listener: bytes | None = None

    @classmethod
    def from_results(cls, results: Sequence[Result]) -> HandOver:
        """Of the query below."""
        ((listener,),) = results[-1].rows
        return cls(listener is not None, listener or None)


def hand_over(grant: Grant, first_fence: int) -> bytes:
    """Free this grant, and grant to the first waiter."""
    return _HAND_OVER % {
        b"name": binary(grant.claim.key.encode()),
        b"owner": binary(grant.claim.owner.encode()),
        b"fence": grant.fence,
        b"first": first_fence,
        b"most": MAX_FENCE - SPARE,
        b"spare": SPARE,
        b"window": WINDOW,
    }


# --- places

_JOIN = (
    b"BEGIN;"
    b"UPDATE leasehold_lock SET version = version + 1 WHERE name = %(name)b AND shape = 2;"
    b"INSERT INTO leasehold_claim SELECT %(name)b, LAST_INSERT_ID(MAX(number) + 1), %(owner)b, 3, 'exclusive', 1, "
    b"%(ttl)d, %(min_hold)d, %(holder)b, 0, " + NOW + b", " + NOW + b" + %(lifetime)d, 0, NULL, %(listener)b, NULL "
    b"FROM leasehold_claim WHERE name = %(name)b HAVING ROW_COUNT() = 1 AND SUM(expires <= " + NOW + b") = 0 "
    b"AND SUM(state IN (1, 3)) > 0 AND SUM(state = 2 OR owner = %(owner)b OR mode = 'permit') = 0;"
    b"COMMIT;"
)
_PLACE = (
    b"SELECT " + NOW + b", c.number, c.state, c.fence, c.since, c.expires, c.abandoned, c.broken IS NOT NULL, "
    b"IF(c.state = 3, (SELECT COUNT(*) FROM leasehold_claim AS w WHERE w.name = %(name)b AND w.number < c.number "
    b"AND w.state = 3 AND w.expires > " + NOW + b"), 0), "
    b"c.state = 3 AND EXISTS (SELECT 1 FROM leasehold_claim AS k WHERE k.name = %(name)b AND k.state = 2), "
    b"h.expires, h.holder, (SELECT l.fence FROM leasehold_lock AS l WHERE l.name = %(name)b) - c.fence "
    b"FROM leasehold_claim AS c LEFT JOIN leasehold_claim AS h ON h.name = %(name)b AND h.number = "
    b"IF(c.state = 3, (SELECT MIN(f.number) FROM leasehold_claim AS f WHERE f.name = %(name)b AND f.state <= 2), 0) "
    b"WHERE c.name = %(name)b AND c.number = %(number)b AND c.owner = %(owner)b"
)


def join_queue(claim: Claim, listener: bytes | None) -> bytes:
    """Wait behind all others; the last result has the place, or no row if the rules have to decide."""
    words = {
        b"name": binary(claim.key.encode()),
        b"owner": binary(claim.owner.encode()),
        b"ttl": micros(claim.ttl),
        b"min_hold": micros(claim.min_hold),
        b"holder": binary(holder_to_json(claim.holder).encode()),
        b"lifetime": micros(place_lifetime(claim)),
        b"listener": optional_binary(listener),
        b"number": b"LAST_INSERT_ID()",
    }
    return (_JOIN + _PLACE) % words


def read_place(claim: Claim, number: int) -> bytes:
    """How things are for a waiter: a row, or none if it has no place any more."""
    name, owner = binary(claim.key.encode()), binary(claim.owner.encode())
    return _PLACE % {b"name": name, b"owner": owner, b"number": b"%d" % number}


class PlaceRow(NamedTuple):
    """What was read of a waiter, and of the first holder."""

    claim: Claim
    now: int
    number: int
    state: State
    fence: int
    since: int
    expires: int
    abandoned: bool
    is_broken: bool
    ahead: int
    is_kept: bool  # the name is kept without a holder: by a pause, or a min_hold
    holder_expires: int | None
    holder: bytes | None
    spare: int  # fences behind that of a holder which no other gets: no grant came after it

    @classmethod
    def from_values(cls, claim: Claim, values: Values) -> PlaceRow:
        """A row of the query above."""
        now, number, state, fence, since, expires, abandoned, broken, ahead, kept, ends, holder, spare = values
        return cls(
            claim,
            int(now or 0),
            int(number or 0),
            State(int(state or 0)),
            int(fence or 0),
            int(since or 0),
            int(expires or 0),
            abandoned == b"1",
            broken == b"1",
            int(ahead or 0),
            kept == b"1",
            None if ends is None else int(ends),
            holder,
            int(spare or 0),
        )

    def grant(self) -> Grant | None:
        """The grant that was handed over to this waiter, for as long as it lasts from now on."""
        left = self.expires - self.now
        if self.state != State.HOLDING or self.is_broken or left <= 0:
            return None
        return Grant(self.claim, self.fence, left / MICRO, None, self.abandoned, min(self.spare, SPARE))

    def queued(self) -> Queued | None:
        """The place, while another claim is in the way; None if the rules have to decide."""
        is_held = self.holder_expires is not None and self.holder_expires > self.now
        if self.state != State.WAITING or self.expires <= self.now or self.is_kept or not (self.ahead or is_held):
            return None
        row = Row(self.claim, self.state, self.since / MICRO, self.expires / MICRO, number=self.number)
        ends = (self.holder_expires - self.now) / MICRO if self.holder_expires is not None and is_held else None
        holder = None if self.holder_expires is None else holder_from(self.holder)
        return Queued(row, self.ahead, place_lifetime(self.claim) / RECHECKS_MISSED, holder, ends)
