"""Exactly once in effect: workers killed at every statement, paused, cut off, and many duplicates at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from leasehold.errors import InFlight
from tests.forms import sized
from tests.processes import idempotency_worker as worker
from tests.sql.desks import fresh_schema
from tests.waiting import eventually
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """A process of `idempotency_worker`."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.idempotency_worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "src")])},
        )

    def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def rest(self) -> list[Any]:
        output, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        return [json.loads(line) for line in output.splitlines()]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def started() -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    yield workers
    for each in workers:
        each.close()


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/data.db"
    if request.param == "postgresql":
        url = fresh_schema(request.getfixturevalue("postgres"))
    elif request.param == "mysql":
        url = request.getfixturevalue("mariadb_database")
    worker.prepare(url, fresh=False)
    return url


@pytest.mark.timeout(600)
@pytest.mark.parametrize("table", sized(["fresh"], ["there", "fresh"]))
def test_worker_killed_at_any_statement_has_its_effect_exactly_once(
    url: str, table: str, started: list[Worker]
) -> None:
    started.append(Worker("kill", url, table))
    ends = started[0].rest()
    assert len(ends) > 12, "the statements are counted"
    for end in ends:
        assert end["ended_by"] == signal.SIGKILL, end
        assert len(end["effects"]) == 1, end
        assert end["results"] == end["effects"] * 2, end
    committed = [end["step"] for end in ends if end["effects"] == ["first"]]
    assert committed == ["after COMMIT", "before the end"], "and what was not committed has not happened"


def test_fifty_duplicates_over_four_processes_have_one_effect(url: str, started: list[Worker]) -> None:
    for turn in range(sized(1, 10)):
        key = f"order {turn}"
        workers = [Worker("race", url, str(threads), key) for threads in (13, 13, 12, 12)]
        started.extend(workers)
        for each in workers:
            assert each.line() == "ready"
        for each in workers:
            each.go()
        results = [result for each in workers for line in each.rest() for result in line]
        assert len(results) == 50
        assert [*set(results)] == worker.effects(url, key)


def test_paused_worker_keeps_its_key_and_a_killed_one_gives_it_back(url: str, started: list[Worker]) -> None:
    started.append(Worker("stay", url, "k"))
    first = started[0]
    assert first.line() == "working"
    first.process.send_signal(signal.SIGSTOP)  # its transaction is open, and has made the table
    with closing(worker.connect(url)) as connection:
        if url.startswith("sqlite"):
            connection.execute("PRAGMA busy_timeout = 50")
        with pytest.raises(InFlight):
            worker.charge(connection, "k", "too early", worker.Steps(None))
    first.process.send_signal(signal.SIGCONT)
    first.go()
    assert first.rest() == ["stayed"]
    assert worker.ask(url, "k", "late") == "stayed"
    assert worker.effects(url, "k") == ["stayed"]

    started.append(Worker("stay", url, "another"))
    assert started[1].line() == "working"
    started[1].process.send_signal(signal.SIGSTOP)
    started[1].process.kill()
    started[1].process.wait()
    assert worker.ask(url, "another", "second") == "second"
    assert worker.effects(url, "another") == ["second"]


@pytest.fixture
def proxied(postgres: PostgresServer) -> Iterator[tuple[str, str, FaultProxy]]:
    """A database as it is, the same through a proxy, and the proxy."""
    url = fresh_schema(postgres)
    worker.prepare(url, fresh=False)
    worker.ask(url, "the table is made", "x")
    with FaultProxy(("127.0.0.1", postgres.port)) as proxy:
        yield url, url.replace(f":{postgres.port}", f":{proxy.port}"), proxy


def test_commit_whose_answer_is_lost_is_replayed(proxied: tuple[str, str, FaultProxy]) -> None:
    url, through, proxy = proxied
    proxy.swallow(b"COMMIT")
    with closing(worker.connect(through)) as connection, pytest.raises(psycopg.OperationalError):
        worker.charge(connection, "k", "first", worker.Steps(None))
    assert worker.ask(url, "k", "second") == "first"
    assert worker.effects(url, "k") == ["first"]


def test_commit_that_never_arrives_is_as_if_nothing_had_been(proxied: tuple[str, str, FaultProxy]) -> None:
    url, through, proxy = proxied
    proxy.lose(b"COMMIT")
    with closing(worker.connect(through)) as connection, pytest.raises(psycopg.OperationalError):
        worker.charge(connection, "k", "first", worker.Steps(None))
    assert worker.ask(url, "k", "second") == "second"
    assert worker.effects(url, "k") == ["second"]


def test_commit_that_arrives_late_keeps_the_key_until_then(proxied: tuple[str, str, FaultProxy]) -> None:
    """The client has given up and asks again, while its first commit is still on its way."""
    url, through, proxy = proxied
    proxy.keep_back(b"COMMIT")
    with closing(worker.connect(through)) as connection, pytest.raises(psycopg.OperationalError):
        worker.charge(connection, "k", "first", worker.Steps(None))
    with closing(worker.connect(url)) as connection, pytest.raises(InFlight):
        worker.charge(connection, "k", "second", worker.Steps(None))
    proxy.deliver()
    assert worker.ask(url, "k", "second") == "first"
    eventually(lambda: worker.effects(url, "k") == ["first"])
