"""The watchdog and the notices about renewals, step by step, on a clock of the test's."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.cli import watchdog
from leasehold.cli.renewal_notices import RenewalNotices
from leasehold.cli.watchdog import GRACE, LONGEST_WAIT, Watchdog
from leasehold.events import RenewalFailed
from tests.unit.cli_support import noted

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP, START = 4711, 100.0
FOR_EVER = float("inf")


class Kennel:
    """A watchdog whose group, clock and pipe are here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        self.sent: list[int] = []
        self.group_lives = True
        self.ends_at = FOR_EVER
        self.slept: list[float] = []
        self.reading, self.writing = os.pipe()
        monkeypatch.setattr(watchdog, "now", lambda: self.now)
        monkeypatch.setattr(watchdog, "signal_group", self._signal)
        monkeypatch.setattr(watchdog, "time", SimpleNamespace(sleep=self._sleep))
        self.dog = Watchdog(self.reading, GROUP, 5.0)

    def _signal(self, group: int, number: int) -> bool:
        assert group == GROUP
        if number:
            self.sent.append(number)
        return self.group_lives and self.now < self.ends_at

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += max(seconds, 0.001)

    def tell(self, text: str) -> None:
        os.write(self.writing, text.encode())

    def close(self) -> None:
        os.close(self.reading)
        if self.writing >= 0:
            os.close(self.writing)


@pytest.fixture
def kennel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kennel]:
    kennel = Kennel(monkeypatch)
    yield kennel
    kennel.close()


def test_a_watchdog_without_news_does_nothing(kennel: Kennel) -> None:
    kennel.dog._act(START + 10**6)
    assert kennel.sent == []
    assert kennel.dog._patience() == LONGEST_WAIT


def test_a_watchdog_acts_a_moment_after_the_end_of_the_lease_and_kills_later(kennel: Kennel) -> None:
    kennel.dog._apply(b"lease 100.5")
    assert kennel.dog._patience() == pytest.approx(0.5 + GRACE)
    kennel.dog._act(100.5 + GRACE - 0.01)
    assert kennel.sent == []
    kennel.dog._act(100.5 + GRACE)
    assert kennel.sent == [signal.SIGTERM, signal.SIGCONT]
    kennel.dog._act(100.5 + GRACE + 4.9)
    assert len(kennel.sent) == 2
    kennel.dog._act(100.5 + GRACE + 5)
    kennel.dog._act(200.0)
    assert kennel.sent[2:] == [signal.SIGKILL]


def test_a_lease_that_was_renewed_keeps_the_watchdog_quiet(kennel: Kennel) -> None:
    kennel.dog._apply(b"lease 100.5")
    kennel.dog._apply(b"lease 130.5")
    kennel.dog._act(110.0)
    assert kennel.sent == []


def test_a_wrapper_that_sent_term_is_helped_with_kill_only(kennel: Kennel) -> None:
    kennel.dog._apply(b"lease 101.0")
    kennel.dog._apply(b"killing 105.0")
    assert kennel.dog._patience() == LONGEST_WAIT
    kennel.now = 104.7
    assert kennel.dog._patience() == pytest.approx(0.3)
    kennel.dog._act(104.9)
    assert kennel.sent == []
    kennel.dog._act(105.0)
    assert kennel.sent == [signal.SIGKILL]


def test_a_group_that_is_gone_is_not_killed(kennel: Kennel) -> None:
    kennel.dog._apply(b"lease 100.0")
    kennel.group_lives = False
    kennel.dog._act(110.0)
    kennel.dog._act(120.0)
    assert kennel.sent == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("lease", "kill_at"), [(102.0, 102.0), (100.0, START), (110.0, START + 5), (FOR_EVER, START + 5)]
)
def test_an_orphan_is_killed_at_the_end_of_its_lease_at_the_latest(
    kennel: Kennel, lease: float, kill_at: float
) -> None:
    if lease < FOR_EVER:
        kennel.dog._apply(f"lease {lease!r}".encode())
    kennel.dog._orphaned = True
    kennel.dog._act(START)
    due = [number for number in kennel.sent if number == signal.SIGKILL]
    assert kennel.sent[:2] == [signal.SIGTERM, signal.SIGCONT]
    assert due == ([signal.SIGKILL] if kill_at <= START else [])
    if kill_at > START:
        assert kennel.dog._kill_at == pytest.approx(kill_at)


def test_the_end_of_the_pipe_is_the_end_of_the_wrapper(kennel: Kennel) -> None:
    kennel.tell("lease 102.0\n")
    os.close(kennel.writing)
    kennel.writing = -1
    kennel.dog.watch()
    assert kennel.sent == [signal.SIGTERM, signal.SIGCONT, signal.SIGKILL]
    assert kennel.now == pytest.approx(102.0, abs=0.05)
    assert all(0 <= pause <= watchdog.ORPHAN_LOOK for pause in kennel.slept)


def test_a_watchdog_leaves_as_soon_as_the_orphans_are_gone(kennel: Kennel) -> None:
    kennel.tell("lease 10000.0\n")
    os.close(kennel.writing)
    kennel.writing = -1
    kennel.group_lives = False
    kennel.dog.watch()
    assert kennel.sent == [signal.SIGTERM]
    assert kennel.slept == []


def test_a_watchdog_does_not_outlive_orphans_that_acted_on_term(kennel: Kennel) -> None:
    kennel.tell("lease 104.0\n")
    os.close(kennel.writing)
    kennel.writing = -1
    kennel.ends_at = START + 1
    kennel.dog.watch()
    assert kennel.sent == [signal.SIGTERM, signal.SIGCONT]
    assert kennel.now < START + 1.1


def test_done_ends_the_watchdog_without_a_signal(kennel: Kennel) -> None:
    kennel.tell("lease 1.0\ndone\n")
    kennel.dog.watch()
    assert kennel.sent == []


def test_messages_may_arrive_in_pieces(kennel: Kennel) -> None:
    kennel.tell("lease 10")
    assert kennel.dog._read_messages(0.0)
    assert kennel.dog._lease_ends == FOR_EVER
    kennel.tell("7.5\nkilling 109.0\ndo")
    assert kennel.dog._read_messages(0.0)
    assert (kennel.dog._lease_ends, kennel.dog._kill_at) == (107.5, 109.0)
    assert kennel.dog._read_messages(0.0)
    kennel.tell("ne\n")
    assert not kennel.dog._read_messages(0.0)


def test_a_replacement_reads_its_group_and_patience_from_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr("sys.argv", ["watchdog", "4711", "2.5"])
    monkeypatch.setattr(watchdog, "detach", made.append)
    monkeypatch.setattr(
        watchdog, "Watchdog", lambda *words: noted(made, words, SimpleNamespace(watch=lambda: made.append("watch")))
    )
    watchdog.main()
    assert made == [0, (0, 4711, 2.5), "watch"]


@pytest.mark.parametrize(
    ("error", "is_there"), [(None, True), (ProcessLookupError(), False), (PermissionError(), True)]
)
def test_a_group_is_there_unless_nobody_is_left(
    error: BaseException | None, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []

    def killpg(group: int, number: int) -> None:
        sent.append((group, number))
        if error is not None:
            raise error

    monkeypatch.setattr(watchdog, "os", SimpleNamespace(killpg=killpg))
    assert watchdog.signal_group(GROUP, 9) is is_there
    assert sent == [(GROUP, 9)]


# --- what is said of renewals


class Lines:
    """Notices of a lease with a ttl of 60 s: a reminder is due every ten."""

    def __init__(self, ttl: float = 60.0) -> None:
        self.said: list[str] = []
        held: Any = SimpleNamespace(title="'job'", fences={"job": 1})
        console: Any = SimpleNamespace(note=self.said.append)
        self.notices = RenewalNotices(held, ttl, console)

    def fail(self, name: str = "job") -> None:
        self.notices.note(RenewalFailed(name, 30.0, "no route"))


def test_failures_are_said_after_a_while_now_and_then_and_until_they_end() -> None:
    lines = Lines()
    assert lines.notices.look(0.0, 60.0)
    assert not lines.notices.look(0.5, 59.5)
    lines.fail()
    assert not lines.notices.look(9.9, 50.1)
    assert lines.said == [], "a renewal has just been confirmed"
    assert not lines.notices.look(10.0, 50.0)
    assert lines.said == ["no renewal of 'job' for 10s, 50s left before it is lost: no route"]
    lines.notices.look(19.9, 40.1)
    assert len(lines.said) == 1
    lines.notices.look(20.0, 40.0)
    assert lines.said[1:] == ["no renewal of 'job' for 20s, 40s left before it is lost: no route"]
    assert lines.notices.look(25.0, 60.0)
    assert lines.said[2:] == ["'job' is renewed again"]
    assert lines.notices.look(26.0, 60.0)
    lines.notices.look(40.0, 46.0)
    assert len(lines.said) == 3


def test_the_failure_of_another_lock_or_before_a_success_is_not_said() -> None:
    lines = Lines()
    lines.notices.look(0.0, 60.0)
    lines.fail("another")
    lines.notices.look(30.0, 30.0)
    lines.fail()
    lines.notices.look(31.0, 60.0)
    lines.notices.look(60.0, 31.0)
    assert lines.said == []


def test_reminders_of_a_short_lease_are_a_second_apart() -> None:
    lines = Lines(ttl=1.2)
    lines.notices.look(0.0, 1.2)
    lines.fail()
    for tenth in range(3, 30):
        lines.notices.look(tenth / 10, 1.2 - tenth / 10)
    assert len(lines.said) == 3
