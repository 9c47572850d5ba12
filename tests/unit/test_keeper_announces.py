"""What the keeper reports, and that no listener or log handler can delay its work."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import events
from leasehold._core.event_dispatcher import MOST_EVENTS, EventDispatcher
from leasehold._core.events import Events
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.testing import ManualStore

if TYPE_CHECKING:
    from collections.abc import Iterator


class Hang:
    """A callback that hangs until it is let go."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def __call__(self, _: object) -> None:
        self._over.wait(60)

    def let_go(self) -> None:
        self._over.set()


@pytest.fixture
def hang() -> Iterator[Hang]:
    hang = Hang()
    yield hang
    hang.let_go()


def test_a_loss_that_its_holder_saw_first_is_announced_as_a_loss_and_not_as_dropped() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect(ttl=30) as client:
        client.on_event(seen.append)
        lease = client.lock("report").acquire()
        store.clock.advance(31)
        assert lease.loss is not None
        del lease  # before the keeper could look
        patience = time.monotonic() + 30
        while len(seen) < 2 and time.monotonic() < patience:
            time.sleep(0.001)
    assert [type(event) for event in seen] == [events.Acquired, events.Lost]
    assert isinstance(seen[1], events.Lost)
    assert seen[1].loss.reason is leasehold.LossReason.EXPIRED


def is_kept_and_its_neighbour_hears_of_a_loss(store: ManualStore, client: leasehold.Client) -> None:
    """One lease goes on for many ttls, and the holder of another is notified when it is taken away."""
    told = threading.Event()
    kept, taken = client.lock("kept").acquire(), client.lock("taken")
    with pytest.raises(leasehold.LeaseLost), taken.hold(on_lost=lambda _: told.set()) as lease:
        for _ in range(40):
            store.pass_time(5)
        store.lose(lease)
        assert told.wait(30), "the holder was not notified"
        lease.check()
    assert kept.release(), "nothing is renewed any more"


def test_a_callback_that_hangs_does_not_keep_other_leases_from_being_renewed(hang: Hang) -> None:
    store = ManualStore()
    with store.connect(ttl=30) as client:
        with pytest.raises(leasehold.LeaseLost), client.lock("x").hold(on_lost=hang) as lease:
            store.lose(lease)
            is_kept_and_its_neighbour_hears_of_a_loss(store, client)
            hang.let_go()
            lease.check()


def test_a_listener_that_hangs_does_not_keep_other_leases_from_being_renewed(hang: Hang) -> None:
    store = ManualStore()
    with store.connect(ttl=30) as client:
        listening = client.on_event(lambda event: hang(event) if isinstance(event, events.Lost) else None)
        with pytest.raises(leasehold.LeaseLost), client.lock("x").hold() as lease:
            store.lose(lease)
            is_kept_and_its_neighbour_hears_of_a_loss(store, client)
            hang.let_go()
            lease.check()
        listening()


def test_a_log_that_hangs_does_not_keep_other_leases_from_being_renewed(hang: Hang) -> None:
    """As it does in all other threads, for ever, once a signal handler has raised while the main thread was logging."""

    class Stuck(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if threading.current_thread() is not threading.main_thread():
                hang(record)

    store = ManualStore()
    stuck = Stuck()
    logging.getLogger("leasehold").addHandler(stuck)
    try:
        with store.connect(ttl=30) as client:
            with pytest.raises(leasehold.LeaseLost), client.lock("x").hold() as lease:
                store.lose(lease)
                is_kept_and_its_neighbour_hears_of_a_loss(store, client)
                hang.let_go()
                lease.check()
    finally:
        logging.getLogger("leasehold").removeHandler(stuck)


def test_news_come_in_order_and_before_the_client_is_closed() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect(ttl=30) as client:
        client.on_event(seen.append)
        leases = [client.lock(f"n{number}").acquire() for number in range(20)]
        for lease in leases:
            store.lose(lease)
    lost = [event.name for event in seen if isinstance(event, events.Lost)]
    assert lost == [f"n{number}" for number in range(20)]


def test_events_for_a_listener_that_hangs_do_not_pile_up_without_end(hang: Hang) -> None:
    heard: list[events.Event] = []
    news = Events()
    news.subscribe(hang)
    news.subscribe(heard.append)
    runtime = ThreadRuntime()
    dispatcher = EventDispatcher(runtime, news)
    for number in range(MOST_EVENTS + 500):
        dispatcher.dispatch(events.Renewed(f"n{number}", number))
    hang.let_go()
    run(dispatcher.finish(runtime.now() + 60))
    assert [event.name for event in heard[:2]] == ["n0", "n1"]
    assert MOST_EVENTS <= len(heard) <= MOST_EVENTS + 1
