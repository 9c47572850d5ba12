"""PostgreSQL for tests: one server of each version per session, started when the first test asks; a pooler in front.

`fresh_database` names a database that nobody used before, so that tests of one server do not meet each other.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from verification.lab.pgbouncer import PgBouncer
from verification.lab.postgres import PostgresServer

_COUNT = itertools.count()


def fresh_database(server: PostgresServer) -> str:
    """Make a database with a name of its own on that server; the name."""
    name = f"test_{os.getpid()}_{next(_COUNT)}"
    server.make_database(name)
    return name


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Debian's PostgreSQL. Tests that break the server start one of their own."""
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def newer_postgres() -> Iterator[PostgresServer]:
    """The newest PostgreSQL that comes as a wheel."""
    server = PostgresServer("newer")
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """A transaction-pooling PgBouncer in front of `postgres`."""
    pooler = PgBouncer(postgres)
    pooler.start()
    yield pooler
    pooler.remove()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The url of a new database of `postgres`."""
    return postgres.url(fresh_database(postgres))
