"""`client.partitions` in both faces, on a memory store whose clock is turned by hand."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import LeaseLost, LossReason, ModeConflict
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, UnsupportedCapability
from leasehold.testing.manual import ManualStore
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._blocking import Client
    from leasehold._blocking.partitions import Partition, Share


def partitions(client: Client, count: int = 4, **options: Any) -> Share:
    return client.partitions("orders", count, **{"retry": 1, **options})


def settle(store: ManualStore, condition: Callable[[], object], rounds: int = 3000) -> None:
    """Let time pass until the condition holds."""
    for _ in range(rounds):
        if condition():
            return
        store.pass_time(0.2)
        time.sleep(0.002)
    raise AssertionError("it did not happen")


def leaving(share: Share) -> list[Partition]:
    return [partition for partition in share.owned() if partition.leaving]


def locked(client: Client) -> list[str]:
    return [state.name for state in client.locks("orders")]


# --- sharing out


def test_a_member_that_is_alone_owns_all_as_soon_as_it_has_joined(client: Client) -> None:
    with partitions(client) as share:
        assert (share.name, share.count, share.members) == ("orders", 4, 1)
        owned = share.owned()
        assert [partition.index for partition in owned] == [0, 1, 2, 3]
        assert [partition.name for partition in owned] == ["orders/0", "orders/1", "orders/2", "orders/3"]
        for partition in owned:
            partition.check(need=1)
            assert partition.fence == partition.lease.fence
            assert not partition.lost.is_set()
            assert not partition.leaving
        assert locked(client) == ["orders/0", "orders/1", "orders/2", "orders/3", "orders/members"]
    assert locked(client) == []
    assert share.owned() == ()


def test_a_surplus_is_announced_and_moves_when_its_worker_releases_it(
    store: ManualStore, client: Client, other: Client
) -> None:
    with partitions(client) as first, partitions(other) as second:
        assert second.owned() == ()
        settle(store, lambda: len(leaving(first)) == 2)
        assert [partition.index for partition in leaving(first)] == [2, 3]
        store.pass_time(5)
        assert len(first.owned()) == 4, "they stay ours until they are released"
        assert second.owned() == ()
        moved = leaving(first)
        for partition in moved:
            partition.check()
            assert partition.release()
            assert not partition.release()
        settle(store, lambda: len(second.owned()) == 2)
        assert [partition.index for partition in first.owned()] == [0, 1]
        assert [partition.index for partition in second.owned()] == [2, 3]
        for old, new in zip(moved, second.owned(), strict=True):
            assert new.fence > old.fence
            assert new != old
            assert not old.lost.is_set(), "what was released is not lost"
            with pytest.raises(LeaseLost):
                old.check()
        assert first.members == second.members == 2


def test_what_its_worker_does_not_release_is_taken_from_it_after_the_grace_time(
    store: ManualStore, client: Client, other: Client
) -> None:
    with partitions(client, grace=10) as first, partitions(other) as second:
        settle(store, lambda: len(leaving(first)) == 2)
        kept = leaving(first)
        store.pass_time(8)
        assert len(first.owned()) == 4
        settle(store, lambda: len(second.owned()) == 2)
        assert len(first.owned()) == 2
        for partition in kept:
            assert partition.lost.is_set(), "its worker had not asked for that"
            with pytest.raises(LeaseLost) as caught:
                partition.check()
            assert caught.value.reason is LossReason.MAX_HOLD
            assert "grace" in str(caught.value)
            assert partition.release() is False


def test_without_grace_a_surplus_moves_at_once(store: ManualStore, client: Client, other: Client) -> None:
    with partitions(client, grace=0) as first, partitions(other) as second:
        settle(store, lambda: len(second.owned()) == 2)
        assert len(first.owned()) == 2
        assert leaving(first) == []


def test_a_partition_that_was_released_without_need_is_taken_again(store: ManualStore, client: Client) -> None:
    with partitions(client) as share:
        given = share.owned()[1]
        given.release()
        assert [partition.index for partition in share.owned()] == [0, 2, 3]
        settle(store, lambda: len(share.owned()) == 4)
        assert share.owned()[1].fence > given.fence


def test_more_members_than_partitions_wait_as_spares(store: ManualStore, client: Client, other: Client) -> None:
    with partitions(client, 1) as first, partitions(other, 1) as second:
        store.pass_time(5)
        assert (len(first.owned()), len(second.owned())) == (1, 0)
        first.leave()
        settle(store, lambda: len(second.owned()) == 1)


def test_members_must_agree_about_the_count(client: Client, other: Client) -> None:
    with partitions(client, 4):
        with pytest.raises(ModeConflict, match="not as 5 partitions"):
            partitions(other, 5).__enter__()
        assert "orders/4" not in locked(other)


# --- waiting for a change


def test_wait_change_tells_of_gains_of_leaving_and_of_losses(store: ManualStore, client: Client, other: Client) -> None:
    with partitions(client) as first:
        first.owned()
        assert not first.wait_change(0)
        with partitions(other) as second:
            settle(store, lambda: first.wait_change(0))
            assert len(leaving(first)) >= 1
            settle(store, lambda: len(leaving(first)) == 2)
            assert not first.wait_change(0), "owned() has shown it"
            for partition in leaving(first):
                partition.release()
            assert first.wait_change(0)
            settle(store, lambda: second.wait_change(0))
        settle(store, lambda: len(first.owned()) == 4)
        store.lose(first.owned()[0].lease)
        settle(store, lambda: first.wait_change(0))


def test_all_threads_that_wait_for_a_change_are_told(client: Client) -> None:
    with partitions(client) as share:
        told: list[bool] = []
        threads = [threading.Thread(target=lambda: told.append(share.wait_change())) for _ in range(3)]
        share.owned()
        for thread in threads:
            thread.start()
        share.owned()[0].release()
        for thread in threads:
            thread.join()
        assert told == [True, True, True]


# --- losses and trouble


def test_a_lost_partition_is_not_owned_and_is_taken_again_under_a_higher_fence(
    store: ManualStore, client: Client
) -> None:
    with partitions(client) as share:
        gone = share.owned()[2]
        store.lose(gone.lease)
        assert [partition.index for partition in share.owned()] == [0, 1, 3]
        assert gone.lost.is_set()
        settle(store, lambda: len(share.owned()) == 4)
        assert share.owned()[2].fence > gone.fence


def test_a_member_that_slept_too_long_owns_nothing_and_joins_again(store: ManualStore, client: Client) -> None:
    with partitions(client) as share:
        before = share.owned()
        store.clock.advance(100)
        assert not set(share.owned()) & set(before)
        assert all(partition.lost.is_set() for partition in before)
        settle(store, lambda: len(share.owned()) == 4)
        assert share.members == 1
        for old, new in zip(before, share.owned(), strict=True):
            assert new.fence > old.fence


def test_a_member_that_was_taken_off_the_list_keeps_what_it_has_and_joins_again(
    store: ManualStore, client: Client, other: Client
) -> None:
    with partitions(client, grace=0) as first, partitions(other, grace=0) as second:
        settle(store, lambda: len(second.owned()) == 2)
        membership = first._twin._membership
        assert membership is not None
        store.lose(membership)
        assert len(first.owned()) == 2
        settle(store, lambda: first._twin._membership is not membership)
        settle(store, lambda: (len(first.owned()), len(second.owned())) == (2, 2))
        store.pass_time(5)
        assert (len(first.owned()), len(second.owned())) == (2, 2)


@pytest.mark.parametrize("now", [False, True])
def test_a_member_that_an_operator_has_ended_is_counted_no_more(client: Client, other: Client, now: bool) -> None:
    with partitions(client) as first, partitions(other) as second:
        gone = second._twin._membership
        name, me = first._twin._members_lock.name, first._twin._membership
        assert me is not None
        assert gone is not None
        run(first._twin._find_out(me.fence))
        assert first.members == 2
        assert client.break_lock(name, fence=gone.fence, reason="its host is gone", now=now)
        due = run(first._twin._find_out(me.fence))
        assert first.members == 1, "its ttl is not over, and its partitions must not wait for that"
        assert not due.let_go


def test_while_the_store_is_silent_a_member_keeps_what_it_has(
    store: ManualStore, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with partitions(client) as share:
        before = share.owned()
        with caplog.at_level(logging.WARNING, "leasehold"):
            for _ in range(4):
                store.faults.refuse_next("inspect")
            settle(store, lambda: share._twin._failures > 0)
            settle(store, lambda: share._twin._failures == 0)
        assert len([r.message for r in caplog.records if "partitions of 'orders'" in r.message]) == 1
        assert share.owned() == before
        assert share.owned() == before


@pytest.mark.parametrize("trouble", ["drop_next_reply", "drop_next_request", "refuse_next"])
def test_a_claim_without_an_answer_leaves_nothing_behind_and_gets_its_partition_later(
    trouble: str, store: ManualStore, client: Client, other: Client
) -> None:
    with partitions(client) as share:
        share.owned()[3].release()
        getattr(store.faults, trouble)("try_acquire")
        settle(store, lambda: len(share.owned()) == 4)
    assert locked(other) == []


def test_when_its_client_is_closed_a_share_is_over(store: ManualStore) -> None:
    client = store.connect()
    with partitions(client) as share:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            client.close()
        assert share.owned() == ()
        settle(store, share._twin._over.is_set)
        share.wait_change(0)
        assert not share.wait_change(), "and does not wait for ever"


def test_a_release_without_an_answer_does_not_stop_the_worker(store: ManualStore, client: Client) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    with partitions(client) as share:
        given = share.owned()[0]
        store.faults.reject_next("release")
        assert given.release() is False
        assert given not in share.owned()
        assert [type(event).__name__ for event in seen].count("ReleaseFailed") == 1
        settle(store, lambda: len(share.owned()) == 4)
        assert share.owned()[0].fence > given.fence


# --- leaving


def test_an_exception_of_the_block_is_seen_and_everything_is_free(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), partitions(client):
        _ = 1 / 0
    assert locked(client) == []


def test_after_leave_nothing_is_owned_and_it_may_be_called_twice(client: Client) -> None:
    with partitions(client) as share:
        partition = share.owned()[0]
        share.leave()
        share.leave()
        assert share.wait_change()
        assert share.owned() == ()
        assert not share.wait_change(), "it is over, and nothing can change any more"
        assert locked(client) == []
        with pytest.raises(LeaseLost):
            partition.check()


def test_leave_with_a_timeout_lets_workers_finish_while_others_take_over(
    store: ManualStore, client: Client, other: Client
) -> None:
    with partitions(client) as first, partitions(other) as second:
        going = threading.Thread(target=first.leave, args=[60])
        owned = first.owned()
        going.start()
        settle(store, lambda: len(leaving(first)) == 4)
        owned[0].release()
        settle(store, lambda: [partition.index for partition in second.owned()] == [0])
        assert len(first.owned()) == 3
        for partition in owned[1:3]:
            partition.release()
        settle(store, lambda: len(second.owned()) == 3)
        assert going.is_alive()
        owned[3].release()
        going.join()
        settle(store, lambda: len(second.owned()) == 4)


def test_leave_waits_no_longer_than_its_timeout(store: ManualStore, client: Client) -> None:
    with partitions(client) as share:
        going = threading.Thread(target=share.leave, args=[5])
        going.start()
        settle(store, lambda: not going.is_alive())
        assert locked(client) == []


def test_a_store_that_is_silent_at_the_end_does_not_hide_the_end(store: ManualStore, client: Client) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    with partitions(client, 1):
        store.faults.reject_next("release")
    assert [type(event).__name__ for event in seen].count("ReleaseFailed") == 1


# --- bad input


@pytest.mark.parametrize(
    "options",
    [
        {"count": 0},
        {"count": True},
        {"count": 1.5},
        {"count": 10_001},
        {"retry": 0},
        {"retry": 31},
        {"retry": -1},
        {"grace": -1},
        {"ttl": 0},
        {"reason": 7},
        {"name": ""},
        {"name": "x" * 510},
    ],
)
def test_bad_options_are_refused_before_anything_is_sent(
    options: dict[str, Any], store: ManualStore, client: Client
) -> None:
    with pytest.raises(ConfigurationError):
        client.partitions(**{"name": "orders", **options})
    assert store.faults.calls == []


def test_a_store_that_cannot_list_members_is_refused(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    backend = client._twin._current().backend
    for missing in (Capability.PERMITS, Capability.INSPECT):
        monkeypatch.setattr(type(backend), "capabilities", frozenset(Capability) - {missing})
        with pytest.raises(UnsupportedCapability, match=missing):
            client.partitions("orders")


def test_a_share_is_good_for_one_block_and_stays_in_its_process(client: Client) -> None:
    share = partitions(client)
    with share:
        assert repr(share) == "<Share 'orders' 4 of 4>"
        assert repr(share.owned()[0]).startswith("<Partition 'orders/0' fence=")
        for thing in (share, share.owned()[0]):
            with pytest.raises(TypeError, match="process"):
                pickle.dumps(thing)
        assert share.owned()[0] == share.owned()[0]
        assert share.owned()[0] != share.owned()[1]
        assert share.owned()[0] != 0
        assert len({*share.owned(), *share.owned()}) == 4
    with pytest.raises(TypeError, match="used up"):
        share.__enter__()


# --- the async face


def test_the_async_face_does_the_same(store: ManualStore) -> None:
    async def settle(condition: Callable[[], object]) -> None:
        for _ in range(3000):
            if condition():
                return
            store.clock.advance(0.2)
            await asyncio.sleep(0.004)
        raise AssertionError("it did not happen")

    async def story() -> None:
        async with store.connect_async() as one, store.connect_async() as two:
            async with one.partitions("orders", 4, retry=1) as first:
                assert len(first.owned()) == 4
                async with two.partitions("orders", 4, retry=1) as second:
                    await settle(lambda: sum(partition.leaving for partition in first.owned()) == 2)
                    assert not await first.wait_change(0)
                    waiting = asyncio.create_task(second.wait_change())
                    for partition in first.owned():
                        if partition.leaving:
                            partition.check()
                            await partition.release()
                    await settle(waiting.done)
                    assert await waiting
                    await settle(lambda: len(second.owned()) == 2)
                    assert first.owned()[0] == first.owned()[0]
                    assert first.owned()[0] != 0
                await settle(lambda: len(first.owned()) == 4)
            assert not await one.locks("orders")

    asyncio.run(story())


def test_a_cancelled_member_leaves_in_order(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async() as client:
            joined = asyncio.Event()

            async def member() -> None:
                async with client.partitions("orders", 4) as share:
                    assert len(share.owned()) == 4
                    joined.set()
                    await asyncio.sleep(3600)

            task = asyncio.create_task(member())
            await joined.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not await client.locks("orders")

    asyncio.run(story())
