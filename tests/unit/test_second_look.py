"""Which failures of a test run are looked at again, and which count as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.second_look import MOST, Failure, verdict

LATE = Failure("a", late=0.4, waited=0.0)
CROWDED = Failure("b", late=0.0, waited=0.9)
CERTAIN = Failure("c", late=0.05, waited=0.2)

pytest_plugins = ["pytester"]


def test_only_failures_on_a_late_machine_are_looked_at_again() -> None:
    assert verdict([LATE, CROWDED]) is None
    assert "kept pace with c" in str(verdict([LATE, CERTAIN]))


def test_many_failures_and_a_run_that_was_broken_off_count_as_they_are() -> None:
    assert verdict([LATE] * MOST) is None
    assert verdict([LATE] * (MOST + 1)) is not None
    assert verdict([]) is not None


def test_a_failure_carries_what_was_measured(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeconftest(
        """
        import pathlib
        from tests import second_look
        from tests.lateness import Lateness
        second_look.REPORT = pathlib.Path("failures.json").absolute()
        def pytest_configure(config):
            config.pluginmanager.register(Lateness())
            config.pluginmanager.register(second_look.Failures())
        """
    )
    pytester.makepyfile(
        """
        import os, signal, subprocess, sys
        def test_that_is_paused():
            resume = f"import os, signal, time; time.sleep(0.7); os.kill({os.getpid()}, signal.SIGCONT)"
            helper = subprocess.Popen([sys.executable, "-c", resume])
            os.kill(os.getpid(), signal.SIGSTOP)
            helper.wait()
            assert False
        def test_that_passes():
            pass
        """
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").ret == 1
    (failure,) = [Failure(**read) for read in json.loads((pytester.path / "failures.json").read_text())]
    assert failure.test.endswith("::test_that_is_paused")
    assert failure.late > 0.1
    assert failure.is_in_doubt
