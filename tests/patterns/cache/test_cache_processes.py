"""`client.cache` among real processes: 200 readers of one value, builders that are killed, paused and cut off.

No test waits for a value to expire: it is made to have expired, for all readers at the same moment. And a build ends
when it is told to, so that there is time to see what everybody else does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._patterns.cache_entry import pack
from leasehold.values import Record
from tests.forms import sized
from tests.waiting import eventually
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._blocking import Client
    from verification.lab.redis import RedisServer

WORKER = Path(__file__).with_name("cache_worker.py")
SOURCE = Path(leasehold.__file__).parents[1]
KEY = "leasehold:cache:6:prices:x"
pytestmark = pytest.mark.timeout(300)
OPTIONS = {"ttl": 36_000, "stale": 36_000, "jitter": 0}


class Process:
    """One process with some readers."""

    def __init__(self, url: str, readers: int, builds: Path, options: dict[str, Any]) -> None:
        words = [url, str(readers), json.dumps(options), str(builds)]
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        self.pid = self._process.pid

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def report(self) -> dict[str, Any]:
        self.say("report")
        facts: dict[str, Any] = json.loads(self.line())
        return facts

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class Readers:
    """All processes, and the client with which the test looks at the store and ends cycles."""

    def __init__(self, url: str, client: Client, folder: Path) -> None:
        self.url = url
        self.client = client
        self.processes: list[Process] = []
        self._file = folder / "builds"
        self._file.touch()
        self._backend: Any = client._twin._open().backend

    def start(self, processes: int, readers: int, url: str | None = None, **options: Any) -> None:
        started = [Process(url or self.url, readers, self._file, {**OPTIONS, **options}) for _ in range(processes)]
        for process in started:
            assert process.line() == "ready\n"
        self.processes += started

    def builds(self) -> list[int]:
        """The process of each build that was begun so far."""
        return [int(line) for line in self._file.read_text().splitlines()]

    def builder(self, number: int) -> Process:
        """Wait for the n-th build to begin; the process that it is in."""
        eventually(lambda: len(self.builds()) >= number, f"there is no build {number}")
        return next(process for process in self.processes if process.pid == self.builds()[number - 1])

    def say(self, word: str) -> None:
        for process in self.processes:
            process.say(word)

    def read(self) -> list[int]:
        return [reads for process in self.processes for reads in process.report()["reads"]]

    def all_but(self, number: int) -> None:
        """Wait until all readers but so many have read twice more: one of the reads began after this call."""
        before = self.read()

        def gone_on() -> bool:
            return sum(now >= then + 2 for then, now in zip(before, self.read(), strict=True)) >= len(before) - number

        eventually(gone_on, f"more than {number} of {len(before)} readers wait")

    def have(self, value: int) -> None:
        """Wait until every reader has this value."""

        def they_have() -> bool:
            return all(seen == value for process in self.processes for seen in process.report()["values"])

        eventually(they_have, f"not all readers have the value of build {value}")

    def stored(self) -> int:
        return self.client.cache("prices", **OPTIONS).get("x", lambda: -1)  # type: ignore[arg-type]

    def expire(self) -> None:
        """Make the value have expired a second ago, for everybody at once."""
        reading = self._ask(self._backend.read(KEY))
        _, _, payload = reading.record.value.partition(b"\n")
        value = pack(payload, expires=reading.time - 1, took=0.1, fence=reading.fence)
        assert self._ask(self._backend.write(Record(KEY, value, reading.fence, 36_000.0)))

    def close(self) -> None:
        for process in self.processes:
            process.close()

    @staticmethod
    def _ask(request: Any) -> Any:
        from leasehold._runtimes.threads import run

        return run(request)


@pytest.fixture
def readers(redis_server: RedisServer, tmp_path: Path) -> Iterator[Readers]:
    redis_server.ask("FLUSHALL")
    with leasehold.connect(redis_server.url, ttl=60) as client:
        readers = Readers(redis_server.url, client, tmp_path)
        yield readers
        readers.close()


def test_200_readers_over_4_processes_build_once_per_cycle_and_nobody_waits_for_it(readers: Readers) -> None:
    readers.start(4, 50, lock_ttl=60)
    readers.builder(1)
    readers.say("go")  # the first callers wait, as there is nothing to give out
    readers.have(1)
    for cycle in range(2, sized(6, 40)):
        is_held = cycle % 2 == 0
        if is_held:
            readers.say("hold")
        readers.expire()
        readers.builder(cycle)
        if is_held:
            readers.all_but(1)  # the builder
            readers.say("go")
        readers.have(cycle)
        assert len(readers.builds()) == cycle, "one build for each cycle"
    assert [process.report()["errors"] for process in readers.processes] == [[]] * 4


def test_first_callers_of_all_processes_wait_for_one_build(readers: Readers) -> None:
    readers.start(4, 10, lock_ttl=60)
    readers.builder(1)
    eventually(lambda: _queue(readers.client) == 3, "one of each other process stands in the queue, and no more")
    assert readers.read() == [0] * 40
    readers.say("go")
    readers.have(1)
    assert len(readers.builds()) == 1


def test_when_the_builder_is_killed_the_others_go_on_with_the_stale_value_and_then_one_builds(
    readers: Readers,
) -> None:
    readers.start(4, 10, lock_ttl=3)
    readers.say("go")
    readers.have(1)
    readers.say("hold")
    readers.expire()
    victim = readers.builder(2)
    victim.signal(signal.SIGKILL)
    readers.processes.remove(victim)
    victim.close()
    readers.all_but(1)
    assert readers.builder(3).pid != victim.pid
    readers.all_but(len(readers.builds()) - 2)
    readers.say("go")
    eventually(lambda: readers.stored() >= 3, "the value is built by another")
    readers.have(readers.stored())


def test_the_late_fill_of_a_builder_that_was_paused_is_refused(readers: Readers) -> None:
    readers.start(3, 10, lock_ttl=3)
    readers.say("go")
    readers.have(1)
    readers.say("hold")
    readers.expire()
    late = readers.builder(2)
    late.signal(signal.SIGSTOP)
    readers.processes.remove(late)
    assert readers.builder(3).pid != late.pid
    readers.say("go")
    eventually(lambda: readers.stored() >= 3, "the value is built by another")
    stored = readers.stored()
    late.signal(signal.SIGCONT)
    late.say("go")
    eventually(lambda: late.report()["refused"] >= 1, "the late fill is refused")
    assert readers.stored() == stored
    readers.processes.append(late)
    readers.have(stored)  # also the builder itself


def test_a_builder_that_is_cut_off_gives_out_what_it_built_and_overwrites_nothing(
    readers: Readers, redis_server: RedisServer
) -> None:
    with FaultProxy(("127.0.0.1", redis_server.port)) as proxy:
        readers.start(1, 5, redis_server.url.replace(f":{redis_server.port}", f":{proxy.port}"), lock_ttl=3)
        (cut_off,) = readers.processes
        cut_off.say("go")
        readers.have(1)
        cut_off.say("hold")
        readers.expire()
        assert readers.builder(2) is cut_off
        proxy.refuse()
        readers.processes.clear()
        readers.start(2, 5, lock_ttl=3)
        assert readers.builder(3) is not cut_off
        readers.say("go")
        eventually(lambda: readers.stored() >= 3, "the value is built by another")
        stored = readers.stored()
        cut_off.say("go")
        eventually(lambda: 2 in cut_off.report()["values"], "the builder gets what it built")
        assert readers.stored() == stored
        proxy.accept()
        readers.processes.append(cut_off)
        readers.have(stored)


def _queue(client: Client) -> int:
    state = client.inspect("cache:6:prices:x")
    return 0 if state is None else len(state.waiting)
