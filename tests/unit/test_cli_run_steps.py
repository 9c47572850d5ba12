"""`run` step by step: what each outcome does to the lock, the report and the exit code."""

from __future__ import annotations

import json
import os
import signal
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.cli import exit_codes
from leasehold.cli import run as run_module
from leasehold.cli.child import CommandFailed
from leasehold.cli.held import Held
from leasehold.cli.signals import Interrupted
from leasehold.errors import BackendUnavailable
from tests.unit.cli_support import Notes, is_held, job_of, noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect(f"memory://{uuid.uuid4().hex}", timeout=30) as client:
        yield client


# --- the report, and what is refused without a store


def test_names_that_are_given_twice_are_taken_once() -> None:
    job, _ = job_of("run", "b", "a", "b", "--", "x", "y")
    assert job.names == ["b", "a"]
    assert job.facts == {"names": ["b", "a"], "command": ["x", "y"], "outcome": "error"}
    job, _ = job_of("once", "a", "--slot", "s", "--", "x")
    assert job.facts == {"name": "a", "command": ["x"], "outcome": "error"}


def test_the_report_has_the_facts_and_the_code_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = job_of("run", "job", "--report", str(tmp_path / "report"), "--", "x")
    monkeypatch.setattr(run_module, "_checked", lambda job, _: noted([], job.facts.update(outcome="ran"), 5))
    monkeypatch.setattr(run_module, "time", SimpleNamespace(time=lambda: 1_234.56789))
    assert run_module.run_command(job, lambda *_: 0) == 5
    assert json.loads((tmp_path / "report").read_text()) == {
        "schema": 1, "name": "job", "command": ["x"], "outcome": "ran", "started_at": 1234.568, "exit_code": 5,
    }  # fmt: skip


def test_the_report_of_a_run_that_broke_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("it broke")

    job, _ = job_of("run", "job", "--report", str(tmp_path / "report"), "--", "x")
    monkeypatch.setattr(run_module, "_checked", fail)
    with pytest.raises(RuntimeError, match="it broke"):
        run_module.run_command(job, lambda *_: 0)
    facts = json.loads((tmp_path / "report").read_text())
    assert (facts["outcome"], facts["exit_code"]) == ("error", 70)


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    job, notes = job_of("run", "job", "--report", str(tmp_path), "--", "x")
    assert run_module.run_command(job, lambda *_: pytest.fail("it ran")) == exit_codes.USAGE
    assert notes.texts("error") == [
        f"cannot write the report to {tmp_path}: it is a directory; the command was not run"
    ]


def environment_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the command of a run would get."""
    given: list[dict[str, str]] = []

    def with_processes(_job: object, environment: dict[str, str], _body: object) -> int:
        given.append(environment)
        return 0

    monkeypatch.setattr(run_module, "_with_processes", with_processes)
    assert run_module._checked(job_of(*words)[0], lambda *_: 0) == 0
    return given[0]


def test_a_command_inherits_what_outer_runs_hold_but_not_what_they_were_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("NAME", "FENCE", "FENCES", "SLOT"):
        monkeypatch.setenv(f"LEASEHOLD_{word}", "of another run")
    monkeypatch.setenv("LEASEHOLD_URL", "local:")
    monkeypatch.setenv("LEASEHOLD_HELD", '["outer"]')
    found = environment_of(["run", "a", "b", "--", "true"], monkeypatch)
    ours = {name: value for name, value in found.items() if name.startswith("LEASEHOLD_")}
    assert ours == {"LEASEHOLD_URL": "local:", "LEASEHOLD_HELD": '["outer", "a", "b"]'}
    assert found["PATH"] == os.environ["PATH"]


def test_a_run_inside_itself_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_HELD", '["a", "b"]')
    job, notes = job_of("run", "c", "b", "--", "true")
    assert run_module._checked(job, lambda *_: 0) == exit_codes.USAGE
    assert job.facts["outcome"] == "nested"
    assert "already holds 'b'" in notes.texts("error")[0]


def test_a_command_that_is_not_there_is_reported_as_not_started() -> None:
    job, notes = job_of("run", "job", "--", "no-such-command-anywhere")
    assert run_module._checked(job, lambda *_: 0) == exit_codes.NOT_FOUND
    assert (job.facts["outcome"], notes.texts("error")) == (
        "not started", ["no-such-command-anywhere: command not found"],
    )  # fmt: skip


# --- processes and the store


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is made and ended around a run, in order."""
    done: list[Any] = []

    class Made:
        def __init__(self, *words: Any) -> None:
            done.append(words)
            self.pid = 4711

        def __getattr__(self, name: str) -> Any:
            return lambda: done.append(name)

    for name in ("Child", "WatchdogHandle", "Signals"):
        monkeypatch.setattr(run_module, name, Made)
    return done


CLEANED_UP = ["discard", "dismiss", "reap", "restore"]


def test_processes_are_made_before_the_store_is_opened_and_cleaned_up_after_it(
    processes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = job_of("run", "job", "--kill-after", "9s", "--", "x", "y")
    monkeypatch.setattr(run_module, "_with_store", lambda *_: noted(processes, "store", 3))
    assert run_module._with_processes(job, {"A": "b"}, lambda *_: 0) == 3
    assert processes == [(["x", "y"], {"A": "b"}), (4711, 9.0), (), "store", *CLEANED_UP]


def test_a_signal_during_the_wait_cleans_up_and_is_the_exit_code(
    processes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise Interrupted(signal.SIGHUP)

    job, notes = job_of("run", "job", "--", "x")
    monkeypatch.setattr(run_module, "_with_store", interrupted)
    assert run_module._with_processes(job, {}, lambda *_: 0) == 129
    assert job.facts["outcome"] == "interrupted"
    assert notes.said == [("interrupted", "SIGHUP ended the wait for the lock; the command was not run")]
    assert processes[3:] == CLEANED_UP


def test_the_holder_is_called_like_its_command_and_the_report_names_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    job, notes = job_of("run", "job", "--url", url, "--namespace", "n", "--ttl", "12s", "--", "/opt/shop/nightly.sh")

    def body(_: object, client: leasehold.Client) -> int:
        with client.lock("job").hold() as lease:
            state = client.inspect("job")
            assert state is not None
            assert state.holdings[0].holder.label == "nightly.sh"
            assert lease.ttl == 12
        return 8

    assert run_module._with_store(job, body) == 8
    assert job.facts["store"] == url
    assert notes.texts("detail") == [f"store: {url}"]


def test_a_store_inside_one_process_runs_nothing() -> None:
    job, _ = job_of("run", "job", "--url", "memory://private", "--", "x")
    with pytest.raises(leasehold.ConfigurationError, match="inside one process"):
        run_module._with_store(job, lambda *_: pytest.fail("it ran"))


# --- the lock


@pytest.mark.parametrize("words", [["-n"], ["-w", "0"], ["-w", "10ms"]])
def test_a_busy_lock_is_given_up_and_signals_interrupt_only_the_wait(
    client: leasehold.Client, words: list[str]
) -> None:
    job, notes = job_of("run", "job", *words, "--", "x")
    with client.lock("job").hold():
        assert run_module.acquire(job, client) is None
    assert notes.done == ["wait begins", "wait ended"]


@pytest.mark.parametrize("words", [["-n"], ["-w", "1m"], []])
def test_a_free_lock_is_taken(client: leasehold.Client, words: list[str]) -> None:
    job, notes = job_of("run", "job", *words, "--", "x")
    held = run_module.acquire(job, client)
    assert held is not None
    assert held.fences == {"job": held.leases["job"].fence}
    assert notes.done == ["wait begins", "wait ended"]
    held.release()


@pytest.mark.parametrize(
    ("words", "asked"),
    [(["-n"], ["try"]), (["-w", "0"], ["try"]), (["-w", "3s"], [3.0]), ([], [None])],
)
def test_the_lock_is_waited_for_as_long_as_was_asked(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch, words: list[str], asked: list[Any]
) -> None:
    found: list[Any] = []
    lease = SimpleNamespace(name="job", fence=1)

    def acquire(timeout: Any) -> Any:
        found.append(timeout)
        return lease

    def try_acquire() -> Any:
        found.append("try")
        return lease

    monkeypatch.setattr(run_module, "_lock", lambda *_: SimpleNamespace(acquire=acquire, try_acquire=try_acquire))
    assert run_module.acquire(job_of("run", "job", *words, "--", "x")[0], client) is not None
    assert found == asked


def test_an_error_of_the_wait_also_ends_the_time_in_which_signals_interrupt(client: leasehold.Client) -> None:
    job, notes = job_of("run", "job", "--permits", "3", "--", "x")
    with client.lock("job").hold(), pytest.raises(leasehold.ModeConflict):
        run_module.acquire(job, client)
    assert notes.done == ["wait begins", "wait ended"]


def test_under_the_lock_the_command_runs_and_the_lock_is_given_back(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, notes = job_of("run", "job", "--", "x")
    monkeypatch.setattr(run_module, "supervise", lambda *_: noted(notes.done, f"held {is_held(client, 'job')}", 6))
    assert run_module._under_lock(job, client) == 6
    assert notes.done[2:] == ["held True", "discarded"]
    assert not is_held(client, "job")
    assert 0 <= job.facts["waited"] < 60


def test_after_an_error_of_our_own_the_command_ends_before_the_lock_is_given_back(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("it broke")

    job, notes = job_of("run", "job", "--", "x")
    job.child.discard = lambda: notes.done.append(f"discarded under the lock: {is_held(client, 'job')}")
    monkeypatch.setattr(run_module, "supervise", fail)
    with pytest.raises(RuntimeError):
        run_module._under_lock(job, client)
    assert notes.done[-1] == "discarded under the lock: True"
    assert not is_held(client, "job")


@pytest.mark.parametrize(
    ("words", "code", "outcome", "kind"),
    [
        ([], 75, "busy", "note"),
        (["-E", "9"], 9, "busy", "note"),
        (["-E", "0"], 0, "busy", "note"),
        (["--on-conflict", "skip"], 0, "skipped", "detail"),
        (["--on-conflict", "skip", "-E", "9"], 0, "skipped", "detail"),
    ],
)
def test_a_conflict_is_shown_and_exits_as_was_asked_for(
    client: leasehold.Client, words: list[str], code: int, outcome: str, kind: str
) -> None:
    job, notes = job_of("run", "job", "-n", *words, "--", "x")
    with client.lock("job").hold():
        assert run_module._under_lock(job, client) == code
    assert job.facts["outcome"] == outcome
    (shown,) = notes.texts(kind)
    assert shown.startswith("'job' is busy\n  holder   ")
    assert "waited" in job.facts


def test_of_several_names_those_that_are_busy_are_shown(client: leasehold.Client) -> None:
    with client.lock("b").hold():
        assert run_module._busy(client, ["a", "b"]) == ["b"]
    assert run_module._busy(client, ["a", "b"]) == ["a", "b"]
    assert run_module._busy(client, ["a"]) == ["a"]


def test_a_store_that_is_away_at_the_release_is_mentioned_and_no_more() -> None:
    def fail() -> None:
        raise BackendUnavailable("no route")

    job, notes = job_of("run", "job", "--", "x")
    held: Any = SimpleNamespace(title="'job'", release=fail)
    run_module.release(job, held)
    assert notes.said == [("error", "could not release 'job'; it is free when its ttl is over: no route")]


# --- the command, under the lease


def supervised(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch, *words: str, slot: str | None = None
) -> tuple[Any, Notes, dict[str, str]]:
    """Supervise a command that is not there; gives what it would be told."""
    told: dict[str, str] = {}

    def to_its_end(_job: object, _client: object, _held: object, record: Any, environment: dict[str, str]) -> int:
        told.update(environment)
        record.lasts_until(7.0)
        closing.append(record)
        return 5

    closing: list[Any] = []
    job, notes = job_of("run", *words, "--", "x")
    held = run_module.acquire(job, client)
    assert held is not None
    monkeypatch.setattr(run_module, "_run_to_its_end", to_its_end)
    assert run_module.supervise(job, client, held, slot) == 5
    assert closing[0]._file is None, "the record is closed"
    held.release()
    return job, notes, told


def test_a_command_is_told_its_name_its_fence_and_its_record(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEASEHOLD_LEASE", raising=False)
    job, notes, told = supervised(client, monkeypatch, "job")
    fence = job.facts["fence"]
    record = told.pop("LEASEHOLD_LEASE")
    assert told == {"LEASEHOLD_NAME": "job", "LEASEHOLD_FENCE": str(fence)}
    assert record.endswith(f"=leasehold-{fence}")
    assert notes.texts("detail") == [f"acquired 'job' with fence {fence}"]
    assert "abandoned" in job.facts


def test_a_command_of_several_names_is_told_all_fences_and_its_slot(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _, told = supervised(client, monkeypatch, "a", "b", slot="monday")
    assert json.loads(told["LEASEHOLD_FENCES"]) == job.facts["fences"]
    assert told["LEASEHOLD_SLOT"] == "monday"
    assert "LEASEHOLD_NAME" not in told
    assert told["LEASEHOLD_LEASE"].endswith(f"=leasehold-{max(job.facts['fences'].values())}")


class Stage:
    """In the place of the supervisor and the terminal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.may = True
        self.before_the_release: list[str] = []
        self.options: dict[str, Any] = {}
        self.status: int = 0
        self.stopped_for: int | None = None
        self.is_ending = False
        stage = self

        class Supervisor:
            def __init__(self, *_: object, **options: Any) -> None:
                stage.options = options

            stopped_for = property(lambda _: stage.stopped_for)
            exit_code = property(lambda _: stage.status)
            is_ending = property(lambda _: stage.is_ending)

            def note(self, _: object) -> None:
                stage.done.append("event")

            def may_start(self) -> bool:
                if "offered" in stage.done and len(stage.done) > 1:
                    stage.done.append("may start")
                return stage.may

            def watch(self) -> None:
                stage.done.append("watched")

        terminal = SimpleNamespace(
            offer=lambda: self.done.append("offered"), take_back=lambda: self.done.append("taken back")
        )
        monkeypatch.setattr("leasehold.cli.supervisor.Supervisor", Supervisor)
        monkeypatch.setattr(run_module, "Terminal", lambda _: terminal)

    def play(self, client: leasehold.Client, *words: str, failure: CommandFailed | None = None) -> tuple[int, Any]:
        job, _ = job_of("run", "job", *words, "--", "x")
        stage = self

        def start(environment: dict[str, str], meanwhile: Callable[[], object]) -> None:
            stage.done.append(f"started with {environment}")
            meanwhile()
            if failure is not None:
                raise failure

        job.child.start = start
        with client.lock("job").hold() as lease:
            code = run_module._run_to_its_end(job, client, Held(lease), None, {"A": "b"})  # type: ignore[arg-type]
            self.before_the_release = list(self.done)
        return code, job


def test_a_command_is_offered_the_terminal_started_and_watched(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch)
    stage.status, stage.is_ending = 7, True
    code, job = stage.play(client, "--ttl", "9s", "--kill-after", "2s", "--max-hold", "3s", "--wait-group")
    assert (code, job.is_ending, job.facts["outcome"]) == (7, True, "ran")
    assert 0 <= job.facts["held"] < 60
    assert stage.done == ["offered", "started with {'A': 'b'}", "may start", "watched", "event"]
    options = {name: stage.options[name] for name in ("ttl", "kill_after", "max_hold", "wait_group")}
    assert options == {"ttl": 9.0, "kill_after": 2.0, "max_hold": 3.0, "wait_group": True}


@pytest.mark.parametrize(
    ("status", "stopped_for", "code", "outcome"),
    [
        (7, None, 7, "ran"),
        (143, exit_codes.LEASE_LOST, 79, "lost"),
        (0, exit_codes.MAX_HOLD, 124, "max_hold"),
        (143, exit_codes.INTERNAL, 70, "error"),
    ],
)
def test_the_outcome_is_that_of_the_command_or_the_reason_why_it_was_stopped(
    status: int, stopped_for: int | None, code: int, outcome: str
) -> None:
    job, _ = job_of("run", "job", "--", "x")
    supervisor: Any = SimpleNamespace(exit_code=status, stopped_for=stopped_for)
    assert run_module._ended(job, supervisor) == code
    assert (job.facts["outcome"], job.facts["command_status"]) == (outcome, status)


def test_a_lease_that_is_over_before_the_start_starts_nothing(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch)
    stage.may = False
    code, job = stage.play(client)
    assert (code, job.facts["outcome"]) == (79, "lost")
    assert stage.before_the_release == ["offered", "taken back"]


def test_a_command_that_cannot_start_gives_the_terminal_back(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch)
    code, job = stage.play(client, failure=CommandFailed("x: exec format error", 126))
    assert (code, job.facts["outcome"]) == (126, "not started")
    assert stage.before_the_release[-1] == "taken back"
    assert "watched" not in stage.done
    assert job.console.texts("error") == ["x: exec format error"]
