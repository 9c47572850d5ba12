"""Looks of the members of a share, one at a time, on a store whose clock stands still between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    BackendError,
    BackendRejected,
    BackendUnavailable,
    ClientClosed,
    LossReason,
    OutcomeUnknown,
)
from leasehold._patterns.partition import AsyncPartition
from leasehold._runtimes.threads import run
from leasehold.testing.manual import ManualStore
from tests.unit.test_core_time import Script, fails

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._blocking import Client
    from leasehold._blocking.partitions import Share


@pytest.fixture
def store() -> Iterator[ManualStore]:
    """Nothing moves by itself: no worker of a share looks unless the test does it."""
    made = ManualStore(autojump=None)
    yield made
    made.close()


def partitions(client: Client, count: int, **options: Any) -> Share:
    return client.partitions("orders", count, **{"ttl": 1_000, **options})


def look(*shares: Share) -> None:
    for share in shares:
        run(share._twin._look())


def staying(share: Share) -> list[int]:
    return [partition.index for partition in share.owned() if not partition.leaving]


def leaving(share: Share) -> list[int]:
    return [partition.index for partition in share.owned() if partition.leaving]


def free(share: Share) -> None:
    for partition in share.owned():
        if partition.leaving:
            partition.release()


def test_what_was_released_and_taken_again_is_not_lost_by_releasing_it_twice(store: ManualStore) -> None:
    with store.connect() as client, partitions(client, 3) as share:
        old = share.owned()[1]
        assert old.release()
        look(share)
        assert staying(share) == [0, 1, 2]
        assert not old.release()
        assert staying(share) == [0, 1, 2]
        assert share.owned()[1].fence > old.fence


def test_partitions_are_in_order_of_their_index_whenever_they_were_taken(store: ManualStore) -> None:
    with store.connect() as client, partitions(client, 4) as share:
        for index in (2, 0):
            share.owned()[index].release()
            look(share)
        assert staying(share) == [0, 1, 2, 3]
        assert [partition.name for partition in share.owned()] == [f"orders/{index}" for index in range(4)]


def test_a_member_that_still_has_to_let_go_takes_what_it_is_due_meanwhile(store: ManualStore) -> None:
    with store.connect() as a, store.connect() as b, store.connect() as c:
        with partitions(a, 4) as first, partitions(b, 4) as second:
            look(first)
            free(first)
            look(second)
            assert (staying(first), staying(second)) == ([0, 1], [2, 3])
            with partitions(c, 4) as third:
                look(first, second)
                assert (staying(first), staying(second), leaving(second)) == ([0, 1], [2], [3])
                first.leave()
                look(second)
                assert len(staying(second)) == 2, "what is leaving is none of what it is due"
                assert leaving(second) == [3]
                asked = store.faults.calls.count("try_acquire")
                free(second)
                look(third)
                assert len(staying(third)) == 2
                assert store.faults.calls.count("try_acquire") - asked <= 4


def test_a_member_does_not_ask_for_what_it_has_itself(store: ManualStore) -> None:
    with store.connect() as a, store.connect() as b, partitions(a, 2) as first:
        with partitions(b, 2) as second:
            look(first)
            assert (staying(first), leaving(first)) == ([0], [1])
            second.leave()
        asked = store.faults.calls.count("try_acquire")
        look(first)
        assert store.faults.calls.count("try_acquire") == asked, "all of it is its own"
        free(first)
        look(first)
        assert staying(first) == [0, 1]


@pytest.mark.parametrize(("grace", "after", "is_taken"), [(8, 7.5, False), (8, 8, True), (0, 0, True)])
def test_a_worker_has_the_whole_grace_time_and_no_more(
    store: ManualStore, grace: float, after: float, is_taken: bool
) -> None:
    with store.connect() as a, store.connect() as b:
        with partitions(a, 2, grace=grace) as first, partitions(b, 2):
            second = first.owned()[1]
            look(first)
            assert second.leaving
            store.clock.advance(after)
            look(first)
            assert second.lost.is_set() is is_taken
            loss = second.lease.loss
            assert (loss and loss.reason) == (LossReason.MAX_HOLD if is_taken else None)
            assert [partition.index for partition in first.owned()] == ([0] if is_taken else [0, 1])


def test_a_partition_that_is_granted_after_the_member_has_left_is_given_back(store: ManualStore) -> None:
    with store.connect() as client, store.connect() as other, partitions(client, 2) as share:
        share.owned()[0].release()

        def late(_: object, __: float, plain: Any) -> Any:
            share._twin._over.set()
            return plain()

        Script(client, "try_acquire", late)
        look(share)
        assert staying(share) == [1]
        assert [state.name for state in other.locks("orders")] == ["orders/1", "orders/members"]


def test_who_waits_for_a_change_hears_that_its_client_was_closed(store: ManualStore) -> None:
    client = store.connect()
    with store.connect() as other, partitions(other, 1), partitions(client, 1) as spare:
        assert spare.owned() == ()
        client.close(release=True)
        assert not spare.wait_change(0)
        run(spare._twin._look_or_wait())
        assert spare.wait_change(0)
        assert not spare.wait_change(), "it is over, and does not wait for ever"


def test_a_partition_of_a_client_that_was_closed_can_be_released_without_an_error(store: ManualStore) -> None:
    client = store.connect()
    with partitions(client, 2) as share:
        first, second = share.owned()
        client.close(release=True)
        assert not first.release()
        assert not second.release()
        assert share.owned() == ()


@pytest.mark.parametrize("error", [ClientClosed("closed"), BackendUnavailable("away"), BackendRejected("no rights")])
def test_a_release_that_fails_is_no_error_of_the_worker_and_the_partition_is_not_owned(
    store: ManualStore, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.connect() as client, partitions(client, 2) as share:
        first, second = share.owned()

        async def release() -> bool:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(first._twin._lease, "release", release)
            assert first.release() is False
            assert share.owned() == (second,)
        assert first.lease.release()


def test_two_objects_of_one_grant_are_one_partition_and_a_later_grant_is_another(store: ManualStore) -> None:
    with store.connect() as client:
        lease = run(client._twin.lock("orders/1").acquire())
        one, same = (AsyncPartition(1, lease, lambda _: None) for _ in range(2))
        assert one == same
        assert {one: "x"}[same] == "x"
        run(lease.release())
        later = AsyncPartition(1, run(client._twin.lock("orders/1").acquire()), lambda _: None)
        assert later != one
        assert len({one, same, later}) == 2
        run(later.release())


# What observers of an election see


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [(BackendUnavailable("away"), False), (OutcomeUnknown("no answer"), False), (BackendRejected("no rights"), True)],
)
def test_a_store_that_does_not_answer_is_no_news_of_a_leader_and_one_that_refuses_is_told(
    store: ManualStore, error: BackendError, is_raised: bool
) -> None:
    with store.connect() as client, store.connect() as other, other.election("boss").lead() as term:
        observation = client.election("boss").observe()
        first = next(observation)
        assert first is not None
        assert first.fence == term.fence
        Script(client, "inspect", lambda *_: fails(error))
        if is_raised:
            with pytest.raises(BackendRejected):
                run(observation._twin._has_changed())
        else:
            assert run(observation._twin._has_changed()) is False
