"""Holding and waiting on the command line: several names, hold, wait, and check inside a run."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import PYTHON, CommandLine, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEASEHOLD = f"'{PYTHON}' -m leasehold"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def is_held(program: CommandLine, name: str) -> bool:
    with program.client() as client:
        state = client.inspect(name)
    return state is not None and bool(state.holdings)


# --- several names


def test_a_run_holds_all_its_names_and_tells_the_command_each_fence(program: CommandLine) -> None:
    process = program.hold("b", "a", script='printf %s "$LEASEHOLD_FENCES" > fences; touch started; exec sleep 60')
    fences = json.loads((program.folder / "fences").read_text())
    with program.client() as client:
        for name in ("a", "b"):
            state = client.inspect(name)
            assert state is not None
            assert state.holdings[0].fence == fences[name]
    process.terminate()
    process.wait()
    assert program.is_free("a")
    assert program.is_free("b")


def test_a_run_of_several_names_takes_none_if_one_is_busy_and_shows_its_holder(program: CommandLine) -> None:
    holder = program.hold("b")
    result = program.finish("run", "a", "b", "-n", "--", "touch", "ran")
    assert result.returncode == 75
    assert "'b' is busy" in result.stderr
    assert f"pid {holder.pid}" in result.stderr
    assert "'a' is busy" not in result.stderr
    assert program.is_free("a")
    assert not (program.folder / "ran").exists()


def test_a_break_of_one_of_several_names_stops_the_command(program: CommandLine) -> None:
    process = program.hold("a", "b", "--ttl", "1s")
    with program.client() as client:
        state = client.inspect("b")
        assert state is not None
        assert client.break_lock("b", fence=state.holdings[0].fence, reason="stuck", by="ana")
    _, console = process.communicate(timeout=30)
    assert process.returncode == 79
    assert "lost the lease of 'a', 'b' (broken): stuck (by ana)" in console


# --- check


def test_check_says_inside_a_run_whether_the_lock_lasts_long_enough(program: CommandLine) -> None:
    script = (
        f"{LEASEHOLD} check; echo $?; {LEASEHOLD} check --need 10s; echo $?; {LEASEHOLD} check --need 1h; echo $?; "
        f"{LEASEHOLD} check --json"
    )
    result = program.finish("run", "job", "--ttl", "60s", "--", "sh", "-c", script, env={"LEASEHOLD_URL": program.url})
    *codes, facts = result.stdout.splitlines()
    assert codes == ["0", "0", "79"]
    assert json.loads(facts)["held"] is True
    assert "'job': held for another" in result.stderr
    assert "1h00m are needed" in result.stderr


def test_check_sees_a_lock_that_was_broken_although_no_store_is_named(program: CommandLine) -> None:
    script = f"trap '{LEASEHOLD} check; echo $?; exit' TERM; touch started; while :; do sleep 0.05; done"
    marker = program.folder / "started"
    process = program.start(
        "run", "job", "--ttl", "1s", "--kill-after", "30s", "--url", program.url, "--", "sh", "-c", script,
        env={"LEASEHOLD_URL": ""},
    )  # fmt: skip
    wait_for(marker.exists, "the command starts")
    with program.client() as client:
        state = client.inspect("job")
        assert state is not None
        assert client.break_lock("job", fence=state.holdings[0].fence, reason="stuck", by="ana")
    output, console = process.communicate(timeout=30)
    assert output == "79\n"
    assert "no longer held by this run" in console


def test_a_process_that_outlives_its_run_is_told_that_the_lock_is_gone(program: CommandLine) -> None:
    script = f"(while [ ! -e go ]; do sleep 0.05; done; {LEASEHOLD} check; echo $? > code.new; mv code.new code) &"
    assert program.finish("run", "job", "--", "sh", "-c", f"{script} true", stderr=None, stdout=None).returncode == 0
    (program.folder / "go").touch()
    code = program.folder / "code"
    wait_for(code.exists, "the process checks")
    assert code.read_text() == "79\n"


# --- hold


def test_hold_prints_its_fence_and_gives_the_lock_back_at_an_interrupt(program: CommandLine) -> None:
    process = program.start("hold", "deploy", "--reason", "move", "--json")
    assert process.stdout is not None
    fences = json.loads(process.stdout.readline())["fences"]
    with program.client() as client:
        state = client.inspect("deploy")
    assert state is not None
    assert (state.holdings[0].fence, state.holdings[0].holder.reason) == (fences["deploy"], "move")
    process.send_signal(signal.SIGINT)
    _, console = process.communicate(timeout=30)
    assert (process.returncode, program.is_free("deploy")) == (0, True)
    assert "'deploy' is given back" in console


def test_hold_ends_by_itself_when_its_time_is_over(program: CommandLine) -> None:
    result = program.finish("hold", "deploy", "--for", "100ms")
    assert result.returncode == 0
    assert "--for is over" in result.stderr
    assert program.is_free("deploy")


def test_hold_ends_with_79_and_the_reason_when_it_is_broken(program: CommandLine) -> None:
    process = program.start("hold", "deploy", "--ttl", "1s", "--json")
    assert process.stdout is not None
    fence = json.loads(process.stdout.readline())["fences"]["deploy"]
    with program.client() as client:
        assert client.break_lock("deploy", fence=fence, reason="stuck", by="ana")
    _, console = process.communicate(timeout=30)
    assert process.returncode == 79
    assert "lost the lease of 'deploy' (broken): stuck (by ana)" in console


def test_hold_of_a_busy_lock_gives_75(program: CommandLine) -> None:
    program.hold("deploy")
    result = program.finish("hold", "deploy", "-n")
    assert (result.returncode, result.stdout) == (75, "")
    assert "'deploy' is busy" in result.stderr


# --- wait


def test_wait_returns_when_the_lock_is_free_and_takes_nothing(program: CommandLine) -> None:
    holder = program.hold("job")
    waiter = program.start("wait", "job", "--every", "50ms")
    assert waiter.stderr is not None
    assert "store:" in waiter.stderr.readline()
    assert "waiting for 'job' (" in waiter.stderr.readline()
    assert program.queue("job") == 0
    holder.terminate()
    assert waiter.wait(timeout=30) == 0
    assert program.finish("wait", "never-held").returncode == 0


def test_wait_gives_up_with_75_and_shows_the_holder(program: CommandLine) -> None:
    holder = program.hold("job")
    result = program.finish("wait", "job", "-w", "100ms")
    assert result.returncode == 75
    assert f"pid {holder.pid}" in result.stderr
    assert is_held(program, "job")


def test_wait_takes_a_pause_for_a_lock_that_is_not_free(program: CommandLine) -> None:
    with program.client() as client:
        client.lock("job").acquire().release()
        client.pause("job", reason="moving", by="ana")
    result = program.finish("wait", "job", "-w", "100ms")
    assert result.returncode == 75
    assert "paused   by ana" in result.stderr
