"""Records of `once` jobs: orders that meet a run, a pause or each other, and records of earlier versions."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import AlreadyRun, AlreadyRunning, BackendRejected, BackendUnavailable, Skipped, events
from leasehold._patterns.job_result import conflict_of
from leasehold._patterns.slots import slots_for
from leasehold.testing.manual import ManualStore
from leasehold.values import Holder, Record
from tests.unit.test_core_time import Script, fails

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._blocking import Client

DAY = 86_400.0
FIRST, SECOND = "2026-11-15T00:00:00+00:00", "2026-11-16T00:00:00+00:00"


@pytest.fixture
def store() -> ManualStore:
    store = ManualStore()
    store.set_wall(datetime(2026, 11, 15, 12, tzinfo=UTC))
    return store


def run(client: Client, **options: Any) -> bool:
    return bool(client.once("job", **options).run(lambda: None))


def before_the_lock(client: Client, step: Callable[[], object]) -> None:
    """Another is faster: the step is done once, just before this client asks for the lock."""
    steps = [step]

    def late(_: object, __: float, plain: Callable[[], Any]) -> Any:
        if steps:
            steps.pop()()
        return plain()

    Script(client, "try_acquire", late)


def facts(store: ManualStore, key: str) -> dict[str, Any]:
    record = store.memory.read(f"leasehold:{key}").record
    assert record is not None
    found: dict[str, Any] = json.loads(record.value)
    return found


# --- orders to forget


def test_a_later_run_that_came_first_is_not_forgotten_in_the_place_of_its_predecessor(
    store: ManualStore, client: Client, other: Client
) -> None:
    assert run(client, every="1d")

    def next_day() -> None:
        store.set_wall(datetime(2026, 11, 16, 12, tzinfo=UTC))
        assert run(other, every="1d")

    before_the_lock(client, next_day)
    assert client.forget("job", slot=FIRST, reason="empty") is False
    assert (facts(store, "once:3:job")["slot"], facts(store, "once:3:job").get("forgotten")) == (SECOND, None)
    assert not run(other, every="1d")


def test_of_two_orders_to_forget_the_first_is_the_one_that_is_remembered(
    store: ManualStore, client: Client, other: Client
) -> None:
    assert run(client, slot="a")
    before_the_lock(client, lambda: other.forget("job", slot="a", reason="theirs", by="ann"))
    assert client.forget("job", slot="a", reason="ours", by="bob") is False
    assert facts(store, "once:3:job:a")["forgotten"] == "theirs (by ann)"


def test_of_two_records_of_a_slot_one_that_cannot_be_rewritten_does_not_hide_that_the_other_was(
    store: ManualStore, client: Client
) -> None:
    assert run(client, every="1d")
    assert run(client, slot=FIRST)
    backend: Any = client._twin._open().backend
    plain = backend.write

    async def write(record: Record) -> bool:
        return False if record.key.endswith("once:3:job") else bool(await plain(record))

    backend.write = write
    assert client.forget("job", slot=FIRST, reason="empty", by="ann") is True
    assert facts(store, f"once:3:job:{FIRST}")["forgotten"] == "empty (by ann)"
    assert facts(store, "once-last:job")["forgotten"] == "empty (by ann)", "that is what people are shown"


def test_a_forgotten_period_begins_at_the_beginning_of_time_and_a_label_has_no_start(
    store: ManualStore, client: Client
) -> None:
    assert run(client, every="1d")
    assert run(client, slot="a")
    for slot, key, start in ((FIRST, "once:3:job", 0.0), ("a", "once:3:job:a", None)):
        assert client.forget("job", slot=slot, reason="empty")
        assert facts(store, key)["start"] == start


def test_a_job_that_is_paused_while_it_runs_is_not_made_to_forget(client: Client, other: Client) -> None:
    assert run(client, slot="a")
    with other.once("job", slot="b").attempt():
        client.pause("job", reason="stocktaking")
        with pytest.raises(AlreadyRunning) as running:
            client.forget("job", slot="a", reason="empty")
    assert running.value.skipped is not None
    assert running.value.skipped.runner is not None
    assert running.value.skipped.runner.label == "second"
    last = client.last_run("job", slot="a")
    assert last is not None
    assert last.outcome == "done"


def test_beside_a_pause_a_fence_that_another_raised_meanwhile_is_not_used(store: ManualStore, client: Client) -> None:
    assert run(client, slot="a")
    client.pause("job", reason="stocktaking")
    backend: Any = client._twin._open().backend
    plain, asked = backend.raise_fence, list[int]()

    async def raced(key: str, fence: int) -> int:
        asked.append(fence)
        if len(asked) == 2:
            await plain(key, fence + 7)
        return int(await plain(key, fence))

    backend.raise_fence = raced
    assert client.forget("job", slot="a", reason="empty")
    assert asked[3] == asked[1] + 8
    assert facts(store, "once:3:job:a")["forgotten"]
    assert store.memory.read("leasehold:once:3:job:a").fence == asked[3]


def test_who_forgets_says_so_to_those_who_meet_the_lock(client: Client, other: Client) -> None:
    assert run(client, slot="a")
    seen: list[str | None] = []

    backend: Any = client._twin._open().backend
    plain = backend.write

    async def write(record: Record) -> bool:
        state = other.inspect("job")
        seen.extend(holding.holder.reason for holding in (state.holdings if state else ()))
        return bool(await plain(record))

    backend.write = write
    assert client.forget("job", slot="a", reason="empty")
    assert set(seen) == {"forgetting a slot"}


# --- what is shown


def test_a_record_of_an_earlier_version_is_of_a_run_that_closed_its_slot(store: ManualStore, client: Client) -> None:
    old = {"slot": "a", "start": None, "runner": ["h", 7, "l", None], "finished": 10.0, "failed": True}
    store.memory.write(Record("leasehold:once:3:job:a", json.dumps(old).encode(), 1, 3600.0))
    last = client.last_run("job", slot="a")
    assert last is not None
    assert (last.runner, last.closed, last.failed) == (Holder("h", 7, "l", None), True, True)
    assert (last.began, last.fence, last.again, last.forgotten) == (None, None, None, None)
    assert not run(client, slot="a")


def test_a_run_that_ended_at_the_beginning_of_time_has_ended() -> None:
    assert type(conflict_of(Skipped("job", "a", None, 0.0))) is AlreadyRun
    assert type(conflict_of(Skipped("job", "a"))) is AlreadyRunning


def test_a_run_that_is_recorded_is_so_although_the_note_for_people_is_not_written(client: Client) -> None:
    ended: list[bool] = []
    client.on_event(lambda event: ended.append(event.recorded) if isinstance(event, events.RunEnded) else None)
    backend: Any = client._twin._open().backend
    plain = backend.write

    async def write(record: Record) -> Any:
        return fails(BackendRejected("no rights")) if "once-last" in record.key else await plain(record)

    backend.write = write
    assert run(client, slot="a")
    with pytest.raises(ZeroDivisionError):
        client.once("job", slot="b").run(lambda: 1 // 0)
    assert ended == [True, False]
    assert not run(client, slot="a")


# --- attempts


def test_an_order_to_run_again_is_for_the_slot_of_now_and_not_for_an_earlier_one(
    store: ManualStore, client: Client
) -> None:
    assert run(client, every="1d")
    store.clock.advance(DAY)
    assert run(client, every="1d")
    store.set_wall(datetime(2026, 11, 15, 12, tzinfo=UTC))
    with client.once("job", every="1d").attempt(again="empty") as skipped:
        assert isinstance(skipped, Skipped)
        assert skipped.slot == SECOND
    assert facts(store, "once:3:job")["again"] is None


def test_a_run_is_for_the_slot_in_which_it_was_asked_for_also_if_its_lock_took_longer(
    store: ManualStore, client: Client
) -> None:
    before_the_lock(client, lambda: store.set_wall(datetime(2026, 11, 16, 12, tzinfo=UTC)))
    with client.once("job", every="1d").attempt() as begun:
        assert not isinstance(begun, Skipped)
        assert begun.slot == FIRST
    assert facts(store, "once:3:job")["slot"] == FIRST
    assert run(client, every="1d")


def test_under_its_lock_an_attempt_asks_a_store_that_is_away_for_as_long_as_it_has_the_lock(
    store: ManualStore, client: Client
) -> None:
    client._twin._connect_timeout = 1.0
    began = store.clock.now()

    def away(_: str, fence: float, plain: Callable[[], Any]) -> Any:
        return fails(BackendUnavailable("away")) if fence and store.clock.now() < began + 5 else plain()

    Script(client, "read", away)
    assert run(client, slot="a", ttl=30)


def test_a_lock_that_the_store_does_not_take_back_does_not_hide_who_had_the_slot(client: Client, other: Client) -> None:
    before_the_lock(client, lambda: run(other, slot="a"))
    Script(client, "release", lambda *_: fails(BackendRejected("no rights")))
    with client.once("job", slot="a").attempt() as skipped:
        assert isinstance(skipped, Skipped)
        assert skipped.runner is not None
        assert skipped.runner.label == "second"


def test_a_run_that_is_cancelled_while_its_end_is_written_is_recorded_all_the_same() -> None:
    store = ManualStore()

    async def story() -> None:
        async with store.connect_async() as client:
            backend: Any = client._open().backend
            plain, writing, go_on = backend.write, asyncio.Event(), asyncio.Event()

            async def write(record: Record) -> Any:
                writing.set()
                await go_on.wait()
                return await plain(record)

            backend.write = write

            async def attempt() -> None:
                async with client.once("job", slot="a").attempt():
                    """That is enough."""

            task = asyncio.create_task(attempt())
            await writing.wait()
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(task, return_exceptions=True)
            assert store.memory.read("leasehold:once:3:job:a").record is not None
            assert await client.inspect("job") is None

    asyncio.run(story())


# --- names and times


@pytest.mark.parametrize(
    "make",
    [
        lambda client, name: client.once(name, slot="a")._twin._options["group"],
        lambda client, name: client.partitions(name)._twin._options["group"],
        lambda client, name: client.cache(name)._twin._options["group"].removeprefix("cache:"),
    ],
    ids=["once", "partitions", "cache"],
)
def test_a_long_name_makes_a_group_that_is_cut(client: Client, make: Callable[[Any, str], str]) -> None:
    name = "ab" * 150
    group = make(client, name)
    assert name.startswith(group)
    assert 250 <= len(group) <= 256


@pytest.mark.parametrize(("cron", "keep"), [("* * * * *", DAY), ("0 * * * *", DAY), ("0 2 * * 0", 14 * DAY)])
def test_a_tick_is_remembered_for_two_pauses_and_at_least_a_day(cron: str, keep: float) -> None:
    assert slots_for(every=None, cron=cron, slot=None, tz="UTC").at(1_800_000_000.0).keep == keep
