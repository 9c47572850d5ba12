"""The URL of each kind of store, for tests that are the same on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["SERVERS", "url_of"]

SERVERS = {
    "redis": "redis_server", "redlock": "redlock_nodes", "postgres": "postgres", "mysql": "mariadb",
    "etcd": "etcd_server", "zookeeper": "zookeeper_server", "nats": "nats_server",
}  # fmt: skip


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """Of a fresh file, or of the server that this session of tests has."""
    if kind == "memory":
        return "memory://"
    if kind == "sqlite":
        return f"sqlite:///{folder}/locks.db"
    url = request.getfixturevalue(SERVERS[kind]).url
    return str(url if isinstance(url, str) else url("/shared") if kind == "zookeeper" else url())
