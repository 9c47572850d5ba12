"""What `ls`, `info`, `watch` and the line about a wait show, from states that the test makes."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from argparse import Namespace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import leasehold
from leasehold.cli import elect as elect_module
from leasehold.cli import hold as hold_module
from leasehold.cli import style, wait_line
from leasehold.cli import watch as watch_module
from leasehold.cli.inspect import _info_lines, command_line, conflict_block, holding_lines, lock_table
from leasehold.cli.main import main
from leasehold.cli.output import Console
from leasehold.cli.wait_line import WaitLine, describe_outage, describe_time, describe_wait
from leasehold.errors import BackendUnavailable
from leasehold.events import StoreReached, StoreUnreachable, WaitBegan
from leasehold.values import Capability, Holder, Holding, LockState, Mode, Pause

if TYPE_CHECKING:
    from pathlib import Path

ANA, BEN = Holder("db-3", 7, "nightly", "the report"), Holder("db-4", 8, user="ben")
HELD = Holding(ANA, 41, 61.0, 12.0)
BROKEN = Holding(BEN, 42, 3.0, 5.0, broken="stuck")
KEPT = Holding(BEN, 43, 3.0, 5.0, cooling=True)
PAUSE = Pause("moving", "ana", 90.0, 5.0)


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """From now on both streams are one, with colours."""
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def state(*holdings: Holding, waiting: tuple[Holder, ...] = (), paused: Pause | None = None) -> LockState:
    return LockState("job", Mode.EXCLUSIVE, 1, holdings, waiting, paused)


# --- info and ls


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (None, ["'job' is free"]),
        (state(), ["'job' is free"]),
        (state(waiting=(BEN,)), ["'job' is free", "  queue    1 waiting", f"    1. {BEN}"]),
        (state(paused=PAUSE), ["'job' is paused", "  paused   by ana 5.0s ago: moving; 1m30s left"]),
        (
            state(HELD, waiting=(BEN, ANA)),
            [
                "'job' is held (exclusive)", f"  holder   {ANA}", "  since    1m01s ago", "  fence    41",
                "  reason   the report", "  left     12s unless renewed", "  queue    2 waiting", f"    1. {BEN}",
                f"    2. {ANA}",
            ],
        ),
        (
            state(BROKEN, paused=PAUSE),
            [
                "'job' is held (exclusive)", f"  holder   {BEN}", "  user     ben", "  since    3.0s ago",
                "  fence    42", "  broken   stuck; kept until its ttl is over in 5.0s",
                "  paused   by ana 5.0s ago: moving; 1m30s left", "  queue    0 waiting",
            ],
        ),
    ],
)  # fmt: skip
def test_info_shows_one_lock_in_lines(found: LockState | None, lines: list[str]) -> None:
    assert _info_lines("job", found) == lines


def test_info_offers_to_break_only_what_lives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url) as client:
        first = client.semaphore("pool", 3, min_hold=60).acquire()
        second = client.semaphore("pool", 3).acquire()
        third = client.semaphore("pool", 3).acquire()
        first.release()
        client.break_lock("pool", fence=second.fence, reason="stuck")
        assert main(["info", "pool", "--url", url]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "'pool' is held (3 of 3)"
        place = lines.index("To end the lease (its holder may still be running):")
        assert lines[place + 1 :] == [f"  leasehold break pool --fence {third.fence} --reason WHY --url {url}"]
        assert main(["info", "pool", "--url", url, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["held"], facts["name"], len(facts["holdings"])) == (True, "pool", 3)
        second.release()
        third.release()


def test_info_of_a_slot_shows_that_slot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url) as client:
        for slot in ("monday", "tuesday"):
            client.once("job", slot=slot).run(lambda: None)
    assert main(["info", "job", "--url", url, "--slot", "monday"]) == 1
    assert "last run for slot monday: done" in capsys.readouterr().out
    assert main(["info", "job", "--url", url]) == 1
    assert "last run for slot tuesday: done" in capsys.readouterr().out


def test_a_store_without_records_is_not_asked_for_runs() -> None:
    from leasehold.cli.inspect import _last_run

    def client(*, exists: bool, capabilities: set[Capability]) -> Any:
        return SimpleNamespace(exists=lambda: exists, capabilities=capabilities, last_run=lambda *_, **__: run)

    run: Any = object()
    arguments: Any = SimpleNamespace(name="job", slot=None)
    assert _last_run(client(exists=True, capabilities={Capability.RECORD}), arguments) is run
    assert _last_run(client(exists=True, capabilities=set()), arguments) is None
    assert _last_run(client(exists=False, capabilities={Capability.RECORD}), arguments) is None


@pytest.mark.parametrize(
    ("url", "namespace", "expected"),
    [
        ("local:", "team a", "leasehold resume job --url local: --namespace 'team a'"),
        (None, None, "leasehold resume job"),
        ("", "", "leasehold resume job"),
        ("redis://user:secret@host", "n", "leasehold resume job --namespace n"),
    ],
)
def test_a_command_to_paste_names_the_store_without_its_password(
    url: str | None, namespace: str | None, expected: str
) -> None:
    arguments: Any = SimpleNamespace(url=url, namespace=namespace)
    assert command_line(arguments, "resume", "job") == expected


def client_that(inspect: Any) -> Any:
    def found(_: str) -> Any:
        if isinstance(inspect, Exception):
            raise inspect
        return inspect

    return SimpleNamespace(store="redis://h", inspect=found)


@pytest.mark.parametrize(
    ("found", "block"),
    [
        (None, ["'job' is busy", "  holder   none by now: it was just released", "  store    redis://h"]),
        (
            BackendUnavailable("away"),
            ["'job' is busy", "  holder   unknown: the store does not show it", "  store    redis://h"],
        ),
        (
            state(HELD, BROKEN, waiting=(BEN,)),
            [
                "'job' is busy", *holding_lines(HELD), *holding_lines(BROKEN), "  queue    1 waiting",
                "  store    redis://h",
            ],
        ),
        (
            state(paused=PAUSE),
            [
                "'job' is paused", "  paused   by ana 5.0s ago: moving; 1m30s left", "  queue    0 waiting",
                "  store    redis://h",
            ],
        ),
    ],
)  # fmt: skip
def test_a_conflict_shows_who_is_in_the_way(found: Any, block: list[str]) -> None:
    assert conflict_block(client_that(found), "job").splitlines() == block


def test_a_table_of_locks_has_fences_only_when_asked_and_shows_trouble_in_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = on_a_terminal(monkeypatch)
    states = [state(HELD, BROKEN, waiting=(BEN,)), LockState("x", Mode.SHARED, 1, (), (), PAUSE)]
    plain = lock_table(states, waiters=True, fences=False)
    assert "FENCE" not in plain[0]
    assert plain[0].startswith("\x1b[1mNAME")
    assert [line[:5] if line.startswith("\x1b") else "" for line in plain[1:]] == [
        "",
        "\x1b[31m",
        "\x1b[2mj",
        "\x1b[33m",
    ]
    wide = lock_table(states, waiters=False, fences=True)
    assert wide[0].split()[-3:] == ["FENCE", "QUEUE", "REASON\x1b[0m"]
    assert " 41 " in wide[1]
    assert len(wide) == 4
    assert not screen.getvalue()


def test_names_of_locks_are_printed_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url) as client:
        with client.lock_all(["a\x1b", "b"]).hold():
            assert main(["ls", "--names", "--url", url]) == 0
            assert capsys.readouterr().out == "a\\x1b\nb\n"
        assert main(["ls", "--names", "--url", url]) == 0
        assert capsys.readouterr().out == ""


# --- watch


def test_watch_knows_holders_waiters_and_pauses_by_what_they_are() -> None:
    seen = watch_module._facts([state(HELD, BROKEN, KEPT, waiting=(BEN,), paused=PAUSE)])
    assert seen == {
        ("job", 41): {"change": "held", "name": "job", "fence": 41, "who": str(ANA)},
        ("job", 42): {"change": "broken", "name": "job", "fence": 42, "who": str(BEN)},
        ("job", 43): {"change": "cooling", "name": "job", "fence": 43, "who": str(BEN)},
        ("job", "paused", "ana"): {"change": "paused", "name": "job", "who": "ana: moving"},
        ("job", str(BEN)): {"change": "waiting", "name": "job", "who": str(BEN)},
    }


def test_watch_names_each_end_as_what_it_is() -> None:
    seen = watch_module._facts([state(HELD, BROKEN, KEPT, waiting=(BEN,), paused=PAUSE)])
    assert [change["change"] for change in watch_module.changes(seen, {})] == [
        "free", "free", "free", "resumed", "left",
    ]  # fmt: skip
    held = watch_module._facts([state(HELD)])
    broken = watch_module._facts([state(Holding(ANA, 41, 62.0, 11.0, broken="x"))])
    (change,) = watch_module.changes(held, broken)
    assert (change["change"], change["fence"]) == ("broken", 41)
    assert abs(change["at"] - time.time()) < 60


def test_watch_prints_only_what_changed_since_the_last_look(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        lines = watch_module._Lines(as_json=as_json)
        lines.update([state(HELD)])
        lines.update([state(HELD)])
        first, *others = capsys.readouterr().out.splitlines()
        assert others == []
        if as_json:
            assert json.loads(first)["change"] == "held"
        else:
            assert first[8:] == f" held    job fence 41  {ANA}"
        lines.update([])
        assert len(capsys.readouterr().out.splitlines()) == 1
        lines.update([])
        assert capsys.readouterr().out == "", "what has ended ends once"


def test_commands_tell_the_time_of_the_clock_on_the_wall(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], far_from_greenwich: None
) -> None:
    the_moment = 1.7e9  # 22:13:20 of the day before, in Greenwich

    def strftime(form: str, moment: time.struct_time | None = None) -> str:
        return time.strftime(form, time.localtime(the_moment) if moment is None else moment)

    clock = SimpleNamespace(time=lambda: the_moment, strftime=strftime, localtime=time.localtime, gmtime=time.gmtime)
    for module in (watch_module, hold_module, elect_module):
        monkeypatch.setattr(module, "time", clock)
    watch_module._Lines(as_json=False).update([state(HELD)])
    watch_module._Table("redis://h", fences=False).update([state(HELD)])
    hold_module._announce(Namespace(json=False, duration=60.0), cast("Any", SimpleNamespace(fences={"job": 41})))
    elect_module._show(Namespace(json=False, name="job"), None)
    shown = re.findall(r"\d\d:\d\d:\d\d", capsys.readouterr().out)
    assert shown == ["11:13:20", "11:13:20", "11:14:20", "11:13:20"]


def test_trouble_is_coloured_in_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    for word, colour in {"broken": "31", "paused": "33", "waiting": "2", "left": "2", "held": ""}.items():
        line = watch_module._sentence({"change": word, "name": "a\x1b", "who": "w\x1b", "at": 0.0})
        assert ("\x1b[" in line) is bool(colour)
        assert f"\x1b[{colour}m{word}" in line or not colour
        assert line.endswith("a\\x1b  w\\x1b")
    assert not screen.getvalue()


@pytest.mark.parametrize(("width", "height", "shown"), [(60, 24, 10), (60, 8, 4), (30, 24, 10)])
def test_watch_draws_as_much_as_fits(
    width: int, height: int, shown: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, height)))
    states = [LockState(f"job-{number}", Mode.EXCLUSIVE, 1, (HELD,), ()) for number in range(10)]
    watch_module._Table("sqlite:////a/very/long/path/to/a/file/of/locks.db", fences=False).update(states)
    text = capsys.readouterr().out
    assert text.startswith("\x1b[H\x1b[J")
    first, blank, head, *rows = text.removeprefix("\x1b[H\x1b[J").splitlines()
    assert (blank, head.split()[0]) == ("", "NAME")
    assert len(first) <= width
    if width == 60:
        assert "10 in use  (Ctrl-C ends)" in first
    assert "..." in first
    if shown == 10:
        assert len(rows) == 10
    else:
        assert len(rows) + 3 == height - 1
        assert rows[-1] == "... 7 more; give a PREFIX"
        assert rows[:-1] == rows[:3]


def test_watch_looks_again_and_mentions_an_outage_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = BackendUnavailable("away")
    answers: list[Any] = [[state(HELD)], away, away, [state(HELD)], [], away, KeyboardInterrupt()]
    slept: list[float] = []

    def locks(prefix: str) -> Any:
        assert prefix == "j"
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    class Client:
        store, is_private = "redis://h", False

        def __enter__(self) -> Any:
            return SimpleNamespace(store="redis://h", is_private=False, exists=lambda: True, locks=locks)

        def __exit__(self, *_: object) -> None:
            slept.append(-1.0)

    monkeypatch.setattr(watch_module, "open_client", lambda _: Client())
    monkeypatch.setattr(
        watch_module, "time", SimpleNamespace(sleep=slept.append, time=time.time, strftime=time.strftime,
                                              localtime=time.localtime),
    )  # fmt: skip
    assert main(["watch", "j", "--every", "0", "--json"]) == 130
    said = capsys.readouterr()
    assert [json.loads(line)["change"] for line in said.out.splitlines()] == ["held", "free"]
    assert said.err == "leasehold: store: redis://h\n" + "leasehold: away; watching on\n" * 2, "once for each outage"
    assert slept == [0.05] * 6 + [-1.0]


# --- the line about a wait


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (None, "L"),
        (state(), "L"),
        (state(HELD), f"L: held by {ANA} (the report) for 1m01s; 0 in the queue"),
        (state(BROKEN, HELD, KEPT, waiting=(ANA,)), f"L: held by {BEN} and 2 more for 3.0s; 1 in the queue"),
        (state(HELD, waiting=(BEN, ANA), paused=PAUSE), f"L: {PAUSE}; 2 in the queue"),
    ],
)
def test_a_wait_names_the_holder_or_the_pause(found: LockState | None, line: str) -> None:
    assert describe_wait("L", found) == line


@pytest.mark.parametrize(
    ("limit", "short", "line"),
    [
        (None, False, "waiting for 'job' (12s so far)"),
        (60.0, False, "waiting for 'job' (12s so far, giving up after 1m00s)"),
        (None, True, "waiting for 'job' (12s)"),
        (60.0, True, "waiting for 'job' (12s of 1m00s)"),
    ],
)
def test_a_wait_names_its_time_and_its_limit(limit: float | None, short: bool, line: str) -> None:
    assert describe_time("job", 12.0, limit, short=short) == line


def test_a_long_name_leaves_room_on_the_terminal_and_none_is_needed_elsewhere() -> None:
    name = "a" * 20 + "b" * 20
    assert len(describe_time(name, 1.0, None, short=True)) == len("waiting for  (1.0s)") + 24
    assert name in describe_time(name, 1.0, None, short=False)


def test_a_store_that_is_tried_for_ever_is_said_to_be() -> None:
    away = StoreUnreachable("job", float("inf"), "no route")
    assert (
        describe_outage("L", "redis://h", float("inf"), away) == "L: cannot reach redis://h, trying for ever: no route"
    )
    back = StoreUnreachable("job", 60.0, "nodes sit out", 34.0)
    assert "for another 0.0s " in describe_outage("L", "redis://h", 5.0, back)


class Waiting:
    """A line about a wait on a clock of the test's; it prints as often as it is asked to."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, lively: bool = False, quiet: bool = False, limit: float | None = None
    ) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.found: Any = None
        self.looks = 0
        self.listeners: list[Any] = []
        monkeypatch.setattr(wait_line, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(wait_line, "is_lively", lambda: lively)
        monkeypatch.setattr(wait_line, "terminal_width", lambda _: 40 if lively else None)
        client: Any = SimpleNamespace(store="redis://h", inspect=self._inspect, on_event=self._subscribe)
        self.line = WaitLine(client, ["a", "b"], Console(quiet=quiet), limit)

    def _subscribe(self, listener: Any) -> Any:
        self.listeners.append(listener)
        return self.listeners.clear

    def _inspect(self, name: str) -> Any:
        self.asked.append(name)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def prints_at(self, *instants: float) -> None:
        """Let the thread's loop run, here."""
        steps = list(instants)

        def wait(_: float) -> bool:
            if not steps:
                return True
            self.now = steps.pop(0)
            return False

        self.line._over.wait = wait  # type: ignore[method-assign,assignment]
        self.line._print()


def test_a_wait_without_a_holder_in_sight_is_said_after_three_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = Waiting(monkeypatch)
    waiting.prints_at(1.0, 2.0, 2.9)
    assert capsys.readouterr().err == ""
    waiting.prints_at(3.0, 4.0)
    assert capsys.readouterr().err == "leasehold: waiting for 'a' (3.0s so far)\n"
    waiting.found = BackendUnavailable("a courtesy is no reason to fail")
    waiting.prints_at(13.0)
    assert capsys.readouterr().err == "leasehold: waiting for 'a' (13s so far)\n"


def test_a_holder_or_a_pause_is_said_at_once_and_reminded_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = Waiting(monkeypatch, limit=60.0)
    waiting.found = state(HELD)
    waiting.prints_at(1.0, 2.0, 10.9, 11.0, 12.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("(")[1].split()[0] for line in lines] == ["1.0s", "11s"]
    waiting = Waiting(monkeypatch)
    waiting.found = state(paused=PAUSE)
    waiting.prints_at(1.0)
    assert "moving" in capsys.readouterr().err
    waiting.line._note(WaitBegan("b", None, "exclusive", 1))
    waiting.prints_at(2.0)
    assert waiting.asked == ["a", "b"], "of several names, the one that is waited for"
    assert "waiting for 'b'" in capsys.readouterr().err


def test_an_outage_is_said_instead_of_a_holder_until_the_store_is_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = Waiting(monkeypatch)
    waiting.found = state(HELD)
    waiting.line._note(StoreUnreachable("another", 60.0, "not ours"))
    waiting.prints_at(1.0)
    assert "held by" in capsys.readouterr().err
    waiting.now = 0.0
    waiting.asked.clear()
    waiting.line._note(StoreUnreachable("b", 60.0, "no route"))
    waiting.prints_at(2.0)
    assert capsys.readouterr().err == (
        "leasehold: waiting for 'b' (2.0s so far): cannot reach redis://h, trying for 58s more: no route\n"
    )
    assert waiting.asked == [], "a store that is away is not asked"
    waiting.prints_at(90.0)
    assert "trying for 0.0s more" in capsys.readouterr().err
    waiting.line._note(StoreReached("b", 3))
    waiting.found = state(HELD)
    waiting.prints_at(91.0)
    assert "held by" in capsys.readouterr().err
    assert waiting.asked == ["b"]
    waiting.line._note(StoreUnreachable("b", 20.0, "no route"))
    waiting.prints_at(96.0)
    assert "trying for 15s more" in capsys.readouterr().err, "an outage is counted from its own beginning"


def test_on_a_terminal_the_line_is_written_over_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    waiting = Waiting(monkeypatch, lively=True)
    with waiting.line:
        waiting.found = state(HELD)
        waiting.prints_at(1.0)
        waiting.found = None
        waiting.prints_at(2.0)
        first, second = screen.getvalue().split("\r")[1:]
        assert len(first) == 39, "one that wrapped could not be written over"
        assert first.startswith("waiting for 'a' (1.0s): held by")
        assert second == "waiting for 'a' (2.0s)".ljust(39)
        screen.truncate(0)
        screen.seek(0)
    assert screen.getvalue() == f"\r{' ' * 22}\r"
    assert waiting.listeners == []


def test_a_quiet_wait_starts_no_thread_and_listens_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    waiting, before = Waiting(monkeypatch, quiet=True), threading.active_count()
    with waiting.line:
        assert (waiting.listeners, threading.active_count()) == ([], before)


def test_after_the_wait_no_line_is_printed_any_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = Waiting(monkeypatch)
    waiting.found = state(HELD)
    with waiting.line:
        pass
    waiting.prints_at(1.0)
    assert capsys.readouterr().err == ""


# --- the terminal


@pytest.mark.parametrize(
    ("term", "is_terminal", "columns", "width"),
    [
        ("xterm", True, 100, 100),
        ("xterm", True, 40, 40),
        ("xterm", True, 39, None),
        ("xterm", True, OSError(), None),
        ("xterm", False, 100, None),
        ("dumb", True, 100, None),
        ("", True, 100, None),
    ],
)
def test_text_is_folded_only_to_a_terminal_that_is_wide_enough(
    term: str, is_terminal: bool, columns: Any, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size(_: int) -> os.terminal_size:
        if isinstance(columns, Exception):
            raise columns
        return os.terminal_size((columns, 24))

    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("os.get_terminal_size", size)
    stream = SimpleNamespace(isatty=lambda: is_terminal, fileno=lambda: 1)
    assert style.terminal_width(stream) == width


def test_a_stream_that_is_closed_or_absent_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    closed = Screen()
    closed.close()

    def fail() -> bool:
        raise ValueError("I/O operation on closed file")

    assert not style.is_lively(SimpleNamespace(isatty=fail))
    monkeypatch.setattr(sys, "stderr", None)
    assert not style.is_lively()
