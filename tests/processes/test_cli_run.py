"""`leasehold run`: what the command gets, what the caller gets, and what happens to the lock."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import PYTHON, SOURCE, CommandLine, children_of, wait_for, watchdog_of

if TYPE_CHECKING:
    from collections.abc import Iterator

GIGABYTE = 1 << 30


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def test_the_command_gets_stdin_arguments_and_environment_untouched(program: CommandLine) -> None:
    script = "import os,sys,json; print(json.dumps([sys.stdin.read(), sys.argv[1:], dict(os.environ)]))"
    words = ["-v", "--", "a b", "*", "$HOME", "", "--url"]
    result = program.finish("run", "job", "--", PYTHON, "-c", script, *words, given="from the pipe")
    assert result.returncode == 0, result.stderr
    stdin, arguments, environment = json.loads(result.stdout)
    assert stdin == "from the pipe"
    assert arguments == words
    ours = {name: environment.pop(name) for name in list(environment) if name.startswith("LEASEHOLD_")}
    assert ours.pop("LEASEHOLD_URL") == program.url
    assert ours.pop("LEASEHOLD_NAME") == "job"
    assert int(ours.pop("LEASEHOLD_FENCE")) > 0
    assert json.loads(ours.pop("LEASEHOLD_HELD")) == ["job"]
    assert ours.pop("LEASEHOLD_LEASE").startswith("/proc/")
    assert not ours
    before = {name: value for name, value in program.environment.items() if name != "LEASEHOLD_URL"}
    environment.pop("LC_CTYPE", None)  # Python itself may add it
    before.pop("LC_CTYPE", None)
    assert environment == before


def test_success_is_silent_and_frees_the_lock(program: CommandLine) -> None:
    result = program.finish("run", "job", "--", "echo", "hello")
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello\n", "")
    assert program.is_free("job")


def test_the_lock_is_held_while_the_command_runs_and_named_after_it(program: CommandLine) -> None:
    process = program.hold("job", "--reason", "a test")
    with program.client() as client:
        state = client.inspect("job")
    assert state is not None
    (holding,) = state.holdings
    assert (holding.holder.pid, holding.holder.label, holding.holder.reason) == (process.pid, "sh", "a test")
    process.terminate()
    process.wait()
    assert program.is_free("job")


def test_each_run_gets_a_higher_fence(program: CommandLine) -> None:
    fences = [int(program.finish("run", "job", "--", "printenv", "LEASEHOLD_FENCE").stdout) for _ in range(3)]
    assert fences == sorted(set(fences))


def test_a_gigabyte_passes_through(program: CommandLine) -> None:
    process = program.start(
        "run", "job", "--", "dd", "if=/dev/zero", "bs=1M", "count=1024", stderr=subprocess.DEVNULL, text=False
    )
    assert process.stdout is not None
    count = 0
    while chunk := os.read(process.stdout.fileno(), 1 << 20):
        count += len(chunk)
    assert process.wait() == 0
    assert count == GIGABYTE


def test_descriptors_of_the_caller_reach_the_command_and_not_the_watchdog(program: CommandLine) -> None:
    read_end, write_end = os.pipe()
    script = f"import os; os.write({write_end}, b'through'); input()"
    words = ["run", "job", "--", PYTHON, "-c", script]
    process = program.start(*words, stdin=subprocess.PIPE, pass_fds=[write_end])
    os.close(write_end)
    assert os.read(read_end, 100) == b"through"
    watchdog = wait_for(lambda: watchdog_of(process.pid), "the watchdog is detached")
    open_files = [link.readlink() for link in Path(f"/proc/{watchdog}/fd").iterdir()]
    inherited = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in (1, 2, write_end)]
    assert not set(open_files) & set(inherited)
    process.communicate("go\n")
    assert os.read(read_end, 100) == b""  # nobody has the other end any more
    os.close(read_end)


def test_the_command_ignores_the_same_signals_as_without_us(program: CommandLine) -> None:
    command = ["grep", "SigIgn", "/proc/self/status"]
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    assert program.finish("run", "job", "--", *command).stdout == alone.stdout


def test_a_script_that_closed_its_standard_descriptors_still_works(program: CommandLine) -> None:
    marker = program.folder / "ran"
    words = f"exec '{PYTHON}' -m leasehold run job -- touch '{marker}' <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", words], env=program.environment, check=False)
    assert done.returncode == 0
    assert marker.exists()


def test_background_processes_outlive_the_command_without_the_lock_and_verbose_says_so(program: CommandLine) -> None:
    script = "sleep 60 > /dev/null 2>&1 < /dev/null & echo $!"
    result = program.finish("run", "job", "-v", "--", "sh", "-c", script)
    assert result.returncode == 0
    assert "still run, without the lock" in result.stderr
    assert program.is_free("job")
    os.kill(int(result.stdout), 9)


def test_wait_group_holds_until_the_last_process_of_the_group_ended(program: CommandLine) -> None:
    script = "(touch started; while [ ! -e go ]; do sleep 0.02; done) & exit 3"
    process = program.hold("job", "--wait-group", script=script)
    wait_for(lambda: len(children_of(process.pid)) == 1, "only the watchdog is left")
    assert not program.is_free("job")
    (program.folder / "go").touch()
    assert process.wait() == 3
    assert program.is_free("job")


def test_permits_let_that_many_run_together(program: CommandLine) -> None:
    first, second = (program.hold("pool", "--permits", "2") for _ in range(2))
    assert program.finish("run", "pool", "--permits", "2", "-n", "--", "true").returncode == 75
    first.terminate()
    first.wait()
    assert program.finish("run", "pool", "--permits", "2", "-n", "--", "true").returncode == 0
    second.terminate()


def test_shared_runs_go_together_and_keep_an_exclusive_one_out(program: CommandLine) -> None:
    program.hold("table", "--shared")
    assert program.finish("run", "table", "--shared", "-n", "--", "true").returncode == 0
    assert program.finish("run", "table", "-n", "--", "true").returncode == 75


def test_min_hold_keeps_the_lock_after_a_short_command(program: CommandLine) -> None:
    assert program.finish("run", "job", "--min-hold", "60s", "--", "true").returncode == 0
    result = program.finish("run", "job", "-n", "--", "true")
    assert result.returncode == 75
    assert "--min-hold" in result.stderr


def test_a_busy_lock_is_described(program: CommandLine) -> None:
    process = program.hold("job", "--reason", "nightly \x1b[31mbackup")
    result = program.finish("run", "job", "-n", "--", "true")
    assert result.returncode == 75
    for fact in ("'job' is busy", f"pid {process.pid}", "since", "fence", "queue    0", "nightly \\x1b[31mbackup"):
        assert fact in result.stderr
    assert program.url in result.stderr
    assert "\x1b" not in result.stderr
    assert result.stdout == ""


def test_a_wait_of_more_than_a_second_is_announced_once(program: CommandLine) -> None:
    process = program.hold("job")
    waiter = program.start("run", "job", "--", "echo", "got it")
    assert waiter.stderr is not None
    line = waiter.stderr.readline()
    assert re.search(r"waiting for 'job' \(\d\.\ds so far\): ", line)
    assert f"held by sh on {os.uname().nodename}, pid {process.pid} for " in line
    assert "; 1 in the queue" in line
    process.terminate()
    output, rest = waiter.communicate()
    assert (output, rest, waiter.returncode) == ("got it\n", "", 0)


def test_quiet_says_nothing_on_a_conflict(program: CommandLine) -> None:
    program.hold("job")
    result = program.finish("run", "job", "-q", "-w", "1.2s", "--", "true")
    assert (result.returncode, result.stdout, result.stderr) == (75, "", "")


def test_nesting_the_same_name_is_refused_and_another_name_is_not(program: CommandLine) -> None:
    inner = f"'{PYTHON}' -m leasehold run a -- echo reached"
    middle = f"'{PYTHON}' -m leasehold run b -- sh -c \"{inner}\""
    result = program.finish("run", "a", "--", "sh", "-c", middle)
    assert result.returncode == 64
    assert "a caller of this command already holds 'a'" in result.stderr
    assert "reached" not in result.stdout
    different = program.finish(
        "run", "c", "--", "sh", "-c", f"'{PYTHON}' -m leasehold run d -- printenv LEASEHOLD_HELD"
    )
    assert json.loads(different.stdout) == ["c", "d"]


def test_the_report_is_written_for_a_run_and_for_a_conflict(program: CommandLine) -> None:
    report = program.folder / "report.json"
    result = program.finish("run", "job", "--report", str(report), "--", "sh", "-c", "echo data; exit 5")
    assert (result.returncode, result.stdout) == (5, "data\n")
    facts = json.loads(report.read_text())
    assert (facts["schema"], facts["name"], facts["outcome"], facts["exit_code"]) == (1, "job", "ran", 5)
    assert facts["command"][0] == "sh"
    assert facts["fence"] > 0
    assert {path.name for path in program.folder.iterdir() if "report" in path.name} == {"report.json"}
    program.hold("job")
    program.finish("run", "job", "-n", "--report", str(report), "--", "true")
    assert json.loads(report.read_text())["outcome"] == "busy"


def test_a_report_that_cannot_be_written_any_more_is_mentioned_and_changes_nothing(program: CommandLine) -> None:
    (program.folder / "reports").mkdir()
    result = program.finish("run", "job", "--report", "reports/report", "--", "sh", "-c", "rmdir reports; exit 4")
    assert result.returncode == 4
    assert "cannot write the report" in result.stderr


@pytest.mark.parametrize("place", ["missing/report", "started/report", "."])
def test_a_report_that_could_never_be_written_is_refused_before_the_command_runs(
    program: CommandLine, place: str
) -> None:
    (program.folder / "started").touch()
    for verb in (["run", "job"], ["once", "job", "--every", "1h"]):
        result = program.finish(*verb, "--report", place, "--", "touch", "ran")
        assert result.returncode == 64
        assert "the command was not run" in result.stderr
    assert not (program.folder / "ran").exists()


def test_max_hold_stops_the_command_under_the_lock(program: CommandLine) -> None:
    started = time.monotonic()
    script = "trap 'touch asked; exit 0' TERM; touch started; while :; do sleep 0.02; done"
    process = program.hold("job", "--max-hold", "0.5s", script=script)
    assert process.wait() == 124
    assert time.monotonic() - started >= 0.5
    assert (program.folder / "asked").exists()
    assert program.is_free("job")


def test_a_memory_store_is_refused_because_it_locks_nothing_between_commands(program: CommandLine) -> None:
    for verb in (["run", "job", "-n"], ["once", "job", "--every", "1h"]):
        result = program.finish(*verb, "--url", "memory://shared", "--", "touch", "ran")
        assert result.returncode == 78
        assert "is a store inside one process" in result.stderr
        assert "local:" in result.stderr
    assert not (program.folder / "ran").exists()
    assert program.survivors() == []


# --- a store that is away: another program keeps the file locked


def test_a_store_that_does_not_answer_is_named_while_it_is_tried(program: CommandLine) -> None:
    program.finish("run", "job", "--", "true")
    with closing(sqlite3.connect(program.folder / "locks.db", isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        waiter = program.start("run", "job", "-w", "60s", "--", "echo", "got it")
        assert waiter.stderr is not None
        line = waiter.stderr.readline()
        blocker.execute("ROLLBACK")
    output, rest = waiter.communicate()
    assert line.startswith("leasehold: waiting for 'job' (")
    assert f", giving up after 1m00s): cannot reach {program.url}, trying for " in line
    assert re.search(r"trying for \d+(\.\d)?s more: .* stayed locked by another connection", line)
    assert (output, rest, waiter.returncode) == ("got it\n", "", 0)


def test_a_busy_lock_is_named_again_once_the_store_has_come_back(program: CommandLine) -> None:
    holder = program.hold("job", "--ttl", "60s")
    with closing(sqlite3.connect(program.folder / "locks.db", isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        waiter = program.start("run", "job", "--", "echo", "got it")
        assert waiter.stderr is not None
        while "cannot reach" not in waiter.stderr.readline():
            assert waiter.poll() is None
        blocker.execute("ROLLBACK")
        assert "waiting for 'job'" in waiter.stderr.readline()
    holder.terminate()
    output, rest = waiter.communicate()
    assert (output, rest, waiter.returncode) == ("got it\n", "", 0)


def test_renewals_that_fail_are_announced_while_there_is_time_and_so_is_their_return(program: CommandLine) -> None:
    words = ["run", "job", "--ttl", "9s", "--", "sh", "-c", "touch started; read line"]
    process = program.start(*words, stdin=subprocess.PIPE)
    wait_for((program.folder / "started").exists, "the command starts")
    assert process.stderr is not None
    with closing(sqlite3.connect(program.folder / "locks.db", isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        line = process.stderr.readline()
        blocker.execute("ROLLBACK")
    assert re.search(r"no renewal of 'job' for \d\.\ds, \d\.\ds left before it is lost: .* stayed locked", line)
    assert process.stderr.readline() == "leasehold: 'job' is renewed again\n"
    assert process.communicate("go\n", timeout=30) == ("", "")
    assert process.returncode == 0


def test_a_wrapper_that_is_interrupted_while_waiting_says_that_nothing_was_run(program: CommandLine) -> None:
    program.hold("job")
    waiter = program.start("run", "job", "--", "touch", "ran")
    wait_for(lambda: program.queue("job") == 1, "it stands in the queue")
    waiter.terminate()
    assert "SIGTERM ended the wait for the lock; the command was not run" in waiter.communicate(timeout=30)[1]


@pytest.mark.parametrize("command", ["echo hi", "cd", "true; false"])
def test_a_command_that_needs_a_shell_is_answered_with_the_words_to_write(program: CommandLine, command: str) -> None:
    result = program.finish("run", "job", "--", command)
    assert result.returncode == 127
    assert "write: sh -c " in result.stderr
    plain = program.finish("run", "job", "--", "no-such-command")
    assert plain.returncode == 127
    assert "sh -c" not in plain.stderr


def test_a_command_in_a_folder_that_may_not_be_read_gives_126(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from leasehold.cli.child import CommandFailed, find_command\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: find_command(sys.argv[1])\n"
        "except CommandFailed as failure: print(failure.code)\n"
    )
    with tempfile.TemporaryDirectory() as name:
        closed = Path(name) / "closed"
        closed.mkdir(mode=0o000)
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(
            [PYTHON, "-c", script, str(closed / "job")], env=environment, capture_output=True, text=True, check=False
        )
        closed.chmod(0o700)
    assert (done.stdout, done.stderr) == ("126\n", "")


def test_a_store_that_is_away_is_tried_for_as_long_as_the_wait_may_take_and_no_longer(program: CommandLine) -> None:
    (program.folder / "sitecustomize.py").write_text(
        "import leasehold._face.client\n"
        "leasehold._face.client.AsyncClient.__init__.__kwdefaults__['connect_timeout'] = 1.5\n"  # what holds without -w
    )
    program.environment["PYTHONPATH"] = f"{program.folder}:{program.environment['PYTHONPATH']}"
    program.finish("run", "job", "--", "true")
    with closing(sqlite3.connect(program.folder / "locks.db", isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        patient = program.start("run", "patient", "-w", "60s", "--", "echo", "got it")
        hurried = program.finish("run", "hurried", "-w", "0.3s", "--", "true")
        plain = program.finish("run", "plain", "--", "true")
        assert patient.poll() is None
        blocker.execute("ROLLBACK")
    assert patient.communicate(timeout=30)[0] == "got it\n"
    assert (hurried.returncode, plain.returncode, patient.returncode) == (69, 69, 0)
    assert "stayed locked" in hurried.stderr
    assert "stayed locked" in plain.stderr
