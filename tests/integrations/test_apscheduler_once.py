"""APScheduler: each scheduled time of a job is run by one of several scheduler processes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

import leasehold
from leasehold.errors import ConfigurationError
from leasehold.integrations.apscheduler import OnceExecutor, _check, _OnceJob, _slot
from leasehold.testing.manual import ManualStore
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SOURCE = Path(leasehold.__file__).parents[1]
WORKER = Path(__file__).with_name("apscheduler_worker.py")


class Process:
    """A scheduler, and the events of its jobs."""

    def __init__(self, url: str, **options: Any) -> None:
        self.client = leasehold.connect(url, ttl=2)
        self.executor = OnceExecutor(self.client, **options)
        self.scheduler = BackgroundScheduler(executors={"default": self.executor}, timezone="UTC")
        self.events: list[Any] = []
        self.scheduler.add_listener(self.events.append, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        self.scheduler.start()

    def add(self, function: Callable[[], object], trigger: str = "date", **options: Any) -> Job:
        return self.scheduler.add_job(function, trigger, **{"id": "report", **options})

    def has_events(self, number: int) -> bool:
        return len(self.events) == number

    def close(self) -> None:
        self.scheduler.shutdown()
        self.client.close()


@pytest.fixture
def pair() -> Iterator[tuple[Process, Process]]:
    url = f"memory://{uuid.uuid4().hex}"
    first, second = Process(url), Process(url)
    yield first, second
    first.close()
    second.close()


def test_one_scheduled_time_runs_once_and_the_other_scheduler_is_told_by_whom(pair: tuple[Process, Process]) -> None:
    runs: list[str] = []
    when = datetime.now(UTC)
    for process in pair:
        process.add(lambda: runs.append("ran"), run_date=when, misfire_grace_time=60)
    eventually(lambda: all(process.events for process in pair))
    results = [process.events[0].retval for process in pair]
    assert runs == ["ran"]
    assert sorted(result.ran for result in results) == [False, True]
    skipped = next(result.skipped for result in results if not result)
    assert skipped.name == "apscheduler:report"
    assert skipped.slot == when.isoformat()


def test_processes_whose_intervals_began_at_different_times_share_them(pair: tuple[Process, Process]) -> None:
    first, second = pair
    job = first.add(lambda: "ran", "interval", hours=1, start_date=datetime(2026, 1, 1, 0, 10, tzinfo=UTC))
    twin = second.add(lambda: "ran", "interval", hours=1, start_date=datetime(2026, 1, 1, 0, 50, tzinfo=UTC))
    for hour in range(3):
        for process, its, minute in ((first, job, 10), (second, twin, 50)):
            moment = datetime(2026, 1, 1, hour, minute, tzinfo=UTC)
            process.executor.submit_job(_without_misfire(its), [moment])
            eventually(partial(process.has_events, hour + 1))
    assert [event.retval.ran for event in first.events] == [True, True, True]
    assert [event.retval.ran for event in second.events] == [False, False, False]


def _without_misfire(job: Job) -> Job:
    job.misfire_grace_time = None
    return job


def test_job_that_fails_is_an_error_of_the_scheduler_and_its_slot_stays_open(pair: tuple[Process, Process]) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    when = datetime.now(UTC)
    pair[0].add(fail, run_date=when, misfire_grace_time=60)
    eventually(lambda: pair[0].events)
    assert isinstance(pair[0].events[0].exception, ZeroDivisionError)
    pair[1].add(lambda: "ran", run_date=when, misfire_grace_time=60)
    eventually(lambda: pair[1].events)
    assert pair[1].events[0].retval.value == "ran"


@pytest.mark.parametrize(
    ("trigger", "options", "sentence"),
    [("date", {"id": None}, "say add_job"), ("cron", {"year": 9999, "jitter": 3}, "has jitter")],
)
def test_job_that_every_process_would_run_is_refused(
    pair: tuple[Process, Process], trigger: str, options: dict[str, Any], sentence: str
) -> None:
    runs: list[str] = []
    later = {"run_date": datetime.now(UTC) + timedelta(days=1)} if trigger == "date" else {}
    job = pair[0].add(lambda: runs.append("ran"), trigger, **later, **options)
    with pytest.raises(ConfigurationError, match=sentence):
        pair[0].executor.submit_job(job, [datetime.now(UTC)])
    assert runs == []


def test_mistakes_in_the_options_are_found_when_the_executor_is_made() -> None:
    with leasehold.connect("memory://") as client, pytest.raises(ConfigurationError, match="on_conflict"):
        OnceExecutor(client, on_conflict="wait")  # type: ignore[arg-type]


def test_processes_run_every_second_once_and_go_on_when_one_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SOURCE)])}
    command = [sys.executable, str(WORKER), f"sqlite:///{tmp_path}/locks.db"]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        lines = [_line(process) for process in processes for _ in range(2)]
        killed = time.time()
        processes[0].kill()
        lines += processes[0].communicate(timeout=LIMIT)[0].splitlines()
        while not (lines[-1].startswith("ran") and float(lines[-1].split()[1]) > killed):
            lines.append(_line(processes[1]))  # the one that is left runs alone
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    ran = [line.split()[1] for line in lines if line.startswith("ran")]
    assert len(ran) == len(set(ran)), "no second was run twice"


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("hours", [-11, -1, 0, 2, 9])
@pytest.mark.parametrize("interval", [False, True])
def test_a_run_has_one_name_in_every_time_zone(hours: int, interval: bool) -> None:
    job: Any = SimpleNamespace(trigger=IntervalTrigger(hours=1) if interval else object())
    instant = datetime(2030, 3, 4, 5, 6, tzinfo=UTC)
    there = instant.astimezone(timezone(timedelta(hours=hours)))
    assert _slot(job, there) == _slot(job, instant)
    assert _slot(job, there + timedelta(hours=1)) != _slot(job, instant)


def test_the_arguments_of_a_job_reach_its_function_in_every_one_of_its_times() -> None:
    store = ManualStore()
    with store.connect() as client:
        executor = OnceExecutor(client, 3, prefix="nightly:", keep="10d", on_failure="close")
        assert executor._pool._max_workers == 3
        seen: list[Any] = []
        times = [datetime(2030, 3, 4, hour, tzinfo=UTC) for hour in (1, 2)]
        job: Any = SimpleNamespace(
            id="report", trigger=object(), misfire_grace_time=None, args=("a",), kwargs={"b": 2},
            func=lambda *args, **kwargs: seen.append((args, kwargs)), _jobstore_alias="second",
        )  # fmt: skip
        executor._logger = logging.getLogger("test")
        events = executor._run(job, times)
        assert [(event.job_id, event.jobstore) for event in events] == [("report", "second")] * 2
        assert seen == [(("a",), {"b": 2})] * 2
        assert [event.scheduled_run_time for event in events] == times
        assert [event.code for event in events] == [EVENT_JOB_EXECUTED] * 2
        assert [bool(event.retval) for event in executor._run(job, times)] == [False, False]
        last = client.last_run("nightly:report", slot=times[0].isoformat())
        assert last is not None
        assert last.slot == times[0].isoformat()
        record = store.memory.read(f"leasehold:once:14:nightly:report:{last.slot}").record
        assert record is not None
        assert record.ttl == 10 * 86_400
        executor.shutdown()


def test_a_time_that_was_missed_for_too_long_is_not_run() -> None:
    with leasehold.connect("memory://") as client:
        executor = OnceExecutor(client)
        executor._logger = logging.getLogger("test")
        job: Any = SimpleNamespace(
            id="report", trigger=object(), misfire_grace_time=1, args=(), kwargs={}, func=lambda: "ran",
            _jobstore_alias="default",
        )  # fmt: skip
        assert str(_OnceJob(job, len)) == str(job), "the log knows it by its own words"
        (event,) = executor._run(job, [datetime(2020, 3, 4, tzinfo=UTC)])
        assert event.code == EVENT_JOB_MISSED
        assert client.last_run("apscheduler:report") is None
        executor.shutdown()


def test_an_interval_is_named_by_its_number_since_1970() -> None:
    job: Any = SimpleNamespace(trigger=IntervalTrigger(hours=2))
    assert _slot(job, datetime(1970, 1, 1, 5, 59, tzinfo=UTC)) == "2"
    assert _slot(job, datetime(1970, 1, 1, 6, 0, tzinfo=UTC)) == "3"


@pytest.mark.parametrize(
    ("name", "jitter", "refused"),
    [
        ("report", None, False),
        ("report", 0, False),
        ("report", 3, True),
        ("0123456789abcdef" * 2, None, True),
        ("0123456789abcdef" * 2 + "0", None, False),
        ("0123456789ABCDEF" * 2, None, False),
    ],
)
def test_only_a_job_that_all_processes_know_alike_is_taken(name: str, jitter: int | None, refused: bool) -> None:
    job: Any = SimpleNamespace(id=name, name="the job", trigger=SimpleNamespace(jitter=jitter))
    if refused:
        with pytest.raises(ConfigurationError):
            _check(job)
    else:
        _check(job)


def test_a_call_that_breaks_in_the_pool_is_logged_and_the_job_may_run_again(
    pair: tuple[Process, Process], caplog: pytest.LogCaptureFixture
) -> None:
    process = pair[0]
    job = _without_misfire(process.add(lambda: "ran", run_date=datetime.now(UTC) + timedelta(days=1)))
    broken: Any = process.executor
    broken._run = lambda *_: 1 / 0
    process.executor.submit_job(job, [datetime.now(UTC)])
    eventually(lambda: "ZeroDivisionError" in caplog.text)
    assert "broken._run = lambda" in caplog.text, "with the place where it broke"
    del broken._run
    process.executor.submit_job(job, [datetime.now(UTC)])  # of one instance at a time
    eventually(lambda: process.events)
    assert process.events[0].retval.value == "ran"
