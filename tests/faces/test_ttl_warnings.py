"""What a store makes of a ttl is known: in the lease, once in the log, and when more is needed than there can be."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import connect_async, events
from leasehold._backends.memory import MemoryBackend, MemoryStore
from leasehold.errors import ConfigurationError, LeaseLost
from leasehold.testing import ManualStore
from leasehold.values import Grant
from tests.waiting import eventually

if TYPE_CHECKING:
    from leasehold import Client
    from leasehold.spi import Backend, Runtime


class SessionBackend(MemoryBackend):
    """Its grants live as long as it says: `first` when they are given, `later` with every renewal."""

    def __init__(self, store: MemoryStore, runtime: Runtime, first: float, later: float) -> None:
        super().__init__(store, runtime)
        self._first, self._later = first, later

    async def try_acquire(self, *arguments: Any) -> Any:
        return self._kept(await super().try_acquire(*arguments), self._first)

    async def join(self, *arguments: Any) -> Any:
        return self._kept(await super().join(*arguments), self._first)

    async def turn(self, *arguments: Any) -> Any:
        return self._kept(await super().turn(*arguments), self._first)

    async def renew(self, *arguments: Any) -> list[Any]:
        return [self._kept(answer, self._later) for answer in await super().renew(*arguments)]

    def _kept(self, answer: Any, ttl: float) -> Any:
        return replace(answer, ttl=ttl) if isinstance(answer, Grant) else answer


class SessionStore:
    """A store whose sessions decide how long a grant lives."""

    def __init__(self, first: float, later: float | None = None) -> None:
        self._memory = MemoryStore()
        self._first, self._later = first, first if later is None else later

    def open_backend(self, runtime: Runtime) -> Backend:
        return SessionBackend(self._memory, runtime, self._first, self._later)


def news_of(client: Client) -> list[events.TtlDiffers]:
    news: list[events.TtlDiffers] = []
    client.on_event(lambda event: news.append(event) if isinstance(event, events.TtlDiffers) else None)
    return news


def test_a_lease_has_the_ttl_that_the_store_gave() -> None:
    with leasehold.connect("memory://") as client, client.lock("x", ttl=20).hold() as lease:
        assert lease.ttl == 20
    with leasehold.connect(SessionStore(7)) as client, client.lock("x", ttl=2).hold() as lease:
        assert lease.ttl == 7


def test_an_async_lease_has_the_ttl_that_the_store_gave() -> None:
    async def main() -> None:
        async with connect_async(SessionStore(7)) as client, client.lock("x", ttl=2).hold() as lease:
            assert lease.ttl == 7

    asyncio.run(main())


def test_a_store_that_gives_more_is_reported_once_for_each_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "leasehold")
    with leasehold.connect(SessionStore(7)) as client:
        news = news_of(client)
        for name in ("x", "x", "y", "x"):
            with client.lock(name, ttl=2).hold():
                pass
    assert [(event.name, event.asked, event.given) for event in news] == [("x", 2, 7), ("y", 2, 7)]
    assert [record.levelname for record in caplog.records if "ttl" in record.message] == ["WARNING"] * 2


def test_a_store_that_gives_less_is_reported_when_a_renewal_has_shown_it() -> None:
    with leasehold.connect(SessionStore(3)) as client:
        news = news_of(client)
        with client.lock("x", ttl=20).hold() as lease:
            eventually(lambda: bool(news), "the first renewal shows that this is all there is")
            assert lease.ttl == 3
        assert [(event.name, event.asked, event.given) for event in news] == [("x", 20, 3)]


def test_a_store_that_gives_less_is_reported_for_a_lease_that_is_not_renewed() -> None:
    with leasehold.connect(SessionStore(3)) as client:
        news = news_of(client)
        with client.lock("x", ttl=20, renew=False).hold() as lease:
            assert lease.ttl == 3
    assert [(event.name, event.asked, event.given) for event in news] == [("x", 20, 3)]


def test_the_short_time_after_a_hand_over_is_not_reported() -> None:
    with leasehold.connect(SessionStore(3, 20)) as client:
        news = news_of(client)
        with client.lock("x", ttl=20).hold() as lease:
            with pytest.raises(LeaseLost, match="are needed"):
                lease.check(need=10)
            eventually(lambda: lease.ttl == 20, "it is renewed at once")
            lease.check(need=10)
    assert news == []


def test_a_clock_margin_is_not_reported() -> None:
    """A store that counts in whole milliseconds, say, gives what was asked for."""
    with leasehold.connect(SessionStore(20.1)) as client:
        news = news_of(client)
        with client.lock("x", ttl=20).hold():
            pass
    assert news == []


def test_a_need_that_no_renewal_can_meet_is_a_mistake_and_not_a_loss() -> None:
    with ManualStore().connect() as client, client.lock("x", ttl=10).hold() as lease:
        for need in (10, 30):
            with pytest.raises(ConfigurationError, match=r"can never pass.*10 s"):
                lease.check(need=need)
        lease.check(need=9)
        assert lease.loss is None


def test_a_need_that_is_longer_than_max_hold_is_a_mistake_and_not_a_loss() -> None:
    with ManualStore().connect() as client, client.lock("x", ttl=60, max_hold=10).hold() as lease:
        for need in (10, 30):
            with pytest.raises(ConfigurationError, match=r"can never pass.*10 s at most; lock with a longer max_hold"):
                lease.check(need=need)
        lease.check(need=9)
        assert lease.loss is None


def test_a_need_is_compared_with_the_max_hold_of_the_call_that_takes_a_lease_that_lingered() -> None:
    with ManualStore().connect() as client:
        client.lock("x", ttl=60, linger=1).acquire().release()
        with client.lock("x", ttl=60, linger=1, max_hold=10).hold() as lease:
            with pytest.raises(ConfigurationError, match="10 s at most"):
                lease.check(need=30)


def test_a_need_that_the_stores_own_ttl_cannot_meet_is_a_mistake() -> None:
    with leasehold.connect(SessionStore(3)) as client, client.lock("x", ttl=20, renew=False).hold() as lease:
        with pytest.raises(ConfigurationError, match=r"can never pass.*3 s"):
            lease.check(need=10)


def test_a_need_that_a_renewal_can_meet_is_still_a_loss_when_the_time_is_short() -> None:
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x", ttl=10, renew=False).acquire()
        store.clock.advance(5)
        with pytest.raises(LeaseLost, match="are needed"):
            lease.check(need=6)
        lease.check(need=3)
        store.clock.advance(5)
        with pytest.raises(LeaseLost, match="over"):
            lease.check(need=30)
        lease.release()
