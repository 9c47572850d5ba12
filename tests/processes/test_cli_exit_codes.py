"""Every exit code of `leasehold run` comes about in at least one way."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import CommandLine, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


@pytest.mark.parametrize("code", [0, 1, 7, 64, 75, 79, 124, 255])
def test_the_command_s_own_code_is_returned(program: CommandLine, code: int) -> None:
    assert program.finish("run", "job", "--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [1, 2, 9, 15])
def test_a_command_ended_by_a_signal_gives_128_and_its_number(program: CommandLine, number: int) -> None:
    assert program.finish("run", "job", "--", "sh", "-c", f"kill -{number} $$").returncode == 128 + number


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fly"],
        ["--fly"],
        ["run"],
        ["run", "job"],
        ["run", "job", "--"],
        ["run", "job", "true"],
        ["run", "job", "--fly", "--", "true"],
        ["run", "job", "--ttl", "soon", "--", "true"],
        ["run", "job", "-n", "-w", "3", "--", "true"],
        ["run", "job", "--permits", "0", "--", "true"],
        ["run", "job", "--permits", "2", "--shared", "--", "true"],
        ["run", "job", "-E", "256", "--", "true"],
        ["run", "job", "--min-hold", "2s", "--max-hold", "1s", "--", "true"],
        ["ls", "a", "b"],
        ["break", "job"],
        ["completion", "tcsh"],
        ["run", "a", "b", "--shared", "--", "true"],
        ["check"],
    ],
)
def test_bad_usage_gives_64_and_a_way_to_help(program: CommandLine, words: list[str]) -> None:
    result = program.finish(*words)
    assert result.returncode == 64
    assert "--help" in result.stderr
    assert result.stdout == ""


def test_a_store_that_does_not_answer_gives_69(program: CommandLine) -> None:
    program.finish("run", "job", "--", "true")
    blocker = sqlite3.connect(program.folder / "locks.db", isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    try:
        result = program.finish("run", "job", "-n", "--", "touch", "ran")
    finally:
        blocker.close()
    assert result.returncode == 69
    assert not (program.folder / "ran").exists()


def test_an_error_of_our_own_gives_70_in_one_line_and_a_traceback_only_when_asked(program: CommandLine) -> None:
    hook = program.folder / "sitecustomize.py"
    hook.write_text(
        "import leasehold._blocking.lock as module\n"
        "def fail(self, timeout=...): raise RuntimeError('it broke\\x1b')\n"
        "module.Lock.acquire = fail\n"
    )
    environment = {"PYTHONPATH": f"{program.folder}:{program.environment['PYTHONPATH']}"}
    result = program.finish("run", "job", "--", "touch", "ran", env=environment)
    assert result.returncode == 70
    assert result.stderr.count("\n") == 1
    assert "RuntimeError: it broke\\x1b" in result.stderr
    assert not (program.folder / "ran").exists()
    verbose = program.finish("run", "job", "-v", "--", "true", env=environment)
    assert verbose.returncode == 70
    assert "Traceback" in verbose.stderr


def test_an_error_of_our_own_under_the_lock_ends_the_command_before_the_lock_is_given_back(
    program: CommandLine,
) -> None:
    (program.folder / "sitecustomize.py").write_text(
        "import os, pathlib\n"
        "import leasehold._blocking.lease as module\n"
        "import leasehold.cli.supervisor as supervisor\n"
        "release = module.Lease.release\n"
        "def noting(self):\n"
        "    pid = pathlib.Path('pid').read_text().strip()\n"
        "    pathlib.Path('noted').write_text(str(os.path.exists(f'/proc/{pid}')))\n"
        "    return release(self)\n"
        "def fail(self):\n"
        "    if os.path.exists('pid'): raise RuntimeError('it broke')\n"
        "module.Lease.release = noting\n"
        "supervisor.Supervisor._check_clock = fail\n"
    )
    environment = {"PYTHONPATH": f"{program.folder}:{program.environment['PYTHONPATH']}"}
    words = ["run", "job", "--ttl", "1s", "--", "sh", "-c", "echo $$ > new; mv new pid; exec sleep 60"]
    result = program.finish(*words, env=environment)
    assert result.returncode == 70, result
    assert (program.folder / "noted").read_text() == "False"
    assert program.is_free("job")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["-n"], 75),
        (["-w", "0.2s"], 75),
        (["-n", "-E", "3"], 3),
        (["-n", "-E", "0"], 0),
        (["-n", "--on-conflict", "skip"], 0),
    ],
)
def test_a_busy_lock_gives_75_or_what_was_asked_for(program: CommandLine, options: list[str], code: int) -> None:
    program.hold("job")
    result = program.finish("run", "job", *options, "--", "touch", "ran")
    assert result.returncode == code
    assert not (program.folder / "ran").exists()
    if "skip" in options:
        assert result.stderr == ""


@pytest.mark.parametrize(("options", "code"), [([], 75), (["-E", "3"], 3), (["-E", "0"], 0)])
def test_a_slot_that_is_another_s_gives_75_or_what_was_asked_for(
    program: CommandLine, options: list[str], code: int
) -> None:
    words = ["once", "job", "--slot", "today", "--on-conflict", "fail", *options]
    assert program.finish(*words, "--", "true").returncode == 0
    assert program.finish(*words, "--", "touch", "ran").returncode == code
    assert not (program.folder / "ran").exists()


def test_a_store_of_another_kind_gives_77(program: CommandLine) -> None:
    (program.folder / "locks.db").write_bytes(b"this is no database, " * 300)
    result = program.finish("run", "job", "--", "touch", "ran")
    assert result.returncode == 77
    assert not (program.folder / "ran").exists()


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://host", "sqlite:///{folder}/x.db?colour=blue"])
def test_a_bad_url_gives_78(program: CommandLine, url: str) -> None:
    words = ["run", "job", "--url", url.format(folder=program.folder), "--", "true"]
    assert program.finish(*words, env={"LEASEHOLD_URL": ""}).returncode == 78


def test_no_url_at_all_gives_78_and_the_words_to_add(program: CommandLine) -> None:
    result = program.finish("run", "job", "--", "true", env={"LEASEHOLD_URL": ""})
    assert result.returncode == 78
    assert "--url local:" in result.stderr
    assert "sqlite:////path" in result.stderr


def test_another_kind_of_lock_under_the_same_name_gives_78(program: CommandLine) -> None:
    program.hold("job")
    assert program.finish("run", "job", "--permits", "2", "--", "true").returncode == 78


def test_a_lost_lease_gives_79_whatever_the_command_says(program: CommandLine) -> None:
    script = "trap 'exit 0' TERM; touch started; while :; do sleep 0.02; done"
    process = program.hold("job", "--ttl", "1s", script=script)
    with program.client() as client:
        state = client.inspect("job")
        assert state is not None
        assert client.break_lock("job", fence=state.holdings[0].fence, reason="the test says so")
    _, console = process.communicate(timeout=30)
    assert process.returncode == 79
    assert "the test says so" in console
    wait_for(lambda: program.is_free("job"), "the lock is free again")


def test_max_hold_gives_124(program: CommandLine) -> None:
    assert program.finish("run", "job", "--max-hold", "0.2", "--", "sleep", "60").returncode == 124


def test_a_command_that_is_not_executable_gives_126(program: CommandLine) -> None:
    script = program.folder / "job.sh"
    script.write_text("#!/bin/sh\n")
    assert program.finish("run", "job", "--", str(script)).returncode == 126
    assert program.finish("run", "job", "--", str(program.folder)).returncode == 126
    script.write_text("echo no first line\n")
    script.chmod(0o755)
    result = program.finish("run", "job", "--", str(script))
    assert result.returncode == 126
    assert "#!/bin/sh" in result.stderr
    assert program.is_free("job")


def test_a_command_that_does_not_exist_gives_127(program: CommandLine) -> None:
    assert program.finish("run", "job", "--", "no-such-command-anywhere").returncode == 127
    assert program.finish("run", "job", "--", "/no/such/command").returncode == 127
    script = program.folder / "job.sh"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert program.finish("run", "job", "--", str(script)).returncode == 127
    assert program.is_free("job")
