"""What each store makes of an error: surely not applied, perhaps applied, or refused for good; no servers.

A wrong answer here is dangerous in both ways: an unknown outcome that is called "not applied" leaves a lock without a
holder, and a refusal that is called an outage is repeated until the deadline.
"""

from __future__ import annotations

import sqlite3
import ssl
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import redis.exceptions
from kazoo import exceptions as kazoo
from psycopg import pq

from leasehold._backends.postgres import errors as postgres
from leasehold._backends.redis import errors as redis_errors
from leasehold._backends.sqlite import errors as sqlite
from leasehold._backends.sqlite.options import Location
from leasehold._backends.zookeeper import errors as zookeeper
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown

LABEL = "store://host"


def result(code: str, text: str = "why\nmore", severity: str = "ERROR") -> Any:
    """An error of PostgreSQL as libpq has it."""
    found = {
        pq.DiagnosticField.SQLSTATE: code.encode(),
        pq.DiagnosticField.SEVERITY_NONLOCALIZED: severity.encode(),
        pq.DiagnosticField.MESSAGE_PRIMARY: text.encode(),
    }
    return SimpleNamespace(error_field=found.get, error_message=text.encode())


# --- PostgreSQL


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        ("40001", BackendUnavailable, "read committed"),
        ("40P01", BackendUnavailable, "deadlock"),
        ("55P03", BackendUnavailable, "lock_timeout"),
        ("57014", BackendUnavailable, "statement_timeout"),
        ("25006", BackendUnavailable, "read-only"),
        ("08006", BackendUnavailable, "the connection failed"),
        ("53300", BackendUnavailable, "max_connections"),
        ("55000", BackendUnavailable, "not in a state"),
        ("57P01", BackendUnavailable, "shutting down"),
        ("58030", BackendUnavailable, "system failed"),
        ("42501", BackendRejected, "--role"),
        ("23514", BackendRejected, "clock of the server"),
        ("25P02", BackendRejected, "pass a pool or an engine"),
        ("54000", BackendRejected, "a limit of the server"),
        ("42P01", BackendRejected, "leasehold schema postgresql"),
        ("3F000", BackendRejected, "leasehold schema postgresql"),
        ("42883", BackendRejected, "leasehold schema postgresql"),
        ("22012", BackendRejected, "SQLSTATE 22012"),
    ],
)
def test_each_error_of_postgresql_has_its_meaning_and_its_advice(code: str, kind: type, word: str) -> None:
    error = postgres.translated(result(code), LABEL)
    assert type(error) is kind
    assert word in str(error)
    assert "why" in str(error)
    assert "more" not in str(error), "the first line is enough"
    assert error.backend == LABEL


@pytest.mark.parametrize(("code", "severity"), [("57P01", "FATAL"), ("XX000", "PANIC"), ("", "ERROR")])
def test_a_connection_that_postgresql_ends_leaves_the_outcome_open(code: str, severity: str) -> None:
    assert type(postgres.translated(result(code, severity=severity), LABEL)) is OutcomeUnknown


def test_a_connection_to_a_server_that_cannot_serve_any_more_is_replaced() -> None:
    assert all(map(postgres.is_stale, ("25006", "57P01", "57P02", "57P03")))
    assert not any(map(postgres.is_stale, ("57014", "40001", "42501", "")))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("FATAL:  password authentication failed for user", BackendRejected),
        ("FATAL:  no pg_hba.conf entry for host", BackendRejected),
        ('FATAL:  database "x" does not exist', BackendRejected),
        ('FATAL:  role "x" is not permitted to log in', BackendRejected),
        ("fe_sendauth: no password supplied", BackendRejected),
        ("SSL error: certificate verify failed", BackendRejected),
        ("server does not support SSL, but SSL was required", BackendRejected),
        ("connection refused\nIs the server running?", BackendUnavailable),
        ("FATAL:  the database system is starting up", BackendUnavailable),
    ],
)
def test_who_postgresql_will_never_let_in_is_told_so_at_once(text: str, kind: type) -> None:
    error = postgres.connect_failed(psycopg.OperationalError(text), LABEL)
    assert type(error) is kind
    assert "\n" not in str(error)


# --- Redis


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("LOADING Redis is loading the dataset in memory", BackendUnavailable, "loading"),
        ("BUSY Redis is busy running a script", BackendUnavailable, "SCRIPT KILL"),
        ("MASTERDOWN Link with MASTER is down", BackendUnavailable, "lost its primary"),
        ("READONLY You can't write against a read only replica.", BackendUnavailable, "use its primary"),
        ("CLUSTERDOWN Hash slot not served", BackendUnavailable, "cluster check"),
        ("TRYAGAIN Multiple keys request during rehashing", BackendUnavailable, "being moved"),
        ("NOREPLICAS Not enough good replicas to write.", BackendUnavailable, "min-replicas"),
        ("MISCONF Redis is configured to save RDB snapshots", BackendUnavailable, "disk"),
        ("OOM command not allowed when used memory > 'maxmemory'.", BackendUnavailable, "maxmemory"),
        ("UNBLOCKED client unblocked via CLIENT UNBLOCK", BackendUnavailable, "try again"),
        ("ERR Error running script: @user_script: 7: -OOM command not allowed", BackendUnavailable, "maxmemory"),
        ("NOAUTH Authentication required.", BackendRejected, "user name and password in the URL"),
        ("ERR Protocol error: unauthenticated multibulk length", BackendRejected, "user name and password in the URL"),
        ("WRONGPASS invalid username-password pair", BackendRejected, "does not accept"),
        ("NOPERM this user has no permissions to run", BackendRejected, "names the missing right"),
        ("ERR The user executing the script can't run this", BackendRejected, "names the missing right"),
        ("ERR ACL failure in script: no permissions", BackendRejected, "names the missing right"),
        ("WRONGTYPE Operation against a key", BackendRejected, "another program's value"),
        ("CROSSSLOT Keys in request don't hash to the same slot", BackendRejected, "one slot"),
        ("ERR unknown command 'EVALSHA'", BackendRejected, "checks its version"),
    ],
)
def test_each_error_of_redis_has_its_meaning_and_its_advice(text: str, kind: type, word: str) -> None:
    error = redis_errors.error_from_reply(text, LABEL)
    assert type(error) is kind
    assert word in str(error)
    assert text in str(error)
    assert error.backend == LABEL


def caused_by(cause: Exception, error: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (redis.exceptions.ConnectionError("refused"), BackendUnavailable, "cannot be reached: refused"),
        (redis.exceptions.TimeoutError(), BackendUnavailable, "cannot be reached: TimeoutError"),
        (redis.exceptions.AuthenticationError("bad"), BackendRejected, "refused the connection: bad"),
        (redis.exceptions.AuthenticationError("Authentication required."), BackendRejected, "in the URL"),
        (redis.exceptions.NoPermissionError("no"), BackendRejected, "refused the connection"),
        (redis.exceptions.ResponseError("NOPROTO unsupported"), BackendRejected, "refused the connection"),
        (redis.exceptions.ResponseError("ERR unknown command"), BackendRejected, "refused the greeting"),
        (redis.exceptions.ResponseError("LOADING"), BackendUnavailable, "cannot be reached"),
        (caused_by(ssl.SSLError("bad"), redis.exceptions.ConnectionError("x")), BackendRejected, "TLS failed"),
        (caused_by(ssl.SSLEOFError("end"), redis.exceptions.ConnectionError("x")), BackendUnavailable, "reached: x"),
    ],
)
def test_why_redis_cannot_be_reached(error: Exception, kind: type, word: str) -> None:
    found = redis_errors.could_not_connect(error, LABEL)
    assert type(found) is kind
    assert word in str(found)


def test_the_time_that_strict_still_takes_is_named() -> None:
    assert redis_errors.hold_off_reason(0) is None
    assert "for another 12.5 s" in str(redis_errors.hold_off_reason(12_500))


# --- SQLite


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("why")
    error.sqlite_errorcode = code
    return error


FILE = Location("/locks.db", private=False, label=LABEL)


@pytest.mark.parametrize(
    ("code", "committing", "kind", "word"),
    [
        (sqlite3.SQLITE_BUSY, True, BackendUnavailable, "keeps a transaction open"),
        (sqlite3.SQLITE_LOCKED, False, BackendUnavailable, "keeps a transaction open"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, False, BackendUnavailable, "keeps a transaction open"),
        (sqlite3.SQLITE_READONLY, False, BackendRejected, "right to write"),
        (sqlite3.SQLITE_CANTOPEN, False, BackendRejected, "-wal and -shm"),
        (sqlite3.SQLITE_FULL, True, BackendRejected, "nothing was changed"),
        (sqlite3.SQLITE_CORRUPT, False, BackendRejected, "is damaged"),
        (sqlite3.SQLITE_NOTADB, False, BackendRejected, "is not a SQLite file"),
        (sqlite3.SQLITE_IOERR, False, BackendUnavailable, "the disk failed"),
        (sqlite3.SQLITE_IOERR, True, OutcomeUnknown, "during the commit"),
        (sqlite3.SQLITE_IOERR_FSYNC, True, OutcomeUnknown, "during the commit"),
        (sqlite3.SQLITE_ERROR, False, BackendRejected, "another program"),
    ],
)
def test_each_error_of_sqlite_has_its_meaning_and_its_advice(
    code: int, committing: bool, kind: type, word: str
) -> None:
    error = sqlite.translated(sqlite_error(code), FILE, committing=committing)
    assert type(error) is kind
    assert word in str(error)
    assert "/locks.db" in str(error)
    assert error.backend == LABEL


def test_a_connection_to_a_file_that_is_only_busy_or_full_is_kept() -> None:
    assert [sqlite.is_fatal(sqlite_error(code)) for code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)] == [False] * 2
    assert sqlite.is_fatal(sqlite_error(sqlite3.SQLITE_IOERR))
    assert sqlite.is_busy(sqlite_error(sqlite3.SQLITE_PROTOCOL))
    assert not sqlite.is_busy(sqlite_error(sqlite3.SQLITE_FULL))


# --- ZooKeeper


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (kazoo.SessionExpiredError(), BackendUnavailable, "ended the session"),
        (kazoo.ConnectionLoss(), OutcomeUnknown, "before the answer"),
        (kazoo.SessionMovedError(), OutcomeUnknown, "before the answer"),
        (kazoo.NoAuthError(), BackendRejected, "cdrw"),
        (kazoo.AuthFailedError(), BackendRejected, "credentials"),
        (kazoo.InvalidACLError(), BackendRejected, "acl=creator"),
        (kazoo.UnimplementedError(), BackendRejected, "too old"),
        (kazoo.BadArgumentsError(), BackendRejected, "refused the request with BadArgumentsError"),
        (OSError("broken"), OutcomeUnknown, "OSError: broken"),
        (ClientClosed(), ClientClosed, ""),
    ],
)
def test_each_error_of_zookeeper_has_its_meaning_and_its_advice(error: Exception, kind: type, word: str) -> None:
    found = zookeeper.translated(error, LABEL)
    assert type(found) is kind
    assert word in str(found)
    assert not isinstance(found, BackendError) or found.backend == LABEL
