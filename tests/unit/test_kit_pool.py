"""Connections of a client, step by step: the pool, its queue, and the one session; what is opened, kept and closed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendUnavailable, ClientClosed
from leasehold._runtimes.threads import run
from leasehold.kit.one_session import OneSession
from leasehold.kit.pool import BUSY, CLOSE_PATIENCE, LINGER, Pool
from leasehold.kit.pool_queue import LOOK_AGAIN, STUCK, PoolQueue
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    pass

NOW = 1_000.0


class Runtime(PlannedWaits):
    """Workers are kept and not run."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: list[Any] = []
        self.joined: list[float | None] = []

    def spawn(self, work: Any, name: str) -> Any:
        self.workers.append(name)
        work.close()
        return self

    async def join(self, deadline: float | None = None) -> bool:
        self.joined.append(deadline)
        return True


class Connection:
    """One that works until it is told otherwise."""

    slot: Any = None
    idle_since = 0.0

    def __init__(self) -> None:
        self.usable, self.closed, self.owed, self.recovered = True, 0, False, 0
        self.recovery: Any = True

    def is_usable(self) -> bool:
        return self.usable

    def is_broken(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed += 1

    def view(self) -> Connection:
        return self

    def is_owed(self) -> bool:
        return self.owed

    async def recovers(self, until: float = math.inf) -> bool:
        self.recovered += 1
        if isinstance(self.recovery, BaseException):
            raise self.recovery
        return bool(self.recovery)


class Upkeep:
    """Maintenance that is due when it is told so."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.due, self.ran, self.error = True, list[Any](), error

    def is_due(self) -> bool:
        return self.due

    async def run(self, connection: Any, /) -> None:
        self.ran.append(connection)
        if self.error is not None:
            raise self.error


class Filled(Pool[Any]):
    """A pool whose connections are made here."""

    def __init__(self, limit: int = 2) -> None:
        self.runtime = Runtime()
        super().__init__(self.runtime, "the store", limit, 5.0)
        self.opened: list[Connection] = []
        self.untils: list[float] = []
        self.interrupted: list[Any] = []
        self.failing: BaseException | None = None

    async def _open(self, until: float) -> Any:
        self.untils.append(until)
        if self.failing is not None:
            raise self.failing
        self.opened.append(Connection())
        return self.opened[-1]

    def _interrupt(self, connection: Any) -> None:
        self.interrupted.append(connection)

    def get(self, user: str = "me", until: float = math.inf, **options: Any) -> Any:
        self.runtime.me = user
        return run(self.take(until, **options))


def test_a_connection_that_was_given_back_is_used_again_the_last_one_first() -> None:
    pool = Filled()
    one, two = pool.get("a"), pool.get("b")
    pool.give(one)
    pool.give(two)
    assert pool.get("c") is two
    assert pool.get("d") is one
    assert len(pool.opened) == 2


def test_a_connection_is_opened_by_the_end_of_its_call() -> None:
    pool = Filled()
    pool.get(until=NOW + 3)
    assert pool.untils == [NOW + 3]


def test_no_more_are_opened_than_allowed_and_a_call_waits_three_timeouts_for_one() -> None:
    pool = Filled(limit=2)
    used = [pool.get("a"), pool.get("b")]
    with pytest.raises(BackendUnavailable) as busy:
        pool.get("c")
    assert busy.value.backend == "the store"
    assert pool.runtime.now() == pytest.approx(NOW + BUSY * 5.0)
    with pytest.raises(BackendUnavailable):
        pool.get("c", until=pool.runtime.now() + 1)
    assert pool.runtime.now() == pytest.approx(NOW + BUSY * 5.0 + 1)
    assert len(used) == len(pool.opened) == 2
    assert not pool._queue.rest, "nobody is left in the queue"


def test_what_may_go_beyond_the_limit_does_so_by_one() -> None:
    pool = Filled(limit=1)
    used = [pool.get("a"), pool.get("b", extra=True)]
    with pytest.raises(BackendUnavailable):
        pool.get("c", until=NOW, extra=True)
    assert len(used) == 2


def test_a_connection_that_is_given_back_ends_a_wait() -> None:
    pool = Filled(limit=1)
    used = pool.get("a")
    pool.runtime.plan = [lambda: pool.give(used)]
    assert pool.get("b") is used
    assert len(pool.runtime.waits) == 1


def test_a_connection_that_failed_makes_room_for_another() -> None:
    pool = Filled(limit=1)
    used = pool.get("a")
    pool.runtime.plan = [lambda: pool.discard(used, dead=False)]
    got = pool.get("b")
    assert got is not used
    assert (used.closed, used.slot) == (1, None)


@pytest.mark.parametrize("dead", [True, False])
def test_when_one_connection_has_failed_the_idle_ones_are_closed_as_well(dead: bool) -> None:
    pool = Filled()
    one, two = pool.get("a"), pool.get("b")
    pool.give(one)
    pool.discard(two, dead=dead)
    assert (one.closed, two.closed) == (int(dead), 1)


def test_a_connection_that_the_server_has_ended_is_replaced() -> None:
    pool = Filled(limit=1)
    used = pool.get("a")
    pool.give(used)
    used.usable = False
    used.slot = None
    assert pool.get("b") is not used
    assert used.closed == 1


def test_a_connection_that_could_not_be_opened_takes_no_room() -> None:
    pool = Filled(limit=1)
    pool.failing = BackendUnavailable("away")
    failures = []
    for user in "abc":
        with pytest.raises(BackendUnavailable, match="away") as raised:
            pool.get(user)
        failures.append(raised)  # the error lives on, and what it refers to with it
    pool.failing = None
    assert pool.get("d") is pool.opened[0]


def test_a_call_waits_behind_those_that_came_before_and_a_release_goes_first() -> None:
    pool = Filled(limit=1)
    pool.give(pool.get("a"))
    pool._queue.rest.append(pool.runtime.signal())
    first = pool.get("b", first=True)
    assert pool.runtime.waits == []
    pool.give(first)
    pool._queue.first.append(pool.runtime.signal())
    pool._queue._moved = NOW + 100  # it is no head that got stuck
    for options in ({"first": True}, {"first": False}):
        with pytest.raises(BackendUnavailable):
            pool.get("c", until=pool.runtime.now(), **options)


@pytest.mark.parametrize("queue", ["first", "rest"])
def test_who_waits_is_called_when_a_connection_is_given_back(queue: str) -> None:
    pool = Filled(limit=1)
    used = pool.get("a")
    waiter = pool.runtime.signal()
    getattr(pool._queue, queue).append(waiter)
    pool.give(used)
    assert waiter.is_set()


@pytest.mark.parametrize("when", ["idle", "used", "new"])
def test_closing_ends_every_connection_and_every_call(when: str) -> None:
    pool = Filled(limit=1)
    connection = pool.get("a")
    waiters = [pool.runtime.signal(), pool.runtime.signal()]
    pool._queue.first.append(waiters[0])
    pool._queue.rest.append(waiters[1])
    if when == "idle":
        pool.give(connection)
        waiters[0].clear()
    elif when == "new":
        pool._new.add(connection)
        connection.slot = None
    run(pool.close())
    assert pool.interrupted == ([] if when == "idle" else [connection])
    assert connection.closed == (when == "idle")
    assert [waiter.is_set() for waiter in waiters] == [True, True], "all that wait learn of it now"
    pool._queue.first.clear()
    pool._queue.rest.clear()
    pool.give(connection)
    assert connection.closed, "what is given back now is closed"
    assert pool.runtime.joined == ([NOW + CLOSE_PATIENCE] if when == "idle" else [])


def test_closing_ends_a_call_that_waits_for_a_connection() -> None:
    pool = Filled(limit=1)
    used = pool.get("a")
    pool.runtime.plan = [lambda: run(pool.close())]
    with pytest.raises(ClientClosed) as closed:
        pool.get("b")
    assert closed.value.backend == "the store"
    assert pool.interrupted == [used]


def test_the_worker_is_started_once_and_not_after_the_end() -> None:
    pool = Filled()
    one, two = pool.get("a"), pool.get("b")
    pool.give(one)
    pool.give(two)
    assert pool.runtime.workers == ["leasehold store connections"]
    run(pool.close())
    pool._has_worker = False
    pool.give(Connection())
    assert len(pool.runtime.workers) == 1


def test_the_worker_closes_what_is_idle_for_too_long_and_ends_with_the_last() -> None:
    pool = Filled()
    one, two = pool.get("a"), pool.get("b")
    pool.give(one)
    pool.runtime.clock.advance(LINGER * 0.75)
    pool.give(two)
    two_slot = two.slot

    def end() -> None:
        pool.runtime.clock.advance(LINGER / 2)
        if one.closed and not two.closed:
            assert pool.runtime.now() >= NOW + LINGER
            one.slot = None
        if two.closed:
            two.slot = None
            pool._slots.clear()

    pool.runtime.plan = [end] * 6
    pool._has_worker = True
    upkeep = pool.maintenance = Upkeep()
    run(pool._work())
    assert upkeep.ran, "it does the maintenance as well"
    assert (one.closed, two.closed) == (1, 1)
    assert not pool._has_worker
    assert two_slot is not None


@pytest.mark.parametrize(
    ("idle_for", "closed"),
    [
        ((1.9, 1.0, 0.1), [0, 0, 0]),
        ((2.1, 1.9, 0.1), [1, 0, 0]),
        ((5.0, 2.5, 1.5), [1, 1, 0]),
        ((9.0, 8.0, 7.0), [1] * 3),
    ],
)
def test_the_worker_closes_those_that_have_been_idle_for_two_seconds_and_keeps_the_others_in_their_order(
    idle_for: tuple[float, ...], closed: list[int]
) -> None:
    pool = Filled(limit=3)
    connections = [pool.get(user) for user in "abc"]
    now = NOW + 10
    for connection, seconds in zip(connections, idle_for, strict=True):
        pool.runtime.clock.advance(now - seconds - pool.runtime.now())
        pool.give(connection)
    pool._close_idle(now - LINGER)
    assert [connection.closed for connection in connections] == closed
    kept = [connection for connection in connections if not connection.closed]
    assert list(pool._idle) == kept, "the longest idle first, for the next look"


def test_a_connection_that_is_used_now_and_then_stays_open() -> None:
    pool = Filled()
    one = pool.get("a")
    for _ in range(5):
        pool.runtime.clock.advance(LINGER * 0.75)
        pool.give(one)
        pool._close_idle(pool.runtime.now() - LINGER)
        assert pool.get("a") is one
    assert one.closed == 0


def test_maintenance_uses_a_connection_that_is_idle_and_gives_it_back_at_its_place() -> None:
    pool = Filled()
    one, two = pool.get("a"), pool.get("b")
    upkeep = pool.maintenance = Upkeep()
    run(pool._maintain())
    assert upkeep.ran == []
    pool.give(one)
    pool.give(two)
    run(pool._maintain())
    assert upkeep.ran == [one]
    assert list(pool._idle) == [one, two]
    upkeep.due = False
    run(pool._maintain())
    assert upkeep.ran == [one]


@pytest.mark.parametrize("error", [ValueError("a defect"), BackendUnavailable("away"), KeyboardInterrupt()])
def test_maintenance_that_fails_costs_its_connection(error: BaseException) -> None:
    pool = Filled()
    one, two = pool.get("a"), pool.get("b")
    pool.give(one)
    pool.give(two)
    pool.maintenance = Upkeep(error)
    if isinstance(error, Exception):
        run(pool._maintain())
    else:
        with pytest.raises(KeyboardInterrupt):
            run(pool._maintain())
    assert one.closed == 1
    assert two.closed == isinstance(error, BackendUnavailable)


# The queue


def test_a_call_in_the_queue_looks_a_last_time_at_its_deadline() -> None:
    runtime = Runtime()
    assert run(PoolQueue(runtime).wait_for(lambda: None, NOW + LOOK_AGAIN * 1.5)) is None
    assert runtime.waits == [pytest.approx(NOW + LOOK_AGAIN), pytest.approx(NOW + LOOK_AGAIN * 1.5)]


@pytest.mark.parametrize("first_waits", [0.0, STUCK * 3])
def test_how_long_the_head_does_not_move_counts_from_when_it_became_the_head(first_waits: float) -> None:
    """Else whoever comes to a queue that was idle for long, or long in the hands of another, would lose its place."""
    runtime = Runtime()
    queue = PoolQueue(runtime)
    runtime.clock.advance(100)  # nobody has waited since it was made
    behind, last = runtime.signal(), runtime.signal()
    looks: list[bool] = []

    def others_look() -> None:
        queue.rest.extend([behind, last])
        looks.append(queue._is_head(behind, queue.rest))
        runtime.clock.advance(first_waits)

    runtime.plan = [others_look]
    assert run(queue.wait_for(lambda: "slot" if looks else None, runtime.now() + 60)) == "slot"
    assert looks == [False]
    assert not queue._is_head(last, queue.rest), "the second one has only just become the head"
    assert queue._is_head(behind, queue.rest)


def test_only_the_head_of_the_queue_looks_and_those_that_go_first_come_before() -> None:
    runtime = Runtime()
    queue = PoolQueue(runtime)
    ahead = runtime.signal()
    queue.first.append(ahead)
    queue._moved = NOW + 100
    looked: list[str] = []

    def look() -> str:
        looked.append("looked")
        return "slot"

    assert run(queue.wait_for(look, NOW + 1)) is None
    assert looked == []
    assert runtime.waits == [pytest.approx(NOW + LOOK_AGAIN * step) for step in range(1, 6)]
    queue.first.clear()
    assert run(queue.wait_for(look, NOW + 5)) == "slot"


def test_a_head_that_does_not_move_is_removed_after_a_while() -> None:
    runtime = Runtime()
    queue = PoolQueue(runtime)
    queue.rest.append(runtime.signal())
    queue._moved = NOW
    assert run(queue.wait_for(lambda: "slot", NOW + 60)) == "slot"
    assert STUCK < runtime.now() - NOW <= STUCK + 2 * LOOK_AGAIN
    assert not queue.rest


def test_a_call_that_was_removed_but_still_waits_enters_again() -> None:
    runtime = Runtime()
    queue = PoolQueue(runtime)
    other = runtime.signal()
    found: list[str] = []

    def remove() -> None:
        mine = queue.rest.popleft()
        assert mine is not other
        queue.rest.append(other)
        queue._moved = runtime.now()

    def free() -> None:
        queue.rest.remove(other)
        found.append("slot")

    runtime.plan = [remove, free]
    assert run(queue.wait_for(lambda: found[0] if found else None, NOW + 60)) == "slot"


def test_whoever_leaves_the_queue_wakes_the_next() -> None:
    runtime = Runtime()
    queue = PoolQueue(runtime)
    following = runtime.signal()
    runtime.plan = [lambda: queue.rest.append(following), lambda: None]
    looks = iter([None, "slot"])
    assert run(queue.wait_for(lambda: next(looks), NOW + 60)) == "slot"
    assert following.is_set()


@pytest.mark.parametrize(
    ("first", "rest", "open_first", "open_rest"),
    [(0, 0, True, True), (0, 1, True, False), (1, 0, False, False), (1, 1, False, False)],
)
def test_who_would_be_at_the_head(first: int, rest: int, open_first: bool, open_rest: bool) -> None:
    queue = PoolQueue(Runtime())
    queue.first.extend(Runtime().signal() for _ in range(first))
    queue.rest.extend(Runtime().signal() for _ in range(rest))
    assert (queue.is_open_for(first=True), queue.is_open_for(first=False)) == (open_first, open_rest)


# One session


class Session(OneSession[Any]):
    """A session whose connections are made here."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        super().__init__(self.runtime, "the store", 5.0)
        self.opened: list[Connection] = []
        self.interrupted: list[Any] = []
        self.comes = False
        self.looked: list[float] = []

    async def _open(self, until: float) -> Any:
        self.opened.append(Connection())
        return self.opened[-1]

    async def _comes(self, connection: Any, seconds: float) -> bool:
        self.looked.append(seconds)
        return self.comes

    def _interrupt(self, connection: Any) -> None:
        self.interrupted.append(connection)

    def get(self, user: str = "me", until: float = math.inf, **options: Any) -> Any:
        self.runtime.me = user
        return run(self.take(until, **options))


def claim(owner: str, ttl: float = 30.0) -> Claim:
    return Claim("x", owner, ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))


def test_one_call_after_the_other_uses_the_one_connection() -> None:
    session = Session()
    one = session.get("a")
    with pytest.raises(BackendUnavailable) as busy:
        session.get("b")
    assert busy.value.backend == "the store"
    assert session.runtime.now() == pytest.approx(NOW + BUSY * 5.0)
    with pytest.raises(BackendUnavailable):
        session.get("b", until=session.runtime.now() + 1)
    assert session.runtime.now() == pytest.approx(NOW + BUSY * 5.0 + 1)
    session.runtime.plan = [lambda: session.give(one)]
    assert session.get("b") is one
    assert len(session.opened) == 1


def test_a_call_that_was_interrupted_does_not_keep_its_own_thread_from_the_session() -> None:
    session = Session()
    one = session.get("a")
    assert session.get("a") is one
    assert session.runtime.waits == []
    assert one.recovered == 1, "its answer is read first"


def test_a_session_that_failed_is_begun_anew() -> None:
    session = Session()
    one = session.get("a")
    session.give(one)
    one.recovery = False
    two = session.get("a")
    assert two is not one
    assert one.closed == 1


@pytest.mark.parametrize("held", [True, False])
def test_a_session_that_does_not_answer_is_given_up_only_when_nothing_is_held_in_it(held: bool) -> None:
    session = Session()
    one = session.get("a")
    session.give(one)
    if held:
        session.hold(claim("owner"))
    one.recovery = BackendUnavailable("no answer")
    if held:
        with pytest.raises(BackendUnavailable):
            session.get("a")
        session.runtime.clock.advance(30.0)
    assert session.get("b") is not one


def test_a_session_that_does_not_answer_by_the_end_of_the_call_is_an_error() -> None:
    session = Session()
    one = session.get("a")
    session.give(one)
    one.recovery = BackendUnavailable("no answer")
    with pytest.raises(BackendUnavailable):
        session.get("a", until=NOW)
    one.recovery = True
    assert session.get("b") is one, "the call that failed does not keep it"


def test_what_is_renewed_is_held_for_another_ttl_and_what_is_dropped_is_not() -> None:
    session = Session()
    session.hold(claim("a", 10))
    session.hold(claim("b", 10))
    session.hold(claim("c", 10))
    session.runtime.clock.advance(5)
    answers = [Grant(claim("a", 10), 1, 10.0), Loss(LossReason.TAKEN), Grant(claim("c", 10), 2, 10.0)]
    assert session.renewed(answers) is answers
    session.runtime.clock.advance(5)
    assert session._needed()
    assert list(session._held) == ["a", "c"]
    session.drop(claim("a"))
    session.drop(claim("c"))
    assert not session._needed()


@pytest.mark.parametrize(("dead", "broken", "ends"), [(True, True, True), (True, False, False), (False, True, False)])
def test_only_a_connection_that_failed_is_given_up(dead: bool, broken: bool, ends: bool) -> None:
    session = Session()
    one = session.get("a")
    one.closed = int(broken)
    session.discard(one, dead=dead)
    assert (session._connection is None) is ends
    assert session._user is None


@pytest.mark.parametrize("used", [True, False])
def test_closing_ends_an_idle_session_and_interrupts_one_in_use(used: bool) -> None:
    session = Session()
    one = session.get("a")
    if not used:
        session.give(one)
    session.runtime.me = "closer"
    run(session.close())
    assert session.interrupted == ([one] if used else [])
    assert one.closed == (not used)
    session.give(one)
    assert one.closed == 1
    with pytest.raises(ClientClosed) as closed:
        session.get("b")
    assert closed.value.backend == "the store"


@pytest.mark.parametrize(
    ("comes", "owed", "usable", "ended"),
    [(False, False, True, False), (True, False, True, False), (True, True, False, False), (True, False, False, True)],
)
def test_the_end_of_a_session_by_its_server_raises_the_alarm(
    comes: bool, owed: bool, usable: bool, ended: bool
) -> None:
    session = Session()
    alarms: list[bool] = []
    session.on_end(lambda: alarms.append(True))
    one = session.get("a")
    session.give(one)
    session.runtime.me = "worker"
    session.comes, one.owed, one.usable = comes, owed, usable
    run(session._watch(one))
    assert alarms == [True] * ended
    assert one.closed == ended
    assert session._user is None
    assert session.looked == [LINGER / 2]


def test_what_comes_while_a_call_is_under_way_is_its_answer() -> None:
    session = Session()
    alarms: list[bool] = []
    session.on_end(lambda: alarms.append(True))
    one = session.get("a")
    session.runtime.me = "worker"
    session.comes, one.usable = True, False
    run(session._watch(one))
    assert (alarms, one.closed) == ([], 0)
    assert session._user is not None


@pytest.mark.parametrize(("idle", "held", "ends"), [(1.9, False, False), (2.0, False, True), (9.0, True, False)])
def test_an_idle_session_ends_when_nothing_is_held_in_it(idle: float, held: bool, ends: bool) -> None:
    session = Session()
    one = session.get("a")
    session.give(one)
    if held:
        session.hold(claim("owner"))
    session.runtime.clock.advance(idle)
    session.runtime.me = "worker"
    session._end_if_idle()
    assert (session._connection is None) is ends
    assert session._user is None


def test_maintenance_of_a_session_waits_for_nobody_and_frees_it_again() -> None:
    session = Session()
    upkeep = session.maintenance = Upkeep(ValueError("a defect"))
    run(session._maintain())
    one = session.get("a")
    session.runtime.me = "worker"
    run(session._maintain())
    assert upkeep.ran == [], "a call uses it"
    session.give(one)
    session._queue.rest.append(session.runtime.signal())
    run(session._maintain())
    assert upkeep.ran == [], "a call waits for it"
    session._queue.rest.clear()
    run(session._maintain())
    assert upkeep.ran == [one]
    assert session._user is None
    one.recovery = False
    run(session._maintain())
    assert upkeep.ran == [one]


def test_the_worker_of_a_session_is_started_once_and_ends_with_it() -> None:
    session = Session()
    one = session.get("a")
    session.give(one)
    session.give(session.get("a"))
    assert session.runtime.workers == ["leasehold store session"]
    session.runtime.clock.advance(LINGER)
    session.runtime.me = "worker"
    run(session._work())
    assert session._connection is None
    assert not session._has_worker
