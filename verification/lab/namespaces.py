"""Network namespaces that can be cut off from each other and healed again. They know no server.

A `Network` is a bridge in this namespace with one cable to each of its own. All of it is made when the network is
started and removed with it; it needs root, as the tests that cut networks do.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from contextlib import suppress

from verification.lab import watcher
from verification.lab.process import find_program

__all__ = ["Namespace", "Network"]


def _ip(*words: str) -> str:
    command = [find_program("ip", "iproute2"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Namespace:
    """One host of its own, as far as the network is concerned."""

    def __init__(self, name: str, address: str, cable: str) -> None:
        self.name = name
        self.address = address
        self.cable = cable  # our end of it
        self.prefix = [find_program("ip", "iproute2"), "netns", "exec", name]  # before a command that runs in there

    def cut(self) -> None:
        """Packets vanish in both directions, silently."""
        _ip("link", "set", self.cable, "down")

    def heal(self) -> None:
        """Packets arrive again."""
        _ip("link", "set", self.cable, "up")


class Network:
    """Some namespaces on one bridge; use it as a context manager. `gateway` is this namespace's own address in it."""

    def __init__(self, size: int) -> None:
        self._mark = secrets.token_hex(3)
        net = f"10.{secrets.choice(range(180, 250))}.{secrets.randbelow(250)}"
        self._bridge = f"lh{self._mark}"
        self.gateway = f"{net}.1"
        self.hosts = [
            Namespace(f"lh{self._mark}-{number}", f"{net}.{number + 11}", f"lh{self._mark}v{number}")
            for number in range(size)
        ]

    def start(self) -> None:
        """Make it."""
        if os.geteuid() != 0:
            raise RuntimeError("cutting networks needs root: run the tests of faults as root")
        for words in self._removal():
            watcher.watch_command(words)
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for host in self.hosts:
            _ip("netns", "add", host.name)
            _ip("link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("link", "set", host.cable, "master", self._bridge)
            _ip("link", "set", host.cable, "up")
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "eth0", "up")
            _ip("-n", host.name, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Take it down; processes inside must have ended."""
        for words in self._removal():
            with suppress(RuntimeError):  # a cable goes with its namespace, unless a process keeps that one
                _ip(*words[1:])
            watcher.forget_command(words)

    def _removal(self) -> list[list[str]]:
        """What takes it down."""
        program = find_program("ip", "iproute2")
        namespaces = [[program, "netns", "del", host.name] for host in self.hosts]
        cables = [[program, "link", "del", host.cable] for host in self.hosts]
        return [*namespaces, *cables, [program, "link", "del", self._bridge]]

    def __enter__(self) -> Network:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
