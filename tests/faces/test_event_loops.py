"""One async client on many event loops: what belongs to a loop, how it ends with it, and what `close` does."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.errors import ClientClosed, ConfigurationError, LeaseLost
from leasehold.events import Renewed, WaitBegan
from leasehold.values import LossReason
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator


class OtherLoop:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LIMIT)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop):
            asyncio.set_event_loop(self.loop)
            self.loop.run_forever()


@contextmanager
def another_loop() -> Iterator[OtherLoop]:
    other = OtherLoop()
    try:
        yield other
    finally:
        other.stop()


def new_client(**options: Any) -> leasehold.AsyncClient:
    return leasehold.connect_async("memory://", **options)


def test_a_lease_is_refused_on_another_loop_than_its_own() -> None:
    client = new_client()
    with another_loop() as other:
        lease = other.run(client.lock("x").acquire())

        async def use_it_here() -> None:
            for call in (lease.renew, lease.release, lease.lost.wait, lease.__aenter__):
                with pytest.raises(ConfigurationError, match="'x' belongs to the event loop that it was acquired on"):
                    await call()
            lease.check()
            assert lease.remaining() > 0
            assert not lease.lost
            assert await client.lock("x").try_acquire() is None

        asyncio.run(use_it_here())
        assert other.run(lease.release()) is True
        asyncio.run(client.close())


def test_a_set_of_leases_is_refused_on_another_loop_as_well() -> None:
    client = new_client()
    with another_loop() as other:
        leases = other.run(client.lock_all(["a", "b"]).acquire())

        async def enter_it_here() -> None:
            with pytest.raises(ConfigurationError, match="belongs to the event loop"):
                async with leases:
                    pytest.fail("the block ran")

        asyncio.run(enter_it_here())
        assert other.run(leases.release()) is True
        other.run(client.close())


def test_closing_ends_leases_and_waiting_calls_of_a_loop_in_another_thread() -> None:
    client, events = new_client(), list[object]()
    client.on_event(events.append)
    with another_loop() as other:
        lease = other.run(client.lock("x").acquire())
        waiting = asyncio.run_coroutine_threadsafe(client.lock("x").acquire(timeout=None), other.loop)
        eventually(lambda: any(isinstance(event, WaitBegan) for event in events))
        with pytest.warns(ResourceWarning, match="the client was closed while it held 'x'"):
            asyncio.run(client.close())
        with pytest.raises(ClientClosed):
            waiting.result(LIMIT)
        assert lease.loss.reason is LossReason.CLOSED
        with pytest.raises(ClientClosed):
            other.run(client.lock("y").acquire())


def test_closing_with_release_gives_back_what_another_loop_holds() -> None:
    client, heir = leasehold.connect_async("memory://given-back"), leasehold.connect("memory://given-back")
    with another_loop() as other, heir:
        lease = other.run(client.lock("x").acquire())
        asyncio.run(client.close(release=True))
        assert lease.loss.reason is LossReason.GIVEN_BACK
        heir.lock("x").acquire(timeout=0).release()


def test_closing_does_not_wait_for_a_loop_that_does_not_run() -> None:
    client, paused = new_client(), asyncio.new_event_loop()
    try:
        lease = paused.run_until_complete(client.lock("x").acquire())
        with pytest.warns(ResourceWarning, match="an event loop ended while 'x' was held on it"):
            asyncio.run(client.close())
        with pytest.raises(LeaseLost, match="its event loop has ended"):
            lease.check()
    finally:
        paused.run_until_complete(paused.shutdown_asyncgens())
        paused.close()


def test_a_generator_that_ends_with_its_loop_can_still_release() -> None:
    client = new_client()

    async def rows() -> AsyncIterator[int]:
        async with client.lock("x").hold():
            try:
                yield 1
            finally:
                await asyncio.sleep(0.02)  # the client is told of the end meanwhile

    async def stop_in_the_middle() -> None:
        client.lock("y")
        generators.append(rows())
        await anext(generators[0])

    generators: list[Any] = []
    asyncio.run(stop_in_the_middle())
    assert asyncio.run(_is_free(client))


def test_a_loop_that_has_ended_renews_nothing() -> None:
    client, renewals = new_client(ttl=0.3), list[object]()
    client.on_event(lambda event: renewals.append(event) if isinstance(event, Renewed) else None)
    kept: list[leasehold.AsyncLease] = []

    async def leave() -> None:
        kept.append(await client.lock("x").acquire())
        while not renewals:
            await asyncio.sleep(0.01)

    with pytest.warns(ResourceWarning, match="'x'"):
        asyncio.run(asyncio.wait_for(leave(), LIMIT))
    renewals.clear()
    eventually(lambda: asyncio.run(_is_free(client)))
    assert not renewals


async def _is_free(client: leasehold.AsyncClient) -> bool:
    lease = await client.lock("x").try_acquire()
    return lease is not None and await lease.release()


def test_a_lock_and_a_decorated_function_made_before_any_loop_serve_all_of_them() -> None:
    client = new_client()
    calls: list[int] = []

    @client.locked("order:{number}")
    async def sell(number: int, lease: leasehold.AsyncLease = leasehold.CURRENT) -> None:
        calls.append(lease.fence)

    for number in range(3):
        asyncio.run(sell(number))
    assert len(set(calls)) == 3
    asyncio.run(client.close())


def test_another_loop_does_not_wait_for_one_that_is_blocked() -> None:
    client, blocked, over = new_client(), threading.Event(), threading.Event()

    async def block() -> None:
        async with client.lock("a").hold():
            blocked.set()
            over.wait(LIMIT)

    async def go_on() -> None:
        async with client.lock("b").hold(timeout=LIMIT):
            pass

    with another_loop() as other:
        blocking = asyncio.run_coroutine_threadsafe(block(), other.loop)
        assert blocked.wait(LIMIT)
        asyncio.run(go_on())
        assert not blocking.done()
        over.set()
        blocking.result(LIMIT)
        started = time.monotonic()
        asyncio.run(client.close())
        assert time.monotonic() - started < LIMIT


def test_a_blocking_call_that_stops_a_loop_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold._runtimes.stopped_loop._said", [])

    async def main() -> None:
        with leasehold.connect("memory://") as client, client.lock("x").hold():
            assert not caplog.records, "what does not wait stops nothing"
            for _ in range(2):
                with pytest.raises(leasehold.AcquireTimeout):
                    client.lock("x").acquire(timeout=0.01)

    asyncio.run(main())
    assert len([record for record in caplog.records if "inside a running event loop" in record.message]) == 1


def test_a_thread_that_waits_while_another_one_imports_asyncio_is_not_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module is in `sys.modules` from the begin of its import, before it has anything."""
    for name in ("asyncio", "asyncio.events"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with leasehold.connect("memory://") as client, client.lock("x").hold(), pytest.raises(leasehold.AcquireTimeout):
        client.lock("x").acquire(timeout=0.01)
