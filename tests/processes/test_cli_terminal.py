"""`leasehold run` on a terminal: a pseudo-terminal with a real interactive shell, as a person would use it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import PYTHON, CommandLine, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 20.0
# a new session has no terminal until it asks for one
BECOME_BASH = """
import fcntl, os, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv("/bin/bash", ["bash", "--norc", "--noprofile", "-i"])
"""
RUN = f"'{PYTHON}' -m leasehold run"


class Shell:
    """An interactive bash on a pseudo-terminal."""

    def __init__(self, program: CommandLine) -> None:
        self._terminal, inside = pty.openpty()
        self._process = subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", BECOME_BASH],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            cwd=program.folder,
            env={**program.environment, "PS1": "ready> ", "TERM": "xterm"},
        )
        os.close(inside)
        self._seen = ""
        self.expect("ready> ")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._terminal, text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait for output; what came before it is forgotten."""
        end = time.monotonic() + LIMIT
        while (found := re.search(pattern, self._seen)) is None:
            readable, _, _ = select.select([self._terminal], [], [], 0.1)
            if readable:
                self._seen += os.read(self._terminal, 4096).decode(errors="replace")
            assert time.monotonic() < end, f"waited for {pattern!r}, got {self._seen!r}"
        self._seen = self._seen[found.end() :]
        return found

    def status(self) -> int:
        """The exit code of the last command."""
        self.type("echo status=$?.\n")
        return int(self.expect(r"status=(\d+)\.")[1])

    def jobs(self) -> str:
        """What the shell believes of its only job: Running or Stopped."""
        self.type("jobs\n")
        return self.expect(r"\[1\]\+?\s+(Running|Stopped)")[1]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


def process_states(program: CommandLine) -> str:
    """The state letters of the wrapper processes: T is stopped."""
    states = ""
    for pid in program.survivors():
        line = Path(f"/proc/{pid}/stat")
        with suppress(OSError):
            states += line.read_text().rpartition(")")[2].split()[0]
    return states


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


@pytest.fixture
def shell(program: CommandLine) -> Iterator[Shell]:
    shell = Shell(program)
    yield shell
    shell.close()


def test_the_command_reads_from_the_terminal(program: CommandLine, shell: Shell) -> None:
    shell.type(f"{RUN} job -- sh -c 'echo what''?; read answer; echo \"you said $answer\"'\n")
    shell.expect(r"what\?\r\n")
    shell.type("nothing\n")
    shell.expect("you said nothing")
    assert shell.status() == 0
    assert program.is_free("job")


def test_a_script_has_the_terminal_again_after_the_run(program: CommandLine, shell: Shell) -> None:
    (program.folder / "script.sh").write_text(
        f'{RUN} job -- true\necho "what"?\nread answer\necho "you said $answer"\n'
    )
    shell.type("sh script.sh\n")
    shell.expect(r"what\?\r\n")
    shell.type("nothing\n")
    shell.expect("you said nothing")
    assert shell.status() == 0


def test_ctrl_c_ends_the_command_with_130_and_the_shell_goes_on(program: CommandLine, shell: Shell) -> None:
    shell.type(f"{RUN} job -- sh -c 'echo run''ning; exec sleep 60'\n")
    shell.expect("running\r\n")
    shell.type("\x03")
    shell.expect("ready> ")
    assert shell.status() == 130
    assert program.is_free("job")


def test_ctrl_c_reaches_a_command_that_handles_it_once(program: CommandLine, shell: Shell) -> None:
    lines = [
        "import signal, time",
        "seen = []",
        "signal.signal(signal.SIGINT, lambda *_: seen.append(print('caught' + ' one')))",
        "print('run' + 'ning')",
        "while len(seen) < 2: time.sleep(0.02)",
    ]
    (program.folder / "job.py").write_text("\n".join(lines))
    shell.type(f"{RUN} job -- '{PYTHON}' job.py\n")
    shell.expect("running\r\n")
    for _ in range(2):
        shell.type("\x03")
        shell.expect("caught one\r\n")
    shell.expect("ready> ")
    assert shell.status() == 0


def test_ctrl_c_while_waiting_leaves_the_queue(program: CommandLine, shell: Shell) -> None:
    program.hold("job")
    shell.type(f"{RUN} job -- echo never\n")
    shell.expect("waiting for 'job' .* held by sh on .* 1 in the queue")
    shell.type("\x03")
    redrawn = r"(\rwaiting for 'job' [^\r]*)?"  # the line may be brought up to date once more
    shell.expect(rf"\^C{redrawn}\r +\r\r?\nleasehold: SIGINT ended the wait for the lock; the command was not run\r\n")
    shell.expect("ready> ")
    assert shell.status() == 130
    assert program.queue("job") == 0


def test_the_waiting_line_is_kept_up_to_date_and_cleared(program: CommandLine, shell: Shell) -> None:
    holder = program.hold("job")
    shell.type(f"{RUN} job -- echo got'' it\n")
    first = shell.expect(r"\rwaiting for 'job' \((\S+)\): held by .*; 1 in the queue")
    second = shell.expect(r"\rwaiting for 'job' \((\S+)\): held by .*; 1 in the queue")
    assert first[1] != second[1]
    holder.terminate()
    shell.expect(r"\r +\r")
    shell.expect("got it\r\n")
    assert shell.status() == 0


def test_ctrl_z_stops_and_fg_continues_the_command(program: CommandLine, shell: Shell) -> None:
    shell.type(f"{RUN} job -- sh -c 'echo run''ning; read answer; echo \"you said $answer\"'\n")
    shell.expect("running\r\n")
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.expect("ready> ")
    assert not program.is_free("job")
    shell.type("fg\n")
    shell.expect("leasehold run job")
    shell.type("hello again\n")
    shell.expect("you said hello again")
    shell.expect("ready> ")
    assert shell.status() == 0
    assert program.is_free("job")


def test_a_command_left_stopped_beyond_its_lease_is_ended(program: CommandLine, shell: Shell) -> None:
    shell.type(f"{RUN} job --ttl 1s -- sh -c 'echo run''ning; read answer; echo \"you said $answer\"'\n")
    shell.expect("running\r\n")
    shell.type("\x1a")
    shell.expect("Stopped")
    wait_for(lambda: program.is_free("job"), "the lease ends")
    shell.type("fg\n")
    shell.expect("lost the lease")
    shell.expect("ready> ")
    assert shell.status() == 79


def test_a_job_in_the_background_stops_when_it_wants_to_read_and_fg_helps(program: CommandLine, shell: Shell) -> None:
    shell.type(f"{RUN} job -- sh -c 'read answer; echo \"you said $answer\"' &\n")
    wait_for(lambda: not program.is_free("job"), "the job has started")
    wait_for(lambda: process_states(program).count("T") == 2, "command and wrapper are stopped")
    wait_for(lambda: shell.jobs() == "Stopped", "the shell knows it: it continues only what it believes to be stopped")
    shell.type("fg\n")
    shell.expect("leasehold run job")
    shell.type("hello\n")
    shell.expect("you said hello")
    shell.expect("ready> ")
    assert shell.status() == 0


def test_in_a_pipeline_the_terminal_is_handed_over_only_when_the_command_reads(
    program: CommandLine, shell: Shell
) -> None:
    shell.type(f"{RUN} job -- sh -c 'echo what''?; read answer; echo \"you said $answer\"' | cat\n")
    shell.expect(r"what\?\r\n")
    shell.type("nothing\n")
    shell.expect("you said nothing")
    shell.expect("ready> ")
    shell.type(f"{RUN} job -- sh -c 'echo run''ning; exec sleep 60' | cat\n")
    shell.expect("running\r\n")
    shell.type("\x03")
    shell.expect("ready> ")
    assert program.is_free("job")
