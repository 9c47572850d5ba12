"""The rows of one name: read in one snapshot, decided upon in memory, and written if no other client was faster.

It is the kit's `LocalRows`, which remembers what was stored. Nothing is locked while this client thinks: the change
names the version that it was decided upon, and does nothing if that is over.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from leasehold._backends.mysql.packets import binary, optional_binary
from leasehold._backends.mysql.statements import NO_SESSION, holder_from, micros, seconds
from leasehold.kit import rules
from leasehold.kit.holder import holder_to_json
from leasehold.kit.local_rows import LocalRows
from leasehold.kit.rows import Row, State
from leasehold.values import Claim, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leasehold._backends.mysql.packets import Result, Values

__all__ = ["Change", "NameRows", "names_of"]

FOLDED, UNFOLDED = 1, 2  # shapes of a row of `lock`


class Change(NamedTuple):
    """A query; it was applied if the statement at this place changed a row."""

    text: bytes
    place: int

    def is_applied(self, results: Sequence[Result]) -> bool:
        """Whether no other client was faster."""
        return results[self.place].affected == 1


class _Fence:
    """Fences rise with every grant, and with the server's clock: a name that was forgotten starts above its last."""

    __slots__ = ("by_clock", "last")

    def __init__(self, last: int, by_clock: int) -> None:
        self.last = last
        self.by_clock = by_clock

    def mint(self, spare: int = 0) -> int:
        fence = max(self.last + 1, self.by_clock)
        self.last = fence + spare
        return fence


class NameRows(LocalRows):
    """One name as it was when it was read; `session` is what grants that this client makes are bound to."""

    def __init__(self, key: str, label: str, lines: Sequence[Values], first_fence: int = 1) -> None:
        line = lines[0]
        now = int(line[0] or 0)
        self._fence = _Fence(int(line[3] or 0), max(now, first_fence))
        super().__init__(key, label, now / 1_000_000, self._fence.mint)
        self.session = NO_SESSION
        self._version = None if line[2] is None else int(line[2])
        self._sessions: dict[str, bytes] = {}
        self._claims: dict[int, tuple[object, ...]] = {}  # as stored, by number
        self.abandoned_until = seconds(line[5]) if seconds(line[5]) > self.now else 0.0
        if line[4] == b"1":
            self._put(_folded_row(key, line), line[11], ended=line[12] == b"1")
        for line in lines:
            if line[13] is not None:
                row = _claim_row(key, line)
                self._claims[row.number] = _stored_form(row)
                self._put(row, line[27], ended=line[28] == b"1")
        self._stored_lock = _lock_form(lines[0])
        self._last_stored = self._last  # rows above it were made by this client, just now

    def _put(self, row: Row, session: bytes | None, *, ended: bool) -> None:
        if session is not None:
            self._sessions[row.claim.owner] = session
        if ended:
            row.expires = min(row.expires, self.now)
        if row.fence and row.claim.mode is Mode.EXCLUSIVE:  # no grant came after it, and has the fences behind its own
            row.spare = self._fence.last - row.fence
        self.put(row)

    def raise_fence(self, fence: int) -> int:
        """Let the next fence be above this one."""
        self._fence.last = max(self._fence.last, fence)
        return self._fence.last

    def notify(self) -> list[Row]:
        """The waiters who should ask for their turn once the change is applied."""
        return [row for row in rules.admissible(self) if row.listener] if self.changed else []

    # --- what is different now

    def change(self) -> Change | None:
        """The query that writes the difference; None if there is none."""
        plain = self._plain_holder()
        rows = {} if plain is not None else {row.number: row for row in self}
        claims = [*self._removed(rows), *self._added(rows), *self._updated(rows)]
        lock = self._lock_values(plain, is_used=bool(rows) or self.abandoned_until > 0)
        if not claims and lock == self._stored_lock:
            return None
        statement = self._write_lock(lock)
        if not claims:
            return Change(statement, 0)
        parts = [b"BEGIN", statement, b"SET @leasehold_ok = ROW_COUNT()", *claims, b"COMMIT"]
        return Change(b";".join(parts), 1)

    def _plain_holder(self) -> Row | None:
        """The one exclusive holder, if there is nothing else to remember."""
        if len(self) != 1 or self.abandoned_until:
            return None
        row = next(iter(self))
        claim = row.claim
        is_plain = row.state == State.HOLDING and claim.mode is Mode.EXCLUSIVE and not claim.min_hold
        is_last = row.fence == self._fence.last  # no operator has raised the fence since
        return row if is_plain and is_last and row.broken is None and not row.abandoned else None

    def _lock_values(self, plain: Row | None, *, is_used: bool) -> tuple[bytes, ...]:
        start = (b"%d" % self._fence.last,)
        if plain is None:
            return (*start, b"2" if is_used else b"0", b"%d" % micros(self.abandoned_until), *(b"NULL",) * 6)
        claim = plain.claim
        return (
            *start,
            b"1",
            b"0",
            binary(claim.owner.encode()),
            b"%d" % micros(claim.ttl),
            b"%d" % micros(plain.since),
            b"%d" % micros(plain.expires),
            binary(holder_to_json(claim.holder).encode()),
            self._session_for(plain),
        )

    def _session_for(self, row: Row) -> bytes:
        stored = self._sessions.get(row.claim.owner)
        if stored is not None:
            return binary(stored)
        return self.session if row.state == State.HOLDING and row.number > self._last_stored else NO_SESSION

    def _write_lock(self, values: tuple[bytes, ...]) -> bytes:
        name = binary(self.key.encode())
        columns = _LOCK_COLUMNS
        if self._version is None:
            return (
                b"INSERT INTO leasehold_lock (name, version, %b) VALUES (%b, %d, %b) "
                % (
                    b", ".join(columns),
                    name,
                    micros(self.now),
                    b", ".join(values),
                )
                + b"ON DUPLICATE KEY UPDATE name = VALUES(name)"
            )
        pairs = b", ".join(b"%b = %b" % pair for pair in zip(columns, values, strict=True))
        return b"UPDATE leasehold_lock SET version = version + 1, %b WHERE name = %b AND version = %d" % (
            pairs,
            name,
            self._version,
        )

    def _removed(self, rows: dict[int, Row]) -> Iterator[bytes]:
        gone = [number for number in self._claims if number not in rows]
        if gone:
            numbers = b",".join(b"%d" % number for number in gone)
            yield b"DELETE FROM leasehold_claim WHERE name = %b AND number IN (%b) AND @leasehold_ok = 1" % (
                binary(self.key.encode()),
                numbers,
            )

    def _added(self, rows: dict[int, Row]) -> Iterator[bytes]:
        for row in rows.values():
            if row.number not in self._claims:
                yield b"INSERT INTO leasehold_claim SELECT %b FROM DUAL WHERE @leasehold_ok = 1" % self._literals(row)

    def _updated(self, rows: dict[int, Row]) -> Iterator[bytes]:
        for row in rows.values():
            form = _stored_form(row)
            if self._claims.get(row.number, form) != form:
                yield (
                    b"UPDATE leasehold_claim SET state = %d, expires = %d, fence = %d, broken = %b, listener = %b "
                    b"WHERE name = %b AND number = %d AND @leasehold_ok = 1"
                ) % (
                    row.state,
                    micros(row.expires),
                    row.fence,
                    optional_binary(_reason_bytes(row.broken)),
                    optional_binary(row.listener),
                    binary(self.key.encode()),
                    row.number,
                )

    def _literals(self, row: Row) -> bytes:
        claim = row.claim
        return b", ".join(
            (
                binary(self.key.encode()),
                b"%d" % row.number,
                binary(claim.owner.encode()),
                b"%d" % row.state,
                binary(claim.mode.value.encode()),
                b"%d" % claim.capacity,
                b"%d" % micros(claim.ttl),
                b"%d" % micros(claim.min_hold),
                binary(holder_to_json(claim.holder).encode()),
                b"%d" % row.fence,
                b"%d" % micros(row.since),
                b"%d" % micros(row.expires),
                b"%d" % row.abandoned,
                optional_binary(_reason_bytes(row.broken)),
                optional_binary(row.listener),
                self._session_for(row),
            )
        )


_LOCK_COLUMNS = (b"fence", b"shape", b"abandoned_until", b"owner", b"ttl", b"since", b"expires", b"holder", b"session")


def names_of(lines: Sequence[Values], label: str) -> Iterator[NameRows]:
    """The names of a listing, whose lines are in order."""
    name_of: Callable[[Values], bytes] = lambda line: line[1] or b""  # noqa: E731 - typed for groupby
    for name, group in groupby(lines, name_of):
        yield NameRows(name.decode(), label, list(group))


def _lock_form(line: Values) -> tuple[bytes, ...]:
    """What is stored, in the form of `_lock_values`; what has no meaning in its shape is left out."""
    if line[2] is None:
        return (b"0", b"0", b"0", *(b"NULL",) * 6)
    start = (line[3] or b"0", line[4] or b"0", line[5] or b"0")
    if line[4] != b"1":
        return (*start, *(b"NULL",) * 6)
    owner, ttl, since, expires, holder, session = line[6:12]
    return (
        *start,
        binary(owner or b""),
        ttl or b"",
        since or b"",
        expires or b"",
        binary(holder or b""),
        optional_binary(session),
    )


def _folded_row(key: str, line: Values) -> Row:
    owner = (line[6] or b"").decode()
    claim = Claim(key, owner, seconds(line[7]), Mode.EXCLUSIVE, 1, 0.0, holder_from(line[10]))
    return Row(claim, State.HOLDING, seconds(line[8]), seconds(line[9]), int(line[3] or 0), number=1)


def _claim_row(key: str, line: Values) -> Row:
    number, owner, state, mode, capacity, ttl, min_hold, holder, fence, since, expires, abandoned, broken, listener = (
        line[13:27]
    )
    claim = Claim(
        key,
        (owner or b"").decode(),
        seconds(ttl),
        Mode((mode or b"").decode()),
        int(capacity or 0),
        seconds(min_hold),
        holder_from(holder),
    )
    reason = None if broken is None else str(json.loads(broken))
    kind = State(int(state or 0))
    return Row(
        claim,
        kind,
        seconds(since),
        seconds(expires),
        int(fence or 0),
        abandoned == b"1",
        reason,
        int(number or 0),
        listener,
    )


def _stored_form(row: Row) -> tuple[object, ...]:
    return row.state, micros(row.expires), row.fence, row.broken, row.listener


def _reason_bytes(reason: str | None) -> bytes | None:
    """As JSON, which may hold any character."""
    return None if reason is None else json.dumps(reason).encode()
