"""Two connections to one new database: one of each kind, and beside it another one of the plain driver."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.forms import sized
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import ALL_DESKS, EVERY_DESK, fresh_schema, make_desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from tests.sql.desks import Desk

__all__ = ["EACH_WAY", "EVERYWHERE", "Pair", "fresh_url", "pair_of"]

EVERYWHERE = EVERY_DESK
# Without the other forms of the same connection, which matter to the wires alone.
EACH_WAY = sized(
    [
        "postgresql psycopg", "postgresql sqlalchemy orm", "mysql pymysql", "mysql sqlalchemy core", "mysql django",
        "sqlite sqlite3", "sqlite sqlalchemy core",
    ],
    [kind for kind in ALL_DESKS if not kind.endswith((" cursor", " block", " alias"))],
)  # fmt: skip
_PLAIN = {"postgresql": "psycopg", "mysql": "pymysql", "sqlite": "sqlite3"}


@dataclass(frozen=True, slots=True)
class Pair:
    """The two, and which database it is."""

    database: str
    url: str
    one: Desk
    other: Desk


def fresh_url(request: pytest.FixtureRequest, database: str, folder: Path) -> str:
    """The url of a new database."""
    if database == "postgresql":
        return fresh_schema(request.getfixturevalue("postgres"))
    if database == "mysql":
        return fresh_mariadb(request.getfixturevalue("mariadb"))
    return f"sqlite:///{folder}/data.db"


@contextmanager
def pair_of(request: pytest.FixtureRequest, folder: Path, *statements: str) -> Iterator[Pair]:
    """For the one of `EVERYWHERE` that is the request's parameter."""
    database, _, kind = request.param.partition(" ")
    url = fresh_url(request, database, folder)
    one, other = make_desk(kind, url), make_desk(_PLAIN[database], url)
    with other.begin() as tx:
        for statement in statements:
            other.run(tx, statement)
    yield Pair(database, url, one, other)
    one.close()
    other.close()
