"""The wrapper's loop, step by step: the clock, the command's statuses and what arrives are the test's."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.cli import exit_codes
from leasehold.cli import supervisor as module
from leasehold.cli.supervisor import GROUP_LOOK, LONGEST_SLEEP, STUBBORN, Supervisor
from leasehold.events import RenewalFailed
from tests.unit.cli_support import noted

GROUP, WATCHDOG, START = 4711, 4712, 100.0
STOPPED = (signal.SIGSTOP << 8) | 0x7F
STOPPED_BY_READING = (signal.SIGTTIN << 8) | 0x7F
CONTINUED = 0xFFFF


class World:
    """Everything around the supervisor; what it does is noted in `done`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        self.done: list[Any] = []
        self.said: list[str] = []
        self.statuses: dict[int, list[Any]] = {GROUP: [], WATCHDOG: []}
        self.group_lives = True
        self.loss: Any = None
        self.left = 10.0
        self.has_terminal = False
        self.inbox: list[list[int]] = []
        self.patience: list[float] = []
        monkeypatch.setattr(module, "now", lambda: self.now)
        monkeypatch.setattr(module, "signal_group", lambda group, number: noted(self.done, (group, number), True))
        monkeypatch.setattr(module, "group_is_alive", lambda _: self.group_lives)
        monkeypatch.setattr(module, "os", _Os(self))

    def supervisor(self, *, verbose: bool = False, **options: Any) -> Supervisor:
        child = SimpleNamespace(pid=GROUP, is_over=False)
        world = self

        class HeldHere:
            title, fences = "'job'", {"job": 1}

            @property
            def loss(self) -> Any:
                return world.loss

            def remaining(self) -> float:
                return world.left

        everything: Any = {
            "child": child,
            "held": HeldHere(),
            "record": SimpleNamespace(lasts_until=lambda instant: self.done.append(("record", instant))),
            "watchdog": SimpleNamespace(
                pid=WATCHDOG,
                lease_until=lambda instant: self.done.append(("lease", instant)),
                killing_at=lambda instant: self.done.append(("killing", instant)),
                dismiss=lambda: self.done.append("dismissed"),
                replace=self.replace,
            ),
            "signals": SimpleNamespace(wake=lambda: self.done.append("woken"), collect=self.collect),
            "terminal": SimpleNamespace(
                hand_over=lambda: noted(self.done, "handed over", self.has_terminal),
                take_back=lambda: noted(self.done, "taken back", self.has_terminal),
                stop_with_child=lambda: self.done.append("stopped too"),
                is_present=self.has_terminal,
            ),
            "console": SimpleNamespace(
                error=self.said.append, note=self.said.append, detail=self.said.append, is_verbose=verbose
            ),
            "ttl": 30.0,
            "kill_after": 5.0,
            "max_hold": None,
            "wait_group": False,
        }
        self.child: Any = child
        return Supervisor(**everything | options)

    def replace(self) -> None:
        self.done.append("replaced")

    def collect(self, patience: float) -> list[int]:
        self.patience.append(patience)
        return self.inbox.pop(0) if self.inbox else []


class _Os:
    """`os`, but for processes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def waitpid(self, pid: int, flags: int) -> tuple[int, int]:
        assert flags & os.WNOHANG, "it would block"
        if pid == GROUP:
            assert flags & os.WUNTRACED
            assert flags & os.WCONTINUED
        script = self._world.statuses[pid]
        found = script.pop(0) if script else None
        if isinstance(found, BaseException):
            raise found
        return (0, 0) if found is None else (pid, found)

    def kill(self, pid: int, number: int) -> None:
        self._world.done.append(("child", pid, number))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


# --- the command ends, stops and goes on


@pytest.mark.parametrize(("status", "code"), [(0, 0), (7 << 8, 7), (255 << 8, 255), (15, 143), (9, 137)])
def test_the_exit_code_is_that_of_the_command_or_of_its_signal(world: World, status: int, code: int) -> None:
    supervisor = world.supervisor()
    world.statuses[GROUP] = [status]
    supervisor.watch()
    assert (supervisor.exit_code, supervisor.stopped_for, world.child.is_over) == (code, None, True)
    assert world.done == [("lease", START + 10), ("record", START + 10), "taken back", "dismissed"]
    assert world.said == [f"the command ended with status {code}"]


def test_a_command_whose_end_is_known_is_not_asked_for_again(world: World) -> None:
    supervisor = world.supervisor(wait_group=True)
    world.statuses[GROUP] = [0, ChildProcessError()]
    supervisor._check_child()
    supervisor._check_child()
    assert supervisor.status == 0
    assert len(world.statuses[GROUP]) == 1


def test_verbose_mentions_what_the_command_left_behind(world: World) -> None:
    loud = world.supervisor(verbose=True)
    assert loud._group_is_done()
    assert "still run, without the lock" in world.said[-1]
    world.said.clear()
    world.group_lives = False
    assert loud._group_is_done()
    world.group_lives = True
    assert world.supervisor()._group_is_done()
    assert world.said == []


def test_a_stop_by_somebody_keeps_the_lock_and_is_only_mentioned(world: World) -> None:
    supervisor = world.supervisor()
    world.statuses[GROUP] = [STOPPED]
    supervisor._check_child()
    assert supervisor.status is None
    assert world.said == ["the command was stopped (SIGSTOP); the lock stays held"]
    assert world.done == ["taken back"]


def test_a_stopped_command_is_continued_after_each_signal_until_it_goes_on(world: World) -> None:
    supervisor = world.supervisor()
    supervisor._handle(signal.SIGTERM)
    world.statuses[GROUP] = [STOPPED]
    supervisor._check_child()
    supervisor._handle(signal.SIGHUP)
    world.statuses[GROUP] = [CONTINUED]
    supervisor._check_child()
    supervisor._handle(signal.SIGQUIT)
    sent = [number for group, number in (each for each in world.done if isinstance(each, tuple)) if group == GROUP]
    assert sent == [signal.SIGTERM, signal.SIGHUP, signal.SIGCONT, signal.SIGQUIT]


def test_a_command_that_wants_the_keyboard_gets_it_and_goes_on(world: World) -> None:
    world.has_terminal = True
    supervisor = world.supervisor()
    world.statuses[GROUP] = [STOPPED_BY_READING]
    supervisor._check_child()
    assert world.done == ["handed over", (GROUP, signal.SIGCONT)]


def test_a_command_that_wants_a_keyboard_that_is_not_there_stays_stopped(world: World) -> None:
    supervisor = world.supervisor()
    world.statuses[GROUP] = [STOPPED_BY_READING]
    supervisor._check_child()
    assert world.done == ["handed over", "taken back"]


def test_a_wrapper_in_the_background_stops_with_a_command_that_wants_the_keyboard(world: World) -> None:
    supervisor = world.supervisor()
    supervisor._terminal.is_present = True
    world.statuses[GROUP] = [STOPPED_BY_READING]
    supervisor._check_child()
    assert world.done == ["handed over", "taken back", "stopped too"]


def test_ctrl_z_gives_the_terminal_back_and_stops_the_wrapper_too(world: World) -> None:
    world.has_terminal = True
    supervisor = world.supervisor()
    world.statuses[GROUP] = [STOPPED]
    supervisor._check_child()
    assert world.done == ["taken back", "stopped too"]


def test_fg_continues_a_stopped_command_that_still_has_its_lease(world: World) -> None:
    supervisor = world.supervisor()
    supervisor._handle(signal.SIGCONT)
    assert (GROUP, signal.SIGCONT) not in world.done, "it was not stopped"
    world.statuses[GROUP] = [STOPPED]
    supervisor._check_child()
    world.done.clear()
    supervisor._handle(signal.SIGCONT)
    assert world.done == ["handed over", (GROUP, signal.SIGCONT)]


def test_fg_does_not_continue_a_command_that_lost_its_lease(world: World) -> None:
    supervisor = world.supervisor()
    world.statuses[GROUP] = [STOPPED]
    supervisor._check_child()
    world.loss = SimpleNamespace(reason="expired", detail="too late")
    world.done.clear()
    supervisor._handle(signal.SIGCONT)
    assert "handed over" not in world.done
    assert supervisor.stopped_for == exit_codes.LEASE_LOST


# --- signals


def test_user_signals_reach_the_command_alone_and_only_while_it_runs(world: World) -> None:
    supervisor = world.supervisor()
    supervisor._handle(signal.SIGUSR1)
    supervisor._handle(signal.SIGUSR2)
    supervisor.status = 0
    supervisor._handle(signal.SIGUSR1)
    assert world.done == [("child", GROUP, signal.SIGUSR1), ("child", GROUP, signal.SIGUSR2)]
    assert not supervisor.is_ending


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_ends_programs_reaches_the_group_and_is_remembered(world: World, number: int) -> None:
    supervisor = world.supervisor()
    supervisor._handle(number)
    assert supervisor.is_ending
    assert world.done == [(GROUP, number)]


def test_only_a_second_interrupt_kills(world: World) -> None:
    supervisor = world.supervisor()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        supervisor._handle(number)
    assert (GROUP, signal.SIGKILL) not in world.done
    supervisor._handle(signal.SIGINT)
    assert world.done[-1] == (GROUP, signal.SIGKILL)
    assert world.said == ["interrupted again; killing the command"]


def test_other_signals_are_not_passed_on(world: World) -> None:
    supervisor = world.supervisor()
    supervisor._handle(signal.SIGCHLD)
    assert (world.done, supervisor.is_ending) == ([], False)


# --- the lease


def test_each_renewal_is_told_to_the_watchdog_and_to_the_record_once(world: World) -> None:
    supervisor = world.supervisor()
    assert supervisor.may_start()
    assert supervisor.may_start()
    assert world.done == [("lease", START + 10), ("record", START + 10)]
    world.now, world.left = START + 4, 30.0
    supervisor._check_lease()
    assert world.done[2:] == [("lease", START + 34), ("record", START + 34)]


def test_a_lost_lease_is_recorded_said_and_stops_the_command_once(world: World) -> None:
    supervisor = world.supervisor()
    world.loss = SimpleNamespace(reason="broken", detail="stuck (by ana)")
    assert not supervisor.may_start()
    assert not supervisor.may_start()
    assert world.done == [("record", 0.0), ("killing", START + 5), (GROUP, signal.SIGTERM)]
    assert world.said == ["lost the lease of 'job' (broken): stuck (by ana); stopping the command"]


def test_a_loss_after_max_hold_is_the_reason_that_counts(world: World) -> None:
    supervisor = world.supervisor(max_hold=2.0)
    world.now += 2
    supervisor._check_clock()
    assert supervisor.stopped_for == exit_codes.MAX_HOLD
    world.now += 1
    world.loss = SimpleNamespace(reason="expired", detail="too late")
    supervisor._check_lease()
    assert supervisor.stopped_for == exit_codes.LEASE_LOST
    terms = [each for each in world.done if each == (GROUP, signal.SIGTERM)]
    killing = [each for each in world.done if each[0] == "killing"]
    assert (len(terms), killing) == (1, [("killing", START + 7)]), "the first stop decides when KILL is due"


def test_an_event_wakes_the_loop_which_says_that_renewals_fail(world: World) -> None:
    supervisor = world.supervisor()
    supervisor._check_lease()
    world.done.clear()
    supervisor.note(RenewalFailed("job", 10.0, "no route"))
    assert world.done == ["woken"]
    world.now, world.left = START + 6, 4.0
    supervisor._check_lease()
    assert world.said == ["no renewal of 'job' for 6.0s, 4.0s left before it is lost: no route"]


# --- the clock


def test_max_hold_stops_the_command_once_and_kill_follows(world: World) -> None:
    supervisor = world.supervisor(max_hold=60.0)
    world.now = START + 59.9
    supervisor._check_clock()
    assert world.done == []
    world.now = START + 60
    supervisor._check_clock()
    supervisor._check_clock()
    assert world.done == [("killing", START + 65), (GROUP, signal.SIGTERM)]
    assert world.said == ["--max-hold of 'job' is over; stopping the command"]
    world.now = START + 64.9
    supervisor._check_clock()
    assert len(world.done) == 2
    world.now = START + 65
    supervisor._check_clock()
    supervisor._check_clock()
    assert world.done[2:] == [(GROUP, signal.SIGKILL)]


def test_max_hold_says_nothing_to_a_command_that_is_being_stopped(world: World) -> None:
    supervisor = world.supervisor(max_hold=1.0)
    world.loss = SimpleNamespace(reason="expired", detail="too late")
    supervisor._check_lease()
    world.now += 1
    supervisor._check_clock()
    assert (supervisor.stopped_for, len(world.said)) == (exit_codes.LEASE_LOST, 1)


def test_a_killed_group_is_waited_for_as_long_as_a_kernel_may_need(world: World) -> None:
    supervisor = world.supervisor()
    supervisor._kill()
    world.now = START + STUBBORN - 0.1
    assert not supervisor._group_is_done()
    supervisor._kill()  # again: the time counts from the first
    world.now = START + STUBBORN
    assert supervisor._group_is_done()
    assert "did not end after KILL" in world.said[-1]


@pytest.mark.parametrize(
    ("options", "left", "prepare", "expected"),
    [
        ({}, 10.0, "", LONGEST_SLEEP),
        ({"ttl": 3.0}, 10.0, "", 0.5),
        ({}, 0.3, "", 0.3),
        ({}, 0.0, "", 0.01),
        ({"max_hold": 0.2}, 10.0, "", 0.2),
        ({"kill_after": 0.1}, 10.0, "stop", 0.1),
        ({"max_hold": 0.2, "kill_after": 0.7}, 10.0, "stop", 0.7),
        ({}, 10.0, "end", GROUP_LOOK),
    ],
)
def test_the_loop_sleeps_until_something_can_be_due(
    world: World, options: dict[str, Any], left: float, prepare: str, expected: float
) -> None:
    supervisor = world.supervisor(**options)
    world.left = left
    if prepare == "stop":
        supervisor._stop(exit_codes.LEASE_LOST)
    if prepare == "end":
        supervisor.status = 0
    assert supervisor._patience() == pytest.approx(expected)


def test_the_loop_handles_what_arrives_and_looks_again(world: World) -> None:
    supervisor = world.supervisor(wait_group=True)
    world.statuses[GROUP] = [None, None, 3 << 8]
    world.inbox = [[signal.SIGTERM], [], [signal.SIGUSR1]]

    def collect(patience: float) -> list[int]:
        world.group_lives = len(world.patience) < 3
        return World.collect(world, patience)

    supervisor._signals.collect = collect  # type: ignore[method-assign,assignment]
    supervisor.watch()
    assert (GROUP, signal.SIGTERM) in world.done
    assert ("child", GROUP, signal.SIGUSR1) not in world.done
    assert world.patience == [pytest.approx(1.0), pytest.approx(1.0), GROUP_LOOK, GROUP_LOOK]
    assert supervisor.exit_code == 3


# --- the watchdog, seen by the wrapper


@pytest.mark.parametrize("status", [9, ChildProcessError()])
def test_a_watchdog_that_died_is_replaced(world: World, status: Any) -> None:
    supervisor = world.supervisor()
    supervisor._check_watchdog()
    assert world.done == []
    world.statuses[WATCHDOG] = [status]
    supervisor._check_watchdog()
    assert (world.done, supervisor.stopped_for) == (["replaced"], None)
    assert world.said == ["the watchdog process died and was replaced"]


def test_a_watchdog_that_cannot_be_replaced_stops_the_command_once(world: World) -> None:
    def fail() -> None:
        raise OSError("no more processes")

    supervisor = world.supervisor()
    supervisor._watchdog.replace = fail  # type: ignore[method-assign]
    world.statuses[WATCHDOG] = [9, 9]
    supervisor._check_watchdog()
    supervisor._check_watchdog()
    assert supervisor.stopped_for == exit_codes.INTERNAL
    assert world.said == ["the watchdog process died and cannot be replaced (no more processes); stopping the command"]
    assert (GROUP, signal.SIGTERM) in world.done
