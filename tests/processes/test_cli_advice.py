"""`leasehold choose` and `leasehold explain`: in scripts, and asked on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from leasehold import errors
from leasehold.cli.explain_table import EXPLANATIONS
from leasehold.cli.main import main
from tests.processes.command_line import LIMIT, PYTHON, SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# a new session has no terminal until it asks for one
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Asked:
    """`leasehold choose` on a terminal of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._terminal, inside = pty.openpty()
        self.process = subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", TAKE_TERMINAL, PYTHON, "-m", "leasehold", "choose", *words],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"},
        )
        os.close(inside)
        self._seen = ""

    def expect(self, pattern: str) -> None:
        """Read until it is there; what came before is forgotten."""
        while (found := re.search(pattern, self._seen, re.DOTALL)) is None:
            readable, _, _ = select.select([self._terminal], [], [], LIMIT)
            assert readable, f"waited in vain for {pattern!r} after {self._seen!r}"
            self._seen += os.read(self._terminal, 4096).decode()
        self._seen = self._seen[found.end() :]

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def press_until_it_ends(self, key: str) -> None:
        """Press a key as a person does: again, if it came in the moment between the question and the reading."""
        end = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < end:
            self.type(key)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it printed to the end."""
        with suppress(OSError):  # the other side of the terminal is closed
            while more := os.read(self._terminal, 4096).decode():
                self._seen += more
        return self.process.wait(LIMIT), self._seen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._terminal)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    asked = Asked(tmp_path)
    yield asked
    asked.close()


def test_three_answers_by_number_give_pattern_and_store_with_reasons(asked: Asked) -> None:
    asked.expect("What has to be done.*number: ")
    asked.type("7\n")
    asked.expect("What is there already.*numbers: ")
    asked.type("4, 7\n")
    asked.expect("twice.*number: ")
    asked.type("1\n")
    code, text = asked.end()
    assert code == 0
    assert "PATTERN  a job that runs once per slot" in text
    assert "STORE    Redis: redis://host" in text
    for head in ("TTL ", "FENCE ", "LATER ", "READ "):
        assert head in text


def test_wrong_answer_is_asked_again_and_words_are_answers_too(asked: Asked) -> None:
    asked.expect("number: ")
    asked.type("99\n")
    asked.expect("please type one number from 1 to 14.*number: ")
    asked.type("stock\n")
    asked.expect("numbers: ")
    asked.type("etcd elephants\n")
    asked.expect("please type numbers from 1 to 9.*numbers: ")
    asked.type("\n")
    asked.expect("number: ")
    asked.type("cheap\n")
    code, text = asked.end()
    assert (code, "STORE    SQLite: local:" in text) == (0, True)


def test_interrupt_while_it_asks_ends_it_without_a_traceback(asked: Asked) -> None:
    asked.expect("number: ")
    asked.press_until_it_ends("\x03")
    code, text = asked.end()
    assert code == 130
    assert "Traceback" not in text


def test_end_of_the_input_chooses_nothing(asked: Asked) -> None:
    asked.expect("number: ")
    asked.press_until_it_ends("\x04")
    code, text = asked.end()
    assert (code, "nothing was chosen" in text) == (1, True)


def test_options_are_not_asked_for(tmp_path: Path) -> None:
    asked = Asked(tmp_path, "--need", "leader", "--have", "etcd")
    try:
        asked.expect("twice.*number: ")
        asked.type("1\n")
        code, text = asked.end()
    finally:
        asked.close()
    assert (code, "STORE    etcd: etcd://" in text) == (0, True)


def test_options_decide_in_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", "--need", "job", "--have", "redis,zookeeper", "--have", "nats", "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert (advice["pattern"], advice["store"]["name"], advice["store_is_there"]) == ("once per slot", "nats", True)
    assert main(["choose", "--need", "job"]) == 0
    assert "there is: nothing yet" in capsys.readouterr().out
    assert main(["choose"]) == 0
    assert "FIRST: DO YOU NEED A LOCK?" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--need", "luck"], ["--have", "redis"], ["--need", "job", "--have", "luck"], ["--json"]]
)
def test_what_choose_does_not_know_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", *words]) == 64
    assert "see leasehold choose --help" in capsys.readouterr().err


def test_every_error_has_an_explanation_with_something_to_do() -> None:
    assert set(EXPLANATIONS) == set(errors.__all__)
    assert all(found.when and found.do for found in EXPLANATIONS.values())


def test_error_is_explained_by_the_name_that_a_traceback_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "leasehold.errors.LeaseLost"]) == 0
    assert "what to do:\n  - Stop: " in capsys.readouterr().out
    assert main(["explain", "fenceahead", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == "FenceAhead"
    assert main(["explain"]) == 0
    assert capsys.readouterr().out.split() == list(EXPLANATIONS)
    assert main(["explain", "LeaseLst"]) == 64
    assert "did you mean LeaseLost?" in capsys.readouterr().err


def test_verbose_error_names_its_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--url", "nonsense://", "-v"]) == 78
    assert "see: leasehold explain ConfigurationError" in capsys.readouterr().err
