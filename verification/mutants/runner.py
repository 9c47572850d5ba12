"""Put one bug into a copy of the library; the simulation hunts it, then the contract, in processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["Verdict", "apply", "hunt"]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PATIENCE = 600.0  # seconds for one mutant; a hang counts as caught
SLOWNESS = {"memory": 1, "redis": 8}  # how many seeds of the memory store take as long as one of this
CONTRACT = {"memory": ["leasehold.testing.contract", "memory"], "redis": ["verification.simulation.redis.harness"]}
_FAILED_CASE = re.compile(r"^FAILED \w+ \w+:(\w+)", re.MULTILINE)
_VIOLATION = re.compile(r"^seed (\d+) violates: ([^:]+):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a hunt ended."""

    caught_by: str | None  # the check that failed; None: the mutant survived
    seeds: int  # how many were needed, or tried
    seconds: float


def apply(mutant: Mutant, source: Path) -> None:
    """Change a copy of `src`; the text to be changed must be there exactly once."""
    path = source / "leasehold" / mutant.file
    text = path.read_text()
    found = text.count(mutant.old)
    if found != 1:
        raise LookupError(f"{mutant.id}: its text occurs {found} times in {mutant.file}, not once")
    path.write_text(text.replace(mutant.old, mutant.new))


def hunt(mutant: Mutant | None, seeds: int, store: str = "memory") -> Verdict:
    """Run at most so many seeds on the mutant; None hunts the library as it is, which must survive."""
    store = store if mutant is None else mutant.store
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            apply(mutant, copy)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(copy), str(ROOT)))}
        started = time.monotonic()
        seeds = max(1, seeds // SLOWNESS[store])
        finished = _run(["verification.simulation", "--store", store, "--seeds", str(seeds)], environment)
        if finished is None:
            return Verdict("hangs", seeds, time.monotonic() - started)
        verdict = _verdict(finished, seeds, time.monotonic() - started)
        if verdict.caught_by is None and mutant is not None:
            case = _failing_case(store, environment)
            verdict = Verdict(case, seeds, time.monotonic() - started)
        return verdict


def _failing_case(store: str, environment: dict[str, str]) -> str | None:
    """The first case of the contract that fails on the mutant: some bugs need a history that hardly ever happens."""
    finished = _run(CONTRACT[store], environment)
    if finished is None:
        return "contract: hangs"
    found = _FAILED_CASE.search(finished.stdout)
    return None if found is None else f"contract: {found[1]}"


def _run(module: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Run a module; None if it does not end."""
    command = [sys.executable, "-m", *module]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return None


def _verdict(finished: subprocess.CompletedProcess[str], seeds: int, seconds: float) -> Verdict:
    if finished.returncode == 0:
        return Verdict(None, seeds, seconds)
    found = _VIOLATION.search(finished.stdout)
    if found is not None:
        return Verdict(found[2], int(found[1]) + 1, seconds)
    if finished.returncode == 2:  # the run was void, and no check failed
        return Verdict(None, seeds, seconds)
    raise RuntimeError(f"the simulation itself failed:\n{finished.stderr[-2000:]}")
