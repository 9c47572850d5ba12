"""Errors of PostgreSQL and its drivers into ours, each with what to do.

The one question that matters is whether the request may have been applied. Each request is one statement in a
transaction of its own, so an ERROR in answer to it means that it was rolled back. A connection that ended after the
request was sent, with a FATAL message or without any, leaves it open: the commit may have been just before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold._backends.postgres.driver import Rows

__all__ = [
    "CANCELLED",
    "LOCK_TIMEOUT",
    "MESSAGE",
    "MISSING",
    "NO_TABLES",
    "SEVERITY",
    "SQLSTATE",
    "UNPREPARED",
    "connect_failed",
    "is_fatal",
    "is_stale",
    "lost",
    "message",
    "not_listening",
    "sqlstate",
    "translated",
]

# The fields of an error, by their letters in PostgreSQL's protocol.
MESSAGE, SQLSTATE, SEVERITY = (ord(letter) for letter in "MCV")

NO_TABLES = frozenset({"3F000", "42P01"})  # no such schema, table
MISSING = NO_TABLES | {"42883"}  # or function: the tables may be of an older version
UNPREPARED = frozenset({"26000", "0A000", "42P05"})  # the prepared statement is not there, or not what it was
READ_ONLY = "25006"
CANCELLED = "57014"
LOCK_TIMEOUT = "55P03"
_STALE = frozenset({READ_ONLY, "57P01", "57P02", "57P03"})  # another connection may reach a server that can

_LATER = {
    "40001": "two transactions could not be serialized; set default_transaction_isolation to 'read committed' for this "
    "role",
    "40P01": "a deadlock, which PostgreSQL resolved by ending this request; look for transactions that lock rows of "
    "leasehold's tables",
    LOCK_TIMEOUT: "a row stayed locked for longer than lock_timeout; look for transactions that lock rows of "
    "leasehold's tables, or allow this role a longer lock_timeout",
    CANCELLED: "the statement was cancelled, by statement_timeout or by an operator; a request needs a few "
    "milliseconds, so look for what keeps the database busy, or allow this role a longer statement_timeout",
    READ_ONLY: "this server is read-only, a standby or one with default_transaction_read_only; name the primary, or "
    "several hosts",
}
_LATER_CLASSES = {
    "08": "the connection failed; see the server's log",
    "53": "the server has run out of a resource (connections, disk, memory); see its log and max_connections",
    "55": "the server is not in a state for this request now; it may start up or recover",
    "57": "the server is shutting down, or an operator ended the request",
    "58": "the server's system failed; see its log",
}
_POOLER = (
    "a pooler in between changes servers from call to call, and the driver prepares statements on them; make the pool "
    "with statement_cache_size=0 (asyncpg), or without prepared statements"
)
_REJECTED = {
    "42501": "this role may not do that: have the owner of the database run what `leasehold schema postgresql --role` "
    "prints",
    "23514": "the next fence would be above the largest number that is kept exact; check the clock of the server",
    "25P02": "the connection is in a transaction that has failed; pass a pool or an engine, not a connection in use",
    "54000": "a limit of the server is too low for this request",
    "26000": _POOLER,
    "42P05": _POOLER,
}


def sqlstate(result: Rows) -> str:
    """The code of an error."""
    return (result.error_field(SQLSTATE) or b"").decode()


def is_fatal(result: Rows) -> bool:
    """Whether the server ended the connection with this answer."""
    severity = result.error_field(SEVERITY) or b""
    return severity in (b"FATAL", b"PANIC") or not sqlstate(result)


def is_stale(code: str) -> bool:
    """Whether the connection should be replaced before the next try."""
    return code in _STALE


def translated(result: Rows, store: str) -> BackendError:
    """The error for an answer that is one."""
    code = sqlstate(result)
    text = message(result)
    if is_fatal(result):
        return OutcomeUnknown(f"the connection to {store} ended before the answer came ({text})", backend=store)
    if code in _LATER:
        return BackendUnavailable(f"{store}: {_LATER[code]} ({text})", backend=store)
    if code in _REJECTED:
        return BackendRejected(f"{store}: {_REJECTED[code]} ({text})", backend=store)
    if code[:2] in _LATER_CLASSES:
        return BackendUnavailable(f"{store}: {_LATER_CLASSES[code[:2]]} ({text})", backend=store)
    if code in MISSING:
        return BackendRejected(
            f"{store}: the tables of leasehold are missing or of another version, and could not be made ({text}); "
            "have their owner run what `leasehold schema postgresql` prints, which may be run again",
            backend=store,
        )
    return BackendRejected(f"{store} refused the request ({text}; SQLSTATE {code})", backend=store)


def lost(error: Exception | None, store: str) -> OutcomeUnknown:
    """The connection ended, or the time was over, after the request was sent."""
    why = _first_line(str(error)) if error is not None else "no answer in time"
    return OutcomeUnknown(f"the request to {store} was sent and not answered: {why}", backend=store)


def not_listening(error: Exception | None, store: str) -> BackendUnavailable:
    """The connection that notifications arrive on has ended."""
    why = f": {_first_line(str(error))}" if error is not None else ""
    return BackendUnavailable(f"the connection to {store} that listened has ended{why}", backend=store)


_NEVER = (  # before a connection is made, libpq gives no SQLSTATE: only English words
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "not permitted to log in",
    "no password supplied",
    "certificate verify failed",
    "server does not support SSL",
)


def connect_failed(error: Exception, store: str) -> BackendError:
    """No connection was made, so nothing was sent."""
    text = " ".join(str(error).split())
    if any(words in text for words in _NEVER):
        return BackendRejected(
            f"{store} refuses this user, database or way of connecting; check the URL and pg_hba.conf: {text}",
            backend=store,
        )
    return BackendUnavailable(f"{store} cannot be reached: {text}", backend=store)


def message(result: Rows) -> str:
    """The first line of the server's message."""
    primary = result.error_field(MESSAGE)
    return _first_line((primary or result.error_message).decode(errors="replace"))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "no reason given"
