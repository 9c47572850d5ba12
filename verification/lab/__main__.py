"""The fault lab: real servers, client processes, faults, and checks of what happened.

    python -m verification.lab run                                     # every cell; goes on where it was interrupted
    python -m verification.lab run --seconds 120 --seed 2              # the long form
    python -m verification.lab run --store redis --fault kill --again  # one cell anew
    python -m verification.lab run --updates 100000                    # until so many fenced updates are counted
    python -m verification.lab report                                  # the page and the tables, from the results

Results are JSON files, one per cell, in build/lab; a cell that has one is not run again unless `--again` is given.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab.adapters import OURS, PEERS
from verification.lab.cell import Cell
from verification.lab.faults import FAULTS
from verification.lab.matrix import Plan, choose, many_updates, short_plans, why_impossible
from verification.lab.progress import Progress
from verification.lab.report.page import draw_page
from verification.lab.report.picture import draw
from verification.lab.report.results import read_folder, write_compact
from verification.lab.report.tables import TITLES
from verification.lab.stages import STORES
from verification.lab.verdict import BROKEN, FAILED, IMPOSSIBLE, VOID, Result
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


def run_cell(plan: Plan, folder: Path, progress: Progress | None = None) -> Result:
    """Run a cell and write its result; an error of the lab itself is a result too."""
    shown = progress or Progress(1)
    shown.begin(plan)
    if reason := why_impossible(plan):
        result = Result(plan.to_dict(), plan.command, IMPOSSIBLE, reason)
    else:
        try:
            result = Cell(plan, folder / f"{plan.file_name}.jsonl", shown.step).run()
        except Exception as error:
            traceback.print_exc()
            result = Result(plan.to_dict(), plan.command, BROKEN, f"{type(error).__name__}: {error}"[:500])
        result.version = _version(plan.library)
    _write(folder / f"{plan.file_name}.json", result)
    shown.end(result)
    return result


def _version(library: str) -> str:
    if library != OURS:
        return PEERS[library].version()
    from importlib.metadata import version  # noqa: PLC0415 - for one line

    return version(OURS)


def _write(path: Path, result: Result) -> None:
    """Whole or not at all: an interrupted run leaves no half of a file."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result.to_dict(), indent=1) + "\n")
    part.replace(path)


def _run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    plans = short_plans(arguments.seed) if arguments.short else _chosen(arguments)
    left = [plan for plan in plans if arguments.again or not _is_done(plan, folder)]
    if len(left) < len(plans):
        print(f"{len(plans) - len(left)} of {len(plans)} cells have a result in {folder}; --again runs them anew")
    progress = Progress(len(left))
    results = [run_cell(plan, folder, progress) for plan in left]
    bad = [result for result in results if _is_bad(result)]
    print(f"{len(results)} cells, {len(bad)} of ours failed, void or broken")
    return 1 if bad else 0


def _is_done(plan: Plan, folder: Path) -> bool:
    """Whether there is a result of the very same plan, from a run that was interrupted later."""
    path = folder / f"{plan.file_name}.json"
    return path.exists() and json.loads(path.read_text())["plan"] == plan.to_dict()


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


def _is_bad(result: Result) -> bool:
    """That a peer fails is a finding and not an error."""
    return result.verdict in (FAILED, VOID, BROKEN) and result.plan["library"] == OURS


def _report(arguments: argparse.Namespace) -> int:
    """The page, and on demand what the documents are drawn from."""
    cells = read_folder(arguments.folder)
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
    run.add_argument("--folder", type=Path, default=FOLDER)
    run.set_defaults(does=_run)
    report = verbs.add_parser("report", help="the page and the tables, from the results")
    report.add_argument("--folder", type=Path, default=FOLDER)
    report.add_argument("--docs", action="store_true", help="also what the documents are drawn from")
    report.add_argument("--note", default="", help="a sentence about the machine and the day")
    report.set_defaults(does=_report)
    arguments = parser.parse_args(words)
    code: int = arguments.does(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
