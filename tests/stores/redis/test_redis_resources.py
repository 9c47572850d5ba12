"""What many waiters and many names cost a Redis server, and what odd names may do to it: nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis

import leasehold
from leasehold._runtimes.threads import run
from leasehold.values import Record
from tests.stores.support import eventually, waiters
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from verification.lab.redis_cluster import RedisCluster

MANY = 500
ODD_NAMES = [
    "*", "?", "[a-z]", "\\", "{", "}", "{}", "}{", "{a}b", "a{b", "%7B", "%", "a\nb", "a\r\n*1\r\n$8\r\nFLUSHALL\r\n",
    "'; return 1 --", "]]..redis.call('FLUSHALL')..[[", "\u00e9", "\0", "a b", ":", "a:b",
]  # fmt: skip


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    redis_server.flush()
    return redis_server


def test_no_key_stays_for_ever(server: RedisServer) -> None:
    with leasehold.connect(server.url) as client:
        backend: Any = client._twin._open().backend
        run(backend.read("leasehold:read", 7))
        run(backend.write(Record("leasehold:written", b"value", 7, 60.0)))
        run(backend.raise_fence("leasehold:raised", 7))
        client.pause("paused", reason="a test", duration=60)
        with client.lock("x").hold(), client.semaphore("y", 2).hold():
            with pytest.raises(leasehold.AcquireTimeout):
                client.lock("x").acquire(0.05)
            with redis.Redis.from_url(server.url) as plain:
                left = {key: plain.pttl(key) for key in plain.scan_iter()}
    assert len(left) > 6
    assert [key for key, milliseconds in left.items() if milliseconds == -1] == []


def test_five_hundred_waiting_tasks_share_a_few_connections_and_all_get_their_turn(server: RedisServer) -> None:
    async def body() -> None:
        before = len(server.clients())
        async with leasehold.connect_async(server.url) as client, leasehold.connect_async(server.url) as other:
            first = await other.lock("name", ttl=30).acquire()
            turns: list[int] = []

            async def wait() -> None:
                async with client.lock("name", ttl=30, fair="strict").hold(timeout=100) as lease:
                    turns.append(lease.fence)

            tasks = [asyncio.create_task(wait()) for _ in range(MANY)]
            while (state := await other.inspect("name")) is None or len(state.waiting) < MANY:
                await asyncio.sleep(0.05)
            assert len(server.clients()) - before <= 6
            assert await first.release()
            await asyncio.gather(*tasks)
            assert turns == sorted(turns)
            assert len(set(turns)) == MANY
        state = None
        assert len(server.clients()) <= before

    asyncio.run(asyncio.wait_for(body(), 100))


def test_a_hundred_waiting_threads_share_a_few_connections(server: RedisServer) -> None:
    before = len(server.clients())
    with leasehold.connect(server.url) as client, leasehold.connect(server.url) as other:
        first = other.lock("name", ttl=30).acquire()
        turns: list[int] = []

        def wait() -> None:
            with client.lock("name", ttl=30, fair="strict").hold(timeout=100) as lease:
                turns.append(lease.fence)

        threads = [threading.Thread(target=wait) for _ in range(100)]
        for thread in threads:
            thread.start()
        eventually(lambda: waiters(other, "name") == 100)
        eventually(lambda: len(server.clients()) - before <= 16, "each waiting thread keeps a connection", 10)
        assert first.release()
        for thread in threads:
            thread.join()
        assert turns == sorted(turns)
        assert len(set(turns)) == 100
    eventually(lambda: len(server.clients()) <= before, "connections are left open", 10)


def test_odd_names_are_listed_broken_and_freed_each_for_itself(server: RedisServer) -> None:
    server.ask("SET", "theirs", "untouched")
    with leasehold.connect(server.url) as client, leasehold.connect(server.url, namespace="other*") as other:
        aside = other.lock("*").acquire()
        leases = {name: client.lock(name, ttl=60).acquire(timeout=10) for name in ODD_NAMES}
        assert sorted(state.name for state in client.locks()) == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            listed = [state.name for state in client.locks(name)]
            assert sorted(listed) == sorted(other for other in ODD_NAMES if other.startswith(name))
        for name, lease in leases.items():
            assert client.break_lock(name, fence=lease.fence, reason="test", now=True)
            assert client.inspect(name) is None
            assert len(client.locks()) == len(ODD_NAMES) - 1
            again = client.lock(name).acquire(timeout=10)
            assert len(client.locks()) == len(ODD_NAMES)
            assert again.fence > lease.fence
            leases[name] = again
            lease.release()
        assert [state.name for state in other.locks()] == ["*"]
        for lease in leases.values():
            assert lease.release()
        assert client.locks() == []
        assert aside.release()
    assert server.ask("GET", "theirs") == b"untouched"


def test_no_name_chooses_the_slot_of_another(cluster_nodes: RedisCluster) -> None:
    """A brace in a name must not become a hash tag: all such names would share one server."""
    cluster_nodes.flush()
    with leasehold.connect(cluster_nodes.url) as client:
        leases = [client.lock(f"{{tag}}{number}", ttl=30).acquire() for number in range(30)]
        used = [node for node in cluster_nodes.masters if node.ask("DBSIZE")]
        assert len(used) == 3
        for lease in leases:
            assert lease.release()


def test_scripts_come_from_files_and_never_contain_a_name(server: RedisServer) -> None:
    """However many names there are, the server keeps the same few scripts."""
    server.forget_scripts()
    with leasehold.connect(server.url) as client:
        client.lock("first").acquire().release()
        known = int(server.info("memory")["number_of_cached_scripts"])
        for number in range(50):
            client.lock(f"name {number} ']]").acquire().release()
        assert int(server.info("memory")["number_of_cached_scripts"]) == known
