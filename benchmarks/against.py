"""An uncontended pair, beside the same pair of an earlier commit: `python -m benchmarks.against COMMIT [--url URL]...`.

The two take turns, each in a process of its own that has one core to itself, with real-time priority where that is
allowed: so the figures are the same on a machine that has other work. Shown is the best of all rounds, in microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
EMBEDDED = ("memory://against", "sqlite:")  # a file of its own for each process
FACES = ("blocking", "asyncio")
WAYS = ("acquire", "hold")
PAIRS, BLOCKS = 300, 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each store, face and way."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument("--url", action="append", default=[], help="further stores; both commits must know the URL")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--measure", nargs=3, metavar=("URL", "FACE", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(_measured(*options.measure))
        return 0
    with _checked_out(options.commit) as earlier:
        for url, face, way in product((*EMBEDDED, *options.url), FACES, WAYS):
            before, now = _in_turns(earlier, (url, face, way), options.rounds)
            print(f"{url:40} {face:9} {way:8} {before:8.2f} {now:8.2f}   {now / before:.3f}", flush=True)
    return 0


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="leasehold-against-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _in_turns(earlier: Path, what: tuple[str, str, str], rounds: int) -> tuple[float, float]:
    best = {earlier: float("inf"), ROOT: float("inf")}
    for number in range(rounds):
        for tree in (earlier, ROOT) if number % 2 else (ROOT, earlier):
            best[tree] = min(best[tree], _of_a_process(tree, what))
    return best[earlier], best[ROOT]


def _of_a_process(tree: Path, what: tuple[str, str, str]) -> float:
    """This very file, with the library of that commit."""
    command = [sys.executable, str(Path(__file__)), "-", "--measure", *what]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(finished.stdout)


def _measured(url: str, face: str, way: str) -> float:
    """The best block of pairs, in microseconds a pair."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    with tempfile.TemporaryDirectory(prefix="leasehold-against-") as folder:
        url = f"sqlite:///{folder}/locks.db" if url == "sqlite:" else url
        blocks = _blocking(url, way) if face == "blocking" else asyncio.run(_asyncio(url, way))
    return min(blocks) / PAIRS * 1e6


def _blocking(url: str, way: str) -> list[float]:
    import leasehold  # noqa: PLC0415 - of the commit that is measured

    def acquire(lock: Any) -> None:
        for _ in range(PAIRS):
            lock.acquire().release()

    def hold(lock: Any) -> None:
        for _ in range(PAIRS):
            with lock.hold():
                pass

    pairs, blocks = acquire if way == "acquire" else hold, []
    with leasehold.connect(url) as client:
        lock = client.lock("against")
        for _ in range(BLOCKS):
            began = time.perf_counter()
            pairs(lock)
            blocks.append(time.perf_counter() - began)
    return blocks


async def _asyncio(url: str, way: str) -> list[float]:
    import leasehold  # noqa: PLC0415 - of the commit that is measured

    async def acquire(lock: Any) -> None:
        for _ in range(PAIRS):
            await (await lock.acquire()).release()

    async def hold(lock: Any) -> None:
        for _ in range(PAIRS):
            async with lock.hold():
                pass

    pairs, blocks = acquire if way == "acquire" else hold, []
    async with leasehold.connect_async(url) as client:
        lock = client.lock("against")
        for _ in range(BLOCKS):
            began = time.perf_counter()
            await pairs(lock)
            blocks.append(time.perf_counter() - began)
    return blocks


if __name__ == "__main__":
    sys.exit(main())
