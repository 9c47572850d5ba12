"""What is between one client and the servers, so that this client alone can be disturbed.

`ProxyWiring` puts a proxy before each server, for every client its own. `FilterWiring` is for stores whose clients
learn the servers' addresses from the servers: each client runs under a group of its own, and the system's packet filter
drops or refuses what that group sends. That needs root.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Protocol

from verification.lab import watcher
from verification.lab.process import find_program
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from verification.lab.stages.base import Address

__all__ = ["FilterWiring", "NoWiring", "ProxyWiring", "Wiring"]

FIRST_GROUP = 61_200  # unused on a Debian system; a client's group is this plus its number
SWALLOWED = 3  # answers in a row


class Wiring(Protocol):
    """Faults of one client's network."""

    def addresses(self, client: int) -> Sequence[Address] | None:
        """Where this client finds the servers; None: where they are."""

    def group(self, client: int) -> int | None:
        """The group under which it runs."""

    def refuse(self, client: int) -> None:
        """Its connections are closed, and new ones refused."""

    def drop(self, client: int) -> None:
        """What it sends vanishes silently."""

    def lose_replies(self, client: int, random: Random) -> None:
        """Requests arrive, but some answers do not."""

    def heal(self, client: int) -> None:
        """As before."""

    def remove(self) -> None:
        """All of it."""


class NoWiring:
    """Directly, for faults that leave the network alone."""

    def addresses(self, _: int) -> Sequence[Address] | None:
        return None

    def group(self, _: int) -> int | None:
        return None

    def refuse(self, _: int) -> None:
        raise NotImplementedError

    def drop(self, _: int) -> None:
        raise NotImplementedError

    def lose_replies(self, _: int, random: Random) -> None:
        raise NotImplementedError

    def heal(self, _: int) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        """Nothing."""


class ProxyWiring(NoWiring):
    """A proxy for each client and server."""

    def __init__(self, servers: Sequence[Address]) -> None:
        self._servers = servers
        self._proxies: dict[int, list[FaultProxy]] = {}

    def addresses(self, client: int) -> Sequence[Address] | None:
        if client not in self._proxies:
            self._proxies[client] = [FaultProxy(server) for server in self._servers]
            for proxy in self._proxies[client]:
                proxy.start()
        return [proxy.address for proxy in self._proxies[client]]

    def refuse(self, client: int) -> None:
        for proxy in self._proxies[client]:
            proxy.refuse()

    def drop(self, client: int) -> None:
        for proxy in self._proxies[client]:
            proxy.black_hole()

    def lose_replies(self, client: int, random: Random) -> None:
        for proxy in self._proxies[client]:
            proxy.swallow(count=SWALLOWED, skip=random.randrange(3), then=random.choice(["cut", "silence"]))

    def heal(self, client: int) -> None:
        for proxy in self._proxies[client]:
            proxy.heal()
            proxy.cut()  # what was silenced has lost bytes

    def remove(self) -> None:
        for proxies in self._proxies.values():
            for proxy in proxies:
                proxy.stop()


class FilterWiring(NoWiring):
    """Rules of the packet filter, in a chain of its own that ends with the run."""

    def __init__(self, ports: Sequence[int]) -> None:
        if os.geteuid() != 0:
            raise RuntimeError("filtering packets needs root: run the lab as root")
        self._ports = ports
        self._program = find_program("iptables", "iptables")
        self._chain = f"leasehold-{os.getpid()}"
        self._removal = [
            [self._program, "-w", "-D", "OUTPUT", "-o", "lo", "-j", self._chain],
            [self._program, "-w", "-F", self._chain],
            [self._program, "-w", "-X", self._chain],
        ]
        for words in self._removal:
            watcher.watch_command(words)
        self._run("-N", self._chain)
        self._run("-A", "OUTPUT", "-o", "lo", "-j", self._chain)

    def _run(self, *words: str) -> None:
        subprocess.run([self._program, "-w", *words], check=True, capture_output=True)

    def _rule(self, client: int, *target: str) -> None:
        owner = ["-m", "owner", "--gid-owner", str(FIRST_GROUP + client)]
        for port in self._ports:
            self._run("-A", self._chain, "-p", "tcp", "--dport", str(port), *owner, "-j", *target)

    def group(self, client: int) -> int | None:
        return FIRST_GROUP + client

    def refuse(self, client: int) -> None:
        self._rule(client, "REJECT", "--reject-with", "tcp-reset")

    def drop(self, client: int) -> None:
        self._rule(client, "DROP")

    def lose_replies(self, client: int, random: Random) -> None:
        """Of all clients: answers have no owner that the filter could see; each server's in turn."""
        del client
        port = random.choice(list(self._ports))
        self._run("-A", self._chain, "-p", "tcp", "--sport", str(port), "-j", "DROP")

    def heal(self, _: int) -> None:
        self._run("-F", self._chain)

    def remove(self) -> None:
        for words in self._removal:
            subprocess.run(words, check=False, capture_output=True)
            watcher.forget_command(words)
