"""Operators among real processes: names paused and resumed, slots run again, processes killed and stopped meanwhile."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.forms import sized
from tests.processes.command_line import LIMIT, SOURCE, CommandLine, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.postgres import PostgresServer
    from verification.lab.redis import RedisServer

WORKER = Path(__file__).with_name("pause_worker.py")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    with line.client() as client:
        client.lock("so that the file exists").acquire().release()
    yield line
    line.close()


# --- pausing


def test_a_waiter_in_another_process_goes_on_waiting_and_resuming_wakes_it(program: CommandLine) -> None:
    paused = program.finish("pause", "job", "--reason", "moving the database")
    assert (paused.returncode, paused.stdout.split("\n")[0]) == (0, "paused 'job' until: leasehold resume job")
    waiter = program.start("run", "job", "-w", "5m", "--", "touch", "ran")
    wait_for(lambda: program.queue("job") == 1, "it waits")
    refused = program.finish("run", "job", "-n", "--", "touch", "ran")
    assert refused.returncode == 75
    assert "moving the database" in refused.stderr
    assert not (program.folder / "ran").exists()
    assert waiter.poll() is None
    assert program.finish("resume", "job").returncode == 0
    assert waiter.wait(LIMIT) == 0
    assert (program.folder / "ran").exists()
    with program.client() as client:
        assert client.resume("job") is False
        assert client.inspect("job") is None


def test_a_holder_goes_on_and_those_who_waited_before_the_pause_wait_on(program: CommandLine) -> None:
    holder = program.hold("job", "--ttl", "3s", script="touch started; while [ ! -e finish ]; do sleep 0.05; done")
    waiter = program.start("run", "job", "-w", "5m", "--", "touch", "ran")
    wait_for(lambda: program.queue("job") == 1, "it waits")
    paused = program.finish("pause", "job", "--reason", "r")
    assert "still held by sh on" in paused.stdout
    with program.client() as client:
        wait_for(lambda: client.inspect("job").holdings[0].held_for > 4, "the lease is renewed")  # type: ignore[union-attr]
        (program.folder / "finish").touch()
        assert holder.wait(LIMIT) == 0
        state = client.inspect("job")
        assert state is not None
        assert state.paused is not None
        assert (len(state.holdings), len(state.waiting)) == (0, 1)
        assert client.resume("job")
    assert waiter.wait(LIMIT) == 0


def test_a_pause_outlives_the_process_that_ordered_it_even_if_that_is_killed(program: CommandLine) -> None:
    script = (
        f"import leasehold, os; leasehold.connect({program.url!r}).pause('job', reason='r'); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", script], env=program.environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    skipped = program.finish("once", "job", "--slot", "x", "--", "echo", "ran")
    assert (skipped.returncode, skipped.stdout) == (0, "")
    assert "is paused by" in skipped.stderr
    assert program.finish("once", "job", "--slot", "x", "--on-conflict", "fail", "--", "true").returncode == 75
    with program.client() as client:
        assert client.resume("job")
        assert client.once("job", slot="x").run(lambda: 1).ran


def _contend_while_an_operator_pauses(url: str) -> None:
    """Four processes want a name all the time. Once nobody holds a paused name, no fence is given until `resume`."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), url, "x"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(4)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        with leasehold.connect(url) as client:
            highest = 0
            for _ in range(sized(6, 60)):
                wait_for(functools.partial(_has_risen, client, highest), "somebody has it")
                client.pause("x", reason="r")
                state = wait_for(lambda: _quiet(client), "the last holder is through")
                highest = client.raise_fence("x", 1, reason="to look")
                with pytest.raises(leasehold.Paused):
                    client.lock("x").acquire(timeout=0.3)
                assert state.paused is not None
                assert client.raise_fence("x", 1, reason="to look") == highest, "granted while it was paused"
                assert client.resume("x")
        counts = [int(worker.communicate("", timeout=LIMIT)[0]) for worker in workers]
        assert sum(counts) > 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _has_risen(client: leasehold.Client, fence: int) -> bool:
    return client.raise_fence("x", 1, reason="to look") > fence


def _quiet(client: leasehold.Client) -> leasehold.LockState | None:
    state = client.inspect("x")
    return state if state is not None and not state.holdings else None


def test_no_process_gets_a_paused_name_sqlite(program: CommandLine) -> None:
    _contend_while_an_operator_pauses(program.url)


def test_no_process_gets_a_paused_name_redis(redis_server: RedisServer) -> None:
    _contend_while_an_operator_pauses(redis_server.url)


def test_no_process_gets_a_paused_name_postgresql(postgres: PostgresServer) -> None:
    _contend_while_an_operator_pauses(postgres.url())


# --- running a slot again

RUN = 'echo "$$" >> runs; while [ ! -e finish ]; do sleep 0.05; done'
AGAIN = ["once", "job", "--slot", "x", "--again", "--reason", "the report was empty", "--on-conflict", "standby"]


def _begin_again(program: CommandLine, number: int, *options: str) -> list[subprocess.Popen[str]]:
    """The slot was run; several operators order it again, one runs, the others wait."""
    assert program.finish("once", "job", "--slot", "x", "--", "sh", "-c", "echo first >> runs").returncode == 0
    started = [program.start(*AGAIN, *options, "--", "sh", "-c", RUN) for _ in range(number)]
    wait_for(lambda: program.queue("job") == number - 1 and _runs(program) == 2, "one runs, the others wait")
    return started


def _runs(program: CommandLine) -> int:
    return len((program.folder / "runs").read_text().split())


def _runner(program: CommandLine) -> int:
    """The process of leasehold that runs the command now."""
    with program.client() as client:
        state = client.inspect("job")
    assert state is not None
    return state.holdings[0].holder.pid


def test_of_several_operators_who_run_a_slot_again_one_does(program: CommandLine) -> None:
    started = _begin_again(program, 4)
    (program.folder / "finish").touch()
    assert [process.wait(LIMIT) for process in started] == [0, 0, 0, 0]
    assert _runs(program) == 2
    with program.client() as client:
        last = client.last_run("job")
        assert last is not None
        assert last.again is not None
        assert last.again.startswith("the report was empty (by ")
        assert not client.once("job", slot="x").run(lambda: 1).ran


def test_when_the_operator_s_run_is_killed_another_operator_takes_over(program: CommandLine) -> None:
    started = _begin_again(program, 3, "--ttl", "3s")
    victim = next(process for process in started if process.pid == _runner(program))
    victim.send_signal(signal.SIGKILL)
    wait_for(lambda: _runs(program) == 3, "another one runs it")
    (program.folder / "finish").touch()
    assert sorted(process.wait(LIMIT) for process in started) == [-signal.SIGKILL, 0, 0]
    assert _runs(program) == 3
    wait_for(lambda: not program.survivors(), "everything that was started has ended")


def test_an_operator_s_run_that_is_paused_for_too_long_cannot_record(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(url, ttl=2) as client:
        assert client.once("job", slot="x").run(lambda: 1).ran
        script = (
            f"import leasehold, sys\nclient = leasehold.connect({url!r}, ttl=2)\n"
            "try:\n with client.once('job', slot='x').attempt(again='late') as run:\n"
            "  print('running', flush=True); sys.stdin.readline()\n"
            "except leasehold.LeaseLost: print('lost')"
        )
        late = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        try:
            assert late.stdout is not None
            assert late.stdout.readline() == "running\n"
            late.send_signal(signal.SIGSTOP)
            with client.once("job", slot="x", on_conflict="standby").attempt(again="in time", by="ana") as run:
                assert run
            late.send_signal(signal.SIGCONT)
            assert late.communicate("\n", timeout=LIMIT)[0] == "lost\n"
            last = client.last_run("job")
            assert last is not None
            assert last.again == "in time (by ana)"
        finally:
            late.kill()
            late.wait()


# --- the command line


def test_info_shows_the_last_run_of_a_job(program: CommandLine) -> None:
    program.finish("once", "job", "--slot", "a", "--", "true")
    program.finish("once", "job", "--slot", "b", "--", "false")  # ends with 1
    shown = program.finish("info", "job")
    assert shown.returncode == 1
    assert "'job' is free\n  last run for slot b: failed; its slot is open\n    runner   false on " in shown.stdout
    first = json.loads(program.finish("info", "job", "--slot", "a", "--json").stdout)["last_run"]
    assert (first["slot"], first["outcome"], first["closed"], first["runner"]["label"]) == ("a", "done", True, "true")
    assert first["began"] <= first["finished"]


def test_forget_opens_one_slot_and_says_who_did_it(program: CommandLine) -> None:
    with program.client() as client:
        job = client.once("job", slot="a")
        assert job.run(lambda: 1).ran
    assert program.finish("forget", "job", "--slot", "b", "--reason", "r").returncode == 1
    forgotten = program.finish("forget", "job", "--slot", "a", "--reason", "the file was cut off")
    assert forgotten.returncode == 0
    assert "the slot can run again" in forgotten.stdout
    assert "the file was cut off (by " in program.finish("info", "job").stdout
    with program.client() as client:
        job = client.once("job", slot="a")
        assert [job.run(lambda: 1).ran for _ in range(2)] == [True, False]
        with client.lock("job").hold():
            assert program.finish("forget", "job", "--slot", "a", "--reason", "r").returncode == 75


def test_ls_and_watch_show_what_is_paused(program: CommandLine) -> None:
    with program.client() as client:
        client.pause("job", reason="moving", duration="1h")
    row = program.finish("ls").stdout.splitlines()[1].split()
    assert row[:2] == ["job", "paused"]
    assert row[-1] == "moving"
    state = json.loads(program.finish("ls", "--json").stdout)
    assert state["holdings"] == []
    assert state["paused"]["reason"] == "moving"
    assert 3000 < state["paused"]["expires_in"] <= 3600
    watch = program.start("watch", "--every", "0.1s")
    assert watch.stdout is not None
    assert " paused  job" in watch.stdout.readline()
    with program.client() as client:
        assert client.resume("job")
    assert " resumed job" in watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    assert watch.wait(LIMIT) == 130


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["pause", "job"], 64),
        (["pause", "job", "--reason", ""], 78),
        (["pause", "job", "--reason", "r", "--for", "soon"], 64),
        (["resume"], 64),
        (["forget", "job", "--slot", "a"], 64),
        (["once", "job", "--slot", "a", "--again", "--", "true"], 64),
    ],
)
def test_bad_usage_changes_nothing(program: CommandLine, words: list[str], code: int) -> None:
    result = program.finish(*words)
    assert (result.returncode, result.stdout) == (code, "")
    assert program.is_free("job")


def test_a_store_that_does_not_exist_is_not_made_by_pausing_in_it(program: CommandLine) -> None:
    absent = program.folder / "misspelt.db"
    result = program.finish("pause", "job", "--reason", "r", "--url", f"sqlite:///{absent}")
    assert (result.returncode, result.stdout) == (78, "")
    assert not absent.exists()
