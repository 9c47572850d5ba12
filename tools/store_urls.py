"""Draws every URL that a store is opened with. Knows the schemes; a test demands that each of them is in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["STORE_URLS", "StoreUrls", "draw_store_urls"]


class StoreUrls(NamedTuple):
    """The ways to write one store."""

    urls: tuple[str, ...]
    with_tls: tuple[str, ...]
    opens: str


STORE_URLS = (
    StoreUrls(("local:",), (), "a [SQLite](../explanation/sqlite.md) file of this user on this host"),
    StoreUrls(
        ("sqlite:////var/lib/app/locks.db",),
        (),
        "a SQLite file for all processes of this host; `sqlite:///relative.db` is refused",
    ),
    StoreUrls(("memory://",), (), "private to this client, inside the process"),
    StoreUrls(("memory://NAME",), (), "shared by all clients of the process that give this name"),
    StoreUrls(
        ("redis://host:6379/0", "valkey://host"),
        ("rediss://host", "valkeys://host"),
        "one server of [Redis](../explanation/redis.md) or Valkey",
    ),
    StoreUrls(("unix:///run/redis.sock",), (), "the same through a socket of this host"),
    StoreUrls(
        ("redis+sentinel://h1,h2,h3/SERVICE", "valkey+sentinel://h1,h2,h3/SERVICE"),
        ("rediss+sentinel://h1,h2,h3/SERVICE", "valkeys+sentinel://h1,h2,h3/SERVICE"),
        "a primary that Sentinels watch",
    ),
    StoreUrls(
        ("redis+cluster://h1,h2,h3", "valkey+cluster://h1,h2,h3"),
        ("rediss+cluster://h1,h2,h3", "valkeys+cluster://h1,h2,h3"),
        "a Cluster; every lock lies in one slot",
    ),
    StoreUrls(
        ("redlock://h1,h2,h3,h4,h5",),
        ("redlock://h1,h2,h3,h4,h5?tls=yes",),
        "a majority of servers of Redis that know nothing of each other: [Redlock](../explanation/redlock.md)",
    ),
    StoreUrls(
        (
            "postgresql://user:password@host:5432/database",
            "postgres://host/database",
            "postgresql+psycopg://host/database",
        ),
        ("postgresql://host/database?tls_ca=FILE",),
        "tables in [PostgreSQL](../explanation/postgresql.md); with `?mode=session` its advisory locks. "
        "`postgresql+asyncpg://` is refused: pass a pool of asyncpg",
    ),
    StoreUrls(
        (
            "mysql://user:password@host:3306/database",
            "mariadb://host/database",
            "mysql+pymysql://host/database",
            "mariadb+pymysql://host/database",
        ),
        ("mysql://host/database?tls_ca=FILE",),
        "tables in [MySQL or MariaDB](../explanation/mysql.md); with `?mode=session` its named locks",
    ),
    StoreUrls(("etcd://h1,h2,h3/ROOT",), ("etcds://h1,h2,h3/ROOT",), "an [etcd](../explanation/etcd.md) cluster"),
    StoreUrls(("zk://h1,h2,h3/ROOT",), ("zks://h1,h2,h3/ROOT",), "[ZooKeeper](../explanation/zookeeper.md)"),
    StoreUrls(("nats://h1,h2,h3",), ("nats+tls://h1,h2,h3",), "a bucket of [NATS JetStream](../explanation/nats.md)"),
    StoreUrls(
        ("memory+unix:///path/to/socket",),
        (),
        "the memory of another process, for tests of several processes: `leasehold.testing.shared`",
    ),
)


def draw_store_urls() -> str:
    """A row for each store."""
    return "\n".join(["| URL | with TLS | store |", "| --- | --- | --- |", *_rows()])


def _rows() -> Iterator[str]:
    for each in STORE_URLS:
        plain, secure = (", ".join(f"`{url}`" for url in urls) for urls in (each.urls, each.with_tls))
        yield f"| {plain} | {secure} | {each.opens} |"
