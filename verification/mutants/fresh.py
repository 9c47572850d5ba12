"""`python -m verification.mutants.fresh BUGS.toml`: bugs that are in no catalogue, hunted by the tests of their part.

The file has a table `[[bug]]` for each: `id`, `harm` (what a user would suffer), `file` (under src/leasehold), and the
exact texts `old` and `new`. Write them without looking at the tests. What survives needs a test.

The few test files nearest to the bug go first, then all others of the part, several at a time. A test that fails has
caught the bug only if it fails again by itself, and passes on the library as it is: a busy machine fails tests as well.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise
from pathlib import Path

from verification.mutants.areas import tests_of
from verification.mutants.catalogue import Mutant
from verification.mutants.runner import ROOT, Verdict, catching_test, planted

FIRST = 3  # test files that are asked alone
_FOLDERS = {"backends", "core", "face", "patterns", "runtimes"}  # of the library, not words of a subject


def main(arguments: list[str] | None = None) -> int:
    """0: all were caught."""
    parser = argparse.ArgumentParser(prog="python -m verification.mutants.fresh", description=__doc__)
    parser.add_argument("bugs", type=Path)
    parser.add_argument("--at-once", type=int, default=2, help="how many hunts run side by side")
    parser.add_argument("--only", default="", help="only bugs whose id contains this text")
    parser.add_argument("--nearest", type=int, default=1000, help="only so many test files, those nearest to the bug")
    parser.add_argument("--workers", type=int, default=4, help="how many of the further test files run at once")
    options = parser.parse_args(arguments)
    bugs = [bug for bug in read(options.bugs) if options.only in bug.id]
    survivors = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        hunts = {pool.submit(_hunt, bug, options.nearest, options.workers): bug for bug in bugs}
        for done in as_completed(hunts):
            bug, verdict = hunts[done], done.result()
            survivors += verdict.caught_by is None
            caught = verdict.caught_by or f"SURVIVED: {bug.description}"
            print(f"{bug.id:40} {caught:100} {verdict.seconds:6.0f} s", flush=True)
    print(f"{len(bugs) - survivors} of {len(bugs)} caught")
    return 1 if survivors else 0


def read(path: Path) -> list[Mutant]:
    """The bugs of a file, each with the tests of its part."""
    found = tomllib.loads(path.read_text())["bug"]
    return [Mutant(bug["id"], bug["harm"], bug["file"], bug["old"], bug["new"], _paths(bug["file"])) for bug in found]


def _paths(file: str) -> tuple[str, ...]:
    """The test files of its part, those that mention the module first: most bugs are met there, in seconds."""
    found = {
        path: None
        for pattern in tests_of(file)
        for place in sorted(ROOT.glob(pattern))
        for path in ([place] if place.is_file() else sorted(place.rglob("test_*.py")))
    }
    return tuple(str(path.relative_to(ROOT)) for path in sorted(found, key=lambda path: -_kinship(path, file)))


def _kinship(test: Path, file: str) -> int:
    """How much a test file has to do with a module: the words of its path, and imports of it."""
    module = Path(file).with_suffix("")
    path = str(test.relative_to(ROOT / "tests"))
    shared = sum(word in path for word in re.findall(r"[a-z]{3,}", str(module)) if word not in _FOLDERS)
    return 3 * shared + 4 * (re.search(_import_of(module), test.read_text()) is not None)


def _import_of(module: Path) -> str:
    """A pattern of the two ways to import it."""
    folder, name = re.escape(".".join(("leasehold", *module.parts[:-1]))), re.escape(module.name)
    return rf"\b{folder}(\.{name}\b| import [^\n]*\b{name}\b)"


def _hunt(bug: Mutant, nearest: int, workers: int) -> Verdict:
    """A few files at a time, so that a hang in a later one does not hide what an earlier one saw."""
    began = time.monotonic()
    with planted(bug) as environment, planted(None) as sound:
        for paths in batched(bug.tests[:nearest]):
            side_by_side = [f"-n{workers}", "--dist=loadfile"] if workers > 1 and len(paths) > FIRST else []
            found = catching_test(paths, environment, sound, *side_by_side, again=True)
            if found is not None:
                return Verdict(found, 0, time.monotonic() - began)
    return Verdict(None, 0, time.monotonic() - began)


def batched(tests: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The nearest few alone, then the others, for the most part together."""
    edges = [0, FIRST, 4 * FIRST, len(tests)]
    found = [tests[start:end] for start, end in pairwise(edges)]
    return [batch for batch in found if batch]


if __name__ == "__main__":
    sys.exit(main())
