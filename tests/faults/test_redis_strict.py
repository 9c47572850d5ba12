"""Strict mode: a server whose process has changed may have lost what it knew, and grants nothing for a while."""

from __future__ import annotations

import time

import leasehold
from verification.lab.redis import RedisServer

OFF = 3.0


def test_strict_store_grants_nothing_until_every_lease_of_a_lost_life_is_over() -> None:
    with RedisServer() as server:
        started = time.monotonic()
        with leasehold.connect(f"{server.url}?strict={OFF}", ttl=1) as client:
            assert client.lock("x").try_acquire() is None, "the server is too young to know what it may have lost"
            lease = client.lock("x").acquire(timeout=30)
            assert time.monotonic() - started >= OFF - 1.0  # the server counts its age in whole seconds
            assert client.lock("y").try_acquire(), "it is old enough now, for every name"
            lease.release()


def test_strict_store_notices_that_another_process_serves_the_old_data() -> None:
    with RedisServer(settings=["appendonly yes", "appendfsync always"]) as server:
        with leasehold.connect(f"{server.url}?strict={OFF}", ttl=1) as client:
            first = client.lock("x").acquire(timeout=30)
            assert first.release()
            server.stop()
            server.start()
            assert client.lock("x").try_acquire() is None
            second = client.lock("x").acquire(timeout=30)
            assert second.fence > first.fence
            second.release()
            assert client.lock("x").try_acquire(), "the same process is not held against it twice"


def test_without_strict_mode_a_young_server_grants_at_once() -> None:
    with RedisServer() as server, leasehold.connect(server.url, ttl=1) as client:
        assert client.lock("x").try_acquire()
