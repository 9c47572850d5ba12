"""The databases of the counter experiment, behind one shape: transactions, at a level, over a plain driver."""

from __future__ import annotations

import random
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pymysql
import sqlalchemy
from psycopg import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

__all__ = ["LEVELS", "CounterDatabase", "connect"]

LEVELS = {
    "postgresql": ("read committed", "repeatable read", "serializable"),
    "mariadb": ("read uncommitted", "read committed", "repeatable read", "snapshot isolation", "serializable"),
}
SQLITE_TIMEOUT = 20.0  # another client may be stopped while it has the file for itself
SEES_COMMITS = ("read uncommitted", "read committed")


class CounterDatabase(Protocol):
    """One connection; `driver` is what the guard gets."""

    driver: Any
    reads_first: bool  # whether a transaction may also read before the guard

    def transaction(self) -> AbstractContextManager[object]:
        """Committed at its end."""

    def number(self, statement: str) -> int:
        """The one value that a SELECT gives."""

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        """How many rows were changed."""

    def rollback(self) -> None:
        """Whatever is open."""

    def close(self) -> None:
        """The connection."""


class PostgresCounter:
    """psycopg."""

    reads_first = False

    def __init__(self, url: str, level: str | None) -> None:
        self.driver = psycopg.connect(url)
        if level is not None:
            self.driver.isolation_level = IsolationLevel[level.upper().replace(" ", "_")]

    def transaction(self) -> AbstractContextManager[object]:
        return self.driver.transaction()

    def number(self, statement: str) -> int:
        row: Any = self.driver.execute(statement.encode()).fetchone()
        return int(row[0])

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        return self.driver.execute(statement.encode(), values).rowcount

    def rollback(self) -> None:
        self.driver.rollback()

    def close(self) -> None:
        self.driver.close()


class MariadbCounter:
    """PyMySQL; a transaction is opened by its first statement, or by BEGIN where the guard allows that."""

    def __init__(self, url: str, level: str | None) -> None:
        parts = sqlalchemy.make_url(url)
        self.driver = pymysql.connect(
            host=parts.host, port=parts.port or 0, user=parts.username, database=parts.database
        )
        self.reads_first = level is not None and level not in SEES_COMMITS
        self._random = random.Random(url)
        if level is not None:
            snapshot = level == "snapshot isolation"
            self.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {'repeatable read' if snapshot else level}")
            self.run(f"SET SESSION innodb_snapshot_isolation = {int(snapshot)}")

    @contextmanager
    def transaction(self) -> Iterator[object]:
        if self.reads_first and self._random.random() < 0.5:
            self.driver.begin()
        yield self
        self.driver.commit()

    def number(self, statement: str) -> int:
        with self.driver.cursor() as cursor:
            cursor.execute(statement)
            row: Any = cursor.fetchone()
            return int(row[0])

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        with self.driver.cursor() as cursor:
            return int(cursor.execute(statement, tuple(values)))

    def rollback(self) -> None:
        self.driver.rollback()

    def close(self) -> None:
        self.driver.close()


class SqliteCounter:
    """The standard library's; a file that survives everything but a power cut."""

    reads_first = False

    def __init__(self, url: str) -> None:
        self.driver = sqlite3.connect(url.removeprefix("sqlite://"), timeout=SQLITE_TIMEOUT)
        self.driver.execute("PRAGMA journal_mode = WAL")
        self.driver.execute("PRAGMA synchronous = OFF")

    @contextmanager
    def transaction(self) -> Iterator[object]:
        yield self
        self.driver.commit()

    def number(self, statement: str) -> int:
        row: Any = self.driver.execute(statement).fetchone()
        return int(row[0])

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        return self.driver.execute(statement.replace("%s", "?"), tuple(values)).rowcount

    def rollback(self) -> None:
        self.driver.rollback()

    def close(self) -> None:
        self.driver.close()


def connect(url: str, level: str | None = None) -> CounterDatabase:
    """By the scheme of its url; SQLite has one level."""
    if url.startswith("sqlite:"):
        return SqliteCounter(url)
    return MariadbCounter(url, level) if url.startswith("mariadb:") else PostgresCounter(url, level)
