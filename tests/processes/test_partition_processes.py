"""`client.partitions` among real processes that join, leave, are stopped, killed and cut off.

Whatever happens to its members, no partition has two owners, its fences rise, a write that comes late is refused, and
in the end every partition has an owner and the shares are even.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.forms import sized
from tests.processes.command_line import SOURCE, wait_for
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.redis import RedisServer

WORKER = Path(__file__).with_name("partition_worker.py")
LIMIT = 90.0
TTL = 5.0  # long enough for a busy machine, where a process may wait for seconds


@dataclass(frozen=True)
class Entry:
    """A line of the log; see the worker."""

    what: str
    index: int
    fence: int
    pid: int
    time: float


class Group:
    """Member processes over one store, and what they wrote."""

    def __init__(self, url: str, folder: Path, count: int) -> None:
        self.url = url
        self.count = count
        self._folder = folder
        (folder / "log").write_text("")
        (folder / "fences").write_bytes(bytes(8 * count))
        self._client = leasehold.connect(url)
        self._processes: list[subprocess.Popen[bytes]] = []

    def join(self, number: int, url: str | None = None) -> list[subprocess.Popen[bytes]]:
        words = [sys.executable, str(WORKER), url or self.url, str(self._folder), str(self.count), str(TTL)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        started = [subprocess.Popen(words, env=environment) for _ in range(number)]
        self._processes += started
        return started

    def owners(self) -> Counter[int]:
        """How many partitions each process has, as the store sees it."""
        states = [state for state in self._client.locks("orders/") if state.name != "orders/members"]
        return Counter(holding.holder.pid for state in states for holding in state.holdings)

    def settle(self, members: list[subprocess.Popen[bytes]]) -> float:
        """Wait until these members own all partitions, evenly; how long that took."""
        began = time.monotonic()
        share, rest = divmod(self.count, len(members))
        due = sorted([share + 1] * rest + [share] * (len(members) - rest))
        pids = {member.pid for member in members}

        def is_even() -> bool:
            try:
                owners = self.owners()
            except leasehold.BackendError:  # the machine is busy
                return False
            return set(owners) <= pids and sorted(owners[pid] for pid in pids) == due

        wait_for(is_even, f"{len(members)} members share {self.count} partitions", LIMIT)
        return time.monotonic() - began

    def log(self) -> list[Entry]:
        lines = [line.split() for line in (self._folder / "log").read_text().splitlines()]
        return [Entry(what, int(index), int(fence), int(pid), float(at)) for what, index, fence, pid, at in lines]

    def highest(self, index: int) -> int:
        """The highest fence that wrote to a partition."""
        return max(entry.fence for entry in self.log() if entry.index == index and entry.what == "accepted")

    def check(self) -> None:
        """No partition ever had two owners, by the clock that all processes share and by the order of fences."""
        log = self.log()
        owners: dict[tuple[int, int], set[int]] = defaultdict(set)
        begins: dict[tuple[int, int], float] = {}
        last_held: dict[tuple[int, int], float] = {}
        highest: Counter[int] = Counter()
        for entry in log:
            grant = entry.index, entry.fence
            owners[grant].add(entry.pid)
            if entry.what == "begin":
                begins[grant] = entry.time
            elif entry.what == "held":
                last_held[grant] = max(entry.time, last_held.get(grant, 0.0))
            elif entry.what == "accepted":
                assert entry.fence >= highest[entry.index]
                highest[entry.index] = entry.fence
        assert all(len(pids) == 1 for pids in owners.values()), "a fence belongs to one process"
        for (index, fence), held in last_held.items():
            later = [at for (other, higher), at in begins.items() if other == index and higher > fence]
            assert all(at >= held for at in later), f"partition {index} was held under fence {fence} and a later one"
        assert {entry.index for entry in log if entry.what == "accepted"} == set(range(self.count))

    def stop(self, member: subprocess.Popen[bytes]) -> None:
        """Stop it at any point but inside the resource, where it would keep all others from writing."""
        with (self._folder / "fences").open("rb") as resource:
            fcntl.flock(resource, fcntl.LOCK_EX)
            member.send_signal(signal.SIGSTOP)
            wait_until_stopped(member)

    def close(self) -> None:
        self._client.close()
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    made: list[Group] = []
    yield made
    for group in made:
        group.close()


def nap(member: subprocess.Popen[bytes]) -> None:
    """Let it stop itself between a check and the write that belongs to it."""
    member.send_signal(signal.SIGUSR1)
    wait_until_stopped(member)


def wait_until_stopped(member: subprocess.Popen[bytes]) -> None:
    pid, status = os.waitpid(member.pid, os.WUNTRACED)
    assert pid == member.pid
    assert os.WIFSTOPPED(status)


def kill(member: subprocess.Popen[bytes]) -> None:
    member.kill()
    member.wait()


def live_through_everything(group: Group, proxy: FaultProxy | None = None) -> None:
    """Eight members, of which some are killed, stopped, cut off, leave, and new ones join."""
    members = group.join(7)
    (remote,) = group.join(1, f"redis://127.0.0.1:{proxy.address[1]}" if proxy else None)
    group.settle([*members, remote])
    first, second, asleep, stopped, *others = members
    kill(first)
    nap(asleep)
    group.stop(stopped)
    if proxy is not None:
        proxy.black_hole()
        group.settle([second, *others])
        proxy.heal()
    group.settle([second, *others, remote])
    (*_, stale) = (entry for entry in group.log() if entry.pid == asleep.pid)
    wait_for(lambda: group.highest(stale.index) > stale.fence, "its successor has written", LIMIT)
    asleep.send_signal(signal.SIGCONT)
    stopped.send_signal(signal.SIGCONT)
    second.send_signal(signal.SIGTERM)
    newcomers = group.join(2)
    group.settle([asleep, stopped, *others, remote, *newcomers])
    assert second.wait(LIMIT) == 0
    late = [(entry.index, entry.fence) for entry in group.log() if entry.what == "refused"]
    assert (stale.index, stale.fence) in late, "the write that was late is refused"
    group.check()


def come_and_go(group: Group, chance: random.Random) -> None:
    """The long form: members that join, leave, are killed and stopped at random."""
    awake = group.join(8)
    asleep: list[subprocess.Popen[bytes]] = []
    for _ in range(20):
        what = chance.choice(["kill", "stop", "stop", "go on", "leave", "join", "join", "settle"])
        if what == "settle":
            group.settle(awake)
        elif what == "join" and len(awake) + len(asleep) < 10:
            awake += group.join(1)
        elif what == "go on" and asleep:
            awake.append(member := asleep.pop())
            member.send_signal(signal.SIGCONT)
        elif what in ("kill", "stop", "leave") and len(awake) > 2:
            member = awake.pop(chance.randrange(len(awake)))
            if what == "stop":
                group.stop(member)
                asleep.append(member)
            else:
                member.send_signal({"kill": signal.SIGKILL, "leave": signal.SIGTERM}[what])
    group.settle(awake)
    group.check()


def test_members_on_redis_that_are_killed_stopped_and_cut_off(
    tmp_path: Path, groups: list[Group], redis_proxy: FaultProxy, redis_server: RedisServer
) -> None:
    groups.append(group := Group(redis_server.url, tmp_path, 64))
    live_through_everything(group, redis_proxy)
    for seed in range(sized(0, 5)):
        group.close()
        redis_server.flush()
        groups.append(group := Group(redis_server.url, tmp_path, 64))
        come_and_go(group, random.Random(seed))


def test_members_on_sqlite_that_are_killed_and_stopped(tmp_path: Path, groups: list[Group]) -> None:
    groups.append(group := Group(f"sqlite:///{tmp_path}/locks.db", tmp_path, sized(20, 64)))
    live_through_everything(group)
