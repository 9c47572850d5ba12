"""Every way in which a program can reach a database that the guard supports, behind one shape for tests.

A desk is one connection: `begin()` is a transaction that is committed at its end, and `run` executes in it.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import django
import psycopg
import pymysql
import pymysql.cursors
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

from leasehold.sql import guard_schema, idempotency_schema
from tests.forms import sized
from tests.servers.mariadb import fresh_mariadb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pytest

    from verification.lab.postgres import PostgresServer

__all__ = [
    "EVERY_DESK",
    "ON_MYSQL",
    "ON_POSTGRESQL",
    "ON_SQLITE",
    "Desk",
    "django_alias",
    "fresh_schema",
    "make_desk",
    "make_mysql_tables",
    "prepared_desk",
    "sqlalchemy_url",
]

_COUNT = itertools.count()


def fresh_schema(server: PostgresServer) -> str:
    """The url of a new database, in which unqualified names mean a new, empty schema."""
    name = f"desk_{os.getpid()}_{next(_COUNT)}"
    server.make_database(name)
    with server.connect(name) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url(name)}?options=-csearch_path%3D{name}"


class Desk(Protocol):
    """One connection of one kind."""

    def begin(self) -> AbstractContextManager[Any]:
        """A transaction; what it gives is passed to the guard."""

    def run(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        """Execute, and fetch what there is."""

    def close(self) -> None:
        """Let go of the connection."""


class PsycopgDesk:
    """A connection with a row factory of its own, which must not matter."""

    def __init__(self, url: str, style: str) -> None:
        self._connection = psycopg.connect(url, autocommit=style == "block", row_factory=dict_row)
        self._style = style

    @contextmanager
    def begin(self) -> Iterator[Any]:
        if self._style == "block":
            with self._connection.transaction() as block:
                yield block
        else:
            with self._connection.transaction():
                yield self._connection.cursor() if self._style == "cursor" else self._connection

    def run(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode())
        return [tuple(row.values()) for row in cursor.fetchall()] if cursor.description else []

    def close(self) -> None:
        self._connection.close()


class PymysqlDesk:
    """A connection whose cursors give dictionaries, which must not matter."""

    def __init__(self, url: str, style: str) -> None:
        parts = sqlalchemy.make_url(url)
        login = {"host": parts.host, "port": parts.port, "user": parts.username, "database": parts.database}
        self._connection = pymysql.connect(**login, cursorclass=pymysql.cursors.DictCursor)
        self._style = style

    @contextmanager
    def begin(self) -> Iterator[Any]:
        self._connection.begin()
        try:
            yield self._connection.cursor() if self._style == "cursor" else self._connection
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def run(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor(pymysql.cursors.Cursor) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        self._connection.close()


class Sqlite3Desk:
    """A connection of the standard library."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0.1)

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        with self._connection:
            yield self._connection

    def run(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement).fetchall()

    def close(self) -> None:
        self._connection.close()


def sqlalchemy_url(url: str) -> str:
    """The same database, as SQLAlchemy writes it."""
    return url.replace("postgresql://", "postgresql+psycopg://").replace("mariadb://", "mariadb+pymysql://")


class CoreDesk:
    """`with engine.begin() as connection`."""

    def __init__(self, url: str) -> None:
        self.engine = sqlalchemy.create_engine(sqlalchemy_url(url))

    def begin(self) -> AbstractContextManager[Any]:
        return self.engine.begin()

    def run(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        result = tx.execute(sqlalchemy.text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []

    def close(self) -> None:
        self.engine.dispose()


class OrmDesk(CoreDesk):
    """`with Session.begin() as session`."""

    @contextmanager
    def begin(self) -> Iterator[Session]:
        with Session(self.engine) as session, session.begin():
            yield session


def django_alias(url: str) -> str:
    """Make the database known to Django, under its own url."""
    pymysql.install_as_MySQLdb()  # Django looks for mysqlclient by name
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    parts = sqlalchemy.make_url(url)
    if parts.drivername == "sqlite":
        words: dict[str, object] = {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.database}
    else:
        engine = "mysql" if parts.drivername == "mariadb" else "postgresql"
        words = {
            "ENGINE": f"django.db.backends.{engine}",
            "NAME": parts.database,
            "USER": parts.username,
            "HOST": parts.host,
            "PORT": str(parts.port),
            "OPTIONS": dict(parts.query),
        }
    connections.databases[url] = connections.configure_settings({"default": {}, url: words})[url]
    return url


class DjangoDesk:
    """`with transaction.atomic(using=alias)`."""

    def __init__(self, url: str, style: str) -> None:
        self._alias = django_alias(url)
        self._style = style

    @contextmanager
    def begin(self) -> Iterator[Any]:
        with transaction.atomic(using=self._alias):
            yield self._alias if self._style == "alias" else connections[self._alias]

    def run(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        with connections[self._alias].cursor() as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def close(self) -> None:
        connections[self._alias].close()


_MAKERS: dict[str, Callable[[str], Desk]] = {
    "psycopg": lambda url: PsycopgDesk(url, "connection"),
    "psycopg cursor": lambda url: PsycopgDesk(url, "cursor"),
    "psycopg block": lambda url: PsycopgDesk(url, "block"),
    "sqlalchemy core": CoreDesk,
    "sqlalchemy orm": OrmDesk,
    "django": lambda url: DjangoDesk(url, "connection"),
    "django alias": lambda url: DjangoDesk(url, "alias"),
    "pymysql": lambda url: PymysqlDesk(url, "connection"),
    "pymysql cursor": lambda url: PymysqlDesk(url, "cursor"),
    "sqlite3": Sqlite3Desk,
}
_EVERYWHERE = [kind for kind in _MAKERS if kind.startswith(("sqlalchemy", "django"))]
ON_POSTGRESQL = [kind for kind in _MAKERS if "psycopg" in kind] + _EVERYWHERE
ON_MYSQL = [kind for kind in _MAKERS if "pymysql" in kind] + _EVERYWHERE
ON_SQLITE = ["sqlite3", *_EVERYWHERE]
ALL_DESKS = [
    *(f"postgresql {kind}" for kind in ON_POSTGRESQL),
    *(f"mysql {kind}" for kind in ON_MYSQL),
    *(f"sqlite {kind}" for kind in ON_SQLITE),
]
# Three of each database, so that every kind of connection is there.
SOME_DESKS = [
    "postgresql psycopg block", "postgresql sqlalchemy core", "postgresql django alias",
    "mysql pymysql cursor", "mysql sqlalchemy orm", "mysql django",
    "sqlite sqlite3", "sqlite sqlalchemy orm", "sqlite django alias",
]  # fmt: skip
EVERY_DESK = sized(SOME_DESKS, ALL_DESKS)


def make_mysql_tables(url: str) -> None:
    """All that `leasehold.sql` keeps in a database of MariaDB, as its owner would make it."""
    desk = PymysqlDesk(url, "connection")
    with desk.begin() as tx:
        for schema in (guard_schema("mysql"), idempotency_schema("mysql")):
            for statement in filter(str.strip, schema.split(";\n")):
                desk.run(tx, statement)
    desk.close()


def make_desk(kind: str, url: str) -> Desk:
    """A connection of this kind to that database."""
    return _MAKERS[kind](url)


@contextmanager
def prepared_desk(request: pytest.FixtureRequest, folder: Path, *statements: str) -> Iterator[Desk]:
    """The one of `EVERY_DESK` that is the request's parameter, on a new database in which these were executed."""
    database, _, kind = request.param.partition(" ")
    if database == "postgresql":
        url = fresh_schema(request.getfixturevalue("postgres"))
    elif database == "mysql":
        url = fresh_mariadb(request.getfixturevalue("mariadb"))
    else:
        url = f"sqlite:///{folder}/data.db"
    desk = make_desk(kind, url)
    if database == "mysql" and "pymysql" in kind:  # they say BEGIN, and no table is made inside a transaction
        make_mysql_tables(url)
    with desk.begin() as tx:
        for statement in statements:
            desk.run(tx, statement)
    yield desk
    desk.close()
