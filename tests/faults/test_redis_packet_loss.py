"""Two of a hundred packets vanish, and no lease is lost by that. `make faults` runs it for a minute."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.support import long_form
from verification.lab.process import find_program
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.support import Worker

SECONDS = 60 if long_form() else 8


@contextmanager
def losing(port: int, probability: float) -> Iterator[Callable[[], int]]:
    """Drop packets to and from a port on loopback; gives a function that tells how many were dropped."""
    iptables = find_program("iptables", "iptables")
    chance = ["-m", "statistic", "--mode", "random", "--probability", str(probability), "-j", "DROP"]
    rules = [["INPUT", "-i", "lo", "-p", "tcp", f"--{side}", str(port), *chance] for side in ("dport", "sport")]
    added: list[list[str]] = []

    def dropped() -> int:
        listing = subprocess.run([iptables, "-w", "-nvxL", "INPUT"], check=True, capture_output=True, text=True).stdout
        return sum(int(line.split()[0]) for line in listing.splitlines() if f"t:{port} " in f"{line} ")

    try:
        for rule in rules:
            subprocess.run([iptables, "-w", "-A", *rule], check=True)
            added.append(rule)
        yield dropped
    finally:
        for rule in added:
            subprocess.run([iptables, "-w", "-D", *rule], check=True)


def test_two_lost_packets_of_a_hundred_cost_no_lease(start: Callable[..., Worker]) -> None:
    assert shutil.which("iptables", path="/usr/sbin:/sbin:/usr/bin") is not None
    server = RedisServer()
    with server, losing(server.port, 0.02) as dropped:
        workers = [start("endure", server.url, SECONDS) for _ in range(2)]
        for worker in workers:
            word, lost, rounds, *why = worker.line()
            assert (word, lost) == ("lost", "0"), why
            assert int(rounds) > 10
            assert worker.ends() == 0
        assert dropped() > 10, "hardly a packet was lost; the test shows nothing"
