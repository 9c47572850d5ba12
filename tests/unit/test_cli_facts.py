"""What verbs tell an operator or a report, each figure from its own source: all values differ, also from defaults."""

from __future__ import annotations

import io
import json
import sys
import time
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.cli import break_lock as break_module
from leasehold.cli import doctor as doctor_module
from leasehold.cli import elect as elect_module
from leasehold.cli import exporter as exporter_module
from leasehold.cli import fence as fence_module
from leasehold.cli import fence_move as move_module
from leasehold.cli import hold as hold_module
from leasehold.cli import inspect as inspect_module
from leasehold.cli import jobs as jobs_module
from leasehold.cli import once as once_module
from leasehold.cli import queue as queue_module
from leasehold.cli import run as run_module
from leasehold.cli import supervisor as supervisor_module
from leasehold.cli import ui as ui_module
from leasehold.cli import watch as watch_module
from leasehold.cli.break_lock import operator
from leasehold.cli.held import Held
from leasehold.cli.main import main
from leasehold.cli.parser import read
from leasehold.cli.supervisor import Supervisor
from leasehold.errors import BackendUnavailable, ConfigurationError
from leasehold.findings import Level
from leasehold.sql.queue.job import JobInfo
from leasehold.values import Capability, Holder, Holding, LastRun, LockState, Mode, Pause
from leasehold.web import BasicAuth, hash_password
from tests.unit.cli_support import job_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

ANA, BEN = Holder("db-3", 7, "nightly", "the report"), Holder("db-4", 8, user="ben")


class Store:
    """In the place of a client: gives these answers, and keeps what it was asked for."""

    store, is_private = "redis://h", False

    def __init__(self, **answers: Any) -> None:
        self.calls: list[Any] = []
        self.capabilities = set(Capability)
        self._answers = {"exists": True, **answers}

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def __getattr__(self, verb: str) -> Any:
        def called(*words: Any, **options: Any) -> Any:
            if verb != "exists":
                self.calls.append((verb, words, options))
            answer = self._answers.get(verb)
            if isinstance(answer, Exception):
                raise answer
            return answer.pop(0) if isinstance(answer, list) and verb != "locks" else answer

        return called


def state(*holdings: Holding, waiting: tuple[Holder, ...] = (), paused: Pause | None = None) -> LockState:
    return LockState("job", Mode.PERMIT, 3, holdings, waiting, paused)


NOON = 1_763_208_000.0  # 12:00 UTC, 01:00 of the next day in Auckland


# --- times of the day are those of the clock on the wall


def test_what_is_printed_for_people_has_the_local_time(
    far_from_greenwich: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SimpleNamespace(time=lambda: NOON, strftime=time.strftime, localtime=time.localtime)
    for module in (elect_module, hold_module):
        monkeypatch.setattr(module, "time", clock)
    leader: Any = SimpleNamespace(fence=41, holder=ANA)
    elect_module._show(read(["elect", "job", "--observe"]), leader)  # type: ignore[arg-type]
    elect_module._show(read(["elect", "job", "--observe", "--json"]), leader)  # type: ignore[arg-type]
    held: Any = SimpleNamespace(fences={"job": 7})
    hold_module._announce(read(["hold", "job", "--for", "90s"]), held)  # type: ignore[arg-type]
    shown, data, holding = capsys.readouterr().out.splitlines()
    assert shown == f"01:00:00 job  fence 41  {ANA}"
    assert json.loads(data)["at"] == NOON
    assert holding == "holding 'job' with fence 7: until 01:01:30 (1m30s); Ctrl-C gives it back before"
    change = {"change": "held", "name": "job", "fence": 41, "who": "w", "at": NOON}
    assert watch_module._sentence(change) == "01:00:00 held    job fence 41  w"


@pytest.mark.parametrize(("words", "has_fences"), [([], False), (["-v"], True)])
def test_the_screen_of_watch_has_the_local_time_and_fences_when_asked(
    words: list[str],
    has_fences: bool,
    far_from_greenwich: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def sleep(pause: float) -> None:
        assert pause == 7.0
        raise KeyboardInterrupt

    store = Store(locks=[state(Holding(ANA, 41, 61.0, 12.0), waiting=(BEN,))])
    clock = SimpleNamespace(sleep=sleep, strftime=lambda text: time.strftime(text, time.localtime(NOON)))
    monkeypatch.setattr(watch_module, "open_client", lambda _: store)
    monkeypatch.setattr(watch_module, "time", clock)
    monkeypatch.setattr(watch_module, "is_lively", lambda _: True)
    assert main(["watch", "jo", "--every", "7s", *words]) == 130
    first, _, head, holder, waiter = capsys.readouterr().out.removeprefix(watch_module.CLEAR).splitlines()
    assert first == "redis://h  01:00:00  1 in use  (Ctrl-C ends)"
    assert ("FENCE" in head.split(), " 41 " in holder) == (has_fences, has_fences)
    assert ("1 of 3" in holder, "#1" in waiter) == (True, True)
    assert store.calls == [("locks", ("jo",), {})]


# --- looking


@pytest.mark.parametrize(
    ("words", "waiters", "fences"),
    [([], False, False), (["--waiters"], True, False), (["-v"], False, True), (["-v", "--waiters"], True, True)],
)
def test_a_list_has_waiters_and_fences_only_as_was_asked(
    words: list[str], waiters: bool, fences: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(locks=[state(Holding(ANA, 41, 61.0, 12.0), waiting=(BEN,))])
    monkeypatch.setattr(inspect_module, "open_client", lambda _: store)
    assert main(["ls", "jo", *words]) == 0
    said = capsys.readouterr()
    head, *rows = said.out.splitlines()
    assert (len(rows) == 2, "FENCE" in head) == (waiters, fences)
    assert (" 41 " in rows[0]) is fences
    assert said.err == "leasehold: store: redis://h\n"
    assert store.calls == [("locks", ("jo",), {})]


HOLDER_FACTS = {"host": "db-3", "pid": 7, "label": "nightly", "reason": "the report"}
RUN = LastRun("job", "monday", BEN, 90.0, 60.0, 43, failed=True, closed=True, again="empty (by eve)")
RUN_FACTS = {
    "slot": "monday", "outcome": "failed", "closed": True, "began": 60.0, "finished": 90.0, "fence": 43,
    "runner": {"host": "db-4", "pid": 8, "label": None, "reason": None}, "again": "empty (by eve)", "forgotten": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "last", "code", "facts"),
    [
        (None, None, 1, {"held": False, "name": "job", "last_run": None}),
        (None, RUN, 1, {"held": False, "name": "job", "last_run": RUN_FACTS}),
        (
            state(paused=Pause("moving", "ana", 90.0, 5.0)),
            RUN,
            1,
            {
                "held": False, "name": "job", "mode": "permit", "capacity": 3, "holdings": [], "waiting": [],
                "paused": {"reason": "moving", "by": "ana", "expires_in": 90.0, "paused_for": 5.0},
                "last_run": RUN_FACTS,
            },
        ),
        (
            state(Holding(ANA, 41, 61.0, 12.0, broken="stuck")),
            None,
            0,
            {
                "held": True, "name": "job", "mode": "permit", "capacity": 3, "waiting": [], "paused": None,
                "holdings": [{
                    "holder": {**HOLDER_FACTS, "user": None}, "fence": 41, "held_for": 61.0, "expires_in": 12.0,
                    "broken": "stuck", "cooling": False,
                }],
                "last_run": None,
            },
        ),
    ],
)  # fmt: skip
def test_info_tells_programs_everything_about_a_lock_and_its_job(
    found: LockState | None,
    last: LastRun | None,
    code: int,
    facts: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = Store(inspect=found, last_run=last)
    monkeypatch.setattr(inspect_module, "open_client", lambda _: store)
    assert main(["info", "job", "--slot", "monday", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == {"schema": 1, **facts}
    assert store.calls == [("inspect", ("job",), {}), ("last_run", ("job",), {"slot": "monday"})]


# --- orders


class Keyboard(io.StringIO):
    """Where somebody types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("now", [False, True])
def test_a_break_reaches_the_store_with_every_word(
    answer: bool, code: int, now: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(break_lock=answer, inspect=state(Holding(ANA, 41, 61.0, 12.0), Holding(BEN, 42, 3.0, 5.0)))
    monkeypatch.setattr(break_module, "open_client", lambda _: store)
    monkeypatch.setattr(sys, "stdin", Keyboard("yes\n"))
    words = ["break", "job", "--fence", "42", "--reason", "stuck", *["--now"] * now]
    assert main([*words, "--json"]) == code
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "schema": 1, "name": "job", "fence": 42, "reason": "stuck", "by": operator(), "broken": answer, "now": now,
    }  # fmt: skip
    assert (str(BEN) in said.err, str(ANA) in said.err) == (True, False), "only the one with this fence"
    options = {"fence": 42, "reason": "stuck", "by": operator(), "now": now}
    assert store.calls == [("inspect", ("job",), {}), ("break_lock", ("job",), options)]
    monkeypatch.setattr(sys, "stdin", Keyboard("yes\n"))
    assert main(["break", "job", "--fence", "9", "--reason", "stuck"]) == code
    assert "about to break" not in capsys.readouterr().err, "nobody holds it with this fence"


def test_a_pause_tells_how_many_hold_and_who_each_of_them_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(inspect=state(Holding(ANA, 41, 61.0, 12.0), Holding(BEN, 42, 3.0, 5.0)), resume=True)
    monkeypatch.setattr(jobs_module, "open_client", lambda _: store)
    assert main(["pause", "job", "--reason", "moving", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "name": "job", "reason": "moving", "by": operator(), "for": None, "paused": True, "holders": 2,
    }  # fmt: skip
    assert main(["pause", "job", "--reason", "moving", "--for", "2m", "--namespace", "n"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "paused 'job' for 2m00s, or until: leasehold resume job --namespace n",
        f"  still held by {ANA}, which goes on",
        f"  still held by {BEN}, which goes on",
    ]
    assert main(["resume", "job"]) == 0
    assert capsys.readouterr().out == "resumed 'job': the next waiter gets it\n"
    assert [call for call in store.calls if call[0] != "inspect"] == [
        ("pause", ("job",), {"reason": "moving", "by": operator(), "duration": None}),
        ("pause", ("job",), {"reason": "moving", "by": operator(), "duration": 120.0}),
        ("resume", ("job",), {"by": operator()}),
    ]


def test_a_slot_is_forgotten_with_every_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(forget=True)
    monkeypatch.setattr(jobs_module, "open_client", lambda _: store)
    assert main(["forget", "job", "--slot", "monday", "--reason", "empty"]) == 0
    assert capsys.readouterr().out == (
        f"'job' forgot its run for slot monday (by {operator()}): the slot can run again\n"
    )
    assert store.calls == [("forget", ("job",), {"slot": "monday", "reason": "empty", "by": operator()})]


def test_a_fence_is_raised_with_every_word_and_the_answer_of_the_store_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(raise_fence=95)  # a store may round up, or be ahead already
    monkeypatch.setattr(fence_module, "open_client", lambda _: store)
    assert main(["fence", "raise", "job", "70", "--reason", "restored", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fence"] == 95
    assert store.calls == [("raise_fence", ("job", 70), {"reason": "restored", "by": operator()})]


# --- fence move


def moved(monkeypatch: pytest.MonkeyPatch, old: Store, new: Store, *words: str, typed: str | None = None) -> int:
    old.store, new.store = "old:", "new:"
    opened = {"redis://a": old, "redis://b": new}
    monkeypatch.setattr(move_module, "open_client", lambda arguments: opened[arguments.url])
    monkeypatch.setattr(sys, "stdin", io.StringIO() if typed is None else Keyboard(typed))
    return main(["fence", "move", "--from", "redis://a", "--to", "redis://b", *words])


@pytest.mark.parametrize(("words", "reason"), [([], "moved from old:"), (["--reason", "we move"], "we move")])
def test_each_name_is_moved_by_its_own_fence_with_a_reason_and_the_operator(
    words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = Store(highest_fence=[41, 52]), Store(raise_fence=[60, 70])
    assert moved(monkeypatch, old, new, "a", "b\x1b", *words, typed="yes\n") == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "'a': old: has given fences up to 41; every later one of new: is above 60",
        "'b\\x1b': old: has given fences up to 52; every later one of new: is above 70",
    ]
    question = (
        "raise the fences of 'a', 'b\\x1b' at new: above those of old:? No fence can be lowered again. Type yes: "
    )
    assert said.err == f"leasehold: from old: to new:\n{question}"
    options = {"reason": reason, "by": operator()}
    assert new.calls == [("raise_fence", ("a", 41), options), ("raise_fence", ("b\x1b", 52), options)]
    looks: list[Any] = [("inspect", (name,), {}) for name in ("a", "b\x1b")]
    fences: list[Any] = [("highest_fence", (name,), {}) for name in ("a", "b\x1b")]
    assert old.calls == [*looks, *fences, *looks], "it looks for users before and after"


@pytest.mark.parametrize(
    ("there", "raised", "later"),
    [([60], False, 60), ([50, 61], True, 61), ([41, 42], True, 42)],
)
def test_all_names_are_moved_at_once_where_the_new_store_is_behind(
    there: list[int], raised: bool, later: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = there[0] if raised else 41
    old, new = Store(locks=[], highest_fence=[given]), Store(highest_fence=list(there), raise_fence=[99])
    assert moved(monkeypatch, old, new, "--all", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "name": None, "from": "old:", "to": "new:", "given": given, "fence": later,
        "reason": "moved from old:", "by": operator(),
    }  # fmt: skip
    orders = [call for call in new.calls if call[0] == "raise_fence"]
    options = {"reason": "moved from old:", "by": operator()}
    assert orders == ([("raise_fence", (move_module.EVERY_NAME, given), options)] if raised else [])


def test_a_new_store_that_stays_behind_is_refused_with_what_to_add(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = Store(locks=[], highest_fence=[41]), Store(highest_fence=[30, 41], raise_fence=[99])
    assert moved(monkeypatch, old, new, "--all", "--yes") == 78
    assert "add fence_floor=41 to the options of its URL" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "what"), [(["a", "b"], "'a', 'b'"), (["--all"], "all names")])
def test_a_dry_run_says_what_would_be_raised_and_orders_nothing(
    words: list[str], what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = Store(locks=[]), Store()
    assert moved(monkeypatch, old, new, *words, "--dry-run") == 0
    assert capsys.readouterr().out == (
        f"nothing is in the way: the fences of {what} at new: would be raised above those of old:; nothing was "
        "changed (--dry-run)\n"
    )
    assert new.calls == []


@pytest.mark.parametrize(("which", "said"), [("old", "old: does not exist"), ("new", "new: does not exist")])
def test_both_stores_of_a_move_have_to_be_there(
    which: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = Store(exists=which != "old"), Store(exists=which != "new")
    assert moved(monkeypatch, old, new, "a", "--yes") == 78
    assert said in capsys.readouterr().err
    old, new = Store(), Store()
    vars(old if which == "old" else new)["is_private"] = True
    assert moved(monkeypatch, old, new, "a", "--yes") == 78
    assert "a store inside one process" in capsys.readouterr().err


# --- queues of a database

JOB = JobInfo(
    id=17, queue="refunds", key="k\x1b", payload={"n": "ä"}, state="claimed", fence=5, attempts=4, worker="db-3:7",
    last_error="HTTP 502", due_in=12.0, age=3_700.0, changed=65.0,
)  # fmt: skip


class Database:
    """In the place of the functions of `leasehold.sql`: what each was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Any] = []
        self.commits = 0
        self.closed = False
        self.found: JobInfo | None = JOB
        counts = SimpleNamespace(queue="refunds", ready=11, delayed=12, claimed=13, dead=14, done=15, lag=65.0)
        database = self

        class Queue:
            keep = 4_711.0

            def __init__(self, name: str, *, schema: str | None) -> None:
                self._of = (name, schema)

            def jobs(self, _: object, **options: Any) -> list[JobInfo]:
                database.calls.append(("jobs", *self._of, options))
                return [JOB]

            def retry_dead(self, _: object, *numbers: int) -> int:
                database.calls.append(("retry_dead", *self._of, numbers))
                return 3

            def purge(self, _: object, **options: Any) -> int:
                database.calls.append(("purge", *self._of, options))
                return 1

        def find_job(_: object, number: int, *, schema: str | None) -> JobInfo | None:
            database.calls.append(("find_job", number, schema))
            return self.found

        def list_queues(_: object, *, schema: str | None) -> list[Any]:
            database.calls.append(("list_queues", schema))
            return [counts, SimpleNamespace(**{**vars(counts), "queue": "mails", "lag": -1.0})]

        monkeypatch.setattr(queue_module, "Queue", Queue)
        monkeypatch.setattr(queue_module, "find_job", find_job)
        monkeypatch.setattr(queue_module, "list_queues", list_queues)
        monkeypatch.setattr(queue_module, "open_database", lambda _: self)

    def commit(self) -> None:
        self.commits += 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    return Database(monkeypatch)


def asked(words: str) -> int:
    return main(["queue", *words.split(), "--url", "postgresql://db/app", "--schema", "shop"])


@pytest.mark.parametrize(
    ("words", "calls", "commits"),
    [
        ("ls", [("list_queues", "shop")], 0),
        ("ls refunds", [("jobs", "refunds", "shop", {"state": None, "limit": 1000})], 0),
        ("ls refunds --state done", [("jobs", "refunds", "shop", {"state": "done", "limit": 1000})], 0),
        (
            "ls --dead",
            [
                ("list_queues", "shop"),
                ("jobs", "refunds", "shop", {"state": "dead", "limit": 1000}),
                ("jobs", "mails", "shop", {"state": "dead", "limit": 1000}),
            ],
            0,
        ),
        ("info 17", [("find_job", 17, "shop")], 0),
        ("retry 17", [("find_job", 17, "shop"), ("retry_dead", "refunds", "shop", (17,))], 1),
        ("retry mails --dead", [("retry_dead", "mails", "shop", ())], 1),
        ("purge mails", [("purge", "mails", "shop", {"dead": False, "older_than": 4_711.0})], 1),
        ("purge mails --older-than 0s", [("purge", "mails", "shop", {"dead": False, "older_than": 0.0})], 1),
        ("purge mails --dead", [("purge", "mails", "shop", {"dead": True, "older_than": 4_711.0})], 1),
    ],
)
def test_an_order_to_a_queue_reaches_the_database_with_every_word(
    words: str, calls: list[Any], commits: int, database: Database
) -> None:
    assert asked(words) == 0
    assert (database.calls, database.commits, database.closed) == (calls, commits, True)


def test_a_job_is_shown_with_each_fact_under_its_own_name(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("info 17") == 0
    assert capsys.readouterr().out.splitlines() == [
        "job 17 of 'refunds' is claimed",
        "  key       k\\x1b",
        '  payload   {"n": "ä"}',
        "  due       in 12s",
        "  attempts  4",
        "  fence     5",
        "  worker    db-3:7",
        "  enqueued  1h01m ago",
        "  changed   1m05s ago",
        "  error     HTTP 502",
    ]
    assert asked("ls refunds") == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "17", "refunds", "claimed", "in", "12s", "4", "5", "1h01m", "k\\x1b", "HTTP", "502",
    ]  # fmt: skip
    assert asked("info 17 --json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "found": True, "id": 17, "queue": "refunds", "key": "k\x1b", "payload": {"n": "ä"},
        "state": "claimed", "fence": 5, "attempts": 4, "worker": "db-3:7", "last_error": "HTTP 502", "due_in": 12.0,
        "age": 3_700.0, "changed": 65.0,
    }  # fmt: skip
    database.found = None
    assert asked("retry 18") == 1
    assert capsys.readouterr().out == "retried 0 jobs\n"


def test_queues_are_shown_with_each_count_in_its_own_column(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("ls") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["QUEUE", "READY", "DELAYED", "CLAIMED", "DEAD", "DONE", "LAG"]
    assert [row.split() for row in rows] == [
        ["refunds", "11", "12", "13", "14", "15", "1m05s"], ["mails", "11", "12", "13", "14", "15", "0.0s"],
    ]  # fmt: skip
    assert asked("retry refunds --dead --json") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "queue_action": "retry", "retried": 3}
    assert asked("purge refunds --json") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "queue_action": "purge", "removed": 1}


# --- doctor


def test_doctor_tells_what_it_counted_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 pairs most take 2 ms, a few much longer: the median is told, and neither the last nor the mean."""
    instants = [0.0]

    def perf_counter() -> float:
        number = len(instants)
        pair, is_end = divmod(number - 1, 2)
        instants.append(instants[-1] + (0.0 if not is_end else 0.8 if pair > 15 else 0.002))
        return instants[-1]

    fences = iter(range(100, 300, 7))

    def lease(_: float) -> Any:
        return SimpleNamespace(fence=next(fences), release=lambda: None)

    client: Any = SimpleNamespace(
        store="redis://h",
        exists=lambda: True,
        locks=lambda prefix: ["a", "b", "c"] if prefix == "" else [],
        lock=lambda *_, **__: SimpleNamespace(acquire=lease),
        examine=list,
    )
    monkeypatch.setattr(doctor_module, "time", SimpleNamespace(
        perf_counter=perf_counter, time=lambda: NOON, strftime=lambda _: "2025-11-15", CLOCK_BOOTTIME=7,
    ))  # fmt: skip
    found = {each.check: (each.level, each.found) for each in doctor_module._examine(client, tries=True)}
    assert found["opens"] == (Level.OK, "yes; locks in use in this namespace: 3")
    assert found["fences"] == (Level.OK, "rose 20 times, now 233")
    assert found["latency"] == (Level.OK, "2 ms for acquire and release (median of 20)")
    assert found["clock"] == (Level.OK, "boot-time clock, date 2025-11-15")
    assert found["version"][1].startswith(f"leasehold {leasehold.__version__}, Python {sys.version.split()[0]}, SQLite")


def test_a_store_that_fails_doctor_is_told_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    away = BackendUnavailable("no route")
    for verb, check in (("locks", "opens"), ("lock", "acquire and release"), ("examine", "settings")):

        def fail(*_: object, **__: object) -> Any:
            raise away

        answers: dict[str, Any] = {"locks": lambda _: [], "lock": fail, "examine": list, "exists": lambda: True}
        answers |= {"lock": lambda *_, **__: SimpleNamespace(acquire=fail)} | ({} if verb == "lock" else {verb: fail})
        client: Any = SimpleNamespace(store="redis://h", **answers)
        found = {each.check: each.found for each in doctor_module._examine(client, tries=verb == "lock")}
        assert "no route" in found[check]


# --- servers


def opened(monkeypatch: pytest.MonkeyPatch, module: Any, store: Store) -> list[str | None]:
    labels: list[str | None] = []

    def open_client(_: object, *, label: str | None = None) -> Store:
        labels.append(label)
        return store

    monkeypatch.setattr(module, "open_client", open_client)
    return labels


@pytest.mark.parametrize(("words", "most"), [([], 50), (["--max-groups", "2"], 2)])
def test_the_exporter_makes_no_more_groups_than_was_asked_for(
    words: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[Any] = []

    def make(_host: object, _port: object, page: Any) -> Any:
        groups.extend(page._groups.of(f"{number}:x") for number in range(60))
        return SimpleNamespace(server_name="h", server_port=7)

    labels = opened(monkeypatch, exporter_module, Store())
    monkeypatch.setattr(exporter_module, "_server", make)
    monkeypatch.setattr(exporter_module, "_serve", lambda _: None)
    assert main(["exporter", *words]) == 0
    assert [group for group in groups if group != "other"] == [str(number) for number in range(most)]
    assert labels == ["leasehold exporter"]


def test_a_dashboard_for_others_answers_under_all_its_names_and_knows_its_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Any] = []
    users = tmp_path / "users"
    users.write_text(f"ana:write:{hash_password('right')}\n")

    def dashboard(client: object, **options: Any) -> str:
        made.append((client, options))
        return "app"

    def serving(app: str, host: str, port: int) -> AbstractContextManager[str]:
        made.append((app, host, port))
        block: Any = Store()
        return block  # type: ignore[no-any-return]

    store = Store()
    labels = opened(monkeypatch, ui_module, store)
    monkeypatch.setattr("leasehold.web.dashboard", dashboard)
    monkeypatch.setattr(ui_module, "serving", serving)
    monkeypatch.setattr(ui_module, "wait_for_a_signal", lambda: None)
    words = ["--listen", "192.0.2.7:80", "--auth", str(users), "--allow-host", "a.example", "--allow-host", "b.example"]
    names = ["--election", "boss", "--election", "lead:*", "--job", "nightly", "--job", "report-*"]
    assert main(["ui", *words, *names]) == 0
    client, options = made[0]
    assert client is store
    assert {"192.0.2.7", "a.example", "b.example", "localhost", "127.0.0.1", "[::1]"} < set(options["hosts"])
    assert (options["elections"], options["jobs"]) == (["boss", "lead:*"], ["nightly", "report-*"])
    assert isinstance(options["auth"], BasicAuth)
    assert (made[1], labels) == (("app", "192.0.2.7", 80), ["leasehold ui"])
    with pytest.raises(ConfigurationError, match="no --auth"):
        ui_module._auth(read(["ui", "--writer", "ana"]), "192.0.2.7")  # type: ignore[arg-type]


# --- the report of a run


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect(f"memory://{uuid.uuid4().hex}", timeout=30) as client:
        yield client


class Instants:
    """A clock that goes on only when it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.now = 100.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now))

    def passing(self, seconds: float, answer: Any = None) -> Any:
        """What takes so long."""

        def work(*_: object, **__: object) -> Any:
            self.now += seconds
            return answer

        return work


def test_a_report_tells_the_wait_without_the_command(client: leasehold.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Instants(monkeypatch, run_module)
    held: Any = SimpleNamespace(release=lambda: None, title="'job'")
    monkeypatch.setattr(run_module, "acquire", clock.passing(2.34567, held))
    monkeypatch.setattr(run_module, "supervise", clock.passing(60.0, 5))
    job, _ = job_of("run", "job", "--", "x")
    assert run_module._under_lock(job, client) == 5
    assert job.facts["waited"] == 2.346
    monkeypatch.setattr(run_module, "acquire", clock.passing(7.5))
    monkeypatch.setattr(run_module, "conflict", clock.passing(30.0, 75))
    job, _ = job_of("run", "job", "--", "x")
    assert run_module._under_lock(job, client) == 75
    assert job.facts["waited"] == 7.5


def test_a_report_tells_for_how_long_the_command_ran_and_its_own_code(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Instants(monkeypatch, run_module)
    supervisor = SimpleNamespace(
        may_start=lambda: True, watch=clock.passing(65.4321), is_ending=False, exit_code=143, stopped_for=79, note=None
    )
    monkeypatch.setattr("leasehold.cli.supervisor.Supervisor", lambda *_, **__: supervisor)
    terminal = SimpleNamespace(offer=lambda: None, take_back=lambda: None)
    monkeypatch.setattr(run_module, "Terminal", lambda _: terminal)
    job, _ = job_of("run", "job", "--", "x")
    job.child.start = clock.passing(1.0)
    supervisor.note = lambda _: None
    with client.lock("job").hold() as lease:
        assert run_module._run_to_its_end(job, client, Held(lease), None, {}) == 79  # type: ignore[arg-type]
    facts = {word: job.facts[word] for word in ("held", "command_status", "outcome")}
    assert facts == {"held": 66.432, "command_status": 143, "outcome": "lost"}


@pytest.mark.parametrize("abandoned", [True, False, None])
def test_a_report_tells_whether_the_last_holder_left_the_lock(
    abandoned: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_run_to_its_end", lambda *_: 0)
    job, _ = job_of("run", "job", "--", "x")
    held: Any = SimpleNamespace(fences={"job": 41}, abandoned=abandoned)
    run_module.supervise(job, None, held)  # type: ignore[arg-type]
    assert (job.facts["abandoned"], job.facts["fence"]) == (abandoned, 41)


@pytest.mark.parametrize("words", [[], ["--on-conflict", "standby", "-w", "9s"]])
def test_a_report_tells_how_long_a_slot_was_waited_for(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Instants(monkeypatch, once_module)
    lines: list[Any] = []

    class Line(Store):
        def __init__(self, *facts: Any) -> None:
            super().__init__()
            lines.append(facts[1:2] + facts[3:])

    class Block:
        enter_context = staticmethod(clock.passing(3.21987, "run"))

    monkeypatch.setattr("leasehold.cli.wait_line.WaitLine", Line)
    job, notes = job_of("once", "job", "--slot", "monday", *words, "--", "x")
    slots: Any = SimpleNamespace(name="job", attempt=lambda **options: notes.done.append(str(options)))
    block: Any = Block
    assert once_module._attempt(job, None, slots, block) == "run"  # type: ignore[arg-type, comparison-overlap]
    assert job.facts["waited"] == 3.22
    assert notes.done == ["wait begins", "{'again': None, 'by': None}", "wait ended"]
    assert lines == ([(["job"], 9.0)] if words else [])


def test_a_report_of_a_slot_that_was_run_has_the_time_of_that_run() -> None:
    skipped: Any = SimpleNamespace(slot="monday", finished=90.0, paused=Pause("moving", "ana", 90.0, 5.0))
    job, _ = job_of("once", "job", "--slot", "monday", "--", "x")
    assert once_module._skipped(job, skipped) == 0
    facts = {word: job.facts[word] for word in ("outcome", "slot", "finished", "paused")}
    assert facts == {"outcome": "skipped", "slot": "monday", "finished": 90.0, "paused": str(skipped.paused)}


# --- zero is a time, and an empty text is no text that was left out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ls --namespace=", "a namespace must not be empty"),
        ("run job --ttl 0s -- true", "ttl must be at least 0.1 seconds"),
        ("hold job --ttl 0s", "ttl must be at least 0.1 seconds"),
        ("pause job --reason r --for 0s", "duration"),
    ],
)
def test_what_a_variable_left_empty_or_zero_is_refused_and_not_replaced(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script gave it: to go on with the default would lock elsewhere, or for another time."""
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url) as client, client.lock("first").hold():
        place = words.partition(" -- ")
        assert main([*place[0].split(), "--url", url, *place[1].split(), *place[2].split()]) == 78
        assert said in capsys.readouterr().err
        assert client.inspect("job") is None


def test_a_hold_of_no_time_ends_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(hold_module, "now", lambda: 100.0)
    said: list[str] = []
    job: Any = SimpleNamespace(
        arguments=read(["hold", "job", "--for", "0s"]),
        console=SimpleNamespace(note=said.append),
        signals=SimpleNamespace(collect=lambda _: pytest.fail("it waits")),
    )
    held: Any = SimpleNamespace(fences={"job": 7}, title="'job'", loss=None, remaining=lambda: 30.0)
    assert hold_module._until_the_end(job, SimpleNamespace(on_event=lambda _: None), held) == 0  # type: ignore[arg-type]
    assert said == ["--for is over; 'job' is given back"]
    hold_module._announce(job.arguments, held)
    assert capsys.readouterr().out.endswith(" (0.0s); Ctrl-C gives it back before\n")


def test_an_exporter_may_read_with_every_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    opened(monkeypatch, exporter_module, Store())
    monkeypatch.setattr(exporter_module, "FleetReader", lambda _, **options: asked.append(options))
    monkeypatch.setattr(exporter_module, "_server", lambda *_: SimpleNamespace(server_name="h", server_port=7))
    monkeypatch.setattr(exporter_module, "_serve", lambda _: None)
    assert main(["exporter", "--max-age", "0s"]) == 0
    assert main(["exporter"]) == 0
    assert asked == [
        {"prefix": "", "max_age": 0.0, "patience": 5.0}, {"prefix": "", "max_age": 5.0, "patience": 5.0},
    ]  # fmt: skip


def test_a_command_that_may_hold_for_no_time_is_stopped_with_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "now", lambda: 100.0)
    made: Any = {
        "child": SimpleNamespace(pid=4711),
        "held": SimpleNamespace(title="'job'", fences={"job": 7}),
        **dict.fromkeys(("record", "watchdog", "signals", "terminal", "console")),
    }
    for limit, until in ((0.0, 100.0), (2.5, 102.5), (None, float("inf"))):
        supervisor = Supervisor(**made, ttl=30.0, kill_after=5.0, max_hold=limit, wait_group=False)
        assert supervisor._hold_until == until


# --- an election that is watched


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_observing_shows_every_leader_in_turn_and_asks_as_was_said(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leaders = [SimpleNamespace(fence=41, holder=ANA), None, SimpleNamespace(fence=43, holder=BEN)]
    store = Store(election=SimpleNamespace(observe=lambda: iter(leaders)))
    monkeypatch.setattr("leasehold.cli.connection.open_client", lambda _: store)
    assert main(["elect", "boss", "--observe", "--retry", "7s", "--ttl", "60s", *words]) == 0
    said = capsys.readouterr()
    assert said.err == "leasehold: store: redis://h\n"
    if words:
        shown = [json.loads(line)["leader"] for line in said.out.splitlines()]
        assert shown == [{"fence": 41, "who": str(ANA)}, None, {"fence": 43, "who": str(BEN)}]
    else:
        assert [line[8:] for line in said.out.splitlines()] == [
            f" boss  fence 41  {ANA}", " boss  no leader", f" boss  fence 43  {BEN}",
        ]  # fmt: skip
    ((verb, names, options),) = store.calls
    assert (verb, names) == ("election", ("boss",))
    assert (options["retry"], options["ttl"], options["renew_deadline"]) == (7.0, 60.0, 10.0)
