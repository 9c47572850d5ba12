"""Strict mode: a server whose process has changed may have lost what it knew, and grants nothing for a while."""

from __future__ import annotations

import time

import pytest

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


@pytest.mark.parametrize("timeout", [0, 0.5])
def test_lock_that_only_the_server_withholds_is_shown_without_a_holder(timeout: float) -> None:
    with RedisServer() as server, leasehold.connect(f"{server.url}?strict=30", ttl=1) as client:
        with pytest.raises(leasehold.AcquireTimeout, match=r"strict= lets the server grant nothing") as caught:
            client.lock("x").acquire(timeout=timeout)
        assert "held by" not in str(caught.value)
        assert caught.value.holder is None
        assert caught.value.retry_after is not None
        assert 20 < caught.value.retry_after <= 30


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
