"""Ours and other people's locks on PostgreSQL, and the barest statements there are."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.harness import Role
from benchmarks.library import TTL, Connections, Kind, Library, Lock, Ours, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library import Address

__all__ = ["FLOOR", "OURS", "POSTGRESQL", "serve"]

OURS = "leasehold"
FLOOR = "two bare statements, a row with a fence"

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


class Rows(Lock):
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


class Advisory(Lock):
    """What the peers are made of: no row, no fence, no visible holder, and it ends with the session."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = import_module("psycopg").connect(url, autocommit=True)
        self._number = (sum(name.encode()),)

    def take(self) -> None:
        self._connection.execute("SELECT pg_advisory_lock(%s)", self._number)

    def give(self) -> None:
        self._connection.execute("SELECT pg_advisory_unlock(%s)", self._number)

    def close(self) -> None:
        self._connection.close()


def _in_session(connections: Connections, name: str) -> Lock:
    client = leasehold.connect(f"{connections.url}?mode=session", ttl=TTL)
    return Ours(client, name, client.close)


def _pals(connections: Connections, name: str) -> Lock:
    """Advisory locks over SQLAlchemy."""
    engine = _engine(connections.url)
    lock = import_module("pals").Locker("bench", create_engine_callable=lambda: engine).lock(name)
    return Peer(lambda: lock, engine.dispose)


def _dlock(connections: Connections, name: str) -> Lock:
    """Advisory locks on a connection that is kept."""
    engine = _engine(connections.url)
    connection = engine.connect()
    lock = import_module("sqlalchemy_dlock").create_sadlock(connection, name)

    def close() -> None:
        connection.close()
        engine.dispose()

    return Peer(lambda: lock, close)


def _pglock(connections: Connections, name: str) -> Lock:
    """Advisory locks on Django's connection."""
    django = _django(connections.url)
    advisory = import_module("pglock").advisory
    return Peer(lambda: advisory(name), django.close_all)


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


def serve(**settings: str) -> Any:
    """A server, not yet started."""
    from verification.lab.postgres import PostgresServer  # noqa: PLC0415 - it needs psycopg

    return PostgresServer(settings=settings)


def _connect(_: Any, addresses: Sequence[Address]) -> Connections:
    from verification.lab.postgres import postgres_url  # noqa: PLC0415 - it needs psycopg

    return Connections(postgres_url(addresses[0][1], "postgres", "postgres"))


def _select(server: Any, addresses: Sequence[Address]) -> tuple[str, Callable[[], object], Callable[[], object]]:
    connection = import_module("psycopg").connect(_connect(server, addresses).url, autocommit=True)
    return "SELECT 1", lambda: connection.execute("SELECT 1"), connection.close


POSTGRESQL = Library(
    "PostgreSQL",
    {
        OURS: Kind(lambda connections, name: Ours(connections.ours, name), ("psycopg",), Role.OURS),
        "leasehold, mode=session": Kind(_in_session, ("psycopg",), Role.OURS),
        FLOOR: Kind(lambda connections, name: Rows(connections.url, name), ("psycopg",), Role.FLOOR),
        "advisory lock and unlock, without fence": Kind(
            lambda connections, name: Advisory(connections.url, name), ("psycopg",), Role.FLOOR
        ),
        "pals": Kind(_pals, ("pals",)),
        "sqlalchemy-dlock": Kind(_dlock, ("sqlalchemy_dlock",)),
        "django-pglock": Kind(_pglock, ("pglock",)),
    },
    why_no_server,
    serve=serve,
    connect=_connect,
    round_trip=_select,
)
