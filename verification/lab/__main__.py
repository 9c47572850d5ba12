"""The fault lab: real servers, client processes, faults, and checks of what happened.

    python -m verification.lab run                                     # every cell; goes on where it was interrupted
    python -m verification.lab run --seconds 120 --seed 2              # the long form
    python -m verification.lab run --at-once 2                         # two cells side by side
    python -m verification.lab run --store redis --fault kill --again  # one cell anew
    python -m verification.lab run --updates 100000                    # until so many fenced updates are counted
    python -m verification.lab report                                  # the page and the tables, from the results

Results are JSON files, one per cell, in build/lab; a cell that has one is not run again unless `--again` is given.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab.adapters import OURS, PEERS
from verification.lab.faults import FAULTS
from verification.lab.history import read_history
from verification.lab.matrix import Plan, choose, many_updates, short_plans
from verification.lab.progress import Progress
from verification.lab.report.page import draw_page
from verification.lab.report.picture import draw
from verification.lab.report.results import read_folders, write_compact
from verification.lab.report.tables import TITLES
from verification.lab.running import is_spoiled, run_alone, run_cell, run_side_by_side, write_result
from verification.lab.stages import STORES
from verification.lab.stages.base import Stage
from verification.lab.verdict import BROKEN, FAILED, VOID, Result, judge
from verification.lab.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "run_cell"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "lab"
DOCUMENT = ROOT / "docs" / "reference" / "lab.json"
PLOTS = ROOT / "docs" / "plots"
PICTURES = {
    "pause": ("redis", "pause clients"),
    "silence": ("redis", "silent drop"),
    "empty": ("redis", "restart empty"),
}


def _run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    plans = short_plans(arguments.seed) if arguments.short else _chosen(arguments)
    left = [plan for plan in plans if arguments.again or not _is_done(plan, folder)]
    if len(left) < len(plans):
        print(f"{len(plans) - len(left)} of {len(plans)} cells have a result in {folder}; --again runs them anew")
    progress = Progress(len(left))
    if arguments.at_once > 1:
        results = run_side_by_side(left, folder, progress, arguments.at_once)
    else:
        results = run_alone(left, folder, progress)
    bad = [result for result in results if _is_bad(result)]
    print(f"{len(results)} cells, {len(bad)} of ours failed, void or broken")
    return 1 if bad else 0


def _is_done(plan: Plan, folder: Path) -> bool:
    """Whether there is a result of the very same plan, from a run that was interrupted later.

    What the neighbours may have spoiled does not count before it was run alone.
    """
    path = folder / f"{plan.file_name}.json"
    if not path.exists():
        return False
    result = Result(**json.loads(path.read_text()))
    return result.plan == plan.to_dict() and (bool(result.before) or not is_spoiled(result))


def _chosen(arguments: argparse.Namespace) -> list[Plan]:
    plans = choose(
        stores=arguments.store,
        faults=arguments.fault,
        workloads=arguments.workload,
        libraries=arguments.library,
        seconds=arguments.seconds,
        seed=arguments.seed,
    )
    if arguments.updates:
        return many_updates(arguments.updates, arguments.seed, plans)
    return plans


def _judge(arguments: argparse.Namespace) -> int:
    """The checks of today over the histories that are there."""
    bad = 0
    for path in sorted(arguments.folder.glob("*.jsonl")):
        whole = path.with_suffix(".json")
        kept = json.loads(whole.read_text()) if whole.exists() else {"counts": {}}
        if not kept["counts"]:
            continue  # it was interrupted, or could not be run
        result = judge(Plan(**kept["plan"]), read_history(path), kept["ttl"], Stage.clients)
        result.seconds, result.version, result.before = kept["seconds"], kept["version"], kept.get("before", "")
        write_result(arguments.folder, Plan(**kept["plan"]), result)
        if result.verdict != kept["verdict"]:
            print(f"{Plan(**kept['plan']).name}: {kept['verdict']} before, {result.verdict} now")
        bad += _is_bad(result)
    return 1 if bad else 0


def _is_bad(result: Result) -> bool:
    """That a peer fails is a finding and not an error."""
    return result.verdict in (FAILED, VOID, BROKEN) and result.plan["library"] == OURS


def _report(arguments: argparse.Namespace) -> int:
    """The page, and on demand what the documents are drawn from."""
    cells = read_folders([arguments.folder, *arguments.also])
    page: Path = arguments.folder / "report.html"
    page.write_text(draw_page(cells, arguments.note))
    print(f"{page}: {len(cells)} cells")
    if arguments.docs:
        write_compact(cells, DOCUMENT)
        for name, (store, fault) in PICTURES.items():
            for cell in cells:
                plan = cell.plan
                if (plan.store, plan.fault, plan.workload, plan.library) == (
                    store,
                    fault,
                    "update",
                    OURS,
                ) and cell.timeline:
                    title = f"{TITLES[store]}, {fault}: who believed to hold the lock"
                    (PLOTS / f"lab-{name}.svg").write_text(draw(cell, title))
        print(f"{DOCUMENT} and pictures; now: make docs")
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line, or these words."""
    parser = argparse.ArgumentParser(prog="python -m verification.lab", description="the fault lab")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="run cells")
    run.add_argument("--store", action="append", choices=STORES, default=[])
    run.add_argument("--fault", action="append", choices=FAULTS, default=[])
    run.add_argument("--workload", action="append", choices=sorted(WORKLOADS), default=[])
    run.add_argument("--library", action="append", choices=[OURS, *PEERS], default=[])
    run.add_argument("--seconds", type=float, default=3.0, help="of disturbance in each cell")
    run.add_argument("--updates", type=int, default=0, help="instead of seconds: until so many, over the chosen cells")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--short", action="store_true", help="the few cells that run with the tests")
    run.add_argument("--again", action="store_true", help="also cells that have a result")
    run.add_argument(
        "--at-once", type=int, default=1, help="cells side by side; what they may spoil is run again alone"
    )
    run.add_argument("--folder", type=Path, default=FOLDER)
    run.set_defaults(does=_run)
    again = verbs.add_parser("judge", help="check the histories that are there once more")
    again.add_argument("--folder", type=Path, default=FOLDER)
    again.set_defaults(does=_judge)
    report = verbs.add_parser("report", help="the page and the tables, from the results")
    report.add_argument("--folder", type=Path, default=FOLDER)
    report.add_argument("--also", type=Path, action="append", default=[], help="a further folder, if it is there")
    report.add_argument("--docs", action="store_true", help="also what the documents are drawn from")
    report.add_argument("--note", default="", help="a sentence about the machine and the day")
    report.set_defaults(does=_report)
    arguments = parser.parse_args(words)
    code: int = arguments.does(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
