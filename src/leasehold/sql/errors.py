"""What the error of a database means: run the transaction again, make a table, get a right, or something else.

Drivers and frameworks wrap each other's errors, so the code of the database is looked for along the whole chain.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError, RetryTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["error_chain", "is_retryable", "mysql_code", "objects_from_before", "sqlite_code", "sqlstate"]

# serialization failure, deadlock, a lock that was not to be had in the time the session allows
_STATES = {"40001", "40P01", "55P03"}
# MySQL and MariaDB: deadlock, lock wait timeout, the record has changed since it was read, the same two in an XA
# transaction, NOWAIT, a wait that DDL ended, a table that was altered since the snapshot, a commit that a group refused
_NUMBERS = {1213, 1205, 1020, 1614, 1613, 3572, 1689, 1412, 3101}


def is_retryable(error: BaseException) -> bool:
    """Whether the cure is to roll back and to run the whole transaction again.

    Such an error can come from the guard (as `RetryTransaction`), from any later statement, and from the commit. It
    says nothing about fences: run the transaction again from its beginning, `guard` included, if the lease still holds.
    """
    if isinstance(error, RetryTransaction) or sqlstate(error) in _STATES:
        return True
    code = sqlite_code(error)
    if code is not None:
        return code & 0xFF == sqlite3.SQLITE_BUSY
    return mysql_code(error) in _NUMBERS


def objects_from_before() -> ConfigurationError:
    """The guard's error for a session of an object mapper that would not read again."""
    return ConfigurationError(
        "this session holds objects that were read before guard() was called: what they say may be older than the "
        "fence. Call guard() first in a fresh session, or session.expire_all() before it"
    )


def sqlstate(error: BaseException) -> str | None:
    """The five characters that PostgreSQL gives to every kind of error; None if there are none."""
    for each in error_chain(error):
        state = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if isinstance(state, str):
            return state
    return None


def sqlite_code(error: BaseException) -> int | None:
    """The extended result code of SQLite; None if the error is not from there."""
    for each in error_chain(error):
        if isinstance(each, sqlite3.Error):
            return getattr(each, "sqlite_errorcode", None)
    return None


def mysql_code(error: BaseException) -> int | None:
    """The number that MySQL and MariaDB give to every kind of error; None if it is not from there."""
    return next((number for each in error_chain(error) if (number := _number(each)) is not None), None)


def _number(error: BaseException) -> int | None:
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) and type(error).__module__.partition(".")[0] in _MYSQL_DRIVERS else None


_MYSQL_DRIVERS = {"MySQLdb", "aiomysql", "asyncmy", "mariadb", "mysql", "pymysql"}


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what a framework wrapped (SQLAlchemy: `orig`), and what it came from (Django: the cause)."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while isinstance(following, BaseException) and following not in seen:
        yield following
        seen.append(following)
        following = getattr(following, "orig", None) or following.__cause__
