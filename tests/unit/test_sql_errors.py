"""Which errors of a database mean that the whole transaction is to be run again, whoever has wrapped them."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pymysql
import pytest

from leasehold.errors import RetryTransaction
from leasehold.sql import is_retryable
from leasehold.sql.wires.names import in_style


def coded(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("why")
    error.sqlite_errorcode = code
    return error


class Wrapped(Exception):
    """As SQLAlchemy wraps an error of the driver."""

    def __init__(self, orig: BaseException) -> None:
        super().__init__("wrapped")
        self.orig = orig


def caused_by(cause: BaseException) -> Exception:
    """As Django wraps one."""
    error = RuntimeError("wrapped")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("wrap", [lambda error: error, Wrapped, caused_by], ids=["plain", "orig", "cause"])
@pytest.mark.parametrize(
    ("error", "again"),
    [
        (RetryTransaction("again"), True),
        (psycopg.errors.SerializationFailure(), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.errors.LockNotAvailable(), True),
        (psycopg.errors.UniqueViolation(), False),
        (coded(sqlite3.SQLITE_BUSY), True),
        (coded(sqlite3.SQLITE_BUSY_SNAPSHOT), True),
        (coded(sqlite3.SQLITE_CONSTRAINT), False),
        (pymysql.OperationalError(1213, "deadlock"), True),
        (pymysql.OperationalError(1205, "lock wait timeout"), True),
        (pymysql.IntegrityError(1062, "duplicate"), False),
        (ValueError(1213), False),
    ],
    ids=repr,
)
def test_an_error_that_another_run_may_not_meet_is_known_by_its_code(wrap: Any, error: Exception, again: bool) -> None:
    if isinstance(error, RetryTransaction):
        wrap = lambda given: given  # noqa: E731 - ours is never wrapped
    assert is_retryable(wrap(error)) is again


@pytest.mark.parametrize(
    ("style", "text", "values"),
    [
        ("pyformat", "SELECT %(b)s, 5 %% 3, %(a)s, %(b)s", {"a": 1, "b": 2}),
        ("named", "SELECT :b, 5 % 3, :a, :b", {"a": 1, "b": 2}),
        ("format", "SELECT %s, 5 %% 3, %s, %s", (2, 1, 2)),
        ("qmark", "SELECT ?, 5 % 3, ?, ?", (2, 1, 2)),
        ("numeric", "SELECT :1, 5 % 3, :2, :3", (2, 1, 2)),
        ("numeric_dollar", "SELECT $1, 5 % 3, $2, $3", (2, 1, 2)),
    ],
)
def test_a_statement_is_written_as_its_driver_wants_it(style: str, text: str, values: Any) -> None:
    assert in_style("SELECT %(b)s, 5 %% 3, %(a)s, %(b)s", {"a": 1, "b": 2}, style) == (text, values)
