"""What the patterns answer: for how long something is ours, which store an error is of, what is remembered of a job."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from leasehold import (
    AlreadyRun,
    AlreadyRunning,
    BackendRejected,
    ClientClosed,
    ConfigurationError,
    InFlight,
    LeaseLost,
    Paused,
)
from leasehold._patterns.callbacks import Callbacks, Watch
from leasehold._runtimes.threads import run
from leasehold.testing.manual import ManualStore
from leasehold.values import Holder, Leader, Record
from tests.unit.test_core_time import Script, fails

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from leasehold._blocking import Client


# For how long it is ours


@pytest.mark.parametrize(
    "begin",
    [
        lambda client: client.once("x", slot="a", ttl=20).attempt(),
        lambda client: client.partitions("x", 1, ttl=20),
        lambda client: client.idempotency("x", ttl=20).attempt("k"),
        lambda client: client.election("x", ttl=30, renew_deadline=20).lead(),
    ],
    ids=["a run", "a partition", "an attempt at a key", "a term"],
)
def test_what_is_checked_is_ours_for_as_long_as_it_is_needed(begin: Callable[[Any], Any]) -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client, begin(client) as begun:
        ours = begun.owned()[0] if hasattr(begun, "owned") else begun
        ours.check(15)
        for need in (25, "25s"):
            with pytest.raises((LeaseLost, ConfigurationError)):
                ours.check(need)


@pytest.mark.parametrize("what", ["run", "partition", "key", "term"])
def test_what_is_checked_on_a_loop_is_ours_for_as_long_as_it_is_needed(what: str) -> None:
    store = ManualStore(autojump=None)

    async def story() -> None:
        async with store.connect_async() as client:
            begin: Any = {
                "run": lambda: client.once("x", slot="a", ttl=20).attempt(),
                "partition": lambda: client.partitions("x", 1, ttl=20),
                "key": lambda: client.idempotency("x", ttl=20).attempt("k"),
                "term": lambda: client.election("x", ttl=30, renew_deadline=20).lead(),
            }[what]
            async with begin() as begun:
                ours = begun.owned()[0] if what == "partition" else begun
                ours.check(15)
                with pytest.raises((LeaseLost, ConfigurationError)):
                    ours.check(25)

    asyncio.run(story())


# Which store an error is of


def test_a_job_that_was_not_run_says_in_which_store_and_for_how_long(client: Client, other: Client) -> None:
    backend = client._twin._open().backend.label
    assert backend
    job = client.once("job", slot="a", on_conflict="raise")
    assert job.run(lambda: 1)
    with pytest.raises(AlreadyRun) as ran, job.attempt():
        """Never entered."""
    assert (ran.value.name, ran.value.backend) == ("job", backend)
    with other.once("job", slot="b").attempt(), pytest.raises(AlreadyRunning) as running:
        client.once("job", slot="b", on_conflict="raise").run(lambda: 1)
    assert (running.value.name, running.value.backend) == ("job", backend)
    client.pause("job", reason="stocktaking", duration=90)
    with pytest.raises(Paused) as paused, client.once("job", slot="c", on_conflict="raise").attempt():
        """Never entered."""
    assert (paused.value.name, paused.value.backend) == ("job", backend)
    assert paused.value.retry_after is not None
    assert 80 < paused.value.retry_after <= 90
    assert paused.value.pause is not None
    assert paused.value.pause.reason == "stocktaking"


# Records of jobs


def test_a_slot_that_is_remembered_in_two_ways_is_forgotten_in_both(store: ManualStore, client: Client) -> None:
    store.set_wall(datetime(2026, 11, 15, 12, tzinfo=UTC))
    label = "2026-11-15T00:00:00+00:00"

    def runs() -> list[bool]:
        ways: list[Any] = [{"every": "1d"}, {"slot": label}, {"slot": "other"}]
        return [bool(client.once("job", **way).run(lambda: None)) for way in ways]

    assert runs() == [True, True, True]
    assert runs() == [False, False, False]
    assert client.forget("job", slot=label, reason="empty")
    assert runs() == [True, True, False]


def test_the_last_run_of_a_job_is_the_one_that_ended_last_whatever_its_fence(
    store: ManualStore, client: Client
) -> None:
    store.set_wall(datetime(2026, 11, 15, 12, tzinfo=UTC))
    for key, slot, finished, fence in (("once:3:job", "later", 20.0, 1), ("once-last:job", "earlier", 10.0, 9)):
        facts = {"slot": slot, "start": 0.0, "runner": ["h", 1, None, None], "finished": finished, "failed": False}
        store.memory.write(Record(f"leasehold:{key}", json.dumps({**facts, "fence": fence}).encode(), fence, 3600.0))
    last = client.last_run("job")
    assert last is not None
    assert (last.slot, last.finished, last.fence) == ("later", 20.0, 1)


def test_a_label_is_remembered_for_a_week(store: ManualStore, client: Client) -> None:
    def runs(days: float) -> bool:
        store.clock.advance(days * 86_400)
        return bool(client.once("job", slot="a").run(lambda: None))

    assert [runs(0), runs(6.9), runs(0.2)] == [True, False, True]


def test_a_slot_is_forgotten_although_what_is_only_shown_cannot_be_rewritten(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.once("job", slot="a").run(lambda: None)
    backend: Any = client._twin._open().backend
    plain = backend.write

    async def write(record: Record) -> Any:
        return fails(BackendRejected("no rights")) if "once-last" in record.key else await plain(record)

    monkeypatch.setattr(backend, "write", write)
    assert client.forget("job", slot="a", reason="empty")
    assert client.once("job", slot="a").run(lambda: None)


def test_an_order_to_forget_that_meets_the_end_of_a_pause_has_to_be_given_again(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.once("job", slot="a").run(lambda: None)
    client.pause("job", reason="stocktaking")
    backend: Any = client._twin._open().backend
    plain = backend.inspect

    async def late(name: str) -> Any:
        other.resume("job")
        return await plain(name)

    monkeypatch.setattr(backend, "inspect", late)
    with pytest.raises(Paused):
        client.forget("job", slot="a", reason="empty")
    last = other.last_run("job", slot="a")
    assert last is not None
    assert last.outcome == "done"
    assert other.forget("job", slot="a", reason="empty")


@pytest.mark.parametrize(("ahead", "is_late"), [(-1, False), (0, False), (1, True), (2, True)])
def test_a_run_does_not_begin_where_a_later_fence_has_read(
    store: ManualStore, client: Client, ahead: int, is_late: bool
) -> None:
    def read(key: str, fence: int, plain: Callable[[], Any]) -> Any:
        if fence:
            store.memory.read(key, fence + ahead)
        return plain()

    assert client.once("job", slot="before").run(lambda: None)
    Script(client, "read", cast("Any", read))
    if is_late:
        with pytest.raises(LeaseLost) as lost, client.once("job", slot="a").attempt():
            pytest.fail("the run began")
        assert not lost.value.completed
    else:
        assert client.once("job", slot="a").run(lambda: None)
    assert client.inspect("job") is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BackendRejected("no rights")])
def test_an_attempt_that_is_interrupted_before_its_run_gives_the_lock_back(
    client: Client, error: BaseException
) -> None:
    Script(client, "read", cast("Any", lambda _, fence, plain: fails(error) if fence else plain()))
    with pytest.raises(type(error)), client.once("job", slot="a").attempt():
        """Never entered."""
    assert client.inspect("job") is None


# Keys


@pytest.mark.parametrize("ttl", [None, 20, "1m"])
def test_without_a_wait_a_key_in_flight_is_refused_at_once_whatever_its_ttl(
    store: ManualStore, client: Client, other: Client, ttl: Any
) -> None:
    with other.idempotency("pay", ttl=ttl).attempt("k"):
        began = store.clock.now()
        with pytest.raises(InFlight), client.idempotency("pay", ttl=ttl).attempt("k"):
            """Never entered."""
        assert store.clock.now() - began < 1


@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_store_that_hesitates_once_is_asked_again_to_forget_a_key(
    store: ManualStore, client: Client, verb: str
) -> None:
    keys = client.idempotency("pay")
    with keys.attempt("k") as attempt:
        attempt.complete(1)
    store.faults.drop_next_request(verb)
    assert keys.forget("k")
    assert keys.inspect("k") is None
    assert client.locks() == []


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), BackendRejected("no rights")], ids=["interrupted", "refused"])
def test_a_key_that_could_not_be_forgotten_is_not_locked(client: Client, verb: str, error: BaseException) -> None:
    keys = client.idempotency("pay")
    with keys.attempt("k") as attempt:
        attempt.complete(1)
    Script(client, verb, lambda *_: fails(error))
    with pytest.raises(type(error)):
        keys.forget("k")
    assert client.locks() == []


def test_what_is_left_of_an_attempt_without_a_result_is_kept_for_no_longer_than_its_lock(
    store: ManualStore, client: Client
) -> None:
    with client.idempotency("pay", keep="30d", ttl=20).attempt("k"):
        """Left without a result."""
    record = store.memory.read("leasehold:idempotency:3:pay:k").record
    assert record is not None
    assert record.ttl == pytest.approx(20, abs=1)


@pytest.mark.parametrize(("running", "after"), [(0, 1), (7, 7), (19, 19), (50, 20)])
def test_a_key_in_flight_is_asked_for_again_no_later_than_its_ttl(
    store: ManualStore, client: Client, other: Client, running: float, after: float
) -> None:
    with other.idempotency("pay", ttl=20).attempt("k"):
        store.pass_time(running)
        with pytest.raises(InFlight) as busy, client.idempotency("pay", ttl=20, keep="9d").attempt("k"):
            """Never entered."""
    assert busy.value.retry_after == pytest.approx(after, abs=0.3)
    assert f"try again in {after} s" in str(busy.value)
    assert busy.value.holder is not None
    assert busy.value.holder.label == "second"


def test_a_key_that_vanished_stays_so_when_the_next_attempt_cannot_begin(store: ManualStore, client: Client) -> None:
    keys, writes = client.idempotency("pay"), list[object]()
    with pytest.raises((KeyboardInterrupt, LeaseLost)), keys.attempt("k") as vanished:
        assert vanished.lease is not None
        store.lose(vanished.lease)
        raise KeyboardInterrupt

    def refuse(record: object, *_: object) -> None:
        writes.append(record)
        raise BackendRejected("no rights")

    Script(client, "write", refuse)
    with pytest.raises(BackendRejected), keys.attempt("k"):
        """Never entered."""
    assert len(writes) == 1, "what is known of it is not taken back"
    state = keys.inspect("k")
    assert state is not None
    assert state.state == "in progress"


# Caches of methods


def test_a_method_that_is_kept_is_that_of_its_object_also_when_its_class_is_asked_on_a_loop() -> None:
    store = ManualStore()

    async def story() -> None:
        async with store.connect_async() as client:
            built: list[str] = []

            class Shop:
                def __init__(self, number: int) -> None:
                    self.number = number

                @client.cache("prices").cached("{self.number}:{sku}")
                async def price(self, sku: str, *, net: bool = True) -> str:
                    built.append(f"{self.number} {sku} {net}")
                    return built[-1]

            one, two = Shop(1), Shop(2)
            assert [await one.price("a", net=False), await two.price("a")] == ["1 a False", "2 a True"]
            assert [await Shop.price(one, "a"), await Shop.price(two, "a")] == ["1 a False", "2 a True"]
            assert [one.price.key("b"), Shop.price.key(two, "b")] == ["1:b", "2:b"]
            assert await two.price.refresh("a", net=False) == "2 a False"
            await one.price.forget("a")
            assert [await one.price("a"), await two.price("a")] == ["1 a True", "2 a False"]
            assert built == ["1 a False", "2 a True", "2 a False", "1 a True"]

    asyncio.run(story())


# Who looks for leaders


@pytest.mark.parametrize(("error", "is_told"), [(ClientClosed("closed"), False), (BackendRejected("no rights"), True)])
def test_who_looks_for_leaders_ends_quietly_with_its_client_and_not_with_trouble(
    error: Exception, is_told: bool, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    leaders = [
        Leader("boss", Holder("a", 1, "first", None), 7),
        None,
        Leader("boss", Holder("b", 2, "second", None), 9),
    ]

    async def changes() -> AsyncIterator[Leader | None]:
        for leader in leaders:
            yield leader
        raise error

    watch = Watch(Callbacks("boss", None, None, seen.append), cast("Any", changes()), "boss")
    with caplog.at_level(logging.ERROR, "leasehold"):
        run(watch.follow())
    assert seen == [leaders[0], leaders[2]]
    assert ("cannot look who leads 'boss' any more" in caplog.text) is is_told
