"""The wrapper's loop, over real processes whose ends the test decides."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.cli import exit_codes
from leasehold.cli import supervisor as supervisor_module
from leasehold.cli.output import Console
from leasehold.cli.supervisor import Supervisor
from leasehold.cli.watchdog import now

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    """A process group that goes on when its wrapper has killed it: nothing here sends the signals."""
    process = subprocess.Popen(["sleep", "60"], process_group=0)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that the supervisor sends to the group, which stay here."""
    signals: list[int] = []

    def keep(_: int, number: int) -> bool:
        signals.append(number)
        return True

    monkeypatch.setattr(supervisor_module, "signal_group", keep)
    return signals


def supervisor_of(group: int, *, wait_group: bool = False, loss: object = None) -> Supervisor:
    everything: Any = SimpleNamespace(
        pid=group,
        title="'job'",
        fences={"job": 1},
        loss=loss,
        is_over=False,
        remaining=lambda: 10.0,
        lease_until=lambda _: None,
        lasts_until=lambda _: None,
        killing_at=lambda _: None,
        wake=lambda: None,
    )
    return Supervisor(
        everything,
        everything,
        record=everything,
        watchdog=everything,
        signals=everything,
        terminal=everything,
        console=Console(quiet=True),
        ttl=10.0,
        kill_after=0.2,
        max_hold=None,
        wait_group=wait_group,
    )


def test_after_a_second_interrupt_the_lock_stays_until_the_killed_group_is_gone(
    group: subprocess.Popen[bytes], sent: list[int]
) -> None:
    supervisor = supervisor_of(group.pid)
    assert supervisor._group_is_done()  # what the command left behind runs on without the lock
    supervisor._handle(signal.SIGINT)
    assert supervisor._group_is_done()
    supervisor._handle(signal.SIGINT)
    assert sent == [signal.SIGINT, signal.SIGKILL]
    assert not supervisor._group_is_done()
    group.kill()
    group.wait()
    assert supervisor._group_is_done()


def test_wait_group_and_a_lost_lease_hold_the_lock_until_the_group_is_gone(
    group: subprocess.Popen[bytes], sent: list[int]
) -> None:
    waiting = supervisor_of(group.pid, wait_group=True)
    assert not waiting._group_is_done()
    losing = supervisor_of(group.pid, loss=SimpleNamespace(reason="expired", detail="its time ran out"))
    assert not losing.may_start()
    assert losing.stopped_for == exit_codes.LEASE_LOST
    assert sent == [signal.SIGTERM]
    assert not losing._group_is_done()
    group.kill()
    group.wait()
    assert waiting._group_is_done()
    assert losing._group_is_done()


def test_a_group_that_hangs_in_the_kernel_after_kill_is_not_waited_for_for_ever(
    group: subprocess.Popen[bytes], sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STUBBORN", 0.05)
    supervisor = supervisor_of(group.pid)
    supervisor._stop(exit_codes.MAX_HOLD)
    while sent != [signal.SIGTERM, signal.SIGKILL]:  # KILL comes by the clock, once
        supervisor._check_clock()
        time.sleep(0.005)
    end = now() + 20
    while not supervisor._group_is_done():
        assert now() < end
        time.sleep(0.005)
    supervisor._check_clock()
    assert sent == [signal.SIGTERM, signal.SIGKILL]
    os.kill(group.pid, 0)  # it still runs, and the lock is given up all the same
