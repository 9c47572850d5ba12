"""What a share costs at rest, and how long it takes until it is even again: `python -m benchmarks.partitions`.

Eight processes share 64 partitions on a Redis server of their own. Requests are scripts that the server ran. A change
is measured from the moment it is made (the newcomer is on the list, SIGTERM is sent, SIGKILL is sent) until the store
shows that the members own all partitions evenly.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import redis

import leasehold
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

__all__ = ["main"]

COUNT = 64
MEMBERS = 8
_FORK = multiprocessing.get_context("fork")


def member(url: str, ttl: float, retry: float) -> None:
    """A worker that always is ready to give a partition up."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with leasehold.connect(url) as client, client.partitions("bench", COUNT, ttl=ttl, retry=retry) as share:
        while not over.is_set():
            for partition in share.owned():
                if partition.leaving:
                    partition.release()
            share.wait_change(0.05)


class Times(NamedTuple):
    """Seconds until every partition had a living owner, and until they were shared out evenly."""

    owned: float
    even: float


class Group:
    """Members, and what the store knows about them."""

    def __init__(self, url: str, ttl: float, retry: float) -> None:
        self._words = (url, ttl, retry)
        self._client = leasehold.connect(url)
        self.members: list[BaseProcess] = []

    def join(self, number: int) -> None:
        """Start some, and wait until they are on the list."""
        for _ in range(number):
            process = _FORK.Process(target=member, args=self._words)
            process.start()
            self.members.append(process)
        while self._listed() < len(self.members):
            time.sleep(0.002)

    def go(self, number: signal.Signals) -> None:
        """Let the oldest go."""
        process = self.members.pop(0)
        signal_process(process, number)

    def even(self) -> Times:
        """Wait until all partitions are owned, and evenly; how long that took."""
        began, owned = time.monotonic(), None
        while True:
            owners = self._owners()
            pids = {process.pid for process in self.members}
            if owned is None and owners.total() == COUNT and set(owners) <= pids:
                owned = time.monotonic() - began
            if owned is not None and set(owners) == pids and max(owners.values()) - min(owners.values()) <= 1:
                return Times(owned, time.monotonic() - began)
            time.sleep(0.005)

    def close(self) -> None:
        """End all, and wait for that."""
        for process in self.members:
            process.terminate()
        for process in self.members:
            process.join()

    def _listed(self) -> int:
        state = self._client.inspect("bench/members")
        return 0 if state is None else len(state.holdings)

    def _owners(self) -> Counter[int | None]:
        states = [self._client.inspect(f"bench/{index}") for index in range(COUNT)]
        return Counter(holding.holder.pid for state in states if state for holding in state.holdings)


def signal_process(process: BaseProcess, number: signal.Signals) -> None:
    """Send a signal and collect the process in the background."""
    if number == signal.SIGKILL:
        process.kill()
    else:
        process.terminate()
    threading.Thread(target=process.join, daemon=True).start()


def requests_at_rest(server: RedisServer, ttl: float, retry: float, seconds: float) -> float:
    """Scripts per second and member."""
    group = Group(server.url, ttl, retry)
    group.join(MEMBERS)
    group.even()
    time.sleep(retry)
    values = redis.Redis.from_url(server.url)
    before = _scripts(values)
    time.sleep(seconds)
    after = _scripts(values)
    group.close()
    return (after - before) / seconds / MEMBERS


def _scripts(values: redis.Redis) -> int:
    stats = values.info("commandstats")
    return sum(facts["calls"] for name, facts in stats.items() if name in ("cmdstat_evalsha", "cmdstat_eval"))


def changes(server: RedisServer, ttl: float, retry: float, rounds: int) -> dict[str, list[Times]]:
    """How long it took until it was even again, by kind of change."""
    group = Group(server.url, ttl, retry)
    group.join(MEMBERS - 1)
    group.even()
    taken: dict[str, list[Times]] = {"join": [], "leave": [], "kill": []}
    for _ in range(rounds):
        group.join(1)
        taken["join"].append(group.even())
        group.go(signal.SIGTERM)
        taken["leave"].append(group.even())
        group.join(1)
        group.even()
        group.go(signal.SIGKILL)
        taken["kill"].append(group.even())
    group.close()
    return taken


def main(words: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.partitions", description=__doc__)
    parser.add_argument("--ttl", type=float, default=10.0)
    parser.add_argument("--retry", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(words)
    with RedisServer() as server:
        print(f"{MEMBERS} members, {COUNT} partitions, ttl {options.ttl:g} s, retry {options.retry:g} s, Redis")
        rate = requests_at_rest(server, options.ttl, options.retry, 2 * options.ttl)
        print(f"requests per second and member at rest: {rate:.2f}")
        server.flush()
        for what, times in changes(server, options.ttl, options.retry, options.rounds).items():
            for word, seconds in (("owned", [t.owned for t in times]), ("even", [t.even for t in times])):
                middle, most = statistics.median(seconds), max(seconds)
                print(f"{what}: all {word} again after {middle:.2f} s (median), {most:.2f} s (most)")


if __name__ == "__main__":
    main(sys.argv[1:])
