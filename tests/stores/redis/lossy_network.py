"""A Redis server and two workers inside a network of their own that loses packets: `python lossy_network.py SECONDS`.

It is started with `unshare --net`, so that the rules affect no other process and end with the last process in there.
Prints `dropped COUNT`, then the line of each worker.
"""

from __future__ import annotations

import subprocess
import sys

from tests.stores.support import Worker
from verification.lab.process import find_program
from verification.lab.redis import RedisServer

__all__: list[str] = []

PROBABILITY = "0.02"


def lose_packets(port: int) -> None:
    """To and from this port."""
    subprocess.run([find_program("ip", "iproute2"), "link", "set", "lo", "up"], check=True)
    chance = ["-m", "statistic", "--mode", "random", "--probability", PROBABILITY, "-j", "DROP"]
    for side in ("--dport", "--sport"):
        rule = ["INPUT", "-i", "lo", "-p", "tcp", side, str(port), *chance]
        subprocess.run([find_program("iptables", "iptables"), "-w", "-A", *rule], check=True)


def dropped() -> int:
    """How many were lost so far."""
    command = [find_program("iptables", "iptables"), "-w", "-nvxL", "INPUT"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sum(int(line.split()[0]) for line in listing.splitlines() if "statistic" in line)


def main(seconds: str) -> None:
    """Lose packets, work, report."""
    server = RedisServer()
    lose_packets(server.port)
    with server:
        workers = [Worker("endure", server.url, seconds) for _ in range(2)]
        lines = [" ".join(worker.line()) for worker in workers]
        for worker in workers:
            worker.ends()
            worker.stop()
    sys.stdout.write("\n".join([f"dropped {dropped()}", *lines]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
