"""Redis between real processes: holders, waiters and the server itself are killed and paused."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.support import Worker, eventually, waiters
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., Worker]

TASKS = ["hold", "hold-asyncio"]


@pytest.fixture(params=["redis_server"])
def server(request: pytest.FixtureRequest) -> RedisServer:
    found: RedisServer = request.getfixturevalue(request.param)
    found.flush()
    return found


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """One that this test may kill."""
    server = RedisServer()
    with server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[leasehold.Client]:
    with leasehold.connect(server.url) as client:
        yield client


def held(worker: Worker) -> int:
    """Wait until it holds; its fence. What it returned must not have been over."""
    words = worker.line()
    if words == ["asking"]:
        words = worker.line()
    word, fence, lost, remains = words
    assert (word, lost, remains) == ("held", "False", "True"), "it returned a lease that was over"
    return int(fence)


@pytest.mark.parametrize("server", ["redis_server", "valkey_server"], indirect=True)
def test_four_processes_never_lose_an_increment(server: RedisServer, start: Start, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    workers = [start("count", server.url, counter, 50) for _ in range(4)]
    for worker in workers:
        assert worker.line() == ["ready"]
    for worker in workers:
        worker.say("go")
    fences = [[int(worker.line()[1]) for _ in range(50)] for worker in workers]
    assert counter.read_text() == "200"
    assert all(own == sorted(own) for own in fences)
    assert len({fence for own in fences for fence in own}) == 200


@pytest.mark.parametrize("task", TASKS)
def test_killed_holder_is_succeeded_when_its_ttl_is_over(
    server: RedisServer, client: leasehold.Client, start: Start, task: str
) -> None:
    worker = start(task, server.url, "name", 2)
    fence = held(worker)
    worker.kill()
    killed = time.monotonic()
    with client.lock("name").hold(timeout=60) as lease:
        assert time.monotonic() - killed < 2 + 3
        assert lease.fence > fence
        assert lease.abandoned is True


@pytest.mark.parametrize("task", TASKS)
def test_paused_holder_is_succeeded_and_knows_it_when_it_wakes(
    server: RedisServer, client: leasehold.Client, start: Start, task: str
) -> None:
    worker = start(task, server.url, "name", 1)
    fence = held(worker)
    worker.send(signal.SIGSTOP)
    with client.lock("name", ttl=30).hold(timeout=60) as lease:
        assert lease.fence > fence
        worker.say("check")
        worker.send(signal.SIGCONT)
        assert worker.line()[0] == "lost", "the first thing after the pause must be the loss"
        assert worker.ask("release") == ["released", "False"]
        state = client.inspect("name")
        assert state is not None
        assert [holding.fence for holding in state.holdings] == [lease.fence]


@pytest.mark.parametrize("task", TASKS)
def test_killed_first_waiter_does_not_delay_the_second(
    server: RedisServer, client: leasehold.Client, start: Start, task: str
) -> None:
    lease = client.lock("name", ttl=30).acquire()
    first = start(task, server.url, "name", 30)
    eventually(lambda: waiters(client, "name") == 1)
    second = start(task, server.url, "name", 30)
    eventually(lambda: waiters(client, "name") == 2)
    first.kill()
    released = time.monotonic()
    lease.release()
    assert held(second) > lease.fence
    assert time.monotonic() - released < 10, "the dead one got the lock for its ttl of 30 seconds"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("server", "ttl"), [("redis_server", 1), ("redis_server", 4), ("valkey_server", 1)], indirect=["server"]
)
def test_waiter_stopped_at_the_hand_over_never_returns_a_lease_that_is_over(
    server: RedisServer, ttl: int, client: leasehold.Client, start: Start, task: str
) -> None:
    """It sleeps through its hand-over, through its claim window and its ttl; meanwhile another one has the lock."""
    first = client.lock("name", ttl=30).acquire()
    waiter = start(task, server.url, "name", ttl)
    assert waiter.line() == ["asking"]
    eventually(lambda: waiters(client, "name") == 1)
    waiter.send(signal.SIGSTOP)
    assert first.release()
    between = client.lock("name", ttl=30).acquire(timeout=60)
    assert between.fence > first.fence
    waiter.send(signal.SIGCONT)
    eventually(lambda: waiters(client, "name") == 1, "it does not stand in line again")
    assert waiter.is_silent(0.3)
    between.check()
    assert between.release()
    assert held(waiter) > between.fence
    assert waiter.ask("check") == ["ok"]
    assert waiter.ask("release") == ["released", "True"]


@pytest.mark.parametrize("task", TASKS)
def test_waiter_stopped_at_the_hand_over_for_a_moment_still_gets_it(
    server: RedisServer, client: leasehold.Client, start: Start, task: str
) -> None:
    first = client.lock("name", ttl=30).acquire()
    waiter = start(task, server.url, "name", 30)
    eventually(lambda: waiters(client, "name") == 1)
    waiter.send(signal.SIGSTOP)
    assert first.release()
    time.sleep(0.2)
    waiter.send(signal.SIGCONT)
    assert held(waiter) > first.fence
    assert waiter.ask("check") == ["ok"]


# --- the server


@pytest.mark.parametrize("task", TASKS)
def test_server_paused_for_less_than_the_ttl_costs_nothing(own_server: RedisServer, start: Start, task: str) -> None:
    holder = start(task, own_server.url, "name", 6)
    fence = held(holder)
    waiter = start(task, own_server.url, "name", 6)
    assert waiter.line() == ["asking"]
    with leasehold.connect(own_server.url) as client:
        eventually(lambda: waiters(client, "name") == 1)
    own_server.pause()
    time.sleep(2.5)
    own_server.resume()
    time.sleep(3)  # beyond the deadline that the lease had when the pause began
    assert holder.ask("check") == ["ok"]
    assert holder.ask("release") == ["released", "True"]
    assert held(waiter) > fence


@pytest.mark.parametrize("task", TASKS)
def test_server_paused_for_more_than_the_ttl_costs_the_lease_and_the_holder_knows_by_its_own_clock(
    own_server: RedisServer, start: Start, task: str
) -> None:
    holder = start(task, own_server.url, "name", 1)
    fence = held(holder)
    own_server.pause()
    paused = time.monotonic()
    assert holder.ask("lost") == ["told", "UNCONFIRMED"]
    assert time.monotonic() - paused < 1 + 3
    own_server.resume()
    with leasehold.connect(own_server.url) as client, client.lock("name").hold(timeout=60) as lease:
        assert lease.fence > fence
    assert holder.ask("release") == ["released", "False"]


@pytest.mark.parametrize("task", TASKS)
def test_server_killed_and_started_empty_costs_the_lease_and_fences_still_rise(
    own_server: RedisServer, start: Start, task: str
) -> None:
    holder = start(task, own_server.url, "name", 3)
    fence = held(holder)
    waiter = start(task, own_server.url, "name", 3)
    with leasehold.connect(own_server.url) as client:
        eventually(lambda: waiters(client, "name") == 1)
    own_server.kill()
    own_server.start()
    told, reason = holder.ask("lost")
    assert told == "told"
    assert reason in ("TAKEN", "UNCONFIRMED", "EXPIRED")
    assert held(waiter) > fence
    assert holder.ask("release") == ["released", "False"]
    assert waiter.ask("check") == ["ok"]


@pytest.mark.parametrize("task", TASKS)
def test_waiter_lives_through_an_outage_of_the_server(own_server: RedisServer, start: Start, task: str) -> None:
    with leasehold.connect(own_server.url) as client:
        lease = client.lock("name", ttl=6).acquire()
        waiter = start(task, own_server.url, "name", 5)
        eventually(lambda: waiters(client, "name") == 1)
        own_server.kill()
        time.sleep(1.5)
        own_server.start()
        assert held(waiter) > lease.fence
        assert lease.lost.wait(60)
