"""The worker of a queue step by step: claim loops, answers, the keeper and signals, on a file of SQLite."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest

from leasehold import Backoff
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, RetryTransaction
from leasehold.sql import GiveUp, Queue
from leasehold.sql.queue import worker as module
from leasehold.sql.queue import worker_async
from leasehold.sql.queue.queue import POLL as USUAL_POLL
from leasehold.sql.queue.worker import Plan, Worked, Worker, _Running, handler_is_async, stopping
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

from tests.unit.queue_bench import POLL, QUEUE, Bench, Face, face_of


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.file.close()


def busy() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


# --- a claim loop


def test_a_lane_works_until_nothing_is_due_and_lets_go_of_its_connection(bench: Bench) -> None:
    bench.enqueue("a", "b", "c")
    seen: list[object] = []

    def handle(job: Any) -> None:
        seen.append(job.payload)
        if job.payload == "b":
            raise ValueError("no")
        if job.payload == "c":
            raise GiveUp("never")

    worker = bench.worker(handle)
    worker._loops = 1
    run(worker._claim_loop())
    assert seen == ["a", "b", "c"]
    worked = worker.worked
    assert (worked.completed, worked.failed, worked.dead, worked.refused) == (1, 2, 1, 0)
    assert bench.states() == [("done", 1), ("ready", 1), ("dead", 1)]
    assert (worker._running, worker._error) == ({}, None)
    notes = face_of(worker).notes
    assert (notes[0], notes.count("open"), notes[-1]) == ("open", 1, "close")
    assert worker.stop.is_set()
    assert worker.over.is_set()


def test_the_run_is_over_when_the_last_claim_loop_ends_and_not_before(bench: Bench) -> None:
    worker = bench.worker()
    worker._loops = 2
    run(worker._claim_loop())
    assert not worker.stop.is_set()
    run(worker._claim_loop())
    assert worker.over.is_set()


def test_a_lane_without_work_looks_again_after_pauses_that_begin_anew_with_every_job(bench: Bench) -> None:
    worker = bench.worker(until_idle=False)
    runtime: PlannedWaits = face_of(worker).runtime
    waited: list[float] = []

    def note(then: Callable[[], object] = lambda: None) -> Callable[[], None]:
        def step() -> None:
            waited.append((runtime.waits[-1] or 0.0) - runtime.now())
            then()

        return step

    runtime.plan = [note(), note(), note(lambda: bench.enqueue(1)), note(), note(worker.stop.set)]
    run(worker._claim_and_work(face_of(worker).transactions()))
    assert waited == pytest.approx([1, 2, 4, 1, 2])
    assert worker.worked.completed == 1


def test_a_database_that_is_away_is_asked_again_after_pauses_that_begin_anew_once_it_answers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "AFTER_A_FAILURE", Backoff(("1s",), factor=2, longest="8s", jitter="none"))
    bench.enqueue(1)
    worker = bench.worker(until_idle=False, poll=Backoff(("50s",), longest="50s", jitter="none"))
    face = face_of(worker)
    runtime: PlannedWaits = face.runtime
    waited: list[float] = []
    steps = iter([None, None, "again", "stop"])

    def note() -> None:
        waited.append((runtime.waits[-1] or 0.0) - runtime.now())
        step = next(steps)
        if step == "again":
            face.failures.append(OSError("away"))
            source._connection = None
        elif step == "stop":
            worker.stop.set()

    source = face.transactions()
    runtime.plan = [note] * 4
    face.failures = [OSError("away"), busy()]
    with caplog.at_level(logging.INFO, "leasehold"):
        run(worker._claim_and_work(source))
    assert waited == pytest.approx([1, 2, 50, 1])
    assert worker.worked.completed == 1
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told[0] == (
        "WARNING",
        "the worker of <Queue 'mails'> could not claim a job: OSError: away; it tries again",
    )
    assert told[1][0] == "INFO", "that it is busy is no trouble"
    run(source.close())


@pytest.mark.parametrize("error", [ConfigurationError("wrong"), TypeError("wrong"), ImportError("wrong")], ids=repr)
def test_what_no_waiting_heals_ends_the_run_with_its_error(bench: Bench, error: Exception) -> None:
    worker = bench.worker()
    worker._loops = 2
    face_of(worker).failures = [error]
    run(worker._claim_loop())
    assert worker._error is error
    assert worker.stop.is_set()
    assert face_of(worker).runtime.waits == []


# --- one job


def test_work_in_a_transaction_is_done_again_after_a_conflict_and_not_for_ever(bench: Bench) -> None:
    bench.enqueue(1)
    calls: list[int] = []
    limit = [0]

    def handle(tx: Any, job: Any) -> None:
        calls.append(1)
        tx.execute("INSERT INTO effect VALUES (1)")
        if len(calls) < limit[0]:
            raise RetryTransaction("again")

    bench.file.execute("CREATE TABLE effect (n INTEGER)")
    for conflicts, tries, state in ((3, 3, "done"), (99, 5, "ready")):
        calls.clear()
        limit[0] = conflicts
        bench.file.execute("DELETE FROM leasehold_queue")
        bench.enqueue(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "SAME_AGAIN", Backoff(("1ms",), longest="1ms", jitter="none", tries=5))
            worker = bench.worker(handle, in_transaction=True)
            run(worker._claim_and_work(face_of(worker).transactions()))
        assert (len(calls), bench.states()) == (tries, [(state, 1)])
        assert (worker.worked.completed, worker.worked.failed) == (int(state == "done"), int(state != "done"))
    assert bench.file.execute("SELECT count(*) FROM effect").fetchone() == (1,), "what was rolled back is not there"


def test_work_in_a_transaction_that_fails_by_itself_is_not_done_again_at_once(bench: Bench) -> None:
    bench.enqueue(1)
    calls: list[int] = []

    def handle(tx: Any, job: Any) -> None:
        calls.append(job.attempt)
        raise ValueError("no")

    worker = bench.worker(handle, in_transaction=True)
    run(worker._claim_and_work(face_of(worker).transactions()))
    assert (calls, bench.states()) == ([1], [("ready", 1)])


def test_claim_is_good_for_its_visibility_from_the_moment_at_which_it_was_asked_for(bench: Bench) -> None:
    bench.enqueue(1)
    ends: list[float] = []
    worker = bench.worker(lambda job: ends.append(worker._running[job.id].ends))
    begun = face_of(worker).runtime.now()
    run(worker._claim_and_work(face_of(worker).transactions()))
    assert ends == [begun + 40]


def test_claim_whose_answer_took_its_time_is_good_for_so_much_less(bench: Bench) -> None:
    bench.enqueue(1)
    ends: list[float] = []
    worker = bench.worker(lambda job: ends.append(worker._running[job.id].ends))
    face = face_of(worker)
    begun, plain = face.runtime.now(), face.connect

    def connect() -> sqlite3.Connection:
        face.runtime.clock.advance(15)
        made: sqlite3.Connection = plain()
        return made

    face.connect = connect
    run(worker._claim_and_work(face.transactions()))
    assert ends == [begun + 40]


def test_claim_of_a_worker_lasts_in_the_table_as_long_as_its_queue_says(bench: Bench) -> None:
    patient = Queue("mails", visibility="5h")
    bench.enqueue(1)
    seen: list[Any] = []

    def handle(job: Any) -> None:
        info = patient.job(bench.file, job.id)
        assert info is not None
        seen.append((info.state, info.due_in))

    face: Any = Face(bench.path, handle)
    worker = Worker(Plan(patient, handle, 1, False, True, POLL, 9.0), face)
    run(worker._claim_and_work(worker.face.transactions()))
    assert seen == [("claimed", pytest.approx(18_000, abs=300))]


def test_work_in_a_transaction_is_not_begun_for_a_job_that_another_has(bench: Bench) -> None:
    bench.enqueue(1)
    late = bench.claim()
    bench.let_all_be_due()
    bench.claim()
    worker = bench.worker(lambda *_: pytest.fail("it must not run"), in_transaction=True)
    run(worker._work(face_of(worker).transactions(), _Running(late, 100.0)))
    assert (worker.worked.refused, worker.worked.completed, worker.worked.failed) == (1, 0, 0)
    assert bench.states() == [("claimed", 2)]


def test_handler_that_ends_after_its_job_was_claimed_again_is_counted_as_refused(bench: Bench) -> None:
    bench.enqueue(1)
    late = bench.claim()

    def handle(job: Any) -> None:
        bench.let_all_be_due()
        bench.claim()
        raise ValueError("and it failed, too")

    worker = bench.worker(handle)
    run(worker._work(face_of(worker).transactions(), _Running(late, 100.0)))
    assert (worker.worked.refused, worker.worked.failed, worker.worked.dead) == (1, 0, 0)


def test_answer_is_written_again_until_its_claim_runs_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER_A_FAILURE", Backoff(("10s",), factor=1, longest="10s", jitter="none"))
    bench.enqueue(1)
    for failures, ends, state in ((2, 25, "done"), (3, 25, "claimed")):
        bench.file.execute("UPDATE leasehold_queue SET state = 'ready', due_at = 1, attempts = 0")
        job = bench.claim()
        worker = bench.worker()
        face = face_of(worker)
        begun = face.runtime.now()
        face.failures = [OSError("away")] * failures
        source = face.transactions()
        answered = worker._answer(source, _Running(job, begun + ends), lambda rows: rows.complete(job), "complete")  # noqa: B023
        if state == "done":
            assert run(answered) is True
        else:
            with pytest.raises(OSError, match="away"):
                run(answered)
        assert face.runtime.now() == pytest.approx(begun + 20)
        assert bench.states() == [(state, 1)]


def test_answer_that_no_waiting_heals_is_raised_at_once(bench: Bench) -> None:
    bench.enqueue(1)
    job = bench.claim()
    worker = bench.worker()
    face_of(worker).failures = [NameError("wrong")]
    with pytest.raises(NameError):
        run(
            worker._answer(
                face_of(worker).transactions(), _Running(job, 1e9), lambda rows: rows.complete(job), "complete"
            )
        )


def test_job_of_a_handler_that_is_cancelled_is_given_back(bench: Bench) -> None:
    bench.enqueue(1)
    job = bench.claim()

    def handle(_: Any) -> None:
        raise KeyboardInterrupt

    worker = bench.worker(handle)
    with pytest.raises(KeyboardInterrupt):
        run(worker._work(face_of(worker).transactions(), _Running(job, 1e9)))
    assert bench.states() == [("ready", 0)]
    assert worker._running == {}


# --- the keeper


def test_keeper_extends_what_runs_and_removes_what_is_over_now_and_then(bench: Bench) -> None:
    bench.enqueue(*range(3))
    bench.file.execute("UPDATE leasehold_queue SET state = 'done', due_at = NULL, changed_at = 1 WHERE id = 1")
    job = bench.claim()
    worker = bench.worker()
    face = face_of(worker)
    runtime: PlannedWaits = face.runtime
    begun = runtime.now()
    running = _Running(job, begun + 5)
    worker._running[job.id] = running
    ends: list[float] = []
    over: list[int] = []

    def turn() -> None:
        runtime.clock.advance((runtime.waits[-1] or 0.0) - runtime.now())
        ends.append(running.ends - begun)
        over.append(len([state for state, _ in bench.states() if state == "done"]))
        bench.file.execute("UPDATE leasehold_queue SET state = 'done', due_at = NULL, changed_at = 1 WHERE id = 3")
        if len(ends) == 8:
            worker.over.set()

    runtime.plan = [turn] * 8
    run(worker._keep())
    assert [wait - begun for wait in runtime.waits if wait] == pytest.approx([10 * n for n in range(1, 9)])
    assert ends == pytest.approx([40 + 10 * n for n in range(8)])
    assert over == [0, 1, 1, 1, 1, 1, 0, 0], "once a minute, the first time at once"
    assert face.notes[-1] == "close"
    assert face.notes.count("open") == face.notes.count("close") == 1


def test_keeper_leaves_completed_jobs_for_as_long_as_their_queue_keeps_them(bench: Bench) -> None:
    queue = Queue("mails", keep="1h")
    bench.enqueue(*range(3))
    bench.file.execute("UPDATE leasehold_queue SET state = 'done', due_at = NULL")
    for number, age in ((1, 3_300), (2, 3_900)):
        bench.file.execute(f"UPDATE leasehold_queue SET changed_at = changed_at - {age} WHERE id = {number}")
    bench.file.execute("UPDATE leasehold_queue SET state = 'dead', changed_at = 1 WHERE id = 3")
    face: Any = Face(bench.path, print)
    worker = Worker(Plan(queue, print, 1, False, True, POLL, 9.0), face)
    face.runtime.plan = [worker.over.set]
    run(worker._keep())
    assert [(job.id, job.state) for job in queue.jobs(bench.file)] == [(1, "done"), (3, "dead")]


def test_claims_and_removals_are_told_from_answers_and_work_when_they_open_their_transactions(bench: Bench) -> None:
    """In MySQL the first two may lock no gaps, and the others have the user's own level of isolation."""
    bench.enqueue(1)
    job = bench.claim()
    bench.enqueue(2)
    for in_transaction, work in ((False, ["claim", "other"]), (True, ["claim", "other"])):
        bench.let_all_be_due()
        worker = bench.worker(in_transaction=in_transaction)
        begun: list[str] = []
        source = face_of(worker).transactions()
        begin = source.begin

        def note(*, claims: bool = False, begun: list[str] = begun, begin: Any = begin) -> Any:
            begun.append("claim" if claims else "other")
            return begin(claims=claims)

        source.begin = note
        found = run(worker._claim(source))
        assert found is not None
        run(worker._work(source, _Running(found, 1e9)))
        assert begun == work
        worker._running[job.id] = _Running(job, 1e9)
        run(worker._extend_all(source))
        run(worker._purge(source))
        assert begun[2:] == (["claim"] if in_transaction else ["other", "claim"])
        run(source.close())


def test_keeper_extends_the_jobs_behind_one_that_is_lost(bench: Bench) -> None:
    bench.enqueue(1, 2, 3)
    jobs = [bench.claim() for _ in range(3)]
    worker = bench.worker()
    for job in jobs:
        worker._running[job.id] = _Running(job, 7.0)
    jobs[0].lost = True
    source = face_of(worker).transactions()
    run(worker._extend_all(source))
    assert [worker._running[job.id].ends > 7.0 for job in jobs] == [False, True, True]
    run(source.close())


def test_keeper_marks_a_job_that_another_has_and_leaves_it_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.enqueue(1)
    late = bench.claim()
    bench.let_all_be_due()
    bench.claim()
    worker = bench.worker()
    running = _Running(late, 7.0)
    worker._running[late.id] = running
    source = face_of(worker).transactions()
    for _ in range(2):
        run(worker._extend_all(source))
    assert late.lost
    assert running.ends == 7.0
    assert len([record for record in caplog.records if "claimed again" in record.getMessage()]) == 1
    assert worker.worked.refused == 0, "the handler has not ended yet"
    run(source.close())
    inside = bench.worker(in_transaction=True)
    inside._running[late.id] = running
    late.lost = False
    run(inside._extend_all(face_of(inside).transactions()))
    assert (late.lost, face_of(inside).notes) == (False, [])


def test_keeper_goes_on_after_trouble(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    worker = bench.worker()
    face = face_of(worker)
    face.failures = [OSError("away")]
    bench.enqueue(1)
    bench.file.execute("UPDATE leasehold_queue SET state = 'done', due_at = NULL, changed_at = 1")
    face.runtime.plan = [lambda: None, worker.over.set]
    run(worker._keep())
    assert "could not extend claims: OSError: away" in caplog.text
    assert bench.states() == []


# --- one run


def test_run_starts_its_claim_loops_waits_for_the_end_and_tells_what_went_wrong(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    worker = bench.worker(concurrency=3)
    face, runtime = face_of(worker), face_of(worker).runtime
    begun = runtime.now()
    runtime.plan = [lambda: runtime.clock.advance(0.5), worker.stop.set, lambda: None]
    assert run(worker.run()) is worker.worked
    assert face.spawned == [
        *(f"leasehold queue mails {number}" for number in (1, 2, 3)),
        "leasehold queue mails keeper",
    ]
    assert runtime.waits == pytest.approx([begun + 0.5, begun + 1.0, begun + 9.5, begun + 5.5])
    assert "0 handlers of <Queue 'mails'> did not end in time" in caplog.text
    assert worker.over.is_set()
    assert face.notes == ["open", "commit", "close"], "the table was made, and that connection is let go"
    failed = bench.worker()
    failed._error = ZeroDivisionError("x")
    failed.stop.set()
    failed.over.set()
    with pytest.raises(ZeroDivisionError):
        run(failed.run())


def test_options_of_a_run_are_checked() -> None:
    nothing: Any = None
    words: dict[str, Any] = {"in_transaction": False, "until_idle": True, "grace": 1.0}
    with pytest.raises(ConfigurationError, match="concurrency must be a whole number of at least 1"):
        Plan(QUEUE, print, concurrency=0, poll=POLL, **words)
    with pytest.raises(ConfigurationError, match=r"poll must be a leasehold\.Backoff, not a NoneType"):
        Plan(QUEUE, print, concurrency=1, poll=nothing, **words)
    with pytest.raises(ConfigurationError, match="grace"):
        QUEUE.run(print, nothing, grace=-1)
    with pytest.raises(ConfigurationError, match=r"run_async"):
        QUEUE.run(asyncio.sleep, nothing)
    with pytest.raises(ConfigurationError, match="async def"):
        asyncio.run(QUEUE.run_async(print, nothing))


CHOSEN: dict[str, Any] = {
    "concurrency": 3, "in_transaction": True, "until_idle": True, "poll": POLL, "grace": "7s",
    "signals": (signal.SIGUSR1,), "stop": print,
}  # fmt: skip
USUAL: dict[str, Any] = {
    "concurrency": 1,
    "in_transaction": False,
    "until_idle": False,
    "poll": USUAL_POLL,
    "grace": 30.0,
}


@pytest.mark.parametrize("face", ["run", "run_async"])
def test_every_option_of_a_run_reaches_its_worker(monkeypatch: pytest.MonkeyPatch, face: str) -> None:
    given: list[Any] = []

    def blocking(*words: Any) -> Worked:
        given.extend(words)
        return Worked(completed=5)

    async def awaited(*words: Any) -> Worked:
        return blocking(*words)

    def work(**words: Any) -> Worked:
        given.clear()
        if face == "run":
            return QUEUE.run(print, "the database", **words)
        return asyncio.run(QUEUE.run_async(print, "the database", **words))

    monkeypatch.setattr(module, "run_blocking", blocking)
    monkeypatch.setattr(worker_async, "run_tasks", awaited)
    assert work(**CHOSEN) == Worked(completed=5)
    assert given == [Plan(QUEUE, print, 3, True, True, POLL, 7.0), "the database", (signal.SIGUSR1,), print]
    work()
    assert given == [Plan(QUEUE, print, **USUAL), "the database", None, None]


def test_a_run_that_returns_uses_no_connection_any_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who closes an engine right after it would leave one open."""
    made: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        made.append(sqlite3.connect(bench.path / "queue.db", timeout=60, check_same_thread=False))
        return made[-1]

    async def slowly(self: Worker, source: Any) -> None:
        async with source.plain():
            await self.face.runtime.wait(self.over, None)
            time.sleep(0.2)

    monkeypatch.setattr(Worker, "_purge", slowly)
    QUEUE.run(lambda _: None, connect, until_idle=True, signals=())
    assert len(made) == 3, "one that made the table, and those of a claim loop and of the keeper"
    for connection in made:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_as_many_handlers_run_at_once_as_was_said(bench: Bench) -> None:
    bench.enqueue(1, 2, 3)
    together = threading.Barrier(3)
    database = lambda: sqlite3.connect(bench.path / "queue.db", timeout=60)  # noqa: E731 - as in the documents
    worked = QUEUE.run(lambda _: together.wait(60), database, concurrency=3, until_idle=True, signals=())
    assert (worked.completed, worked.failed) == (3, 0)


def test_run_on_an_event_loop_ends_in_order_with_the_signal_that_was_named(bench: Bench) -> None:
    bench.enqueue("first", "second")
    missed: list[object] = []
    stops: list[Callable[[], None]] = []

    def who_had_it_before(*_: object) -> None:
        missed.append("the signal")
        stops[0]()

    async def handle(job: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)

    def connect() -> Any:
        return aiosqlite.connect(bench.path / "queue.db")

    before = signal.signal(signal.SIGUSR1, who_had_it_before)
    try:
        run_of_it = QUEUE.run_async(handle, connect, poll=POLL, signals=[signal.SIGUSR1], stop=stops.append)
        worked = asyncio.run(run_of_it)
        assert signal.getsignal(signal.SIGUSR1) is who_had_it_before
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (worked.completed, missed) == (1, [])
    assert bench.states() == [("done", 1), ("ready", 0)]


def test_handler_is_async_also_if_it_is_an_object_with_such_a_call() -> None:
    class Handler:
        async def __call__(self, job: Any) -> None:
            pass

    assert [handler_is_async(each) for each in (asyncio.sleep, Handler(), print, lambda: None)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_run_on_an_event_loop_ends_when_it_is_told_to_and_gives_back_what_does_not_end(bench: Bench) -> None:
    bench.enqueue("short", "long")
    done: list[object] = []

    async def main() -> Any:
        stops: list[Callable[[], None]] = []

        async def handle(job: Any) -> None:
            if job.payload == "long":
                stops[0]()
                await asyncio.Event().wait()
            done.append(job.payload)

        def connect() -> Any:
            return aiosqlite.connect(bench.path / "queue.db")

        before = asyncio.all_tasks()
        worked = await QUEUE.run_async(handle, connect, stop=stops.append, grace=0, poll=POLL, signals=())
        assert asyncio.all_tasks() == before, "no task is left"
        return worked

    worked = asyncio.run(main())
    assert (worked.completed, worked.failed, done) == (1, 0, ["short"])
    assert bench.states() == [("done", 1), ("ready", 0)]


# --- signals


def test_first_signal_stops_and_the_second_goes_to_whoever_had_it_before() -> None:
    heard: list[str] = []
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: heard.append("before"))
    try:
        own = signal.getsignal(signal.SIGUSR1)
        with stopping(lambda: heard.append("stop"), [signal.SIGUSR1]):
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
        assert heard == ["stop", "before"]
        with pytest.raises(KeyError), stopping(lambda: None, [signal.SIGUSR1]):
            assert signal.getsignal(signal.SIGUSR1) is not own
            raise KeyError
        assert signal.getsignal(signal.SIGUSR1) is own
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        with stopping(lambda: heard.append("stop"), [signal.SIGUSR1]):
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN, "as under nohup"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_both_signals_that_end_a_program_are_heard_unless_told_otherwise() -> None:
    ending = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in ending]
    with stopping(lambda: None, None):
        assert all(signal.getsignal(number) is not was for number, was in zip(ending, before, strict=True))
    with stopping(lambda: None, ()):
        assert [signal.getsignal(number) for number in ending] == before
    assert [signal.getsignal(number) for number in ending] == before
    answers: list[str] = []

    def elsewhere() -> None:
        with stopping(lambda: None, None), stopping(lambda: None, ()):
            answers.append("none are needed")
        try:
            with stopping(lambda: None, [signal.SIGTERM]):
                pass
        except ConfigurationError as error:
            answers.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert answers[0] == "none are needed"
    assert "only the main thread" in answers[1]


def test_job_that_is_answered_while_its_claim_is_extended_is_not_called_lost(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.enqueue(1, 2)
    answered, lost = bench.claim(), bench.claim()
    for job in (answered, lost):
        QUEUE.complete(bench.file, job)
    worker = bench.worker()
    face = face_of(worker)
    for job in (answered, lost):
        worker._running[job.id] = _Running(job, 1e9)
    plain = face.connect

    def connect() -> sqlite3.Connection:
        worker._running.pop(answered.id, None)
        made: sqlite3.Connection = plain()
        return made

    face.connect = connect
    with caplog.at_level(logging.WARNING, "leasehold"):
        run(worker._extend_all(face.transactions()))
    assert (answered.lost, lost.lost) == (False, True)
    assert [f"job {lost.id} of" in record.getMessage() for record in caplog.records] == [True]
    assert worker.worked.refused == 0


def test_signal_whose_handler_is_not_of_python_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {signal.SIGTERM: None, signal.SIGINT: signal.SIG_IGN, signal.SIGUSR1: signal.SIG_DFL}
    changed: list[int] = []
    monkeypatch.setattr(signal, "getsignal", given.__getitem__)
    monkeypatch.setattr(signal, "signal", lambda number, _: changed.append(number))
    with stopping(lambda: None, given):
        assert changed == [signal.SIGUSR1]
    assert changed == [signal.SIGUSR1] * 2
