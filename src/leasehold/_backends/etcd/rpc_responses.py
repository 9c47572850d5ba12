"""etcd's responses as values; field numbers are those of its `rpc.proto`.

Fields that are not listed here are skipped, so a newer server does no harm. The results of a transaction stay bytes
until they are read: most of them never are.
"""

from __future__ import annotations

from typing import NamedTuple

from leasehold._backends.etcd.protobuf import fields, signed

__all__ = [
    "Event",
    "Header",
    "KeyValue",
    "LeaseResponse",
    "RangeResponse",
    "Status",
    "TxnResponse",
    "WatchResponse",
    "read_alarms",
    "read_header",
    "read_lease",
    "read_members",
    "read_range",
    "read_status",
    "read_token",
    "read_txn",
    "read_watch",
]


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


class TxnResponse(NamedTuple):
    """Which of the two lists of operations was done, and what each operation of it returned, as bytes."""

    header: Header
    succeeded: bool = False
    results: tuple[bytes, ...] = ()

    def read(self, place: int) -> RangeResponse:
        """What the range at this place of the list returned. Its own header says nothing beyond the outer one."""
        ((_, content),) = fields(self.results[place])
        return read_range(content, self.header)


class LeaseResponse(NamedTuple):
    """A lease and its seconds: those that were granted, or those that are left; 0 or less: it is gone."""

    header: Header
    lease: int = 0
    ttl: int = 0
    granted: int = 0


class Event(NamedTuple):
    """A key was written or deleted."""

    deleted: bool
    key: bytes
    revision: int


class WatchResponse(NamedTuple):
    """A message of one watch: it began (after the revision of the header), it ended, or there are events."""

    header: Header
    watch: int = 0
    created: bool = False
    cancelled: bool = False
    events: tuple[Event, ...] = ()


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
    header, succeeded, results = NO_HEADER, False, []
    for field, content in fields(message):
        if field == 3:
            results.append(content)
        elif field == 1:
            header = read_header(content)
        elif field == 2:
            succeeded = content != 0
    return TxnResponse(header, succeeded, tuple(results))


def read_lease(message: bytes) -> LeaseResponse:
    """The response about a lease."""
    get = dict(fields(message)).get
    lease, ttl, granted = (signed(get(field, 0)) for field in (2, 3, 4))
    return LeaseResponse(read_header(get(1, b"")), lease, ttl, granted)


def read_watch(message: bytes) -> WatchResponse:
    """A message of the stream of watches."""
    found = fields(message)
    get = dict(found).get
    events = tuple(_read_event(content) for field, content in found if field == 11)
    return WatchResponse(read_header(get(1, b"")), signed(get(2, 0)), bool(get(3, 0)), bool(get(4, 0)), events)


def _read_event(message: bytes) -> Event:
    get = dict(fields(message)).get
    kv = _read_key_value(get(2, b""))
    return Event(get(1, 0) == 1, kv.key, kv.written)


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
