"""Etcd's answers as values; field numbers are those of its `rpc.proto`.

What an answer has beyond this is skipped, so a newer server does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.backends.etcd.codec import fields, unsigned, whole

__all__ = [
    "Answer",
    "Event",
    "Header",
    "KeyValue",
    "LeaseAnswer",
    "RangeAnswer",
    "Status",
    "TxnAnswer",
    "WatchAnswer",
    "read_alarms",
    "read_answer",
    "read_header",
    "read_lease",
    "read_members",
    "read_range",
    "read_status",
    "read_token",
    "read_txn",
    "read_watch",
]


@dataclass(frozen=True, slots=True)
class Header:
    """Who answered, in which term, at which revision. The first two are only compared, and stay as they came."""

    cluster: bytes = b""
    member: bytes = b""
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
    results: tuple[RangeAnswer | int | None, ...] = ()

    def read(self, place: int) -> RangeAnswer:
        """What the operation at this place read."""
        result = self.results[place]
        assert isinstance(result, RangeAnswer)  # noqa: S101 - the request was made that way
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
    """News of one watch: it began (after the revision of the header), it ended, or something happened."""

    header: Header
    watch: int = 0
    created: bool = False
    cancelled: bool = False
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """What a member says about itself."""

    version: str
    size: int
    leader: bytes  # empty: it knows none
    term: int


NO_HEADER = Header()
_NOTHING = b""


def read_header(message: bytes) -> Header:
    """The header of a message."""
    parts = dict(fields(message))
    return Header(
        parts.get(1, _NOTHING), parts.get(2, _NOTHING), whole(parts.get(3, _NOTHING)), unsigned(parts.get(4, _NOTHING))
    )


def read_answer(message: bytes) -> Answer:
    """Any answer, for its header."""
    return Answer(next((read_header(content) for field, content in fields(message) if field == 1), NO_HEADER))


def read_range(message: bytes, *, alone: bool = True) -> RangeAnswer:
    """The answer to a read; inside a transaction its header says nothing that the other one does not."""
    header, found, count, more = NO_HEADER, [], 0, False
    for field, content in fields(message):
        if field == 2:
            found.append(_read_key_value(content))
        elif field == 4:
            count = whole(content)
        elif field == 1 and alone:
            header = read_header(content)
        elif field == 3:
            more = content != b"\0"
    return RangeAnswer(header, tuple(found), count, more)


def _read_key_value(message: bytes) -> KeyValue:
    parts = dict(fields(message))
    get = parts.get
    created, written, lease = whole(get(2, _NOTHING)), whole(get(3, _NOTHING)), whole(get(6, _NOTHING))
    return KeyValue(get(1, _NOTHING), created, written, get(5, _NOTHING), lease)


def read_txn(message: bytes) -> TxnAnswer:
    """The answer to a transaction."""
    header, succeeded, results = NO_HEADER, False, []
    for field, content in fields(message):
        if field == 3:
            results.append(_read_result(content))
        elif field == 1:
            header = read_header(content)
        elif field == 2:
            succeeded = content != b"\0"
    return TxnAnswer(header, succeeded, tuple(results))


def _read_result(message: bytes) -> RangeAnswer | int | None:
    ((field, content),) = fields(message)
    if field == 1:
        return read_range(content, alone=False)
    return whole(dict(fields(content)).get(2, _NOTHING)) if field == 3 else None


def read_lease(message: bytes) -> LeaseAnswer:
    """The answer about a lease."""
    parts = dict(fields(message))
    lease, ttl, granted = (whole(parts.get(place, _NOTHING)) for place in (2, 3, 4))
    return LeaseAnswer(read_header(parts.get(1, _NOTHING)), lease, ttl, granted)


def read_watch(message: bytes) -> WatchAnswer:
    """News from the stream of watches."""
    found = fields(message)
    parts = dict(found)
    return WatchAnswer(
        read_header(parts.get(1, _NOTHING)),
        whole(parts.get(2, _NOTHING)),
        whole(parts.get(3, _NOTHING)) != 0,
        whole(parts.get(4, _NOTHING)) != 0,
        tuple(_read_event(content) for field, content in found if field == 11),
    )


def _read_event(message: bytes) -> Event:
    parts = dict(fields(message))
    kept = _read_key_value(parts.get(2, _NOTHING))
    return Event(parts.get(1) == b"\x01", kept.key, kept.written)


def read_token(message: bytes) -> str:
    """The token that an authentication gave."""
    return dict(fields(message)).get(2, _NOTHING).decode()


def read_status(message: bytes) -> Status:
    """The answer of one member about itself."""
    get = dict(fields(message)).get
    return Status(get(2, _NOTHING).decode(), whole(get(3, _NOTHING)), get(4, _NOTHING), unsigned(get(6, _NOTHING)))


def read_members(message: bytes) -> tuple[int, int]:
    """How many members vote, and how many only learn."""
    learning = [dict(fields(content)).get(5) == b"\x01" for field, content in fields(message) if field == 2]
    return len(learning) - sum(learning), sum(learning)


def read_alarms(message: bytes) -> list[str]:
    """The alarms that are raised."""
    raised = [unsigned(dict(fields(content)).get(2, _NOTHING)) for field, content in fields(message) if field == 2]
    return [_ALARMS.get(alarm, str(alarm)) for alarm in raised if alarm]


_ALARMS = {1: "NOSPACE", 2: "CORRUPT"}
