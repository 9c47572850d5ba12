"""`leasehold elect` among real processes: resigned, lost, killed, slow to stop, observed."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes.command_line import LIMIT, CommandLine, is_alive, wait_for
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from verification.lab.redis import RedisServer

# The command writes a line for each of its runs, and one for each TERM that it gets.
SCRIPT = "echo began $LEASEHOLD_FENCE >> runs; trap 'echo term >> runs; exit 7' TERM; while :; do sleep 0.05; done"
SHORT = ("--ttl", "3s", "--renew-deadline", "2s", "--retry", "0.4s")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def elect(*options: str, script: str = SCRIPT) -> list[str]:
    return ["elect", "job", *options, "--", "sh", "-c", script]


def runs(program: CommandLine) -> list[str]:
    path = program.folder / "runs"
    return path.read_text().splitlines() if path.exists() else []


def fences(program: CommandLine) -> list[int]:
    return [int(line.split()[1]) for line in runs(program) if line.startswith("began")]


def wait_for_runs(program: CommandLine, number: int) -> None:
    wait_for(lambda: len(fences(program)) == number, f"{number} runs have begun")


def test_a_command_that_ends_by_itself_resigns_and_its_code_is_returned(program: CommandLine) -> None:
    done = program.finish(*elect(script='echo "$LEASEHOLD_NAME"; exit 3'))
    assert (done.returncode, done.stdout) == (3, "job\n")
    assert "leading 'job' with fence" in done.stderr
    assert program.is_free("job")


def test_term_to_the_leader_ends_the_command_and_lets_the_next_in_at_once(program: CommandLine) -> None:
    options = ("--ttl", "120s", "--renew-deadline", "100s")  # so that nothing but the resignation can end the term
    first = program.start(*elect(*options))
    wait_for_runs(program, 1)
    second = program.start(*elect(*options))
    wait_for(lambda: program.queue("job") == 1, "the second one campaigns")
    first.send_signal(signal.SIGTERM)
    assert first.wait(LIMIT) == 7
    wait_for_runs(program, 2)
    assert fences(program) == sorted(fences(program))
    second.send_signal(signal.SIGTERM)
    assert second.wait(LIMIT) == 7
    assert program.is_free("job")


def test_a_signal_ends_a_campaign_and_wait_gives_up(program: CommandLine) -> None:
    program.start(*elect())
    wait_for_runs(program, 1)
    waiting = program.start(*elect())
    wait_for(lambda: program.queue("job") == 1, "it campaigns")
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(LIMIT) == 143
    gave_up = program.finish(*elect("-w", "0.1s"))
    assert gave_up.returncode == 75
    assert len(fences(program)) == 1


@pytest.mark.parametrize("exits", [True, False])
def test_a_leader_that_is_cut_off_ends_its_command_at_the_renew_deadline(
    program: CommandLine, redis_server: RedisServer, exits: bool
) -> None:
    """Before the lease can end: the key is still in the store when the command has ended."""
    with FaultProxy(redis_server.address) as proxy:
        host, port = proxy.address
        url = ["--url", f"redis://{host}:{port}", "--namespace", program.mark]
        words = elect(*url, "--ttl", "20s", "--renew-deadline", "2s", "--retry", "0.4s", *["--exit-on-loss"] * exits)
        leader = program.start(*words)
        wait_for_runs(program, 1)
        proxy.black_hole()
        wait_for(lambda: "term" in runs(program), "the command is stopped")
        kept = [key for key in redis_server.ask("KEYS", "*") or [] if program.mark.encode() in key]
        assert kept, "the store still keeps others out"
        proxy.heal()
        proxy.cut()
        if exits:
            assert leader.wait(LIMIT) == 79
        else:
            wait_for_runs(program, 2)
            leader.send_signal(signal.SIGTERM)
            assert leader.wait(LIMIT) == 7
            assert fences(program)[0] < fences(program)[1]


def test_when_the_leader_is_killed_its_command_is_ended_before_another_starts(program: CommandLine) -> None:
    stubborn = "echo began $LEASEHOLD_FENCE >> runs; echo $$ >> pids; trap '' TERM; while :; do sleep 0.05; done"
    timings = ("--ttl", "6s", "--renew-deadline", "2s", "--retry", "0.4s", "--kill-after", "0.5s")
    first = program.start(*elect(*timings, script=stubborn))
    wait_for_runs(program, 1)
    # One that has ended may stay as a zombie for a while, until the first process of the host looks after it.
    alive = "grep -q '^State:[[:space:]]*[RSDT]' /proc/$pid/status 2> /dev/null"
    check = f"for pid in $(cat pids); do {alive} && echo met >> runs; done; echo began 0 >> runs"
    second = program.start(*elect(*timings, script=check))
    wait_for(lambda: program.queue("job") == 1, "the second one campaigns")
    first.send_signal(signal.SIGKILL)
    assert second.wait(LIMIT) == 0
    assert "met" not in runs(program)
    pids = [int(word) for word in (program.folder / "pids").read_text().split()]
    assert not any(map(is_alive, pids))


def test_term_while_a_lost_command_stops_ends_the_program(program: CommandLine) -> None:
    slow = SCRIPT.replace("; exit 7", "").replace("while :", "while [ ! -e stop ]")
    leader = program.start(*elect("--ttl", "60s", "--renew-deadline", "2s", "--retry", "0.4s", script=slow))
    wait_for_runs(program, 1)
    with program.client() as client:
        assert client.break_lock("job", fence=fences(program)[0], reason="a test", now=True)
    wait_for(lambda: "term" in runs(program), "the command is asked to stop")
    leader.send_signal(signal.SIGTERM)
    wait_for(lambda: runs(program).count("term") == 2, "the signal is passed on")
    (program.folder / "stop").touch()
    assert leader.wait(LIMIT) == 79
    assert len(fences(program)) == 1


def test_a_leader_that_was_broken_campaigns_again(program: CommandLine) -> None:
    leader = program.start(*elect(*SHORT))
    wait_for_runs(program, 1)
    with program.client() as client:
        assert client.break_lock("job", fence=fences(program)[0], reason="a test", now=True)
    wait_for_runs(program, 2)
    leader.send_signal(signal.SIGTERM)
    assert leader.wait(LIMIT) == 7
    _, told = leader.communicate()
    assert "campaigning for 'job' again" in told


def test_observers_see_the_leaders_come_and_go(program: CommandLine) -> None:
    program.finish(*elect(script="true"))  # makes the store
    observer = program.start("elect", "job", "--observe", "--json", "--retry", "0.05s", "-q")
    assert observer.stdout is not None

    def seen() -> Any:
        assert observer.stdout is not None
        return json.loads(observer.stdout.readline())

    assert seen()["leader"] is None
    leader = program.start(*elect())
    fact = seen()
    assert (fact["schema"], fact["name"]) == (1, "job")
    wait_for_runs(program, 1)
    assert fact["leader"]["fence"] == fences(program)[0]
    assert fact["leader"]["who"].startswith("sh on ")
    leader.send_signal(signal.SIGTERM)
    assert seen()["leader"] is None
    observer.send_signal(signal.SIGINT)
    assert observer.wait(LIMIT) == 130


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--"], 64, "no command given"),
        (["--observe", "--", "true"], 64, "--observe runs nothing"),
        (["--kill-after", "5s", "--", "true"], 64, "beside that of the next leader"),
        (["--ttl", "5s", "--kill-after", "0s", "--renew-deadline", "5s", "--", "true"], 64, "--kill-after"),
        (["--retry", "9s", "--", "true"], 78, "retry shorter"),
        (["--ttl", "10s", "--", "true"], 78, "ttl longer"),
        (["--", "no-such-program"], 127, "not found"),
    ],
)
def test_bad_usage_runs_nothing(program: CommandLine, words: list[str], code: int, text: str) -> None:
    done = program.finish("elect", "job", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
