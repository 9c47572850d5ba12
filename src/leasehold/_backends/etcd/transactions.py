"""The transactions of the lock protocol, as bytes: the conditions of each, what it does, and what it reads otherwise.

The rule, over all claims of a lock in the order of the revisions that created them: an exclusive claim holds when none
is before it, a shared one when no exclusive one is, a permit when fewer than its capacity are. Claims before another
only become fewer, so a claim that holds once does so until its key is deleted. No holder has to be written down, and a
grant may follow from a read of one revision of the store.

What depends only on the lock, and not on the claim, is encoded once and cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from leasehold._backends.etcd.rpc import (
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

    from leasehold._backends.etcd.keys import LockKeys
    from leasehold._backends.etcd.rpc import KeyValue

__all__ = [
    "AHEAD", "FIRST", "FLOOR", "OWN", "QUEUE_AHEAD", "QUEUE_FIRST", "QUEUE_FLOOR", "QUEUE_OWN", "WITHDRAWN", "NewClaim",
    "break_now", "cool", "delete_all", "delete_if", "drop", "explain", "join", "mark_granted",
    "position", "position_if_moved", "put_if_unchanged", "read_all", "refuse", "release", "try_acquire", "verify",
    "withdraw",
]  # fmt: skip

# What a try that failed has read, or `explain` reads, by place in the response.
OWN, WITHDRAWN, FLOOR, FIRST, AHEAD = range(5)
# What `position` reads, by place in the response.
QUEUE_OWN, QUEUE_FLOOR, QUEUE_AHEAD, QUEUE_FIRST = range(4)

Blocker = tuple[bytes, int]  # a claim's key, and the revision that created it
_cached = lru_cache(maxsize=4096)


class NewClaim(NamedTuple):
    """A claim that is to get a key. `floor` is the revision that wrote the floor under its fence."""

    keys: LockKeys
    owner: str
    key: bytes
    value: bytes
    lease: int
    floor: int


# --- a new claim


@_cached
def _key_is_free(keys: LockKeys, key: bytes) -> bytes:
    """Conditions: nothing is stored under the key, and the name is in use as no other kind of lock."""
    return b"".join([condition(is_absent(key)), *[condition(is_absent(*other)) for other in keys.other_kinds]])


@_cached
def _floor_is(floor: bytes, written: int) -> bytes:
    return condition(written_at(floor, written))


def _insert(new: NewClaim) -> bytes:
    """Write the key, if it is free, the claim was not withdrawn, no other kind of lock is there, and the floor fits."""
    keys = new.keys
    not_withdrawn = condition(is_absent(keys.withdrawal_mark(new.owner)))
    inserted = then(op_put(put(new.key, new.value, new.lease)))
    return _key_is_free(keys, new.key) + not_withdrawn + _floor_is(keys.floor, new.floor) + inserted


@_cached
def _read_first(keys: LockKeys) -> bytes:
    """Read the oldest claim of the lock."""
    return op_range(range_(*keys.queue, limit=1, sort=Sort.OLDEST))


@_cached
def _read_newest(keys: LockKeys, limit: int) -> bytes:
    """Read the newest keys among which a claim may find others in its way; and the oldest claim of the lock."""
    newest = op_range(range_(*keys.ahead, limit=limit, sort=Sort.NEWEST, keys_only=True))
    return then(newest) + then(_read_first(keys))


def join(new: NewClaim, limit: int) -> bytes:
    """Enter the queue; the second result has the newest keys that may be in the way, the third the oldest claim.

    Why it failed is read separately (`explain`): failures are rare, and everything that a transaction may read is part
    of the entry in etcd's log.
    """
    return _insert(new) + _read_newest(new.keys, limit + 1)


def _reasons(new: NewClaim) -> list[bytes]:
    """Reads of the key, the withdrawal, the floor, the oldest claim, and the number of claims in the way."""
    keys = new.keys
    return [
        op_range(read(new.key)),
        op_range(read(keys.withdrawal_mark(new.owner))),
        op_range(read(keys.floor)),
        _read_first(keys),
        op_range(range_(*keys.ahead, count_only=True)),
    ]


def explain(new: NewClaim) -> bytes:
    """Read why a claim got no key, in the places above. It changes nothing."""
    return b"".join([then(each) for each in _reasons(new)])


def try_acquire(new: NewClaim, room_at: int = 0) -> bytes:
    """Enter the queue only if no claim is in the way; otherwise read why not.

    For permits: if there is no claim at all or, with `room_at`, none newer than the revision at which there was room.
    """
    ahead = new.keys.ahead
    free = none_created_after(*ahead, room_at) if room_at else is_absent(*ahead)
    return _insert(new) + condition(free) + b"".join([otherwise(each) for each in _reasons(new)])


# --- a claim in the queue


@_cached
def _read_own(key: bytes, floor: bytes) -> tuple[bytes, bytes]:
    return op_range(read(key)), op_range(read(floor))


def _position(keys: LockKeys, key: bytes, created: int, limit: int) -> list[bytes]:
    """Reads of the key, the floor, the claims in the way (newest first, up to the limit), and the oldest claim."""
    in_the_way = op_range(range_(*keys.ahead, limit=limit, sort=Sort.NEWEST, keys_only=True, newest=created - 1))
    return [*_read_own(key, keys.floor), in_the_way, _read_first(keys)]


def position(keys: LockKeys, key: bytes, created: int, limit: int) -> bytes:
    """Read the claim's position in the queue. It changes nothing."""
    return b"".join([then(each) for each in _position(keys, key, created, limit)])


def position_if_moved(keys: LockKeys, key: bytes, created: int, limit: int, blocker: Blocker) -> bytes:
    """The same, unless the blocker is still there; then read only the floor.

    The floor is not needed, but a transaction without a read could be answered from an old state.
    """
    unmoved = condition(created_at(key, created)) + condition(created_at(*blocker))
    moved = b"".join([otherwise(each) for each in _position(keys, key, created, limit)])
    return unmoved + then(op_range(read(keys.floor))) + moved


def mark_granted(key: bytes, created: int, value: bytes) -> bytes:
    """Write the claim's value anew, on the lease that it has, if its key is still there."""
    return condition(created_at(key, created)) + then(op_put(put(key, value, same_lease=True)))


# --- a grant


def verify(claims: Sequence[tuple[bytes, int]], floor: bytes) -> bytes:
    """Whether every key is as it was last written; otherwise read them all. It changes nothing."""
    unchanged = b"".join([condition(written_at(key, written)) for key, written in claims])
    return unchanged + then(op_range(read(floor))) + b"".join([otherwise(op_range(read(key))) for key, _ in claims])


@_cached
def _delete_or_read(key: bytes) -> bytes:
    return then(op_delete(delete(key))) + otherwise(op_range(read(key)))


def release(key: bytes, written: int) -> bytes:
    """Delete a claim if it is as it was last written; otherwise read it."""
    return condition(written_at(key, written)) + _delete_or_read(key)


def cool(kv: KeyValue, value: bytes, lease: int) -> bytes:
    """Move a claim to the lease of its cool-down if it is unchanged; otherwise read it."""
    return put_if_unchanged(kv, value, lease) + otherwise(op_range(read(kv.key)))


def put_if_unchanged(kv: KeyValue, value: bytes, lease: int = 0) -> bytes:
    """Write a key, on this lease or on none, if it is as it was read."""
    return condition(written_at(kv.key, kv.written)) + then(op_put(put(kv.key, value, lease)))


def break_now(kv: KeyValue, keys: LockKeys, owner: str, reason: bytes, lease: int) -> bytes:
    """Delete a grant's key if it is as it was read, leave a note for its holder, and keep late copies of it out."""
    deleted = condition(written_at(kv.key, kv.written)) + then(op_delete(delete(kv.key)))
    noted = then(op_put(put(keys.break_note(owner), reason, lease)))
    return deleted + noted + refuse(keys.withdrawal_mark(owner), lease)


# --- a claim that is over


def refuse(withdrawal: bytes, lease: int) -> bytes:
    """Write the mark that keeps late copies of a claim out."""
    return then(op_put(put(withdrawal, b"", lease)))


def withdraw(key: bytes, value: bytes, withdrawal: bytes, lease: int) -> bytes:
    """Keep late copies of a claim out, and delete it if it has the value that we wrote; otherwise read its key."""
    refused = op_put(put(withdrawal, b"", lease))
    deleted = condition(value_is(key, value)) + then(op_delete(delete(key)))
    return deleted + then(refused) + otherwise(op_range(read(key))) + otherwise(refused)


def delete_if(key: bytes, value: bytes) -> bytes:
    """Delete a claim if it has the value that we wrote; otherwise read its key."""
    return condition(value_is(key, value)) + _delete_or_read(key)


def drop(key: bytes, lease: int, created: int) -> bytes:
    """Delete a claim if it is on our lease: after its release it may be cooling on a lease of its own."""
    return condition(created_at(key, created)) + condition(lives_on(key, lease)) + then(op_delete(delete(key)))


def read_all(keys: Iterable[bytes]) -> bytes:
    """Read several keys at one revision."""
    return b"".join([then(op_range(read(key))) for key in keys])


def delete_all(keys: Iterable[bytes]) -> bytes:
    """Delete several keys."""
    return b"".join([then(op_delete(delete(key))) for key in keys])
