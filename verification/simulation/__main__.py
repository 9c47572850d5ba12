"""`python -m verification.simulation`: run many seeds, or replay one."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from verification.simulation.run import STORES, Outcome, simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLLECT_EVERY = 50  # seeds; the collector is off while one runs


def main(arguments: list[str] | None = None) -> int:
    """0: all seeds are clean. 1: a check failed. 2: the negative control lost nothing, so the run is void."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.store, full=options.trace)
    seeds = range(options.start, options.start + options.seeds)
    started = time.monotonic()
    outcomes = _Summary(len(seeds))
    for outcome in _run_all(seeds, options.store, options.jobs):
        outcomes.add(outcome)
        if outcome.violations:
            print()
            report(outcome, options.store)
            if not options.keep_going:
                return 1
    outcomes.close(time.monotonic() - started)
    return outcomes.status


def report(outcome: Outcome, store: str) -> None:
    """Say which check failed, how to see it again, and what happened last."""
    for line in outcome.trace:
        print(line)
    for violation in outcome.violations:
        print(f"seed {outcome.seed} violates: {violation.check}: {violation.detail}")
    print(f"replay: python -m verification.simulation --store {store} --seed {outcome.seed}")


class _Summary:
    """Adds up, and shows progress."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._failed = 0
        self._virtual = 0.0
        self._sums = dict.fromkeys(("steps", "grants", "losses", "faults", "updates", "unfenced_losses"), 0)

    def add(self, outcome: Outcome) -> None:
        self._done += 1
        self._failed += bool(outcome.violations)
        self._virtual += outcome.virtual_seconds
        for name in self._sums:
            self._sums[name] += getattr(outcome, name)
        if sys.stderr.isatty() or self._done % 250 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{self._done}/{self._total} seeds", file=sys.stderr, end=end, flush=True)

    def close(self, seconds: float) -> None:
        sums = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in self._sums.items())
        print(f"{self._done} seeds, {self._failed} failed, {self._virtual:.0f} virtual seconds: {sums}")
        print(f"{seconds:.1f} s, {self._virtual / seconds:.0f} times faster than real time")
        if self.status == 2:
            print("void: the register without fencing lost nothing, so nothing dangerous happened")

    @property
    def status(self) -> int:
        if self._failed:
            return 1
        return 2 if self._done >= 200 and not self._sums["unfenced_losses"] else 0


def _replay(seed: int, store: str, *, full: bool) -> int:
    outcome = simulate(seed, store=store, lines=None if full else 40)
    report(outcome, store) if outcome.violations else print("\n".join(outcome.trace))
    print(f"trace hash {outcome.trace_hash}, {outcome.steps} steps, {outcome.virtual_seconds:.1f} virtual seconds")
    return 1 if outcome.violations else 0


def _run_all(seeds: Iterable[int], store: str, jobs: int) -> Iterator[Outcome]:
    if jobs > 1:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(partial(simulate, store=store), seeds, chunksize=20)
        return
    gc.disable()
    for count, seed in enumerate(seeds, 1):
        yield simulate(seed, store=store)
        if count % COLLECT_EVERY == 0:
            gc.collect()
    gc.enable()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.simulation", description=__doc__)
    parser.add_argument("--store", choices=STORES, default="memory", help="which store the programs use")
    parser.add_argument("--seed", type=int, help="replay this seed and print the end of its trace")
    parser.add_argument("--trace", action="store_true", help="with --seed: print the whole trace")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes to use")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    return parser


if __name__ == "__main__":
    sys.exit(main())
