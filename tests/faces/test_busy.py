"""What a call does while the lock is another's: `backoff`, `on_busy`, `on_wait` and the warning of a slow wait."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import AcquireTimeout, Backoff, ConfigurationError, Holder, connect_async, events
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TWO_TRIES = Backoff(("1ms",), tries=2)


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect("memory://") as client:
        yield client


# --- backoff


def test_with_backoff_a_call_gives_up_after_its_tries_without_a_timeout(client: leasehold.Client) -> None:
    with client.lock("x").hold(), pytest.raises(AcquireTimeout, match="and 2 tries"):
        client.lock("x").acquire(None, backoff=TWO_TRIES)


def test_with_backoff_nobody_queues(client: leasehold.Client) -> None:
    lengths: list[int] = []

    def look(position: int | None, _: Holder | None, __: float) -> None:
        state = client.inspect("x")
        lengths.append(-1 if state is None else len(state.waiting))
        assert position is None

    with client.lock("x").hold(), pytest.raises(AcquireTimeout):
        client.lock("x").acquire(None, backoff=Backoff(("1ms",), tries=4), on_wait=look)
    assert lengths == [0, 0, 0]


def test_the_timeout_counts_with_backoff_too(client: leasehold.Client) -> None:
    slow = Backoff(("1h",), longest="1h")
    with client.lock("x").hold():
        with pytest.raises(AcquireTimeout, match="at once"):
            client.lock("x").acquire(0, backoff=slow)
        with pytest.raises(AcquireTimeout, match="and 2 tries"):  # the pause is cut to the timeout, and one try is left
            client.lock("x").acquire(0.05, backoff=slow)


def test_hold_locked_and_sets_take_a_backoff(client: leasehold.Client) -> None:
    @client.locked("x", timeout=None, backoff=TWO_TRIES)
    def ship() -> str:
        return "shipped"

    with client.lock("x").hold():
        with pytest.raises(AcquireTimeout), client.lock("x").hold(None, backoff=TWO_TRIES):
            pytest.fail("it has no lock")
        with pytest.raises(AcquireTimeout):
            ship()
        with pytest.raises(AcquireTimeout):
            client.lock_all(["w", "x"]).acquire(None, backoff=TWO_TRIES)
        assert client.inspect("w") is None
    assert ship() == "shipped"


@pytest.mark.parametrize("wrong", [{"backoff": 0.1}, {"backoff": "10ms"}, {"on_wait": 3}, {"on_busy": 3}], ids=str)
def test_wrong_options_are_refused_before_anything_is_asked(client: leasehold.Client, wrong: dict[str, Any]) -> None:
    for call in (client.lock("x").acquire, client.lock("x").hold, client.lock_all(["x"]).acquire):
        with pytest.raises(ConfigurationError):
            call(1, **wrong)
    with pytest.raises(ConfigurationError):
        client.locked("x", **wrong)
    with pytest.raises(TypeError, match="no option 'retries'"):
        client.lock("x").acquire(1, retries=3)  # type: ignore[call-overload]


async def coroutine(*_: object) -> None:
    """A function that must be awaited."""


def test_a_function_that_must_be_awaited_is_refused_where_nothing_awaits(client: leasehold.Client) -> None:
    with pytest.raises(ConfigurationError, match="async"):
        client.lock("x").acquire(on_busy=coroutine)
    with pytest.raises(ConfigurationError, match="async"):
        client.locked("x", on_busy=coroutine)
    with pytest.raises(ConfigurationError, match="async"):
        client.lock("x").acquire(on_wait=coroutine)


# --- on_busy


def test_acquire_returns_what_on_busy_gives_or_the_lease(client: leasehold.Client) -> None:
    lock = client.lock("x")
    with lock.hold():
        assert lock.acquire(0, on_busy=lambda busy: (busy.name, busy.holder is not None)) == ("x", True)
        assert client.lock_all(["x", "y"]).acquire(0, on_busy=lambda _: None) is None
    lease = lock.acquire(0, on_busy=lambda _: None)
    assert isinstance(lease, leasehold.Lease)
    lease.release()
    assert lease.fence == 2


def test_on_busy_is_only_for_a_lock_that_cannot_be_had(client: leasehold.Client) -> None:
    client.close()
    with pytest.raises(leasehold.ClientClosed):
        client.lock("x").acquire(0, on_busy=lambda _: None)


def test_hold_calls_on_busy_and_still_never_runs_the_block(client: leasehold.Client) -> None:
    queue: list[str | None] = []
    with client.lock("x").hold():
        with pytest.raises(AcquireTimeout), client.lock("x").hold(0, on_busy=lambda busy: queue.append(busy.name)):
            pytest.fail("it has no lock")
        assert queue == ["x"]

        def refuse(busy: AcquireTimeout) -> None:
            raise PermissionError(str(busy))  # as a web application would raise its 409

        with pytest.raises(PermissionError), client.lock("x").hold(0, on_busy=refuse):
            pytest.fail("it has no lock")


def test_a_decorated_call_can_be_put_on_a_queue_and_repeated(client: leasehold.Client) -> None:
    queue: list[Callable[[], Any]] = []
    done: list[tuple[int, str]] = []

    def later(busy: AcquireTimeout, call: Callable[[], Any]) -> str:
        queue.append(call)
        return f"{busy.name} comes later"

    @client.locked("order:{order}", timeout=0, on_busy=later)
    def ship(order: int, *, how: str = "by land") -> str:
        done.append((order, how))
        return "shipped"

    with client.lock("order:7").hold():
        assert ship(7, how="by sea") == "order:7 comes later"
    assert ship(8) == "shipped"
    (call,) = queue
    assert isinstance(call, functools.partial)
    assert (call.args, call.keywords) == ((7,), {"how": "by sea"})
    with client.lock("order:7").hold():
        assert call() == "order:7 comes later", "it wants the lock again"
    assert call() == "shipped"
    assert done == [(8, "by land"), (7, "by sea")]


def test_on_an_event_loop_a_decorated_call_waits_as_it_was_told() -> None:
    async def main() -> None:
        heard: list[int | None] = []
        async with connect_async("memory://") as client:

            def look(position: int | None, _: Holder | None, __: float) -> None:
                heard.append(position)

            @client.locked("x:{number}", timeout=None, backoff=TWO_TRIES, on_wait=look)
            async def work(number: int) -> None:
                raise AssertionError(number)

            @client.locked("x:{number}", timeout=0)
            async def at_once(number: int) -> None:
                raise AssertionError(number)

            @client.locked("x:{number}", timeout=0, on_busy=lambda _, call: call)
            async def later(number: int) -> Any:
                return number

            async with client.lock("x:7").hold():
                with pytest.raises(AcquireTimeout, match="and 2 tries"):
                    await work(7)
                with pytest.raises(AcquireTimeout, match="at once"):
                    await at_once(7)
                call = await later(7)
                assert isinstance(await call(), functools.partial), "it wants the lock again"
            assert await call() == 7
        assert heard == [None]

    asyncio.run(main())


def test_on_an_event_loop_on_busy_may_be_a_coroutine() -> None:
    async def later(busy: AcquireTimeout) -> str:
        await asyncio.sleep(0)
        return f"{busy.name} comes later"

    async def main() -> None:
        async with connect_async("memory://") as client:

            @client.locked("x", timeout=0, on_busy=later)
            async def ship() -> str:
                return "shipped"

            async with client.lock("x").hold():
                assert await client.lock("x").acquire(0, on_busy=later) == "x comes later"
                assert await ship() == "x comes later"
                with pytest.raises(AcquireTimeout):
                    async with client.lock("x").hold(0, on_busy=later):
                        pytest.fail("it has no lock")
            assert await ship() == "shipped"

    asyncio.run(main())


# --- on_wait


def test_on_wait_is_called_at_once_and_then_every_second_in_the_thread_that_waits(client: leasehold.Client) -> None:
    reports: list[tuple[int | None, Holder | None, float, int]] = []

    def on_wait(position: int | None, holder: Holder | None, waited: float) -> None:
        reports.append((position, holder, waited, threading.get_ident()))

    lease = client.lock("x").acquire()
    thread = threading.Thread(target=lambda: client.lock("x").acquire(None, on_wait=on_wait).release())
    thread.start()
    eventually(lambda: len(reports) >= 3, "three reports")
    lease.release()
    thread.join(30)
    positions, holders, waits, threads = zip(*reports, strict=True)
    assert set(positions) == {1}
    assert {holder.pid for holder in holders if holder} == {lease.holder.pid}
    assert list(waits) == sorted(waits)
    assert len(reports) <= waits[-1] + 3, "not more often"
    assert set(threads) == {thread.ident}


def test_what_on_wait_raises_ends_the_wait(client: leasehold.Client) -> None:
    def enough(*_: object) -> None:
        raise ZeroDivisionError

    with client.lock("x").hold():
        with pytest.raises(ZeroDivisionError):
            client.lock("x").acquire(None, on_wait=enough)
        with pytest.raises(ZeroDivisionError):
            client.lock("x").acquire(None, on_wait=enough, backoff=TWO_TRIES)
        state = client.inspect("x")
        assert state is not None
        assert state.waiting == ()


def test_on_wait_is_not_called_when_the_lock_is_free(client: leasehold.Client) -> None:
    def never(*_: object) -> None:
        pytest.fail("there is nothing to wait for")

    client.lock("x").acquire(5, on_wait=never).release()
    with client.lock("x").hold(5, on_wait=never):
        pass


# --- the warning of a slow wait


def wait_a_moment(client: leasehold.Client, **options: Any) -> None:
    """Wait for a lock of another thread, longer than a short `slow_wait`."""
    lease = client.lock("x").acquire()
    waiting = threading.Event()
    thread = threading.Thread(
        target=lambda: client.lock("x", **options).acquire(None, on_wait=lambda *_: waiting.set()).release()
    )
    thread.start()
    assert waiting.wait(30)
    thread.join(0.3)
    lease.release()
    thread.join(30)


def slow_waits(records: list[logging.LogRecord]) -> list[int]:
    return [record.levelno for record in records if record.getMessage().startswith("waiting for 'x'")]


def test_when_a_wait_is_slow_and_how_that_is_logged_is_the_clients_or_the_locks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "leasehold")
    with leasehold.connect("memory://", slow_wait="50ms", slow_wait_level="info") as client:
        seen: list[events.Event] = []
        client.on_event(seen.append)
        wait_a_moment(client)
        assert slow_waits(caplog.records) == [logging.INFO]
        assert sum(isinstance(event, events.Waiting) for event in seen) == 1
        caplog.clear()
        wait_a_moment(client, slow_wait_level=logging.ERROR)
        assert slow_waits(caplog.records) == [logging.ERROR]
        caplog.clear()
        wait_a_moment(client, slow_wait=None)
        assert slow_waits(caplog.records) == []


def test_by_default_a_wait_is_slow_after_a_second_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "leasehold")
    with leasehold.connect("memory://") as client:
        wait_a_moment(client)
        assert slow_waits(caplog.records) == []
        spec = client.lock("x")._twin._spec
        assert (spec.slow_wait, spec.slow_wait_level) == (1.0, logging.WARNING)


@pytest.mark.parametrize("wrong", [{"slow_wait": -1}, {"slow_wait": "soon"}, {"slow_wait_level": "loud"}], ids=str)
def test_a_wrong_slow_wait_is_refused(client: leasehold.Client, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        client.lock("x", **wrong)
    with pytest.raises(ConfigurationError):
        leasehold.connect("memory://", **wrong)


def test_a_thread_that_waits_for_itself_is_warned_whatever_slow_wait_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "leasehold")
    with leasehold.connect("memory://", slow_wait=None, slow_wait_level="DEBUG") as client:
        leases: list[leasehold.Lease] = []

        def work() -> None:
            leases.append(client.lock("x").acquire())
            client.lock("x").acquire(None).release()

        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: bool(slow_waits(caplog.records)), "a warning")
        assert slow_waits(caplog.records) == [logging.WARNING]
        leases[0].release()
        thread.join(30)
