"""`python -m verification.mutants`: hunt every mutant, print a table, fail if one survives."""

from __future__ import annotations

import argparse
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from verification.mutants import MUTANTS
from verification.mutants.runner import SLOWNESS, hunt
from verification.mutants.table import record, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.mutants.catalogue import Mutant


def main(arguments: list[str] | None = None) -> int:
    """0: all were caught. 1: one survived, or the library itself did not."""
    options = _parser().parse_args(arguments)
    if not options.only and not options.after and not options.missing:
        for store in SLOWNESS:
            baseline = hunt(None, options.baseline, store)
            if baseline.caught_by is not None:
                print(f"the library itself fails: {baseline.caught_by}; run python -m verification.simulation")
                return 1
    chosen = [mutant for mutant in _after(options.after) if not options.only or options.only in mutant.id]
    if options.missing:
        known = results()
        chosen = [mutant for mutant in chosen if not known.get(mutant.id, {}).get("caught_by")]
    survivors, needed, found = [], [], {}
    print(f"{'mutant':34} {'caught by':44} {'seeds':>6} {'seconds':>8}")
    with ThreadPoolExecutor(options.at_once) as pool:
        hunts = {pool.submit(hunt, mutant, options.seeds): mutant for mutant in chosen}
        for done in as_completed(hunts):
            mutant, verdict = hunts[done], done.result()
            caught = verdict.caught_by or "SURVIVED"
            print(f"{mutant.id:34} {caught:44} {verdict.seeds:6} {verdict.seconds:8.1f}", flush=True)
            found[mutant.id] = verdict
            if options.record:
                record(found)
            if verdict.caught_by is None:
                survivors.append(mutant)
            else:
                needed.append(verdict.seeds)
    median = f", median {statistics.median(needed):.0f} seeds" if needed else ""
    print(f"{len(needed)} of {len(chosen)} caught{median}")
    for mutant in survivors:
        print(f"survived: {mutant.id}: {mutant.description}")
    return 1 if survivors or not chosen else 0


def _after(last: str | None) -> Sequence[Mutant]:
    """The mutants that follow this one; all without it."""
    names = [mutant.id for mutant in MUTANTS]
    if last is not None and last not in names:
        raise SystemExit(f"there is no mutant {last!r}")
    return MUTANTS if last is None else MUTANTS[names.index(last) + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4_000, help="how many seeds each mutant has to survive")
    parser.add_argument("--baseline", type=int, default=300, help="how many seeds the library itself must pass first")
    parser.add_argument("--at-once", type=int, default=2, help="how many hunts run side by side")
    parser.add_argument("--only", help="hunt only mutants whose id contains this text")
    parser.add_argument("--after", help="go on behind this mutant, after a hunt that was interrupted")
    parser.add_argument("--missing", action="store_true", help="hunt only mutants that results.toml has not as caught")
    parser.add_argument("--record", action="store_true", help="keep what caught each in results.toml, for the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
