"""A real Prometheus scrapes three processes and the exporter; its numbers agree with what the fleet did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

import leasehold
from tests.waiting import eventually
from verification.lab.process import free_port
from verification.lab.prometheus import PrometheusServer
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("fleet_worker.py")
RULES = ROOT / "deploy" / "prometheus" / "leasehold.rules.yml"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


class Program:
    """A process of ours, ended by its pid."""

    def __init__(self, stack: ExitStack, *words: str) -> None:
        self.port = free_port()
        words = tuple(word.replace("PORT", str(self.port)) for word in words)
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        stack.callback(self.end)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answers(self) -> bool:
        with suppress(OSError), urlopen(f"http://{self.target}/metrics", timeout=20) as answer:
            return bool(answer.status == 200)
        return False

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str, *, wait: bool = True) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        if wait:
            assert self.heard() == "done"

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


class Fleet:
    """Three workers, the exporter and Prometheus over one Redis."""

    def __init__(self, stack: ExitStack) -> None:
        self.redis = stack.enter_context(RedisServer())
        self.workers = [Program(stack, str(WORKER), self.redis.url, "PORT") for _ in range(3)]
        words = ("-m", "leasehold", "exporter", "--url", self.redis.url, "--listen", "127.0.0.1:PORT")
        self.exporter = Program(stack, *words, "--max-age", "100ms", "--patience", "2s", "-q")
        for worker in self.workers:
            assert worker.heard() == "ready"
        eventually(self.exporter.answers, "the exporter does not answer")
        targets = {"fleet": [worker.target for worker in self.workers], "exporter": [self.exporter.target]}
        self.prometheus = stack.enter_context(PrometheusServer(targets, rules=[RULES], interval=0.5))

    def sees(self, expression: str, value: float) -> None:
        eventually(lambda: self.prometheus.value(expression) == value, f"{expression} is not {value}")


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(stack)


def test_prometheus_sees_what_the_fleet_did(fleet: Fleet) -> None:
    first, second, third = fleet.workers
    for number, worker in enumerate(fleet.workers):
        worker.say(f"pairs {10 * (number + 1)}")
    first.say("hold job:nightly")
    second.say("hold job:hourly")
    third.say("hold job:nightly", wait=False)  # it waits behind the first
    fleet.sees('sum(leasehold_lock_acquire_duration_seconds_count{group="order:{id}",outcome="acquired"})', 60)
    fleet.sees('sum(leasehold_lock_hold_duration_seconds_count{group="order:{id}",end="released"})', 60)
    fleet.sees('sum(leasehold_lock_held{group="kept"})', 2)
    fleet.sees('sum(leasehold_lock_waiters{group="kept"})', 1)
    fleet.sees('leasehold_fleet_locks_held{group="job"}', 2)
    fleet.sees('leasehold_fleet_waiters{group="job"}', 1)
    fleet.sees("leasehold_up", 1)
    first.say("release job:nightly")
    assert third.heard() == "done"
    fleet.sees('sum(leasehold_lock_held{group="kept"})', 2)
    fleet.sees('sum(leasehold_lock_waiters{group="kept"})', 0)
    fleet.sees('leasehold_fleet_waiters{group="job"}', 0)
    first.say("lead")
    fleet.sees("sum(leasehold_leader_status)", 1)


def test_a_loss_and_a_store_that_is_away_fire_alerts(fleet: Fleet) -> None:
    first, second, _ = fleet.workers
    first.say("hold job:nightly")
    second.say("hold job:hourly")
    with leasehold.connect(fleet.redis.url) as client:
        state = client.inspect("job:nightly")
        assert state is not None
        client.break_lock("job:nightly", fence=state.holdings[0].fence, reason="test")
    fleet.sees('sum(leasehold_lock_lost_total{reason="broken"})', 1)
    eventually(lambda: "LeaseholdLockLost" in fleet.prometheus.firing(), "the loss fires no alert")
    fleet.redis.pause()
    fleet.sees("leasehold_up", 0)
    fleet.sees("count(leasehold_fleet_locks_held) or vector(0)", 0)
    fleet.sees('sum(leasehold_lock_renewals_total{outcome="failed"})', 1)
    eventually(lambda: "LeaseholdRenewalsFail" in fleet.prometheus.firing(), "failing renewals fire no alert")
    fleet.redis.resume()
    fleet.sees("leasehold_up", 1)
