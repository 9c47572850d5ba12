"""Judge the failures of a test run: `python -m tests.second_look`, after a run that failed.

Most tests live in real time, with short leases, several files at once. A test that failed while the machine kept it or
its server waiting is run once more, alone, with nothing beside it: then its verdict counts. A failure on a machine that
kept pace is never run again, nor are many failures. Whatever passes only now is listed: it is a bug report, of the test
or of the library, and somebody should find its cause. The contract does the same for each case, see ADR 9.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["Failure", "Failures", "verdict"]

REPORT = Path(__file__).parents[1] / ".pytest_cache" / "failures.json"
MOST = 5  # more failures than this have another reason than the scheduler
LATE = 0.1  # seconds: a fifth of the shortest lease that these tests use
WAITED = 0.5  # part of the time


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed, how late its process was at most, and for which part of the time some process waited."""

    test: str
    late: float
    waited: float

    @property
    def is_in_doubt(self) -> bool:
        """Whether the machine did not keep pace."""
        return self.late >= LATE or self.waited >= WAITED

    def __str__(self) -> str:
        return f"{self.test} (late by {self.late:.3f} s; cores were short for {self.waited:.0%} of its time)"


class Failures:
    """A pytest plugin for the process that collects the reports: writes down what failed."""

    def __init__(self) -> None:
        self._failures: dict[str, Failure] = {}
        REPORT.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure; a second one of the same test (its tear-down) adds nothing."""
        if report.failed:
            measured = dict(report.user_properties)
            late, waited = float(str(measured.get("late", 0))), float(str(measured.get("waited", 0)))
            self._failures.setdefault(report.nodeid, Failure(report.nodeid, late, waited))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Only a run that came to its end can be judged."""
        if exitstatus == 1:
            REPORT.parent.mkdir(exist_ok=True)
            REPORT.write_text(json.dumps([asdict(failure) for failure in self._failures.values()]))


def verdict(failures: list[Failure]) -> str | None:
    """Why these failures count as they are; None: the tests are to be run again."""
    if not failures:
        return "the run did not come to its end"
    if len(failures) > MOST:
        return f"{len(failures)} tests failed"
    certain = [failure for failure in failures if not failure.is_in_doubt]
    return f"the machine kept pace with {certain[0]}" if certain else None


def main() -> int:
    """Exit with 0 if every failure was in doubt and none came again."""
    read = json.loads(REPORT.read_text()) if REPORT.exists() else []
    failures = [Failure(**failure) for failure in read]
    reason = verdict(failures)
    if reason is not None:
        print(f"No second look: {reason}.", file=sys.stderr)
        return 1
    print(f"A second look at {len(failures)} test(s), which failed on a machine that was late:", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(failure.test for failure in failures)]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        print("These failed beside others and passed alone. Each is a bug report; please find its cause:")
        print(*(f"  {failure}" for failure in failures), sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
