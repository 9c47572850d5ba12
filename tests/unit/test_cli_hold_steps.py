"""`hold`, `wait` and `check` on a clock of the test's, with leases and stores that answer as they are told."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.cli import check as check_module
from leasehold.cli import exit_codes
from leasehold.cli import hold as hold_module
from leasehold.cli import wait as wait_module
from leasehold.cli.lease_record import LeaseRecord, Unreadable, read_records
from leasehold.cli.main import main
from leasehold.cli.parser import Usage, read
from leasehold.cli.signals import Interrupted
from leasehold.cli.watchdog import now
from leasehold.errors import BackendUnavailable
from leasehold.events import RenewalFailed
from leasehold.values import Holder, Holding, LockState, Mode, Pause

if TYPE_CHECKING:
    from pathlib import Path

START = 1_000.0


# --- hold


class Scene:
    """One hold: the clock moves as far as the loop is patient."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
        self.now = START
        self.left = 30.0
        self.loss: Any = None
        self.inbox: list[list[int]] = []
        self.patience: list[float] = []
        self.said: list[str] = []
        self.listeners: list[Any] = []
        self.woken = 0
        self.fades = False
        self.failure: RenewalFailed | None = None
        monkeypatch.setattr(hold_module, "now", lambda: self.now)
        scene = self

        class HeldHere:
            title = "'deploy'"
            fences = property(lambda _: {"deploy": 7})
            loss = property(lambda _: scene.loss)

            def remaining(self) -> float:
                return scene.left - (scene.now - START if scene.fades else 0.0)

        console: Any = SimpleNamespace(error=self.said.append, note=self.said.append, interrupted=self.said.append)
        job: Any = SimpleNamespace(
            arguments=read(["hold", "deploy", *words]),
            console=console,
            signals=SimpleNamespace(collect=self._collect, wake=self._wake),
        )
        client: Any = SimpleNamespace(on_event=self.listeners.append)
        held: Any = HeldHere()

        def run() -> int:
            return hold_module._until_the_end(job, client, held)

        self.run = run

    def _wake(self) -> None:
        self.woken += 1

    def _collect(self, patience: float) -> list[int]:
        assert len(self.patience) < 10_000, "it never ends"
        self.patience.append(patience)
        self.now += patience
        if self.failure is not None:
            for listener in self.listeners:
                listener(self.failure)
            self.failure = None
        return self.inbox.pop(0) if self.inbox else []


def test_hold_gives_the_lock_back_when_its_time_is_over_and_not_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, "--for", "2.25s")
    assert scene.run() == exit_codes.OK
    assert scene.now == START + 2.25
    assert scene.patience == [1.0, 1.0, 0.25]
    assert scene.said == ["--for is over; 'deploy' is given back"]


def test_hold_without_a_time_ends_with_a_signal_that_ends_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.inbox = [[], [signal.SIGUSR1], [signal.SIGCHLD, signal.SIGTERM]]
    assert scene.run() == exit_codes.OK
    assert len(scene.patience) == 3
    assert scene.said == ["'deploy' is given back"]


def test_hold_looks_again_when_the_lease_may_be_over(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.left = 0.2
    scene.inbox = [[signal.SIGINT]]
    scene.run()
    assert scene.patience == [0.2]
    scene = Scene(monkeypatch)
    scene.left = 0.0
    scene.inbox = [[signal.SIGINT]]
    scene.run()
    assert scene.patience == [0.01]


def test_hold_of_a_lost_lease_ends_with_79_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, "--for", "1h")
    scene.loss = SimpleNamespace(reason="broken", detail="stuck (by ana)")
    assert scene.run() == exit_codes.LEASE_LOST
    assert scene.said == ["lost the lease of 'deploy' (broken): stuck (by ana)"]


def test_hold_is_woken_by_events_and_says_that_renewals_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, "--for", "12s", "--ttl", "30s")
    scene.fades = True
    scene.inbox = [[] for _ in range(20)]
    scene.failure = RenewalFailed("deploy", 20.0, "no route")
    assert scene.run() == exit_codes.OK
    assert scene.said[0] == "no renewal of 'deploy' for 5.0s, 25s left before it is lost: no route"
    assert scene.woken == 1


def test_hold_says_that_renewals_fail_when_that_is_long_for_its_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, "--for", "22s", "--ttl", "2m")
    scene.left, scene.fades = 120.0, True
    scene.failure = RenewalFailed("deploy", 100.0, "no route")
    assert scene.run() == exit_codes.OK
    assert scene.said[0] == "no renewal of 'deploy' for 20s, 1m40s left before it is lost: no route"


@pytest.mark.parametrize("words", [["--json"], []])
def test_hold_says_on_stdout_what_it_holds_so_that_a_script_can_wait(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    held: Any = SimpleNamespace(fences={"a": 7, "b\x1b": 8})
    arguments: Any = read(["hold", "a", "--for", "1m30s", *words])
    hold_module._announce(arguments, held)
    line = capsys.readouterr().out
    if words:
        assert json.loads(line) == {"schema": 1, "held": True, "fences": {"a": 7, "b\x1b": 8}, "for": 90.0}
        return
    assert line.startswith("holding 'a' with fence 7, 'b\\x1b' with fence 8: until ")
    assert line.endswith(" (1m30s); Ctrl-C gives it back before\n")
    hold_module._announce(read(["hold", "a"]), held)  # type: ignore[arg-type]
    assert capsys.readouterr().out.endswith("with fence 8: Ctrl-C gives it back\n")


def test_hold_inside_a_run_of_the_same_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("LEASEHOLD_HELD", '["deploy"]')
    assert main(["hold", "deploy", "--url", f"sqlite:///{tmp_path}/locks.db"]) == 64
    assert "a caller of this command already holds 'deploy'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["interrupted", "broken", "private"])
def test_hold_puts_signals_back_however_it_ends(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def under_lock(*_: object) -> int:
        raise Interrupted(signal.SIGTERM) if how == "interrupted" else RuntimeError("it broke")

    monkeypatch.setattr(hold_module, "_under_lock", under_lock)
    before = signal.getsignal(signal.SIGTERM)
    url = "memory://x" if how == "private" else f"sqlite:///{tmp_path}/locks.db"
    code = main(["hold", "deploy", "--url", url])
    assert signal.getsignal(signal.SIGTERM) is before
    assert code == {"interrupted": 143, "broken": 70, "private": 78}[how]
    if how == "interrupted":
        assert "SIGTERM ended the wait for the lock" in capsys.readouterr().err


def test_hold_holds_until_its_time_is_over_and_gives_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    words = ["hold", "deploy", "--for", "1ms", "--namespace", "n", "--url", url, "--ttl", "40s"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out.startswith("holding 'deploy' with fence ")
    assert said.err == f"leasehold: store: {url}\nleasehold: --for is over; 'deploy' is given back\n"
    with leasehold.connect(url, namespace="n") as client:
        assert client.inspect("deploy") is None
        with client.lock("deploy").hold():
            assert main([*words, "-n", "-E", "9"]) == 9


# --- wait


class Looks:
    """A store that gives one answer per look, and a clock that `sleep` moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.now = START
        self.slept: list[float] = []
        self._answers = list(answers)
        monkeypatch.setattr(wait_module, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def inspect(self, name: str) -> Any:
        assert name == "job"
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def becomes_free(self, *words: str) -> bool:
        client: Any = self
        return wait_module._becomes_free(client, read(["wait", "job", *words]))  # type: ignore[arg-type]


HOLDING = Holding(Holder("db-3", 7), 41, 61.0, 12.0)
BUSY = LockState("job", Mode.EXCLUSIVE, 1, (HOLDING,), ())
PAUSED = LockState("job", Mode.EXCLUSIVE, 1, (), (), Pause("moving", "ana"))
QUEUED = LockState("job", Mode.EXCLUSIVE, 1, (), (Holder("db-4", 8),))
AWAY = BackendUnavailable("no route")


@pytest.mark.parametrize(
    ("answers", "words", "free", "slept"),
    [
        ([None], "", True, []),
        ([QUEUED], "", True, []),
        ([BUSY, PAUSED, None], "", True, [1.0, 1.0]),
        ([BUSY, None], "--every 5s", True, [5.0]),
        ([BUSY, None], "--every 0s", True, [0.05]),
        ([BUSY], "-w 2.5s", False, [1.0, 1.0, 0.5]),
        ([BUSY], "-w 0s", False, []),
        ([None], "-w 0s", True, []),
        ([BUSY, AWAY, None], "", True, [1.0, 1.0]),
        ([AWAY, None], "-w 5s", True, [1.0]),
    ],
)
def test_wait_looks_until_the_lock_is_free_or_its_time_is_over(
    answers: list[Any], words: str, free: bool, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch, *answers)
    assert looks.becomes_free(*words.split()) is free
    assert looks.slept == slept


@pytest.mark.parametrize(
    ("answers", "words", "slept"),
    [([AWAY], "", []), ([AWAY], "-w 2s", [1.0, 1.0]), ([BUSY, AWAY], "-w 2s", [1.0, 1.0])],
)
def test_wait_for_a_store_that_stays_away_ends_with_its_error(
    answers: list[Any], words: str, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch, *answers)
    with pytest.raises(BackendUnavailable):
        looks.becomes_free(*words.split())
    assert looks.slept == slept


def test_wait_exits_as_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url) as client, client.lock("job").hold():
        assert main(["wait", "job", "-w", "0", "--url", url]) == 75
        assert "'job' is busy\n  holder" in capsys.readouterr().err
        assert main(["wait", "job", "-w", "0", "--url", url, "-E", "0"]) == 0
        assert main(["wait", "job", "-w", "0", "--url", url, "-E", "9"]) == 9
    assert main(["wait", "job", "--url", url]) == 0


def test_the_line_about_the_wait_knows_its_lock_and_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[object, ...]] = []

    def line(_: object, names: list[str], __: object, limit: float | None) -> Any:
        lines.append((names, limit))
        return nullcontext()

    monkeypatch.setattr(wait_module, "WaitLine", line)
    for words in (["-w", "12s"], []):
        assert main(["wait", "job", "--url", f"sqlite:///{tmp_path}/locks.db", *words]) == 0
    assert lines == [(["job"], 12.0), (["job"], None)]


def test_wait_is_refused_where_every_lock_is_free_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It said at once that the lock was free, and `wait && job` ran unprotected; a look is answered as before."""
    assert main(["wait", "job", "--url", "memory://x"]) == 78
    assert "is a store inside one process" in capsys.readouterr().err
    assert main(["info", "job", "--url", "memory://x"]) == 1
    assert main(["ls", "--url", "memory://x"]) == 0


# --- check, and the record that it reads


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Not under any run."""
    for word in ("NAME", "FENCE", "FENCES", "LEASE", "HELD", "URL", "URL_FILE"):
        monkeypatch.delenv(f"LEASEHOLD_{word}", raising=False)
    return monkeypatch


def test_check_knows_the_names_of_the_run_around_it(outside: pytest.MonkeyPatch) -> None:
    with pytest.raises(Usage, match="LEASEHOLD_NAME and LEASEHOLD_FENCE are not set"):
        check_module._fences()
    outside.setenv("LEASEHOLD_NAME", "job")
    with pytest.raises(Usage):
        check_module._fences()
    outside.setenv("LEASEHOLD_FENCE", "41")
    assert check_module._fences() == {"job": 41}
    outside.setenv("LEASEHOLD_FENCES", '{"a": 1, "b": 2}')
    assert check_module._fences() == {"a": 1, "b": 2}
    for nonsense in ("[1]", "{", '{"a": "x"}', "7"):
        outside.setenv("LEASEHOLD_FENCES", nonsense)
        with pytest.raises(Usage):
            check_module._fences()


@pytest.mark.parametrize(
    ("left", "words", "code", "said"),
    [
        (30.4, "", 0, ""),
        (30.4, "-v", 0, "leasehold: 'job': held for another 30s\n"),
        (30.4, "--need 30s", 0, ""),
        (30.0, "--need 30s", 0, ""),
        (30.4, "--need 31s", 79, "leasehold: 'job': held for another 30s only, and 31s are needed\n"),
        (-1.0, "", 79, "leasehold: 'job': no longer held by this run; stop\n"),
        (-1.0, "--need 0s", 79, "leasehold: 'job': no longer held by this run; stop\n"),
    ],
)
def test_check_reads_the_record_and_says_only_what_matters(
    left: float, words: str, code: int, said: str, outside: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outside.setenv("LEASEHOLD_NAME", "job")
    outside.setenv("LEASEHOLD_FENCE", "41")
    outside.setattr(check_module, "now", lambda: 100.0)
    outside.setattr(check_module, "read_records", lambda: 100.0 + left)
    assert main(["check", *words.split()]) == code
    assert capsys.readouterr() == ("", said)
    assert main(["check", "--json", *words.split()]) == code
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "held": left > 0, "enough": code == 0, "remaining": max(0.0, left), "fences": {"job": 41},
    }  # fmt: skip


def test_check_of_another_users_record_cannot_tell(
    outside: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable() -> float:
        raise Unreadable

    outside.setenv("LEASEHOLD_NAME", "job")
    outside.setenv("LEASEHOLD_FENCE", "41")
    outside.setattr(check_module, "read_records", unreadable)
    assert main(["check"]) == 77
    assert "only the user who started leasehold, or root" in capsys.readouterr().err


def test_check_without_a_record_asks_the_store_for_the_same_fence(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    outside.setenv("LEASEHOLD_URL", url)
    with leasehold.connect(url) as client, client.lock("a").hold() as a:
        b = client.lock("b", ttl=60).acquire()
        outside.setenv("LEASEHOLD_FENCES", json.dumps({"a": a.fence, "b": b.fence}))
        assert main(["check"]) == 0
        assert main(["check", "--need", "31s"]) == 79, "the lease that ends first counts"
        client.break_lock("b", fence=b.fence, reason="x")
        assert main(["check"]) == 79, "broken"
        outside.setenv("LEASEHOLD_FENCES", json.dumps({"a": a.fence - 1}))
        assert main(["check"]) == 79, "another grant"
        outside.setenv("LEASEHOLD_FENCES", json.dumps({"a": a.fence, "nobody's": 7}))
        assert main(["check"]) == 79, "free"
        cool = client.lock("c", min_hold=60).acquire()
        cool.release()
        outside.setenv("LEASEHOLD_FENCES", json.dumps({"c": cool.fence}))
        assert main(["check"]) == 79, "released"
        b.release()


def test_a_record_is_read_by_those_below_it_and_ends_with_its_close(outside: pytest.MonkeyPatch) -> None:
    assert read_records() is None
    record = LeaseRecord(41)
    for name, value in record.environment().items():
        outside.setenv(name, value)
    assert read_records() == 0.0, "nothing is known yet"
    ends = now() + 30
    record.lasts_until(ends)
    assert read_records() == pytest.approx(ends, abs=0.001)
    record.lasts_until(7.0)
    assert read_records() == 7.0, "a shorter number leaves nothing of a longer one"
    inner = LeaseRecord(42)
    for name, value in inner.environment().items():
        outside.setenv(name, value)
    inner.lasts_until(5.0)
    assert read_records() == 5.0
    inner.lasts_until(9.0)
    assert read_records() == 7.0, "the lease around this one ends first"
    record.close()
    assert read_records() == 0.0
    inner.close()
    inner.lasts_until(10.0)
    inner.close()
    assert read_records() == 0.0


def test_a_file_of_another_process_with_the_same_number_is_no_record(
    outside: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("99999999.0")
    with (tmp_path / "file").open() as file:
        outside.setenv("LEASEHOLD_LEASE", f"/proc/self/fd/{file.fileno()}=leasehold-41")
        assert read_records() == 0.0
    record = LeaseRecord(411)
    record.lasts_until(8.0)
    path = record.environment()["LEASEHOLD_LEASE"].rpartition("=")[0]
    outside.setenv("LEASEHOLD_LEASE", f"{path}=leasehold-41")
    assert read_records() == 0.0, "the whole title counts"
    record.close()


def test_a_record_that_may_not_be_read_is_not_taken_for_a_lost_lease(outside: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> str:
        raise PermissionError

    outside.setenv("LEASEHOLD_LEASE", "/proc/1/fd/3=leasehold-41")
    outside.setattr("leasehold.cli.lease_record.os.readlink", refuse)
    with pytest.raises(Unreadable):
        read_records()


def test_a_system_without_such_files_passes_the_outer_record_on(outside: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> int:
        raise OSError("no memory")

    outside.setattr("leasehold.cli.lease_record.os.memfd_create", fail)
    record = LeaseRecord(41)
    assert record.environment() == {}
    outside.setenv("LEASEHOLD_LEASE", "/proc/7/fd/3=leasehold-40")
    assert record.environment() == {"LEASEHOLD_LEASE": "/proc/7/fd/3=leasehold-40"}
    record.lasts_until(1.0)
    record.close()
