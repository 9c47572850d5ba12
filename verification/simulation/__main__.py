"""`python -m verification.simulation`: run many seeds, or replay one."""

from __future__ import annotations

import argparse
import sys

from verification.simulation.campaign import Totals, report, run_all, tell_shrunk
from verification.simulation.programs import PROGRAMS
from verification.simulation.run import RECORDING, STORES, simulate
from verification.simulation.schedule import Schedule, parse_kept
from verification.simulation.shrink import SECONDS


def main(arguments: list[str] | None = None) -> int:
    """0: all seeds are clean. 1: a check failed. 2: the negative control lost nothing, so the run is void."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.program == "jobs" and options.store not in RECORDING:
        parser.error(f"{options.store} has no records, so that no job can run there")
    if options.seed is not None:
        return _replay(options)
    totals = Totals()
    for outcome in run_all(
        range(options.start, options.start + options.seeds), options.store, options.program, options.jobs
    ):
        totals.add(outcome)
        totals.show(f"{totals.seeds}/{options.seeds} seeds")
        if outcome.violations:
            print()
            report(outcome, options.store, options.program)
            if not options.keep_going:
                tell_shrunk(outcome, options.store, options.program, options.shrink)
                return 1
    totals.close()
    if totals.failed:
        return 1
    if totals.seeds >= 200 and not totals.sums["unfenced_losses"]:
        print("void: the register without fencing lost nothing, so nothing dangerous happened")
        return 2
    return 0


def _replay(options: argparse.Namespace) -> int:
    kept = None if options.keep is None else parse_kept(options.keep)
    outcome = simulate(
        options.seed,
        store=options.store,
        program=options.program,
        schedule=Schedule(kept, options.salt),
        lines=None if options.trace else 40,
    )
    if outcome.violations:
        report(outcome, options.store, options.program)
    else:
        print("\n".join(outcome.trace))
    print(f"trace hash {outcome.trace_hash}, {outcome.steps} steps, {outcome.virtual_seconds:.1f} virtual seconds")
    return 1 if outcome.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.simulation", description=__doc__)
    parser.add_argument("--store", choices=STORES, default="memory", help="which store the programs use")
    parser.add_argument("--program", choices=PROGRAMS, default="everything", help="what the programs do")
    parser.add_argument("--seed", type=int, help="replay this seed and print the end of its trace")
    parser.add_argument(
        "--keep", metavar="PARTS", help="with --seed: only these faults and steps, as a failure names them"
    )
    parser.add_argument("--salt", type=int, default=0, help="with --seed: the order of events, as a failure names it")
    parser.add_argument("--trace", action="store_true", help="with --seed: print the whole trace")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes to use")
    parser.add_argument(
        "--keep-going", action="store_true", help="do not stop at the first seed that fails, nor shrink it"
    )
    parser.add_argument("--shrink", type=float, default=SECONDS, metavar="SECONDS", help="how long to look for less")
    return parser


if __name__ == "__main__":
    sys.exit(main())
