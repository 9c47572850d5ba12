"""Processes that add to one counter: nothing is lost, whoever is killed, paused or cut off; without help much is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy import text

from leasehold.errors import OutcomeUnknown
from leasehold.sql import retry_on_conflict
from tests.forms import sized
from tests.processes.optimistic_worker import Base, optimistic
from tests.sql.desks import sqlalchemy_url
from tests.sql.pairs import fresh_url
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "processes" / "optimistic_worker.py"
DATABASES = ["postgresql", "mysql", "sqlite"]
PROCESSES = 4
TIMES = sized(12, 500)

Process = subprocess.Popen[str]
STARTED: list[Process] = []


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = sqlalchemy_url(fresh_url(request, request.param, tmp_path))
    engine = sqlalchemy.create_engine(url)
    Base.metadata.create_all(engine)
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE slots (id INTEGER PRIMARY KEY, owner VARCHAR(9))"))
        tx.execute(text("INSERT INTO counters (id, n, version) VALUES (1, 0, 1)"))
    engine.dispose()
    return url


def start(url: str, way: str, times: int, isolation: str = "default", processes: int = 1) -> Process:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}  # the same library as here
    command = [sys.executable, str(WORKER), url, way, str(times), isolation, str(processes)]
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
    STARTED.append(process)
    return process


def race(url: str, way: str, isolation: str = "default") -> int:
    """All of them at once; how often they ran again."""
    return finish(start(url, way, TIMES, isolation, PROCESSES))


def finish(racing: Process) -> int:
    out, _ = racing.communicate(timeout=600)
    assert racing.returncode == 0
    return int(out.split()[-1])


def counter(url: str) -> tuple[Any, ...]:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as tx:
        row = tuple(tx.execute(text("SELECT n, version FROM counters")).one())
    engine.dispose()
    return row


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_optimistic_writers_lose_nothing(url: str) -> None:
    race(url, "optimistic")
    assert counter(url) == (PROCESSES * TIMES, PROCESSES * TIMES + 1)


@pytest.mark.parametrize("url", ["postgresql", "mysql"], indirect=True)
def test_writers_without_a_version_lose_updates(url: str) -> None:
    """The control. SQLite itself refuses a transaction that has read before another wrote, so it loses nothing."""
    for _ in range(20):
        race(url, "naive")
        done, _ = counter(url)
        if done < PROCESSES * TIMES:
            return
        reset(url)
    pytest.fail("the control never lost an update")


def reset(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as tx:
        tx.execute(text("UPDATE counters SET n = 0"))
    engine.dispose()


LEVELS = [
    ("postgresql", "REPEATABLE READ"),
    ("postgresql", "SERIALIZABLE"),
    ("mysql", "READ COMMITTED"),
    ("mysql", "SERIALIZABLE"),
]


@pytest.mark.parametrize(("url", "isolation"), sized(LEVELS[::2], LEVELS), indirect=["url"])
def test_no_level_of_isolation_loses_anything(url: str, isolation: str) -> None:
    race(url, "optimistic", isolation)
    assert counter(url) == (PROCESSES * TIMES, PROCESSES * TIMES + 1)


OTHERS = [(database, way) for way in ("stale", "locked") for database in DATABASES]


@pytest.mark.parametrize(("url", "way"), sized(OTHERS[::4], OTHERS), indirect=["url"])
def test_row_locks_and_sqlalchemy_s_versions_lose_nothing_either(url: str, way: str) -> None:
    again = race(url, way)
    assert counter(url)[0] == PROCESSES * TIMES
    if way == "locked" and "sqlite" not in url:
        assert again == 0, "who waits for the lock does not have to run again"


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_each_slot_is_taken_once(url: str) -> None:
    race(url, "once")
    assert counter(url)[0] == TIMES, "each process wants the same slots"


@pytest.mark.timeout(sized(120, 1200))
@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_killed_and_paused_writers_lose_and_repeat_nothing(url: str) -> None:
    """What a process has said was done is in the counter; of what it was at when it was killed, at most one is."""
    chance = random.Random(7)
    kills = sized(2, 20)
    said = 2 * TIMES
    steady = start(url, "optimistic", TIMES, processes=2)
    for _ in range(kills):
        victim = start(url, "optimistic", 10_000)
        assert victim.stdout is not None
        for _ in range(chance.randint(1, 8)):
            assert victim.stdout.readline() == "+\n"
            said += 1
        victim.send_signal(signal.SIGSTOP)  # perhaps in the middle of a transaction, with the row locked
        victim.send_signal(signal.SIGKILL)
        out, _ = victim.communicate()
        said += out.count("+\n")
    finish(steady)
    done, version = counter(url)
    assert said <= done <= said + kills
    assert version == done + 1


@pytest.mark.parametrize("url", ["postgresql", "mysql"], indirect=True)
def test_commit_whose_answer_is_lost_was_done_and_is_not_done_again(url: str) -> None:
    """What the caller is told is that it does not know; to run the unit again would count it twice."""
    address = sqlalchemy.make_url(url)
    commit = b"\x03COMMIT" if "mariadb" in url else b"COMMIT"  # not the AUTOCOMMIT of a new connection
    with FaultProxy(("127.0.0.1", address.port or 0)) as proxy:
        engine = sqlalchemy.create_engine(address.set(host=proxy.address[0], port=proxy.address[1]))
        run = sqlalchemy.orm.sessionmaker(engine).begin
        retry_on_conflict(run, optimistic)
        proxy.swallow(commit)
        with pytest.raises(OutcomeUnknown):
            retry_on_conflict(run, optimistic)
        assert counter(url) == (2, 3)
        proxy.swallow(commit)
        retry_on_conflict(run, optimistic, idempotent=True)
        assert counter(url) == (4, 5), "the control: this unit is not idempotent, and was done twice"
        proxy.lose(b"UPDATE")
        with pytest.raises(sqlalchemy.exc.OperationalError):
            retry_on_conflict(run, optimistic)
        assert counter(url) == (4, 5), "lost before the commit: surely not done"
        engine.dispose()
