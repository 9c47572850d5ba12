"""Redis and Valkey servers, Sentinels, clusters: one of each for the session, started when the first test asks for it.

Sentinels ask each other all the time, so they end with the file of tests that needed them.

A test that kills or reconfigures a server makes one of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.lab.proxy import FaultProxy
from verification.lab.redis import RedisServer, valkey_program
from verification.lab.redis_cluster import RedisCluster
from verification.lab.sentinel import SentinelGroup

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The system's redis-server, on a port and on a unix socket."""
    server = RedisServer(socket=True)
    with server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    """A Valkey server, on a port and on a unix socket."""
    server = RedisServer("valkey", program=valkey_program(), socket=True)
    with server:
        yield server


@pytest.fixture(scope="module")
def sentinel_group() -> Iterator[SentinelGroup]:
    """A primary, a replica and three Sentinels; tests that make them fail over start a group of their own."""
    with SentinelGroup() as group:
        yield group


@pytest.fixture(scope="session")
def cluster_nodes() -> Iterator[RedisCluster]:
    """A cluster of three masters."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def redis_proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    """A proxy of this test alone in front of the shared server."""
    redis_server.flush()
    with FaultProxy(redis_server.address) as proxy:
        yield proxy
