"""The same two verbs over ours and over other people's locks on PostgreSQL, and the barest statements there are.

A peer is imported when it is asked for; one that is not installed is reported, never left out.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FLOORS", "OURS", "PEERS", "PostgresLock", "make", "round_trip", "why_missing", "why_no_server"]

PATIENCE = 60.0
OURS = ("leasehold", "leasehold, mode=session")
FLOORS = ("two bare statements, a row with a fence", "advisory lock and unlock, without fence")

_TABLE = """
CREATE TABLE IF NOT EXISTS lease (key bytea PRIMARY KEY, fence bigint, held boolean, owner text, ttl double precision,
  since timestamptz, expires timestamptz, holder text) WITH (fillfactor = 50)
"""
_TAKE = """
INSERT INTO lease VALUES (%(key)s, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, true, %(owner)s, %(ttl)s,
  clock_timestamp(), clock_timestamp() + make_interval(secs => %(ttl)s), %(holder)s)
ON CONFLICT (key) DO UPDATE SET fence = greatest(lease.fence + 1, excluded.fence), held = true, owner = excluded.owner,
  ttl = excluded.ttl, since = excluded.since, expires = excluded.expires, holder = excluded.holder
WHERE NOT lease.held RETURNING fence
"""
_GIVE = """
UPDATE lease SET held = false, owner = NULL
WHERE key = %(key)s AND held AND owner = %(owner)s AND fence = %(fence)s AND expires > clock_timestamp()
"""


class PostgresLock(Protocol):
    """Something to take, and to give back."""

    def take(self) -> None:
        """Wait for it."""

    def give(self) -> None:
        """Give it back."""

    def close(self) -> None:
        """Let go of the connection."""


class Ours:
    """leasehold."""

    def __init__(self, url: str, name: str, options: str = "") -> None:
        self._client = leasehold.connect(f"{url}{options}")
        self._lock = self._client.lock(name)
        self._lease: leasehold.Lease | None = None

    def take(self) -> None:
        self._lease = self._lock.acquire(timeout=PATIENCE)

    def give(self) -> None:
        if self._lease is not None:
            self._lease.release()

    def close(self) -> None:
        self._client.close()


class Rows:
    """The floor: psycopg, in autocommit, preparing by itself; an upsert that mints a fence, and an update."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = import_module("psycopg").connect(url, autocommit=True)
        self._connection.execute(_TABLE)
        holder = '{"host": "host", "pid": 4711}'
        self._values: dict[str, Any] = {"key": name.encode(), "owner": "a" * 32, "ttl": 30.0, "holder": holder}

    def take(self) -> None:
        row = self._connection.execute(_TAKE, self._values).fetchone()
        self._values["fence"] = row[0]

    def give(self) -> None:
        self._connection.execute(_GIVE, self._values)

    def close(self) -> None:
        self._connection.close()


class Advisory:
    """What the peers are made of: no row, no fence, nobody can see who holds it, and it ends with the session."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = import_module("psycopg").connect(url, autocommit=True)
        self._number = (sum(name.encode()),)

    def take(self) -> None:
        self._connection.execute("SELECT pg_advisory_lock(%s)", self._number)

    def give(self) -> None:
        self._connection.execute("SELECT pg_advisory_unlock(%s)", self._number)

    def close(self) -> None:
        self._connection.close()


class Pals:
    """pals: advisory locks over SQLAlchemy."""

    def __init__(self, url: str, name: str) -> None:
        self._engine = _engine(url)
        locker = import_module("pals").Locker("bench", create_engine_callable=lambda: self._engine)
        self._lock = locker.lock(name)

    def take(self) -> None:
        self._lock.acquire()

    def give(self) -> None:
        self._lock.release()

    def close(self) -> None:
        self._engine.dispose()


class Dlock:
    """sqlalchemy-dlock: advisory locks on a connection that is kept."""

    def __init__(self, url: str, name: str) -> None:
        self._engine = _engine(url)
        self._connection = self._engine.connect()
        self._lock = import_module("sqlalchemy_dlock").create_sadlock(self._connection, name)

    def take(self) -> None:
        self._lock.acquire()

    def give(self) -> None:
        self._lock.release()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


class Pglock:
    """django-pglock: advisory locks on Django's connection."""

    def __init__(self, url: str, name: str) -> None:
        self._connections = _django(url)
        self._make = import_module("pglock").advisory
        self._name = name

    def take(self) -> None:
        self._lock = self._make(self._name)
        self._lock.acquire()

    def give(self) -> None:
        self._lock.release()

    def close(self) -> None:
        self._connections.close_all()


def _engine(url: str) -> Any:
    return import_module("sqlalchemy").create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def _django(url: str) -> Any:
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    settings = import_module("django.conf").settings
    if not settings.configured:
        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["pgactivity", "pglock"])
        import_module("django").setup()
    connections = import_module("django.db").connections
    connections["default"].close()
    connections["default"].settings_dict.update(database)
    return connections


PEERS = {"pals": "pals", "sqlalchemy-dlock": "sqlalchemy_dlock", "django-pglock": "pglock"}
_MAKERS: dict[str, Callable[[str, str], PostgresLock]] = {
    OURS[0]: Ours,
    OURS[1]: lambda url, name: Ours(url, name, "?mode=session"),
    FLOORS[0]: Rows,
    FLOORS[1]: Advisory,
    "pals": Pals,
    "sqlalchemy-dlock": Dlock,
    "django-pglock": Pglock,
}


def make(kind: str, url: str, name: str) -> PostgresLock:
    """A lock of this kind."""
    return _MAKERS[kind](url, name)


def why_missing(kind: str) -> str:
    """Why this kind cannot run here; empty if it can."""
    module = PEERS.get(kind)
    return "" if module is None or find_spec(module) else f"{kind} is not installed"


def why_no_server() -> str:
    """Why there can be no server; empty if there can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed"
    from verification.lab.postgres import _debian_programs  # noqa: PLC0415 - it needs psycopg

    try:
        _debian_programs()
    except RuntimeError as error:
        return str(error)
    return ""


def round_trip(url: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """One empty statement, and how to close its connection."""
    connection = import_module("psycopg").connect(url, autocommit=True)
    return (lambda: connection.execute("SELECT 1")), connection.close
