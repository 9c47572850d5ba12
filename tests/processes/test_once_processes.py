"""`client.once` and `leasehold once` among real processes: together, killed, paused, with clocks that disagree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.memory import MemoryStore
from leasehold.testing.shared import serve
from tests.forms import sized
from tests.processes.command_line import LIMIT, SOURCE, CommandLine, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = Path(__file__).with_name("once_worker.py")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


class Workers:
    """Some processes that attempt together when told."""

    def __init__(self, url: str, number: int, work: str = "", skew: float = 0, tz: str = "UTC", **options: Any) -> None:
        words = [url, str(number), str(skew), json.dumps(options), work]
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "TZ": tz},
        )
        self.line()

    def line(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def outcomes(self) -> Counter[str]:
        output, _ = self._process.communicate(timeout=LIMIT * 2)
        return Counter(line.split()[0] for line in output.splitlines())

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def started() -> Iterator[list[Workers]]:
    workers: list[Workers] = []
    yield workers
    for worker in workers:
        worker.close()


def test_of_fifty_processes_that_fire_together_exactly_one_runs(tmp_path: Path, started: list[Workers]) -> None:
    for number, mode in enumerate(("skip", "standby") * sized(1, 4)):  # each time they also make the file together
        workers = Workers(f"sqlite:///{tmp_path}/{number}.db", 50, slot=mode, on_conflict=mode, ttl=30)
        started.append(workers)
        workers.go()
        assert workers.outcomes() == {"ran": 1, "skipped": 49}


def test_a_failed_run_leaves_its_slot_open_to_each_who_stands_by(tmp_path: Path, started: list[Workers]) -> None:
    failing = Workers(f"sqlite:///{tmp_path}/locks.db", 5, "fail", slot="x", on_conflict="standby", ttl=30)
    started.append(failing)
    failing.go()
    assert failing.outcomes() == {"failed": 5}
    working = Workers(f"sqlite:///{tmp_path}/locks.db", 3, slot="x", on_conflict="standby", ttl=30)
    started.append(working)
    working.go()
    assert working.outcomes() == {"ran": 1, "skipped": 2}


def test_a_runner_that_is_paused_for_too_long_is_replaced_and_cannot_record(
    tmp_path: Path, started: list[Workers]
) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    late = Workers(url, 1, "stay", slot="x")
    started.append(late)
    late.go()
    word, pid = late.line()
    assert word == "running"
    os.kill(int(pid), signal.SIGSTOP)
    try:
        others = Workers(url, 3, slot="x", on_conflict="standby")
        started.append(others)
        others.go()
        assert others.outcomes() == {"ran": 1, "skipped": 2}
    finally:
        os.kill(int(pid), signal.SIGCONT)
    late.go()
    assert late.outcomes() == {"lost": 1}


def test_the_stores_clock_decides_whatever_the_workers_clocks_and_zones_say(
    tmp_path: Path, started: list[Workers]
) -> None:
    now = datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC).timestamp()
    store = MemoryStore(wall=lambda: now)
    skews = [(-86_400, "Pacific/Apia"), (0, "UTC"), (86_400, "America/New_York"), (3600, "Asia/Kathmandu")]
    with serve(store, str(tmp_path / "store")) as url:
        for expected in ({"ran": 1, "skipped": 7}, {"skipped": 8}):
            workers = [Workers(url, 2, skew=skew, tz=zone, every="1d") for skew, zone in skews]
            started += workers
            for worker in workers:
                worker.go()
            assert sum((worker.outcomes() for worker in workers), Counter()) == expected
        now += 2  # midnight
        workers = [Workers(url, 2, skew=skew, tz=zone, every="1d") for skew, zone in skews]
        started += workers
        for worker in workers:
            worker.go()
        assert sum((worker.outcomes() for worker in workers), Counter()) == {"ran": 1, "skipped": 7}


# --- the command line


def test_the_command_runs_once_per_slot_and_gets_the_slot(program: CommandLine) -> None:
    words = ["once", "job", "--slot", "a b ü", "--", "sh", "-c", 'echo "$LEASEHOLD_SLOT|$LEASEHOLD_NAME"']
    first = program.finish(*words)
    assert (first.returncode, first.stdout, first.stderr) == (0, "a b ü|job\n", "")
    second = program.finish(*words)
    assert (second.returncode, second.stdout) == (0, "")
    assert "was run by sh on" in second.stderr
    assert "finished at" in second.stderr
    assert program.is_free("job")


@pytest.mark.parametrize("words", [["--every", "1d"], ["--cron", "0 2 * * *", "--tz", "Europe/Berlin"]])
def test_periods_and_ticks_run_once(program: CommandLine, words: list[str]) -> None:
    command = ["once", "job", *words, "--on-conflict", "fail", "--", "sh", "-c", 'echo "$LEASEHOLD_SLOT"']
    first = program.finish(*command)
    assert first.returncode == 0, first.stderr
    assert datetime.fromisoformat(first.stdout.strip()).tzinfo is not None
    assert program.finish(*command).returncode == 75
    assert program.finish(*command[:-4], "-E", "7", *command[-4:]).returncode == 7


def test_a_failed_command_leaves_its_slot_open_unless_told_otherwise(program: CommandLine) -> None:
    words = ["once", "job", "--slot", "x"]
    assert program.finish(*words, "--", "sh", "-c", "exit 3").returncode == 3
    assert program.finish(*words, "--close-on-failure", "--", "sh", "-c", "exit 4").returncode == 4
    closed = program.finish(*words, "--", "echo", "again")
    assert (closed.returncode, closed.stdout) == (0, "")
    assert "failed" in closed.stderr


def test_the_report_tells_what_became_of_it(program: CommandLine) -> None:
    report = program.folder / "report.json"
    words = ["once", "job", "--slot", "x", "--report", str(report), "--", "true"]
    program.finish(*words)
    ran = json.loads(report.read_text())
    assert (ran["outcome"], ran["slot"], ran["exit_code"]) == ("ran", "x", 0)
    assert ran["fence"] > 0
    program.finish(*words)
    skipped = json.loads(report.read_text())
    assert (skipped["outcome"], skipped["slot"]) == ("skipped", "x")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 64),
        (["--every", "1d", "--slot", "x"], 64),
        (["--cron", "nonsense"], 78),
        (["--every", "1d", "--tz", "nowhere"], 78),
    ],
)
def test_bad_usage_runs_nothing(program: CommandLine, words: list[str], code: int) -> None:
    result = program.finish("once", "job", *words, "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr


def test_when_the_runner_is_killed_one_of_those_who_stand_by_takes_over(program: CommandLine) -> None:
    script = "echo $$ >> runs; [ -e finish ] || exec sleep 60"
    words = ["once", "job", "--slot", "x", "--on-conflict", "standby", "--ttl", "3s", "--", "sh", "-c", script]
    runs = program.folder / "runs"
    first = program.start(*words)
    wait_for(lambda: runs.exists() and runs.read_text(), "the first one runs")
    others = [program.start(*words) for _ in range(4)]
    wait_for(lambda: program.queue("job") == 4, "four stand by")
    (program.folder / "finish").touch()
    first.send_signal(signal.SIGKILL)
    assert [other.wait(LIMIT) for other in others] == [0, 0, 0, 0]
    assert len(runs.read_text().split()) == 2
    wait_for(lambda: not program.survivors(), "everything that was started has ended")


def test_standing_by_ends_when_its_time_is_over(program: CommandLine) -> None:
    program.start("once", "job", "--slot", "x", "--", "sh", "-c", "touch started; exec sleep 60")
    wait_for((program.folder / "started").exists, "the first one runs")
    waiting = program.finish("once", "job", "--slot", "x", "--on-conflict", "standby", "-w", "0.2s", "--", "true")
    assert waiting.returncode == 75
    assert "is busy" in waiting.stderr
    running = program.finish("once", "job", "--slot", "x", "--", "true")
    assert running.returncode == 0
    assert "is being run by sh on" in running.stderr


def test_a_command_whose_lock_was_broken_is_stopped_and_its_slot_stays_open(program: CommandLine) -> None:
    words = ["once", "job", "--slot", "x", "--ttl", "1s", "--", "sh", "-c"]
    process = program.start(*words, "touch started; exec sleep 60")
    wait_for((program.folder / "started").exists, "it runs")
    with program.client() as client:
        state = client.inspect("job")
        assert state is not None
        assert client.break_lock("job", fence=state.holdings[0].fence, reason="a test", now=True)
    assert process.wait(LIMIT) == 79
    again = program.finish(*words, "echo again")
    assert (again.returncode, again.stdout) == (0, "again\n")
