"""The command's process, the signals of its wrapper, its terminal and its report, piece by piece."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.cli import child as child_module
from leasehold.cli import terminal as terminal_module
from leasehold.cli import watchdog_handle as handle_module
from leasehold.cli.child import Child, CommandFailed, find_command, group_is_alive
from leasehold.cli.held import Held, environment_of, shown_names
from leasehold.cli.report import obstacle, write_report
from leasehold.cli.signals import Interrupted, Signals
from leasehold.cli.terminal import Terminal
from leasehold.cli.watchdog_handle import WatchdogHandle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


# --- what can be found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of the search path, with a program and a file that is none; it is the current one too."""
    (tmp_path / "good").write_text("#!/bin/sh\n")
    (tmp_path / "good").chmod(0o755)
    (tmp_path / "plain").write_text("text")
    (tmp_path / "plain").chmod(0o644)
    (tmp_path / "sub").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", ["good", "./good", "{folder}/good"])
def test_a_program_is_found_by_name_and_by_path(folder: Path, command: str) -> None:
    find_command(command.format(folder=folder))


def test_an_empty_entry_of_the_search_path_is_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.exists()
    monkeypatch.setenv("PATH", "/nowhere::")
    find_command("good")


def test_a_later_program_is_taken_where_an_earlier_file_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sub" / "good").write_text("text")
    monkeypatch.setenv("PATH", f"{folder}/sub:{folder}")
    find_command("good")


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("absent", 127, "absent: command not found"),
        ("./absent", 127, "./absent: command not found"),
        ("./good/absent", 127, "command not found"),
        ("./sub", 126, "./sub is a directory, not a command"),
        ("sub", 127, "sub: command not found"),
        ("./plain", 126, "./plain is not executable; chmod +x it"),
        ("plain", 126, "/plain is not executable; chmod +x it"),
        ("cd", 127, "cd: command not found; it is started without a shell, so write: sh -c cd"),
        ("export", 127, "so write: sh -c export"),
        ("ls | wc", 127, "so write: sh -c 'ls | wc'"),
        ("a>b", 127, "so write: sh -c 'a>b'"),
        ("$JOB", 127, "so write: sh -c '$JOB'"),
    ],
)
def test_what_cannot_be_started_is_refused_with_the_code_of_shells(
    folder: Path, command: str, code: int, text: str
) -> None:
    assert folder.exists()
    with pytest.raises(CommandFailed) as refused:
        find_command(command)
    assert refused.value.code == code
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        (errno.ENOENT, 127, "job: No such file or directory"),
        (errno.EACCES, 126, "job: Permission denied"),
        (errno.ENOEXEC, 126, "job: Exec format error; a script needs a first line such as #!/bin/sh"),
        (errno.E2BIG, 126, "job: Argument list too long"),
    ],
)
def test_a_start_that_the_system_refuses_has_its_reason_and_a_code(number: int, code: int, text: str) -> None:
    failure = child_module._failure("job", number)
    assert (str(failure), failure.code) == (text, code)


# --- the process


class Parent:
    """A child without a process: the ends of its pipes are the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Any] = []
        self.child = Child.__new__(Child)
        self.start_read, self.child._start = os.pipe()
        self.child._status, self.status_write = os.pipe()
        self.child._command, self.child.pid = ["job"], 4711
        self.child.is_over = self.child._is_started = False
        self.of_child = (self.child._start, self.child._status)
        fake = SimpleNamespace(
            write=os.write, close=os.close, read=os.read, strerror=os.strerror,
            waitpid=lambda *words: self.sent.append(("reaped", *words)),
            kill=lambda *words: self.sent.append(("kill", *words)),
        )  # fmt: skip
        monkeypatch.setattr(child_module, "os", fake)
        monkeypatch.setattr(child_module, "signal_group", lambda *words: self.sent.append(("group", *words)))

    def close(self) -> None:
        for descriptor in (self.start_read, self.status_write, *self.of_child):
            if is_open(descriptor):
                os.close(descriptor)


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    parent = Parent(monkeypatch)
    yield parent
    parent.close()


KILLED = [("group", 4711, signal.SIGKILL), ("kill", 4711, signal.SIGKILL), ("reaped", 4711, 0)]


def test_a_child_that_is_not_needed_is_killed_reaped_and_leaves_no_descriptor(parent: Parent) -> None:
    parent.child.discard()
    assert parent.sent == KILLED
    assert [is_open(each) for each in parent.of_child] == [False, False]
    parent.child.discard()
    assert parent.sent == KILLED, "its number may belong to another process by now"


def test_a_child_that_runs_is_told_everything_while_the_lease_is_looked_after(parent: Parent) -> None:
    looks: list[int] = []
    received: list[bytes] = []
    facts = {"A": "1", "LONG": "x" * 200_000, "ODD": "\udcff"}

    def become() -> None:
        while part := os.read(parent.start_read, 65_536):
            received.append(part)
        while len(looks) < 3:
            pass
        os.close(parent.status_write)

    thread = threading.Thread(target=become)
    thread.start()
    parent.child.start(facts, lambda: looks.append(1))
    thread.join()
    assert b"".join(received) == f"A=1\0LONG={'x' * 200_000}\0ODD=".encode() + b"\xff" + child_module.GO
    assert [is_open(each) for each in parent.of_child] == [False, False]
    assert parent.sent == []
    parent.child.discard()
    assert parent.sent == KILLED


def test_a_child_that_cannot_become_the_command_is_reaped(parent: Parent) -> None:
    os.write(parent.status_write, b"%d" % errno.ENOEXEC)
    with pytest.raises(CommandFailed, match="Exec format error") as refused:
        parent.child.start({}, lambda: None)
    assert refused.value.code == 126
    assert parent.sent == [("reaped", 4711, 0)]
    assert parent.child.is_over
    assert [is_open(each) for each in parent.of_child] == [False, False]


def test_a_child_that_was_killed_during_the_wait_is_no_error(parent: Parent) -> None:
    os.close(parent.start_read)
    os.close(parent.status_write)
    parent.child.start({"A": "1"}, lambda: None)
    assert [is_open(each) for each in parent.of_child] == [False, False]


class Ended(BaseException):
    """The process would have ended."""


class Becoming:
    """The process that becomes the command, in this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, message: bytes, error: BaseException | None = None) -> None:
        self.done: list[Any] = []
        self.handlers: dict[int, Any] = {}
        self.status, write = os.pipe()
        reading, start = os.pipe()
        os.write(start, message)
        os.close(start)

        def execvpe(*words: Any) -> None:
            self.done.append(words)
            if error is not None:
                raise error

        def end(code: int) -> None:
            self.done.append(code)
            raise Ended

        fake = SimpleNamespace(
            setpgid=lambda *words: self.done.append(words), execvpe=execvpe, _exit=end, write=os.write, read=os.read,
        )  # fmt: skip
        signals = SimpleNamespace(
            SIGINT=signal.SIGINT, SIGPIPE=signal.SIGPIPE, SIGXFSZ=signal.SIGXFSZ, SIG_DFL=signal.SIG_DFL,
            default_int_handler=signal.default_int_handler, getsignal=lambda _: signal.default_int_handler,
            signal=self.handlers.__setitem__,
        )  # fmt: skip
        monkeypatch.setattr(child_module, "os", fake)
        monkeypatch.setattr(child_module, "signal", signals)
        with pytest.raises(Ended):
            child_module._become(["job", "x"], {"OLD": "1", "A": "0"}, reading, write)
        os.close(write)
        os.close(reading)
        self.said = os.read(self.status, 100)
        os.close(self.status)


def test_the_child_becomes_the_command_with_what_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    becoming = Becoming(monkeypatch, b"A=1=2\0B=\xff" + child_module.GO)
    assert becoming.done[:2] == [(0, 0), ("job", ["job", "x"], {"OLD": "1", "A": "1=2", "B": "\udcff"})]
    assert becoming.handlers == dict.fromkeys((signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ), signal.SIG_DFL)


@pytest.mark.parametrize("message", [b"", b"A=1", b"A=1\0g"])
def test_a_wrapper_that_died_over_the_message_starts_nothing(monkeypatch: pytest.MonkeyPatch, message: bytes) -> None:
    becoming = Becoming(monkeypatch, message)
    assert becoming.done == [(0, 0), 70]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOEXEC, "no"), errno.ENOEXEC),
        (OSError("no number"), errno.EIO),
        (ValueError("embedded null byte"), errno.EIO),
    ],
)
def test_a_start_that_fails_tells_the_wrapper_why(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, said: int
) -> None:
    becoming = Becoming(monkeypatch, b"A=1" + child_module.GO, error)
    assert (becoming.said, becoming.done[-1]) == (b"%d" % said, 70)


def test_a_group_without_processes_is_not_alive_and_without_proc_its_dead_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_proc(_: str) -> list[str]:
        raise OSError("no such directory")

    assert group_is_alive(os.getpgrp())
    monkeypatch.setattr(child_module, "signal_group", lambda *_: False)
    assert not group_is_alive(4711)
    monkeypatch.setattr(child_module, "signal_group", lambda *_: True)
    assert not group_is_alive(2**22 + 7), "no process has it"
    monkeypatch.setattr("os.listdir", no_proc)
    assert group_is_alive(4711)


# --- the watchdog's handle


class Leash:
    """A handle whose watchdog is the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        self.ends: list[int] = []
        self.handle = WatchdogHandle.__new__(WatchdogHandle)
        self.handle._group, self.handle._kill_after, self.handle._sent = 4711, 2.5, {}
        self.handle.pid = 4712
        self.reading, self.handle._pipe = os.pipe()
        os.set_blocking(self.handle._pipe, False)
        leash = self

        class Os:
            environ = os.environ
            WNOHANG = os.WNOHANG
            POSIX_SPAWN_DUP2 = os.POSIX_SPAWN_DUP2
            write, close, pipe, set_blocking = (staticmethod(getattr(os, name)) for name in (
                "write", "close", "pipe", "set_blocking",
            ))  # fmt: skip

            @staticmethod
            def kill(*words: int) -> None:
                leash.done.append(("kill", *words))

            @staticmethod
            def waitpid(pid: int, flags: int) -> tuple[int, int]:
                leash.done.append(("waitpid", pid, flags))
                return (leash.ends.pop(0) if leash.ends else 0), 0

            @staticmethod
            def posix_spawn(path: str, program: list[str], _environment: object, *, file_actions: Any) -> int:
                leash.done.append(("spawned", path, program[1:3], program[-2:], [each[2] for each in file_actions]))
                leash.reading = os.dup(file_actions[0][1])
                return 4713

        monkeypatch.setattr(handle_module, "os", Os)
        monkeypatch.setattr(handle_module, "time", SimpleNamespace(sleep=lambda _: None))

    def heard(self) -> str:
        return os.read(self.reading, 65_536).decode()

    def close(self) -> None:
        os.close(self.reading)
        if self.handle._pipe >= 0:
            os.close(self.handle._pipe)


@pytest.fixture
def leash(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leash]:
    leash = Leash(monkeypatch)
    yield leash
    leash.close()


def test_the_watchdog_hears_of_the_lease_of_a_kill_and_of_the_end(leash: Leash) -> None:
    leash.handle.lease_until(30.25)
    leash.handle.killing_at(35.5)
    assert leash.heard() == "lease 30.25\nkilling 35.5\n"
    leash.handle.dismiss()
    assert leash.heard() == "done\n"
    assert leash.heard() == "", "the pipe is closed"
    leash.handle.dismiss()


def test_a_replaced_watchdog_is_killed_and_the_new_one_knows_what_it_knew(leash: Leash) -> None:
    leash.handle.lease_until(30.0)
    leash.handle.lease_until(40.0)
    leash.handle.killing_at(45.0)
    old_pipe, old_reading = leash.handle._pipe, leash.reading
    leash.handle.replace()
    os.close(old_reading)
    assert leash.done[0] == ("kill", 4712, signal.SIGKILL)
    assert leash.done[1] == ("waitpid", 4712, 0)
    assert leash.done[2][2:] == (["-I", "-S"], ["4711", "2.5"], [0])
    assert leash.handle.pid == 4713
    assert leash.heard() == "lease 40.0\nkilling 45.0\n"
    assert old_pipe == leash.handle._pipe or not is_open(old_pipe)
    assert not os.get_blocking(leash.handle._pipe)


def test_a_watchdog_that_is_dead_is_no_error_for_those_who_send(leash: Leash) -> None:
    os.close(leash.reading)
    leash.handle.lease_until(30.0)
    assert leash.handle._sent == {"lease": 30.0}
    leash.handle.dismiss()
    leash.reading = os.open(os.devnull, os.O_RDONLY)


def test_a_watchdog_is_reaped_and_killed_only_if_it_does_not_end(leash: Leash) -> None:
    leash.ends = [0, 0, 4712]
    leash.handle.reap()
    assert leash.done == [("waitpid", 4712, os.WNOHANG)] * 3
    leash.done.clear()
    leash.handle.reap()
    assert leash.done[-2:] == [("kill", 4712, signal.SIGKILL), ("waitpid", 4712, 0)]


# --- signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    signals = Signals()
    yield signals
    if is_open(signals._inbox):
        signals.restore()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_wait_once_and_nothing_else(signals: Signals, number: int) -> None:
    os.kill(os.getpid(), number)
    assert signals.collect(0.0) == [number], "nobody waits yet"
    signals.wait_begins()
    with pytest.raises(Interrupted, match=signal.Signals(number).name) as ended:
        os.kill(os.getpid(), number)
    assert ended.value.number == number
    os.kill(os.getpid(), number)  # a second one must not interrupt the clean-up


def test_a_signal_that_came_before_the_wait_ends_it_at_its_begin(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(Interrupted, match="SIGHUP"):
        signals.wait_begins()
    os.kill(os.getpid(), signal.SIGTERM)


def test_after_the_wait_signals_are_collected_in_their_order(signals: Signals) -> None:
    signals.wait_begins()
    os.kill(os.getpid(), signal.SIGUSR2)
    signals.wait_ended()
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCONT, signal.SIGCHLD):
        os.kill(os.getpid(), number)
    assert signals.collect(0.0) == [signal.SIGTERM, signal.SIGUSR1, signal.SIGCONT, signal.SIGCHLD]


def test_an_event_ends_the_sleep_of_the_loop_without_being_a_signal(signals: Signals) -> None:
    signals.wake()
    assert signals.collect(3600.0) == []
    for _ in range(66_000):
        signals.wake()  # a full pipe is no error
    signals.restore()
    signals.wake()


def test_everything_is_put_back_as_it_was() -> None:
    numbers = [*signal.valid_signals()]
    before = {number: signal.getsignal(number) for number in numbers}
    signals = Signals()
    inbox, outbox = signals._inbox, signals._outbox
    assert signal.getsignal(signal.SIGTTOU) is signal.SIG_IGN
    assert not os.get_blocking(inbox)
    assert not os.get_blocking(outbox)
    signals.restore()
    assert {number: signal.getsignal(number) for number in numbers} == before
    assert not is_open(inbox)
    assert not is_open(outbox)
    assert signal.set_wakeup_fd(-1) != outbox


def test_who_was_woken_by_signals_before_is_woken_again() -> None:
    inbox, outbox = os.pipe()
    os.set_blocking(outbox, False)
    before = signal.set_wakeup_fd(outbox, warn_on_full_buffer=False)
    try:
        Signals().restore()
        assert signal.set_wakeup_fd(before) == outbox
    finally:
        signal.set_wakeup_fd(before)
        os.close(inbox)
        os.close(outbox)


def test_what_the_caller_ignores_stays_ignored_but_for_the_end_of_the_child() -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGCHLD)}
    try:
        signals = Signals()
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGCHLD)
        assert signals.collect(0.0) == [signal.SIGCHLD]
        signals.restore()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- the terminal


class Keyboard:
    """A terminal whose foreground group is the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_there: bool = True, pipe: bool = False) -> None:
        self.foreground = 100
        self.done: list[Any] = []
        self.error: OSError | None = None
        mode = stat.S_IFIFO if pipe else stat.S_IFCHR

        def tcgetpgrp(_: int) -> int:
            if self.error is not None:
                raise self.error
            return self.foreground

        def tcsetpgrp(_: int, group: int) -> None:
            if self.foreground == -7:
                raise OSError("hung up")
            self.foreground = group

        fake = SimpleNamespace(
            getpgrp=lambda: 100, isatty=lambda number: is_there and number == 0, tcgetpgrp=tcgetpgrp,
            tcsetpgrp=tcsetpgrp, killpg=lambda *words: self.done.append(words),
            fstat=lambda number: SimpleNamespace(st_mode=mode if number == 1 else stat.S_IFCHR),
        )  # fmt: skip
        monkeypatch.setattr(terminal_module, "os", fake)
        self.terminal = Terminal(200)


def test_the_terminal_is_handed_over_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = Keyboard(monkeypatch)
    assert not keyboard.terminal.take_back(), "the command never had it"
    keyboard.terminal.offer()
    assert keyboard.foreground == 200
    assert not keyboard.terminal.hand_over(), "the wrapper does not have it"
    assert keyboard.terminal.take_back()
    assert keyboard.foreground == 100
    assert keyboard.terminal.hand_over()


def test_in_a_pipeline_the_terminal_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = Keyboard(monkeypatch, pipe=True)
    keyboard.terminal.offer()
    assert keyboard.foreground == 100
    assert keyboard.terminal.hand_over(), "when the command reads"


def test_without_a_terminal_nothing_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = Keyboard(monkeypatch, is_there=False)
    keyboard.terminal.offer()
    assert (keyboard.terminal.is_present, keyboard.terminal.hand_over()) == (False, False)
    keyboard.foreground = 200
    assert not keyboard.terminal.take_back()


def test_a_terminal_of_another_group_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = Keyboard(monkeypatch)
    keyboard.foreground = 300
    assert not keyboard.terminal.hand_over()
    assert not keyboard.terminal.take_back()
    assert keyboard.foreground == 300


def test_a_terminal_that_hung_up_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = Keyboard(monkeypatch)
    keyboard.error = OSError("hung up")
    assert not keyboard.terminal.hand_over()
    keyboard.error = None
    keyboard.foreground = -7
    assert not keyboard.terminal._assign(200)


def test_the_wrapper_stops_with_its_whole_group_as_ctrl_z_does(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = Keyboard(monkeypatch)
    keyboard.terminal.stop_with_child()
    assert keyboard.done == [(100, signal.SIGTSTP)]


# --- what is held, and the report


def lease(name: str, fence: int, *, abandoned: bool | None = None) -> Any:
    return SimpleNamespace(name=name, fence=fence, abandoned=abandoned)


@pytest.mark.parametrize(
    ("known", "expected"),
    [([None, None], None), ([False, None], False), ([False, True], True), ([False, False], False)],
)
def test_several_leases_are_abandoned_if_one_is_known_to_be(known: list[bool | None], expected: bool | None) -> None:
    leases = {str(number): lease(str(number), number, abandoned=each) for number, each in enumerate(known)}
    several: Any = SimpleNamespace(leases=leases)
    assert Held(several).abandoned is expected
    one: Any = lease("a", 1, abandoned=known[-1])
    assert Held(one).abandoned is known[-1]


def test_one_lease_and_several_have_one_face() -> None:
    one: Any = lease("a", 41)
    assert (Held(one).title, Held(one).fences) == ("'a'", {"a": 41})
    several: Any = SimpleNamespace(leases={"a": lease("a", 41), "b": lease("b", 42)})
    assert (Held(several).title, Held(several).fences) == ("'a', 'b'", {"a": 41, "b": 42})
    assert shown_names([]) == ""


def test_a_command_learns_of_one_name_or_of_a_list() -> None:
    assert environment_of({"a": 41}) == {"LEASEHOLD_NAME": "a", "LEASEHOLD_FENCE": "41"}
    several = environment_of({"a": 41, "b": 42})
    assert list(several) == ["LEASEHOLD_FENCES"]
    assert json.loads(several["LEASEHOLD_FENCES"]) == {"a": 41, "b": 42}


def test_a_report_has_an_obstacle_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert obstacle(str(tmp_path / "report")) is None
    assert obstacle(str(tmp_path)) == "it is a directory"
    assert obstacle(str(tmp_path / "absent" / "report")) == "its directory does not exist"
    assert obstacle(str(tmp_path / "file" / "report")) == "its directory does not exist"
    monkeypatch.chdir(tmp_path)
    assert obstacle("report") is None
    monkeypatch.setattr("leasehold.cli.report.os.access", lambda _, mode: mode != os.W_OK | os.X_OK)
    assert obstacle("report") == "this user may not write to its directory"


def test_a_report_replaces_the_last_one_as_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        write_report("report", {"name": "ä", "exit_code": number})
        assert (tmp_path / "report").read_text() == f'{{"schema": 1, "name": "\\u00e4", "exit_code": {number}}}\n'
    assert os.listdir(tmp_path) == ["report"]


def test_a_report_that_fails_leaves_neither_half_of_one_nor_a_file_beside_it(tmp_path: Path) -> None:
    write_report(str(tmp_path / "report"), {"exit_code": 1})
    with pytest.raises(TypeError):
        write_report(str(tmp_path / "report"), {"exit_code": object()})
    assert os.listdir(tmp_path) == ["report"]
    assert json.loads((tmp_path / "report").read_text())["exit_code"] == 1


def test_a_report_is_written_beside_its_place_where_a_rename_is_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[tuple[str, str]] = []
    replace = os.replace

    def noted(source: str, target: str) -> None:
        moves.append((source.rpartition("/")[0], target.rpartition("/")[2]))
        replace(source, target)

    monkeypatch.setattr("leasehold.cli.report.os.replace", noted)
    write_report(str(tmp_path / "report"), {"exit_code": 1})
    assert moves == [(str(tmp_path), "report")]


def test_a_report_changes_nothing_of_what_this_process_may_write(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_report(str(tmp_path / "report"), {})
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
