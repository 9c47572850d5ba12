"""`leasehold.testing`: the manual clock and store, scripted faults, lost and leaked leases, the shared memory store."""

from __future__ import annotations

import asyncio
import math
import threading
import warnings
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.memory import MemoryStore
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError, OutcomeUnknown
from leasehold.spi import Place
from leasehold.testing import Faults, FaultyBackend, ManualClock, ManualStore, lose
from leasehold.testing.leaks import held_names
from leasehold.testing.runtimes import ManualThreadRuntime
from leasehold.testing.shared import RECHECK, SharedMemory, serve
from leasehold.values import Capability, Claim, Holder, LossReason, Mode, Pause, Record
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANA = Holder("db-3", 7)


def claim(key: str = "x", owner: str = "owner") -> Claim:
    return Claim(key, owner, 30.0, Mode.EXCLUSIVE, 1, 0.0, ANA)


@pytest.fixture
def store() -> Iterator[ManualStore]:
    store = ManualStore()
    yield store
    store.close()


# --- the clock


def test_a_clock_that_is_turned_by_hand_moves_only_ahead() -> None:
    clock = ManualClock(50.0)
    assert (clock.now(), clock.autojump, clock.is_running) == (50.0, 0.05, False)
    clock.advance(0)
    clock.advance(2.5)
    for seconds in (-0.1, math.nan):
        with pytest.raises(ConfigurationError, match="a clock does not go back by"):
            clock.advance(seconds)
    assert clock.now() == 52.5
    assert clock.jump_to(60.0)
    assert clock.jump_to(55.0), "it is over"
    assert clock.now() == 60.0
    assert ManualClock().now() == 1000.0


def test_a_clock_that_runs_keeps_the_time_that_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = 7.0
    monkeypatch.setattr("leasehold.testing.clock.time", SimpleNamespace(monotonic=lambda: real))
    clock = ManualClock()
    with clock.running():
        was_running = clock.is_running
        real = 9.5
        assert clock.now() == 1002.5
        assert not clock.jump_to(5000.0)
        assert clock.now() == 1002.5
    assert (was_running, clock.is_running) == (True, False)
    real = 100.0
    assert clock.now() == 1002.5


def test_a_thread_that_reads_the_clock_takes_part() -> None:
    clock = ManualClock()
    own = threading.get_native_id()
    assert own in clock.bystanders
    clock.now()
    assert own not in clock.bystanders


# --- scripted faults


class Recorder:
    """A backend that notes what it is asked, and answers with the verb."""

    label = "recorder:"
    capabilities = frozenset({Capability.FIFO})

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, verb: str) -> Any:
        async def answer(*words: Any, **options: Any) -> str:
            self.calls.append((verb, words, options))
            return verb

        return answer


PLACE = Place(claim(), ThreadRuntime().signal(), 0.0, 0)
REQUESTS: list[tuple[str, tuple[Any, ...], dict[str, Any], bool]] = [
    ("try_acquire", (claim(),), {}, True),
    ("renew", (["grant"],), {}, True),
    ("release", ("grant",), {}, True),
    ("withdraw", (claim(),), {"doubt": False}, True),
    ("join", (claim(),), {}, True),
    ("turn", (PLACE,), {}, True),
    ("inspect", ("x",), {}, False),
    ("list", ("pre",), {}, False),
    ("break_", ("x", 41, "why"), {"now": True}, False),
    ("raise_fence", ("x", 41), {}, False),
    ("pause", ("x", ANA, 5.0), {}, False),
    ("resume", ("x",), {}, False),
    ("read", ("x", 41), {}, False),
    ("write", (Record("x", b"v", 1, 5.0),), {}, False),
]
ANSWERED = {"withdraw": None, "pause": None}


def faulty() -> tuple[Any, Recorder, Faults, ManualClock]:
    """A backend behind faults, on a clock that never jumps."""
    inner, faults, clock = Recorder(), Faults(), ManualClock(autojump=None)
    backend: Any = inner
    return FaultyBackend(backend, ManualThreadRuntime(clock), faults), inner, faults, clock


@pytest.mark.parametrize(("verb", "words", "options", "limited"), REQUESTS, ids=[each[0] for each in REQUESTS])
def test_each_verb_passes_through_with_what_it_was_given(
    verb: str, words: tuple[Any, ...], options: dict[str, Any], limited: bool
) -> None:
    backend, inner, faults, _ = faulty()
    assert (backend.label, backend.capabilities) == (inner.label, inner.capabilities)
    answer = run(getattr(backend, verb)(*words, *([1234.5] if limited else []), **options))
    assert answer == ANSWERED.get(verb, verb)
    assert inner.calls == [(verb, (*words, *([1234.5] if limited else [])), options)]
    assert (faults.calls, faults.under_way) == ([verb], [])
    if limited:
        run(getattr(backend, verb)(*words, **options))
        assert inner.calls[1][1][-1] == math.inf
    faults.refuse_next(verb)
    with pytest.raises(BackendUnavailable, match=rf"{verb}: the store refused") as refused:
        run(getattr(backend, verb)(*words, **options))
    assert refused.value.backend == "recorder:"
    assert len(inner.calls) == (2 if limited else 1)


@pytest.mark.parametrize("verb", [None, "inspect"])
def test_each_fault_happens_once_and_does_what_it_says(verb: str | None) -> None:
    backend, inner, faults, clock = faulty()
    faults.refuse_next(verb)
    with pytest.raises(BackendUnavailable) as refused:
        run(backend.inspect("x"))
    assert refused.value.back_in is None
    faults.refuse_next(verb, back_in=3.0)
    with pytest.raises(BackendUnavailable) as refused:
        run(backend.inspect("x"))
    assert refused.value.back_in == 3.0
    faults.reject_next(verb)
    with pytest.raises(BackendRejected, match=r"inspect: the store answered with an error \(scripted\)"):
        run(backend.inspect("x"))
    assert inner.calls == []
    faults.drop_next_reply(verb)
    with pytest.raises(OutcomeUnknown):
        run(backend.inspect("applied"))
    assert inner.calls.pop()[1] == ("applied",)
    faults.drop_next_request(verb)
    with pytest.raises(OutcomeUnknown):
        run(backend.inspect("late"))
    assert inner.calls == []
    run(faults.deliver_late())
    run(faults.deliver_late())
    assert [words for _, words, _ in inner.calls] == [("late",)]
    assert run(backend.inspect("x")) == "inspect"
    assert (faults.under_way, clock.now()) == ([], 1000.0)


def test_what_arrives_late_is_not_refused_for_being_late() -> None:
    backend, inner, faults, clock = faulty()
    faults.drop_next_request()
    with pytest.raises(OutcomeUnknown):
        run(backend.release("grant", clock.now() + 1))
    run(faults.deliver_late())
    assert inner.calls == [("release", ("grant", math.inf), {})]


def test_rules_are_used_in_their_order_by_the_verbs_that_they_fit() -> None:
    faults = Faults()
    faults.reject_next("renew")
    faults.refuse_next()
    faults.delay_next_reply(2.0, "renew")
    kinds = [rule and rule.kind for rule in map(faults.next_for, ["join", "renew", "renew", "renew", "join"])]
    assert kinds == ["refuse", "reject", "delay", None, None]
    assert faults.calls == ["join", "renew", "renew", "renew", "join"]


def test_a_cut_and_a_mute_last_until_they_are_healed() -> None:
    backend, inner, faults, clock = faulty()
    faults.reject_next()
    faults.cut()
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            run(backend.inspect("x"))
    assert inner.calls == []
    faults.heal()
    with pytest.raises(BackendRejected):
        run(backend.inspect("x"))
    faults.mute(0.0001)
    with clock.running():
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                run(backend.release("grant", clock.now() + 60))
    assert len(inner.calls) == 2, "requests are applied"
    faults.heal()
    assert run(backend.inspect("x")) == "inspect"


@pytest.mark.parametrize(("until", "slept"), [(1005.0, 5.0), (1900.0, 90.0), (900.0, 0.0)])
def test_a_muted_call_takes_as_long_as_the_stores_limit_or_its_own(
    until: float, slept: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, _, faults, _ = faulty()
    seen: list[tuple[float, int]] = []

    async def sleep(seconds: float) -> None:
        seen.append((seconds, faults.delayed))

    monkeypatch.setattr(backend._runtime, "sleep", sleep)
    faults.mute(90.0)
    with pytest.raises(OutcomeUnknown):
        run(backend.release("grant", until))
    assert seen == [(slept, 1)]
    assert faults.delayed == 0
    faults.heal()
    faults.delay_next_reply(7.0)
    assert run(backend.release("grant", until)) == "release"
    assert seen[1:] == [(7.0, 1)]


def test_an_answer_that_nobody_waits_for_any_more_is_not_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, _, faults, _ = faulty()

    async def sleep(_: float) -> None:
        assert faults.delayed == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(backend._runtime, "sleep", sleep)
    faults.delay_next_reply(7.0)
    with pytest.raises(KeyboardInterrupt):
        run(backend.inspect("x"))
    assert (faults.delayed, faults.under_way) == (0, [])


def test_a_call_is_under_way_until_its_answer_and_may_suspend_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, inner, faults, _ = faulty()
    steps: list[str] = []

    async def sleep(seconds: float) -> None:
        steps.append(f"slept {seconds:g} with {len(faults.under_way)} under way, {len(inner.calls)} done")

    monkeypatch.setattr(backend._runtime, "sleep", sleep)
    run(backend.inspect("x"))
    assert steps == []
    faults.suspending = True
    run(backend.inspect("x"))
    assert steps == ["slept 0 with 0 under way, 1 done", "slept 0 with 0 under way, 2 done"]
    faults.suspending = False
    faults.delay_next_reply(1.0)
    run(backend.inspect("x"))
    assert steps[2:] == ["slept 1 with 1 under way, 3 done"]


# --- the store


def test_clients_of_one_store_share_locks_and_have_options_of_their_own(store: ManualStore) -> None:
    one, same, other = store.connect(label="one", ttl=12), store.connect(timeout=5), store.connect(namespace="other")
    with one.lock("x").hold() as lease:
        assert lease.ttl == 12
        state = same.inspect("x")
        assert state is not None
        assert state.holdings[0].holder.label == "one"
        assert other.inspect("x") is None
        start = store.clock.now()
        with pytest.raises(leasehold.AcquireTimeout):
            same.lock("x").acquire()
        assert store.clock.now() == start + 5


def test_async_clients_have_options_of_their_own_too() -> None:
    async def story() -> None:
        store = ManualStore()
        async with (
            store.connect_async(label="one", ttl=12) as one,
            store.connect_async(timeout=5) as same,
            store.connect_async(namespace="other") as other,
        ):
            async with one.lock("x").hold() as lease:
                assert lease.ttl == 12
                state = await same.inspect("x")
                assert state is not None
                assert state.holdings[0].holder.label == "one"
                assert await other.inspect("x") is None
                start = store.clock.now()
                with pytest.raises(leasehold.AcquireTimeout):
                    await same.lock("x").acquire()
                assert store.clock.now() == start + 5
        store.close()

    asyncio.run(story())


def test_time_that_passes_renews_leases_and_a_leap_does_not(store: ManualStore) -> None:
    lease = store.connect().lock("x", ttl=10).acquire()
    start = store.clock.now()
    store.pass_time(60)
    lease.check(need=5)
    assert store.clock.now() == start + 60
    with store.connect().lock("short", ttl=2).hold() as short:
        store.pass_time(9)
        short.check()
    start += 9
    store.pass_time("1.25s")
    assert store.clock.now() == pytest.approx(start + 61.25)
    store.clock.advance(11)
    assert lease.lost.is_set()


def test_a_keeper_that_does_nothing_is_reported_and_not_waited_for_for_ever(
    store: ManualStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.testing.manual.PATIENCE", 0.01)
    client = store.connect()
    with client.lock("x").hold():
        (opened,) = client._twin._open_clients.all()
        monkeypatch.setattr(type(opened.keeper), "is_quiet", lambda _: False)
        with pytest.raises(RuntimeError, match="a keeper did not do what was due"):
            store.pass_time(1)
        monkeypatch.setattr(type(opened.keeper), "is_quiet", lambda _: True)
        monkeypatch.setattr(type(opened.cleanup), "is_quiet", lambda _: False)
        with pytest.raises(RuntimeError, match="a keeper did not do what was due"):
            store.pass_time(1)
        store.faults.delayed += 1
        store.pass_time(1)
        store.faults.delayed -= 1


def test_the_time_of_day_is_set_and_runs_with_the_clock(store: ManualStore) -> None:
    assert store._wall() == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    store.clock.advance(5)
    monday = datetime(2026, 3, 2, 12, tzinfo=UTC)
    store.set_wall(monday)
    assert store._wall() == monday.timestamp()
    store.clock.advance(3600)
    assert store._wall() == monday.timestamp() + 3600
    store.set_wall(datetime(2026, 3, 1, tzinfo=UTC))
    client = store.connect()
    assert client.once("job", every="1d").run(lambda: 1).ran
    last = client.last_run("job")
    assert last is not None
    assert "2026-03-01" in last.slot
    with pytest.raises(ConfigurationError, match="needs a time zone"):
        store.set_wall(datetime(2026, 3, 1))


def test_a_lease_that_the_store_lost_is_free_there_and_one_that_its_holder_lost_is_not(store: ManualStore) -> None:
    client = store.connect()
    first = client.lock("first").acquire()
    store.lose(first)
    assert first.loss is not None
    assert first.loss.reason is LossReason.TAKEN
    client.lock("first").acquire(0).release()
    second = client.lock("second").acquire()
    lose(second)
    assert second.lost.is_set()
    assert second.loss is not None
    assert (second.loss.reason, second.loss.detail) == (LossReason.TAKEN, "a test took it away")
    assert client.lock("second").try_acquire() is None


def test_an_async_lease_can_be_lost() -> None:
    async def story() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            lease = await client.lock("x").acquire()
            store.lose(lease)
            assert lease.lost.is_set()
            await (await client.lock("x").acquire(timeout=0)).release()

    asyncio.run(story())


def test_a_store_closes_its_blocking_clients_without_a_warning_or_a_wait() -> None:
    store = ManualStore()
    first, second = store.connect(), store.connect()
    leases = [first.lock("a").acquire(), second.lock("b").acquire()]
    store.faults.cut()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.close()
    assert all(lease.lost.is_set() for lease in leases)
    for client in (first, second):
        with pytest.raises(leasehold.ClientClosed):
            client.lock("x").try_acquire()


def test_a_client_is_closed_at_once_although_its_store_is_away_and_its_clock_stands_still() -> None:
    store = ManualStore(autojump=None)
    lease = store.connect().lock("x").acquire()
    store.faults.cut()
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    assert lease.lost.is_set()

    async def story() -> None:
        store = ManualStore(autojump=None)
        client = store.connect_async()
        await client.lock("x").acquire()
        store.faults.cut()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            await asyncio.wait_for(client.close(), 30)

    asyncio.run(story())


def test_time_that_passes_renews_the_leases_of_async_clients_too_and_a_close_leaves_them_alone() -> None:
    async def story() -> None:
        store = ManualStore()
        async with store.connect_async() as client, client.lock("x", ttl=10).hold() as lease:
            await asyncio.to_thread(store.pass_time, 60)
            lease.check(need=5)
            store.close()
            lease.check()

    asyncio.run(story())


# --- leaks


def test_what_is_held_in_this_process_and_in_a_store_is_known_by_name_and_fence(store: ManualStore) -> None:
    before = held_names([store])
    client = store.connect()
    kept = client.lock("kept", min_hold=60).acquire()
    held = client.lock("held").acquire()
    assert held_names([store]) - before == {("kept", kept.fence), ("held", held.fence)}
    assert held_names() - before == {("kept", kept.fence), ("held", held.fence)}
    kept.release()
    assert held_names([store]) - before == {("held", held.fence)}, "what cools is given back"
    lose(held)
    assert held_names() - before == set()
    assert held_names([store]) - before == {("held", held.fence)}
    other = store.connect(namespace="other").lock("there").acquire()
    assert ("there", other.fence) in held_names([store])
    other.release()


# --- the store that processes share


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[tuple[MemoryStore, str]]:
    store = MemoryStore()
    with serve(store, str(tmp_path / "socket")) as url:
        yield store, url


def test_clients_of_a_shared_store_meet(shared: tuple[MemoryStore, str]) -> None:
    _, url = shared
    assert url.startswith("memory+unix:///")
    with leasehold.connect(url, label="one") as one, leasehold.connect(url) as two:
        assert one.store == url
        assert Capability.PUSH not in one.capabilities
        assert Capability.FIFO in one.capabilities
        with one.lock("x").hold() as lease:
            assert two.lock("x").try_acquire() is None
            with pytest.raises(leasehold.AcquireTimeout):
                two.lock("x").acquire(timeout=0.05)
            state = two.inspect("x")
            assert state is not None
            assert (state.holdings[0].fence, state.holdings[0].holder.label) == (lease.fence, "one")
            assert state.waiting == ()
            lease.renew()
            assert [each.name for each in two.locks("x")] == ["x"]
            assert not two.break_lock("x", fence=lease.fence + 1, reason="another")
        two.pause("x", reason="moving", by="ana")
        with pytest.raises(leasehold.Paused):
            one.lock("x").acquire(timeout=0)
        assert two.resume("x")
        high = two.raise_fence("x", 2**52, reason="test")
        with one.lock("x").hold() as lease:
            assert lease.fence > high
        assert one.once("job", slot="monday").run(lambda: 7).ran
        assert not two.once("job", slot="monday").run(lambda: 7).ran


class Asked:
    """In the place of a store that is shared: what it was asked, and the answer that it gives."""

    def __init__(self, answer: Any) -> None:
        self.calls: list[Any] = []
        self._answer = answer

    def __getattr__(self, verb: str) -> Any:
        def answer(*words: Any, **options: Any) -> Any:
            self.calls.append((verb, words, options))
            return self._answer

        return answer


@pytest.mark.parametrize(("verb", "words", "options", "limited"), REQUESTS, ids=[each[0] for each in REQUESTS])
def test_each_request_reaches_a_shared_store_with_what_it_was_given(
    verb: str, words: tuple[Any, ...], options: dict[str, Any], limited: bool, tmp_path: Path
) -> None:
    store: Any = Asked("the answer")
    with serve(store, str(tmp_path / "socket")) as url:
        backend: Any = SharedMemory(url.removeprefix("memory+unix://")).open_backend(ThreadRuntime())
        answer = run(getattr(backend, verb)(*words, *([1234.5] if limited else []), **options))
        run(backend.close())
    assert answer == ANSWERED.get(verb, "the answer")
    ((asked, given, more),) = store.calls
    if verb == "turn":
        given = (given[0].claim,)
        words = (words[0].claim,)
    assert (asked, given[: len(words)], more) == (verb, words, options)


def test_a_place_in_a_shared_queue_has_all_that_the_store_says_of_it(tmp_path: Path) -> None:
    paused = Pause("moving", "ana", 60.0)
    place = Place(claim(), ThreadRuntime().signal(), 9.0, 3, ANA, retry_after=2.5, paused=paused)
    store: Any = Asked(place)
    with serve(store, str(tmp_path / "socket")) as url:
        backend: Any = SharedMemory(url.removeprefix("memory+unix://")).open_backend(ThreadRuntime())
        for found in (run(backend.join(claim("x", "mine"))), run(backend.turn(place))):
            assert (found.ahead, found.holder, found.retry_after, found.paused) == (3, ANA, 2.5, paused)
            assert found.recheck == RECHECK
        run(backend.close())


def test_a_waiter_of_a_shared_store_gets_the_lock_after_the_holder(shared: tuple[MemoryStore, str]) -> None:
    _, url = shared
    got: list[int] = []
    with leasehold.connect(url) as one, leasehold.connect(url) as two:
        lease = one.lock("x").acquire()

        def wait() -> None:
            with two.lock("x").hold(60) as later:
                got.append(later.fence)

        waiter = threading.Thread(target=wait)
        waiter.start()
        eventually(lambda: (state := one.inspect("x")) is not None and state.waiting)
        lease.release()
        waiter.join()
        assert got[0] > lease.fence


def test_a_place_in_a_shared_queue_is_looked_at_often_and_knows_what_is_before_it(
    shared: tuple[MemoryStore, str],
) -> None:
    _, url = shared
    backend: Any = SharedMemory(url.removeprefix("memory+unix://")).open_backend(ThreadRuntime())
    grant = run(backend.try_acquire(claim("x", "first")))
    run(backend.join(claim("x", "second")))
    place = run(backend.join(claim("x", "third")))
    assert isinstance(place, Place)
    assert (place.claim.owner, place.recheck, place.ahead, place.holder) == ("third", RECHECK, 1, ANA)
    run(backend.withdraw(claim("x", "second"), doubt=True))
    again = run(backend.turn(place))
    assert (again.claim.owner, again.ahead) == ("third", 0)
    run(backend.release(grant))
    run(backend.pause("x", Holder("h", 1, reason="moving"), 60.0))
    paused = run(backend.turn(again))
    assert isinstance(paused.paused, Pause)
    run(backend.close())
    run(backend.close())


def test_an_error_of_the_shared_store_is_raised_at_the_caller(shared: tuple[MemoryStore, str]) -> None:
    _, url = shared
    backend: Any = SharedMemory(url.removeprefix("memory+unix://")).open_backend(ThreadRuntime())
    with pytest.raises(AttributeError):
        backend._ask("no_such_verb")
    assert run(backend.inspect("x")) is None, "the connection goes on"
    run(backend.close())


def test_a_shared_store_that_is_gone_is_unknown_first_and_then_away(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    backend: Any = SharedMemory(path).open_backend(ThreadRuntime())
    with pytest.raises(BackendUnavailable, match="no shared memory store answers") as away:
        run(backend.inspect("x"))
    assert away.value.backend == f"memory+unix://{path}"
    threads = threading.active_count()
    with serve(MemoryStore(), path):
        assert run(backend.inspect("x")) is None
        backend._connection.close()
        with pytest.raises(OutcomeUnknown, match="the shared memory store went away"):
            run(backend.inspect("x"))
        assert run(backend.inspect("x")) is None, "it dials again"
    run(backend.close())
    eventually(lambda: threading.active_count() <= threads)
    assert not (tmp_path / "socket").exists()


def test_a_request_that_was_interrupted_does_not_leave_its_answer_to_the_next(
    shared: tuple[MemoryStore, str],
) -> None:
    class Interrupted:
        def send(self, _: object) -> None:
            """Sent."""

        def recv(self) -> None:
            raise KeyboardInterrupt

    backend: Any = SharedMemory(shared[1].removeprefix("memory+unix://")).open_backend(ThreadRuntime())
    backend._connection = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        run(backend.inspect("x"))
    assert run(backend.inspect("x")) is None
    run(backend.close())


def test_a_shared_store_is_for_blocking_clients_and_has_no_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is for blocking clients"):
        SharedMemory("/x").open_backend(AsyncioRuntime())
    with pytest.raises(ConfigurationError):
        leasehold.connect(f"memory+unix://{tmp_path}/socket?ttl=3")
