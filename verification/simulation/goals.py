"""`python -m verification.simulation.goals`: so many fenced updates, or so many grants, and none may go wrong.

`--updates N`: seeds of the program `updates` until N fenced updates were acknowledged; none may be lost, and the
register without a fence must lose some. `--grants N`: seeds of the program `grants`, in each of which the store is
restarted empty or fails over, until N locks were granted and `--forgotten` such faults struck; no fence may be given
twice or come after a higher one.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from verification.simulation.campaign import Totals, report, run_all, tell_shrunk
from verification.simulation.run import FORGETFUL, STORES
from verification.simulation.shrink import SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Goal", "main", "pursue"]

# Of all updates and grants, the share of each store: fewer where a seed takes longer.
SHARES = {"memory": 40, "sqlite": 18, "redis": 15, "etcd": 8, "nats": 8, "zookeeper": 6, "mysql": 4, "redlock": 1}
GRANTS = {"redis": 45, "nats": 45, "redlock": 10}


@dataclass(frozen=True, slots=True)
class Goal:
    """What has to be reached on one store."""

    program: str
    store: str
    sums: dict[str, int]  # by the names of `Totals.sums`, joined by + where either counts

    def reached(self, totals: Totals) -> dict[str, int]:
        """How far it is."""
        return {names: sum(totals.sums[name] for name in names.split("+")) for names in self.sums}

    def is_reached(self, totals: Totals) -> bool:
        """Whether there is enough of everything."""
        return all(value >= self.sums[names] for names, value in self.reached(totals).items())


def pursue(goal: Goal, *, start: int = 0, jobs: int = 1, shrink: float = SECONDS) -> int:
    """Run seeds until the goal is reached; 1 if a check fails, 2 if nothing dangerous happened."""
    totals = Totals()
    print(f"{goal.program} on {goal.store}: {', '.join(f'{want:,} {names}' for names, want in goal.sums.items())}")
    for outcome in run_all(count(start), goal.store, goal.program, jobs):
        totals.add(outcome)
        if outcome.violations:
            report(outcome, goal.store, goal.program)
            tell_shrunk(outcome, goal.store, goal.program, shrink)
            totals.close()
            return 1
        totals.show(", ".join(f"{value:,} {names}" for names, value in goal.reached(totals).items()))
        if goal.is_reached(totals):
            break
    totals.close()
    lost = totals.sums["unfenced_losses"]
    if goal.program == "updates":
        print(f"lost fenced updates: 0 of {totals.sums['fenced_updates']:,}; without a fence {lost:,} were lost")
        return 0 if lost else 2
    print(
        f"repeated or falling fences: 0 in {totals.sums['grants']:,} grants with {totals.sums['failovers']:,} "
        f"failovers and {totals.sums['empty_restarts']:,} empty restarts"
    )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every goal that was asked for is reached."""
    parser = argparse.ArgumentParser(prog="python -m verification.simulation.goals", description=__doc__)
    parser.add_argument("--updates", type=int, default=0, help="fenced updates to make, over all stores named")
    parser.add_argument("--grants", type=int, default=0, help="grants to make, over all stores named that forget")
    parser.add_argument("--forgotten", type=int, default=1_000, help="failovers and empty restarts among the grants")
    parser.add_argument("--stores", default=",".join(STORES), help="which, with commas between")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes to use")
    options = parser.parse_args(arguments)
    if not options.updates and not options.grants:
        parser.error("say --updates N, or --grants N, or both")
    stores = options.stores.split(",")
    for goal in _goals(stores, options.updates, options.grants, options.forgotten):
        status = pursue(goal, start=options.start, jobs=options.jobs)
        if status:
            print("void: nothing dangerous happened" if status == 2 else "failed")
            return status
    return 0


def _goals(stores: Sequence[str], updates: int, grants: int, forgotten: int) -> list[Goal]:
    """Shared out among the stores; only those that can forget are asked for grants."""
    forgetful = [store for store in stores if store in FORGETFUL]
    goals = []
    if updates:
        goals += [
            Goal("updates", store, {"fenced_updates": _share(updates, store, stores, SHARES)}) for store in stores
        ]
    if grants:
        goals += [
            Goal(
                "grants",
                store,
                {
                    "grants": _share(grants, store, forgetful, GRANTS),
                    "failovers+empty_restarts": -(-forgotten // len(forgetful)),
                },
            )
            for store in forgetful
        ]
    return goals


def _share(number: int, store: str, stores: Sequence[str], shares: Mapping[str, int]) -> int:
    """Rounded up, so that all of them together are enough."""
    return -(-number * shares[store] // sum(shares[each] for each in stores))


if __name__ == "__main__":
    sys.exit(main())
