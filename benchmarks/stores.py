"""Every store of ours on real servers, each with the addresses where a fault can be put before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from benchmarks.library import Address

__all__ = ["Store", "embedded", "every_store"]


@dataclass(frozen=True, slots=True)
class Store:
    """One store, and its URL for servers at these addresses or at those of proxies before them."""

    name: str
    addresses: Sequence[Address]  # none: there is no network between it and its clients
    url_at: Callable[[Sequence[Address]], str]

    @property
    def url(self) -> str:
        """Without a proxy."""
        return self.url_at(self.addresses)


def embedded(directory: Path) -> list[Store]:
    """Those that need no server."""
    return [Store("SQLite", (), lambda _: f"sqlite:///{directory}/stores.db")]


def every_store(directory: Path, servers: ExitStack) -> list[Store]:
    """Those that several processes can share; their servers end with the stack."""
    from verification.lab.etcd import EtcdServer  # noqa: PLC0415 - servers only where they are needed
    from verification.lab.mariadb import MariadbServer, mariadb_url  # noqa: PLC0415
    from verification.lab.nats import NatsServer  # noqa: PLC0415
    from verification.lab.postgres import PostgresServer, postgres_url  # noqa: PLC0415
    from verification.lab.redis import RedisServer  # noqa: PLC0415
    from verification.lab.redlock import RedlockNodes  # noqa: PLC0415
    from verification.lab.zookeeper import ZooKeeperServer  # noqa: PLC0415

    redis = servers.enter_context(RedisServer())
    nodes = servers.enter_context(RedlockNodes(5))
    postgres = PostgresServer()
    postgres.start()
    servers.callback(postgres.remove)
    postgres.make_database("stores")
    mariadb = servers.enter_context(MariadbServer())
    mariadb.make_database("stores")
    nats, etcd = servers.enter_context(NatsServer()), servers.enter_context(EtcdServer())
    zookeeper = servers.enter_context(ZooKeeperServer())

    def rows(at: Sequence[Address]) -> str:
        return postgres_url(at[0][1], "stores", "postgres")

    def tables(at: Sequence[Address]) -> str:
        return mariadb_url(at[0][1], "stores")

    def single(scheme: str, port: int, path: str = "") -> tuple[list[Address], Callable[[Sequence[Address]], str]]:
        return [("127.0.0.1", port)], lambda at: f"{scheme}://{at[0][0]}:{at[0][1]}{path}"

    return [
        *embedded(directory),
        Store("Redis", *single("redis", redis.port)),
        Store("Redlock, five nodes", [server.address for server in nodes.servers], nodes.url),
        Store("PostgreSQL rows", [("127.0.0.1", postgres.port)], rows),
        Store("PostgreSQL mode=session", [("127.0.0.1", postgres.port)], lambda at: f"{rows(at)}?mode=session"),
        Store("MariaDB rows", [("127.0.0.1", mariadb.port)], tables),
        Store("MariaDB mode=session", [("127.0.0.1", mariadb.port)], lambda at: f"{tables(at)}?mode=session"),
        Store("NATS JetStream", *single("nats", nats.port)),
        Store("etcd", *single("etcd", etcd.port)),
        Store("ZooKeeper", *single("zk", zookeeper.port, "/stores")),
    ]
