"""Ours and other people's locks on MariaDB, and the barest statements there are."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks import library
from benchmarks.harness import Role
from benchmarks.library import PATIENCE, TTL, Kind, Library, Lock, Ours, OursAsync
from verification.lab.process import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library import Address

__all__ = ["DLOCK", "FLOOR", "MARIADB", "OURS", "OURS_ASYNC", "USER_LOCK", "Connections", "serve"]

OURS = "leasehold"
OURS_ASYNC = f"{OURS}, asyncio"
FLOOR = "two bare statements, a row with a fence"
USER_LOCK = "GET_LOCK and RELEASE_LOCK, without fence"
DLOCK = "sqlalchemy-dlock"
DATABASE = "bench"
FOREVER = 1_000_000  # seconds; MariaDB takes no negative ones, which are how MySQL and sqlalchemy-dlock say it

_TABLE = """
CREATE TABLE IF NOT EXISTS lease (name VARBINARY(255) PRIMARY KEY, fence BIGINT NOT NULL, held TINYINT NOT NULL,
  owner VARBINARY(64), ttl BIGINT, since DATETIME(6), expires DATETIME(6), holder BLOB) ENGINE=InnoDB
"""
# Columns are assigned from left to right, so `held`, which the conditions look at, comes last.
_TAKE = """
INSERT INTO lease VALUES ('{name}', LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), 1,
  '{owner}', 30, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 30 SECOND, '{holder}')
ON DUPLICATE KEY UPDATE owner = IF(held, owner, VALUES(owner)), ttl = IF(held, ttl, VALUES(ttl)),
  since = IF(held, since, VALUES(since)), expires = IF(held, expires, VALUES(expires)),
  holder = IF(held, holder, VALUES(holder)),
  fence = IF(held, fence, LAST_INSERT_ID(GREATEST(fence + 1, VALUES(fence)))), held = 1
"""
_GIVE = """
UPDATE lease SET held = 0, owner = NULL
WHERE name = '{name}' AND held = 1 AND owner = '{owner}' AND fence = %d AND expires > UTC_TIMESTAMP(6)
"""


class Connections(library.Connections):
    """Our client is patient, so that a busy machine makes a measurement slow and does not end it."""

    @property
    def patient(self) -> str:
        """The URL of our client."""
        return f"{self.url}?answer_timeout={PATIENCE:g}"

    @cached_property
    def ours(self) -> leasehold.Client:
        """See above."""
        client = leasehold.connect(self.patient, ttl=TTL)
        self.stack.callback(client.close)
        return client


class Rows(Lock):
    """The floor: PyMySQL, committing by itself, with texts that are ready; an upsert that mints a fence, an update."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = _driver(url)
        self._connection.query(_TABLE)
        words = {"name": name, "owner": "a" * 32, "holder": '{"host": "host", "pid": 4711}'}
        self._take, self._give = (text.format(**words) for text in (_TAKE, _GIVE))
        self._fence = 0

    def take(self) -> None:
        if not self._connection.query(self._take):
            raise RuntimeError("the row is held")
        self._fence = self._connection.insert_id()

    def give(self) -> None:
        self._connection.query(self._give % self._fence)

    def close(self) -> None:
        self._connection.close()


class UserLock(Lock):
    """What the peer is made of: no row, no fence, no visible holder, and it ends with the session."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = _driver(url)
        self._take, self._give = f"SELECT GET_LOCK('{name}', {FOREVER})", f"SELECT RELEASE_LOCK('{name}')"

    def take(self) -> None:
        self._connection.query(self._take)

    def give(self) -> None:
        self._connection.query(self._give)

    def close(self) -> None:
        self._connection.close()


class Dlock(Lock):
    """sqlalchemy-dlock: user locks on a connection that is kept."""

    def __init__(self, url: str, name: str) -> None:
        self._engine = import_module("sqlalchemy").create_engine(url.replace("mariadb:", "mysql+pymysql:"))
        self._connection = self._engine.connect()
        self._lock = import_module("sqlalchemy_dlock").create_sadlock(self._connection, name)

    def take(self) -> None:
        if not self._lock.acquire(timeout=FOREVER):
            raise RuntimeError("sqlalchemy-dlock was not granted")

    def give(self) -> None:
        self._lock.release()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


def _driver(url: str) -> Any:
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(url)
    place = {"host": parts.hostname, "port": parts.port, "user": parts.username, "database": parts.path.lstrip("/")}
    return import_module("pymysql").connect(**place, autocommit=True)


def _in_session(connections: Connections, name: str) -> Lock:
    client = leasehold.connect(f"{connections.patient}&mode=session", ttl=TTL)
    return Ours(client, name, client.close)


def why_no_server() -> str:
    """Why there can be no server; empty if there can."""
    if find_spec("pymysql") is None:
        return "PyMySQL is not installed"
    try:
        find_program("mariadbd", "mariadb-server")
    except RuntimeError as error:
        return str(error)
    return ""


def serve(*, on_disk: bool = False, **settings: str) -> Any:
    """A server, not yet started."""
    from verification.lab.mariadb import MariadbServer  # noqa: PLC0415 - it needs PyMySQL

    return MariadbServer({name.replace("_", "-"): value for name, value in settings.items()}, on_disk=on_disk)


def _connect(server: Any, addresses: Sequence[Address]) -> Connections:
    from verification.lab.mariadb import mariadb_url  # noqa: PLC0415 - it needs PyMySQL

    server.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    return Connections(mariadb_url(addresses[0][1], DATABASE))


def _select(server: Any, addresses: Sequence[Address]) -> tuple[str, Callable[[], object], Callable[[], object]]:
    connection = _driver(_connect(server, addresses).url)
    return "SELECT 1", lambda: connection.query("SELECT 1"), connection.close


MARIADB = Library(
    "MariaDB",
    {
        OURS: Kind(lambda connections, name: Ours(connections.ours, name), ("pymysql",), Role.OURS),
        OURS_ASYNC: Kind(lambda connections, name: OursAsync(connections.patient, name), ("pymysql",), Role.OURS),
        "leasehold, mode=session": Kind(_in_session, ("pymysql",), Role.OURS),
        FLOOR: Kind(lambda connections, name: Rows(connections.url, name), ("pymysql",), Role.FLOOR),
        USER_LOCK: Kind(lambda connections, name: UserLock(connections.url, name), ("pymysql",), Role.FLOOR),
        DLOCK: Kind(
            lambda connections, name: Dlock(connections.url, name), ("sqlalchemy_dlock", "sqlalchemy", "pymysql")
        ),
    },
    why_no_server,
    serve=serve,
    connect=_connect,
    round_trip=_select,
)
