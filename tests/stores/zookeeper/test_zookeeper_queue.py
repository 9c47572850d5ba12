"""Waiters in a queue at ZooKeeper: killed in the middle, very many, with permits; and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.zookeeper.session import Session
from leasehold._face.client import AsyncClient
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._urls import find_store
from leasehold.testing.contract.lab import Child
from leasehold.testing.faults import Faults, FaultyBackend
from tests.stores.zookeeper.zookeeper_support import LIMIT, claims_in
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from leasehold.spi import Backend, Runtime
    from verification.lab.zookeeper import Ensemble, ZooKeeperServer


class Counted:
    """A store whose calls are counted."""

    def __init__(self, url: str, faults: Faults) -> None:
        self._store = find_store(url)
        self._faults = faults

    def open_backend(self, runtime: Runtime) -> Backend:
        return FaultyBackend(self._store.open_backend(runtime), runtime, self._faults)


def waiting(client: leasehold.Client, name: str, number: int) -> None:
    def there() -> bool:
        state = client.inspect(name)
        return state is not None and len(state.waiting) == number

    wait_until(there, f"there are never {number} waiting", LIMIT)


def test_a_waiter_killed_in_the_middle_of_the_queue_does_not_hold_up_the_others(
    zookeeper_ensemble: Ensemble,
) -> None:
    url = zookeeper_ensemble.url("/middle")
    children: list[Child] = []
    with leasehold.connect(url, ttl=2) as client:
        holder = client.lock("x", ttl=10).acquire()  # long enough for four programs to start
        try:
            for number in range(4):
                children.append(Child(url, "leasehold", "x", "2"))
                waiting(client, "x", number + 1)
            children[1].signal(signal.SIGKILL)
            children[1].wait()
            children[2].signal(signal.SIGSTOP)  # this one lives on for the ensemble until its session is over
            holder.release()
            fences = [holder.fence]
            for child in (children[0], children[3]):
                held, fence = child.line().split()
                assert held == "held"
                fences.append(int(fence))
                child.say("release")
                assert child.line() == "released True"
            children[2].signal(signal.SIGCONT)
            held, fence = children[2].line().split()
            fences.append(int(fence))
            assert fences == sorted(fences)
            children[2].say("check")
            assert children[2].line() == "ok"
        finally:
            for child in children:
                child.signal(signal.SIGCONT)
                child.stop()


def test_one_release_wakes_a_constant_number_of_two_hundred_waiters(zookeeper_server: ZooKeeperServer) -> None:
    faults = Faults()
    number = 200
    order: list[int] = []

    async def take(client: AsyncClient, mine: int) -> int:
        async with client.lock("x").hold() as lease:
            order.append(mine)
            return lease.fence

    async def contend() -> list[int]:
        url = zookeeper_server.url("/herd")
        async with AsyncClient(Counted(url, faults), AsyncioRuntime(), ttl=120) as client:
            await (await client.lock("warm").acquire()).release()
            async with leasehold.connect_async(url, ttl=120) as other:
                first = await other.lock("x").acquire()
                tasks = []
                for mine in range(number):
                    tasks.append(asyncio.create_task(take(client, mine)))
                    while faults.calls.count("join") < mine + 2:
                        await asyncio.sleep(0.001)
                while (state := await other.inspect("x")) is None or len(state.waiting) < number:
                    await asyncio.sleep(0.01)
                before = faults.calls.count("turn")
                await first.release()
                fences = await asyncio.gather(*tasks)
                turns = faults.calls.count("turn") - before
                assert turns <= 4 * number, f"{turns} questions for {number} grants"
                return [first.fence, *fences]

    fences = asyncio.run(contend())
    assert fences == sorted(fences)
    assert order == list(range(number)), "first come, first served"


def test_a_release_wakes_only_the_next(zookeeper_server: ZooKeeperServer) -> None:
    faults = Faults()

    async def contend() -> int:
        url = zookeeper_server.url("/next")
        async with AsyncClient(Counted(url, faults), AsyncioRuntime(), ttl=120) as client:
            holder = await client.lock("x").acquire()
            tasks = [asyncio.create_task(client.lock("x").acquire()) for _ in range(50)]
            while (state := await client.inspect("x")) is None or len(state.waiting) < 50:
                await asyncio.sleep(0.01)
            await asyncio.sleep(1.5)  # after a second each waiter wakes once to report a long wait
            before = faults.calls.count("turn")
            await holder.release()
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.2)
            woken = faults.calls.count("turn") - before
            assert len(done) == 1
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await done.pop().result().release()
            return woken

    assert asyncio.run(contend()) < 25, "not all fifty: the next, the one behind it, and those that wake by themselves"


def test_a_permit_is_passed_on_whichever_holder_leaves_first(zookeeper_ensemble: Ensemble) -> None:
    url = zookeeper_ensemble.url("/permits")
    with leasehold.connect(url, ttl=60) as client:
        leases = [client.semaphore("x", 3).acquire() for _ in range(3)]
        got: list[leasehold.Lease] = []
        threads = []
        for number in range(3):
            taking = threading.Thread(target=lambda: got.append(client.semaphore("x", 3).acquire(timeout=LIMIT)))
            taking.start()
            threads.append(taking)
            waiting(client, "x", number + 1)
        for number, place in enumerate((0, 2, 1)):  # the first one first, then the last one, then the one between
            leases[place].release()
            wait_until(partial(_has, got, number + 1), "a permit is not passed on", LIMIT)
        for thread in threads:
            thread.join()
        fences = [lease.fence for lease in (*leases, *got)]
        assert len(set(fences)) == 6
        for lease in got:
            lease.release()
        assert client.inspect("x") is None


def _has(things: list[leasehold.Lease], number: int) -> bool:
    return len(things) == number


def test_waiters_that_give_up_leave_no_node_and_no_watch(zookeeper_server: ZooKeeperServer, eye: KazooClient) -> None:
    before = zookeeper_server.watches()
    with leasehold.connect(zookeeper_server.url("/gone"), ttl=30) as client:
        holder = client.lock("x").acquire()
        for _ in range(20):
            with pytest.raises(leasehold.AcquireTimeout):
                client.lock("x").acquire(timeout=0.02)
        assert len(list(claims_in(eye, "/gone"))) == 1
        assert zookeeper_server.watches() <= before + 3, "each waiter left a watch behind"
        holder.release()
        assert list(claims_in(eye, "/gone")) == []
    wait_until(lambda: zookeeper_server.watches() <= before, "watches are left over")


def test_a_closed_client_leaves_no_thread_no_session_and_no_node(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    threads, sessions = threading.active_count(), zookeeper_server.sessions()
    for _ in range(5):
        with leasehold.connect(zookeeper_server.url("/closed")) as client:
            for ttl in (5, 10, 20):
                with client.lock("x", ttl=ttl).hold():
                    pass
    wait_until(lambda: threading.active_count() <= threads, "threads are left over")
    wait_until(lambda: zookeeper_server.sessions() <= sessions, "sessions are left over")
    assert list(claims_in(eye, "/closed")) == []


def test_a_client_that_is_dropped_without_being_closed_leaves_nothing_either(
    zookeeper_server: ZooKeeperServer,
) -> None:
    threads, sessions = threading.active_count(), zookeeper_server.sessions()
    for _ in range(3):
        leasehold.connect(zookeeper_server.url("/dropped"), ttl=5).lock("x").acquire().release()
    gc.collect()
    wait_until(lambda: threading.active_count() <= threads, "threads are left over", LIMIT)
    wait_until(lambda: zookeeper_server.sessions() <= sessions, "sessions are left over", LIMIT)


def test_a_lease_that_is_held_when_its_client_closes_is_left_to_its_ttl(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    client = leasehold.connect(zookeeper_server.url("/left"), ttl=2)
    lease = client.lock("x").acquire()
    with pytest.warns(ResourceWarning):
        client.close()
    assert lease.lost.is_set()
    closed = time.monotonic()
    assert len(list(claims_in(eye, "/left"))) == 1, "close must not let the next one in"
    wait_until(lambda: not list(claims_in(eye, "/left")), "it is never given back", LIMIT)
    assert time.monotonic() - closed > 1.0


def test_the_parents_of_idle_locks_are_removed_and_fences_go_on_rising(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    with leasehold.connect(zookeeper_server.url("/idle"), ttl=10) as client:
        last = 0
        for _ in range(2):
            for number in range(20):
                lease = client.lock(f"n{number}").acquire()
                assert lease.fence > last
                last = lease.fence
                lease.release()
            wait_until(lambda: eye.get_children("/idle/locks") == [], "idle locks are never removed", LIMIT)


def test_a_program_that_hangs_loses_its_lock_although_its_session_lives(zookeeper_server: ZooKeeperServer) -> None:
    """The connection's own thread keeps the session alive; the lock must not be kept with it."""

    async def hang() -> None:
        async with leasehold.connect_async(zookeeper_server.url("/hang"), ttl=1) as client:
            lease = await client.lock("x").acquire()
            with leasehold.connect(zookeeper_server.url("/hang"), ttl=1) as other:
                heir = other.lock("x").acquire(timeout=LIMIT)  # blocks the event loop for as long as it takes
                assert heir.fence > lease.fence
                assert lease.lost.is_set()
                heir.release()

    asyncio.run(hang())


def test_a_raised_fence_applies_to_claims_that_wait_already(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    """They waited before so much else was written that a new claim would have a higher fence anyway."""
    url = zookeeper_server.url("/raised")
    with leasehold.connect(url, ttl=30) as client:
        held = client.lock("x").acquire()
        fence, got, threads = held.fence, [held], []
        for number in range(2):
            taking = threading.Thread(target=lambda: got.append(client.lock("x").acquire(timeout=LIMIT)))
            taking.start()
            threads.append(taking)
            waiting(client, "x", number + 1)
        for _ in range(30):
            client.lock("y").acquire().release()
        assert client.raise_fence("y", fence + 20, reason="no waiter there") >= fence + 20
        assert eye.exists("/raised/fence") is None, "nothing has to be written without a waiter"
        assert client.raise_fence("x", 1, reason="to see the lowest fence") >= fence, (
            "all who wait come behind the holder"
        )
        floor = client.raise_fence("x", fence + 20, reason="the resource has seen more")
        assert floor >= fence + 20
        held.renew()
        assert held.fence == fence
        for number in range(2):
            got[number].release()
            wait_until(partial(_has, got, number + 2), "the lock is not passed on", LIMIT)
        for thread in threads:
            thread.join()
        got[2].release()
        assert fence < floor < got[1].fence < got[2].fence


class Requests:
    """Counts what a process sends, by kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kinds: Counter[str] = Counter()
        send = Session.send

        def counted(session: Session, request: Any, **options: Any) -> Any:
            self.kinds[type(request).__name__] += 1
            return send(session, request, **options)

        monkeypatch.setattr(Session, "send", counted)


def test_a_crowd_of_one_session_lists_the_queue_no_more_often_the_longer_it_is(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, number, rounds = Requests(monkeypatch), 40, 3

    async def contend() -> list[int]:
        fences: list[int] = []
        async with leasehold.connect_async(zookeeper_server.url("/crowd"), ttl=120) as client:
            lock = client.lock("x")

            async def again_and_again() -> None:
                for _ in range(rounds):
                    async with lock.hold() as lease:
                        fences.append(lease.fence)

            first = await lock.acquire()
            tasks = [asyncio.create_task(again_and_again()) for _ in range(number)]
            while (state := await client.inspect("x")) is None or len(state.waiting) < number:
                await asyncio.sleep(0.01)
            requests.kinds.clear()
            await first.release()
            await asyncio.gather(*tasks)
        return fences

    fences = asyncio.run(contend())
    assert fences == sorted(set(fences))
    assert len(fences) == number * rounds
    assert requests.kinds["Create2"] == number * (rounds - 1)
    assert requests.kinds["GetChildren"] <= number / 4, "a claim behind another of its session needs no listing"


def test_claims_of_two_sessions_in_turns_keep_their_order(zookeeper_server: ZooKeeperServer) -> None:
    url, number = zookeeper_server.url("/turns"), 12
    order: list[int] = []

    async def take(client: AsyncClient, mine: int) -> int:
        async with client.lock("x").hold() as lease:
            order.append(mine)
            return lease.fence

    async def contend() -> list[int]:
        async with leasehold.connect_async(url, ttl=60) as one, leasehold.connect_async(url, ttl=60) as other:
            first = await one.lock("x").acquire()
            tasks = []
            for mine in range(number):  # runs of one, two and three claims of a session
                tasks.append(asyncio.create_task(take(other if mine in (1, 3, 4, 7, 8, 9) else one, mine)))
                while (state := await one.inspect("x")) is None or len(state.waiting) <= mine:
                    await asyncio.sleep(0.01)
            await first.release()
            return await asyncio.gather(*tasks)

    fences = asyncio.run(contend())
    assert fences == sorted(set(fences))
    assert order == list(range(number))


def test_a_claim_does_not_follow_one_whose_parent_was_made_anew(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    url = zookeeper_server.url("/anew")
    with leasehold.connect(url, ttl=60) as client, leasehold.connect(url, ttl=60) as stranger:
        first = client.lock("x").acquire()
        eye.delete("/anew/locks/leasehold%3Ax", recursive=True)  # by hand; numbers begin again
        held = stranger.lock("x").acquire()
        assert client.lock("x").try_acquire() is None, "its number is the one after that of `first`"
        assert first.release() is False
        held.release()
        client.lock("x").acquire(timeout=LIMIT).release()


def test_a_waiter_that_gives_up_does_not_let_in_the_one_behind_it(zookeeper_server: ZooKeeperServer) -> None:
    url = zookeeper_server.url("/gives-up")

    async def contend() -> None:
        async with leasehold.connect_async(url, ttl=60) as client:
            lock = client.lock("x")
            first = await lock.acquire()
            tasks = []
            for number in range(3):
                tasks.append(asyncio.create_task(lock.acquire()))
                while (state := await client.inspect("x")) is None or len(state.waiting) <= number:
                    await asyncio.sleep(0.01)
            tasks[1].cancel()
            while (state := await client.inspect("x")) is None or len(state.waiting) > 2:
                await asyncio.sleep(0.01)
            await client.inspect("y")  # answered behind every notification
            assert not tasks[0].done()
            assert not tasks[2].done()
            await first.release()
            for task in (tasks[0], tasks[2]):
                await (await task).release()

    asyncio.run(contend())
