"""The listener of PostgreSQL step by step: when it listens or polls, what it delivers, when it tries again."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from leasehold._backends.postgres.notifications import (
    LINGER,
    LISTEN_AGAIN,
    LONGEST_POLL,
    POLL,
    PROOF,
    PROVE_AGAIN,
    Handover,
    Listener,
)
from leasehold._backends.postgres.statements import Statements
from leasehold._runtimes.threads import run
from leasehold.errors import BackendUnavailable
from leasehold.values import Claim, Holder, Mode
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Callable


class Bench:
    """A listener whose work is done by the test, over a connection that plays what is planned."""

    def __init__(self) -> None:
        self.runtime = cast("Any", PlannedWaits())
        self.runtime.spawn = self.spawn
        self.runtime.sleep = self.sleep
        self.spawned: list[Any] = []
        self.tries: list[float] = []
        self.slept: list[float] = []
        self.joined: list[float] = []
        self.channel: bytes | None = None
        self.arrived: list[str] = []
        self.proves = True
        self.is_of_use = True
        self.closed = self.interrupted = 0
        self.waits: list[float] = []
        self.then: list[Callable[[], object]] = []  # what happens in each wait for a notification
        self.found: list[tuple[bytes, ...]] = []  # by a query for handovers
        self.asked: list[bytes] = []
        self.failure: Exception | None = None
        executor: Any = self
        self.listener: Any = Listener(self.runtime, executor, Statements("leasehold"), self.connect)

    # --- what the listener uses

    def spawn(self, coroutine: Any, name: str) -> Any:
        self.spawned.append(coroutine)
        return self

    async def join(self, deadline: float) -> bool:
        self.joined.append(deadline - self.runtime.now())
        return True

    async def sleep(self, seconds: float) -> None:
        assert len(self.slept) < 1000, "it polls without end"
        self.slept.append(seconds)
        self.runtime.clock.advance(seconds)

    async def connect(self) -> Any:
        self.tries.append(self.runtime.now())
        if self.failure is not None:
            raise self.failure
        return self if self.is_of_use else None

    async def execute(self, statement: Any, values: Any) -> Any:
        self.asked.append(statement.name)
        if statement.name == b"leasehold_notify":
            assert values == (self.channel,)
            if self.proves:
                self.arrived.append("")
            return None
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(ntuples=len(self.found), get_value=lambda row, column: self.found[row][column])

    async def listen(self, channel: bytes) -> None:
        self.channel = channel

    async def notified(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if not self.arrived and self.then:
            self.then.pop(0)()
        if not self.arrived:
            self.runtime.clock.advance(seconds)
        return bool(self.arrived)

    def notifications(self) -> list[str]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def close(self) -> None:
        self.closed += 1

    def interrupt(self) -> None:
        self.interrupted += 1

    # --- what the test does

    def expect(self, name: str = "x", ahead: int = 0) -> Any:
        claim = Claim(f"ns:{name}", self.runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
        waiter = self.listener.expect(claim)
        waiter.ahead = ahead
        return waiter

    def forget(self) -> None:
        self.listener._waiters.clear()

    def work(self) -> None:
        step = self.spawned.pop(0)
        with pytest.raises(StopIteration):
            step.send(None)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_worker_listens_for_all_and_tells_them_its_channel(bench: Bench) -> None:
    waiter = bench.expect()
    seen: list[tuple[bytes | None, bool]] = []
    bench.then = [
        lambda: seen.append((bench.listener.channel, waiter.signal.is_set())),
        lambda: bench.arrived.append(f"{waiter.claim.owner} 7 12.5 r64"),
        bench.forget,
    ]
    assert bench.listener.ensure() is None
    assert bench.listener.ensure() is None
    assert len(bench.spawned) == 1
    bench.work()
    assert seen == [(bench.channel, True)], "each waiter has to store it in its row"
    assert bench.channel is not None
    assert bench.channel.startswith(b"leasehold_")
    assert waiter.handover == Handover(7, 12.5, False, 64)
    assert bench.waits[1:] == [LINGER] * 3
    assert (bench.listener.channel, bench.closed) == (None, 1)
    assert len(bench.tries) == 1
    bench.listener.ensure()
    assert len(bench.spawned) == 1, "and would begin again"


def test_a_channel_is_new_each_time(bench: Bench) -> None:
    channels = []
    for _ in range(2):
        run(bench.listener._listen())
        channels.append(bench.channel)
    assert channels[0] != channels[1]
    assert {len(channel or b"") for channel in channels} == {42}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("7 12.5 r64", Handover(7, 12.5, False, 64)),
        ("7 12.5 r0", Handover(7, 12.5, False, 0)),
        ("7 12.5 1", Handover(7, 12.5, True, 0)),
        ("7 12.5 0", Handover(7, 12.5, False, 0)),
        ("7 12.5", None),
        ("7 12.5 1 more", None),
    ],
)
def test_a_notification_tells_who_was_granted_what_and_when(
    bench: Bench, words: str, expected: Handover | None
) -> None:
    waiter, other = bench.expect(), bench.expect()
    bench.listener._deliver(f"{waiter.claim.owner} {words}".split())
    assert waiter.handover == expected
    assert waiter.signal.is_set() is (expected is not None)
    assert (other.handover, other.signal.is_set()) == (None, False)
    bench.listener._deliver(["a-stranger", "7", "12.5", "r64"])


def test_one_waiter_is_remembered_for_a_claim_and_only_for_as_long_as_its_call_lasts(bench: Bench) -> None:
    waiter = bench.expect()
    assert bench.listener.expect(waiter.claim) is waiter
    del waiter
    assert len(bench.listener._waiters) == 0


def test_a_listener_that_failed_is_tried_again_after_a_while_and_polls_meanwhile(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leasehold.postgres")
    waiter = bench.expect()
    bench.failure = BackendUnavailable("no connection is free")
    bench.listener.ensure()

    def come_back() -> None:
        bench.failure = None
        bench.then = [bench.forget]

    async def sleep(seconds: float) -> None:
        await Bench.sleep(bench, seconds)
        if len(bench.tries) == 2:
            come_back()

    bench.runtime.sleep = sleep
    bench.work()
    first, second, third = bench.tries
    assert LISTEN_AGAIN <= second - first < LISTEN_AGAIN + 2 * POLL
    assert LISTEN_AGAIN <= third - second < LISTEN_AGAIN + 2 * POLL
    assert caplog.text.count("no connection is free") == 1, "it is logged once until it works again"
    assert set(bench.slept) == {POLL}
    assert b"leasehold_handovers" in bench.asked
    assert waiter.signal.is_set()


def test_after_it_has_listened_a_failure_is_news_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leasehold.postgres")
    bench.listener._has_warned = True
    run(bench.listener._listen())
    bench.failure = BackendUnavailable("away")
    run(bench.listener._listen_if_possible())
    assert "away" in caplog.text


def test_notifications_that_do_not_arrive_are_proven_again_much_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.proves = False
    waiter = bench.expect()
    began = bench.runtime.now()
    run(bench.listener._listen_if_possible())
    assert bench.runtime.now() - began == pytest.approx(PROOF)
    assert bench.closed == 1
    assert "?listen_url=" in caplog.text
    assert bench.listener._poll_until == bench.runtime.now() + PROVE_AGAIN
    run(bench.listener._listen_if_possible())
    assert len(bench.tries) == 1
    assert not waiter.signal.is_set(), "there is no channel to be stored"


def test_where_listening_is_of_no_use_it_is_never_tried_again(bench: Bench) -> None:
    bench.is_of_use = False
    run(bench.listener._listen_if_possible())
    assert bench.listener._poll_until == math.inf
    run(bench.listener._listen_if_possible())
    assert len(bench.tries) == 1


def test_a_listener_goes_on_while_somebody_waits_and_then_for_a_moment(bench: Bench) -> None:
    waiter = bench.expect()
    bench.then = [*[lambda: None] * 3, bench.forget]
    run(bench.listener._listen())
    assert bench.waits[1:] == [LINGER] * 4
    del waiter


def test_a_client_that_is_closed_while_its_listener_connects_leaves_no_connection(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leasehold.postgres")
    connect = bench.listener._connect

    async def slowly() -> Any:
        bench.listener._closed = True
        return await connect()

    bench.listener._connect = slowly
    bench.expect()
    bench.listener.ensure()
    bench.work()
    assert (bench.channel, bench.closed) == (None, 1)
    bench.listener.ensure()
    assert bench.spawned == [], "a closed client does not listen again"
    assert caplog.text == ""


def test_closing_interrupts_the_listener_and_waits_for_its_end(bench: Bench) -> None:
    bench.listener.ensure()
    bench.listener._connection, bench.listener.channel = bench, b"c"
    run(bench.listener.close())
    assert (bench.interrupted, bench.listener.channel) == (1, None)
    assert bench.joined == [1.0]
    bench.spawned[0].close()


def test_the_nearer_a_turn_is_the_more_often_it_is_polled(bench: Bench) -> None:
    for ahead, seconds in (((9, 0), POLL), ((5, 3, 4), 4 * POLL), ((500,), LONGEST_POLL)):
        waiters = [bench.expect(ahead=number) for number in ahead]
        bench.listener._poll_until = bench.runtime.now() + 1.0
        bench.slept.clear()
        run(bench.listener._poll())
        assert set(bench.slept) == {seconds}
        assert sum(bench.slept) >= 1.0 - 1e-9
        del waiters
        bench.forget()


def test_polling_delivers_what_a_notification_would_have(bench: Bench) -> None:
    waiter = bench.expect()
    bench.found = [(waiter.claim.owner.encode(), b"7", b"12.5", b"r64")]
    run(bench.listener._query_all([waiter]))
    assert waiter.handover == Handover(7, 12.5, False, 64)
    assert waiter.signal.is_set()


def test_a_poll_that_fails_is_left_for_the_next_one(bench: Bench) -> None:
    bench.failure = BackendUnavailable("away")
    run(bench.listener._query_all([bench.expect()]))


def test_polling_ends_with_the_client_and_with_the_last_waiter(bench: Bench) -> None:
    bench.listener._poll_until = math.inf
    run(bench.listener._poll())
    waiter = bench.expect()
    bench.listener._closed = True
    run(bench.listener._poll())
    assert bench.asked == []
    del waiter
