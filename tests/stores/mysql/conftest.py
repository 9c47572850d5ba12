"""A database that the tests of one file share: making the tables takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold._backends.mysql import ddl
from tests.servers.mariadb import fresh_mariadb

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer


@pytest.fixture(scope="module")
def database_of_file(mariadb: MariadbServer) -> str:
    """The url of a database of this file alone; the tables are there."""
    url = fresh_mariadb(mariadb)
    for statement in ddl.statements():
        mariadb.run(statement, url.rpartition("/")[2])
    return url


@pytest.fixture
def emptied(mariadb: MariadbServer, database_of_file: str) -> str:
    """The same, with tables that are empty."""
    for table in ("lock", "claim", "record"):
        mariadb.run(f"DELETE FROM leasehold_{table}", database_of_file.rpartition("/")[2])
    return database_of_file
