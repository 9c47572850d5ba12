"""The listener of MySQL step by step: when it listens, whom it wakes, when it tries again, how it ends."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, cast

import pytest

from leasehold._backends.mysql import notifications
from leasehold._backends.mysql.notifications import LISTEN_AGAIN, TRY_AGAIN, Listener
from leasehold._backends.mysql.packets import Answer, Result, ServerError
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.testing.clock import ManualClock
from leasehold.testing.runtimes import ManualThreadRuntime
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Callable

OVER, WOKEN = Answer([Result([(b"0",)])]), Answer([Result([(b"1",)])])
INTERRUPTED = Answer([], ServerError(1317, "70100", "interrupted"))
NAME = b"7:abcdef0123456789"


class Bench:
    """A listener whose work is done by the test; nothing else runs."""

    def __init__(self) -> None:
        self.clock = ManualClock(autojump=None)
        self.runtime = cast("Any", ManualThreadRuntime(self.clock))
        self.spawned: list[Callable[[], Any]] = []
        self.asked: list[bytes] = []
        self.answers: list[Answer | Exception] = []
        self.rung: list[tuple[bytes, float]] = []
        self.slept: list[float] = []
        self.errors: list[Exception | None] = []
        self.is_direct, self.number = True, 7
        self.closed = 0
        self.runtime.spawn = self.spawn
        self.runtime.sleep = self.sleep
        self.then: Callable[[], object] = lambda: None
        executor: Any = self
        self.label = "mysql://h/db"
        self.listener: Any = Listener(self.runtime, executor, self.connect)

    def spawn(self, coroutine: Any, name: str) -> Any:
        self.spawned.append(coroutine)
        return self

    async def join(self, _: float) -> bool:
        return True

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def connect(self) -> Any:
        self.then()
        return self

    async def query(self, text: bytes, until: float = math.inf, *, patience: float | None = None) -> Answer:
        assert patience is not None, "a sleep may take longer than an answer"
        self.asked.append(text)
        self.then()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def execute(self, text: bytes, until: float) -> None:
        self.rung.append((text, until - self.runtime.now()))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def close(self) -> None:
        self.closed += 1

    def interrupt(self) -> None:
        self.closed += 10

    def expect(self, name: str = "job", number: int = 0) -> Any:
        claim = Claim(f"leasehold:{name}", self.runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
        waiter = self.listener.expect(claim)
        waiter.number = number
        return waiter

    def work(self) -> None:
        """What has been spawned, one after the other."""
        while self.spawned:
            step: Any = self.spawned.pop(0)
            with pytest.raises(StopIteration):
                step.send(None)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_worker_listens_and_stores_its_number_and_a_token(bench: Bench) -> None:
    waiter = bench.expect()
    names: list[bytes | None] = []
    bench.then = lambda: names.append(bench.listener.name)
    bench.answers = [WOKEN, OVER]  # the user lock is ours; then nothing has woken it, and the waiter is gone by then
    assert bench.listener.ensure() is None
    assert bench.listener.ensure() is None
    assert len(bench.spawned) == 1

    async def forget(*_: object, **__: object) -> Answer:
        if len(bench.asked) == 1:
            bench.listener.forget(waiter)
        return await Bench.query(bench, *_, **__)  # type: ignore[arg-type]

    bench.query = forget  # type: ignore[method-assign]
    bench.work()
    number, _, token = (names[1] or b"").partition(b":")
    assert number == b"7"
    assert len(token) == 16
    assert bench.asked == [
        b"SELECT /* leasehold listener %b */ GET_LOCK('leasehold listeners', 2)" % token,
        b"SELECT /* leasehold listener %b */ SLEEP(2)" % token,
    ]
    assert bench.listener.name is None, "it does not listen any more"
    assert bench.closed == 1
    assert waiter.signal.is_set()
    bench.listener.ensure()
    assert len(bench.spawned) == 1, "and would begin again"


@pytest.mark.parametrize(
    ("answers", "wakes"),
    [
        ([OVER], False),
        ([INTERRUPTED], True),
        ([WOKEN, WOKEN], True),
        ([WOKEN, INTERRUPTED], True),
        ([Answer([Result([(None,)])])], True),
        ([Answer([], ServerError(1305, "42000", "no such function")), WOKEN], True),
    ],
    ids=["over", "killed", "asleep", "asleep and killed", "lock wait ended", "no lock and woken"],
)
def test_what_ends_a_sleep_is_a_wake_up_or_its_time(bench: Bench, answers: list[Answer], wakes: bool) -> None:
    waiters = [bench.expect()] if wakes else []
    bench.answers = list(answers)
    connection: Any = bench
    assert run(bench.listener._sleep(connection, b"token")) is wakes
    assert bench.answers == []
    del waiters


def test_a_sleep_goes_on_while_somebody_waits(bench: Bench) -> None:
    waiter = bench.expect()
    bench.answers = [OVER, OVER, INTERRUPTED]
    connection: Any = bench
    assert run(bench.listener._sleep(connection, b"token")) is True
    assert len(bench.asked) == 3
    assert not waiter.signal.is_set()


def test_a_sleep_that_the_server_refuses_is_an_error(bench: Bench) -> None:
    bench.listener._has_user_lock = True
    bench.answers = [Answer([], ServerError(1040, "HY000", "too many"))]
    connection: Any = bench
    with pytest.raises(BackendUnavailable):
        run(bench.listener._sleep(connection, b"token"))


def test_a_listener_that_failed_is_tried_again_after_a_while(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leasehold.mysql")
    waiter = bench.expect()

    def fail() -> None:
        raise BackendUnavailable("no connection is free")

    bench.then = fail
    bench.listener.ensure()
    bench.work()
    assert waiter.signal.is_set(), "each asks for its turn itself now"
    assert "no connection is free" in caplog.text
    bench.listener.ensure()
    assert bench.spawned == []
    bench.clock.advance(LISTEN_AGAIN)
    bench.listener.ensure()
    assert len(bench.spawned) == 1


def test_behind_a_proxy_nobody_listens_for_a_minute(bench: Bench) -> None:
    bench.is_direct = False
    waiter = bench.expect()
    bench.listener.ensure()
    bench.work()
    assert (bench.asked, bench.closed, bench.listener.name) == ([], 1, None)
    assert waiter.signal.is_set()
    bench.clock.advance(TRY_AGAIN - 1)
    bench.listener.ensure()
    assert bench.spawned == []
    bench.clock.advance(1)
    bench.listener.ensure()
    assert len(bench.spawned) == 1


def test_a_client_that_is_closed_while_its_listener_connects_leaves_no_connection(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leasehold.mysql")
    bench.expect()
    bench.listener.ensure()
    bench.then = lambda: setattr(bench.listener, "_closed", True)
    bench.work()
    assert (bench.asked, bench.closed) == ([], 1)
    bench.listener.ensure()
    assert bench.spawned == [], "a closed client does not listen again"
    assert caplog.text == ""


def test_closing_interrupts_a_listener_that_sleeps(bench: Bench) -> None:
    bench.listener._connection = bench
    run(bench.listener.close())
    assert bench.closed == 10
    assert bench.listener.name is None


def test_of_each_name_the_first_waiter_is_woken(bench: Bench) -> None:
    second, first, other = bench.expect(number=9), bench.expect(number=4), bench.expect("other", 12)
    bench.listener._wake_first()
    assert [waiter.signal.is_set() for waiter in (first, second, other)] == [True, False, True]


def test_one_waiter_is_remembered_for_a_claim_and_only_for_as_long_as_its_call_lasts(bench: Bench) -> None:
    waiter = bench.expect(number=1)
    assert bench.listener.expect(waiter.claim) is waiter
    del waiter
    assert len(bench.listener._waiters) == 0


def test_our_own_listener_is_woken_at_once_and_others_by_a_query_each(bench: Bench) -> None:
    waiter = bench.expect(number=1)
    bench.listener.name = NAME
    bench.listener.wake([NAME])
    assert waiter.signal.is_set()
    assert bench.spawned == [], "there is nobody else to wake"
    waiter.signal.clear()
    bench.listener.wake([b"8:00ff", b"9:00ee", b"8:00ff"])
    assert not waiter.signal.is_set()
    assert len(bench.spawned) == 1
    bench.errors = []
    run(bench.listener._wake_listeners())
    texts = sorted(text for text, _ in bench.rung)
    assert len(texts) == 2
    assert b"WHERE ID = 8 AND INFO LIKE 'SELECT /* leasehold listener 00ff */%'" in texts[0]
    assert texts[0].endswith(b"KILL QUERY @leasehold_listener")
    assert all(0 < left <= notifications.WAKE_PATIENCE for _, left in bench.rung)


@pytest.mark.parametrize("name", [b"", b"8", b"8:", b"x:00ff", b"8:0'ff", b"8; DROP:00ff", b"-8:00ff"])
def test_a_name_that_is_none_of_ours_is_never_sent(bench: Bench, name: bytes) -> None:
    """It comes out of a table that others can write to."""
    run(bench.listener._wake_listener(name))
    assert bench.rung == []


@pytest.mark.parametrize(
    ("errors", "tries"),
    [
        ([], 1),
        ([BackendRejected("unknown thread")], 2),
        ([BackendRejected("unknown thread")] * 3, 3),
        ([BackendUnavailable("away")], 1),
    ],
)
def test_a_listener_between_two_sleeps_is_called_again(
    bench: Bench, errors: list[Exception | None], tries: int
) -> None:
    bench.errors = list(errors)
    run(bench.listener._wake_listener(b"8:00ff"))
    assert len(bench.rung) == tries
    assert bench.slept == [0.0, 0.02, 0.1][:tries]
