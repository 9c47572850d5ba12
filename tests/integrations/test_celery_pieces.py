"""Celery in one process: whose configuration counts, what a duplicate is told, and what a beat remembers."""

from __future__ import annotations

import math
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, signals
from celery.exceptions import Ignore, Retry
from celery.schedules import crontab, schedule

import leasehold
from leasehold._backends.memory import MemoryBackend
from leasehold.errors import AcquireTimeout, BackendUnavailable, ConfigurationError, LeaseLost, UnsupportedCapability
from leasehold.integrations.celery import Locks, was_skipped
from leasehold.integrations.celery.beat import NAME, TTL, WAIT, LeaderScheduler, _is_remembered
from leasehold.integrations.celery.clients import client_of, close_client
from leasehold.integrations.celery.unique import _end_duplicate
from leasehold.testing.losing import lose
from leasehold.values import Capability, Holder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("local", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield app
    close_client(app)
    app.close()


# --- configuration


def test_the_configuration_of_the_application_counts_more_than_what_is_given_in_code(app: Celery) -> None:
    app.conf.update(leasehold_ttl="1m")
    locks = Locks(app, "memory://celery-code", ttl="2m", namespace="shop")
    assert locks.client.lock("x").ttl == 60
    assert locks.client.store == "memory://celery-code"
    assert locks.client is client_of(app)
    with locks.client.lock("x").hold(), leasehold.connect("memory://celery-code", namespace="shop") as other:
        assert [state.name for state in other.locks()] == ["x"]


@pytest.mark.parametrize(
    ("config", "given", "timeout", "slow_wait"),
    [
        ({}, {}, None, 1.0),
        ({"leasehold_slow_wait": None}, {}, None, math.inf),
        ({}, {"slow_wait": None}, None, math.inf),
        ({"leasehold_slow_wait": 3}, {"slow_wait": None}, None, 3.0),
        ({"leasehold_timeout": None, "leasehold_slow_wait": None}, {"timeout": 2, "slow_wait": 3}, None, math.inf),
        ({}, {"timeout": 2, "slow_wait": 3}, 2.0, 3.0),
    ],
)
def test_an_option_that_is_none_was_said_and_not_left_out(
    app: Celery, config: dict[str, Any], given: Any, timeout: float | None, slow_wait: float
) -> None:
    app.conf.update(leasehold_url="memory://celery-none", **config)
    twin = Locks(app, **given).client._twin
    assert twin.store == "memory://celery-none"
    assert (twin._timeout, twin._slow_wait.after) == (timeout, slow_wait)


def test_every_client_is_closed_when_a_worker_stops(app: Celery) -> None:
    twin = Celery("twin", broker="memory://", set_as_current=False)
    for each in (app, twin):
        Locks(each, "memory://celery-two")
    leases = [client_of(each).lock(name).acquire() for each, name in ((app, "x"), (twin, "y"))]
    signals.worker_shutdown.send(sender=None)
    assert [lease.lost.is_set() for lease in leases] == [True, True]
    with leasehold.connect("memory://celery-two") as other:
        assert other.locks() == []
    twin.close()


def test_each_application_has_a_client_of_its_own(app: Celery) -> None:
    twin = Celery("twin", broker="memory://", set_as_current=False)
    for each, ttl in ((app, 11), (twin, 12)):
        each.conf.update(leasehold_url="memory://", leasehold_ttl=ttl)
    assert (client_of(app).lock("x").ttl, client_of(twin).lock("x").ttl) == (11, 12)
    close_client(twin)
    close_client(twin)
    twin.close()


@pytest.mark.parametrize("ends", [signals.worker_process_shutdown, signals.worker_shutdown], ids=["child", "worker"])
def test_a_worker_that_stops_gives_back_what_it_holds(app: Celery, ends: Any) -> None:
    locks = Locks(app, "memory://celery-shutdown")
    client, lease = locks.client, locks.client.lock("x").acquire()
    ends.send(sender=None)
    with leasehold.connect("memory://celery-shutdown") as other:
        assert other.inspect("x") is None
    assert lease.lost.is_set()
    assert locks.client is not client, "later calls open another one"


# --- duplicates


def task_of(app: Celery, **options: Any) -> tuple[Locks, Any]:
    locks = Locks(app, "memory://celery-pieces")

    @app.task(name="local.pay", shared=False)
    @locks.unique("order:{order}", **options)
    def pay(order: int, lease: leasehold.Lease = leasehold.CURRENT) -> Any:
        return lease.ttl, lease.holder.reason

    return locks, pay


def test_a_task_holds_its_lock_under_its_id_and_with_the_options_of_a_lock(app: Celery) -> None:
    _, pay = task_of(app, ttl=17)
    assert pay.apply((7,), task_id="one").result == (17, "task one")
    assert pay(7) == (17, None)


def test_the_template_is_the_group_of_a_unique_task(app: Celery) -> None:
    locks, pay = task_of(app)
    seen: list[Any] = []
    stop = locks.client.on_event(lambda event: seen.append(getattr(event, "group", None)))
    pay.apply((7,))
    assert seen[0] == "order:{order}"
    del seen[:]

    @app.task(name="local.refund", shared=False)
    @locks.unique("order:{order}", group="money")
    def refund(order: int) -> None:
        """Done."""

    refund.apply((7,))
    stop()
    assert seen[0] == "money"


def test_the_result_of_a_duplicate_names_the_lock_and_its_holder(app: Celery) -> None:
    locks, pay = task_of(app)
    with locks.client.lock("order:7").hold() as lease:
        result = pay.apply((7,)).result
    assert result == {"leasehold.skipped": "order:7", "holder": str(lease.holder)}
    assert was_skipped(result)
    assert not was_skipped({"skipped": 1})
    assert not was_skipped(["leasehold.skipped"])


@pytest.mark.parametrize(("timeout", "said"), [(0, "at once"), (0.05, "within")])
def test_a_duplicate_waits_if_that_was_said(app: Celery, timeout: float, said: str) -> None:
    locks, pay = task_of(app, timeout=timeout, on_duplicate="raise")
    with locks.client.lock("order:7").hold():
        error = pay.apply((7,)).result
    assert isinstance(error, AcquireTimeout)
    assert said in str(error)


class Task:
    """A task that a worker runs, and what it sent again."""

    def __init__(self, **request: Any) -> None:
        self.request = SimpleNamespace(id="one", is_eager=False, called_directly=False, retries=2, **request)
        self.sent: list[Any] = []

    def signature_from_request(self, request: Any, **options: Any) -> Any:
        assert request is self.request
        return SimpleNamespace(apply_async=lambda: self.sent.append(options))


@pytest.mark.parametrize("on_duplicate", ["skip", "retry", "ignore", "raise"])
def test_a_message_that_finds_its_own_lock_is_sent_again_whatever_is_said_of_duplicates(on_duplicate: Any) -> None:
    own = AcquireTimeout("busy", name="order:7", holder=Holder("h", 1, reason="task one"))
    task: Any = Task()
    with pytest.raises(Retry) as again:
        _end_duplicate(task, own, on_duplicate, 7.5, "task one")
    assert task.sent == [{"countdown": 7.5, "retries": 2}]
    assert (again.value.when, again.value.exc) == (7.5, own)


def test_another_task_is_no_message_that_comes_again() -> None:
    others = AcquireTimeout("busy", name="order:7", holder=Holder("h", 1, reason="task two"))
    unknown = AcquireTimeout("busy", name="order:7")
    task: Any = Task()
    for busy in (others, unknown):
        assert was_skipped(_end_duplicate(task, busy, "skip", 5.0, "task one"))
        with pytest.raises(AcquireTimeout):
            _end_duplicate(task, busy, "raise", 5.0, "task one")
    assert _end_duplicate(task, unknown, "skip", 5.0, "task one")["holder"] == "unknown"
    assert task.sent == []
    with pytest.raises(AcquireTimeout):
        _end_duplicate(None, others, "skip", 5.0, None)


@pytest.mark.parametrize(("options", "pause"), [({}, 5.0), ({"retry_in": "7.5s"}, 7.5), ({"retry_in": 0}, 0.0)])
def test_a_duplicate_comes_back_after_the_pause_that_was_said(
    app: Celery, monkeypatch: pytest.MonkeyPatch, options: Any, pause: float
) -> None:
    locks, pay = task_of(app, on_duplicate="retry", timeout=0.01, **options)
    task = Task()
    monkeypatch.setattr("leasehold.integrations.celery.unique._task", lambda: task)
    with locks.client.lock("order:7").hold(), pytest.raises(Retry):
        pay(7)
    assert task.sent == [{"countdown": pause, "retries": 2}]


def test_a_duplicate_that_is_ignored_says_of_which_lock() -> None:
    task: Any = Task()
    others = AcquireTimeout("order:7 is held", name="order:7", holder=Holder("h", 1, reason="task two"))
    with pytest.raises(Ignore, match="order:7 is held"):
        _end_duplicate(task, others, "ignore", 5.0, "task one")
    assert task.sent == []


@pytest.mark.parametrize("how", ["is_eager", "called_directly"])
def test_a_task_that_no_worker_runs_cannot_be_sent_again(how: str) -> None:
    task: Any = Task()
    setattr(task.request, how, True)
    with pytest.raises(AcquireTimeout):
        _end_duplicate(task, AcquireTimeout("busy"), "retry", 5.0, "task one")
    assert task.sent == []


# --- beats


@pytest.mark.parametrize(
    ("when", "is_remembered"),
    [
        (schedule(timedelta(seconds=59)), False),
        (schedule(timedelta(minutes=1)), True),
        (schedule(timedelta(hours=1)), True),
        (crontab(), True),
    ],
    ids=str,
)
def test_ticks_of_a_minute_and_more_are_remembered(when: Any, is_remembered: bool) -> None:
    entry: Any = SimpleNamespace(schedule=when)
    assert _is_remembered(entry) is is_remembered


def beat(app: Celery, folder: Path, **options: Any) -> LeaderScheduler:
    schedules = {
        "often": {"task": "often", "schedule": timedelta(seconds=1)},
        "nightly": {"task": "nightly", "schedule": timedelta(hours=1)},
    }
    app.conf.update(beat_schedule=schedules, leasehold_url=f"memory://{folder.name}", **options)
    return LeaderScheduler(app, schedule_filename=str(folder / "beat"), lazy=False)


def test_a_beat_leads_under_a_name_and_for_a_ttl_that_may_be_chosen(app: Celery, tmp_path: Path) -> None:
    assert (NAME, TTL) == ("celery-beat", 15.0)
    scheduler = beat(app, tmp_path)
    assert scheduler._leads()
    assert scheduler._lease is not None
    assert (scheduler._lease.name, scheduler._lease.ttl) == ("celery-beat", 15)
    scheduler.close()
    for options, name, ttl in (
        ({"ttl": 5}, "celery-beat", 5),
        ({"name": "beat-of-shop"}, "beat-of-shop", 15),
        ({"name": "beat-of-shop", "ttl": 7}, "beat-of-shop", 7),
    ):
        chosen = beat(app, tmp_path, leasehold_beat=options)
        assert (chosen._lock.name, chosen._lock.ttl) == (name, ttl)
        assert chosen._job_name(chosen.schedule["nightly"]) == f"{name}:nightly"
        chosen.close()


def test_schedules_of_seconds_leave_no_record_and_begin_anew_with_a_leader(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(
        "celery.beat.PersistentScheduler.apply_entry",
        lambda _, entry, producer=None: sent.append((entry.name, producer)),
    )
    scheduler = beat(app, tmp_path)
    often, nightly = (scheduler.schedule[name] for name in ("often", "nightly"))
    for entry in (often, nightly):
        entry.last_run_at = entry.default_now() - timedelta(days=1)
    before = often.last_run_at
    client = client_of(app)
    client.once("celery-beat:nightly", slot="2026-01-02T03:04:05+00:00").run(lambda: None)
    entries: Any = scheduler
    entries._heap = []
    assert scheduler._leads()
    assert scheduler._heap is None, "made anew from what was taken over"
    assert often.last_run_at > before, "what came due between two leaders is left out"
    assert nightly.last_run_at.isoformat() == "2026-01-02T03:04:05+00:00"
    for entry in (often, nightly):
        scheduler.apply_entry(entry, producer=f"of {entry.name}")
    assert sent == [("often", "of often"), ("nightly", "of nightly")]
    assert client.last_run("celery-beat:often") is None
    last = client.last_run("celery-beat:nightly")
    assert last is not None
    assert last.slot > "2026-01-03"
    assert scheduler._lease is not None
    lose(scheduler._lease)
    with pytest.raises(LeaseLost):
        scheduler.apply_entry(often)
    assert len(sent) == 2
    scheduler.close()


def test_a_beat_without_its_store_sends_nothing_and_looks_again_soon(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = beat(app, tmp_path)
    assert scheduler._leads()
    lease = scheduler._lease
    assert lease is not None

    def away(*_: object) -> float:
        raise BackendUnavailable("away")

    monkeypatch.setattr("celery.beat.PersistentScheduler.tick", away)
    assert scheduler.tick() == WAIT
    assert "cannot reach its locks" in caplog.text
    assert scheduler._lease is None, "another one that reaches the store may lead"
    assert lease.loss is None
    assert client_of(app).inspect("celery-beat") is None
    assert not scheduler._is_ticking

    def lost(*_: object) -> float:
        raise LeaseLost("lost")

    monkeypatch.setattr("celery.beat.PersistentScheduler.tick", lost)
    assert scheduler.tick() == WAIT
    assert "no longer leads" in caplog.text
    monkeypatch.setattr("celery.beat.PersistentScheduler.tick", lambda *_: 7)
    assert scheduler.tick() == 7.0
    scheduler.close()


def test_a_beat_that_stops_lets_the_next_one_lead_and_not_in_the_middle_of_a_tick(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []

    def close(scheduler: object) -> None:
        closed.append(scheduler)

    monkeypatch.setattr("celery.beat.PersistentScheduler.close", close)
    scheduler = beat(app, tmp_path)
    assert scheduler._leads()
    assert scheduler._leads(), "it still does, without asking"
    client = client_of(app)
    with leasehold.connect(f"memory://{tmp_path.name}") as other:
        scheduler._is_ticking = True
        scheduler.close()
        assert other.inspect("celery-beat") is not None, "the interrupted call may be in the middle of something"
        scheduler._is_ticking = False
        scheduler.close()
        assert other.inspect("celery-beat") is None
    assert client_of(app) is not client
    assert closed == [scheduler, scheduler], "Celery keeps its schedule in both cases"


class Line:
    """In the place of the lock of a beat: how long each call waited, and what it got."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.waits: list[float] = []

    def acquire(self, timeout: float) -> Any:
        self.waits.append(timeout)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_beat_that_does_not_lead_waits_in_line_for_a_while_and_sends_nothing(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[object] = []

    def tick(scheduler: object) -> float:
        ticks.append(scheduler)
        return 7

    monkeypatch.setattr("celery.beat.PersistentScheduler.tick", tick)
    scheduler: Any = beat(app, tmp_path)
    assert scheduler._lock._twin._spec.slow_wait == math.inf, "to be in line is usual for a beat"
    assert scheduler.tick() == 7
    first, lock = scheduler._lease, scheduler._lock
    lose(first)
    line = scheduler._lock = Line(AcquireTimeout("busy"), BackendUnavailable("away"))
    assert scheduler.tick() == 0, "it has waited already"
    assert (scheduler._lease, len(ticks), scheduler._is_ticking) == (None, 1, False)
    assert scheduler.tick() == WAIT
    assert (line.waits, len(ticks)) == ([WAIT, WAIT], 1)
    first.release()
    close_client(app)
    scheduler._lock = lock
    scheduler.close()


def test_a_beat_whose_store_is_away_when_it_stops_leaves_its_lock_to_its_ttl(app: Celery, tmp_path: Path) -> None:
    class Lease:
        def release(self) -> None:
            raise BackendUnavailable("away")

    scheduler: Any = beat(app, tmp_path)
    scheduler._lease = Lease()
    scheduler.close()
    assert scheduler._lease is None


def test_a_beat_is_refused_by_a_store_without_records_before_its_first_tick(
    app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "leasehold._backends.memory.MemoryBackend.capabilities", MemoryBackend.capabilities - {Capability.RECORD}
    )
    with pytest.raises(UnsupportedCapability, match="records"):
        beat(app, tmp_path)


def test_a_beat_whose_store_cannot_be_meant_is_refused_when_it_is_made(app: Celery, tmp_path: Path) -> None:
    app.conf.update(leasehold_url="nonsense")
    with pytest.raises(ConfigurationError):
        LeaderScheduler(app, schedule_filename=str(tmp_path / "beat"), lazy=False)
