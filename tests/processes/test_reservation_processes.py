"""Processes that end or stop between reserve and confirm, or while they confirm: all tickets are sold once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from benchmarks.ticket_ways import make_engine, make_tables
from leasehold.sql import Stock
from tests.forms import sized
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import fresh_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TICKETS = 10
CONFIRMS_WITHIN = 0.02  # seconds, mostly
STOCK = Stock("tickets", table="ticket")


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/sale.db"
    elif request.param == "mariadb":
        url = fresh_mariadb(request.getfixturevalue("mariadb"))
    else:
        url = fresh_schema(request.getfixturevalue("postgres"))
    make_tables(url)
    return url


class Town:
    """Processes that sell, each watched by a thread that kills or stops it when the plan says so."""

    def __init__(self, url: str, plan: Iterator[str], seed: int = 0) -> None:
        self.url = url
        self.engine = make_engine(url)
        self.done: list[str] = []
        self.errors: list[str] = []
        self._plan = plan
        self._chance = random.Random(seed)
        self._turn = threading.Lock()

    def sell(self, processes: int) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM ticket")
            connection.exec_driver_sql("DELETE FROM sale")
            connection.exec_driver_sql(f"INSERT INTO ticket VALUES (1, {TICKETS}, 1)")
        watchers = [threading.Thread(target=self._watch) for _ in range(processes)]
        for watcher in watchers:
            watcher.start()
        for watcher in watchers:
            watcher.join()
        assert self.errors == []

    def _watch(self) -> None:
        while not self._until_killed():
            pass  # another process takes its place

    def _until_killed(self) -> bool:
        """Whether the process came to its own end."""
        command = [sys.executable, "-m", "tests.processes.reservation_worker", self.url, str(TICKETS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                word, _, key = line.strip().partition(" ")
                if word == "over":
                    return True
                if word == "expired":
                    self.done.append(word)
                    continue
                with self._turn:
                    act = next(self._plan, "go")
                self.done.append(act)
                if act == "kill":
                    process.kill()
                    return False
                if act == "kill inside":
                    self._let_go(process)
                    time.sleep(self._chance.uniform(0, CONFIRMS_WITHIN))  # before, in or after the transaction
                    process.kill()
                    return False
                if act == "stop":
                    self._stop_until_overdue(process.pid, key)
                self._let_go(process)
            self.errors.append("a process ended by itself")
        return True

    @staticmethod
    def _let_go(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    def _stop_until_overdue(self, pid: int, key: str) -> None:
        os.kill(pid, signal.SIGSTOP)
        while True:
            with self.engine.connect() as connection:
                found = STOCK.find(connection, key)
            if found is None or found.overdue or found.state != "held":
                break
            time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)


PLANS = {
    "between reserve and confirm": ["go", "kill", "stop", "go", "kill"],
    "while they confirm": ["kill inside", "go", "kill inside", "kill inside", "go", "kill inside"],
}


@pytest.mark.timeout(sized(120, 3600))
@pytest.mark.parametrize("when", PLANS)
def test_all_tickets_are_sold_once_although_processes_are_killed_and_stopped(url: str, when: str) -> None:
    plan, rounds = PLANS[when], sized(1, 50)
    for seed in range(rounds):
        town = Town(url, iter(plan), seed)
        town.sell(2)
        assert Counter(town.done) >= Counter(act for act in plan if "kill" in act)
        with town.engine.connect() as connection:
            sold = connection.exec_driver_sql("SELECT count(*) FROM sale").scalar_one()
            left = connection.exec_driver_sql("SELECT available FROM ticket").scalar_one()
            states = [each.state for each in STOCK.reservations(connection, limit=10_000)]
        town.engine.dispose()
        assert (sold, left) == (TICKETS, 0)
        assert "held" not in states
    assert states.count("confirmed") == TICKETS * rounds
