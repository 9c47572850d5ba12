"""MariaDB for tests: one server per session, started when the first test asks.

`fresh_mariadb` makes a database that nobody used before, so that tests of one server do not meet each other.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from verification.lab.mariadb import MariadbServer

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNT = itertools.count()


def fresh_mariadb(server: MariadbServer) -> str:
    """The url of a new database on that server."""
    return server.make_database(f"test_{os.getpid()}_{next(_COUNT)}")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    """Debian's MariaDB. Tests that break the server start one of their own."""
    with MariadbServer() as server:
        yield server


@pytest.fixture
def own_mariadb() -> Iterator[MariadbServer]:
    """A server of one test alone."""
    with MariadbServer() as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb: MariadbServer) -> str:
    """The url of a new database of `mariadb`."""
    return fresh_mariadb(mariadb)
