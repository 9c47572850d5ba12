"""One worker of the demonstration: adds to a balance under a lock, and at one point is stopped in the middle.

Run as `python -m leasehold.cli.demo_worker FOLDER STORY NUMBER COUNT PAUSE_AT`; each line on stdout is one step.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import leasehold
from leasehold.sql import guard

__all__ = ["main"]

TTL = 1.0


class Worker:
    """Adds one to the balance, again and again, each time under the lock."""

    def __init__(self, folder: Path, story: str, number: int) -> None:
        self._guarded = story == "guarded"
        self._number = number
        self._client = leasehold.connect(f"sqlite:///{folder}/locks.db", label=f"worker {number}")
        self._lock = self._client.lock(f"balance {story}", ttl=TTL)
        self._stopped = folder / f"{story}.stopped"
        self._bank = sqlite3.connect(folder / f"{story}.db", timeout=10)

    def work(self, count: int, pause_at: int) -> None:
        """Add `count` times; before the write with number `pause_at` the whole process is stopped.

        The others wait half-way until that has happened: on a busy host they could be done before it starts.
        """
        with closing(self._bank), self._client, self._client.release_on_signals():
            for turn in range(1, count + 1):
                while turn > count // 2 and not pause_at and not self._stopped.exists():
                    time.sleep(0.01)
                pause = turn == pause_at
                while not self._add_one(pause=pause):
                    pause = False  # refused: begin again with a new lease

    def _add_one(self, *, pause: bool) -> bool:
        """Read, think, write. False if the guard refused the write."""
        try:
            with self._lock.hold() as lease:
                balance = self._read(lease)
                if pause:
                    self._stopped.touch()
                    self._report("stopped", balance, lease.fence)
                    os.kill(os.getpid(), signal.SIGSTOP)  # as a frozen machine or a long garbage collection would
                self._write(lease, balance + 1)
                self._report("wrote", balance + 1, lease.fence)
        except leasehold.StaleFence as refusal:
            self._report("refused", refusal.highest or 0, refusal.fence or 0)
            return False
        except leasehold.LeaseLost:
            self._report("late", 0, 0)  # the write is done: the error comes too late
        return True

    def _read(self, lease: leasehold.Lease) -> int:
        self._begin(lease)
        (balance,) = self._bank.execute("SELECT balance FROM account").fetchone()
        self._bank.commit()
        return int(balance)

    def _write(self, lease: leasehold.Lease, balance: int) -> None:
        self._begin(lease)
        self._bank.execute("UPDATE account SET balance = ?", (balance,))
        self._bank.commit()

    def _begin(self, lease: leasehold.Lease) -> None:
        self._bank.execute("BEGIN IMMEDIATE")
        if self._guarded:
            try:
                guard(self._bank, lease)
            except leasehold.StaleFence:
                self._bank.rollback()
                raise

    def _report(self, word: str, balance: int, fence: int) -> None:
        os.write(1, f"{self._number} {word} {balance} {fence}\n".encode())  # one write, so that lines never mix


def main() -> None:
    """Read the arguments and work."""
    folder, story, number, count, pause_at = sys.argv[1:]
    Worker(Path(folder), story, int(number)).work(int(count), int(pause_at))


if __name__ == "__main__":
    main()
