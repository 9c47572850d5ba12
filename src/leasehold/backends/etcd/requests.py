"""The transactions of the lock protocol, as bytes. Each says its conditions, what it does, and what it tells otherwise.

The rule, over all claims of a lock in the order of the revisions that created them: an exclusive claim holds when none
is before it, a shared one when no exclusive one is, a permit when fewer than its capacity are. Claims before another
only become fewer, so whoever holds once holds until its key is deleted; no holder has to be written down, and a grant
may follow from a mere look at one revision of the store.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from leasehold.backends.etcd.messages import (
    Sort,
    condition,
    created_at,
    delete,
    is_absent,
    is_present,
    none_created_after,
    op_delete,
    op_put,
    op_range,
    otherwise,
    put,
    range_,
    read,
    then,
    value_below,
    written_at,
)
from leasehold.backends.etcd.seat import COOLING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leasehold.backends.etcd.floors import Floor
    from leasehold.backends.etcd.layout import Lane

__all__ = [
    "FIRST", "FLOOR", "LANE", "LOOK_AHEAD", "LOOK_FIRST", "LOOK_FLOOR", "LOOK_SEAT", "SEAT", "WITHDRAWN", "delete_all",
    "join", "look", "look_if_moved", "mark", "prove", "read_all", "release", "try_acquire", "try_permit", "withdraw",
]  # fmt: skip

# What an attempt that did not succeed tells, by place in its answer.
SEAT, WITHDRAWN, FLOOR, FIRST, LANE = range(5)
# What a look tells, by place in its answer.
LOOK_SEAT, LOOK_FLOOR, LOOK_AHEAD, LOOK_FIRST = range(4)


@lru_cache(maxsize=4096)
def _count(lane: Lane) -> bytes:
    """How many stand where somebody may be in the way."""
    return op_range(range_(*lane.ahead, count_only=True))


@lru_cache(maxsize=4096)
def _no_strangers(lane: Lane) -> bytes:
    """Condition: nobody uses the name as another kind of lock."""
    return b"".join([condition(is_absent(*stranger)) for stranger in lane.strangers])


@lru_cache(maxsize=4096)
def _told(lane: Lane) -> bytes:
    """Otherwise: floor, first claim, how many may be in the way."""
    first = op_range(range_(*lane.all, limit=1, sort=Sort.OLDEST))
    return otherwise(op_range(read(lane.floor))) + otherwise(first) + otherwise(_count(lane))


def _new(lane: Lane, owner: str, value: bytes, lease: int, floor: Floor) -> bytes:
    """Stand in line, if the claim is new, was not withdrawn, meets no other kind of lock, and its fence is right."""
    seat, withdrawal = lane.seat(owner), lane.withdrawal(owner)
    conditions = condition(is_absent(seat)) + condition(is_absent(withdrawal)) + _no_strangers(lane)
    untold = otherwise(op_range(read(seat))) + otherwise(op_range(read(withdrawal))) + _told(lane)
    return (
        conditions + condition(written_at(lane.floor, floor.written)) + then(op_put(put(seat, value, lease))) + untold
    )


def join(lane: Lane, owner: str, value: bytes, lease: int, floor: Floor) -> bytes:
    """Stand in line. Then: the second result counts those who may be in the way. Otherwise: see the places above."""
    return _new(lane, owner, value, lease, floor) + then(_count(lane))


def try_acquire(lane: Lane, owner: str, value: bytes, lease: int, floor: Floor) -> bytes:
    """Stand in line only if nobody is in the way; for permits, only if nobody is there at all."""
    return _new(lane, owner, value, lease, floor) + condition(is_absent(*lane.ahead))


def try_permit(revision: int) -> Callable[[Lane, str, bytes, int, Floor], bytes]:
    """Stand in line only if nobody has come since the revision at which there was room."""

    def request(lane: Lane, owner: str, value: bytes, lease: int, floor: Floor) -> bytes:
        return _new(lane, owner, value, lease, floor) + condition(none_created_after(*lane.ahead, revision))

    return request


def _view(lane: Lane, owner: str, created: int, enough: int) -> list[bytes]:
    """The seat, the floor, those who are in the way (newest first, no more than are needed), and who is first."""
    return [
        op_range(read(lane.seat(owner))),
        op_range(read(lane.floor)),
        op_range(range_(*lane.ahead, limit=enough, sort=Sort.NEWEST, keys_only=True, newest=created - 1)),
        op_range(range_(*lane.all, limit=1, sort=Sort.OLDEST)),
    ]


def look(lane: Lane, owner: str, created: int, enough: int) -> bytes:
    """Where the claim stands. It changes nothing."""
    return b"".join([then(each) for each in _view(lane, owner, created, enough)])


def look_if_moved(lane: Lane, owner: str, created: int, enough: int, blocker: bytes) -> bytes:
    """The same, unless the one that was in the way is still there; then only the floor, which nobody needs.

    A transaction without a read of its own could be answered from an old state.
    """
    still = condition(created_at(lane.seat(owner), created)) + condition(is_present(blocker))
    moved = b"".join([otherwise(each) for each in _view(lane, owner, created, enough)])
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


def withdraw(seat: bytes, withdrawal: bytes, lease: int) -> bytes:
    """Delete a claim, unless it cools down after its release, and let no late copy of it in."""
    refused = op_put(put(withdrawal, b"", lease))
    return condition(value_below(seat, COOLING)) + then(op_delete(delete(seat))) + then(refused) + otherwise(refused)


def read_all(keys: Iterable[bytes]) -> bytes:
    """Read several keys at one revision."""
    return b"".join([then(op_range(read(key))) for key in keys])


def delete_all(keys: Iterable[bytes]) -> bytes:
    """Delete several keys."""
    return b"".join([then(op_delete(delete(key))) for key in keys])
