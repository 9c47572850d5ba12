"""A database that the tests of one file share: making the tables takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.servers.postgres import fresh_database

if TYPE_CHECKING:
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
