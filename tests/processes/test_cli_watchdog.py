"""The watchdog: whatever happens to the wrapper, its command does not outlive the lock."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.forms import sized
from tests.processes.command_line import LIMIT, PYTHON, CommandLine, children_of, is_alive, wait_for, watchdog_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def test_the_death_of_the_wrapper_ends_the_whole_group(program: CommandLine) -> None:
    process = program.hold("job", "--ttl", "2s", script="sleep 61 & touch started; wait")
    process.kill()
    wait_for(lambda: not program.survivors(), "command, grandchild and watchdog are gone")
    wait_for(lambda: program.is_free("job"), "the ttl frees the lock", limit=3.0)


def test_a_command_that_ignores_term_is_killed_before_its_lease_ends(program: CommandLine) -> None:
    script = "trap '' TERM; touch started; while :; do sleep 0.02; done"
    process = program.hold("job", "--ttl", "5s", "--kill-after", "1h", script=script)
    process.kill()
    while not program.is_free("job"):
        time.sleep(0.01)
    assert program.survivors() == []


def test_a_wrapper_killed_while_waiting_leaves_no_process_and_runs_nothing(program: CommandLine) -> None:
    holder = program.hold("job")
    waiter = program.start("run", "job", "--", "touch", "ran")
    wait_for(lambda: program.queue("job") == 1, "it stands in the queue")
    waiter.kill()
    wait_for(lambda: len(program.survivors()) == 3, "only the holder, its command and its watchdog are left")
    holder.terminate()
    holder.wait()
    wait_for(lambda: program.is_free("job"), "the dead waiter is passed over")
    assert not (program.folder / "ran").exists()


def test_a_watchdog_that_dies_is_replaced_and_the_new_one_does_its_work(program: CommandLine) -> None:
    process = program.hold("job", "--ttl", "2s", script="sleep 61 & touch started; wait")
    first = wait_for(lambda: watchdog_of(process.pid), "the watchdog is detached")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: watchdog_of(process.pid) not in (None, first), "another watchdog takes its place")
    process.kill()
    wait_for(lambda: not program.survivors(), "command, grandchild and watchdog are gone")


def test_a_command_that_takes_long_to_start_is_left_alone_while_its_lease_is_renewed(program: CommandLine) -> None:
    """On a busy host an exec may take longer than the lease has left; the watchdog has to hear of renewals."""
    with program.client() as client:
        lease = client.lock("job").acquire()
        process = program.start("run", "job", "--ttl", "2s", "--", "touch", "ran")
        wait_for(lambda: program.queue("job") == 1, "it stands in the queue")
        watchdog = wait_for(lambda: watchdog_of(process.pid), "the watchdog is detached")
        (command,) = (pid for pid in children_of(process.pid) if pid != watchdog)
        os.kill(command, signal.SIGSTOP)
        lease.release()

        def is_held_beyond_its_first_end() -> bool:
            state = client.inspect("job")
            return process.poll() is not None or any(own.held_for > 4 for own in (state.holdings if state else ()))

        wait_for(is_held_beyond_its_first_end, "the lease is renewed")
        assert process.poll() is None, process.communicate()
        assert not (program.folder / "ran").exists()
        os.kill(command, signal.SIGCONT)
        assert process.wait(LIMIT) == 0
    assert (program.folder / "ran").exists()


def test_a_watchdog_that_slept_itself_listens_before_it_acts(program: CommandLine) -> None:
    script = (
        "import os, signal\n"
        "from leasehold.cli.watchdog import Watchdog, now\n"
        "command = os.fork() or (os.setpgid(0, 0), signal.pause())\n"
        "os.setpgid(command, command)\n"
        "reading, writing = os.pipe()\n"
        "watchdog = Watchdog(reading, command, 0.0)\n"
        "watchdog._apply(b'lease %r' % (now() - 60))\n"
        "os.write(writing, b'lease %r\\ndone\\n' % (now() + 60))\n"
        "watchdog.watch()\n"
        "os.kill(command, signal.SIGUSR1)\n"
        "print('ended by', os.waitpid(command, 0)[1])\n"
    )
    result = subprocess.run(
        [PYTHON, "-c", script], env=program.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.stdout, result.stderr) == (f"ended by {signal.SIGUSR1:d}\n", "")


@pytest.mark.parametrize("word", ["lease_until", "killing_at"])
def test_a_watchdog_that_replaces_another_knows_what_that_one_was_told(program: CommandLine, word: str) -> None:
    script = (
        "import os, signal, sys\n"
        "from leasehold.cli.watchdog_handle import WatchdogHandle\n"
        "from leasehold.cli.watchdog import now\n"
        "command = os.fork() or (os.setpgid(0, 0), signal.pause())\n"
        "guard = WatchdogHandle(command, 0.0)\n"
        "getattr(guard, sys.argv[1])(now() + 0.5)\n"
        "guard.replace()\n"
        "print('ended by', os.waitpid(command, 0)[1])\n"  # the wrapper lives, says nothing more and does nothing
        "guard.dismiss()\n"
        "guard.reap()\n"
    )
    result = subprocess.run(
        [PYTHON, "-c", script, word], env=program.environment, capture_output=True, text=True, timeout=60, check=False
    )
    number = signal.SIGTERM if word == "lease_until" else signal.SIGKILL
    assert (result.stdout, result.stderr) == (f"ended by {int(number)}\n", "")


def test_a_watchdog_that_does_not_listen_is_replaced_before_it_blocks_the_wrapper(program: CommandLine) -> None:
    script = (
        "import os, signal\n"
        "from leasehold.cli.watchdog_handle import WatchdogHandle\n"
        "command = os.fork() or (os.setpgid(0, 0), signal.pause())\n"
        "guard = WatchdogHandle(command, 5.0)\n"
        "first = guard.pid\n"
        "os.kill(first, signal.SIGSTOP)\n"
        "for instant in range(10**9, 10**9 + 10000): guard.lease_until(float(instant))\n"
        "print(guard.pid != first)\n"
        "os.kill(command, signal.SIGKILL)\n"
        "guard.dismiss()\n"
        "guard.reap()\n"
    )
    result = subprocess.run(
        [PYTHON, "-c", script], env=program.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_a_wrapper_that_is_stopped_beyond_its_lease_loses_its_command(program: CommandLine) -> None:
    process = program.hold("job", "--ttl", "1s")
    command = next(pid for pid in children_of(process.pid) if pid != watchdog_of(process.pid))
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: not is_alive(command), "the watchdog ends the command")
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(30) == 79


def test_a_stopped_command_of_a_stopped_wrapper_is_woken_to_act_on_its_end(program: CommandLine) -> None:
    script = "trap 'touch asked; exit' TERM; echo $$ > command; touch started; while :; do sleep 0.02; done"
    process = program.hold("job", "--ttl", "1s", "--kill-after", "20s", script=script)
    os.kill(int((program.folder / "command").read_text()), signal.SIGSTOP)
    os.kill(process.pid, signal.SIGSTOP)
    wait_for((program.folder / "asked").exists, "the command acts on TERM before KILL is due", limit=15.0)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(30) == 79


def test_a_wrapper_paused_between_the_lock_and_the_command_does_not_start_it(program: CommandLine) -> None:
    (program.folder / "sitecustomize.py").write_text(
        "import os, signal\n"
        "import leasehold.cli.terminal as module\n"
        "module.Terminal.offer = lambda self: os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    environment = {"PYTHONPATH": f"{program.folder}:{program.environment['PYTHONPATH']}"}
    process = program.start("run", "job", "--ttl", "1s", "--", "touch", "ran", env=environment)
    wait_for(lambda: not program.is_free("job"), "it has the lock")
    wait_for(lambda: program.is_free("job"), "its lease has ended")
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(30) == 79
    assert not (program.folder / "ran").exists()


def test_signals_to_all_processes_do_not_end_the_watchdog_first(program: CommandLine) -> None:
    script = "trap '' TERM INT HUP; touch started; while :; do sleep 0.02; done"
    process = program.hold("job", "--kill-after", "0.5s", script=script)
    watchdog = wait_for(lambda: watchdog_of(process.pid), "the watchdog is detached")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(watchdog, number)
    process.kill()
    os.kill(watchdog, signal.SIGTERM)
    wait_for(lambda: not program.survivors(), "the watchdog has ended the command", limit=15.0)


def test_the_watchdog_ends_with_the_command(program: CommandLine) -> None:
    assert program.finish("run", "job", "--", "true").returncode == 0
    assert program.survivors() == []


# --- murders

NAMES = 8
SLOTS = 2
KILLS = sized(30, 200)
LIMIT_OF_KILLS = 280  # seconds; each kill needs some Pythons to start, which is slow on a busy machine
TTL = 2.0

# The kernel frees the flock with the process, so whoever does not get it is not alone.
WORKER = """
import fcntl, os, sys, time
file = open("alone-" + os.environ["LEASEHOLD_NAME"], "a")
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    os.open("violation-" + os.environ["LEASEHOLD_NAME"], os.O_CREAT)
time.sleep(float(sys.argv[1]))
"""


class _Slot:
    """One place that always has a run, whatever happens to the last one."""

    def __init__(self, program: CommandLine, name: str, chance: random.Random) -> None:
        self._program = program
        self._name = name
        self._chance = chance
        self.process: subprocess.Popen[str] | None = None
        self._spared: int | None = None  # the watchdog we killed: until it is replaced the run is left in peace

    def keep_running(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            self.process.communicate()
        self._spared = None
        nap = str(round(self._chance.uniform(0.05, 1.0), 3))
        words = ["--", PYTHON, "-I", "-S", "-c", WORKER, nap]
        self.process = self._program.start("run", self._name, "--ttl", f"{TTL}s", "--kill-after", "0.5s", *words)

    def murder(self) -> bool:
        """Kill one of wrapper, command and watchdog; False if the run is not to be touched now."""
        assert self.process is not None
        wrapper = self.process.pid
        watchdog = watchdog_of(wrapper)
        if watchdog is None or watchdog == self._spared:
            return False
        commands = [pid for pid in children_of(wrapper) if pid != watchdog]
        victim = self._chance.choice([wrapper, watchdog, *commands[:1]])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        if victim == watchdog:
            self._spared = watchdog
        if victim == wrapper:
            self.process.wait()
        return True


@pytest.mark.timeout(LIMIT_OF_KILLS + 60)
def test_random_kills_never_let_two_commands_of_one_name_run_together(program: CommandLine) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    chance = random.Random(seed)
    slots = [_Slot(program, f"name-{number % NAMES}", chance) for number in range(NAMES * SLOTS)]
    kills = 0
    end = time.monotonic() + LIMIT_OF_KILLS
    while kills < KILLS:
        assert time.monotonic() < end, f"only {kills} kills, seed {seed}"
        for slot in slots:
            slot.keep_running()
        kills += chance.choice(slots).murder()
        time.sleep(0.02)
    for slot in slots:
        assert slot.process is not None
        slot.process.communicate(timeout=60)
    wait_for(lambda: all(program.is_free(f"name-{number}") for number in range(NAMES)), "all are free", TTL + 1)
    wait_for(lambda: not program.survivors(), "nothing is left running", limit=5)
    assert [path.name for path in program.folder.glob("violation-*")] == [], f"seed {seed}"
