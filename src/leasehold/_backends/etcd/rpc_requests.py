"""Requests to etcd as bytes; field numbers are those of etcd's `rpc.proto`. Only what a lock needs.

A transaction is its parts, one behind the other: conditions (`condition`), the operations that are done if all of them
hold (`then`), and those that are done if one does not (`otherwise`).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from functools import partial

from leasehold._backends.etcd.protobuf import block, number

__all__ = [
    "Method",
    "Sort",
    "authenticate",
    "condition",
    "created_at",
    "delete",
    "is_absent",
    "is_present",
    "lease_grant",
    "lease_id",
    "lives_on",
    "none_created_after",
    "none_created_before",
    "op_delete",
    "op_put",
    "op_range",
    "otherwise",
    "put",
    "range_",
    "read",
    "then",
    "value_is",
    "watch_cancel",
    "watch_create",
    "written_at",
]


class Method(StrEnum):
    """The methods of etcd that are called."""

    RANGE = "/etcdserverpb.KV/Range"
    PUT = "/etcdserverpb.KV/Put"
    DELETE_RANGE = "/etcdserverpb.KV/DeleteRange"
    TXN = "/etcdserverpb.KV/Txn"
    LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
    LEASE_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
    LEASE_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
    LEASE_TIME_TO_LIVE = "/etcdserverpb.Lease/LeaseTimeToLive"
    WATCH = "/etcdserverpb.Watch/Watch"
    AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
    STATUS = "/etcdserverpb.Maintenance/Status"
    ALARM = "/etcdserverpb.Maintenance/Alarm"
    MEMBER_LIST = "/etcdserverpb.Cluster/MemberList"


class Sort(IntEnum):
    """By revision of creation, oldest or newest first."""

    OLDEST = 1
    NEWEST = 2


_BY_CREATION = 2
_EQUAL, _GREATER, _LESS = 0, 1, 2
_VERSION, _CREATE, _MOD, _VALUE, _LEASE = 0, 1, 2, 3, 4
_NO_PUTS = b"\x00"  # a packed list with the one filter

# --- requests


def range_(
    key: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    revision: int = 0,
    sort: Sort | None = None,
    keys_only: bool = False,
    count_only: bool = False,
    newest: int = 0,
) -> bytes:
    """Read a key, or all keys from `key` up to before `end`; only those created up to revision `newest`, if given."""
    where = block(1, key) + block(2, end) if end else block(1, key)
    order = b"" if sort is None else number(5, sort) + number(6, _BY_CREATION)
    how = number(3, limit) + number(4, revision) + order
    return where + how + number(8, keys_only) + number(9, count_only) + number(13, newest)


def put(key: bytes, value: bytes, lease: int = 0, *, same_lease: bool = False) -> bytes:
    """Write a key; it is deleted when its lease ends. `same_lease`: it keeps the lease that it has."""
    return block(1, key) + block(2, value) + number(3, lease) + number(6, same_lease)


read = delete = partial(block, 1)  # one key

# Operations inside a transaction.
op_range = partial(block, 1)
op_put = partial(block, 2)
op_delete = partial(block, 3)

# Parts of a transaction.
condition = partial(block, 1)
then = partial(block, 2)
otherwise = partial(block, 3)


def is_absent(key: bytes, end: bytes = b"") -> bytes:
    """Condition: there is no such key, or none in the range."""
    return number(2, _CREATE) + block(3, key) + (block(64, end) if end else b"")


def is_present(key: bytes) -> bytes:
    """Condition: there is such a key."""
    return number(1, _GREATER) + number(2, _VERSION) + block(3, key)


def created_at(key: bytes, revision: int) -> bytes:
    """Condition: the key was created by this revision, and not deleted since."""
    return number(2, _CREATE) + block(3, key) + number(5, revision)


def none_created_before(key: bytes, end: bytes, revision: int) -> bytes:
    """Condition: no key of the range is older than this revision. It holds for an empty range only if revision is 1."""
    return number(1, _GREATER) + number(2, _CREATE) + block(3, key) + number(5, revision - 1) + block(64, end)


def none_created_after(key: bytes, end: bytes, revision: int) -> bytes:
    """Condition: no key of the range is newer than this revision."""
    return number(1, _LESS) + number(2, _CREATE) + block(3, key) + number(5, revision + 1) + block(64, end)


def written_at(key: bytes, revision: int) -> bytes:
    """Condition: the key was last written by this revision; 0: there is none."""
    return number(2, _MOD) + block(3, key) + number(6, revision)


def lives_on(key: bytes, lease: int) -> bytes:
    """Condition: the key exists on this lease."""
    return number(2, _LEASE) + block(3, key) + number(8, lease)


def value_is(key: bytes, value: bytes) -> bytes:
    """Condition: the key exists with this very value."""
    return number(2, _VALUE) + block(3, key) + block(7, value)


def lease_grant(lease: int, ttl: int) -> bytes:
    """Make a lease, under a number that the client has chosen."""
    return number(1, ttl) + number(2, lease)


def lease_id(lease: int) -> bytes:
    """Revoke a lease, keep it alive, or read the time that it has left: the three requests are the same bytes."""
    return number(1, lease)


def watch_create(watch: int, key: bytes, end: bytes, *, puts: bool) -> bytes:
    """Begin a watch: an event for every deletion (and put) of the key or range from now on."""
    filters = b"" if puts else block(5, _NO_PUTS)
    return block(1, block(1, key) + (block(2, end) if end else b"") + filters + number(7, watch))


def watch_cancel(watch: int) -> bytes:
    """End a watch."""
    return block(2, number(1, watch))


def authenticate(name: str, password: str) -> bytes:
    """Exchange a name and a password for a token."""
    return block(1, name.encode()) + block(2, password.encode())
