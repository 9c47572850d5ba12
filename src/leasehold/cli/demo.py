"""`demo`: the same story twice, with and without the fence guard, step by step with its numbers."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.demo_worker import TTL
from leasehold.cli.output import print_lines, print_text, table
from leasehold.cli.style import GREEN, RED, paint

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["demo"]

WORKERS = 4
TURNS = 10
PAUSE_AT = 3  # the unlucky worker is stopped in its third turn
UNLUCKY = 1
PATIENCE = 13.0  # for each of the two stories

INTRODUCTION = f"""\
{WORKERS} workers add 1 to a balance, {TURNS} times each, so it should end at {WORKERS * TURNS}.
Each addition reads the balance, thinks, and writes it back, under a lock. The
lock is a lease of {TTL:g} s that is renewed while its holder lives. Worker {UNLUCKY} will be
stopped (SIGSTOP) between its read and its write, for longer than its lease."""


def demo(arguments: Namespace, console: Console) -> int:
    """The verb: run both stories and compare; with --ui beside a dashboard, which stays."""
    with tempfile.TemporaryDirectory(prefix="leasehold-demo-") as folder:
        store = f"sqlite:///{folder}/locks.db"
        console.note(f"store: {store}")
        if not arguments.ui:
            code = _play_both(folder, console)
            console.note("to see such a store in a browser: leasehold demo --ui")
            return code
        from leasehold.cli.demo_ui import dashboard_of  # noqa: PLC0415 - the extra `web`

        return dashboard_of(store, console, lambda: _play_both(folder, console))


def _play_both(folder: str, console: Console) -> int:
    print_lines([INTRODUCTION])
    plain = _play(Path(folder), "plain", "\nWITHOUT A GUARD: the lock alone")
    guarded = _play(Path(folder), "guarded", "\nWITH THE GUARD: guard(tx, lease) comes first in each transaction")
    if plain is None or guarded is None:
        console.error("the workers did not finish in time; try again when the host is less busy")
        return exit_codes.PROBLEM
    print_lines(["", *_comparison(plain, guarded)])
    as_expected = plain.lost > 0 and guarded.lost == 0 and guarded.refused == 1
    return exit_codes.OK if as_expected else exit_codes.PROBLEM


def _play(folder: Path, name: str, title: str) -> _Story | None:
    print_lines([title])
    story = _Story(folder, name)
    return story if story.play() else None


def _comparison(plain: _Story, guarded: _Story) -> list[str]:
    rows = [
        ("additions confirmed", plain.confirmed, guarded.confirmed),
        ("late writes refused", plain.refused, guarded.refused),
        ("balance at the end", plain.balance, guarded.balance),
        ("additions lost", plain.lost, guarded.lost),
    ]
    return [
        *table(("", "without guard", "with guard"), rows),
        "",
        "No lock can stop a process that was paused and does not know it. The fence is",
        "a number that rises with every grant; the guard keeps the highest one it saw",
        "next to the data, and refuses a lower one.",
    ]


class _Story:
    """One run of all workers on a balance of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.confirmed = 0
        self.refused = 0
        self.balance = 0
        self._stopped_at = 0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._taken_over = False
        self._damage_shown = False
        with closing(sqlite3.connect(folder / f"{name}.db")) as bank, bank:
            bank.execute("CREATE TABLE account (balance INTEGER NOT NULL)")
            bank.execute("INSERT INTO account VALUES (0)")

    @property
    def lost(self) -> int:
        """How many confirmed additions are missing."""
        return self.confirmed - self.balance

    def play(self) -> bool:
        """Run to the end; False if that takes too long."""
        read_end, write_end = os.pipe()
        try:
            self._start(write_end)
            os.close(write_end)
            finished = self._follow(read_end)
        finally:
            os.close(read_end)
            for worker in self._workers:
                worker.kill()
                worker.wait()
        with closing(sqlite3.connect(self._folder / f"{self._name}.db")) as bank:
            (self.balance,) = bank.execute("SELECT balance FROM account").fetchone()
        return finished

    def _start(self, output: int) -> None:
        for number in range(1, WORKERS + 1):
            pause_at = PAUSE_AT if number == UNLUCKY else 0
            words = [str(self._folder), self._name, str(number), str(TURNS), str(pause_at)]
            program = [sys.executable, "-m", "leasehold.cli.demo_worker", *words]
            self._workers.append(subprocess.Popen(program, stdout=output, stdin=subprocess.DEVNULL))  # noqa: S603

    def _follow(self, pipe: int) -> bool:
        """Print what the workers do until all have ended."""
        rest, end = b"", time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self._others_are_done():
                self._wake_up()
            if not select.select([pipe], [], [], 0.05)[0]:
                continue
            received = os.read(pipe, 65536)
            if not received:
                return True
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                number, word, balance, fence = line.decode().split()
                self._show(int(number), word, int(balance), int(fence))
        return False

    def _others_are_done(self) -> bool:
        others = [worker for number, worker in enumerate(self._workers, 1) if number != UNLUCKY]
        return self._stopped_at > 0 and all(worker.poll() is not None for worker in others)

    def _wake_up(self) -> None:
        print_text(
            [f"  the other workers are done; worker {UNLUCKY} wakes up (SIGCONT) and does not know that it slept"]
        )
        self._stopped_at = 0
        self._workers[UNLUCKY - 1].send_signal(signal.SIGCONT)

    def _show(self, number: int, word: str, balance: int, fence: int) -> None:
        if word == "stopped":
            self._stopped_at = fence
            print_text([f"  worker {number} has read {balance}, holds fence {fence}, and is stopped before its write"])
        elif word == "wrote":
            self._wrote(number, balance, fence)
        elif word == "refused":
            self.refused += 1
            refused = paint("REFUSED", GREEN)
            print_text([f"  worker {number} writes with fence {fence}: {refused}, the guard has seen {balance}",
                        f"  worker {number} takes the lock again and adds to what is really there"])  # fmt: skip
        elif word == "late":
            print_text([f"  only now does worker {number} learn that it had lost its lease: too late"])

    def _wrote(self, number: int, balance: int, fence: int) -> None:
        self.confirmed += 1
        if self._stopped_at and number != UNLUCKY and not self._taken_over:
            self._taken_over = True
            print_text([f"  its lease ran out after {TTL:g} s; worker {number} took over with fence {fence}"])
        if number == UNLUCKY and self._taken_over and balance < self.confirmed - 1 and not self._damage_shown:
            self._damage_shown = True
            damage = paint("DAMAGE", RED)
            print_text([f"  worker {number} writes {balance} over a balance of {self.confirmed - 1}: {damage}"])
