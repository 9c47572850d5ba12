"""Small pieces of the core, each by itself: what it decides, what it sends, and what bounds it."""

from __future__ import annotations

import asyncio
import logging
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendUnavailable, Capability, ClientClosed, Holder, Mode, UnsupportedCapability, events
from leasehold._core import ttl_warnings
from leasehold._core.capabilities import inspecting, operating, pausing, require
from leasehold._core.cleanup import MOST_ACTIONS, Cleanup
from leasehold._core.events import Events
from leasehold._core.fence_repair import repair_fence
from leasehold._core.open_clients import LAST_RELEASES, OpenClients, close_at_home
from leasehold._core.self_deadlock import own_hold
from leasehold._core.tenure import Tenure
from leasehold._core.ttl_warnings import MOST_NAMES, TtlWarnings
from leasehold._runtimes.event_loops import forget_tasks
from leasehold._runtimes.threads import run
from leasehold.testing import ManualStore
from leasehold.values import Claim, Grant
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_000.0
US, THEM = Holder("h", 1, "us"), Holder("h", 2)
HOUR = 3_600_000_000  # a fence counts microseconds


class Interrupted(BaseException):
    """What a signal handler raises."""


def tenure_of(name: str = "x", asked: float = 30.0, given: float = 30.0, *, renew: bool = True) -> Tenure:
    claim = Claim(name, "owner", asked, Mode.EXCLUSIVE, 1, 0.0, US)
    return Tenure(name, Grant(claim, 7, given), NOW, renew=renew, max_hold=None)


# Bounds


def test_what_is_to_be_cleaned_up_is_bounded_and_the_oldest_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def perform(_: float) -> None: ...

    class NoWorker(PlannedWaits):
        def spawn(self, coroutine: Any, name: str) -> Any:
            coroutine.close()
            return SimpleNamespace()

    assert MOST_ACTIONS == 10_000
    kept = Cleanup(NoWorker())
    for number in range(MOST_ACTIONS + 2):
        kept.add(str(number), perform, NOW + 30)
    assert [kept._actions[0].name, kept._actions[-1].name] == ["0", str(MOST_ACTIONS - 1)]
    assert len(caplog.records) == 2


class Dispatcher:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def dispatch(self, event: object) -> None:
        self.seen.append(event)


@pytest.mark.parametrize(
    ("asked", "given", "renew", "is_told"),
    [
        (30.0, 30.0, True, False),
        (30.0, 30.3, True, False),  # the margin of a clock
        (30.0, 31.0, True, True),
        (30.0, 60.0, True, True),
        (30.0, 20.0, True, False),  # the short time after a hand-over
        (30.0, 20.0, False, True),
        (30.0, 29.9, False, False),
    ],
)
def test_a_store_that_gives_another_ttl_is_told_of_once_for_each_name(
    asked: float, given: float, renew: bool, is_told: bool
) -> None:
    told: Any = Dispatcher()
    warnings = TtlWarnings(told)
    for name in ("x", "x", "y"):
        warnings.note(tenure_of(name, asked, given, renew=renew))
    assert told.seen == [events.TtlDiffers(name, asked, given) for name in ("x", "y")] * is_told


def test_a_program_with_very_many_names_is_not_warned_without_end() -> None:
    told: Any = Dispatcher()
    warnings = TtlWarnings(told)
    for number in range(MOST_NAMES + 5):
        warnings.note(tenure_of(str(number), 30.0, 60.0))
    assert len(told.seen) == MOST_NAMES == ttl_warnings.MOST_NAMES == 1_000


# A fence that a resource has seen


@pytest.mark.parametrize(
    ("given", "seen", "raised"),
    [
        (50, 49, []),
        (50, 50, []),
        (50, 51, [51]),
        (50, 50 + HOUR, [50 + HOUR]),
        (50, 51 + HOUR, []),  # one wrong number must not use up all fences
    ],
)
def test_a_fence_is_repaired_up_to_an_hour_ahead(given: int, seen: int, raised: list[int]) -> None:
    with ManualStore(autojump=None).connect() as client:
        opened = client._twin._open()
        told: list[Any] = []
        asked: list[tuple[str, int]] = []
        client.on_event(told.append)

        async def raise_fence(key: str, fence: int) -> int:
            asked.append((key, fence))
            return given

        backend: Any = opened.backend
        backend.raise_fence = raise_fence
        opened.note_fence("leasehold:x", seen)
        opened.note_fence("leasehold:x", 3)  # a lower one says nothing
        opened.note_fence("leasehold:y", 8)
        spec = client.lock("x")._twin._spec
        run(repair_fence(opened, spec))
        assert asked == [("leasehold:x", 1), *(("leasehold:x", fence) for fence in raised)]
        assert [(event.name, event.fence, event.by) for event in told] == [
            ("x", fence, "leasehold") for fence in raised
        ]
        assert opened.seen == {"leasehold:y": 8}
        run(repair_fence(opened, spec))
        assert len(asked) == 1 + len(raised), "it is done"


def test_a_fence_that_could_not_be_repaired_is_repaired_by_the_next_call() -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client:
        opened = client._twin._open()
        fence = 1_000
        opened.note_fence("leasehold:y", fence)
        for verb in ("try_acquire", "acquire"):
            store.faults.refuse_next("raise_fence")
            lease = client.lock("y").try_acquire() if verb == "try_acquire" else client.lock("y").acquire(0)
            assert lease is not None, "the trouble is not this call's"
            assert opened.seen == {"leasehold:y": fence}
            lease.release()
        lease = client.lock("y").acquire()
        assert lease.fence > fence
        assert opened.seen == {}
        lease.release()


def test_a_store_that_cannot_raise_fences_is_not_asked_to() -> None:
    async def never(*_: object) -> int:
        raise AssertionError

    opened: Any = SimpleNamespace(
        seen={"k": 7}, backend=SimpleNamespace(capabilities=frozenset({Capability.FENCING}), raise_fence=never)
    )
    spec: Any = SimpleNamespace(key="k", name="x")
    run(repair_fence(opened, spec))
    assert opened.seen == {}


def test_of_several_fences_that_resources_have_seen_the_highest_of_each_name_counts() -> None:
    with ManualStore(autojump=None).connect() as client:
        opened = client._twin._open()
        for key, fence in (("k", 50), ("l", 70), ("k", 90), ("k", 60), ("l", 10)):
            opened.note_fence(key, fence)
        assert opened.seen == {"k": 90, "l": 70}


# Who is in the way


@pytest.mark.parametrize(
    ("holder", "mine", "wanted", "itself", "advice"),
    [
        (US, Mode.EXCLUSIVE, Mode.EXCLUSIVE, True, "release it first, or use reentrant=True"),
        (None, Mode.EXCLUSIVE, Mode.EXCLUSIVE, True, "release it first, or use reentrant=True"),
        (US, Mode.SHARED, Mode.EXCLUSIVE, True, "waits: release it first"),
        (US, Mode.EXCLUSIVE, Mode.SHARED, True, "waits: release it first"),
        (US, Mode.SHARED, Mode.SHARED, False, "this process"),
        (US, Mode.PERMIT, Mode.PERMIT, False, "this process"),
        (US, Mode.PERMIT, Mode.EXCLUSIVE, False, "this process"),
        (None, Mode.SHARED, Mode.SHARED, None, ""),
        (THEM, Mode.EXCLUSIVE, Mode.EXCLUSIVE, None, ""),
        (Holder("another", 1, "us"), Mode.EXCLUSIVE, Mode.EXCLUSIVE, None, ""),
    ],
)
def test_what_is_said_of_a_holder_in_the_way(
    holder: Holder | None, mine: Mode, wanted: Mode, itself: bool | None, advice: str
) -> None:
    def own(**facts: Any) -> Any:
        given = {"key": "k", "state": "held", "is_parked": False, "taker": id("me"), **facts}
        claim = Claim(given["key"], "o", 30.0, mine, 1, 0.0, US)
        tenure = Tenure("x", Grant(claim, 7, 30.0), NOW, renew=True, max_hold=None)
        tenure.taker = given["taker"]
        if given["state"] == "lost":
            tenure.settle(NOW + 60)
        held: Any = tenure
        if given["is_parked"]:
            held = SimpleNamespace(grant=tenure.grant, state=tenure.state, is_parked=True, taker=tenure.taker)
        opened: Any = SimpleNamespace(runtime=PlannedWaits(), keeper=SimpleNamespace(tenures=lambda: [held]))
        opened.runtime.me = "me"
        spec: Any = SimpleNamespace(key="k", holder=US, mode=wanted)
        return own_hold(opened, spec, holder)

    found = own()
    assert (None if found is None else found.itself) is itself
    assert found is None or found.text.endswith(advice)
    if itself:
        for facts in ({"key": "other"}, {"state": "lost"}, {"is_parked": True}, {"taker": id("another")}):
            found = own(**facts)
            assert found is None or not found.itself


# What a store promises


@pytest.mark.parametrize(
    ("port", "capability"),
    [(inspecting, Capability.INSPECT), (operating, Capability.INSPECT), (pausing, Capability.PAUSE)],
)
def test_a_port_is_refused_where_its_own_capability_is_missing(
    port: Callable[[Any], Any], capability: Capability
) -> None:
    with ManualStore(autojump=None).connect() as client:
        whole: Any = client._twin._open().backend
        assert port(whole) is whole
        less: Any = SimpleNamespace(capabilities=frozenset(Capability) - {capability}, label="less:")
        with pytest.raises(UnsupportedCapability, match=rf"^less: has no .*\({capability}\); use ") as refused:
            port(less)
        assert refused.value.backend == "less:"
    require(SimpleNamespace(capabilities={capability}), capability)


# Who hears of events


def test_each_listener_hears_of_everything_until_it_is_taken_away_itself() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def acquired(self, *facts: Any) -> None:
            self.seen.append(("acquired", *facts))

        def released(self, *facts: Any) -> None:
            self.seen.append(("released", *facts))

        def record(self, event: object) -> None:
            self.seen.append(event)

    news, one, two = Events(), Recorder(), Recorder()
    first, second = Dispatcher(), Dispatcher()
    everybody: list[Any] = [one, first, two, second]
    dropped = events.Dropped("x", 7)
    assert not news.wanted(events.Acquired)
    ends = [news.attach(one), news.subscribe(first.dispatch), news.attach(two), news.subscribe(second.dispatch)]
    assert news.wanted(events.Acquired)
    news.emit(dropped)
    news.acquired("x", 7, 0.5, "g", "shared", 3)
    news.released("x", 7, False)
    acquired, released = events.Acquired("x", 7, 0.5, "g", "shared", 3), events.Released("x", 7, freed=False)
    assert first.seen == second.seen == [dropped, acquired, released]
    assert one.seen == two.seen == [dropped, ("acquired", "x", 7, 0.5, "g", "shared", 3), ("released", "x", 7)]
    left = list(everybody)
    for end, taken in zip(ends, everybody, strict=True):
        end()
        left.remove(taken)
        before = [len(each.seen) for each in everybody]
        news.emit(dropped)
        heard = [len(each.seen) - was for each, was in zip(everybody, before, strict=True)]
        assert heard == [int(each in left) for each in everybody]
        end()  # once more does no harm
    assert news.listeners == ()


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        (events.Acquired, logging.DEBUG), (events.Broken, logging.WARNING), (events.Dropped, logging.WARNING),
        (events.FenceRaised, logging.WARNING), (events.KeeperLate, logging.WARNING), (events.Lost, logging.ERROR),
        (events.NamePaused, logging.WARNING), (events.NameResumed, logging.WARNING), (events.Refused, logging.DEBUG),
        (events.ReleaseFailed, logging.WARNING), (events.Released, logging.DEBUG), (events.Renewed, logging.DEBUG),
        (events.RenewalFailed, logging.WARNING), (events.RunAgain, logging.WARNING),
        (events.RunForgotten, logging.WARNING), (events.StoreReached, logging.INFO),
        (events.StoreUnreachable, logging.WARNING), (events.TimedOut, logging.DEBUG),
        (events.TtlDiffers, logging.WARNING),
        (events.WaitBegan, logging.DEBUG), (events.Waiting, logging.WARNING), (events.AcquireFailed, logging.DEBUG),
    ],
)  # fmt: skip
def test_how_loud_an_event_is(kind: type[events.Event], level: int) -> None:
    assert kind.level == level


def test_an_event_is_logged_at_its_own_level_unless_another_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "leasehold")
    news = Events()
    news.emit(events.Dropped("x", 7))
    news.emit(events.Dropped("x", 7), logging.DEBUG)
    news.acquired("x", 7, 0.0, None, "exclusive", 0)
    news.released("x", 7, True)
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG", "DEBUG"]
    caplog.set_level(logging.WARNING, "leasehold")
    assert news.wanted(events.Dropped)
    assert not news.wanted(events.StoreReached)


class Never:
    """What a driver waits for until its event loop runs."""

    def __await__(self) -> Any:
        yield self


# The open clients of one client


class Loops(PlannedWaits):
    """A runtime with event loops, as far as the open clients know them."""

    blocking = False

    def __init__(self) -> None:
        super().__init__()
        self.running: str | None = "one"
        self.ended: set[str] = set()
        self.closing: dict[str, Any] = {}
        self.slept: list[float] = []

    def home(self) -> str | None:
        return self.running

    def has_ended(self, home: object) -> bool:
        return home in self.ended

    def before_end(self, close: Any) -> object:
        self.closing[self.running or ""] = close
        return close

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)


class Opened:
    """An open client that notes what is done to it."""

    def __init__(self, runtime: Loops) -> None:
        self.runtime = runtime
        self.home: str | None = None
        self.until_home_ends: object = None
        self.close_patience = 5.0
        self.notes: list[Any] = []
        self.held = 0
        self.keeper = SimpleNamespace(
            tenures=lambda: [None] * self.held, abandon=lambda: self.notes.append("leases are over")
        )

    def is_at_home(self) -> bool:
        return self.home == self.runtime.running

    async def end_parked(self) -> None:
        self.notes.append("parked")

    async def close(self, limit: float = math.inf) -> None:
        self.notes.append(("close", round(limit - NOW, 6)))

    def abandon(self) -> None:
        self.notes.append("abandoned")


class Clients:
    def __init__(self) -> None:
        self.runtime = Loops()
        self.clients = OpenClients(self.runtime)
        self.made: list[Any] = []

    def make(self) -> Any:
        self.made.append(Opened(self.runtime))
        return self.made[-1]

    def here(self, loop: str | None) -> Any:
        self.runtime.running = loop
        return self.clients.here(self.make)

    def anywhere(self, loop: str | None = None) -> Any:
        self.runtime.running = loop
        return self.clients.anywhere(self.make)


def test_there_is_one_open_client_for_each_loop_and_one_that_was_made_without_is_used_first() -> None:
    scene = Clients()
    asked = scene.anywhere()
    assert scene.anywhere() is asked
    assert scene.clients.all() == [asked]
    assert (asked.home, asked.until_home_ends) == (None, None)
    one = scene.here("one")
    assert one is asked
    assert one.home == "one"
    assert one.until_home_ends is scene.runtime.closing["one"]
    two = scene.here("two")
    assert two is not one
    assert scene.here("two") is two
    assert scene.here("one") is one
    assert scene.anywhere() is one, "no other one is made only to ask"
    assert scene.anywhere("two") is two
    assert scene.clients.all() == [one, two]
    assert len(scene.made) == 2


def test_what_belongs_to_a_loop_that_was_closed_is_abandoned_by_the_next_call_on_another_one() -> None:
    scene = Clients()
    one, two = scene.here("one"), scene.here("two")
    scene.runtime.ended.add("one")
    assert one.notes == two.notes == []
    three = scene.here("three")
    assert (one.notes, two.notes, three.notes) == (["abandoned"], [], [])
    assert scene.clients.all() == [two, three]


def test_a_closed_client_opens_nothing_any_more_and_hands_out_what_is_to_be_closed() -> None:
    scene = Clients()
    one = scene.here("one")
    assert scene.clients.take() == [one]
    assert scene.clients.take() == []
    assert one.notes == []
    for call in (scene.here, scene.anywhere):
        for loop in ("one", None):
            with pytest.raises(ClientClosed):
                call(loop)
    unused = Clients()
    asked = unused.anywhere()
    assert unused.clients.take() == []
    assert asked.notes == ["abandoned"]


def test_a_forked_child_begins_with_none_and_can_open_its_own() -> None:
    scene = Clients()
    one = scene.here("one")
    scene.runtime.running = None
    guard = scene.clients._guard
    scene.clients._unused = asked = scene.make()
    assert scene.clients.take_after_fork() == [one, asked]
    assert scene.clients._guard is not guard, "another thread of the parent's may have it"
    assert scene.clients.all() == []
    assert scene.here("one") not in (one, asked)


@pytest.mark.parametrize(
    ("held", "patience", "waits"), [(0, 5.0, 0.0), (1, 5.0, LAST_RELEASES), (1, 0.2, 0.2), (1, 0.0, 0.0)]
)
def test_a_loop_that_is_shut_down_waits_for_the_last_releases_and_closes_its_own(
    held: int, patience: float, waits: float
) -> None:
    scene = Clients()
    one, two = scene.here("one"), scene.here("two")
    one.held, one.close_patience = held, patience
    run(scene.runtime.closing["one"]())
    assert sum(scene.runtime.slept) == pytest.approx(waits, abs=0.011)
    assert one.notes.count("parked") == 1 + len(scene.runtime.slept), "also what is released meanwhile"
    later = scene.runtime.now() - NOW
    assert one.notes[-2:] == ["leases are over", ("close", pytest.approx(later + 1.0))]
    assert (two.notes, scene.clients.all()) == ([], [two])
    run(scene.runtime.closing["one"]())
    assert one.notes[-1] == ("close", pytest.approx(later + 1.0)), "it is closed once"
    assert one.notes.count("leases are over") == 1


@pytest.mark.parametrize("is_reached", [True, False])
def test_closing_reaches_every_loop_at_the_same_time_and_leaves_those_that_do_not_run(is_reached: bool) -> None:
    scene = Clients()
    one, two = scene.here("one"), scene.here("two")
    scene.runtime.running = "one"
    order: list[Any] = []

    class Task:
        async def join(self, deadline: float) -> bool:
            order.append(("join", deadline))
            return True

    def spawn(work: Any, name: str) -> Any:
        order.append("spawned")
        run(work)
        return Task()

    async def at_home(home: object, operation: Any, deadline: float) -> bool:
        order.append((home, deadline))
        if is_reached:
            await operation()
        return is_reached

    runtime: Any = scene.runtime
    runtime.spawn, runtime.at_home = spawn, at_home

    async def close(opened: Any) -> None:
        order.append(opened)
        if opened is one:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(close_at_home([one, two], close, NOW + 5))
    assert order == ["spawned", ("two", NOW + 5), *[two] * is_reached, one, ("join", NOW + 5)]
    assert two.notes == ["abandoned"] * (not is_reached)


def test_of_the_tasks_that_a_closed_loop_has_left_only_ours_are_forgotten_in_silence() -> None:
    loop = asyncio.new_event_loop()

    async def for_ever() -> None:
        await asyncio.sleep(3600)

    tasks: list[Any] = [loop.create_task(for_ever(), name=name) for name in ("leasehold keeper", "theirs")]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert forget_tasks(loop) == {tasks[0]}
    assert [task._log_destroy_pending for task in tasks] == [False, True]
    tasks[1]._log_destroy_pending = False
    for task in tasks:
        task.get_coro().close()


@pytest.mark.parametrize("error", [None, BackendUnavailable("away"), RuntimeError("no loop runs")], ids=repr)
def test_connections_are_closed_as_far_as_that_needs_no_loop(error: Exception | None) -> None:
    opened = ManualStore(autojump=None).connect()._twin._open()
    closed: list[str] = []

    async def close() -> None:
        try:
            await asyncio.sleep(0)
            closed.append("began")
            if error is not None:
                raise error
            await Never()
        finally:
            closed.append("ended")

    backend: Any = opened.backend
    backend.close = close
    opened.abandon()
    assert closed == ["began", "ended"]
