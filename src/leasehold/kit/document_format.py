"""The document of a name, and of a record: small JSON objects with a version, and how time is written into them.

    {"v":1,"fence":7,"last":3,"abandoned":0,"rows":[{"state":1,"number":3,"owner":"…","ttl":30.0,…,"expires":…}]}

A reader ignores fields that it does not know. A document of a newer version, or one that is no document of ours at all,
is refused and left alone.

Where the store has a clock, rows carry its instants. Where it has none, no instant means anything to another client:
rows carry how long they last and a `beat`, a number that changes whenever the row is renewed. Each client counts that
time on its own clock from when it first saw the beat, as client-go's leader election does. That is later than the
store's writing it, so no client ends a grant before its holder does, as long as clocks drift apart by less than the
margin that every holder keeps.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from leasehold.errors import BackendRejected
from leasehold.kit.holder import holder_fields, holder_from_fields
from leasehold.kit.local_rows import LocalRows
from leasehold.kit.records import KeptRecord
from leasehold.kit.rows import Row, State
from leasehold.kit.rules import ABANDONED_KEPT
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Name", "Observations", "read_name", "read_record", "write_name", "write_record"]

VERSION = 1
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode
_UNKNOWN = Holder("unknown", 0)


class Name:
    """The document of a name as it was read: rows to which the rules are applied, and the fence."""

    def __init__(self, key: str, label: str, now: float, lowest_fence: int) -> None:
        self.fence: int = 0
        self.lowest_fence = lowest_fence
        self.beats = 0  # the highest beat in the document, where the store has no clock
        self.read_beats: dict[int, _Beats] = {}  # by the number of the row
        self.read_mark: tuple[int, float] = (0, 0.0)  # the beat of the abandoned mark, and until when it counts here
        self.rows: LocalRows = LocalRows(key, label, now, self._next_fence)

    def _next_fence(self, spare: int = 0) -> int:
        fence = max(self.fence + 1, self.lowest_fence)
        self.fence = fence + spare
        return fence

    def raise_fence(self, fence: int) -> int:
        """Make every later fence higher than this."""
        self.fence = max(self.fence, fence)
        return self.fence


class _Beats(NamedTuple):
    """How old a row is: since which beat it exists, and for how long after which beat it lasts."""

    born: int
    beat: int
    lasts: float
    expires: float  # what that means on this client's clock


class Observations:
    """When this client first saw each beat, for stores without a clock."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, float]] = {}  # by key: the instant by beat

    def begin(self, key: str) -> Callable[[int, float], float]:
        """A function that gives the instant at which a beat of this document was first seen; the rest is forgotten."""
        before, seen = self._seen.get(key, {}), dict[int, float]()
        self._seen[key] = seen

        def first_seen(beat: int, now: float) -> float:
            return seen.setdefault(beat, before.get(beat, now))

        return first_seen

    def note(self, key: str, beat: int, now: float) -> None:
        """This client is about to write this beat itself."""
        self._seen.setdefault(key, {})[beat] = now


def read_name(name: Name, value: bytes | None, seen: Observations | None) -> Name:
    """Fill an empty name with what its document says, if there is one."""
    key, label, now = name.rows.key, name.rows.label, name.rows.now
    if value is None:
        return name
    fields = _fields(value, label)
    try:
        name.fence, name.beats = int(fields["fence"]), int(fields.get("beats", 0))
        first_seen = None if seen is None else seen.begin(key)
        abandoned = fields.get("abandoned", 0)
        if abandoned and first_seen is None:
            name.rows.abandoned_until = float(abandoned)
        elif abandoned and first_seen is not None:
            name.rows.abandoned_until = until = first_seen(int(abandoned), now) + ABANDONED_KEPT
            name.read_mark = (int(abandoned), until)
        for each in fields.get("rows", ()):
            name.rows.put(_row(name, each, first_seen))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _not_ours(label) from error
    return name


def write_name(name: Name, seen: Observations | None) -> bytes:
    """The document of a name as the rules left it."""
    rows = name.rows
    fields: dict[str, Any] = {"v": VERSION, "fence": name.fence}
    if rows.abandoned_until > rows.now:
        fields["abandoned"] = rows.abandoned_until if seen is None else _beat_of_mark(name, seen)
    if len(rows):
        fields["rows"] = [_row_fields(name, row, seen) for row in rows]
    if seen is not None:
        fields["beats"] = name.beats
    return _encode(fields).encode("ascii")


def _row(name: Name, fields: dict[str, Any], first_seen: Callable[[int, float], float] | None) -> Row:
    holder = holder_from_fields(fields.get("holder")) or _UNKNOWN
    claim = Claim(
        name.rows.key,
        str(fields["owner"]),
        float(fields["ttl"]),
        Mode(fields["mode"]),
        int(fields["capacity"]),
        float(fields.get("min_hold", 0.0)),
        holder,
    )
    row = Row(
        claim,
        State(fields["state"]),
        0.0,
        0.0,
        int(fields.get("fence", 0)),
        bool(fields.get("abandoned", False)),
        fields.get("broken"),
        int(fields["number"]),
    )
    if row.fence and claim.mode is Mode.EXCLUSIVE:  # no grant came after it, so none has the fences behind its own
        row.spare = max(0, name.fence - row.fence)
    if first_seen is None:
        row.since, row.expires = float(fields["since"]), float(fields["expires"])
    else:
        now, born, beat, lasts = name.rows.now, int(fields["born"]), int(fields["beat"]), float(fields["lasts"])
        row.since, row.expires = first_seen(born, now), first_seen(beat, now) + lasts
        name.read_beats[row.number] = _Beats(born, beat, lasts, row.expires)
    return row


def _row_fields(name: Name, row: Row, seen: Observations | None) -> dict[str, Any]:
    claim = row.claim
    fields: dict[str, Any] = {
        "state": int(row.state),
        "number": row.number,
        "owner": claim.owner,
        "ttl": claim.ttl,
        "mode": claim.mode.value,
        "capacity": claim.capacity,
        "holder": holder_fields(claim.holder),
    }
    if claim.min_hold:
        fields["min_hold"] = claim.min_hold
    if row.fence:
        fields["fence"] = row.fence
    if row.abandoned:
        fields["abandoned"] = True
    if row.broken is not None:
        fields["broken"] = row.broken
    if seen is None:
        fields["since"], fields["expires"] = row.since, row.expires
    else:
        fields["born"], fields["beat"], fields["lasts"] = _beats(name, row, seen)
    return fields


def _beats(name: Name, row: Row, seen: Observations) -> tuple[int, int, float]:
    """What says how old a row is; a new beat when it lasts longer or shorter than it did."""
    read = name.read_beats.get(row.number)
    if read is not None and read.expires == row.expires:
        return read.born, read.beat, read.lasts
    beat = _next_beat(name, seen)
    return beat if read is None else read.born, beat, row.expires - name.rows.now


def _beat_of_mark(name: Name, seen: Observations) -> int:
    beat, until = name.read_mark
    return beat if until == name.rows.abandoned_until else _next_beat(name, seen)


def _next_beat(name: Name, seen: Observations) -> int:
    name.beats += 1
    seen.note(name.rows.key, name.beats, name.rows.now)
    return name.beats


def read_record(value: bytes | None, label: str) -> KeptRecord:
    """The record behind a document; an empty one where there is none."""
    if value is None:
        return KeptRecord()
    fields = _fields(value, label)
    try:
        return KeptRecord(
            int(fields["fence"]),
            float(fields["fence_until"]),
            base64.b64decode(fields.get("value", ""), validate=True),
            float(fields.get("expires", 0.0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _not_ours(label) from error


def write_record(kept: KeptRecord) -> bytes:
    """The document of a record."""
    fields: dict[str, Any] = {"v": VERSION, "fence": kept.fence, "fence_until": kept.fence_until}
    if kept.expires:
        fields["value"], fields["expires"] = base64.b64encode(kept.value).decode("ascii"), kept.expires
    return _encode(fields).encode("ascii")


def _fields(value: bytes, label: str) -> dict[str, Any]:
    try:
        fields = json.loads(value)
        version = fields["v"]
    except (ValueError, KeyError, TypeError) as error:
        raise _not_ours(label) from error
    if not isinstance(version, int) or version > VERSION:
        raise BackendRejected(
            f"a lock was written by a newer leasehold (version {version!r} of its document, this one knows {VERSION}); "
            "upgrade leasehold here too",
            backend=label,
        )
    return fields  # type: ignore[no-any-return]


def _not_ours(label: str) -> BackendRejected:
    return BackendRejected(
        "a document at the place of a lock was not written by leasehold; give the store a place of its own",
        backend=label,
    )
