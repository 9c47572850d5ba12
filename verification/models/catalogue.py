"""Every instance that is searched, what it must show, and which part it belongs to.

The fast part runs with the tests; the full part is `make models`. What the last full run found is in `results.toml`,
from which the table of the documentation is drawn; the tests compare the fast part with it, number by number.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verification.models.ballot import Ballot, CounterOfEachNode, ReadThenWrite
from verification.models.exclusion import Exclusion
from verification.models.explorer import Limits, Model
from verification.models.guard import Guard
from verification.models.hybrid import HybridClock
from verification.models.quarantine import Quarantine

__all__ = ["GROUPS", "INSTANCES", "RESULTS", "Instance", "recorded"]

RESULTS = Path(__file__).parent / "results.toml"
GROUPS = {
    "fence": "Redlock: the number",
    "quarantine": "Redlock: nodes that forget",
    "exclusion": "Redlock: at most one believes",
    "hybrid": "One store that fails over",
    "guard": "The guard at the resource",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """One search: its name, what it is in words, the model, and whether it must hold."""

    id: str
    words: str
    model: Model[Any]
    holds: bool
    fast: bool = True
    limits: Limits | None = None
    shown: bool = True  # in the table of the documentation, which shows only one row of a grid

    @property
    def group(self) -> str:
        """The first part of its name."""
        return self.id.partition("-")[0]


def _fence() -> list[Instance]:
    return [
        Instance(
            "fence-incr",
            "each node counts for itself, the number is the highest",
            CounterOfEachNode(attempts=2),
            holds=False,
        ),
        Instance(
            "fence-read-loose",
            "read, write the highest + 1; a node accepts what it has already",
            ReadThenWrite(attempts=2, strict=False),
            holds=False,
        ),
        Instance(
            "fence-read-strict", "the same; a node accepts only what is higher", ReadThenWrite(attempts=2), holds=True
        ),
        Instance(
            "fence-any", "ballot, but a node accepts any number", Ballot(attempts=2, numbers=2, rule="any"), holds=False
        ),
        Instance(
            "fence-empty",
            "ballot, and one node restarts empty without sitting out",
            Ballot(attempts=2, numbers=2, wipes=1),
            holds=False,
        ),
        Instance(
            "fence-ballot", "**ballot**: 3 nodes, 3 attempts, 4 numbers", Ballot(attempts=3, numbers=4), holds=True
        ),
        Instance(
            "fence-repair",
            "ballot with renewal and repair: 3 nodes, 2 attempts, 3 numbers",
            Ballot(attempts=2, numbers=3, repair=True),
            holds=True,
        ),
        Instance(
            "fence-five", "ballot: 5 nodes, 2 attempts, 3 numbers", Ballot(nodes=5, attempts=2, numbers=3), holds=True
        ),
        Instance(
            "fence-even", "ballot: 4 nodes, 2 attempts, 3 numbers", Ballot(nodes=4, attempts=2, numbers=3), holds=True
        ),
        Instance(
            "fence-four-attempts",
            "ballot: 3 nodes, 4 attempts, 3 numbers",
            Ballot(attempts=4, numbers=3),
            holds=True,
            fast=False,
        ),
        Instance(
            "fence-repair-three",
            "ballot with repair: 3 nodes, 3 attempts, 3 numbers",
            Ballot(attempts=3, numbers=3, repair=True),
            holds=True,
            fast=False,
        ),
    ]


def _quarantine() -> list[Instance]:
    found = [
        Instance(
            f"quarantine-{sits_out}",
            f"window 1, a node that forgot sits out {sits_out} ticks",
            Quarantine(sits_out=sits_out),
            holds=sits_out > 2,
        )
        for sits_out in range(4)
    ]
    found += [
        Instance("quarantine-no-guard", "no guard", Quarantine(guard="none"), holds=False),
        Instance(
            "quarantine-uptime",
            "guard by uptime: FLUSHALL is not noticed",
            Quarantine(guard="uptime"),
            holds=False,
        ),
        Instance(
            "quarantine-marker",
            "guard by a marker without run id: an old snapshot is not noticed",
            Quarantine(guard="marker"),
            holds=False,
        ),
        Instance(
            "quarantine-late",
            "the number of an idle name expires when the window has passed it",
            Quarantine(forgets="late"),
            holds=True,
        ),
        Instance(
            "quarantine-early",
            "the number expires with the lock",
            Quarantine(forgets="early", wipes=0),
            holds=False,
        ),
        Instance(
            "quarantine-raised",
            "an operator raised the fence ahead of the clock on a majority, then a node forgets",
            Quarantine(raises=5),
            holds=False,
            fast=False,
        ),
        Instance(
            "quarantine-raised-kept",
            "the same, and no node forgets",
            Quarantine(raises=5, wipes=0),
            holds=True,
        ),
        Instance(
            "quarantine-raised-on-all",
            "the fence was raised ahead of the clock on all nodes, then one forgets",
            Quarantine(raises=5, raised_on=3),
            holds=True,
            fast=False,
        ),
        Instance(
            "quarantine-three-attempts",
            "window 1, sits out 3 ticks, 3 attempts",
            Quarantine(attempts=3),
            holds=True,
            fast=False,
        ),
        Instance(
            "quarantine-skewed",
            "window 1, sits out 3, clocks off by 0 or 1",
            Quarantine(skews=(0, 1), until=6),
            holds=True,
            fast=False,
        ),
        Instance(
            "quarantine-twice",
            "window 1, sits out 3, two losses",
            Quarantine(skews=(0,), until=7, wipes=2),
            holds=True,
            fast=False,
        ),
    ]
    found += [
        Instance(
            f"quarantine-wide-{sits_out}",
            f"window 2, clocks off by 0 or 1, sits out {sits_out} ticks",
            Quarantine(window=2, sits_out=sits_out, skews=(0, 1), until=8),
            holds=sits_out > 4,
            fast=False,
            limits=Limits(states=6_000_000, seconds=1800),
        )
        for sits_out in (0, 2, 3, 4, 5)
    ]
    return found


def _exclusion() -> list[Instance]:
    return [
        Instance(
            "exclusion-plain", "votes, renewal, repair, release; ttl 2; no node forgets", Exclusion(wipes=0), holds=True
        ),
        Instance(
            "exclusion-from-answer",
            "validity counts from the answer",
            Exclusion(wipes=0, flaw="validity counts from the answer"),
            holds=False,
        ),
        Instance(
            "exclusion-minority",
            "an extension by a minority counts",
            Exclusion(wipes=0, flaw="an extension by a minority counts"),
            holds=False,
        ),
        Instance(
            "exclusion-owner",
            "a retry keeps its owner, so a late clean-up frees it",
            Exclusion(wipes=0, attempts=3, flaw="a retry keeps its owner"),
            holds=False,
        ),
        Instance(
            "exclusion-jump", "the clock of one node jumps ahead", Exclusion(wipes=0, flaw="a clock jumps"), holds=False
        ),
        Instance("exclusion-0", "a node forgets and votes at once", Exclusion(sits_out=0), holds=False),
        Instance(
            "exclusion-1", "a node forgets and sits out 1 tick, less than a ttl", Exclusion(sits_out=1), holds=False
        ),
        Instance(
            "exclusion-sits-and-confirms",
            "a node that sits out is repaired and its confirmation counts",
            Exclusion(flaw="a node that sits out confirms"),
            holds=False,
        ),
        Instance(
            "exclusion-2",
            "a node forgets and sits out a ttl; meanwhile it confirms nothing",
            Exclusion(),
            holds=True,
            fast=False,
        ),
        Instance(
            "exclusion-2-twice",
            "the same, two losses, no repair",
            Exclusion(wipes=2, repair="never"),
            holds=True,
            fast=False,
        ),
        Instance(
            "exclusion-three",
            "3 attempts, no renewal, a node forgets and sits out a ttl",
            Exclusion(attempts=3, renewals=False),
            holds=True,
            fast=False,
        ),
    ]


def _hybrid() -> list[Instance]:
    found = [
        Instance(
            f"hybrid-{lead}-{run_ahead}-{gap}",
            f"old clock {lead:+} of the new one, numbers up to {run_ahead} ahead, gap {gap}",
            HybridClock(lead=lead, run_ahead=run_ahead, gap=gap),
            holds=gap > lead + run_ahead,
            shown=(lead, run_ahead) == (1, 1),
        )
        for lead in range(-1, 3)
        for run_ahead in range(3)
        for gap in range(6)
    ]
    return [
        *found,
        Instance(
            "hybrid-split",
            "split brain: the old primary goes on granting",
            HybridClock(split_brain=True, gap=4),
            holds=False,
        ),
        Instance(
            "hybrid-remembers",
            "gap 0, but one client that adds 1 to the highest it has seen",
            HybridClock(gap=0, remembers=True, run_ahead=5),
            holds=True,
        ),
        Instance(
            "hybrid-kept-from-number",
            "an idle number expires a while after *its own* time",
            HybridClock(failovers=False, keep=1, run_ahead=3),
            holds=True,
        ),
        Instance(
            "hybrid-kept-from-grant",
            "an idle number expires a while after its *grant*, and had run ahead",
            HybridClock(failovers=False, keep=1, run_ahead=3, keep_from="grant"),
            holds=False,
        ),
    ]


def _guard() -> list[Instance]:
    return [
        Instance("guard-none", "33 and 34 read and write, no fence", Guard("ww", "none"), holds=False),
        Instance("guard-writes", "the fence is checked on writes only", Guard("ww", "writes"), holds=False),
        Instance("guard-first-read", "the fence is raised before the first read", Guard("ww", "reads too"), holds=True),
        Instance(
            "guard-two-registers",
            "writer, reader, reader, writer with two registers",
            Guard("wrrw", "two registers"),
            holds=True,
        ),
        Instance(
            "guard-three-writers",
            "writer, writer, reader, reader, writer with two registers",
            Guard("wwrrw", "two registers"),
            holds=True,
        ),
        Instance("guard-readers-unseen", "readers leave nothing behind", Guard("wr", "readers unseen"), holds=False),
        Instance(
            "guard-one-register", "readers and writers share one register", Guard("rrw", "one register"), holds=False
        ),
    ]


INSTANCES: tuple[Instance, ...] = (*_fence(), *_quarantine(), *_exclusion(), *_hybrid(), *_guard())


def recorded() -> dict[str, dict[str, Any]]:
    """What the last full run found, by instance."""
    return tomllib.loads(RESULTS.read_text())
