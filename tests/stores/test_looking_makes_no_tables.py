"""Looking at a database that has no tables of leasehold yet finds nothing, and makes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

import leasehold
from tests.sql.desks import fresh_schema

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer
    from verification.lab.postgres import PostgresServer

modes = pytest.mark.parametrize("mode", ["", "mode=session"], ids=["rows", "session"])


def look_around(url: str) -> None:
    with leasehold.connect(url) as client:
        assert client.inspect("job") is None
        assert list(client.locks()) == []
        if "session" not in url:
            assert client.last_run("job") is None
        assert client.examine()


@modes
def test_postgresql_without_tables_is_left_as_it_is(postgres: PostgresServer, mode: str) -> None:
    url = fresh_schema(postgres)
    with psycopg.connect(url, autocommit=True) as eye:
        tables = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
        schema = "looked_at"
        look_around(f"{url}{'&' if '?' in url else '?'}schema={schema}&{mode}".rstrip("&"))
        assert eye.execute(tables, [schema]).fetchone() == (0,)


@modes
def test_mysql_without_tables_is_left_as_it_is(mariadb: MariadbServer, mariadb_database: str, mode: str) -> None:
    look_around(f"{mariadb_database}?{mode}".rstrip("?"))
    name = mariadb_database.rpartition("/")[2]
    assert mariadb.run(f"SELECT count(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{name}'") == [(0,)]
