"""Ways to wake a waiter in another process, side by side: how fast, and what an idle waiter costs.

    python benchmarks/sqlite_wakeup.py

Each candidate rings from this process and listens in a child, whose listener thread raises a flag that its main thread
waits for, as the store does. All rounds are interleaved. The figures go into docs/adr.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import resource
import socket
import sqlite3
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

ROUNDS, RINGS, IDLE_SECONDS = 5, 100, 5.0


class Bell(Protocol):
    """A candidate."""

    def listen(self, heard: Callable[[], None]) -> None:
        """In the child: call `heard` for every ring, for ever."""

    def ring(self) -> None:
        """In the parent."""


class NamedPipe:
    """A pipe per waiter, opened and closed for each ring."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "pipe"
        os.mkfifo(self.path)

    def listen(self, heard: Callable[[], None]) -> None:
        descriptor = os.open(self.path, os.O_RDWR)
        while os.read(descriptor, 4096):
            heard()

    def ring(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, b"12345678")
        os.close(descriptor)


class Datagram:
    """A datagram socket per waiter, in the file system; its path may have 107 bytes at most."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "socket")
        self.sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def listen(self, heard: Callable[[], None]) -> None:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.bind(self.path)
        while receiver.recv(16):
            heard()

    def ring(self) -> None:
        self.sender.sendto(b"12345678", self.path)


class Inotify:
    """One file that every process touches and watches, through the C library."""

    MODIFY = 2

    def __init__(self, directory: Path) -> None:
        self.path = directory / "bell"
        self.path.touch()

    def listen(self, heard: Callable[[], None]) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor = library.inotify_init()
        library.inotify_add_watch(descriptor, os.fsencode(self.path), self.MODIFY)
        while os.read(descriptor, 4096):
            heard()

    def ring(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY)
        os.pwrite(descriptor, b"1", 0)
        os.close(descriptor)


class Polling:
    """Ask SQLite whether the file has changed."""

    def __init__(self, directory: Path, pause: float) -> None:
        self.path, self.pause = directory / f"polled-{pause}.db", pause
        self.connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("CREATE TABLE bell (rung INTEGER)")
        self.connection.execute("INSERT INTO bell VALUES (0)")

    def listen(self, heard: Callable[[], None]) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        last = connection.execute("PRAGMA data_version").fetchone()
        while True:
            version = connection.execute("PRAGMA data_version").fetchone()
            if version != last:
                last = version
                heard()
            time.sleep(self.pause)

    def ring(self) -> None:
        self.connection.execute("UPDATE bell SET rung = rung + 1")


def wait_in_child(bell: Bell, control: Connection, memory: mmap.mmap) -> None:
    """Report the time from each ring to the moment when the main thread runs; then be idle and report the cost."""
    flag = threading.Event()
    threading.Thread(target=bell.listen, args=(flag.set,), daemon=True).start()
    time.sleep(0.3)  # the listener is in place
    control.send("ready")
    while (order := control.recv()) != "end":
        if order == "idle":
            control.send(_idle())
            continue
        if not flag.wait(3):
            control.send(None)
            continue
        woken = time.clock_gettime(time.CLOCK_MONOTONIC)
        flag.clear()
        control.send(woken - struct.unpack_from("d", memory)[0])


def _idle() -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(IDLE_SECONDS)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 100 * cpu / IDLE_SECONDS, (after.ru_nvcsw - before.ru_nvcsw - 1) / IDLE_SECONDS


class Trial:
    """A candidate with its waiting child."""

    def __init__(self, name: str, bell: Bell, rings: int = RINGS) -> None:
        self.name, self.bell, self._rings = name, bell, rings
        self.delays: list[float] = []
        self._memory = mmap.mmap(-1, 8)
        self._control, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._child = context.Process(target=wait_in_child, args=(bell, other, self._memory))
        self._child.start()
        self._control.recv()

    def round(self) -> None:
        for _ in range(self._rings):
            self._control.send("wait")
            time.sleep(0.003)
            struct.pack_into("d", self._memory, 0, time.clock_gettime(time.CLOCK_MONOTONIC))
            self.bell.ring()
            delay = self._control.recv()
            if delay is not None:
                self.delays.append(delay)

    def ask_idle(self) -> None:
        self._control.send("idle")

    def report(self) -> str:
        cpu, wakes = self._control.recv()
        self._control.send("end")
        self._child.join()
        self.delays.sort()
        p50, p99 = (self.delays[int(len(self.delays) * share)] * 1000 for share in (0.5, 0.99))
        return f"{self.name:28} {p50:9.3f} {p99:9.3f} {cpu:8.2f} {wakes:9.1f}"


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"{'':28} {'p50 ms':>9} {'p99 ms':>9} {'idle %':>8} {'wakes/s':>9}\n")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        trials = [
            Trial("named pipe", NamedPipe(directory)),
            Trial("datagram socket", Datagram(directory)),
            Trial("inotify on one file", Inotify(directory)),
            Trial("data_version every 200 ms", Polling(directory, 0.2), RINGS // 10),
            Trial("data_version every 5 ms", Polling(directory, 0.005)),
        ]
        for _ in range(ROUNDS):
            for trial in trials:
                trial.round()
        for trial in trials:
            trial.ask_idle()
        for trial in trials:
            sys.stdout.write(trial.report() + "\n")


if __name__ == "__main__":
    main()
