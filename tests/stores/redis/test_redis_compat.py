"""`?compat=1`: leasehold, redis-py's Lock and redlock-py on one key exclude each other.

They know nothing of each other but the plain `SET key value NX PX`. `make faults` runs it with 10,000 grants.
"""

from __future__ import annotations

import importlib
import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from tests.forms import long_form
from tests.stores.support import eventually
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stores.support import Worker
    from verification.lab.redis_cluster import RedisCluster

GRANTS = 10_000 if long_form() else 800
PREFIX = "app:lock:"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    redis_server.flush()
    return redis_server


@pytest.fixture
def client(server: RedisServer) -> Iterator[leasehold.Client]:
    with leasehold.connect(ours(server)) as client:
        yield client


@pytest.fixture
def theirs(server: RedisServer) -> Iterator[Any]:
    redis = importlib.import_module("redis")
    with redis.Redis(port=server.port) as connection:
        yield connection


def ours(server: RedisServer) -> str:
    return f"{server.url}?compat=1&prefix={PREFIX}"


@pytest.mark.timeout(600)
def test_four_processes_of_three_libraries_are_never_inside_together(
    server: RedisServer, start: Callable[..., Worker], tmp_path: Path
) -> None:
    (tmp_path / "counter").write_text("0")
    each = GRANTS // 4
    name = "name"
    workers = [
        start("leasehold", ours(server), name, tmp_path, each),
        start("leasehold", ours(server), name, tmp_path, each),
        start("redis-py", server.url, PREFIX + name, tmp_path, each),
        start("redlock-py", server.url, PREFIX + name, tmp_path, each),
    ]
    for worker in workers:
        assert worker.line() == ["ready"]
    for worker in workers:
        worker.say("go")
    for worker in workers:
        assert worker.line() == ["done"], "two were inside together"
    assert (tmp_path / "counter").read_text() == str(4 * each)


def test_lock_of_redis_py_is_respected_and_waited_for(client: leasehold.Client, theirs: Any) -> None:
    lock = theirs.lock(PREFIX + "name", timeout=30)
    assert lock.acquire(blocking=False)
    assert client.lock("name").try_acquire() is None
    with pytest.raises(leasehold.AcquireTimeout):
        client.lock("name").acquire(timeout=0.2)
    state = client.inspect("name")
    assert state is not None
    assert len(state.holdings) == 1
    lock.release()
    lease = client.lock("name").acquire(timeout=10)
    assert not lock.acquire(blocking=False)
    assert lease.release()
    assert lock.acquire(blocking=False)
    lock.release()


def test_what_the_guide_writes_for_both_fleets_keeps_them_apart(server: RedisServer, theirs: Any) -> None:
    """Without `compat=1` on the page, both are granted."""
    page = (ROOT / "docs" / "how-to" / "migrate.md").read_text()
    ((they_write, we_write),) = re.findall(r"^\| `(redis\.lock\(.+\))` \| `(connect\(.+\))` \|$", page, re.MULTILINE)
    with ExitStack() as clients:

        def connect(url: str) -> leasehold.Client:
            return clients.enter_context(leasehold.connect(url.replace("redis://host", server.url)))

        their_lock, our_lock = eval(they_write, {"redis": theirs}), eval(we_write, {"connect": connect})
        assert their_lock.acquire(blocking=False)
        assert our_lock.try_acquire() is None
        their_lock.release()
        with our_lock.hold():
            assert not their_lock.acquire(blocking=False)


def test_lock_of_redis_py_that_expires_is_succeeded(client: leasehold.Client, theirs: Any) -> None:
    lock = theirs.lock(PREFIX + "name", timeout=0.5)
    assert lock.acquire(blocking=False)
    lease = client.lock("name", ttl=30).acquire(timeout=30)
    with pytest.raises(importlib.import_module("redis").exceptions.LockError):
        lock.release()
    lease.check()
    assert lease.release()


def test_our_late_release_does_not_free_their_lock(client: leasehold.Client, theirs: Any) -> None:
    lease = client.lock("name", ttl=0.3, renew=False).acquire()
    lock = theirs.lock(PREFIX + "name", timeout=30)
    assert lock.acquire(blocking_timeout=10)
    assert lease.release() is False
    assert lock.owned()
    lock.release()


def test_our_renewal_does_not_prolong_their_lock(server: RedisServer, client: leasehold.Client, theirs: Any) -> None:
    lease = client.lock("name", ttl=2).acquire()
    server.flush()
    lock = theirs.lock(PREFIX + "name", timeout=1.5)
    assert lock.acquire(blocking=False)
    assert lease.lost.wait(10)
    eventually(lambda: not lock.locked(), "their lock does not end", 10)


def test_a_client_that_polls_does_not_starve_beside_our_queue(server: RedisServer, theirs: Any) -> None:
    """A hand-over without a gap would leave no moment for a client that only asks now and then."""
    done = threading.Event()
    rounds = [0, 0, 0]

    def contend(number: int) -> None:
        with leasehold.connect(ours(server)) as client:
            while not done.is_set():
                with client.lock("name", ttl=30).hold(timeout=60):
                    rounds[number] += 1
                    time.sleep(0.002)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: min(rounds) > 5)
        lock = theirs.lock(PREFIX + "name", timeout=30, sleep=0.001)
        for _ in range(3):
            assert lock.acquire(blocking_timeout=60), "it starves"
            lock.release()
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_name_with_braces_is_refused_by_a_cluster_with_a_sentence_about_braces(cluster_nodes: RedisCluster) -> None:
    with leasehold.connect(f"{cluster_nodes.url}?compat=1&prefix={PREFIX}") as client:
        assert client.lock("plain").acquire(timeout=10).release()
        with pytest.raises(leasehold.BackendRejected, match=r"compat=1 a name must not contain \{ or \}"):
            client.lock("a{b}c").acquire(timeout=10)


def test_names_with_braces_are_the_other_program_s_keys_too(client: leasehold.Client, theirs: Any) -> None:
    for name in ("{tag}:rest", "a{b}c", "}", "{}", "plain"):
        lock = theirs.lock(PREFIX + name, timeout=30)
        assert lock.acquire(blocking=False)
        assert client.lock(name).try_acquire() is None
        lock.release()
        with client.lock(name).hold(timeout=10):
            assert not lock.acquire(blocking=False)
