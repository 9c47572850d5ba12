"""Connections of a client when something ends in the middle: a call that was interrupted, a pool that is closed."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest

from leasehold import BackendUnavailable, ClientClosed
from leasehold._runtimes.threads import run
from leasehold.kit.one_session import LOOK_AGAIN
from leasehold.kit.pool import CLOSE_PATIENCE, LINGER
from leasehold.kit.pool_queue import PoolQueue, Slot
from tests.unit.test_kit_pool import NOW, Connection, Filled, Runtime, Session, Upkeep, claim

# The pool


def test_a_slot_of_a_call_that_was_interrupted_is_free_for_the_same_user_and_for_nobody_else() -> None:
    pool = Filled(limit=1)
    pool.runtime.me = "a"
    interrupted = pool._new_slot(extra=False)  # an exception refers to it
    assert interrupted is not None
    with pytest.raises(BackendUnavailable):
        pool.get("b", until=NOW)
    assert pool.get("a") is pool.opened[0]
    with pytest.raises(BackendUnavailable):
        pool.get("a", until=NOW)


def test_a_connection_that_nobody_refers_to_any_more_makes_room() -> None:
    pool = Filled(limit=1)
    pool.get("a")
    pool.opened.clear()
    gc.collect()
    assert pool.get("b") is pool.opened[0]


def test_the_slot_of_a_connection_knows_it() -> None:
    pool = Filled()
    used = pool.get("a")
    assert used.slot.user == "a"
    assert used.slot.is_used
    assert used.slot.connection() is used


def test_a_busy_pool_says_how_many_connections_it_has_and_how_to_allow_more() -> None:
    pool = Filled(limit=1)
    used = pool.get("a")
    with pytest.raises(BackendUnavailable, match=r"all 1 connections to the store were busy; .*\?connections="):
        pool.get("b", until=NOW)
    pool.give(used)


def test_a_connection_that_was_opened_while_the_pool_was_closed_is_interrupted() -> None:
    pool = Filled()
    pool.is_closed = True
    got = pool.get("a")
    assert pool.interrupted == [got]


def test_a_broken_connection_is_not_interrupted_at_the_end() -> None:
    pool = Filled()
    broken, working = pool.get("a"), pool.get("b")
    broken.closed = 1
    run(pool.close())
    assert pool.interrupted == [working]


@pytest.mark.parametrize("dead", [True, False])
def test_who_waits_is_called_when_a_connection_has_failed(dead: bool) -> None:
    pool = Filled(limit=1)
    used = pool.get("a")
    waiter = pool.runtime.signal()
    pool._queue.rest.append(waiter)
    pool.discard(used, dead=dead)
    assert waiter.is_set(), "there is room for another"


def test_maintenance_that_ends_after_the_pool_closes_its_connection() -> None:
    pool = Filled()
    one = pool.get("a")
    pool.give(one)
    pool.maintenance = Upkeep()

    class Closing(Upkeep):
        async def run(self, connection: Any, /) -> None:
            pool.is_closed = True

    pool.maintenance = Closing()
    run(pool._maintain())
    assert one.closed == 1
    run(pool._maintain())


def test_a_connection_that_was_given_back_while_the_worker_ended_gets_another_worker() -> None:
    pool = Filled()
    one = pool.get("a")
    pool.give(one)
    assert len(pool.runtime.workers) == 1
    slots = list(pool._slots)
    pool._slots.clear()
    run(pool._work())
    assert slots
    assert len(pool.runtime.workers) == 2
    pool.is_closed = True
    pool._has_worker = True
    run(pool._work())
    assert len(pool.runtime.workers) == 2


def test_a_worker_whose_loop_is_shut_down_closes_what_is_idle() -> None:
    pool = Filled()
    one = pool.get("a")
    pool.give(one)

    def shut_down() -> None:
        raise KeyboardInterrupt

    pool.runtime.plan = [shut_down]
    with pytest.raises(KeyboardInterrupt):
        run(pool._work())
    assert one.closed == 1
    assert not pool._has_worker


def test_the_worker_looks_twice_in_the_time_that_a_connection_may_be_idle() -> None:
    pool = Filled()
    pool.give(pool.get("a"))
    pool.runtime.waits.clear()
    pool.runtime.plan = [pool._slots.clear]
    run(pool._work())
    assert pool.runtime.waits == [NOW + LINGER / 2]


# The queue


def test_those_who_go_first_are_called_first_and_at_the_end_everybody_is() -> None:
    queue = PoolQueue(Runtime())
    queue.call_one()
    signals = [Runtime().signal() for _ in range(4)]
    queue.rest.extend(signals[:2])
    queue.call_one()
    assert [signal.is_set() for signal in signals] == [True, False, False, False]
    signals[0].clear()
    queue.first.extend(signals[2:])
    queue.call_one()
    assert [signal.is_set() for signal in signals] == [False, False, True, False]
    queue.call_all()
    assert all(signal.is_set() for signal in signals)


def test_a_call_that_is_refused_while_it_waits_leaves_the_queue_and_wakes_the_next() -> None:
    runtime = Runtime()
    queue = PoolQueue(runtime)
    following = runtime.signal()
    looks = iter([lambda: None])

    def check() -> None:
        if next(looks, None) is None:
            raise ClientClosed(backend="the store")

    runtime.plan = [lambda: queue.rest.append(following)]
    with pytest.raises(ClientClosed):
        run(queue.wait_for(lambda: None, NOW + 60, check))
    assert list(queue.rest) == [following]
    assert following.is_set()


# One session


def test_a_session_that_could_not_be_opened_frees_its_user() -> None:
    session: Any = Session()

    async def fail(_: float) -> Any:
        raise BackendUnavailable("away")

    session._open = fail
    for user in "ab":
        with pytest.raises(BackendUnavailable, match="away"):
            session.get(user)
    assert session._user is None


def test_a_call_that_fails_because_its_client_was_closed_says_so() -> None:
    session: Any = Session()

    async def closed_meanwhile(_: float) -> Any:
        session.is_closed = True
        raise BackendUnavailable("interrupted")

    session._open = closed_meanwhile
    with pytest.raises(ClientClosed):
        session.get("a")


def test_another_error_is_not_covered_by_the_end_of_its_client() -> None:
    session: Any = Session()

    async def closed_meanwhile(_: float) -> Any:
        session.is_closed = True
        raise KeyboardInterrupt

    session._open = closed_meanwhile
    with pytest.raises(KeyboardInterrupt):
        session.get("a")


def test_a_call_that_waits_ends_with_its_client() -> None:
    session = Session()
    used = session.get("a")

    def close() -> None:
        session.runtime.me = "closer"
        run(session.close())

    session.runtime.plan = [close]
    with pytest.raises(ClientClosed):
        session.get("b")
    assert session.interrupted == [used]


def test_closing_joins_the_worker_for_a_bounded_time() -> None:
    session = Session()
    session.give(session.get("a"))
    run(session.close())
    assert session.runtime.joined == [NOW + CLOSE_PATIENCE]
    session.give(Connection())
    assert len(session.runtime.workers) == 1, "no worker is started after the end"


def test_a_release_goes_ahead_of_those_who_want_a_lock() -> None:
    session = Session()
    one = session.get("a")
    session.give(one)
    session._queue.rest.append(session.runtime.signal())
    session._queue._moved = NOW + 100
    assert session.get("b", first=True) is one
    session.give(one)
    with pytest.raises(BackendUnavailable, match="mode=session"):
        session.get("c", until=NOW)


def test_who_waits_is_called_when_the_session_is_free() -> None:
    session = Session()
    one = session.get("a")
    waiter = session.runtime.signal()
    session._queue.rest.append(waiter)
    session.give(one)
    assert waiter.is_set()


def test_what_a_connection_that_was_replaced_says_is_nobodys() -> None:
    session = Session()
    alarms: list[bool] = []
    session.on_end(lambda: alarms.append(True))
    old = Connection()
    session.give(session.get("a"))
    session.runtime.me = "worker"
    session.comes, old.usable = True, False
    run(session._watch(old))
    assert (alarms, old.closed) == ([], 0)


@pytest.mark.parametrize("when", ["used", "not ended"])
def test_a_session_that_said_something_is_looked_at_again_soon(when: str) -> None:
    session = Session()
    one = session.get("a")
    if when != "used":
        session.give(one)
    session.runtime.me = "worker"
    session.comes = True
    run(session._watch(one))
    assert session.runtime.waits == [NOW + LOOK_AGAIN]


def test_a_closed_session_raises_no_alarm() -> None:
    session = Session()
    alarms: list[bool] = []
    session.on_end(lambda: alarms.append(True))
    one = session.get("a")
    session.give(one)
    session.comes, one.usable, session.is_closed = True, False, True
    run(session._watch(one))
    assert alarms == []


def test_a_worker_of_a_session_whose_loop_is_shut_down_ends_it() -> None:
    session: Any = Session()
    one = session.get("a")
    session.give(one)

    async def shut_down(*_: Any) -> bool:
        raise KeyboardInterrupt

    session._comes = shut_down
    with pytest.raises(KeyboardInterrupt):
        run(session._work())
    assert one.closed == 1
    assert not session._has_worker


def test_a_grant_that_ran_out_needs_no_session_and_is_forgotten() -> None:
    session = Session()
    session.hold(claim("a", 10))
    session.runtime.clock.advance(10)
    assert not session._needed()
    assert session._held == {}


def test_maintenance_that_is_not_due_sends_nothing() -> None:
    session = Session()
    one = session.get("a")
    session.give(one)
    upkeep = session.maintenance = Upkeep()
    upkeep.due = False
    session.runtime.me = "worker"
    run(session._maintain())
    assert upkeep.ran == []
    assert one.recovered == 0
    assert session._user is None


def test_all_who_wait_for_the_session_are_called_when_it_is_closed() -> None:
    session = Session()
    session.give(session.get("a"))
    waiters = [session.runtime.signal(), session.runtime.signal(), session.runtime.signal()]
    session._queue.first.append(waiters[0])
    session._queue.rest.extend(waiters[1:])
    run(session.close())
    assert [waiter.is_set() for waiter in waiters] == [True] * 3


def test_who_did_not_get_the_session_does_not_take_it_from_who_has_it() -> None:
    session = Session()
    one = session.get("a")
    session._leave(Slot("b"))
    with pytest.raises(BackendUnavailable):
        session.get("b", until=session.runtime.now())
    session.give(one)
    assert session.get("b") is one


def test_no_session_is_begun_after_the_end() -> None:
    session = Session()
    one = session.get("a")
    session.give(one)

    async def closed_meanwhile(until: float = math.inf) -> bool:
        session.is_closed = True
        return False

    one.recovers = closed_meanwhile
    with pytest.raises(ClientClosed) as closed:
        session.get("a")
    assert closed.value.backend == "the store"
    assert (len(session.opened), one.closed) == (1, 1)
