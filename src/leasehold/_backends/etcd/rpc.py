"""etcd's requests as bytes, and its responses as values, as far as a lock needs them.

Field numbers are those of etcd's `rpc.proto`.

A transaction is its parts, one behind the other: conditions (`condition`), the operations that are done if all of them
hold (`then`), and those that are done if one does not (`otherwise`).

Fields of a response that are not listed here are skipped, so a newer server does no harm. The results of a transaction
stay bytes until they are read: most of them never are.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from leasehold._backends.etcd.protobuf import block, fields, number, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Header",
    "KeyValue",
    "LeaseResponse",
    "Method",
    "RangeResponse",
    "Sort",
    "Status",
    "TxnResponse",
    "WatchResponse",
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
    "read_alarms",
    "read_header",
    "read_lease",
    "read_members",
    "read_range",
    "read_status",
    "read_token",
    "read_txn",
    "read_watch",
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


# --- responses


class Header(NamedTuple):
    """Which member answered, in which term, at which revision."""

    cluster: int = 0
    member: int = 0
    revision: int = 0
    term: int = 0


class KeyValue(NamedTuple):
    """A key as it is stored."""

    key: bytes = b""
    created: int = 0
    written: int = 0
    value: bytes = b""
    lease: int = 0


class RangeResponse(NamedTuple):
    """Keys, and how many the range has in all, whatever limit was given."""

    header: Header
    found: tuple[KeyValue, ...] = ()
    total: int = 0
    more: bool = False


class TxnResponse:
    """Which of the two lists of operations was done, and what each operation of it returned, as bytes."""

    __slots__ = ("_header", "results", "succeeded")

    def __init__(self, header: bytes, results: Sequence[bytes], *, succeeded: bool) -> None:
        self._header = header
        self.results = results
        self.succeeded = succeeded

    @property
    def header(self) -> Header:
        """Read when it is asked for: a release does not."""
        return read_header(self._header)

    def read(self, place: int) -> RangeResponse:
        """What the range at this place of the list returned, without a header: the outer one says all of it."""
        ((_, content),) = fields(self.results[place])
        return read_range(content, NO_HEADER)


class LeaseResponse(NamedTuple):
    """A lease and its seconds: those that were granted, or those that are left; 0 or less: it is gone."""

    header: Header
    lease: int = 0
    ttl: int = 0
    granted: int = 0


class WatchResponse(NamedTuple):
    """A message of one watch: it began at a revision, it ended, or its key was written or deleted."""

    watch: int = 0
    revision: int = 0
    created: bool = False
    cancelled: bool = False
    changed: bool = False


class Status(NamedTuple):
    """The state of one member."""

    version: str
    size: int
    leader: int  # 0: it knows none
    term: int


NO_HEADER = Header()


def read_header(message: bytes) -> Header:
    """The header of a response."""
    get = dict(fields(message)).get
    return Header(get(1, 0), get(2, 0), get(3, 0), get(4, 0))


def read_range(message: bytes, header: Header | None = None) -> RangeResponse:
    """The response to a range; with a header given, its own is not read."""
    found, total, more = [], 0, False
    for field, content in fields(message):
        if field == 2:
            found.append(_read_key_value(content))
        elif field == 4:
            total = content
        elif field == 1 and header is None:
            header = read_header(content)
        elif field == 3:
            more = content != 0
    return RangeResponse(header or NO_HEADER, tuple(found), total, more)


def _read_key_value(message: bytes) -> KeyValue:
    get = dict(fields(message)).get
    return KeyValue(get(1, b""), get(2, 0), get(3, 0), get(5, b""), signed(get(6, 0)))


def read_txn(message: bytes) -> TxnResponse:
    """The response to a transaction."""
    header, succeeded, results = b"", False, []
    for field, content in fields(message):
        if field == 3:
            results.append(content)
        elif field == 1:
            header = content
        elif field == 2:
            succeeded = content != 0
    return TxnResponse(header, results, succeeded=succeeded)


def read_lease(message: bytes) -> LeaseResponse:
    """The response about a lease."""
    get = dict(fields(message)).get
    lease, ttl, granted = (signed(get(field, 0)) for field in (2, 3, 4))
    return LeaseResponse(read_header(get(1, b"")), lease, ttl, granted)


def read_watch(message: bytes) -> WatchResponse:
    """A message of the stream of watches. What has changed is left unread: the waiter reads the store."""
    get = dict(fields(message)).get
    revision = read_header(get(1, b"")).revision if get(3, 0) else 0
    return WatchResponse(signed(get(2, 0)), revision, bool(get(3, 0)), bool(get(4, 0)), get(11) is not None)


def read_token(message: bytes) -> str:
    """The token of an authentication."""
    token: bytes = dict(fields(message)).get(2, b"")
    return token.decode()


def read_status(message: bytes) -> Status:
    """The response of one member about itself."""
    get = dict(fields(message)).get
    return Status(get(2, b"").decode(), signed(get(3, 0)), get(4, 0), get(6, 0))


def read_members(message: bytes) -> tuple[int, int]:
    """How many members vote, and how many are learners."""
    learning = [dict(fields(content)).get(5) == 1 for field, content in fields(message) if field == 2]
    return len(learning) - sum(learning), sum(learning)


def read_alarms(message: bytes) -> list[str]:
    """The alarms that are raised."""
    raised = [dict(fields(content)).get(2, 0) for field, content in fields(message) if field == 2]
    return [_ALARMS.get(alarm, str(alarm)) for alarm in raised if alarm]


_ALARMS = {1: "NOSPACE", 2: "CORRUPT"}
