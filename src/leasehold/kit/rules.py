"""The rules of a lock, once for all stores that are written in Python: one state machine of a name.

A name has rows. A row is one claim in one state:

    HOLDING     it was granted, and takes up room until it is released or expires
    COOLING     it was released early, and takes up room until its `min_hold` is over
    WAITING     it has a place in the queue; a waiter that does not ask again in time is dead and loses the place
    WITHDRAWN   a note: a copy of this claim that arrives late is refused
    BROKEN      a note: an operator ended the grant at once; its holder learns why, and a late copy is refused

and a claim is admitted when nothing that holds or waits ahead is in its way:

    exclusive   nothing holds, nothing waits ahead
    shared      no exclusive claim holds or waits ahead
    permit      holders and waiters ahead are fewer than the capacity, and none of them is exclusive

The pause of a name is an exclusive row among those that hold (`leasehold.kit.pauses`): nothing is admitted beside it.

The verbs below decide; `Rows` is where the rows are: dictionaries (`LocalRows`, for memory and for documents) or tables
inside one transaction (SQLite). Nothing here knows a clock, a mutex or a wire: `rows.now` is the instant, on the
store's clock, at which everything in one call happens. Every verb expects that `expire` was called for that instant, so
that all it finds is alive. After a verb, if `rows.changed`, the waiters in `admissible(rows)` should be notified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leasehold.kit.pauses import holders_of, pause_of, pause_row
from leasehold.kit.refusals import check_kind, fence_too_high
from leasehold.kit.rows import Crowd, Row, Rows, State
from leasehold.spi import DRIFT
from leasehold.values import MAX_FENCE, Grant, Holding, LockState, Loss, LossReason, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leasehold.values import Claim, Holder, Pause

__all__ = [
    "ABANDONED_KEPT",
    "FENCE_KEPT",
    "RECHECK",
    "RECHECKS_MISSED",
    "SHORTEST_RECHECK",
    "SPARE",
    "TAKEN",
    "Crowd",
    "Queued",
    "Row",
    "Rows",
    "State",
    "admissible",
    "admits",
    "break_",
    "check_kind",
    "expire",
    "fence_too_high",
    "grant",
    "handed_over_since",
    "has_fence",
    "inspect",
    "join",
    "place_lifetime",
    "release",
    "renew",
    "try_acquire",
    "turn",
    "withdraw",
]

RECHECK = 1.0
RECHECKS_MISSED = 3  # a waiter that did not ask again for so many re-checks is dead
SHORTEST_RECHECK = 0.01
ABANDONED_KEPT = 86_400.0  # how long the next holder can still learn that the last one vanished
FENCE_KEPT = 86_400.0  # how long a key remembers the fence of its record, where the fence alone does not say its age
SPARE = 64  # fences kept free behind that of a grant out of the queue, for hand-overs inside the holder's process
TAKEN = Loss(LossReason.TAKEN, "the store does not know this grant any more")


_HOLDING, _COOLING, _WAITING, _WITHDRAWN, _BROKEN = State  # an attribute of an enum costs more than a global


# --- values, and decisions over them ----------------------------------------------------------------------------------


class Queued(NamedTuple):
    """A place in the queue, from which the store makes its `Place`."""

    row: Row
    ahead: int
    recheck: float
    holder: Holder | None
    ends: float | None  # seconds until the first holder's time is over, if it does not renew
    paused: Pause | None = None

    @property
    def early_recheck(self) -> float:
        """For a store that does not notify when a holder expires: the first waiter looks at that very moment."""
        if self.ahead or self.ends is None:
            return self.recheck
        return min(self.recheck, max(self.ends, SHORTEST_RECHECK))

    @property
    def retry_after(self) -> float | None:
        """When one who gives up may ask again, as a refusal would say it."""
        return self.ends if self.paused is None else self.paused.expires_in


def admits(claim: Claim, holders: Crowd, ahead: Crowd) -> bool:
    """Whether nothing that holds or waits ahead is in the way of this claim."""
    if claim.mode is Mode.PERMIT:
        return not holders.exclusive and holders.number + ahead.number < claim.capacity  # exclusive: a pause
    if claim.mode is Mode.EXCLUSIVE:
        return holders.number == 0 and ahead.number == 0
    return not holders.exclusive and not ahead.exclusive


def place_lifetime(claim: Claim) -> float:
    """How long a place in the queue lives without being asked for; a third of it is the time between re-checks."""
    return min(claim.ttl, RECHECKS_MISSED * RECHECK)


def handed_over_since(sent: float, passed: float) -> float:
    """From when a grant counts that came by notification, without a request of ours to count from.

    It was made `passed` seconds of the store's clock after the store had answered a request that we sent at `sent`; on
    our clock less may have passed.
    """
    return sent + passed * (1 - DRIFT)


# --- the verbs --------------------------------------------------------------------------------------------------------


def expire(rows: Rows) -> None:
    """Remove what has run out. A holder that vanished leaves a mark for the next one."""
    states = rows.expire()
    if not states:
        return
    if _HOLDING in states:
        rows.abandoned_until = rows.now + ABANDONED_KEPT
    if any(state <= _WAITING for state in states):
        rows.changed = True


def try_acquire(rows: Rows, claim: Claim) -> Grant | Refusal:
    """Grant now or not at all; never overtakes a waiter."""
    own = tuple(rows.of_owner(claim.owner))
    held = _in_state(own, _HOLDING, _COOLING)
    if held is not None:
        return _repeat(rows, claim, held)
    if _note(own) is not None:
        return _refusal(rows)
    _check_kind(rows, claim)
    if not admits(claim, rows.holders(), rows.ahead(None)):
        return _refusal(rows)
    return grant(rows, claim)


def join(rows: Rows, claim: Claim, listener: Any = None) -> Grant | Queued | Refusal:
    """Grant now, or give a place at the end of the queue; a claim that waits already keeps its place."""
    own = tuple(rows.of_owner(claim.owner))
    held = _in_state(own, _HOLDING, _COOLING)
    if held is not None:
        return _repeat(rows, claim, held)
    if _note(own) is not None:
        return _refusal(rows)
    _check_kind(rows, claim)
    place = _in_state(own, _WAITING)
    if place is not None:
        return _keep_place(rows, place, listener)
    if admits(claim, rows.holders(), rows.ahead(None)):
        return grant(rows, claim)
    place = Row(claim, _WAITING, rows.now, rows.now + place_lifetime(claim), listener=listener)
    rows.insert(place)
    return _queued(rows, place)


def turn(rows: Rows, claim: Claim, listener: Any = None) -> Grant | Queued | Refusal:
    """Grant if nothing ahead is in the way; keep the place otherwise. A refusal: there is no such place any more."""
    own = tuple(rows.of_owner(claim.owner))
    held = _in_state(own, _HOLDING, _COOLING)
    if held is not None:
        return _repeat(rows, claim, held)
    place = _in_state(own, _WAITING)
    if place is None:
        return _refusal(rows)
    if not admits(claim, rows.holders(), rows.ahead(place)):
        return _keep_place(rows, place, listener)
    _free(rows, place)  # which notifies the next one: several readers or permits may be admissible at once
    return grant(rows, claim, SPARE if claim.mode is Mode.EXCLUSIVE else 0)


def grant(rows: Rows, claim: Claim, spare: int = 0) -> Grant:
    """Make it a holder. The caller knows that it is admitted: a verb above, or a store that saw the name unused.

    `spare` fences behind its own are kept free: for a waiter as a rule, for others only where the claim asks for it. A
    name without waiters may be granted so often that its fences would outrun the clock that they follow.
    """
    spare = spare or claim.spare
    fence = rows.next_fence(spare) if spare else rows.next_fence()
    if fence + spare > MAX_FENCE:
        raise fence_too_high(fence, rows.label)
    now, ttl = rows.now, claim.ttl
    abandoned = rows.abandoned_until > now
    rows.abandoned_until = 0.0
    row = Row(claim, _HOLDING, now, now + ttl, fence, abandoned)
    if spare:
        row.spare = spare
    rows.insert(row)
    return Grant(claim, fence, ttl, None, abandoned, spare)


def renew(rows: Rows, wanted: Grant) -> Grant | Loss:
    """Extend what is still held. One that was passed on inside its process shows its present fence from now on."""
    row = _of_grant(rows, wanted)
    if row is None:
        return TAKEN
    if row.broken is not None:
        return Loss(LossReason.BROKEN, row.broken)
    passed, row.fence = wanted.fence - row.fence, wanted.fence
    row.spare -= passed
    return _extend(rows, wanted.claim, row)


def release(rows: Rows, wanted: Grant) -> bool | Loss:
    """Free this grant and nothing else. If it was broken, its holder learns that now, and what was kept is freed."""
    row = _of_grant(rows, wanted)
    if row is None:
        return False
    if row.state == _HOLDING:
        # Never longer than its min_hold from now, even if the store's clock was set back since it was granted.
        kept_until = min(row.since, rows.now) + row.claim.min_hold
        if kept_until > rows.now:
            row.state, row.expires = _COOLING, kept_until
            rows.update(row)
        else:
            _free(rows, row)
    # What is left of a broken grant stays for its time: a release that is sent again gets the same answer.
    return True if row.broken is None else Loss(LossReason.BROKEN, row.broken)


def withdraw(rows: Rows, claim: Claim, *, doubt: bool) -> None:
    """Undo the claim, whatever became of it; with `doubt`, refuse a copy of it that arrives within its ttl.

    A note that it was broken does that as well, and stays: a release that is sent again after this gets the reason.
    """
    own = tuple(rows.of_owner(claim.owner))
    for row in own:
        if row.state in (_HOLDING, _WAITING):
            _free(rows, row)
            if row.abandoned:  # this holder never used what it learnt; the next one has to learn it
                rows.abandoned_until = rows.now + ABANDONED_KEPT
        elif row.state != _COOLING and not doubt:
            rows.delete(row)
    if doubt:
        note, until = _note(own), rows.now + claim.ttl
        if note is None:
            rows.insert(Row(claim, _WITHDRAWN, rows.now, until))
        else:
            note.expires = max(note.expires, until)
            rows.update(note)


def break_(rows: Rows, fence: int, reason: str, *, now: bool) -> bool:
    """End the grant with this fence; its place stays taken until its ttl is over, unless `now`."""
    row = next((row for row in rows.held() if has_fence(row, fence)), None)
    if row is None or row.state == _COOLING:
        return False
    row.broken = reason
    if now:
        row.state = _BROKEN
        rows.abandoned_until = rows.now + ABANDONED_KEPT
        rows.changed = True
    rows.update(row)
    return True


def admissible(rows: Rows) -> Iterator[Row]:
    """Every waiter whose turn it may be, in order; each then asks for itself."""
    holders, number, exclusive = rows.holders(), 0, False
    for row in rows.waiting():
        if not admits(row.claim, holders, Crowd(number, exclusive)):
            return
        yield row
        number, exclusive = number + 1, exclusive or row.claim.mode is Mode.EXCLUSIVE


def inspect(rows: Rows) -> LockState | None:
    """What an operator may see; None when the name is not in use."""
    held, waiting, paused = tuple(holders_of(rows)), tuple(rows.waiting()), pause_row(rows)
    first = next(iter(held or waiting), paused)
    if first is None:
        return None
    holdings = tuple(
        Holding(
            row.claim.holder,
            row.fence,
            rows.now - row.since,
            row.expires - rows.now,
            row.broken,
            cooling=row.state == _COOLING,
        )
        for row in held
    )
    mode, capacity, waiters = first.claim.mode, first.claim.capacity, tuple(row.claim.holder for row in waiting)
    return LockState(rows.key, mode, capacity, holdings, waiters, pause_of(paused, rows.now))


# --- parts of the verbs -----------------------------------------------------------------------------------------------


def _in_state(own: Iterable[Row], *states: State) -> Row | None:
    for row in own:
        if row.state in states:
            return row
    return None


def _note(own: Iterable[Row]) -> Row | None:
    """The note that refuses late copies of this owner's claim."""
    return _in_state(own, _WITHDRAWN, _BROKEN)


def _of_grant(rows: Rows, wanted: Grant) -> Row | None:
    """The row of this very grant: a late copy of its claim, granted anew, is another one with higher fences.

    One that was broken is found after its release too, for as long as it is kept: a call that is sent again gets the
    reason again.
    """
    for row in rows.of_owner(wanted.claim.owner):
        is_its_own = row.fence == wanted.fence or (row.spare > 0 and has_fence(row, wanted.fence))
        if is_its_own and (row.state == _HOLDING or row.broken is not None):
            return row
    return None


def has_fence(row: Row, fence: int) -> bool:
    """Whether this is the row's fence, or one of those behind it that no other grant gets."""
    return row.fence <= fence <= row.fence + row.spare


def _repeat(rows: Rows, claim: Claim, row: Row) -> Grant | Refusal:
    """The same claim again, because its answer was lost: the same grant, with a new expiry."""
    if row.state == _COOLING or row.broken is not None:
        return _refusal(rows)
    return _extend(rows, claim, row)


def _extend(rows: Rows, claim: Claim, row: Row) -> Grant:
    row.expires = rows.now + claim.ttl
    rows.update(row)
    return Grant(claim, row.fence, claim.ttl, None, row.abandoned, row.spare)


def _keep_place(rows: Rows, place: Row, listener: Any) -> Queued:
    place.expires, place.listener = rows.now + place_lifetime(place.claim), listener
    rows.update(place)
    return _queued(rows, place)


def _queued(rows: Rows, place: Row) -> Queued:
    recheck = place_lifetime(place.claim) / RECHECKS_MISSED
    paused = pause_of(pause_row(rows), rows.now)
    return Queued(place, rows.ahead(place).number, recheck, _first_holder(rows), _ends(rows), paused)


def _refusal(rows: Rows) -> Refusal:
    paused = pause_of(pause_row(rows), rows.now)
    ends = _ends(rows) if paused is None else paused.expires_in
    return Refusal(rows.key, _first_holder(rows), ends, rows.ahead(None).number, paused=paused)


def _ends(rows: Rows) -> float | None:
    end = rows.soonest_end()
    return None if end is None else end - rows.now


def _first_holder(rows: Rows) -> Holder | None:
    row = next(holders_of(rows), None)
    return None if row is None else row.claim.holder


def _free(rows: Rows, row: Row) -> None:
    rows.delete(row)
    rows.changed = True


def _check_kind(rows: Rows, claim: Claim) -> None:
    """All that use a name at the same time are of one kind, so the first of them decides."""
    present = next(holders_of(rows), None) or next(iter(rows.waiting()), None)
    if present is not None:
        check_kind(claim, present.claim.mode, present.claim.capacity, rows.label)
