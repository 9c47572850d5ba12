"""What a process holds: `client.held()` and `leasehold.assert_held`, in both faces."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import leasehold

if TYPE_CHECKING:
    from leasehold.testing import ManualStore


def test_a_client_shows_its_leases_and_no_others(client: leasehold.Client, other: leasehold.Client) -> None:
    assert client.held() == ()
    with client.lock("b").hold() as lease, client.semaphore("a", 2).hold(), other.lock("c").hold():
        first, second = client.held()
        assert (first.name, first.mode) == ("a", leasehold.Mode.PERMIT)
        assert (second.name, second.fence, second.remaining) == ("b", lease.fence, lease.remaining())
    assert client.held() == ()


def test_a_lease_that_is_over_is_not_held(client: leasehold.Client, store: ManualStore) -> None:
    lost, late = client.lock("a").acquire(), client.lock("b", renew=False).acquire()
    store.lose(lost)
    assert [held.name for held in client.held()] == ["b"]
    store.clock.advance(60)
    assert client.held() == ()
    with pytest.raises(AssertionError, match="'b' is not held here"):
        leasehold.assert_held("b")
    assert late.lost


def test_the_thread_that_holds_a_lock_may_say_so_and_others_only_for_the_process(client: leasehold.Client) -> None:
    with pytest.raises(AssertionError, match="is not held here; call this inside"):
        leasehold.assert_held("x")
    with client.lock("x").hold(), ThreadPoolExecutor() as pool:
        leasehold.assert_held("x")
        assert pool.submit(leasehold.assert_held, "x", anywhere=True).result() is None
        with pytest.raises(AssertionError, match="held by another thread or task of this process"):
            pool.submit(leasehold.assert_held, "x").result()


def test_the_task_that_holds_a_lock_may_say_so_and_others_only_for_the_process(store: ManualStore) -> None:
    async def claim(**options: bool) -> None:
        leasehold.assert_held("x", **options)

    async def story() -> None:
        async with store.connect_async() as client, client.lock("x").hold() as lease:
            leasehold.assert_held("x")
            assert [held.fence for held in client.held()] == [lease.fence]
            await asyncio.create_task(claim(anywhere=True))
            with pytest.raises(AssertionError, match="another thread or task"):
                await asyncio.create_task(claim())
            with pytest.raises(AssertionError, match="another thread or task"):
                await asyncio.to_thread(leasehold.assert_held, "x")

    asyncio.run(story())


def test_leases_are_shown_in_order_of_their_names_and_of_fences_under_one_name(
    client: leasehold.Client, store: ManualStore
) -> None:
    taken = {}
    for name, kind in (("c", "pool"), ("a", "lock"), ("c", "pool"), ("b", "read")):
        match kind:
            case "pool":
                lock = client.semaphore(name, 2, ttl=40)
            case "lock":
                lock = client.lock(name, ttl=20, renew=False)
            case _:
                lock = client.rwlock(name, ttl=60).read
        lease = lock.acquire()
        taken[name, lease.fence] = lease
        store.clock.advance(1)
    found = client.held()
    assert [(held.name, held.fence) for held in found] == sorted(taken)
    assert [held.mode for held in found] == [
        leasehold.Mode.EXCLUSIVE,
        leasehold.Mode.SHARED,
        leasehold.Mode.PERMIT,
        leasehold.Mode.PERMIT,
    ]
    assert [held.remaining for held in found] == [taken[held.name, held.fence].remaining() for held in found]
    assert len({held.remaining for held in found}) == 4
    for lease in taken.values():
        lease.release()


def test_of_several_holders_of_one_name_each_may_say_that_it_is_held(client: leasehold.Client) -> None:
    pool = client.semaphore("x", 2)
    with ThreadPoolExecutor(1) as other_thread:
        theirs = other_thread.submit(pool.acquire).result()
        with pytest.raises(AssertionError, match="another thread or task"):
            leasehold.assert_held("x")
        with pool.hold():
            leasehold.assert_held("x")
            other_thread.submit(leasehold.assert_held, "x").result()
        with pytest.raises(AssertionError, match="another thread or task"):
            leasehold.assert_held("x")
        theirs.release()
        with pytest.raises(AssertionError, match="is not held here"):
            leasehold.assert_held("x", anywhere=True)


def test_a_client_shows_what_it_holds_on_every_event_loop(store: ManualStore) -> None:
    client = store.connect_async()
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    here = first.run_until_complete(client.lock("b").acquire())
    there = second.run_until_complete(client.lock("a").acquire())
    assert [(held.name, held.fence) for held in client.held()] == [("a", there.fence), ("b", here.fence)]
    leasehold.assert_held("a", anywhere=True)
    leasehold.assert_held("b", anywhere=True)
    with pytest.raises(AssertionError, match="another thread or task"):
        leasehold.assert_held("b")
    pool = client.semaphore("p", 2)
    early, late = second.run_until_complete(pool.acquire()), first.run_until_complete(pool.acquire())
    found = [(held.name, held.fence) for held in client.held()]
    assert found[2:] == [("p", early.fence), ("p", late.fence)], "by fence, on whatever loop"
    for loop, lease in ((first, here), (second, there), (second, early), (first, late)):
        assert loop.run_until_complete(lease.release())
    assert client.held() == ()
    for loop in (second, first):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_each_client_of_either_face_knows_its_own_thread_or_task(store: ManualStore, client: leasehold.Client) -> None:
    """Another thread or task has the same name from another client: that is asked about the thread or task it knows."""

    async def story(loops: leasehold.AsyncClient) -> None:
        async with loops.semaphore("x", 2).hold():
            leasehold.assert_held("x")

    loops = store.connect_async()
    with client.semaphore("x", 2).hold():
        asyncio.run(story(loops))
        leasehold.assert_held("x")
        loop = asyncio.new_event_loop()
        theirs = loop.run_until_complete(loops.semaphore("x", 2).acquire())
        leasehold.assert_held("x")
        loop.run_until_complete(theirs.release())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
