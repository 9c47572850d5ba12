"""A Redis that lost a part of what it knew, or whose fences ran ahead of its clock: fences never repeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR_US = 3_600_000_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer(settings=["appendonly yes", "appendfsync everysec"])
    with server:
        yield server


def log_of(server: RedisServer) -> Path:
    (found,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    return found


@pytest.mark.parametrize("cut", [1, 400, 4000])
def test_power_cut_that_takes_the_end_of_the_log_does_not_repeat_a_fence(server: RedisServer, cut: int) -> None:
    with leasehold.connect(server.url) as client:
        fences = []
        for _ in range(50):
            lease = client.lock("name", ttl=30).acquire()
            fences.append(lease.fence)
            lease.release()
        held = client.lock("held", ttl=1, renew=False).acquire()
        time.sleep(1.5)  # so that the log is on disk, as far as it is going to be
        server.kill()
        log = log_of(server)
        log.write_bytes(log.read_bytes()[:-cut])
        server.start()
    with leasehold.connect(server.url) as client:  # one that has not seen those fences
        again = client.lock("name", ttl=30).acquire(timeout=60)
        assert again.fence > max(fences)
        assert again.release()
        successor = client.lock("held", ttl=30).acquire(timeout=60)
        assert successor.fence > held.fence
        assert successor.release()


def test_restart_with_a_whole_log_keeps_lock_and_fence(server: RedisServer) -> None:
    with leasehold.connect(server.url) as client:
        lease = client.lock("name", ttl=30).acquire()
        server.stop()
        server.start()
        assert client.lock("name").try_acquire() is None
        lease.check()
        assert lease.release()


def test_fences_that_ran_ahead_are_kept_by_the_client_that_saw_them_and_healed_for_the_others(
    redis_server: RedisServer,
) -> None:
    redis_server.flush()
    far = int(time.time() * 1e6) + HOUR_US // 2
    with leasehold.connect(redis_server.url) as client, leasehold.connect(redis_server.url) as other:
        assert client.raise_fence("name", far, reason="a clock was wrong") >= far
        ahead = client.lock("name").acquire()
        assert ahead.fence > far
        ahead.release()
        redis_server.flush()
        again = client.lock("name").acquire()
        assert again.fence > ahead.fence, "the client had seen a higher one"
        again.release()
        redis_server.flush()
        forgotten = other.lock("name").acquire()
        forgotten.release()
        assert forgotten.fence < again.fence, "the store cannot know; a guard would refuse it"
        other.raise_fence("name", again.fence, reason="a guard refused it")
        healed = other.lock("name").acquire()
        assert healed.fence > again.fence
        healed.release()


def test_keys_expire_and_no_name_leaves_an_immortal_one(redis_server: RedisServer) -> None:
    redis_server.flush()
    with leasehold.connect(redis_server.url) as client:
        for number in range(20):
            client.lock(f"lock {number}", ttl=5).acquire().release()
            client.semaphore(f"permits {number}", 3, ttl=5).acquire().release()
            client.rwlock(f"shared {number}", ttl=5).read.acquire().release()
            client.lock(f"left {number}", ttl=5, min_hold=1).acquire().release()
    keys = redis_server.ask("KEYS", "*")
    assert keys
    with redis_server.connect() as connection:
        for key in keys:
            left = connection.ask("PTTL", key)
            assert left != -1, f"{key} never expires"
            assert left <= 2 * 86_400_000, key
