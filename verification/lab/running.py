"""Runs cells: one after the other in this process, or several side by side, each in a process of its own.

Most of a cell is waiting, so that two at once nearly halve the time. A machine that is busy with a neighbour may spoil
two kinds of cells: one that judges a time, and a control that met no pause. Such a cell is run again alone, and says
so. A broken promise of safety stands as it was found: no repetition takes it away.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab.adapters import OURS, PEERS
from verification.lab.cell import Cell
from verification.lab.matrix import Plan, why_impossible
from verification.lab.progress import Progress
from verification.lab.verdict import BROKEN, FAILED, IMPOSSIBLE, VOID, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_spoiled", "run_alone", "run_cell", "run_side_by_side", "write_result"]

ROOT = Path(__file__).resolve().parents[2]
TIMED = {"late loss", "starvation", "leak"}  # checks that wait for something, on a machine that may be busy
REDRAW = 0.5


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
    write_result(folder, plan, result)
    shown.end(result)
    return result


def _version(library: str) -> str:
    if library != OURS:
        return PEERS[library].version()
    from importlib.metadata import version  # noqa: PLC0415 - for one line

    return version(OURS)


def write_result(folder: Path, plan: Plan, result: Result) -> None:
    """Whole or not at all: an interrupted run leaves no half of a file."""
    path = folder / f"{plan.file_name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result.to_dict(), indent=1) + "\n")
    part.replace(path)


def run_alone(plans: Sequence[Plan], folder: Path, progress: Progress) -> list[Result]:
    """One after the other."""
    return [run_cell(plan, folder, progress) for plan in plans]


def run_side_by_side(plans: Sequence[Plan], folder: Path, progress: Progress, at_once: int) -> list[Result]:
    """So many at once; then alone what the others may have spoiled."""
    results = dict(zip(plans, _together(plans, folder, progress, at_once), strict=True))
    spoiled = [plan for plan, result in results.items() if is_spoiled(result)]
    progress.more(len(spoiled))
    for plan in spoiled:
        before = _in_short(results[plan])
        results[plan] = run_cell(plan, folder, progress)
        results[plan].before = before
        write_result(folder, plan, results[plan])
    return list(results.values())


def is_spoiled(result: Result) -> bool:
    """Whether its neighbours may be the reason of a bad result: nothing but times, a quiet control, or no start."""
    if result.verdict in (VOID, BROKEN):
        return True
    return result.verdict == FAILED and {each["check"] for each in result.violations} <= TIMED


def _in_short(result: Result) -> str:
    said = [f"{each['check']}: {each['detail']}" for each in result.violations] or [result.reason]
    return f"{result.verdict} beside another cell ({'; '.join(said)}), then run again alone"


def _together(plans: Sequence[Plan], folder: Path, progress: Progress, at_once: int) -> list[Result]:
    with ThreadPoolExecutor(at_once) as pool:
        futures = {pool.submit(_in_a_process, plan, folder): plan for plan in plans}
        try:
            _watch(futures, progress)
        except BaseException:  # an interrupted run goes on later; the cells that run now end by the same signal
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _watch(futures: dict[Future[Result], Plan], progress: Progress) -> None:
    left = set(futures)
    started: dict[Future[Result], float] = {}
    while left:
        done, left = wait(left, REDRAW, FIRST_COMPLETED)
        for future in done:
            progress.begin(futures[future])
            progress.end(future.result())
        running = [future for future in futures if future in left and future.running()]
        for future in running:
            started.setdefault(future, time.monotonic())
        progress.several([(futures[future].name, started[future]) for future in running])


def _in_a_process(plan: Plan, folder: Path) -> Result:
    """What its process has written to the file of the cell."""
    words = [sys.executable, "-m", "verification.lab.running", json.dumps(plan.to_dict()), str(folder)]
    (folder / f"{plan.file_name}.json").unlink(missing_ok=True)
    ended = subprocess.run(words, cwd=ROOT, check=False, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    path = folder / f"{plan.file_name}.json"
    if path.exists():
        return Result(**json.loads(path.read_text()))
    result = Result(plan.to_dict(), plan.command, BROKEN, f"its process ended with {ended.returncode}")
    write_result(folder, plan, result)
    return result


if __name__ == "__main__":
    run_cell(Plan(**json.loads(sys.argv[1])), Path(sys.argv[2]))
