"""Clients of etcd that are cut off, killed, robbed of their keys, or many."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import events
from leasehold._face.client import AsyncClient
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._urls import find_store
from leasehold.testing.faults import Faults, FaultyBackend
from leasehold.values import Loss, LossReason
from tests.stores.etcd.etcd_process import Worker
from verification.lab.etcd import EtcdServer
from verification.lab.namespaces import Network
from verification.lab.process import wait_until
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from leasehold.spi import Backend, Runtime


class Patience:
    """Tells when waiters have looked around once more, a second after they came; then they only wait to be woken."""

    def __init__(self, client: leasehold.Client) -> None:
        self._seen = 0
        client.on_event(self._note)

    def _note(self, event: object) -> None:
        self._seen += isinstance(event, events.Waiting)

    def ends(self, number: int) -> None:
        wait_until(lambda: self._seen >= number, "nobody waits for long")


def claim_keys(server: EtcdServer) -> list[bytes]:
    return [key for key in server.stored_keys() if b"/q/" in key]


def _waits(client: leasehold.Client, number: int) -> bool:
    return waiting(client, "x") == number


def waiting(client: leasehold.Client, name: str) -> int:
    state = client.inspect(name)
    return 0 if state is None else len(state.waiting)


def test_holder_that_is_cut_off_silently_from_every_member_knows_before_the_next_one_holds() -> None:
    with Network(2) as network:
        members, apart = network.hosts
        server = EtcdServer(namespace=members)
        with server, Worker(server.url, "x", 3, apart.prefix) as holder:
            said, fence, _ = holder.line()
            assert said == "held"
            with leasehold.connect(server.url, ttl=3, namespace="faults") as client:
                assert client.lock("x").try_acquire() is None
                apart.cut()
                lease = client.lock("x").acquire(timeout=60)
                granted = time.monotonic()
                told, reason, instant = holder.line()
                assert (told, reason) == ("lost", "unconfirmed")
                assert float(instant) < granted
                assert lease.fence > int(fence)
                apart.heal()
                assert holder.end() in (["released", "False"], ["unreleased", "BackendUnavailable"])
                lease.check()
                lease.release()


def test_waiter_that_is_killed_in_the_middle_of_the_queue_is_passed_over(own_etcd: EtcdServer) -> None:
    with leasehold.connect(own_etcd.url, ttl=2, namespace="faults") as client:
        first = client.lock("x").acquire()
        with Worker(own_etcd.url, "x", 2) as dead:
            wait_until(lambda: waiting(client, "x") == 1, "the first waiter is not in the queue")
            with Worker(own_etcd.url, "x", 2) as live:
                wait_until(lambda: waiting(client, "x") == 2, "the second waiter is not in the queue")
                dead.kill()
                first.release()
                assert live.line()[0] == "held"
                assert live.end() == ["released", "True"]


class _Counting:
    """A store that counts what is asked of it."""

    def __init__(self, url: str, faults: Faults) -> None:
        self._store, self._faults = find_store(url), faults

    def open_backend(self, runtime: Runtime) -> Backend:
        return FaultyBackend(self._store.open_backend(runtime), runtime, self._faults)


def test_one_release_wakes_one_of_two_hundred_waiters(own_etcd: EtcdServer) -> None:
    async def crowd() -> tuple[int, int]:
        faults, go_on, served = Faults(), asyncio.Event(), []
        clients = [
            AsyncClient(_Counting(own_etcd.url, faults), AsyncioRuntime(), ttl=60, namespace="faults") for _ in range(4)
        ]

        async def take(client: AsyncClient) -> None:
            async with client.lock("x").hold() as lease:
                served.append(lease.fence)
                await go_on.wait()

        first = await clients[0].lock("x").acquire()
        tasks = [asyncio.create_task(take(clients[number % 4])) for number in range(200)]
        # Each asks once more after a second, to warn of the wait; then only every ten seconds.
        before = -1
        while before < 200 or before < faults.calls.count("turn"):
            before = faults.calls.count("turn")
            await asyncio.sleep(0.5)
        await first.release()
        while not served:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)  # whoever else was woken would ask now
        woken = faults.calls.count("turn") - before
        go_on.set()
        await asyncio.gather(*tasks)
        for client in clients:
            await client.close()
        assert served == sorted(served)
        return woken, len(served)

    woken, served = asyncio.run(crowd())
    assert woken == 1
    assert served == 200


def test_key_that_another_program_deleted_is_a_loss(own_etcd: EtcdServer) -> None:
    losses: list[Loss] = []
    with leasehold.connect(own_etcd.url, ttl=3) as client, pytest.raises(leasehold.LeaseLost):
        with client.lock("x").hold(on_lost=losses.append) as lease:
            (key,) = claim_keys(own_etcd)
            assert own_etcd.delete(key) == 1
            assert lease.lost.wait(60)
            assert lease.loss is not None
            assert lease.loss.reason is LossReason.TAKEN
    assert [loss.reason for loss in losses] == [LossReason.TAKEN]


def test_waiter_whose_lease_has_died_is_not_granted_but_joins_the_queue_again(own_etcd: EtcdServer) -> None:
    with leasehold.connect(own_etcd.url, ttl=60) as holder, leasehold.connect(own_etcd.url, ttl=30) as client:
        first = holder.lock("x").acquire()
        known = set(own_etcd.leases())
        got: list[leasehold.Lease] = []
        thread = threading.Thread(target=lambda: got.append(client.lock("x").acquire(timeout=90)))
        thread.start()
        wait_until(lambda: waiting(holder, "x") == 1, "the waiter is not in the queue")
        before = set(claim_keys(own_etcd))
        (lease,) = set(own_etcd.leases()) - known
        own_etcd.ask("/lease/revoke", {"ID": lease})
        assert len(claim_keys(own_etcd)) == 1
        first.release()
        thread.join(90)
        assert len(got) == 1
        assert got[0].remaining() > 0
        assert client.inspect("x") is not None
        assert before
        got[0].release()


def test_compaction_while_a_watch_is_away_does_not_leave_its_waiter_hanging(own_etcd: EtcdServer) -> None:
    """The release happened in a past that etcd has forgotten by the time the watch comes back."""
    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy, leasehold.connect(own_etcd.url, ttl=90) as holder:
        with leasehold.connect(f"etcd://127.0.0.1:{proxy.port}", ttl=90) as client:
            first = holder.lock("x").acquire()
            got: list[leasehold.Lease] = []
            thread = threading.Thread(target=lambda: got.append(client.lock("x").acquire(timeout=90)))
            patience = Patience(client)
            thread.start()
            patience.ends(1)
            wait_until(lambda: own_etcd.watchers() == 1, "the waiter does not watch")
            proxy.refuse()
            first.release()
            own_etcd.compact()
            proxy.accept()
            thread.join(8)  # it asks by itself only every ten seconds
            assert got, "the waiter was not woken"
            got[0].check()
            got[0].release()


def test_compaction_under_a_live_watch_changes_nothing(own_etcd: EtcdServer) -> None:
    with leasehold.connect(own_etcd.url, ttl=90) as holder, leasehold.connect(own_etcd.url, ttl=90) as client:
        first = holder.lock("x").acquire()
        got: list[leasehold.Lease] = []
        thread = threading.Thread(target=lambda: got.append(client.lock("x").acquire(timeout=90)))
        thread.start()
        wait_until(lambda: own_etcd.watchers() == 1, "the waiter does not watch")
        holder.lock("other").acquire().release()
        own_etcd.compact()
        first.release()
        thread.join(8)
        assert got
        got[0].release()


def test_permit_goes_on_to_a_waiter_when_the_first_holder_leaves_first(own_etcd: EtcdServer) -> None:
    with leasehold.connect(own_etcd.url, ttl=90) as client, leasehold.connect(own_etcd.url, ttl=90) as other:
        first, second = (client.semaphore("x", 2).acquire() for _ in range(2))
        got: list[leasehold.Lease] = []
        threads = []
        patience = Patience(other)
        for number in range(3):
            threads.append(threading.Thread(target=lambda: got.append(other.semaphore("x", 2).acquire(timeout=90))))
            threads[-1].start()
            wait_until(partial(_waits, client, number + 1), "a waiter is not in the queue")
        patience.ends(3)
        first.release()
        wait_until(lambda: len(got) == 1, "the first waiter was not woken", 8)
        second.release()
        wait_until(lambda: len(got) == 2, "the second waiter was not woken", 8)
        got[0].release()
        wait_until(lambda: len(got) == 3, "the third waiter was not woken", 8)
        for lease in got[1:]:
            lease.release()
        for thread in threads:
            thread.join(60)


def test_nothing_is_left_over(own_etcd: EtcdServer) -> None:
    threads = threading.active_count()
    clients = [leasehold.connect(own_etcd.url, ttl=2) for _ in range(3)]
    for number in range(30):
        clients[number % 3].lock(f"n{number}").acquire().release()
    held = clients[0].lock("x").acquire()
    for client in clients[1:]:
        with pytest.raises(leasehold.AcquireTimeout):
            client.lock("x").acquire(timeout=0.2)
    held.release()
    clients[0].lock("y", min_hold=1).acquire().release()
    for client in clients:
        client.close()
    wait_until(lambda: not own_etcd.stored_keys(), "keys are left over", 30)
    wait_until(lambda: not own_etcd.leases(), "leases are left over", 30)
    wait_until(lambda: own_etcd.watchers() == 0, "watches are left over", 30)
    wait_until(lambda: threading.active_count() <= threads, "threads are left over", 30)


def test_what_is_written_again_and_again_has_one_lease_for_its_value_and_one_for_its_fence(
    own_etcd: EtcdServer,
) -> None:
    with leasehold.connect(own_etcd.url, ttl=60) as client:
        cache = client.cache("prices")
        for number in range(4):
            cache.put("x", number)
        client.close()
    assert len(own_etcd.leases()) <= 3  # and that of the session that the lock was taken with


def test_one_session_serves_a_thousand_locks_of_one_ttl(own_etcd: EtcdServer) -> None:
    with leasehold.connect(own_etcd.url, ttl=60) as client:
        leases = [client.lock(f"n{number}").acquire() for number in range(300)]
        assert len(own_etcd.leases()) == 1
        leases[0].renew()
        for lease in leases:
            lease.check()
            lease.release()


def test_request_whose_answer_was_lost_is_found_again_and_not_made_twice(own_etcd: EtcdServer) -> None:
    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy:
        with leasehold.connect(f"etcd://127.0.0.1:{proxy.port}", ttl=20) as client:
            client.lock("warm").acquire().release()
            proxy.swallow(b"/q/leasehold:x/", then="silence")
            lease = client.lock("x").acquire(timeout=30)
            proxy.wait_done()
            assert len(claim_keys(own_etcd)) == 1
            state = client.inspect("x")
            assert state is not None
            assert [holding.fence for holding in state.holdings] == [lease.fence]
            assert lease.release() is True
            assert claim_keys(own_etcd) == []


def test_key_that_may_be_gone_is_not_deleted_under_its_next_owner(own_etcd: EtcdServer) -> None:
    """The answer to a release was lost; meanwhile another client sits under the same number."""
    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy:
        first = leasehold.connect(f"etcd://127.0.0.1:{proxy.port}", ttl=9)
        other = leasehold.connect(own_etcd.url, ttl=60)
        failures: list[object] = []
        first.on_event(lambda event: failures.extend([event] if isinstance(event, events.RenewalFailed) else []))
        with first, other:
            for client in (first, other):
                client._twin._current().backend._claims.suffixes._first = 7  # type: ignore[attr-defined]
            kept, lost = first.lock("kept").acquire(), first.lock("x").acquire()
            (key,) = [key for key in claim_keys(own_etcd) if b":x/" in key]
            proxy.swallow(key, then="silence")  # a cut would cancel it: etcd sends other frames before the answer
            releasing = threading.Thread(target=_release_somehow, args=(lost,))
            releasing.start()
            wait_until(lambda: key not in claim_keys(own_etcd), "the key was not deleted")
            proxy.refuse()
            releasing.join(60)
            mine = other.lock("x").acquire(timeout=10)
            assert claim_keys(own_etcd).count(key) == 1
            wait_until(lambda: failures, "no renewal failed")  # and with it the first try to clean up
            kept.check()
            proxy.accept()
            before = kept.remaining()
            wait_until(lambda: kept.remaining() > before, "the first client did not renew", 30)
            mine.renew()
            mine.release()
            kept.release()


def _release_somehow(lease: leasehold.Lease) -> None:
    try:
        lease.release()
    except leasehold.BackendError:
        return
