"""Errors of MySQL and MariaDB into ours, each with what to do.

The one question that matters is whether the request may have been applied. Each request is one statement, or one
transaction whose last statement commits, so an error in answer to it means that nothing of it was. A connection that
ended after the request was sent, with or without a word, leaves it open: the commit may have been just before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold._backends.mysql.packets import ServerError

__all__ = [
    "AGAIN",
    "DUPLICATE",
    "INTERRUPTED",
    "MISSING",
    "connect_failed",
    "is_ended",
    "is_stale",
    "lost",
    "translated",
    "unanswered",
]

MISSING = frozenset({1146})  # no such table
DUPLICATE = 1062
INTERRUPTED = frozenset({1317})
AGAIN = frozenset({1205, 1213})  # a lock wait that took too long, a deadlock: the statement was rolled back
_ENDED = frozenset({1053, 1077, 1079, 1080, 1152, 1184, 1927, 3169, 4031})  # the server ends the session with it
_READ_ONLY = frozenset({1290, 1792, 1836, 3100})

_LATER = {
    1040: "the server has no connection left; see max_connections, or use fewer with ?connections=",
    1041: "the server has no memory left; see its log",
    1021: "the server's disk is full",
    1114: "a table of the server is full; see its disk and its innodb_data_file_path",
    1203: "this user has no connection left; see max_user_connections, or use fewer with ?connections=",
    1205: "a row stayed locked for too long; look for transactions that lock rows of leasehold's tables",
    1213: "a deadlock, which the server resolved by ending this request; look for transactions that lock rows of "
    "leasehold's tables",
    1226: "this user has used up a limit of its account (max_user_connections, max_queries_per_hour)",
    1317: "the statement was cancelled by an operator",
    1969: "the statement was cancelled by max_statement_time; a request needs a few milliseconds, so look for what "
    "keeps the server busy, or allow this user more",
    3024: "the statement was cancelled by max_execution_time; look for what keeps the server busy, or allow more",
    1047: "this node of a cluster is not ready for requests; use the address of one that is",
}
_NO_RIGHT = "this user may not do that: have an administrator run what `leasehold schema mysql --role` prints"
_REJECTED = {
    1044: "this user may not use this database; check the URL and its grants",
    1045: "this user, password or host is refused; check the URL",
    1049: "there is no such database; check the URL, or create it",
    1142: _NO_RIGHT,
    1143: _NO_RIGHT,
    1227: _NO_RIGHT,
    1251: "the way this user authenticates is not supported by PyMySQL; create the user with another plugin",
    1071: "the name of a lock may have 512 bytes, and the index of this server may not; use InnoDB pages of 16 KB",
    1698: "this user is refused without its socket or plugin; check the URL",
    1820: "the password of this user has expired; set a new one",
    1862: "the password of this user has expired; set a new one",
    2026: "the server offers no TLS, or none that can be trusted; check tls_ca and the server's certificate",
    3118: "the account of this user is locked",
}


def is_ended(error: ServerError) -> bool:
    """Whether the server ended the connection with this answer."""
    return error.code in _ENDED or error.state.startswith("08")


def is_stale(error: ServerError) -> bool:
    """Whether the connection should be replaced before the next try: another may reach a server that takes writes."""
    return error.code in _READ_ONLY or is_ended(error)


def translated(error: ServerError, store: str) -> BackendError:
    """The error for an answer that is one."""
    text = f"{error.message} ({error.code})"
    if is_ended(error):
        return OutcomeUnknown(f"the connection to {store} ended before the answer came: {text}", backend=store)
    if error.code in _READ_ONLY:
        why = "this server is read-only, most likely a replica; name the primary"
        return BackendUnavailable(f"{store}: {why}: {text}", backend=store)
    return _by_code(error.code, text, store)


def _by_code(code: int, text: str, store: str) -> BackendError:
    if code in _LATER:
        return BackendUnavailable(f"{store}: {_LATER[code]}: {text}", backend=store)
    if code in _REJECTED:
        return BackendRejected(f"{store}: {_REJECTED[code]}: {text}", backend=store)
    if code in MISSING:
        return BackendRejected(
            f"{store}: the tables of leasehold are missing, and could not be made; have an administrator run what "
            f"`leasehold schema mysql` prints, which may be run again: {text}",
            backend=store,
        )
    return BackendRejected(f"{store} refused the request: {text}", backend=store)


def lost(error: Exception | None, store: str) -> OutcomeUnknown:
    """The connection ended, or the time was over, after the request was sent."""
    why = "no answer in time" if error is None else str(error) or type(error).__name__
    return OutcomeUnknown(f"the request to {store} was sent and not answered: {why}", backend=store)


def unanswered(unknown: OutcomeUnknown, store: str) -> BackendUnavailable:
    """The same where nothing of the caller's was in the request."""
    return BackendUnavailable(str(unknown), backend=store)


def connect_failed(error: Exception, store: str) -> BackendError:
    """No connection was made, so nothing was sent."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = " ".join(str(error.args[-1] if error.args else error).split())
    if code in _LATER or code in _REJECTED:
        return _by_code(code, f"{text} ({code})", store)
    if "certificate verify failed" in text or "SSL" in text:
        return BackendRejected(f"{store}: {_REJECTED[2026]}: {text}", backend=store)
    return BackendUnavailable(f"{store} cannot be reached: {text}", backend=store)
