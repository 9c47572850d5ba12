"""How late the machine was while a test ran: the evidence without which a failure in real time cannot be judged.

A test with leases of half a second fails on a machine that does not let it run for half a second. So every process of
the test run measures, all the time, how late a thread is woken that wants to wake up every 30 milliseconds, and which
part of the time some process of the machine had to wait for a core. Both go into the report of a test that fails.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Lateness"]

INTERVAL = 0.03  # well below the shortest ttl of a test; a dozen processes measure for the whole run
PRESSURE = Path("/proc/pressure/cpu")  # Linux: "some avg10=... total=MICROSECONDS"


class Lateness:
    """A pytest plugin that measures each test."""

    def __init__(self) -> None:
        self._worst = 0.0
        self._began = time.monotonic()
        self._waited = 0.0
        self._before = (0.0, 0.0)  # of the test before
        threading.Thread(target=self._measure, name="lateness of the tests", daemon=True).start()

    def _measure(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(INTERVAL)
            now = time.monotonic()
            self._worst = max(self._worst, now - before - INTERVAL)
            before = now

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Each test is measured from its set-up on."""
        self._worst, self._began, self._waited = 0.0, time.monotonic(), _seconds_waited()
        try:
            return (yield)
        finally:
            self._before = self._measured()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What was measured becomes part of the report of a failure.

        A set-up may fail for what the test before has left, such as a connection that nobody closed in time.
        """
        report = yield
        if report.failed:
            late, waited = self._measured()
            if report.when == "setup":
                late, waited = max(late, self._before[0]), max(waited, self._before[1])
            report.user_properties += [("late", round(late, 3)), ("waited", round(waited, 2))]
        return report

    def _measured(self) -> tuple[float, float]:
        """How late the process was at most since the test began, and for which part of that time cores were short."""
        passed = max(time.monotonic() - self._began, INTERVAL)
        return self._worst, min(1.0, (_seconds_waited() - self._waited) / passed)


def _seconds_waited() -> float:
    """For how long, since the machine was started, at least one process that could run did not get a core."""
    try:
        found = re.search(r"some .*total=(\d+)", PRESSURE.read_text())
    except OSError:  # another system, or a kernel without these figures
        return 0.0
    return 0.0 if found is None else int(found[1]) / 1e6
