"""`client.once` in both faces, on a memory store whose clocks are turned by hand."""

from __future__ import annotations

import asyncio
import logging
import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import AlreadyRun, AlreadyRunning, LeaseLost, Skipped
from leasehold._blocking.once import Run
from leasehold._face.client import AsyncClient
from leasehold._patterns.once import AsyncRun
from leasehold.errors import BackendError, ConfigurationError, UnsupportedCapability
from leasehold.testing.manual import ManualStore
from leasehold.values import Capability, Claim, Grant, Holder, LossReason, Mode, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._blocking import Client

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def store() -> ManualStore:
    store = ManualStore()
    store.set_wall(NOON)
    return store


def attempt(client: Client, **options: Any) -> Run | Skipped:
    """One attempt whose block does nothing."""
    with client.once("job", **{"every": "1d", **options}).attempt() as run:
        return run


# --- slots


def test_a_slot_runs_once_whichever_client_attempts_it(client: Client, other: Client) -> None:
    run = attempt(client)
    assert isinstance(run, Run)
    assert (run.name, run.slot) == ("job", "2026-11-15T00:00:00+00:00")
    skipped = attempt(other)
    assert isinstance(skipped, Skipped)
    assert not skipped
    assert skipped.runner is not None
    assert (skipped.name, skipped.slot, skipped.runner.label) == ("job", "2026-11-15T00:00:00+00:00", "first")
    assert skipped.finished == NOON.timestamp()
    assert "first" in str(skipped)
    assert "2026-11-15T12:00:00" in str(skipped)


def test_the_next_slot_runs_again(store: ManualStore, client: Client, other: Client) -> None:
    assert attempt(client)
    store.clock.advance(12 * 3600 - 1)
    assert not attempt(other)
    store.clock.advance(1)
    assert attempt(other)
    assert not attempt(client)


def test_a_boundary_does_not_run_twice_when_the_stores_clock_is_set_back(store: ManualStore, client: Client) -> None:
    store.set_wall(NOON.replace(hour=0, minute=0, second=0) + timedelta(days=1))
    assert attempt(client)
    store.set_wall(NOON.replace(hour=23, minute=59, second=59))
    skipped = attempt(client)
    assert isinstance(skipped, Skipped)
    assert skipped.slot == "2026-11-16T00:00:00+00:00"


def test_a_cron_tick_is_shared_by_those_who_fire_a_little_early_and_late(store: ManualStore, client: Client) -> None:
    tick = datetime(2026, 11, 16, 2, tzinfo=UTC)
    store.set_wall(tick - timedelta(seconds=20))
    assert attempt(client, every=None, cron="0 2 * * *")
    store.set_wall(tick + timedelta(seconds=20))
    assert not attempt(client, every=None, cron="0 2 * * *")


def test_labels_have_no_order_and_each_runs_once(client: Client) -> None:
    for label in ("2026-11-15", "2026-11-14", "2026-11-16"):
        assert attempt(client, every=None, slot=label)
    for label in ("2026-11-16", "2026-11-14", "2026-11-15"):
        assert not attempt(client, every=None, slot=label)


def test_names_and_labels_that_read_the_same_when_joined_are_different_jobs(client: Client) -> None:
    with client.once("a:b", slot="c").attempt() as first, client.once("a", slot="b:c").attempt() as second:
        assert first
        assert second


def test_a_slot_is_remembered_for_as_long_as_keep(store: ManualStore, client: Client) -> None:
    assert attempt(client, every=None, slot="x", keep="10d")
    store.clock.advance(9 * 86_400)
    assert not attempt(client, every=None, slot="x", keep="10d")
    store.clock.advance(2 * 86_400)
    assert attempt(client, every=None, slot="x", keep="10d")


def test_keep_is_never_less_than_two_periods(store: ManualStore, client: Client) -> None:
    assert attempt(client, every="7d", keep="1s")
    store.set_wall(NOON - timedelta(days=8))
    store.clock.advance(13 * 86_400)
    store.set_wall(NOON - timedelta(days=8))
    assert not attempt(client, every="7d", keep="1s")


# --- conflicts


def test_an_attempt_while_it_runs_is_skipped_and_names_the_runner(client: Client, other: Client) -> None:
    with client.once("job", every="1d", reason="the report").attempt() as run:
        assert run
        skipped = attempt(other)
        assert isinstance(skipped, Skipped)
        assert skipped.finished is None
        assert skipped.runner is not None
        assert (skipped.runner.label, skipped.runner.reason) == ("first", "the report")
        assert "is being run by first" in str(skipped)
        with pytest.raises(AlreadyRunning) as caught:
            attempt(other, on_conflict="raise")
        assert caught.value.skipped == skipped


def test_raise_has_what_was_run_and_survives_pickling(client: Client) -> None:
    attempt(client)
    with pytest.raises(AlreadyRun) as caught:
        attempt(client, on_conflict="raise")
    assert isinstance(caught.value, leasehold.Conflict)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.skipped == caught.value.skipped
    assert copy.name == "job"


def test_a_skip_is_an_event_and_is_logged_as_information(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    attempt(client)
    with caplog.at_level(logging.INFO, "leasehold"):
        skipped = attempt(client)
    assert [event.skipped for event in seen if type(event).__name__ == "RunSkipped"] == [skipped]
    assert str(skipped) in caplog.text


# --- failures


def test_a_failed_run_leaves_its_slot_open_and_its_exception_is_seen(client: Client, other: Client) -> None:
    with pytest.raises(ZeroDivisionError), client.once("job", every="1d").attempt():
        _ = 1 / 0
    assert attempt(other)


def test_a_run_that_calls_fail_leaves_its_slot_open(client: Client) -> None:
    with client.once("job", every="1d").attempt() as run:
        assert isinstance(run, Run)
        run.fail()
    assert attempt(client)


def test_a_failed_run_closes_its_slot_with_on_failure_close(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), client.once("job", every="1d", on_failure="close").attempt():
        _ = 1 / 0
    skipped = attempt(client)
    assert isinstance(skipped, Skipped)
    assert skipped.failed
    assert "failed" in str(skipped)


def test_an_interrupted_run_leaves_its_slot_open_in_any_case(client: Client) -> None:
    with pytest.raises(KeyboardInterrupt), client.once("job", every="1d", on_failure="close").attempt():
        raise KeyboardInterrupt
    assert attempt(client)


# --- losses


def test_a_run_whose_lease_was_lost_is_not_recorded(store: ManualStore, client: Client, other: Client) -> None:
    with pytest.raises(LeaseLost) as caught, client.once("job", every="1d").attempt() as run:
        assert isinstance(run, Run)
        store.lose(run.lease)
    assert caught.value.completed
    assert attempt(other)


def test_a_late_finisher_cannot_overwrite_and_gets_lease_lost(
    store: ManualStore, client: Client, other: Client
) -> None:
    """The lease looks fine to its holder, but the store has given the lock to another, which is running."""
    with pytest.raises(LeaseLost) as caught, client.once("job", every="1d").attempt() as late:
        assert isinstance(late, Run)
        store.memory.release(late.lease._twin._tenure.grant)
        with client.once("job", every="1d").attempt() as newer:
            assert isinstance(newer, Run)
            assert newer.fence > late.fence
            newer.fail()  # so that nothing but the late one could have closed the slot
    assert caught.value.completed
    assert caught.value.reason is LossReason.TAKEN
    assert attempt(other)


def test_a_holder_that_is_late_before_it_begins_does_not_run(store: ManualStore, client: Client) -> None:
    job = client.once("job", every="1d")
    key = job._twin.attempt()._key()
    store.memory.read(key, 2**50)
    with pytest.raises(LeaseLost), job.attempt():
        raise AssertionError("it must not run")
    assert client.inspect("job") is None


def test_a_run_that_the_record_shows_to_be_late_loses_its_lease_even_while_it_holds_the_lock(
    store: ManualStore, client: Client
) -> None:
    job = client.once("job", every="1d")
    with pytest.raises(LeaseLost), job.attempt() as run:
        assert run
        store.memory.read(job._twin.attempt()._key(), 2**50)


def test_a_run_that_took_longer_than_max_hold_is_not_recorded(store: ManualStore, client: Client) -> None:
    with pytest.raises(LeaseLost) as caught, client.once("job", every="1d", max_hold=5).attempt():
        store.pass_time(6)
    assert caught.value.reason is LossReason.MAX_HOLD
    assert attempt(client)


# --- trouble


@pytest.mark.parametrize("trouble", ["drop_next_reply", "drop_next_request", "refuse_next"])
@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_read_without_answer_is_sent_again(trouble: str, verb: str) -> None:
    store = ManualStore()
    with _with_real_time(store) as client:
        getattr(store.faults, trouble)(verb)
        assert attempt(client)
        assert store.faults.calls.count(verb) >= 2
        assert not attempt(client)


def _with_real_time(store: ManualStore) -> leasehold.Client:
    return leasehold.connect(store)


def test_a_run_that_cannot_be_recorded_raises_and_frees_the_lock(store: ManualStore, client: Client) -> None:
    store.faults.reject_next("write")
    with pytest.raises(BackendError) as caught, client.once("job", every="1d").attempt():
        pass
    assert "may not be recorded" in caught.value.__notes__[0]
    assert client.inspect("job") is None
    assert attempt(client)


def test_an_exception_of_the_block_is_never_hidden_by_trouble_with_the_record(
    store: ManualStore, client: Client
) -> None:
    store.faults.reject_next("write")
    with pytest.raises(ZeroDivisionError) as caught, client.once("job", every="1d", on_failure="close").attempt():
        _ = 1 / 0
    assert "may not be recorded" in caught.value.__notes__[0]
    assert client.inspect("job") is None


# --- standby


def test_standby_skips_what_the_other_finished(store: ManualStore) -> None:
    assert _standby(store, lambda: None) == [False]


def test_standby_takes_over_from_one_that_failed(store: ManualStore) -> None:
    def fail() -> None:
        raise ValueError("the job failed")

    assert _standby(store, fail) == [True]


def test_standby_takes_over_from_one_that_vanished_and_there_is_no_third_run(store: ManualStore) -> None:
    holder = Holder("host", 1, "vanished")
    vanished = Claim("leasehold:job", "owner", 30.0, Mode.EXCLUSIVE, 1, 0.0, holder)
    assert isinstance(store.memory.try_acquire(vanished), Grant)

    async def story() -> None:
        async with store.connect_async() as first, store.connect_async() as second:
            tasks = [asyncio.create_task(_stand_by(client)) for client in (first, second)]
            await _until(lambda: len(_state(store)) == 2)
            for _ in range(31):  # a second at a time: a waiter that sends nothing for longer loses its place
                store.clock.advance(1)
                await asyncio.sleep(0.01)
            assert sorted(await asyncio.gather(*tasks)) == [False, True]

    asyncio.run(story())


def test_standby_that_waits_in_vain_times_out(client: Client, other: Client) -> None:
    with client.once("job", every="1d").attempt(), pytest.raises(leasehold.AcquireTimeout):
        attempt(other, on_conflict="standby", timeout=0)


async def _stand_by(client: AsyncClient) -> bool:
    async with client.once("job", every="1d", on_conflict="standby").attempt() as run:
        return bool(run)


async def _until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def _state(store: ManualStore) -> tuple[Any, ...]:
    states = store.memory.list("")
    return states[0].waiting if states else ()


def _standby(store: ManualStore, work: Callable[[], None]) -> list[bool]:
    """One runs while another stands by; whether the second ran."""

    async def story() -> list[bool]:
        async with store.connect_async() as first, store.connect_async() as second:
            task = None
            try:
                async with first.once("job", every="1d").attempt() as run:
                    assert run
                    task = asyncio.create_task(_stand_by(second))
                    await _until(lambda: _state(store))
                    work()
            except ValueError:
                pass
            assert task is not None
            ran = await task
            assert await first.inspect("job") is None, "the lock is given back, also by one that skips"
            return [ran]

    return asyncio.run(story())


# --- the two faces


def test_the_decorator_makes_names_from_arguments(client: Client) -> None:
    calls: list[tuple[int, int]] = []

    @client.once("report:{user_id}", every="1d")
    def report(user_id: int, lease: leasehold.Lease | None = None) -> int:
        assert lease is not None
        calls.append((user_id, lease.fence))
        return user_id * 2

    assert report(7).value == 14
    assert report(8).value == 16
    assert isinstance(report(7).skipped, Skipped)
    assert [user for user, _ in calls] == [7, 8]


def test_the_decorator_makes_labels_from_arguments(client: Client) -> None:
    @client.once("report", slot="{day}")
    def report(day: str) -> str:
        return day

    assert report("monday").value == "monday"
    assert report("tuesday").value == "tuesday"
    assert not report("monday")


def test_the_async_decorator_and_run_do_the_same(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async() as client:

            @client.once("report:{user_id}", every="1d")
            async def report(user_id: int) -> int:
                return user_id

            assert (await report(7)).value == 7
            assert isinstance((await report(7)).skipped, Skipped)
            job = client.once("job", every="1d")
            assert (await job.run(report.__wrapped__, 3)).value == 3  # type: ignore[attr-defined]
            assert not await job.run(report.__wrapped__, 3)  # type: ignore[attr-defined]

    asyncio.run(story())


def test_a_decorated_coroutine_is_given_its_lease_and_not_its_run(store: ManualStore) -> None:
    async def main() -> None:
        given: list[object] = []
        async with store.connect_async() as client:

            @client.once("report:{day}", every="1d")
            async def report(day: str, lease: object = leasehold.CURRENT) -> str:
                given.append(lease)
                return day

            done = await report("monday")
            assert done.ran
            (lease,) = given
            assert isinstance(lease, leasehold.AsyncLease)
            assert lease.name == "report:monday"

    asyncio.run(main())


def test_the_async_block_is_cancelled_when_the_lease_is_lost(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async() as client:
            with pytest.raises(LeaseLost) as caught:
                async with client.once("job", every="1d").attempt() as run:
                    assert isinstance(run, AsyncRun)
                    store.lose(run.lease)
                    await asyncio.sleep(60)
            assert not caught.value.completed
            assert await _stand_by(client)

    asyncio.run(story())


def test_run_gives_the_result_of_the_function(client: Client) -> None:
    job = client.once("job", every="1d")
    assert job.run(max, 3, 5).value == 5
    assert not job.run(max, 3, 5)
    assert job.name == "job"
    assert repr(job) == "<Once 'job'>"


def test_an_attempt_is_good_for_one_block(client: Client) -> None:
    attempt = client.once("job", every="1d").attempt()
    with attempt:
        pass
    with pytest.raises(TypeError, match="attempt"), attempt:
        pass


def test_the_wrong_kind_of_function_is_refused_when_it_is_decorated(client: Client) -> None:
    async def late() -> None: ...

    with pytest.raises(ConfigurationError, match="async"):
        client.once("job", every="1d")(late)
    with pytest.raises(ConfigurationError, match="user"):
        client.once("job:{user}", every="1d")(lambda: None)


@pytest.mark.parametrize(
    "options",
    [
        {"on_conflict": "wait"},
        {"on_failure": "retry"},
        {"keep": -1},
        {"timeout": -1},
        {"ttl": 0},
        {"max_hold": True},
        {"tz": "nowhere"},
        {"cron": "* * * * *"},
    ],
)
def test_bad_options_are_refused_before_any_question(store: ManualStore, client: Client, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        client.once("job", **{"every": "1d", **options})
    assert store.faults.calls == []


def test_a_store_without_records_is_refused_at_once(store: ManualStore) -> None:
    class NoRecords:
        def open_backend(self, runtime: Any) -> Any:
            backend: Any = store.memory.open_backend(runtime)
            backend.capabilities -= {Capability.RECORD}
            return backend

    with leasehold.connect(NoRecords()) as client, pytest.raises(UnsupportedCapability, match="record"):
        client.once("job", every="1d")


def test_a_job_refuses_pickling(client: Client) -> None:
    with pytest.raises(TypeError, match="client"):
        pickle.dumps(client.once("job", every="1d"))


def test_records_of_once_do_not_meet_records_of_the_same_name(store: ManualStore, client: Client) -> None:
    store.memory.write(Record("leasehold:job", b"somebody else's", 2**50, 3600.0))
    assert attempt(client)
