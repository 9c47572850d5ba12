"""The cells: stores by faults, for ours and for peers, as data from `matrix.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.lab.adapters import OURS, PEERS
from verification.lab.faults import FAULTS
from verification.lab.stages import STORES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Plan",
    "all_plans",
    "choose",
    "many_updates",
    "may_overlap",
    "note",
    "short_plans",
    "why_impossible",
    "why_unfair",
]

FILE = Path(__file__).with_suffix(".toml")
SHORT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One cell: what runs, how long it is disturbed, and from which seed its disturbance is drawn."""

    store: str
    fault: str
    workload: str = "update"
    library: str = OURS
    seconds: float = 8.0
    seed: int = 1
    updates: int = 0  # if given, the cell lasts until so many fenced updates are acknowledged

    @property
    def name(self) -> str:
        """For files and tables."""
        return f"{self.store}, {self.fault}, {self.workload}, {self.library}"

    @property
    def file_name(self) -> str:
        """Of its result."""
        return self.name.replace(", ", "--").replace(" ", "-") + ("--many" if self.updates else "")

    @property
    def command(self) -> str:
        """What runs it again."""
        words = [f"--store {self.store}", f"--fault '{self.fault}'", f"--workload {self.workload}"]
        words += [f"--library {self.library}", f"--seconds {self.seconds:g}", f"--seed {self.seed}"]
        words += [f"--updates {self.updates}"] if self.updates else []
        return f"python -m verification.lab run {' '.join(words)} --again"

    def to_dict(self) -> dict[str, Any]:
        """For the result."""
        return asdict(self)


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text())


def _said(part: str, store: str, fault: str) -> str:
    answer: str = _data().get(part, {}).get(store, {}).get(fault, "")
    return answer


def why_impossible(plan: Plan) -> str:
    """Why a cell makes no sense; empty if it does."""
    if plan.library != OURS and plan.store not in PEERS[plan.library].stores:
        return f"the lab has no adapter of {plan.library} for this store"
    return _said("impossible", plan.store, plan.fault)


def may_overlap(plan: Plan) -> str:
    """Why two holders may believe at the same time; empty if they must not."""
    return _said("overlap", plan.store, plan.fault)


def why_unfair(plan: Plan) -> str:
    """Why a client may wait for long although the lock goes round; empty if it must not."""
    unfair: dict[str, str] = _data()["unfair"]
    return unfair.get(plan.store if plan.library == OURS else plan.library, "")


def note(plan: Plan) -> str:
    """What a reader of the cell should know."""
    return _said("notes", plan.store, plan.fault)


def choose(
    *,
    stores: Sequence[str] = (),
    faults: Sequence[str] = (),
    workloads: Sequence[str] = (),
    libraries: Sequence[str] = (),
    seconds: float,
    seed: int,
) -> list[Plan]:
    """The cells of these stores, faults, workloads and libraries; nothing chosen means all of them."""
    return [
        plan
        for plan in all_plans(seconds, seed)
        if (not stores or plan.store in stores)
        and (not faults or plan.fault in faults)
        and (not workloads or plan.workload in workloads)
        and (not libraries or plan.library in libraries)
    ]


def many_updates(updates: int, seed: int, among: Sequence[Plan]) -> list[Plan]:
    """The goal of so many real fenced updates, shared out among those of these cells that are meant for it."""
    wanted = {(plan.store, plan.fault) for plan in among}
    meant = [(store, fault) for store, faults in _data()["many"].items() for fault in faults]
    cells = [cell for cell in meant if cell in wanted]
    share = -(-updates // max(1, len(cells)))
    return [Plan(store, fault, seconds=0.0, seed=seed, updates=share) for store, fault in cells]


def short_plans(seed: int) -> list[Plan]:
    """What runs with the tests."""
    cells = [(store, fault) for store, faults in _data()["short"].items() for fault in faults]
    return [Plan(store, fault, seconds=SHORT_SECONDS, seed=seed) for store, fault in cells]


def all_plans(seconds: float, seed: int) -> list[Plan]:
    """Ours on every store first, then the other workloads, then the peers."""
    plans = [Plan(store, fault, seconds=seconds, seed=seed) for store in STORES for fault in FAULTS]
    for workload, where in _data()["workloads"].items():
        plans += [
            Plan(store, fault, workload, seconds=seconds, seed=seed)
            for store in where["stores"]
            for fault in where["faults"]
        ]
    for peer in PEERS.values():
        plans += [
            Plan(store, fault, library=peer.name, seconds=seconds, seed=seed)
            for store in peer.stores
            for fault in FAULTS
        ]
    return plans
