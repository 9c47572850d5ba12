"""The transactions of the lock protocol, as bytes. Each says its conditions, what it does, and what it tells otherwise.

The rule, over all claims of a lock in the order of the revisions that created them: an exclusive claim holds when none
is before it, a shared one when no exclusive one is, a permit when fewer than its capacity are. Claims before another
only become fewer, so whoever holds once holds until its key is deleted; no holder has to be written down, and a grant
may follow from a mere look at one revision of the store.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from leasehold.backends.etcd.messages import (
    Sort,
    condition,
    created_at,
    delete,
    is_absent,
    lives_on,
    none_created_after,
    op_delete,
    op_put,
    op_range,
    otherwise,
    put,
    range_,
    read,
    then,
    value_is,
    written_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leasehold.backends.etcd.layout import Lane

__all__ = [
    "FIRST", "FLOOR", "LANE", "LOOK_AHEAD", "LOOK_FIRST", "LOOK_FLOOR", "LOOK_SEAT", "SEAT", "WITHDRAWN", "NewClaim",
    "delete_all", "delete_if", "drop", "join", "look", "look_if_moved", "mark", "prove", "read_all", "refuse",
    "release", "try_acquire", "why", "withdraw",
]  # fmt: skip

# What an attempt that did not succeed tells, or `why` does, by place in its answer.
SEAT, WITHDRAWN, FLOOR, FIRST, LANE = range(5)
# What a look tells, by place in its answer.
LOOK_SEAT, LOOK_FLOOR, LOOK_AHEAD, LOOK_FIRST = range(4)


Blocker = tuple[bytes, int]  # a seat, and the revision that created it


class NewClaim(NamedTuple):
    """A claim that wants a seat. `floor` is the revision that wrote the floor under its fence."""

    lane: Lane
    owner: str
    seat: bytes
    value: bytes
    lease: int
    floor: int


@lru_cache(maxsize=4096)
def _count(lane: Lane) -> bytes:
    """How many stand where somebody may be in the way."""
    return op_range(range_(*lane.ahead, count_only=True))


@lru_cache(maxsize=4096)
def _first(lane: Lane) -> bytes:
    """Who came first of all."""
    return op_range(range_(*lane.all, limit=1, sort=Sort.OLDEST))


@lru_cache(maxsize=4096)
def _no_strangers(lane: Lane) -> bytes:
    """Condition: nobody uses the name as another kind of lock."""
    return b"".join([condition(is_absent(*stranger)) for stranger in lane.strangers])


def _reasons(lane: Lane, seat: bytes, owner: str) -> list[bytes]:
    """The seat, the claim's withdrawal, the floor, the first claim, how many may be in the way."""
    withdrawal = op_range(read(lane.withdrawal(owner)))
    return [op_range(read(seat)), withdrawal, op_range(read(lane.floor)), _first(lane), _count(lane)]


def _new(new: NewClaim) -> bytes:
    """Stand in line, if the seat is free, the claim not withdrawn, no other kind of lock there, and its fence right."""
    lane, seat = new.lane, new.seat
    conditions = condition(is_absent(seat)) + condition(is_absent(lane.withdrawal(new.owner))) + _no_strangers(lane)
    return conditions + condition(written_at(lane.floor, new.floor)) + then(op_put(put(seat, new.value, new.lease)))


@lru_cache(maxsize=4096)
def _place(lane: Lane, enough: int) -> bytes:
    """Those who are in the way of whoever is the newest, itself included; and who is first."""
    newest = op_range(range_(*lane.ahead, limit=enough, sort=Sort.NEWEST, keys_only=True))
    return then(newest) + then(_first(lane))


def join(new: NewClaim, enough: int) -> bytes:
    """Stand in line; the second result has those who may be in the way, newest first, the third who is first.

    Why it could not be done is asked separately (`why`): that is rare, and all that a transaction says is kept in
    etcd's log.
    """
    return _new(new) + _place(new.lane, enough + 1)


def why(new: NewClaim) -> bytes:
    """Why a claim got no seat, in the places above. It changes nothing."""
    return b"".join([then(each) for each in _reasons(new.lane, new.seat, new.owner)])


def try_acquire(new: NewClaim, room_at: int = 0) -> bytes:
    """Stand in line only if nobody is in the way; otherwise, why not.

    For permits, that is nobody at all, or, with `room_at`, nobody who came after the revision at which there was room.
    """
    ahead = new.lane.ahead
    free = none_created_after(*ahead, room_at) if room_at else is_absent(*ahead)
    told = b"".join([otherwise(each) for each in _reasons(new.lane, new.seat, new.owner)])
    return _new(new) + condition(free) + told


def _view(lane: Lane, seat: bytes, created: int, enough: int) -> list[bytes]:
    """The seat, the floor, those who are in the way (newest first, no more than are needed), and who is first."""
    return [
        op_range(read(seat)),
        op_range(read(lane.floor)),
        op_range(range_(*lane.ahead, limit=enough, sort=Sort.NEWEST, keys_only=True, newest=created - 1)),
        _first(lane),
    ]


def look(lane: Lane, seat: bytes, created: int, enough: int) -> bytes:
    """Where the claim stands. It changes nothing."""
    return b"".join([then(each) for each in _view(lane, seat, created, enough)])


def look_if_moved(lane: Lane, seat: bytes, created: int, enough: int, blocker: Blocker) -> bytes:
    """The same, unless the one that was in the way is still there; then only the floor, which nobody needs.

    A transaction without a read of its own could be answered from an old state.
    """
    still = condition(created_at(seat, created)) + condition(created_at(*blocker))
    moved = b"".join([otherwise(each) for each in _view(lane, seat, created, enough)])
    return still + then(op_range(read(lane.floor))) + moved


def mark(seat: bytes, created: int, value: bytes) -> bytes:
    """Write the claim's value anew, on the lease that it has, if it is still there."""
    return condition(created_at(seat, created)) + then(op_put(put(seat, value, same_lease=True)))


def prove(seats: Sequence[tuple[bytes, int]], floor: bytes) -> bytes:
    """Whether every seat is as it was last written; otherwise, what each of them is. It changes nothing."""
    unchanged = b"".join([condition(written_at(key, written)) for key, written in seats])
    return unchanged + then(op_range(read(floor))) + b"".join([otherwise(op_range(read(key))) for key, _ in seats])


def release(seat: bytes, written: int) -> bytes:
    """Delete a claim if it is as it was last written; otherwise tell what it is."""
    return condition(written_at(seat, written)) + then(op_delete(delete(seat))) + otherwise(op_range(read(seat)))


def refuse(withdrawal: bytes, lease: int) -> bytes:
    """Let no late copy of a claim in."""
    return then(op_put(put(withdrawal, b"", lease)))


def withdraw(seat: bytes, value: bytes, withdrawal: bytes, lease: int) -> bytes:
    """Let no late copy of a claim in, and delete it if it is as we wrote it; otherwise tell what its seat is."""
    refused = op_put(put(withdrawal, b"", lease))
    deleted = condition(value_is(seat, value)) + then(op_delete(delete(seat)))
    return deleted + then(refused) + otherwise(op_range(read(seat))) + otherwise(refused)


def delete_if(seat: bytes, value: bytes) -> bytes:
    """Delete a claim if it is as we wrote it; otherwise tell what its seat is."""
    return condition(value_is(seat, value)) + then(op_delete(delete(seat))) + otherwise(op_range(read(seat)))


def drop(seat: bytes, lease: int, created: int) -> bytes:
    """Delete a claim if it is on our lease: released, it may be kept on one of its own for its `min_hold`."""
    return condition(created_at(seat, created)) + condition(lives_on(seat, lease)) + then(op_delete(delete(seat)))


def read_all(keys: Iterable[bytes]) -> bytes:
    """Read several keys at one revision."""
    return b"".join([then(op_range(read(key))) for key in keys])


def delete_all(keys: Iterable[bytes]) -> bytes:
    """Delete several keys."""
    return b"".join([then(op_delete(delete(key))) for key in keys])
