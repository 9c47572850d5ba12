"""Put one bug into a copy of the library; the simulation hunts it, then the contract, in processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from verification.mutants.catalogue import Mutant

__all__ = ["Verdict", "apply", "catching_test", "failing_test", "hunt", "planted"]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
NO_TESTS = 5  # how pytest ends when it has run none
PATIENCE = 600.0  # seconds for one mutant; a hang counts as caught
SLOWNESS = {
    "memory": 1,
    "redis": 8,
    "sqlite": 2,
    "redlock": 16,
    "etcd": 6,
    "mysql": 6,
    "nats": 6,
    "zookeeper": 10,
}  # how many seeds of the memory store take as long as one of this
# Who hunts what the simulation does not meet: some bugs need a history that hardly ever happens.
HUNTERS = {
    "memory": [["leasehold.testing.contract", "memory"]],
    "redis": [
        ["verification.simulation.redis.harness"],
        ["pytest", "-q", "-p", "no:cacheprovider", "tests/simulation/test_redis_findings.py"],
    ],
    "sqlite": [],
    "redlock": [],
    "etcd": [],
    "mysql": [],
    "nats": [],
    "zookeeper": [],
}
_FAILED_CASE = re.compile(r"^FAILED (?:\w+ \w+:|\S+::)(\w+)", re.MULTILINE)
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) ((tests/\S+?\.py)(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
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


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[dict[str, str]]:
    """The environment of programs that use a copy of the library with this bug."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SOURCE, copy)  # with what is compiled: the times of files are kept, so Python believes it
        if mutant is not None:
            apply(mutant, copy)
        yield {**os.environ, "PYTHONPATH": os.pathsep.join((str(copy), str(ROOT)))}


def hunt(mutant: Mutant | None, seeds: int, store: str = "memory") -> Verdict:
    """Run at most so many seeds on the mutant; None hunts the library as it is, which must survive."""
    store = store if mutant is None else mutant.store
    with planted(mutant) as environment:
        started = time.monotonic()
        if mutant is not None and mutant.tests:
            with planted(None) as sound:
                return Verdict(_catching_test(mutant.tests, environment, sound), 0, time.monotonic() - started)
        seeds = max(1, seeds // SLOWNESS[store])
        program = "everything" if mutant is None else mutant.program
        words = ["--store", store, "--program", program, "--seeds", str(seeds), "--shrink", "0"]
        finished = _run(["verification.simulation", *words], environment)
        if finished is None:
            return Verdict("hangs", seeds, time.monotonic() - started)
        verdict = _verdict(finished, seeds, time.monotonic() - started)
        if verdict.caught_by is None and mutant is not None:
            verdict = Verdict(_failing_case(store, environment), seeds, time.monotonic() - started)
        return verdict


def _failing_case(store: str, environment: dict[str, str]) -> str | None:
    """The first case of the contract, or the first small history, that fails on the mutant."""
    for hunter in HUNTERS[store]:
        finished = _run(hunter, environment)
        if finished is None:
            return f"{hunter[0]}: hangs"
        if (found := _FAILED_CASE.search(finished.stdout)) is not None:
            return f"case: {found[1]}"
    return None


def _catching_test(tests: tuple[str, ...], environment: dict[str, str], sound: dict[str, str]) -> str | None:
    """The name of the first of these tests that fails on the mutant, and not on the library as it is."""
    found = catching_test(tests, environment, sound)
    return found if found in (None, "hangs") else f"test: {found.partition('[')[0].rpartition('::')[2]}"


def catching_test(
    tests: Sequence[str], environment: dict[str, str], sound: dict[str, str], *words: str, again: bool = False
) -> str | None:
    """The first of these tests that fails with the bug and passes without it; `again`: and fails when it runs alone.

    A test that fails in both says nothing about the bug, and is left out from then on.
    """
    doubtful: list[str] = []
    while (found := failing_test(tests, environment, *words, *doubtful)) is not None:
        if found == "hangs":  # nobody knows which
            return None if failing_test(tests, sound, *words, *doubtful) == "hangs" else found
        if (not again or failing_test([found], environment)) and not failing_test([found], sound):
            return found
        print(f"does not depend on the bug: {found}", flush=True)
        doubtful.append(f"--deselect={found}")
    return None


def failing_test(tests: Sequence[str], environment: dict[str, str], *words: str) -> str | None:
    """The first of these tests that fails, as pytest names it; "hangs"; None if none does."""
    patience = PATIENCE * (1 + len(tests) // 4)
    finished = _run(["pytest", "-q", "-x", "-p", "no:cacheprovider", *words, *tests], environment, patience)
    if finished is None:
        return "hangs"
    nothing_is_left = finished.returncode == NO_TESTS and any(word.startswith("--deselect") for word in words)
    if finished.returncode == 0 or nothing_is_left:
        return None
    found = _FAILED_TEST.search(finished.stdout)
    if found is None:
        raise RuntimeError(f"the tests could not be run:\n{finished.stdout[-2000:]}{finished.stderr[-2000:]}")
    return found[1]


def _run(
    module: list[str], environment: dict[str, str], patience: float = PATIENCE
) -> subprocess.CompletedProcess[str] | None:
    """Run a module; None if it does not end."""
    command = [sys.executable, "-m", *module]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=patience
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
