"""A test session that has loaded all tests and runs, for each mutant, the right ones in a process of its own."""

from __future__ import annotations

import gc
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from _pytest.runner import runtestprotocol

from verification.mutants.runner import ROOT
from verification.mutants.sweep.live import Loaded
from verification.mutants.sweep.reach import Known, digest
from verification.mutants.sweep.tracing import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

    from verification.mutants.sweep.journal import Journal
    from verification.mutants.sweep.places import Place
    from verification.mutants.sweep.reach import Reach

__all__ = ["Session"]

NOT_LIVE = "not live"  # a verdict: the change needs a new interpreter
# The fixtures of servers that a forked child can go on using; gRPC, which etcd needs, cannot be forked.
_SERVERS = ("postgres", "mariadb", "redis_server", "valkey_server", "redlock_nodes", "zookeeper", "nats_server")
PATIENCE = (
    6.0  # seconds that a test gets beside eight times what it usually takes; one that hangs has caught the mutant
)
CONTROLS = 500  # so many tests, the quickest, are run in a child without a change first
START = 30.0  # seconds that a new interpreter gets


class Session:
    """A pytest plugin: `pytest_runtestloop` is the whole sweep."""

    def __init__(
        self, copy: Path, scratch: Path, reach: Reach, map_file: Path, journal: Journal, budget: float
    ) -> None:
        self._copy, self._scratch = copy, scratch
        self._reach, self._map_file, self._journal, self._budget = reach, map_file, journal, budget
        self._items: dict[str, pytest.Item] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        versions = {path: digest(path) for path in {item.path for item in session.items}}
        tests = {item.nodeid: versions[item.path] for item in session.items}
        self._map(tests)
        self._warm_up(tests)
        self._reach.choose(self._without_failures(tests))
        places = self._journal.open_places()
        self._loaded = Loaded(f"{self._copy}/leasehold/", {place.file for place in places})
        gc.freeze()  # a collection in a child would touch, and so copy, all that it shares with this process
        for place in places:
            self._hunt(place)
        return True

    # The map

    def _map(self, tests: dict[str, str]) -> None:
        """Trace what is not known yet, in children; a test that ends its process is left out."""
        unknown = [test for test, version in tests.items() if not self._reach.has(test, version)]
        while unknown:
            print(f"tracing {len(unknown)} tests", flush=True)
            _in_a_child(partial(self._trace, unknown, tests), [1800.0])
            self._reach.load()
            left = [test for test in unknown if not self._reach.has(test, tests[test])]
            if len(left) == len(unknown):
                raise RuntimeError(f"{left[0]} cannot be traced")
            if left:
                self._note(Known(left[0], tests[left[0]], 0.0, passed=False, lines={}))
                self._reach.load()
            unknown = left[1:]

    def _trace(self, names: Sequence[str], tests: dict[str, str], _: int) -> None:
        lines = Lines(f"{self._copy}/leasehold/", self._scratch)
        for name, following in zip(names, [*names[1:], names[0]], strict=True):
            began = time.monotonic()
            lines.begin()
            passed = self._passes(name, following)
            self._note(Known(name, tests[name], round(time.monotonic() - began, 4), passed, lines.end()))

    def _note(self, known: Known) -> None:
        with self._map_file.open("a") as file:
            file.write(json.dumps(asdict(known)) + "\n")

    def _warm_up(self, tests: dict[str, str]) -> None:
        """Start the servers that tests share, here, so that not every child starts its own: run one test for each."""
        started: set[str] = set()
        for known in self._reach.quickest(tests):
            wanted = {name for name in _fixtures(self._items[known.test]) if name.endswith(_SERVERS)} - started
            if wanted:
                started |= wanted
                print(f"starting {', '.join(sorted(wanted))}", flush=True)
                self._passes(known.test, self._elsewhere(known.test))

    def _elsewhere(self, test: str) -> str:
        """A test of another folder: with it as the next one, pytest keeps only what the whole session shares."""
        folder = self._items[test].path.parent
        return next((name for name, item in self._items.items() if item.path.parent != folder), test)

    def _without_failures(self, tests: dict[str, str]) -> dict[str, str]:
        """Leave out what fails in a child without any change, such as a test that cannot bear a fork."""
        known = self._reach.quickest(tests)[:CONTROLS]
        failed: set[str] = set()
        while left := [one for one in known if one.test not in failed]:
            verdict = _in_a_child(partial(self._run, left), [PATIENCE + 8 * one.seconds for one in left])
            if verdict is None:
                break
            print(f"without a change: {verdict}", flush=True)
            if verdict not in {one.test for one in left}:  # it hangs, or ends the process: nothing can be said
                break
            failed.add(verdict)
            known = left[[one.test for one in left].index(verdict) + 1 :]
        return {test: version for test, version in tests.items() if test not in failed}

    # A mutant

    def _hunt(self, place: Place) -> None:
        path = self._copy / "leasehold" / place.file
        source = path.read_bytes()
        known = self._reach.tests_of(place, source, self._budget)
        limits = [PATIENCE + 8 * one.seconds for one in known]
        began = time.monotonic()
        verdict = "nothing reaches it" if not known else None
        try:
            _write(path, place.text(source))
            if known:
                verdict = _in_a_child(lambda pipe: self._run_live(pipe, place, source, known), limits)
            if verdict == NOT_LIVE:
                verdict = _in_a_child(lambda pipe: self._run_anew(pipe, known), [START + sum(limits)])
        finally:
            _write(path, source)
        self._journal.note(place, verdict, len(known), time.monotonic() - began)

    def _run_live(self, pipe: int, place: Place, source: bytes, known: list[Known]) -> None:
        if not self._loaded.change(place, source):
            os.write(pipe, NOT_LIVE.encode())
            return
        self._run(known, pipe)

    def _run(self, known: list[Known], pipe: int) -> None:
        names = [one.test for one in known]
        for name, following in zip(names, [*names[1:], names[0]], strict=True):
            if not self._passes(name, following):
                os.write(pipe, f"\n{name}".encode())
                return
            os.write(pipe, b".")
        os.write(pipe, b"\nsurvived")

    def _run_anew(self, pipe: int, known: list[Known]) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
        finished = subprocess.run(
            [*command, *(one.test for one in known[:200])], cwd=ROOT, capture_output=True, text=True, check=False
        )
        failed = [line for line in finished.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        found = failed[0].split(" - ")[0] if failed else "import" if finished.returncode else "survived"
        os.write(pipe, f"\n{found}".encode())

    def _passes(self, name: str, following: str) -> bool:
        reports = runtestprotocol(self._items[name], log=False, nextitem=self._items[following])
        return not any(report.failed for report in reports)


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


def _write(path: Path, text: bytes) -> None:
    """What Python compiled of the file before must go: a change within a second and of the same size looks old."""
    path.write_bytes(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _in_a_child(work: Callable[[int], None], limits: Sequence[float]) -> str | None:
    """What a forked process wrote after a line's end; None: it survived.

    It writes a dot for each step that is over. One that takes longer for a step than its limit, or for all steps than
    a few seconds and eight times their usual time, is ended; and in any case what it has started.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        # Python 3.11 keeps the number of the parent's thread.
        threading.main_thread()._native_id = threading.get_native_id()  # type: ignore[attr-defined]
        with suppress(BaseException):
            work(writing)
        os._exit(0)
    os.close(writing)
    last = time.monotonic() + 3 * PATIENCE + sum(limits) - len(limits) * PATIENCE if len(limits) > 1 else math.inf
    heard, ends = b"", time.monotonic() + limits[0]
    while (left := ends - time.monotonic()) > 0 and b"\n" not in heard:
        if select.select([reading], [], [], left)[0]:
            data = os.read(reading, 65536)
            if not data:
                break
            heard += data
            ends = min(last, time.monotonic() + limits[min(heard.count(b"."), len(limits) - 1)])
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    if heard == NOT_LIVE.encode():
        return NOT_LIVE
    said = heard.partition(b"\n")[2].decode()
    return None if said == "survived" else said or ("hangs" if left <= 0 else "ends the process")
