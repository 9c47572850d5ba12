"""A database that the tests of one file share: making the tables takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from leasehold._runtimes.threads import run
from leasehold._urls import find_store
from tests.servers.postgres import fresh_database
from tests.stores.postgres.tables import RUNTIME, Tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.postgres import PostgresServer


@pytest.fixture(scope="module")
def database_of_file(postgres: PostgresServer) -> str:
    """The url of a database of this file alone."""
    return postgres.url(fresh_database(postgres))


@pytest.fixture
def emptied(database_of_file: str) -> str:
    """The same, with tables that are empty."""
    with psycopg.connect(database_of_file, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('leasehold.about')").fetchone() != (None,):
            connection.execute("TRUNCATE leasehold.lock, leasehold.claim, leasehold.record")
    return database_of_file


@pytest.fixture
def backend(emptied: str) -> Iterator[Any]:
    """One that waits without a listener, so that channels are what the test says."""
    opened: Any = find_store(emptied).open_backend(RUNTIME)
    opened._listener.ensure = lambda: opened._listener.channel
    yield opened
    run(opened.close())


@pytest.fixture
def tables(emptied: str) -> Iterator[Tables]:
    """What is in the tables, and what is put there by hand."""
    with psycopg.connect(emptied, autocommit=True) as connection:
        yield Tables(connection)
