"""What a lease says of itself and what its errors carry, at the edges of its time; and orders without a name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import AcquireTimeout, BackendUnavailable, ConfigurationError, LeaseLost, OutcomeUnknown
from leasehold._core.validity import margin
from leasehold.testing import ManualStore
from leasehold.values import LossReason, Mode
from tests.unit.test_core_time import Script, fails
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold import Client, Loss

SURE = 30.0 - margin(30.0)


@pytest.mark.parametrize(
    ("after", "need", "outcome"),
    [
        (0.0, 0, None),
        (0.0, SURE - 0.001, None),
        (0.0, SURE, ConfigurationError),
        (0.0, 31, ConfigurationError),
        (10.0, 15, None),
        (10.0, 20, LossReason.EXPIRED),
        (10.0, 25, LossReason.EXPIRED),
        (SURE - 0.001, 0, None),
        (SURE, 0, LossReason.EXPIRED),
        (SURE, 5, LossReason.EXPIRED),
        (40.0, 0, LossReason.EXPIRED),
        (40.0, 31, LossReason.EXPIRED),
    ],
)
def test_a_check_passes_exactly_while_more_is_left_than_is_needed(
    client: Client, store: ManualStore, after: float, need: float, outcome: Any
) -> None:
    lease = client.lock("x", renew=False).acquire()
    store.clock.advance(after)
    if outcome is None:
        lease.check(need)
    else:
        with pytest.raises((LeaseLost, ConfigurationError)) as raised:
            lease.check(need)
        assert (raised.value.name, raised.value.backend) == ("x", client.store)
        if isinstance(raised.value, LeaseLost):
            assert (raised.value.reason, raised.value.completed) == (outcome, False)
        else:
            assert outcome is ConfigurationError
    lease.release()


@pytest.mark.parametrize(("after", "left"), [(0.0, SURE), (10.0, SURE - 10), (SURE, 0.0), (50.0, 0.0)])
def test_what_remains_is_never_negative(client: Client, store: ManualStore, after: float, left: float) -> None:
    lease = client.lock("x", renew=False).acquire()
    store.clock.advance(after)
    assert lease.remaining() == pytest.approx(left)
    assert (lease.loss is None) is (left > 0)
    lease.release()
    assert lease.remaining() == 0


def test_a_check_after_the_release_raises_though_nothing_was_lost(client: Client) -> None:
    lease = client.lock("x").acquire()
    lease.release()
    with pytest.raises(LeaseLost) as raised:
        lease.check()
    assert raised.value.reason is LossReason.RELEASED
    assert lease.loss is None


# Several locks


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_the_loss_of_one_of_several_locks_is_the_loss_of_all_and_is_told_of(
    client: Client, store: ManualStore, gone: str
) -> None:
    told: list[Loss] = []
    with pytest.raises(LeaseLost), client.lock_all(["a", "b", "c"]).hold(on_lost=told.append) as leases:
        assert not leases.lost.is_set()
        store.lose(leases.leases[gone])
        eventually(lambda: told)
        assert leases.loss is told[0]
        assert leases.lost.is_set()
        leases.check()
    for name in "abc":
        assert client.inspect(name) is None


def test_an_async_block_under_several_locks_is_cancelled_by_the_loss_of_one(store: ManualStore) -> None:
    async def program() -> None:
        async with store.connect_async() as client, client.lock_all(["a", "b", "c"]).hold() as leases:
            store.lose(leases.leases["b"])
            await asyncio.sleep(60)

    with pytest.raises(LeaseLost) as raised:
        asyncio.run(program())
    assert not raised.value.completed


def test_a_block_of_several_locks_that_has_ended_hears_of_no_loss(client: Client) -> None:
    leases = client.lock_all(["a", "b"]).acquire()
    with leases:
        watchers = [lease._twin._tenure.watchers for lease in leases.leases.values()]
        assert [len(each) for each in watchers] == [1, 1]
    assert [len(each) for each in watchers] == [0, 0]


# Orders of an operator who does not say who he is


def test_an_order_without_a_name_is_given_by_the_process(client: Client) -> None:
    seen: list[Any] = []
    lease = client.lock("x").acquire()
    us = str(lease.holder)
    client.once("job", slot="monday").run(lambda: None)
    client.on_event(seen.append)
    client.break_lock("x", fence=lease.fence, reason="stuck", now=True)
    client.raise_fence("x", lease.fence + 5, reason="restored")
    client.pause("y", reason="moving")
    client.resume("y")
    assert client.forget("job", slot="monday", reason="again")
    orders = [event for event in seen if hasattr(event, "by")]
    assert len(orders) == 5
    assert {event.by for event in orders} == {us}
    lease.release()


@pytest.mark.parametrize("reason", ["", None, "x" * 257])
@pytest.mark.parametrize(
    "order",
    [
        lambda client, reason: client.break_lock("x", fence=1, reason=reason),
        lambda client, reason: client.raise_fence("x", 5, reason=reason),
        lambda client, reason: client.pause("x", reason=reason),
        lambda client, reason: client.forget("x", slot="s", reason=reason),
    ],
    ids=["break", "raise", "pause", "forget"],
)
def test_an_order_needs_a_reason(client: Client, order: Callable[[Any, Any], Any], reason: Any) -> None:
    with pytest.raises(ConfigurationError):
        order(client, reason)


@pytest.mark.parametrize("fence", [0, -1, 1.0, True, "1", 2**63])
def test_a_fence_is_a_whole_number_that_can_be_one(client: Client, fence: Any) -> None:
    for order in (client.break_lock, lambda name, fence, reason: client.raise_fence(name, fence, reason=reason)):
        with pytest.raises(ConfigurationError):
            order("x", fence=fence, reason="why")


@pytest.mark.parametrize(("failures", "raised"), [(1, None), (2, BackendUnavailable)])
@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("no answer")], ids=["away", "silent"])
def test_a_look_is_sent_twice_and_is_never_in_doubt(
    client: Client, error: Exception, failures: int, raised: type[Exception] | None
) -> None:
    left = [error] * failures
    Script(client, "inspect", lambda key, until, plain: fails(left.pop()) if left else None)
    if raised is None:
        assert client.inspect("x") is None
    else:
        with pytest.raises(raised) as seen:
            client.inspect("x")
        assert type(seen.value) is BackendUnavailable


def test_the_highest_fence_is_that_of_the_store_or_of_the_name_whichever_is_higher(client: Client) -> None:
    with client.lock("x").hold() as lease:
        fence = lease.fence
    assert client.highest_fence() > fence
    client.raise_fence("x", fence + 1000, reason="restored")
    assert client.highest_fence("x") >= fence + 1000
    assert client.highest_fence("x") > client.highest_fence("other") or client.highest_fence("other") >= fence


# Locks as they are described


def test_how_each_kind_of_lock_is_claimed(client: Client) -> None:
    twin = client._twin
    specs = [
        twin.lock("x")._spec,
        twin.semaphore("x", 3)._spec,
        twin.rwlock("x").read._spec,
        twin.rwlock("x").write._spec,
    ]
    assert [(spec.mode, spec.capacity) for spec in specs] == [
        (Mode.EXCLUSIVE, 1),
        (Mode.PERMIT, 3),
        (Mode.SHARED, 1),
        (Mode.EXCLUSIVE, 1),
    ]


def test_a_decorator_without_its_parentheses_is_refused_where_it_is_written_in_both_faces(store: ManualStore) -> None:
    def function() -> None: ...

    faces: list[Any] = [store.connect(), store.connect_async()]
    for face in faces:
        with pytest.raises(ConfigurationError):
            face.locked(function)


def test_a_lock_that_is_busy_is_an_error_of_its_own_store(client: Client, other: Client) -> None:
    with other.lock("x").hold(), pytest.raises(AcquireTimeout) as raised:
        client.lock("x").acquire(0)
    assert (raised.value.name, raised.value.backend) == ("x", client.store)
