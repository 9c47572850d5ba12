"""Celery: unique tasks on a real worker of processes, what is left after a kill, and beats that take turns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from celery import Celery, signals
from celery.exceptions import Ignore

import leasehold
from leasehold.errors import AcquireTimeout, ConfigurationError
from leasehold.integrations.celery import Locks, was_skipped
from leasehold.integrations.celery.beat import LeaderScheduler
from leasehold.integrations.celery.clients import close_client
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.lab.redis import RedisServer

ROOT = Path(__file__).parents[2]
SOURCE = Path(leasehold.__file__).parents[1]
TTL = 2.0


class Shop:
    """The application, as a process that sends tasks sees it, and what its worker has noted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Celery(broker=f"{url}/1", backend=f"{url}/2")
        self.memory = redis.Redis.from_url(f"{url}/3", decode_responses=True)
        self.locks = leasehold.connect(f"{url}/3", ttl=TTL)

    def send(self, task: str, *args: Any) -> Any:
        return self.app.send_task(f"shop.{task}", args)

    def runs(self, task: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.memory.lrange("runs", 0, -1)]
        return [line for line in lines if line["task"] == f"shop.{task}"]

    def is_free(self, name: str) -> bool:
        state = self.locks.inspect(name)
        return state is None or not (state.holdings or state.waiting)

    def start(self, *words: str, folder: Path) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SHOP_REDIS": self.url,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(SOURCE)]),
        }
        command = [sys.executable, "-m", "celery", "-A", "tests.integrations.celery_shop", *words]
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    def close(self) -> None:
        self.locks.close()
        self.memory.close()
        self.app.close()


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(LIMIT)
    finally:
        process.kill()


@pytest.fixture(scope="module")
def shop(redis_server: RedisServer) -> Iterator[Shop]:
    redis_server.flush()
    shop = Shop(redis_server.url.removesuffix("/0"))
    yield shop
    shop.close()


@pytest.fixture(scope="module")
def worker(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One worker of three processes for all tests, because it takes seconds to start."""
    words = ("worker", "--concurrency=3", "--without-gossip", "--without-mingle", "--without-heartbeat")
    folder = tmp_path_factory.mktemp("worker")
    process = shop.start(*words, folder=folder)
    eventually(lambda: process.poll() is not None or shop.app.control.ping(timeout=0.2))
    assert process.poll() is None, (folder / "log").read_text()
    yield shop
    end(process)


# --- unique tasks


def test_duplicate_is_skipped_while_the_first_runs_and_others_are_not(worker: Shop) -> None:
    first = worker.send("invoice", 7, "wait")
    eventually(lambda: worker.runs("invoice"))
    duplicate = worker.send("invoice", 7, "another month")
    other = worker.send("invoice", 8, "now")
    skipped = duplicate.get(timeout=LIMIT)
    assert was_skipped(skipped)
    assert skipped["leasehold.skipped"] == "invoice:7"
    assert other.get(timeout=LIMIT) == "invoice of 8"
    worker.memory.set("go:7", 1)
    assert first.get(timeout=LIMIT) == "invoice of 7"
    assert not was_skipped("invoice of 7")
    runs = worker.runs("invoice")
    assert [run["customer"] for run in runs] == [7, 8]
    assert all(run["forked"] and run["holder"] == run["pid"] for run in runs), "the children hold, not their parent"
    eventually(lambda: worker.is_free("invoice:7"))


def test_duplicate_that_comes_back_runs_later_with_all_its_retries(worker: Shop) -> None:
    first = worker.send("invoice", 9, "wait")
    eventually(lambda: [run for run in worker.runs("invoice") if run["customer"] == 9])
    duplicate = worker.send("later", 9)
    eventually(lambda: duplicate.state == "RETRY")
    assert worker.runs("later") == []
    worker.memory.set("go:9", 1)
    assert duplicate.get(timeout=LIMIT) == "at last"
    assert first.get(timeout=LIMIT) == "invoice of 9"
    assert [run["retries"] for run in worker.runs("later")] == [0]


# Before a process of the pool is killed: the one that takes its place does not always get the signal of Celery's limit.
def test_soft_time_limit_frees_the_lock_and_leaves_the_queue(worker: Shop) -> None:
    with worker.locks.lock("slow:8").hold():
        waiting = worker.send("slow", 8)  # never begins: the limit finds it in the queue
        running = worker.send("slow", 7)
        for result in (waiting, running):
            with pytest.raises(Exception, match="SoftTimeLimitExceeded"):
                result.get(timeout=LIMIT)
        state = worker.locks.inspect("slow:8")
        assert state is not None
        assert not state.waiting
    assert worker.is_free("slow:7"), "given back, and not left to its ttl"
    assert 8 not in [run["order"] for run in worker.runs("slow")]


def test_task_whose_worker_was_killed_runs_again_when_its_lock_has_run_out(worker: Shop) -> None:
    assert worker.send("killed", 7).get(timeout=LIMIT) is True, "abandoned, and not skipped as a duplicate of itself"
    first, second = worker.runs("killed")
    assert first["id"] == second["id"]
    assert first["pid"] != second["pid"]
    assert first["fence"] < second["fence"]


def test_message_that_comes_again_is_no_duplicate_of_itself(worker: Shop) -> None:
    name = uuid.uuid4().hex
    with worker.locks.lock("invoice:10", reason=f"task {name}").hold():  # as a worker that was killed has left it
        again = worker.app.send_task("shop.invoice", (10, "now"), task_id=name)
        eventually(lambda: again.state != "PENDING")
        assert again.state == "RETRY", "it was not skipped"
    assert again.get(timeout=LIMIT) == "invoice of 10"


def test_task_that_retries_itself_has_given_its_lock_back(worker: Shop) -> None:
    assert worker.send("again", 7).get(timeout=LIMIT) == "third time"
    assert [run["retries"] for run in worker.runs("again")] == [0, 1, 2]


# --- in one process


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("local", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield app
    close_client(app)
    app.close()


def task_with(app: Celery, **options: Any) -> tuple[Locks, Any]:
    locks = Locks(app, "memory://celery")

    @app.task(name="local.ship", shared=False)
    @locks.unique("order:{order}", **options)
    def ship(order: int, speed: str = "slow", lease: leasehold.Lease = leasehold.CURRENT) -> str:
        return f"{order} {speed} {lease.name}"

    return locks, ship


@pytest.mark.parametrize(
    ("on_duplicate", "state", "result"),
    [("skip", "SUCCESS", dict), ("ignore", "IGNORED", Ignore), ("raise", "FAILURE", AcquireTimeout)],
)
def test_what_becomes_of_a_duplicate_is_chosen(app: Celery, on_duplicate: Any, state: str, result: type) -> None:
    locks, ship = task_with(app, on_duplicate=on_duplicate)
    with locks.client.lock("order:7").hold():
        ended = ship.apply((7,))
        assert (ended.state, type(ended.result)) == (state, result)
        with pytest.raises(AcquireTimeout):
            ship(7)  # as a function, it is no task that could be skipped
    assert ship.apply((7,)).result == "7 slow order:7"


def test_arguments_are_still_checked_when_a_task_is_sent_and_the_lease_is_none(app: Celery) -> None:
    _, ship = task_with(app)
    ship.apply_async((7, "fast"))
    with pytest.raises(TypeError):
        ship.apply_async((7, "fast", "lease"))
    with pytest.raises(TypeError):
        ship.apply_async(())


def test_mistakes_are_found_at_import(app: Celery) -> None:
    locks = Locks(app, "memory://celery")
    with pytest.raises(ConfigurationError, match="order_id"):
        locks.unique("order:{order_id}")(lambda order: None)
    with pytest.raises(ConfigurationError, match="on_duplicate"):
        task_with(app, on_duplicate="drop")
    with pytest.raises(ConfigurationError, match="reason"):
        task_with(app, reason="mine")


# --- beat


def entry_of(scheduler: LeaderScheduler) -> Any:
    return scheduler.schedule["nightly"]


@pytest.fixture
def beats(tmp_path: Path) -> Iterator[Callable[[], LeaderScheduler]]:
    """Makes beats of one application, each with a file and a client of its own, as on hosts of their own."""
    made: list[LeaderScheduler] = []

    def make() -> LeaderScheduler:
        twin = Celery("local", broker="memory://", set_as_current=False)
        schedule = {"nightly": {"task": "nightly", "schedule": timedelta(hours=1)}}
        locks = {"leasehold_url": f"memory://{tmp_path.name}", "leasehold_beat": {"name": "our-beat", "ttl": TTL}}
        twin.conf.update(beat_schedule=schedule, **locks)
        made.append(LeaderScheduler(twin, schedule_filename=str(tmp_path / f"beat-{len(made)}"), lazy=False))
        entry = entry_of(made[-1])
        entry.last_run_at = entry.default_now() - timedelta(hours=2)  # due
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close()
        scheduler.app.close()


@pytest.fixture
def sent() -> Iterator[list[str]]:
    names: list[str] = []

    def note(sender: str, **_: object) -> None:
        names.append(sender)

    signals.before_task_publish.connect(note)
    yield names
    signals.before_task_publish.disconnect(note)


def test_only_the_leader_sends_and_its_successor_does_not_repeat_what_was_sent(
    beats: Callable[[], LeaderScheduler], sent: list[str], tmp_path: Path
) -> None:
    first, second = beats(), beats()
    first.tick()
    assert sent == ["nightly"]
    assert second.tick() == 0  # it waited for the leadership in vain
    assert sent == ["nightly"]
    first.close()
    assert second.tick() > 0
    assert sent == ["nightly"], "it knows that this was sent, although its own file says that it is due"
    entry = entry_of(second)
    with leasehold.connect(f"memory://{tmp_path.name}") as client:
        last = client.last_run("our-beat:nightly")
    assert last is not None
    assert last.slot == entry.last_run_at.isoformat()


def test_leader_that_lost_its_lock_sends_nothing_and_goes_on_when_it_has_it_again(
    beats: Callable[[], LeaderScheduler], sent: list[str], tmp_path: Path
) -> None:
    beat = beats()
    beat._leads()
    assert beat._lease is not None
    with leasehold.connect(f"memory://{tmp_path.name}") as client:
        assert client.break_lock("our-beat", fence=beat._lease.fence, reason="test", now=True)
        eventually(beat._lease.lost.is_set)
        with client.lock("our-beat").hold():
            assert beat.tick() == 0
            assert sent == []
    beat.tick()
    assert sent == ["nightly"]


def test_signal_that_finds_a_beat_in_line_takes_it_out_of_the_line(
    beats: Callable[[], LeaderScheduler], tmp_path: Path
) -> None:
    beat = beats()

    def sync(*_: object) -> None:  # what Celery does in its handler of SIGTERM
        beat.close()
        raise SystemExit

    before = signal.signal(signal.SIGUSR1, sync)
    try:
        with leasehold.connect(f"memory://{tmp_path.name}") as client, client.lock("our-beat").hold():
            threading.Thread(target=_interrupt_when_waiting, args=(client,)).start()
            with pytest.raises(SystemExit):
                while True:
                    beat.tick()
            beat.close()  # and once more, when the service ends
            state = client.inspect("our-beat")
            assert state is not None
            assert not state.waiting
    finally:
        signal.signal(signal.SIGUSR1, before)


def _interrupt_when_waiting(client: leasehold.Client) -> None:
    eventually(lambda: (state := client.inspect("our-beat")) is not None and state.waiting)
    os.kill(os.getpid(), signal.SIGUSR1)


def test_beats_take_turns_also_when_the_leader_is_killed(shop: Shop, tmp_path: Path) -> None:
    words = ("beat", "-S", "leasehold.integrations.celery.beat:LeaderScheduler", "--max-interval=1", "-l", "INFO")
    beats: dict[int, subprocess.Popen[bytes]] = {}
    logs: dict[int, Path] = {}

    def leader() -> int | None:
        state = shop.locks.inspect("celery-beat")
        return state.holdings[0].holder.pid if state is not None and state.holdings else None

    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            beat = shop.start(*words, folder=tmp_path / name)
            beats[beat.pid], logs[beat.pid] = beat, tmp_path / name / "log"
        eventually(lambda: leader() is not None)
        first = leader()
        assert first is not None
        eventually(lambda: (state := shop.locks.inspect("celery-beat")) is not None and state.waiting)
        end(beats[first], signal.SIGKILL)
        eventually(lambda: leader() not in (None, first))
        second = leader()
        assert second is not None
        eventually(
            lambda: "this beat leads" in logs[second].read_text()
        )  # before, it would pass on what it has not used
        end(beats[second])
        with shop.locks.lock("celery-beat").hold(timeout=LIMIT) as lease:
            assert lease.abandoned is False, "given back, and not left to its ttl"
    finally:
        for beat in beats.values():
            end(beat)
