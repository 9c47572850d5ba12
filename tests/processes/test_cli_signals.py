"""Signals to `leasehold run`, while it waits and while the command runs."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import PYTHON, CommandLine, children_of, is_alive, wait_for, watchdog_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTE_SIGNALS = """
import os, signal, sys, time
def note(number, frame):
    with open("noted", "a") as file:
        file.write(f"{number} ")
    if number == signal.SIGTERM:
        sys.exit(9)
for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, note)
open("started", "w").close()
while True:
    time.sleep(0.02)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def command_of(wrapper: int) -> int:
    """The command that the wrapper runs."""
    watchdog = wait_for(lambda: watchdog_of(wrapper), "the watchdog is detached")
    (command,) = (pid for pid in children_of(wrapper) if pid != watchdog)
    return command


def test_every_signal_is_passed_on_and_the_command_decides_what_to_do(program: CommandLine) -> None:
    (program.folder / "job.py").write_text(NOTE_SIGNALS)
    process = program.hold("job", script=f"exec '{PYTHON}' job.py")
    noted = program.folder / "noted"
    for number in (1, 2, 3, 10, 12):
        before = noted.read_text() if noted.exists() else ""
        process.send_signal(number)
        wait_for(lambda b=before: noted.exists() and noted.read_text() != b, f"signal {number} arrives")  # type: ignore[misc]
    process.terminate()
    assert process.wait() == 9
    assert noted.read_text().split() == ["1", "2", "3", "10", "12", "15"]
    assert program.is_free("job")


def test_term_reaches_the_whole_group(program: CommandLine) -> None:
    process = program.hold("job", script="sleep 61 & echo $! > grandchild; touch started; wait")
    process.terminate()
    assert process.wait() == 143
    grandchild = int((program.folder / "grandchild").read_text())
    wait_for(lambda: not is_alive(grandchild), "the grandchild ends too")


def test_user_signals_spare_the_helpers_of_the_command(program: CommandLine) -> None:
    script = "trap 'touch noted' USR1; sleep 61 & echo $! > helper; touch started; while :; do sleep 0.02; done"
    process = program.hold("job", script=script)
    process.send_signal(signal.SIGUSR1)
    wait_for((program.folder / "noted").exists, "the command gets the signal")
    assert is_alive(int((program.folder / "helper").read_text()))


def test_a_second_interrupt_kills_a_command_that_ignores_the_first(program: CommandLine) -> None:
    process = program.hold("job", script="trap '' INT; touch started; while :; do sleep 0.02; done")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait() == 137
    assert program.is_free("job")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_wait_and_leaves_the_queue(program: CommandLine, number: int) -> None:
    program.hold("job")
    waiter = program.start("run", "job", "--", "touch", "ran")
    wait_for(lambda: program.queue("job") == 1, "it stands in the queue")
    waiter.send_signal(number)
    _, console = waiter.communicate(timeout=30)
    assert waiter.returncode == 128 + number
    assert "Traceback" not in console
    assert program.queue("job") == 0
    assert not (program.folder / "ran").exists()
    wait_for(lambda: len(program.survivors()) == 3, "only the holder, its command and its watchdog are left")


def test_user_signals_do_not_end_the_wait(program: CommandLine) -> None:
    holder = program.hold("job")
    waiter = program.start("run", "job", "--", "sh", "-c", "sleep 0.5; echo got it")
    wait_for(lambda: program.queue("job") == 1, "it stands in the queue")
    waiter.send_signal(signal.SIGUSR1)
    holder.terminate()
    assert waiter.communicate(timeout=30)[0] == "got it\n"


def test_hangup_stays_ignored_under_nohup(program: CommandLine) -> None:
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None  # noqa: E731
    process = program.start("run", "job", "--", "sh", "-c", "touch started; sleep 0.3; echo done", preexec_fn=ignore)
    wait_for((program.folder / "started").exists, "the command starts")
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=30)[0] == "done\n"


def test_hangup_does_not_end_the_wait_under_nohup(program: CommandLine) -> None:
    holder = program.hold("job")
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None  # noqa: E731
    waiter = program.start("run", "job", "--", "echo", "got it", preexec_fn=ignore)
    wait_for(lambda: program.queue("job") == 1, "it stands in the queue")
    waiter.send_signal(signal.SIGHUP)
    waiter.send_signal(signal.SIGUSR1)  # noted when the other one has been, so that nothing has to be waited for
    holder.terminate()
    assert waiter.communicate(timeout=30)[0] == "got it\n"
    assert waiter.returncode == 0


def test_hangup_is_not_passed_on_under_nohup_even_to_a_command_that_listens(program: CommandLine) -> None:
    (program.folder / "job.py").write_text(NOTE_SIGNALS)
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None  # noqa: E731
    process = program.start("run", "job", "--", PYTHON, "job.py", preexec_fn=ignore)
    wait_for((program.folder / "started").exists, "the command starts")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    noted = program.folder / "noted"
    wait_for(lambda: noted.exists() and "10" in noted.read_text(), "the later signal arrives")
    process.terminate()
    assert process.wait(30) == 9
    assert noted.read_text().split() == ["10", "15"]


def test_a_lost_lease_ends_the_group_with_term_and_then_kill(program: CommandLine) -> None:
    script = "trap '' TERM; sleep 61 & echo $! > grandchild; touch started; while :; do sleep 0.02; done"
    process = program.hold("job", "--ttl", "1s", "--kill-after", "0.3s", script=script)
    os.kill(wait_for(lambda: watchdog_of(process.pid), "the watchdog"), signal.SIGSTOP)  # the wrapper must do it alone
    with program.client() as client:
        state = client.inspect("job")
        assert state is not None
        client.break_lock("job", fence=state.holdings[0].fence, reason="a test", now=True)
    assert process.wait(30) == 79
    assert not is_alive(int((program.folder / "grandchild").read_text()))
    assert program.survivors() == []


def test_a_stopped_command_keeps_the_lock_and_can_still_be_terminated(program: CommandLine) -> None:
    process = program.hold("job", "--ttl", "1s")
    os.kill(command_of(process.pid), signal.SIGSTOP)
    with program.client() as client:
        time.sleep(1.5)  # longer than the ttl: only renewal keeps it
        assert client.inspect("job") is not None
    process.terminate()
    assert process.wait(30) == 143
