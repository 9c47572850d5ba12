"""A failure in real time is believed when the machine kept pace, and only then; a store that is wrong always fails."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import pytest

from leasehold._backends.memory import MemoryBackend
from leasehold._runtimes.threads import run
from leasehold.testing import contract
from leasehold.testing.contract import runner
from leasehold.testing.contract.lab import Child, Lab
from leasehold.testing.contract.pace import INTERVAL, CallsUnderWay, Pace, Pulse
from tests.waiting import eventually

UNIT = 0.2


def stall(seconds: float) -> None:
    """Keep every thread of this process from running: a call that does not let go of the interpreter."""
    ctypes.PyDLL(None).usleep(round(seconds * 1e6))


def check(body: object) -> None:
    case = contract.Case("pace", "case", (), processes=False, subject="store", body=body)  # type: ignore[arg-type]
    contract.check(
        case, contract.UrlHarness("memory://pace", contract.REQUIRED["memory"], UNIT), contract.ThreadDriver()
    )


def test_a_delay_of_the_process_is_measured() -> None:
    with Pace() as pace:
        stall(0.3)
    assert pace.worst > 0.2


def test_a_case_that_the_machine_was_too_slow_for_is_run_again_in_longer_units() -> None:
    units: list[float] = []

    async def late_once(lab: Lab) -> None:
        units.append(lab.ttl)
        if len(units) == 1:
            stall(UNIT)
            raise AssertionError("its lease ran out")

    check(late_once)
    assert units == [UNIT, 2 * UNIT]


def test_a_case_that_the_store_was_too_slow_for_is_run_again_in_longer_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server waited, for the processor or the disk, and this process did not."""
    units: list[float] = []

    async def slow(_: object, __: object, ___: float = 0.0) -> bool:
        time.sleep(0 if units[1:] else UNIT)
        return True

    async def late_once(lab: Lab) -> None:
        units.append(lab.ttl)
        client = lab.client()
        lease = await client.lock("x", ttl=60).acquire()
        assert await lease.release()
        assert units[1:], "the next lease ran out"

    monkeypatch.setattr(MemoryBackend, "release", slow)
    monkeypatch.setattr(runner, "Pace", HealthyPace)
    check(late_once)
    assert units == [UNIT, 2 * UNIT]


class HealthyPace(Pace):
    """This process was never late."""

    def _measure(self) -> None:
        pass


def test_a_case_that_fails_in_time_is_a_failure_at_once() -> None:
    units: list[float] = []

    async def wrong(lab: Lab) -> None:
        units.append(lab.ttl)
        raise AssertionError("two owners")

    harness = contract.UrlHarness("memory://pace", contract.REQUIRED["memory"], ttl=60.0)  # no machine is that slow
    case = contract.Case("pace", "case", (), processes=False, subject="store", body=wrong)
    with pytest.raises(AssertionError, match="two owners"):
        contract.check(case, harness, contract.ThreadDriver())
    assert units == [60.0]


def test_a_case_that_fails_in_every_unit_is_a_failure() -> None:
    units: list[float] = []

    async def wrong_and_late(lab: Lab) -> None:
        units.append(lab.ttl)
        stall(lab.ttl / 4)
        raise AssertionError("two owners")

    with pytest.raises(AssertionError, match="two owners"):
        check(wrong_and_late)
    assert units == [UNIT, 2 * UNIT, 4 * UNIT, 8 * UNIT]


class PulsesOnly(Pace):
    """This process is taken to be in time; only the others are measured."""

    def _measure(self) -> None:
        while not self._over.wait(INTERVAL):
            now = time.monotonic()
            self.worst = max(self.worst, *[pulse.lateness(now) for pulse in self._pulses], 0.0)


def test_a_case_whose_other_process_was_starved_is_run_again_in_longer_units(monkeypatch: pytest.MonkeyPatch) -> None:
    units: list[float] = []

    async def starved_once(lab: Lab) -> None:
        units.append(lab.ttl)
        child = lab.child("x", "60")
        assert child.line().startswith("held")
        if len(units) == 1:
            os.kill(child.pid, signal.SIGSTOP)  # as the machine would: the case knows nothing of it
            time.sleep(2 * UNIT)
            raise AssertionError("its lease ran out")

    monkeypatch.setattr(runner, "Pace", PulsesOnly)
    check(starved_once)
    assert units == [UNIT, 2 * UNIT]


def test_a_beat_that_does_not_come_is_a_delay_unless_the_case_stopped_the_process() -> None:
    pulse = Pulse()
    try:
        assert pulse.lateness(5.0) == 0.0, "it is measured from its first beat on"
        os.write(pulse.writing, b".")
        assert pulse.lateness(10.0) == 0.0
        assert pulse.lateness(10.5) == pytest.approx(0.5 - 2 * INTERVAL)
        os.write(pulse.writing, b".")
        assert pulse.lateness(10.7) == pytest.approx(0.7 - 2 * INTERVAL)
        assert pulse.lateness(10.8) == pytest.approx(0.1 - 2 * INTERVAL)
        pulse.pause()
        assert pulse.lateness(99.0) == 0.0
        pulse.resume()
        assert pulse.lateness(time.monotonic() + 1.0) > 0.9
    finally:
        os.close(pulse.writing)
    assert pulse.lateness(time.monotonic() + 9.0) == 0.0, "a process that has ended is not late"
    pulse.close()
    assert pulse.lateness(99.0) == 0.0


def test_a_process_that_the_case_stops_is_not_late() -> None:
    with PulsesOnly() as pace:
        child = Child("memory://", "pace", "x", "60", pace=pace)
        child.line()
        child.signal(signal.SIGSTOP)
        time.sleep(0.1)  # a beat that was under way
        before = pace.worst
        time.sleep(1.0)
        assert pace.worst == before
        child.stop()


class SlowStore:
    """A connection whose next call takes long."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    async def renew(self) -> str:
        self.go_on.wait(60)
        return "renewed"


def test_another_process_sends_no_beat_while_a_call_of_its_store_takes_long() -> None:
    calls, store = CallsUnderWay(), SlowStore()
    calls.watch(store)  # type: ignore[arg-type]
    assert not calls.are_slow()
    answers: list[str] = []
    call = threading.Thread(target=lambda: answers.append(run(store.renew())))
    call.start()
    eventually(calls.are_slow)
    store.go_on.set()
    call.join()
    assert not calls.are_slow()
    assert answers == ["renewed"]
