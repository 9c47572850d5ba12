"""`once` and `elect` step by step: what becomes of the slot and of the term, and when a candidate goes on."""

from __future__ import annotations

import json
import uuid
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._blocking.once import Run
from leasehold.cli import elect as elect_module
from leasehold.cli import once as once_module
from leasehold.cli import wait_line
from leasehold.cli.break_lock import operator
from leasehold.cli.parser import read
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.testing import lose
from tests.unit.cli_support import Notes, is_held, job_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold.cli.held import Held


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect(f"memory://{uuid.uuid4().hex}", timeout=30) as client:
        yield client


# --- once


def once(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch, code: int | Exception, *words: str
) -> tuple[int, Any, Notes]:
    """A run for the slot `monday`, whose command ends with the code."""

    def supervise(_job: object, _client: object, held: Held, slot: str) -> int:
        notes.done.append(f"{held.title} for {slot}")
        if words[-1:] == ("lose",):
            lose(held.leases["job"])
        if isinstance(code, Exception):
            raise code
        return code

    monkeypatch.setattr(once_module, "supervise", supervise)
    options = [word for word in words if word != "lose"]
    job, notes = job_of("once", "job", "--slot", "monday", *options, "--", "x")
    return once_module._in_slot(job, client), job, notes


def test_a_slot_that_was_run_is_closed_and_one_that_failed_is_open(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, job, notes = once(client, monkeypatch, 4)
    assert (code, job.facts["slot"]) == (4, "monday")
    assert notes.done == ["wait begins", "wait ended", "'job' for monday", "discarded"]
    last = client.last_run("job", slot="monday")
    assert last is not None
    assert (last.outcome, last.closed) == ("failed", False)
    code, _, notes = once(client, monkeypatch, 0)
    assert (code, "'job' for monday" in notes.done) == (0, True)
    last = client.last_run("job", slot="monday")
    assert last is not None
    assert (last.outcome, last.closed) == ("done", True)
    code, job, notes = once(client, monkeypatch, 0)
    assert (code, job.facts["outcome"], "'job' for monday" in notes.done) == (0, "skipped", False)
    assert not is_held(client, "job")
    assert job.facts["finished"] == last.finished
    assert "waited" in job.facts


def test_once_more_needs_a_reason_that_is_kept_with_the_operator(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(client, monkeypatch, 0)
    code, _, notes = once(client, monkeypatch, 0, "--again", "--reason", "it was empty")
    assert (code, "'job' for monday" in notes.done) == (0, True)
    last = client.last_run("job", slot="monday")
    assert last is not None
    assert last.again is not None
    assert "it was empty" in last.again
    assert f"(by {operator()})" in last.again


@pytest.mark.parametrize(("ended", "sentences"), [(0, 1), (79, 0)])
def test_a_lease_that_was_lost_during_a_slot_gives_79_and_is_said_once(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch, ended: int, sentences: int
) -> None:
    code, job, notes = once(client, monkeypatch, ended, "lose")
    assert (code, job.facts["outcome"], len(notes.texts("error"))) == (79, "lost", sentences)


def test_an_error_of_our_own_in_a_slot_ends_the_command_and_leaves_the_slot_open(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError):
        once(client, monkeypatch, RuntimeError("it broke"))
    assert not is_held(client, "job")
    assert once(client, monkeypatch, 0)[0] == 0


def test_the_report_of_a_period_has_the_slot_that_the_store_says_it_is(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def supervise(_job: object, _client: object, _held: object, slot: str) -> int:
        told.append(slot)
        return 0

    monkeypatch.setattr(once_module, "supervise", supervise)
    job, _ = job_of("once", "job", "--every", "1d", "--", "x")
    assert once_module._in_slot(job, client) == 0
    last = client.last_run("job")
    assert last is not None
    assert (told, job.facts["slot"]) == ([last.slot], last.slot)


@pytest.mark.parametrize(
    ("module", "body", "words"),
    [(once_module, "_in_slot", ["once", "job", "--slot", "monday"]), (elect_module, "_lead", ["elect", "job"])],
)
def test_after_an_error_of_our_own_the_command_is_ended_before_another_can_have_the_lock(
    module: Any, body: str, words: list[str], client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("it broke")

    ends: list[bool] = []
    monkeypatch.setattr(module, "supervise", fail)
    job, _ = job_of(*words, "--", "x")
    job.child.discard = lambda: ends.append(is_held(client, "job"))
    with pytest.raises(RuntimeError):
        getattr(module, body)(job, client)
    assert ends == [True]
    assert not is_held(client, "job")


@pytest.mark.parametrize(
    ("module", "body", "words"),
    [
        (once_module, "_in_slot", ["once", "job", "--slot", "monday", "--on-conflict", "standby", "-w", "12s"]),
        (elect_module, "_lead", ["elect", "job", "-w", "12s"]),
    ],
)
def test_the_line_about_a_wait_knows_its_lock_and_its_limit(
    module: Any, body: str, words: list[str], client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[tuple[object, ...]] = []

    def line(_: object, names: list[str], console: object, limit: float | None) -> Any:
        lines.append((names, console, limit))
        return nullcontext()

    monkeypatch.setattr(wait_line, "WaitLine", line)
    monkeypatch.setattr(module, "supervise", lambda *_: 0)
    job, notes = job_of(*words, "--", "x")
    assert getattr(module, body)(job, client) == 0
    assert lines == [(["job"], notes, 12.0)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(BackendUnavailable("away"), 69), (OutcomeUnknown("no answer"), 69), (BackendRejected("read-only"), 77)],
)
def test_a_record_that_could_not_be_written_is_the_outcome(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: int
) -> None:
    def away(*_: object, **__: object) -> None:
        raise error

    run: Any = object.__new__(Run)
    monkeypatch.setattr(Run, "slot", "monday")
    monkeypatch.setattr(Run, "lease", SimpleNamespace(name="job", fence=1))

    def attempt(_job: object, _client: object, _slots: object, stack: Any) -> Any:
        stack.callback(away)
        return run

    monkeypatch.setattr(once_module, "_attempt", attempt)
    code, job, notes = once(client, monkeypatch, 0)
    assert (code, job.facts["outcome"]) == (expected, "not recorded")
    assert "the command ended with 0, but this may not be recorded: it may run again" in notes.texts("error")[0]


def test_standing_by_for_a_slot_gives_up_with_75(client: leasehold.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with client.lock("job").hold():
        code, job, notes = once(client, monkeypatch, 0, "--on-conflict", "standby", "-w", "10ms")
    assert (code, job.facts["outcome"]) == (75, "busy")
    assert notes.texts("note")[0].startswith("'job' is busy")
    assert notes.done == ["wait begins", "wait ended"]


def test_a_paused_job_is_skipped_and_the_report_says_why(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.pause("job", reason="moving", by="ana")
    code, job, _ = once(client, monkeypatch, 0)
    assert (code, job.facts["outcome"]) == (0, "skipped")
    assert "moving" in job.facts["paused"]


# --- elect


def led(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch, code: int | Exception, *words: str
) -> tuple[int, Any, Notes]:
    """A term of `job`, whose command ends with the code."""

    def supervise(_job: object, _client: object, held: Held) -> int:
        notes.done.append(f"led {held.title}")
        if words[-1:] == ("lose",):
            state = client.inspect("job")
            assert state is not None
            client.break_lock("job", fence=state.holdings[0].fence, reason="test", now=True)
        if isinstance(code, Exception):
            raise code
        return code

    monkeypatch.setattr(elect_module, "supervise", supervise)
    job, notes = job_of("elect", "job", *(word for word in words if word != "lose"), "--", "x")
    return elect_module._lead(job, client), job, notes


def test_a_leader_whose_command_ends_resigns_at_once(client: leasehold.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, notes = led(client, monkeypatch, 3)
    assert code == 3
    assert notes.done == ["wait begins", "wait ended", "led 'job'", "discarded"]
    assert notes.texts("note")[0].startswith("leading 'job' with fence ")
    assert not is_held(client, "job")


def test_a_leader_that_was_broken_lost_its_term_and_says_so_once(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, job, notes = led(client, monkeypatch, 0, "lose")
    assert (code, job.facts["outcome"], len(notes.texts("error"))) == (79, "lost", 1)
    code, job, notes = led(client, monkeypatch, 79, "lose")
    assert (code, job.facts["outcome"], notes.texts("error")) == (79, "lost", [])


def test_an_error_of_our_own_ends_the_command_before_the_term(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError):
        led(client, monkeypatch, RuntimeError("it broke"))
    assert not is_held(client, "job")


def test_a_campaign_gives_up_with_75(client: leasehold.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with client.lock("job").hold():
        code, job, notes = led(client, monkeypatch, 0, "-w", "10ms")
    assert (code, job.facts["outcome"], notes.done) == (75, "busy", ["wait begins", "wait ended"])


def test_a_resignation_that_the_store_did_not_hear_is_mentioned(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise BackendUnavailable("no route")

    def term(_job: object, client: Any, _election: object, block: Any) -> Any:
        lease = block.enter_context(client.lock("job").hold())
        block.callback(away)
        return lease

    monkeypatch.setattr(elect_module, "_wait_for_term", term)
    code, _, notes = led(client, monkeypatch, 5)
    assert code == 5
    assert notes.texts("error") == ["could not resign; 'job' is free when its ttl is over: no route"]


@pytest.mark.parametrize(
    ("facts", "code", "led_before", "exits", "goes_on"),
    [
        ({"outcome": "lost", "fence": 1}, 79, True, False, True),
        ({"outcome": "lost", "fence": 1}, 79, True, True, False),
        ({"outcome": "ran", "fence": 1}, 0, True, False, False),
        ({"outcome": "ran", "fence": 1}, 69, True, False, False),  # the command's own code
        ({"outcome": "error"}, 69, True, False, True),
        ({"outcome": "error"}, 69, True, True, True),
        ({"outcome": "error"}, 69, False, False, False),
        ({"outcome": "busy"}, 75, True, False, False),
        ({"outcome": "error"}, 70, True, False, False),
    ],
)
def test_a_lost_term_and_a_store_that_is_away_later_are_reasons_to_campaign_again(
    facts: dict[str, Any], code: int, led_before: bool, exits: bool, goes_on: bool
) -> None:
    job, _ = job_of("elect", "job", *["--exit-on-loss"] * exits, "--", "x")
    job.facts |= facts
    assert elect_module._goes_on(job, code, led=led_before) is goes_on


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("no answer")])
def test_a_store_that_is_away_at_first_is_an_error_and_later_a_pause(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(elect_module, "run_command", fail)
    job, notes = job_of("elect", "job", "--", "x")
    with pytest.raises(type(error)):
        elect_module._campaign(job, led=False)
    assert elect_module._campaign(job, led=True) == 69
    assert notes.texts("error") == [str(error)]


def test_campaigns_follow_each_other_with_pauses_until_one_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    seen: list[bool] = []
    ends = [({"outcome": "lost", "fence": 1}, 79), ({"outcome": "error"}, 69), ({"outcome": "ran", "fence": 2}, 4)]

    def campaign(job: Any, *, led: bool) -> int:
        seen.append(led)
        facts, code = ends.pop(0)
        job.facts |= facts
        return code

    monkeypatch.setattr(elect_module, "_campaign", campaign)
    monkeypatch.setattr(elect_module, "time", SimpleNamespace(sleep=slept.append))
    notes: Any = Notes()
    assert elect_module.elect(read(["elect", "job", "--retry", "2s", "--", "x"]), notes) == 4  # type: ignore[arg-type]
    assert seen == [False, True, True]
    assert len(slept) == 2
    assert all(2.0 <= pause <= 2.4 for pause in slept)
    assert notes.texts("note") == ["campaigning for 'job' again"] * 2


def test_a_signal_that_was_passed_on_ends_the_campaigns(monkeypatch: pytest.MonkeyPatch) -> None:
    def campaign(job: Any, *, led: bool) -> int:
        job.facts |= {"outcome": "lost", "fence": 1}
        job.is_ending = True
        return 79

    monkeypatch.setattr(elect_module, "_campaign", campaign)
    notes: Any = Notes()
    assert elect_module.elect(read(["elect", "job", "--", "x"]), notes) == 79  # type: ignore[arg-type]


def test_observing_prints_each_leader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    holder = leasehold.Holder("db-3", 7, "nightly")
    for words in (["--json"], []):
        arguments: Any = read(["elect", "job", "--observe", "--url", url, *words])
        elect_module._show(arguments, SimpleNamespace(fence=41, holder=holder))  # type: ignore[arg-type]
        elect_module._show(arguments, None)
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    facts = json.loads(first)
    assert (facts["name"], facts["leader"], facts["schema"]) == ("job", {"fence": 41, "who": str(holder)}, 1)
    assert facts["at"] > 1_700_000_000
    assert json.loads(second)["leader"] is None
    assert third[8:] == f" job  fence 41  {holder}"
    assert fourth[8:] == " job  no leader"


def test_a_leader_is_shown_with_the_instant_and_nothing_that_could_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SimpleNamespace(time=lambda: 1_763_208_000.1236, strftime=lambda *_: "12:00:00", localtime=lambda _: None)
    monkeypatch.setattr(elect_module, "time", clock)
    leader: Any = SimpleNamespace(fence=41, holder=leasehold.Holder("db-3", 7, "up\x1b[2J"))
    for words in (["--json"], []):
        elect_module._show(read(["elect", "job", "--observe", *words]), leader)  # type: ignore[arg-type]
    data, text = capsys.readouterr().out.splitlines()
    assert json.loads(data)["at"] == 1_763_208_000.124
    assert "\x1b" not in text
    assert text.startswith("12:00:00 job  fence 41  ")
