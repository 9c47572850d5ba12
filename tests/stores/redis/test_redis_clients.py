"""Ways to name a Redis server: URLs of every kind, and clients of the user's own, whatever their options."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.support import eventually, opened, waiters
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.testing import contract
    from tests.stores.support import Worker
    from verification.lab.redis_cluster import RedisCluster
    from verification.lab.sentinel import SentinelGroup


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    redis_server.flush()
    return redis_server


def use(client: leasehold.Client, other: leasehold.Client) -> None:
    """All that a program does with locks, and another client that sees it."""
    with client.lock("name", ttl=30, reason="why").hold(timeout=10) as lease:
        lease.renew()
        assert other.lock("name").try_acquire() is None
        state = other.inspect("name")
        assert state is not None
        assert state.holdings[0].fence == lease.fence
        assert state.holdings[0].holder.reason == "why"
        assert [state.name for state in other.locks()] == ["name"]
        assert waiters(other, "name") == 0
    permits = client.semaphore("permits", 2)
    with permits.hold(timeout=10), permits.hold(timeout=10):
        assert other.semaphore("permits", 2).try_acquire() is None
    ran = []
    job = client.once("job", slot="today")
    job.run(lambda: ran.append(1))
    job.run(lambda: ran.append(2))
    assert ran == [1]


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
def test_client_of_the_user_s_own_works_with_any_options(server: RedisServer, protocol: int, decode: bool) -> None:
    redis = importlib.import_module("redis")
    with redis.Redis(port=server.port, db=3, protocol=protocol, decode_responses=decode) as own:
        own.ping()
        with leasehold.connect(own) as client, leasehold.connect(f"redis://127.0.0.1:{server.port}/3") as other:
            use(client, other)
        assert own.ping(), "the user's client goes on"
    assert server.info("keyspace").keys() == {"db3"}


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
def test_asyncio_client_of_the_user_s_own_works_with_any_options(
    server: RedisServer, protocol: int, decode: bool
) -> None:
    redis = importlib.import_module("redis.asyncio")

    async def body() -> None:
        async with redis.Redis(port=server.port, protocol=protocol, decode_responses=decode) as own:
            async with leasehold.connect_async(own) as client:
                async with client.lock("name", ttl=30).hold(timeout=10) as lease:
                    await lease.renew()
                    state = await client.inspect("name")
                    assert state is not None
                    assert state.holdings[0].fence == lease.fence
                assert await client.inspect("name") is None
            assert await own.ping()

    asyncio.run(body())


def test_client_of_the_user_s_own_may_exclude_the_fleet_that_it_locked_with_before(server: RedisServer) -> None:
    redis = importlib.import_module("redis")
    with redis.Redis(port=server.port) as own, leasehold.connect(own, options={"compat": True}) as client:
        with client.lock("name").hold(timeout=10):
            assert not own.lock("name", timeout=5).acquire(blocking=False)
        with own.lock("name", timeout=5):
            assert client.lock("name").try_acquire() is None


def test_client_of_the_user_s_own_may_ask_for_acknowledgements(server: RedisServer) -> None:
    redis = importlib.import_module("redis")
    with redis.Redis(port=server.port) as own:
        with leasehold.connect(own, options={"acks": 1, "acks_timeout": 0.05}) as client:
            with pytest.raises(leasehold.BackendUnavailable, match="acknowledged"):
                client.lock("name").acquire(timeout=0)


def test_sentinel_and_cluster_clients_of_the_user_s_own_work(
    sentinel_group: SentinelGroup, cluster_nodes: RedisCluster
) -> None:
    redis = importlib.import_module("redis")
    sentinel_group.primary.flush()
    cluster_nodes.flush()
    sentinels = [sentinel.address for sentinel in sentinel_group.sentinels]
    manager = redis.Sentinel(sentinels)
    mine = {"prefix": "mine:"}
    with manager.master_for("mymaster") as own, leasehold.connect(own, options=mine) as client:
        with leasehold.connect(f"{sentinel_group.url}?prefix=mine:") as other:
            use(client, other)
    for sentinel in manager.sentinels:
        sentinel.close()
    own = redis.RedisCluster(host="127.0.0.1", port=cluster_nodes.nodes[0].port)
    with own, leasehold.connect(own, options=mine) as client:
        with leasehold.connect(f"{cluster_nodes.url}?prefix=mine:") as other:
            use(client, other)


def test_urls_of_every_kind_reach_the_same_locks(server: RedisServer) -> None:
    urls = [
        f"redis://127.0.0.1:{server.port}",
        f"redis://localhost:{server.port}/0",
        f"valkey://127.0.0.1:{server.port}/0",
        f"unix://{server.socket}?db=0",
        f"redis://127.0.0.1:{server.port}/0?protocol=3",
        f"redis://127.0.0.1:{server.port}?db=0",
    ]
    for url in urls:
        with leasehold.connect(url) as client, leasehold.connect(urls[0]) as other:
            use(client, other)
        server.flush()


def test_databases_and_prefixes_keep_locks_apart(server: RedisServer) -> None:
    urls = [server.url, f"redis://127.0.0.1:{server.port}/1", f"{server.url}?prefix=other:", f"{server.url}?prefix=a*:"]
    clients = [leasehold.connect(url) for url in urls]
    leases = [client.lock("name").acquire(timeout=0) for client in clients]
    for client in clients:
        assert [state.name for state in client.locks()] == ["name"]
    for client, lease in zip(clients, leases, strict=True):
        assert lease.release()
        client.close()


@pytest.mark.parametrize(
    "query", ["nonsense=1", "socket_timeot=3", "ttl=5", "compat=perhaps", "acks=-1", "acks=many", "db=x"]
)
def test_unknown_options_are_refused_by_name(query: str) -> None:
    with pytest.raises(leasehold.ConfigurationError, match=query.partition("=")[0]):
        leasehold.connect(f"redis://localhost?{query}")


def test_password_never_shows(driver: contract.Driver) -> None:
    server = RedisServer(password="geheim")
    with server:

        async def body() -> None:
            async with opened(driver, server.url) as client:
                assert "geheim" not in client.store
                assert "geheim" not in repr(client)
                lease = await client.lock("name").acquire()
                assert await lease.release()
                server.kill()
                with pytest.raises(leasehold.BackendError) as caught:
                    await client.lock("name").acquire(timeout=0)
                assert "geheim" not in f"{caught.value} {caught.value.backend}"

        driver.run(body())


def test_processes_of_both_faces_stand_in_one_queue(server: RedisServer, start: Callable[..., Worker]) -> None:
    with leasehold.connect(server.url) as client:
        lease = client.lock("name", ttl=30).acquire()
        workers = []
        for number, task in enumerate(["hold", "hold-asyncio", "hold", "hold-asyncio"]):
            workers.append(start(task, server.url, "name", 30))
            assert workers[-1].line() == ["asking"]
            eventually(lambda number=number: waiters(client, "name") == number + 1)  # type: ignore[misc] # a default
        assert lease.release()
        last = lease.fence
        for worker in workers:
            word, fence, *_ = worker.line()
            assert word == "held"
            assert int(fence) > last
            last = int(fence)
            assert worker.ask("release") == ["released", "True"]
