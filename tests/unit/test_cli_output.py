"""What the verbs of the command line show, return and ask of the library, in one process."""

from __future__ import annotations

import json
import os
import pwd
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.cli.break_lock import operator
from leasehold.cli.elect import _election, _kill_after
from leasehold.cli.inspect import holding_lines, rows_of
from leasehold.cli.job_lines import last_run_as_data, last_run_lines, pause_lines
from leasehold.cli.main import main
from leasehold.cli.once import _skipped, _slots
from leasehold.cli.output import Console, state_as_data
from leasehold.cli.parser import Usage, read
from leasehold.cli.run import Job, _lock
from leasehold.values import Holder, Holding, LastRun, LockState, Mode, Pause, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANA, BEN = Holder("db-3", 7, "nightly", "the report"), Holder("db-4", 8)
HELD = Holding(ANA, 41, 61.0, 12.0)
BROKEN = Holding(BEN, 42, 3.0, 5.0, broken="stuck")
KEPT = Holding(BEN, 43, 3.0, 5.0, cooling=True)


# --- what is shown


def test_the_list_has_a_row_for_each_holder_pause_and_waiter() -> None:
    states = [
        LockState("a", Mode.EXCLUSIVE, 1, (HELD,), (BEN, ANA)),
        LockState("b", Mode.PERMIT, 3, (BROKEN, KEPT), ()),
        LockState("c", Mode.EXCLUSIVE, 1, (), (), Pause("moving", "ana", 90.0, 5.0)),
        LockState("d", Mode.SHARED, 1, (), (BEN,)),
    ]
    held = [
        ("a", "exclusive", str(ANA), "1m01s", "12s", 41, 2, "the report"),
        ("b", "2 of 3", str(BEN), "3.0s", "5.0s", 42, 0, "broken: stuck"),
        ("b", "2 of 3", str(BEN), "3.0s", "5.0s", 43, 0, "released, kept for --min-hold"),
        ("c", "paused", "ana", "5.0s", "1m30s", "-", 0, "moving"),
        ("d", "shared", "none", "-", "-", "-", 1, ""),
    ]
    assert rows_of(states, waiters=False) == held
    assert rows_of(states[:1], waiters=True)[1:] == [
        ("a", "waiting", str(BEN), "-", "-", "-", "#1", ""),
        ("a", "waiting", str(ANA), "-", "-", "-", "#2", "the report"),
    ]


def test_a_holder_is_described_in_lines() -> None:
    lines = [f"  holder   {ANA}", "  since    1m01s ago", "  fence    41", "  reason   the report"]
    assert holding_lines(HELD) == lines
    assert holding_lines(BROKEN)[-1] == "  broken   stuck; kept until its ttl is over in 5.0s"
    assert holding_lines(KEPT)[-1] == "  released, but kept for another 5.0s (--min-hold)"


def test_a_lock_as_data_has_every_fact() -> None:
    state = LockState("a", Mode.PERMIT, 3, (Holding(ANA, 41, 1.23456, 2.34567),), (BEN,), Pause("moving", "ana", 9.0))
    ana = {"host": "db-3", "pid": 7, "label": "nightly", "reason": "the report", "user": None}
    assert state_as_data(state) == {
        "name": "a",
        "mode": "permit",
        "capacity": 3,
        "holdings": [
            {"holder": ana, "fence": 41, "held_for": 1.235, "expires_in": 2.346, "broken": None, "cooling": False}
        ],
        "waiting": [{"host": "db-4", "pid": 8, "label": None, "reason": None, "user": None}],
        "paused": {"reason": "moving", "by": "ana", "expires_in": 9.0, "paused_for": None},
    }


def test_a_pause_is_described_as_far_as_it_is_known() -> None:
    assert pause_lines(None) == []
    assert pause_lines(Pause("moving", "ana")) == ["  paused   by ana: moving"]
    assert pause_lines(Pause("moving", "ana", 0.0, 0.0)) == ["  paused   by ana 0.0s ago: moving; 0.0s left"]
    assert pause_lines(Pause("moving", "ana", 90.0, 5.0)) == ["  paused   by ana 5.0s ago: moving; 1m30s left"]


def test_the_last_run_is_described_with_all_that_is_remembered() -> None:
    run = LastRun("job", "monday", ANA, 90.0, 60.0, 41, failed=True, closed=False, again="empty (by ana)")
    assert last_run_lines(run) == [
        "  last run for slot monday: failed; its slot is open",
        f"    runner   {ANA}",
        "    began    1970-01-01T00:01:00+00:00",
        "    finished 1970-01-01T00:01:30+00:00",
        "    fence    41",
        "    again    empty (by ana)",
    ]
    data = last_run_as_data(run)
    assert data is not None
    assert (data["slot"], data["began"], data["finished"], data["fence"]) == ("monday", 60.0, 90.0, 41)
    assert (data["outcome"], data["closed"], data["again"], data["forgotten"]) == (
        "failed", False, "empty (by ana)", None,
    )  # fmt: skip
    assert last_run_lines(None) == []


@pytest.mark.parametrize(
    ("outcome", "closed", "shown"),
    [
        ("done", True, "done"), ("failed", True, "failed"), ("failed", False, "failed; its slot is open"),
        ("forgotten", False, "forgotten"), ("forgotten", True, "forgotten"),
    ],
)  # fmt: skip
def test_a_slot_that_can_run_again_is_said_to_be_open_unless_it_was_forgotten(
    outcome: str, closed: bool, shown: str
) -> None:
    run: Any = SimpleNamespace(
        slot="monday", outcome=outcome, closed=closed, runner=None, began=None, finished=0.0, fence=None, again=None,
        forgotten=None,
    )  # fmt: skip
    assert last_run_lines(run)[0] == f"  last run for slot monday: {shown}"
    assert last_run_as_data(None) is None


# --- the verbs of operators


class Screen:
    """Runs verbs on one store."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str]:
        """The exit code, and stdout."""
        self._capsys.readouterr()
        code = main([*words, "--url", self.url])
        return code, self._capsys.readouterr().out

    def data(self, *words: str) -> tuple[int, dict[str, Any]]:
        code, out = self(*words, "--json")
        facts = json.loads(out)
        assert facts.pop("schema") == 1
        return code, facts


@pytest.fixture
def screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Screen]:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url) as client:
        client.lock("first").acquire().release()
        yield Screen(url, capsys)


def test_pausing_and_resuming_say_what_they_did_and_exit_so(screen: Screen) -> None:
    code, facts = screen.data("pause", "job", "--reason", "moving", "--for", "90s")
    expected = {"name": "job", "reason": "moving", "by": operator(), "for": 90.0, "paused": True, "holders": 0}
    assert (code, facts) == (0, expected)
    code, out = screen("pause", "job", "--reason", "moving", "--for", "90s")
    assert (code, out) == (0, f"paused 'job' for 1m30s, or until: leasehold resume job --url {screen.url}\n")
    code, out = screen("info", "job")
    assert code == 1
    assert out.startswith("'job' is paused\n  paused   by ")
    assert screen.data("resume", "job") == (0, {"name": "job", "by": operator(), "resumed": True})
    assert screen("resume", "job") == (1, "'job' was not paused\n")


def test_a_pause_names_who_still_holds(screen: Screen) -> None:
    with leasehold.connect(screen.url, label="worker") as client, client.lock("job").hold():
        code, out = screen("pause", "job", "--reason", "moving")
        assert code == 0
        assert out.startswith("paused 'job' until: leasehold resume job")
        assert "  still held by worker on " in out
        client.resume("job")


def test_forgetting_a_slot_says_whether_there_was_one(screen: Screen) -> None:
    words = ("forget", "job", "--slot", "monday", "--reason", "empty")
    code, out = screen(*words)
    assert (code, "has no run for slot monday" in out) == (1, True)
    with leasehold.connect(screen.url) as client:
        assert client.once("job", slot="monday").run(lambda: None).ran
        with client.lock("job").hold():
            assert screen(*words)[0] == 75
    code, facts = screen.data(*words)
    assert code == 0
    assert facts == {"name": "job", "slot": "monday", "reason": "empty", "by": operator(), "forgotten": True}
    code, facts = screen.data("info", "job", "--slot", "monday")
    assert (code, facts["held"], facts["last_run"]["outcome"]) == (1, False, "forgotten")


def test_breaking_and_raising_say_what_they_did_and_exit_so(screen: Screen) -> None:
    with leasehold.connect(screen.url) as client:
        lease = client.lock("job").acquire()
        words = ("break", "job", "--fence", str(lease.fence), "--reason", "stuck", "--yes")
        code, out = screen("break", "job", "--fence", "7", "--reason", "stuck", "--yes")
        assert (code, "is not held with fence 7; nothing was broken" in out) == (1, True)
        code, facts = screen.data(*words)
        assert code == 0
        assert facts == {
            "name": "job", "fence": lease.fence, "reason": "stuck", "by": operator(), "broken": True, "now": False,
        }  # fmt: skip
        code, out = screen("info", "job")
        assert code == 0
        assert "broken   stuck (by " in out
        assert "To end the lease" not in out, "it is ended already"
        code, out = screen(*words, "--now")
        assert (code, out.endswith("the next one gets the lock at once\n")) == (0, True)
        lease.release()
        code, out = screen("fence", "raise", "job", str(lease.fence + 1000), "--reason", "restored", "--yes")
        assert code == 0
        assert client.lock("job").acquire().fence > lease.fence + 1000


def test_an_order_under_sudo_names_the_person_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    plain = operator()
    assert plain == f"{pwd.getpwuid(os.getuid()).pw_name}@{os.uname().nodename}"
    monkeypatch.setenv("SUDO_USER", "ana")
    assert operator() == f"{plain}, sudo from ana"


def test_what_a_list_shows_can_be_limited_by_a_prefix(screen: Screen) -> None:
    with leasehold.connect(screen.url) as client, client.lock_all(["ab", "ac", "b"]).hold():
        code, out = screen("ls", "a")
        assert code == 0
        assert [line.split()[0] for line in out.splitlines()] == ["NAME", "ab", "ac"]


# --- what the options become


class Recorder:
    """In the place of a client: what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.read = "read"

    def __getattr__(self, verb: str) -> Any:
        def called(*words: Any, **options: Any) -> Recorder:
            self.calls.append((verb, words, options))
            return self

        return called


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ([], ("lock", ("job",), {"min_hold": 0.0, "reason": None})),
        (
            ["--min-hold", "2s", "--reason", "r"], ("lock", ("job",), {"min_hold": 2.0, "reason": "r"}),
        ),
        (["--permits", "3", "--reason", "r"], ("semaphore", ("job", 3), {"min_hold": 0.0, "reason": "r"})),
        (
            ["--permits", "3", "--min-hold", "4s"], ("semaphore", ("job", 3), {"min_hold": 4.0, "reason": None}),
        ),
        (["--shared"], ("rwlock", ("job",), {"min_hold": 0.0, "reason": None})),
        (
            ["--shared", "--min-hold", "5s", "--reason", "r"], ("rwlock", ("job",), {"min_hold": 5.0, "reason": "r"}),
        ),
        (
            ["b", "--min-hold", "6s", "--reason", "r"],
            ("lock_all", (["job", "b"],), {"min_hold": 6.0, "reason": "r"}),
        ),
    ],
)  # fmt: skip
def test_the_lock_of_a_run_is_what_its_options_say(words: list[str], call: Any) -> None:
    client: Any = Recorder()
    found: Any = _lock(Job(read(["run", "job", *words, "--", "true"]), Console()), client)  # type: ignore[arg-type]
    assert client.calls == [call]
    assert (found == "read") is ("--shared" in words)


def test_the_job_of_once_is_what_its_options_say() -> None:
    client: Any = Recorder()
    words = ["once", "job", "--every", "1d", "--tz", "Europe/Berlin", "--on-conflict", "standby", "--wait", "5s",
             "--close-on-failure", "--keep", "7d", "--reason", "r", "--", "true"]  # fmt: skip
    _slots(read(words), client)  # type: ignore[arg-type]
    _slots(read(["once", "job", "--cron", "0 2 * * *", "--on-conflict", "fail", "--", "true"]), client)  # type: ignore[arg-type]
    (_, _, first), (_, _, second) = client.calls
    assert first == {
        "every": 86_400.0, "cron": None, "slot": None, "tz": "Europe/Berlin", "on_conflict": "standby",
        "on_failure": "close", "keep": 604_800.0, "timeout": 5.0, "reason": "r",
    }  # fmt: skip
    assert (second["cron"], second["on_conflict"], second["on_failure"]) == ("0 2 * * *", "skip", "open")
    assert (second["tz"], second["keep"], second["timeout"]) == ("UTC", None, None)


def test_the_election_is_what_its_options_say() -> None:
    client: Any = Recorder()
    words = ["elect", "job", "--ttl", "9s", "--renew-deadline", "6s", "--retry", "1s", "--reason", "r", "--", "true"]
    _election(read(words), client)  # type: ignore[arg-type]
    _election(read(["elect", "job", "--", "true"]), client)  # type: ignore[arg-type]
    assert [options for _, _, options in client.calls] == [
        {"ttl": 9.0, "renew_deadline": 6.0, "retry": 1.0, "reason": "r"},
        {"ttl": 15.0, "renew_deadline": 10.0, "retry": 2.0, "reason": None},
    ]


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ([], 4.45),  # 0.98 * 15 - 10 - 0.25
        (["--ttl", "60s"], 5.0),
        (["--ttl", "60s", "--kill-after", "9s"], 9.0),
        (["--kill-after", "4.4s"], 4.4),
        (["--ttl", "100s", "--renew-deadline", "90s", "--kill-after", "7.75s"], 7.75),  # all that there is
        (["--renew-deadline", "14.6s"], 0.0),
    ],
)
def test_a_leaders_command_is_gone_before_its_lease_can_end(words: list[str], seconds: float) -> None:
    assert _kill_after(read(["elect", "job", *words, "--", "true"])) == pytest.approx(seconds)  # type: ignore[arg-type]


def test_a_leaders_command_gets_no_more_time_than_there_is() -> None:
    with pytest.raises(Usage, match=r"--kill-after 4.5s is longer than what is left .*\(4.[45]s\)"):
        _kill_after(read(["elect", "job", "--kill-after", "4.5s", "--", "true"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "code", "outcome"),
    [
        ([], 0, "skipped"),
        (["--on-conflict", "fail"], 75, "busy"),
        (["--on-conflict", "fail", "-E", "9"], 9, "busy"),
        (["--on-conflict", "fail", "-E", "0"], 0, "busy"),
    ],
)
def test_a_slot_that_another_has_exits_as_was_asked_for(words: list[str], code: int, outcome: str) -> None:
    said: list[str] = []
    arguments = read(["once", "job", "--slot", "monday", *words, "--", "true"])
    job: Any = SimpleNamespace(arguments=arguments, facts={}, console=SimpleNamespace(note=said.append))
    skipped = Skipped("job", "monday", ANA, 90.0)
    assert _skipped(job, skipped) == code
    assert job.facts == {"outcome": outcome, "slot": "monday", "finished": 90.0}
    assert said == [str(skipped)]
