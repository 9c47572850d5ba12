"""Requests to etcd as bytes, and its answers as values; field numbers are those of etcd's `rpc.proto`.

Only what a lock needs. It knows no connection and no layout of keys. What an answer has beyond this is skipped, so a
newer server does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from leasehold.backends.etcd.codec import block, fields, number

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Answer",
    "Event",
    "Header",
    "KeyValue",
    "LeaseAnswer",
    "Method",
    "RangeAnswer",
    "Sort",
    "TxnAnswer",
    "WatchAnswer",
]


class Method(StrEnum):
    """The calls that are made."""

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
_VERSION, _CREATE, _MOD, _VALUE = 0, 1, 2, 3
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
    newest: int = 0,
) -> bytes:
    """Read a key, or all keys from `key` up to before `end`; only those created up to revision `newest`, if given."""
    order = b"" if sort is None else number(5, sort) + number(6, _BY_CREATION)
    return (
        block(1, key)
        + (block(2, end) if end else b"")
        + number(3, limit)
        + number(4, revision)
        + order
        + number(8, keys_only)
        + number(13, newest)
    )


def put(key: bytes, value: bytes, lease: int = 0, *, same_lease: bool = False) -> bytes:
    """Write a key; it goes with its lease. `same_lease`: it keeps the one that it has."""
    return block(1, key) + block(2, value) + number(3, lease) + number(6, same_lease)


def delete(key: bytes) -> bytes:
    """Delete a key."""
    return block(1, key)


def op_range(request: bytes) -> bytes:
    """A read inside a transaction."""
    return block(1, request)


def op_put(request: bytes) -> bytes:
    """A write inside a transaction."""
    return block(2, request)


def op_delete(request: bytes) -> bytes:
    """A deletion inside a transaction."""
    return block(3, request)


def op_txn(request: bytes) -> bytes:
    """A transaction inside a transaction."""
    return block(4, request)


def txn(conditions: Iterable[bytes], then: Iterable[bytes], otherwise: Iterable[bytes] = ()) -> bytes:
    """If all conditions hold, do one list of operations, else the other; in one step."""
    return (
        b"".join([block(1, condition) for condition in conditions])
        + b"".join([block(2, operation) for operation in then])
        + b"".join([block(3, operation) for operation in otherwise])
    )


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


def value_below(key: bytes, value: bytes) -> bytes:
    """Condition: the key exists and its value is less than this one, byte by byte."""
    return number(1, _LESS) + number(2, _VALUE) + block(3, key) + block(7, value)


def lease_grant(lease: int, ttl: int) -> bytes:
    """A lease under a number of our own choice."""
    return number(1, ttl) + number(2, lease)


def lease_id(lease: int) -> bytes:
    """To revoke a lease, keep it alive, or ask for its time."""
    return number(1, lease)


def watch_create(watch: int, key: bytes, end: bytes, revision: int, *, puts: bool) -> bytes:
    """Tell of every deletion (and write) of the key or range from this revision on."""
    filters = b"" if puts else block(5, _NO_PUTS)
    request = block(1, key) + (block(2, end) if end else b"") + number(3, revision) + filters + number(7, watch)
    return block(1, request)


def watch_cancel(watch: int) -> bytes:
    """Tell no more."""
    return block(2, number(1, watch))


def authenticate(name: str, password: str) -> bytes:
    """Ask for a token."""
    return block(1, name.encode()) + block(2, password.encode())


# --- answers


@dataclass(frozen=True, slots=True)
class Header:
    """Who answered, in which term, at which revision."""

    cluster: int = 0
    member: int = 0
    revision: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as it is stored."""

    key: bytes = b""
    created: int = 0
    written: int = 0
    value: bytes = b""
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of which only the header matters."""

    header: Header


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """Keys, and how many the range has in all, whatever limit was given."""

    header: Header
    found: tuple[KeyValue, ...] = ()
    count: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class TxnAnswer:
    """Which list was done, and what each operation of it gave; a number is what a deletion deleted."""

    header: Header
    succeeded: bool = False
    results: tuple[RangeAnswer | TxnAnswer | int | None, ...] = ()

    def read(self, place: int) -> RangeAnswer:
        """What the operation at this place read."""
        result = self.results[place]
        assert isinstance(result, RangeAnswer)  # noqa: S101 - the request was made that way
        return result

    def nested(self, place: int = 0) -> TxnAnswer:
        """What the transaction at this place did."""
        result = self.results[place]
        assert isinstance(result, TxnAnswer)  # noqa: S101 - the request was made that way
        return result


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    """A lease and its seconds: those that were granted, or those that are left; none or less mean that it is gone."""

    header: Header
    lease: int = 0
    ttl: int = 0
    granted: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a key."""

    deleted: bool
    key: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """News of one watch; `cancelled` ends it, with `compacted` when its past is not kept any more."""

    header: Header
    watch: int = 0
    cancelled: bool = False
    compacted: int = 0
    reason: str = ""
    events: tuple[Event, ...] = ()


NO_HEADER = Header()


def signed(value: int | bytes) -> int:
    """A number as the server meant it."""
    assert isinstance(value, int)  # noqa: S101 - a field of another kind is another message
    return value - (1 << 64) if value >> 63 else value


def _nested(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")  # noqa: TRY004 - the server's fault, not the caller's
    return value


def read_header(message: bytes) -> Header:
    """The header of a message."""
    parts = dict(fields(message))
    return Header(
        *[signed(parts.get(place, 0)) if place > 2 else _unsigned(parts.get(place, 0)) for place in range(1, 5)]
    )


def _unsigned(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0


def read_answer(message: bytes) -> Answer:
    """Any answer, for its header."""
    return Answer(next((read_header(_nested(value)) for field, value in fields(message) if field == 1), NO_HEADER))


def read_range(message: bytes) -> RangeAnswer:
    """The answer to a read."""
    header, found, count, more = NO_HEADER, [], 0, False
    for field, value in fields(message):
        if field == 2:
            found.append(_read_key_value(_nested(value)))
        elif field == 4:
            count = signed(value)
        elif field == 1:
            header = read_header(_nested(value))
        elif field == 3:
            more = bool(value)
    return RangeAnswer(header, tuple(found), count, more)


def _read_key_value(message: bytes) -> KeyValue:
    key, created, written, content, lease = b"", 0, 0, b"", 0
    for field, value in fields(message):
        if field == 1:
            key = _nested(value)
        elif field == 2:
            created = signed(value)
        elif field == 3:
            written = signed(value)
        elif field == 5:
            content = _nested(value)
        elif field == 6:
            lease = signed(value)
    return KeyValue(key, created, written, content, lease)


def read_txn(message: bytes) -> TxnAnswer:
    """The answer to a transaction."""
    header, succeeded, results = NO_HEADER, False, []
    for field, value in fields(message):
        if field == 3:
            results.append(_read_result(_nested(value)))
        elif field == 1:
            header = read_header(_nested(value))
        elif field == 2:
            succeeded = bool(value)
    return TxnAnswer(header, succeeded, tuple(results))


def _read_result(message: bytes) -> RangeAnswer | TxnAnswer | int | None:
    for field, value in fields(message):
        if field == 1:
            return read_range(_nested(value))
        if field == 3:
            deleted = dict(fields(_nested(value))).get(2, 0)
            return signed(deleted)
        if field == 4:
            return read_txn(_nested(value))
    return None


def read_lease(message: bytes) -> LeaseAnswer:
    """The answer about a lease."""
    parts = dict(fields(message))
    header = read_header(_nested(parts.get(1, b"")))
    lease, ttl, granted = (
        signed(parts.get(place, 0)) for place in (2, 3, 4) if not isinstance(parts.get(place), bytes)
    )
    return LeaseAnswer(header, lease, ttl, granted)


def read_watch(message: bytes) -> WatchAnswer:
    """News from the stream of watches."""
    parts: dict[int, int | bytes] = {}
    events = []
    for field, value in fields(message):
        if field == 11:
            events.append(_read_event(_nested(value)))
        else:
            parts[field] = value
    reason = parts.get(6, b"")
    return WatchAnswer(
        read_header(_nested(parts.get(1, b""))),
        signed(parts.get(2, 0)),
        bool(parts.get(4, 0)),
        signed(parts.get(5, 0)),
        reason.decode(errors="replace") if isinstance(reason, bytes) else "",
        tuple(events),
    )


def _read_event(message: bytes) -> Event:
    parts = dict(fields(message))
    kept = _read_key_value(_nested(parts.get(2, b"")))
    return Event(parts.get(1, 0) == 1, kept.key, kept.written)


def read_token(message: bytes) -> str:
    """The token that an authentication gave."""
    return _nested(dict(fields(message)).get(2, b"")).decode()
