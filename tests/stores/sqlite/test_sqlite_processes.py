"""The SQLite store between real processes: killed, paused, forked, in a queue."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.forms import sized
from tests.stores.support import Worker
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SqliteWorker(Worker):
    """A process that runs one task of `sqlite_worker.py`."""

    program = Path(__file__).with_name("sqlite_worker.py")


@pytest.fixture
def kind_of_worker() -> type[Worker]:
    return SqliteWorker


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def client(url: str) -> Iterator[leasehold.Client]:
    with leasehold.connect(url) as client:
        yield client


def waiting(client: leasehold.Client, name: str) -> int:
    state = client.inspect(name)
    return 0 if state is None else len(state.waiting)


def test_eight_processes_never_lose_an_increment(start: Callable[..., Worker], url: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    workers = [start("count", url, counter, 40) for _ in range(8)]
    for worker in workers:
        assert worker.line() == ["ready"]
    for worker in workers:
        worker.say("go")
    fences = [[int(line.split()[1]) for line in worker.rest()] for worker in workers]
    assert counter.read_text() == "320"
    assert all(own == sorted(own) for own in fences)
    assert len({fence for own in fences for fence in own}) == 320


def test_killed_holder_is_succeeded_within_its_ttl_and_a_second(
    start: Callable[..., Worker], url: str, client: leasehold.Client
) -> None:
    worker = start("hold", url, "name", 2)
    fence = int(worker.line()[1])
    with pytest.raises(leasehold.AcquireTimeout):
        client.lock("name").acquire(timeout=0.1)
    worker.kill()
    killed = time.monotonic()
    with client.lock("name").hold(timeout=60) as lease:
        assert time.monotonic() - killed < 2 + 1
        assert lease.fence > fence
        assert lease.abandoned is True


def test_killed_first_waiter_does_not_delay_the_second(
    start: Callable[..., Worker], url: str, client: leasehold.Client
) -> None:
    lease = client.lock("name", ttl=30).acquire()
    first = start("hold", url, "name", 30)
    eventually(lambda: waiting(client, "name") == 1)
    second = start("queue", url, "name")
    eventually(lambda: waiting(client, "name") == 2)
    first.kill()
    released = time.monotonic()
    lease.release()
    assert float(second.line()[2]) - released < 2  # its place alone would live for three seconds


def test_paused_holder_s_late_write_is_refused_by_the_guard(
    start: Callable[..., Worker], url: str, tmp_path: Path
) -> None:
    database = tmp_path / "data.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE written (pid, fence)")
        connection.commit()
    paused = start("write", url, "name", 0.5, database)
    old = int(paused.line()[1])
    paused.say("write")
    assert paused.line() == ["written"]
    paused.send(signal.SIGSTOP)
    current = start("write", url, "name", 30, database)
    new = int(current.line()[1])
    assert new > old
    current.say("write")
    assert current.line() == ["written"]
    paused.say("write")
    paused.send(signal.SIGCONT)
    assert paused.line() == ["stale", str(old), str(new), "True"]
    current.say("write")
    assert current.line() == ["written"]
    with closing(sqlite3.connect(database)) as connection:
        fences = [fence for (fence,) in connection.execute("SELECT fence FROM written ORDER BY rowid")]
    assert fences == [old, new, new]


@pytest.mark.timeout(300)  # the long form has 206 starts of Python, one after the other
def test_kills_at_random_points_leave_nothing_that_matters(
    start: Callable[..., Worker], url: str, client: leasehold.Client, tmp_path: Path
) -> None:
    chance = random.Random(4711)
    highest, kills = 0, 0
    workers = [start("loop", url, number) for number in range(6)]
    while kills < sized(30, 200):
        worker = workers.pop(0)
        highest = max(highest, int(worker.line()[0]))  # it is in its loop
        time.sleep(chance.uniform(0, 0.02))
        worker.kill()
        kills += 1
        fences = [int(line) for line in worker.rest() if line]
        assert fences == sorted(set(fences))
        highest = max([highest, *fences])
        workers.append(start("loop", url, kills))
        if kills % 20 == 0:
            with client.lock("loop", ttl=5).hold(timeout=60) as lease:
                assert lease.fence > highest
                highest = lease.fence
    for worker in workers:
        worker.kill()
        highest = max([highest, *(int(line) for line in worker.rest() if line)])
    for lock in (client.rwlock("shared").write, client.lock("cooling"), client.lock("loop")):
        with lock.hold(timeout=60) as lease:
            assert lease.name != "loop" or lease.fence > highest
    with client.semaphore("permits", 2).hold(timeout=60), client.semaphore("permits", 2).hold(timeout=60):
        assert client.semaphore("permits", 2).try_acquire() is None
    with closing(sqlite3.connect(tmp_path / "locks.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    eventually(lambda: client.locks() == [])


def test_processes_get_their_turn_in_order_of_arrival(
    start: Callable[..., Worker], url: str, client: leasehold.Client
) -> None:
    workers = []
    with client.lock("name").hold():
        for number in range(6):
            workers.append(start("queue", url, "name"))
            eventually(lambda number=number: waiting(client, "name") == number + 1)  # type: ignore[misc]
        state = client.inspect("name")
        assert state is not None
        assert [holder.pid for holder in state.waiting] == [worker.pid for worker in workers]
    turns = [worker.line() for worker in workers]
    fences = [int(fence) for _, fence, _ in turns]
    assert fences == sorted(fences)


def test_forked_child_has_its_own_connection_and_leaves_the_parent_s_alone(
    url: str, client: leasehold.Client, start: Callable[..., Worker]
) -> None:
    lease = client.lock("parent", ttl=20).acquire()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - in the child
        words = []
        try:
            words.append(str(client.lock("parent").try_acquire()))
            words.append(str(lease.release()))
            own = client.lock("child").acquire(timeout=30)
            words.append(str(own.release()))
            with leasehold.connect(url) as another:
                words.append(str(another.lock("parent").try_acquire()))
            client.close()
        except BaseException as error:
            words.append(repr(error))
        os.write(writing, ",".join(words).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        seen = answer.read()
    os.waitpid(pid, 0)
    assert seen == "None,False,True,None"
    lease.check()
    worker = start("hold", url, "parent", 5)
    eventually(lambda: waiting(client, "parent") == 1)
    assert lease.release()
    assert worker.line()[0] == "held"


def test_parent_that_closes_does_not_take_the_log_away_from_its_child(tmp_path: Path, url: str) -> None:
    """SQLite removes the log with the last connection; a child must count as one of its own."""
    client = leasehold.connect(url)
    client.lock("before").acquire().release()
    go, going = os.pipe()
    answers, answering = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - in the child
        try:
            held = client.lock("child", ttl=30).acquire()
            os.write(answering, b"held\n")
            os.read(go, 1)
            held.renew()
            later = client.lock("later", ttl=30).acquire()  # written after the parent has closed
            os.write(answering, f"{held.fence} {later.fence}\n".encode())
        finally:
            os._exit(0)
    with os.fdopen(answers) as lines:
        assert lines.readline() == "held\n"
        client.close()
        os.write(going, b"!")
        fences = lines.readline().split()
        os.waitpid(pid, 0)
    with leasehold.connect(url) as other:
        for name, fence in zip(("child", "later"), fences, strict=True):
            state = other.inspect(name)
            assert state is not None
            assert state.holdings[0].fence == int(fence)
    for descriptor in (go, going, answering):
        os.close(descriptor)


def test_two_clients_of_one_process_exclude_each_other(url: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    clients = [leasehold.connect(url) for _ in range(2)]

    def work(client: leasehold.Client) -> None:
        for _ in range(50):
            with client.lock("counter", ttl=10).hold(timeout=100):
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=work, args=(client,)) for client in clients for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "200"
    for client in clients:
        client.close()
