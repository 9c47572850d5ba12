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

from tests.forms import sized
from tests.processes.optimistic_worker import Base
from tests.sql.desks import sqlalchemy_url
from tests.sql.pairs import fresh_url

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "processes" / "optimistic_worker.py"
DATABASES = ["postgresql", "mysql", "sqlite"]
PROCESSES = 4
TIMES = sized(25, 1000)

Process = subprocess.Popen[str]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    url = sqlalchemy_url(fresh_url(request, request.param, tmp_path))
    engine = sqlalchemy.create_engine(url)
    Base.metadata.create_all(engine)
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE slots (id INTEGER PRIMARY KEY, owner VARCHAR(9))"))
        tx.execute(text("INSERT INTO counters (id, n, version) VALUES (1, 0, 1)"))
    engine.dispose()
    yield url


def start(url: str, way: str, times: int, isolation: str = "default") -> Process:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, str(WORKER), url, way, str(times), isolation]
    process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "READY\n"
    return process


def let_go(processes: list[Process]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def race(url: str, way: str, isolation: str = "default") -> int:
    """All of them at once; how often they ran again."""
    processes = [start(url, way, TIMES, isolation) for _ in range(PROCESSES)]
    let_go(processes)
    again = 0
    for process in processes:
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        again += int(out.split()[-1])
    return again


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


@pytest.mark.parametrize(
    ("url", "isolation"),
    [("postgresql", "REPEATABLE READ"), ("postgresql", "SERIALIZABLE"), ("mysql", "READ COMMITTED"),
     ("mysql", "SERIALIZABLE")],
    indirect=["url"],
)  # fmt: skip
def test_no_level_of_isolation_loses_anything(url: str, isolation: str) -> None:
    race(url, "optimistic", isolation)
    assert counter(url) == (PROCESSES * TIMES, PROCESSES * TIMES + 1)


@pytest.mark.parametrize("way", ["locked", "stale"])
@pytest.mark.parametrize("url", sized(["postgresql", "mysql"], DATABASES), indirect=True)
def test_row_locks_and_sqlalchemy_s_versions_lose_nothing_either(url: str, way: str) -> None:
    again = race(url, way)
    assert counter(url)[0] == PROCESSES * TIMES
    if way == "locked" and "sqlite" not in url:
        assert again == 0, "who waits for the lock does not have to run again"


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_each_slot_is_taken_once(url: str) -> None:
    race(url, "once")
    assert counter(url)[0] == TIMES, "each process wants the same slots"


@pytest.mark.parametrize("url", DATABASES, indirect=True)
def test_killed_and_paused_writers_lose_and_repeat_nothing(url: str) -> None:
    """What a process has said was done is in the counter; of what it was at when it was killed, at most one is."""
    chance = random.Random(7)
    kills = sized(3, 60)
    said = 0
    steady = [start(url, "optimistic", TIMES) for _ in range(2)]
    let_go(steady)
    for _ in range(kills):
        victim = start(url, "optimistic", 10_000)
        let_go([victim])
        assert victim.stdout is not None
        for _ in range(chance.randint(1, 8)):
            assert victim.stdout.readline() == "+\n"
            said += 1
        victim.send_signal(signal.SIGSTOP)  # perhaps in the middle of a transaction, with the row locked
        victim.send_signal(signal.SIGKILL)
        out, _ = victim.communicate()
        said += out.count("+\n")
    for process in steady:
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        said += out.count("+\n")
    done, version = counter(url)
    assert said <= done <= said + kills
    assert version == done + 1
