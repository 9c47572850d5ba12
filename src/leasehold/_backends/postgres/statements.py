"""The statements that are sent, and how values become parameters and rows become values. It knows no connection.

`sql/verbs.sql` describes each function. Parameters are always bound; keys and record values are sent in binary. Every
name is qualified, operators too; the reason is in `sql/rules.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.kit.holder import holder_from_json, holder_to_json
from leasehold.values import Holder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold._backends.postgres.driver import Rows
    from leasehold.values import Claim

__all__ = [
    "Answer",
    "Statement",
    "Statements",
    "array",
    "claim_values",
    "holder_from",
    "holder_text",
    "key_bytes",
    "number",
    "seconds",
    "upper_bound",
]

BOOL, BYTEA, INT8, INT4, TEXT, FLOAT8 = 16, 17, 20, 23, 25, 701
BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, FLOAT8_ARRAY = 1001, 1009, 1016, 1022

Parameter = bytes | None


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its text, the types of its parameters, and which of them are in binary."""

    name: bytes
    text: bytes
    types: tuple[int, ...]
    formats: tuple[int, ...]
    hot: bool = False  # worth being prepared where that is possible


class Answer:
    """The part of an answer that belongs to one claim: a row, whose columns start at `first`; None: no such claim."""

    __slots__ = ("first", "row", "rows", "sent")

    def __init__(self, rows: Rows, sent: float, row: int | None = 0, first: int = 0) -> None:
        self.rows = rows
        self.row = row
        self.first = first
        self.sent = sent  # before the request was sent

    def value(self, column: int) -> bytes | None:
        """A column of the reply that `verbs.sql` describes; None for a claim that is not there."""
        return None if self.row is None else self.rows.get_value(self.row, self.first + column)


class Statements:
    """All statements, for one schema, whose name was checked before."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

        def call(name: str, text: str, *types: int, hot: bool = False) -> Statement:
            formats = tuple(1 if kind == BYTEA else 0 for kind in types)
            quoted = text.replace("@schema@", f'"{schema}"').encode()
            return Statement(f"leasehold_{name}".encode(), quoted, types, formats, hot)

        self.acquire = call(
            "acquire",
            "SELECT * FROM @schema@.acquire_5($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            *(BYTEA, TEXT, FLOAT8, TEXT, INT4, FLOAT8, TEXT, INT8, BOOL, TEXT, BOOL, INT8),
            hot=True,
        )
        self.turn = call("turn", "SELECT * FROM @schema@.turn_5($1, $2, $3)", BYTEA, TEXT, TEXT, hot=True)
        self.release = call("release", "SELECT @schema@.release_5($1, $2, $3)", BYTEA, TEXT, INT8, hot=True)
        self.renew = call(
            "renew",
            "SELECT place, broken FROM @schema@.renew_5($1, $2, $3, $4, $5)",
            *(BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, FLOAT8_ARRAY, BOOL),
            hot=True,
        )
        self.withdraw = call("withdraw", "SELECT @schema@.withdraw_3($1, $2, $3, $4)", BYTEA, TEXT, FLOAT8, BOOL)
        self.break_ = call("break", "SELECT @schema@.break_5($1, $2, $3, $4)", BYTEA, INT8, TEXT, BOOL)
        self.raise_fence = call("raise_fence", "SELECT @schema@.raise_fence_3($1, $2)", BYTEA, INT8)
        self.pause = call("pause", "SELECT @schema@.pause_4($1, $2, $3)", BYTEA, TEXT, FLOAT8)
        self.resume = call("resume", "SELECT @schema@.resume_4($1)", BYTEA)
        self.read = call("read", _READ, BYTEA, INT8)
        self.write = call("write", "SELECT @schema@.write_3($1, $2, $3, $4)", BYTEA, BYTEA, INT8, FLOAT8)
        self.clean = call("clean", "SELECT @schema@.clean_3($1, $2)", INT4, FLOAT8)
        self.states = call("states", _STATES, BYTEA, BYTEA)
        self.handovers = call("handovers", _HANDOVERS, BYTEA_ARRAY, TEXT_ARRAY, hot=True)
        self.turns = call(
            "turns", "SELECT * FROM @schema@.turns_5($1, $2, $3)", BYTEA_ARRAY, TEXT_ARRAY, TEXT, hot=True
        )
        self.notify = call("notify", "SELECT pg_catalog.pg_notify($1, '')", TEXT)
        self.greet = call("greet", _GREET)
        self.begin = call("begin", _BEGIN, INT8, TEXT)
        self.clock = call("clock", "SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())")
        self.version = call("version", "SELECT version FROM @schema@.about")


# first key, first key behind -> holders and waiters, in one snapshot; what has run out is left out
_STATES = """
SELECT pg_catalog.encode(key, 'hex'), 1 AS state, 'exclusive', 1, holder, fence,
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) since),
       pg_catalog.date_part('epoch', expires OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()), NULL, 0 AS number
FROM @schema@.lock
WHERE key OPERATOR(pg_catalog.>=) $1 AND key OPERATOR(pg_catalog.<) $2 AND shape OPERATOR(pg_catalog.=) 1
  AND expires OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() AND NOT @schema@.is_over_3(session)
UNION ALL
SELECT pg_catalog.encode(key, 'hex'), state, mode, capacity, holder, fence,
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) since),
       pg_catalog.date_part('epoch', expires OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()), broken, number
FROM @schema@.claim
WHERE key OPERATOR(pg_catalog.>=) $1 AND key OPERATOR(pg_catalog.<) $2 AND state OPERATOR(pg_catalog.<=) 3
  AND expires OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() AND NOT @schema@.is_over_3(session)
ORDER BY 1, state, number
"""

# keys, owners -> which of these waiters were granted, as in a notification: owner, fence, when in seconds since 1970,
# and 1 for abandoned, or r and the number of fences that are kept free behind that one
_HANDOVERS = """
SELECT c.owner, c.fence, pg_catalog.date_part('epoch', c.since), CASE WHEN c.abandoned THEN '1' ELSE
         'r' OPERATOR(pg_catalog.||) CAST(@schema@.spare_5(c) AS pg_catalog.text) END
FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS given (key, owner)
JOIN @schema@.claim AS c ON c.key OPERATOR(pg_catalog.=) given.key AND c.owner OPERATOR(pg_catalog.=) given.owner
  AND c.state OPERATOR(pg_catalog.=) 1
"""

# key, fence -> value in hexadecimal digits, highest fence, seconds left, time in seconds since 1970
_READ = "SELECT pg_catalog.encode(content, 'hex'), highest, remaining, moment FROM @schema@.read_3($1, $2)"

# nothing -> the process that answers, and the isolation of its transactions by default
_GREET = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('default_transaction_isolation')"

# number, the same as text -> true; the session has this number, and its advisory lock until it ends
_BEGIN = """
SELECT pg_catalog.pg_try_advisory_lock($1)
  AND pg_catalog.set_config('leasehold.session', $2, false) OPERATOR(pg_catalog.=) $2
  AND pg_catalog.set_config('tcp_keepalives_idle', '10', false) IS NOT NULL
  AND pg_catalog.set_config('tcp_keepalives_interval', '5', false) IS NOT NULL
  AND pg_catalog.set_config('tcp_keepalives_count', '3', false) IS NOT NULL
"""


def claim_values(
    claim: Claim, floor: int, *, waits: bool = False, channel: Parameter = None, in_session: bool = False
) -> list[Parameter]:
    """The parameters of `acquire`."""
    return [
        claim.key.encode(),
        claim.owner.encode(),
        repr(float(claim.ttl)).encode(),
        claim.mode.encode(),
        b"%d" % claim.capacity,
        repr(float(claim.min_hold)).encode(),
        holder_text(claim.holder),
        b"%d" % floor,
        b"t" if waits else b"f",
        channel,
        b"t" if in_session else b"f",
        b"%d" % claim.spare,
    ]


def key_bytes(key: str) -> bytes:
    """A key as it is stored: its bytes, so that any character may be in it."""
    return key.encode()


def upper_bound(prefix: bytes) -> bytes:
    """The first key behind all that start with this prefix. The bytes of UTF-8 are never 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def number(value: float) -> bytes:
    """A float, without loss."""
    return repr(float(value)).encode()


def seconds(text: bytes | None) -> float | None:
    """A float of a row."""
    return None if text is None else float(text)


def array(values: Iterable[bytes], *, binary: bool = False) -> bytes:
    """An array of texts, or of bytes."""
    if binary:
        return b"{%s}" % b",".join(b'"\\\\x%s"' % value.hex().encode() for value in values)
    return b"{%s}" % b",".join(b'"%s"' % value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') for value in values)


_LAST_HOLDER: tuple[Holder | None, bytes] = (None, b"")


def holder_text(holder: Holder) -> bytes:
    """The holder in its stored form. The last one is kept, because the claims of one client mostly have the same."""
    global _LAST_HOLDER  # noqa: PLW0603 - one assignment of a pair, which any thread may read
    last, text = _LAST_HOLDER
    if last is holder:
        return text
    text = holder_to_json(holder).encode()
    _LAST_HOLDER = (holder, text)
    return text


def holder_from(text: bytes | None) -> Holder | None:
    """Read it back, also in the form before it had a version; a text of another program is shown as it is."""
    if text is None:
        return None
    return holder_from_json(text) or Holder(text.decode(errors="replace"), 0)
