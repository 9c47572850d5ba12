"""`python -m verification.mutants.sweep MODULE...`: list the small changes of modules that no test notices.

MODULE is a file or a folder under src/leasehold. The tests of its part are traced once, line by line; then each mutant
gets the tests that reach its line, the quickest first. The map and the verdicts are kept in a folder of the cache, so a
sweep that is interrupted goes on where it was. A survivor is no proof of a missing test: judge it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from verification.mutants.areas import tests_of
from verification.mutants.runner import ROOT, SOURCE
from verification.mutants.sweep.journal import Journal, described
from verification.mutants.sweep.places import Place, optional_parameters, places_of
from verification.mutants.sweep.reach import Reach, digest
from verification.mutants.sweep.session import Session
from verification.mutants.sweep.tracing import write_child_hook

LIBRARY = SOURCE / "leasehold"
COPY = "LEASEHOLD_SWEEP_COPY"  # set in the process that has the copy of the library on its path


def main(arguments: list[str] | None = None) -> int:
    """0: nothing survived."""
    options = _parser().parse_args(arguments)
    cache = options.cache / digest(
        *sorted(path for path in LIBRARY.rglob("*") if path.suffix in (".py", ".lua", ".sql"))
    )
    cache.mkdir(parents=True, exist_ok=True)
    if COPY not in os.environ:
        _start_anew(cache)
    os.nice(10)
    places = _sampled(_places(options.modules), options.sample, options.seed)
    journal = Journal(cache / "verdicts.jsonl", places, again=options.again)
    if journal.open_places():
        tests = options.tests or _tests(options.modules)
        map_file = cache / "map.jsonl"
        session = Session(Path(os.environ[COPY]), cache / "lines", Reach(map_file), map_file, journal, options.budget)
        (cache / "lines").mkdir(exist_ok=True)
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[session])
    for place in journal.survivors():
        print(described(place))
    print(journal.report())
    return 1 if journal.survivors() else 0


def _start_anew(cache: Path) -> None:
    """In an interpreter that loads the library from a copy, where each mutant is written."""
    copy = cache / f"src-{os.getpid()}"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    hook = cache / "hook"
    hook.mkdir(exist_ok=True)
    write_child_hook(hook, f"{copy}/leasehold/")
    paths = os.pathsep.join((str(copy), str(hook), str(ROOT)))
    environment = {**os.environ, COPY: str(copy), "PYTHONPATH": paths}
    os.execve(sys.executable, [sys.executable, "-m", "verification.mutants.sweep", *sys.argv[1:]], environment)


def _places(modules: list[str]) -> list[Place]:
    optional = optional_parameters(LIBRARY)
    found: list[Place] = []
    for module in modules:
        start = LIBRARY / module
        for path in [start] if start.is_file() else sorted(start.rglob("*.py")):
            found += places_of(str(path.relative_to(LIBRARY)), path.read_bytes(), optional)
    return found


def _sampled(places: list[Place], count: int, seed: int) -> list[Place]:
    """A random choice of that size: the same for the same seed."""
    if not count or count >= len(places):
        return places
    chosen = random.Random(seed).sample(range(len(places)), count)
    return [places[index] for index in sorted(chosen)]


def _tests(modules: list[str]) -> list[str]:
    """Of the parts of these modules; those that read the sources would not see the copy."""
    patterns = {pattern: None for module in modules for pattern in tests_of(module)}
    found = {path: None for pattern in patterns for path in sorted(ROOT.glob(pattern))}
    return [str(path.relative_to(ROOT)) for path in found if path.name != "architecture"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.mutants.sweep", description=__doc__)
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    parser.add_argument("--tests", nargs="*", help="instead of the tests of the part")
    parser.add_argument("--sample", type=int, default=0, help="only so many mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="of that choice")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of tests that a mutant must survive")
    parser.add_argument(
        "--again", action="store_true", help="hunt those that survived once more, with the tests of today"
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "leasehold-sweep")
    return parser


if __name__ == "__main__":
    sys.exit(main())
