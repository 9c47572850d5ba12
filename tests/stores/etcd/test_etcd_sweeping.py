"""Keys that are not needed any more are deleted, and no other; claims left by an outage cost a client no place."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.etcd import transactions
from leasehold._backends.etcd.connection import until
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._urls import find_store
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode, Refusal
from verification.lab.etcd import EtcdServer
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leasehold._face.client import AsyncClient


def play(history: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(history, 120))


def backend_of(client: AsyncClient) -> Any:
    return client._current().backend


def claim_by(runtime: AsyncioRuntime, ttl: float = 30.0) -> Claim:
    return Claim("ns:x", runtime.owner(), ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def test_clean_up_of_one_claim_does_not_delete_the_next_one_under_its_suffix(own_etcd: EtcdServer) -> None:
    """It did: two holders, on a healthy own_etcd, when a release met a waiter of the same client that looked around."""

    async def history() -> None:
        first, second = (leasehold.connect_async(own_etcd.url, ttl=10) for _ in range(2))
        end = time.monotonic() + 3
        overlaps: list[int] = []

        async def use(name: str) -> None:
            while time.monotonic() < end:
                lease = await first.lock(name).try_acquire()
                if lease is None:
                    continue
                other = await second.lock(name).try_acquire()
                if other is not None:
                    overlaps.append(other.fence)
                    await other.release()
                assert await lease.release() is True

        async def look_around() -> None:
            while time.monotonic() < end:
                await (await first.lock("hot").acquire(timeout=30)).release()

        async with first, second:
            await asyncio.gather(*(use(f"n{number}") for number in range(12)), *(look_around() for _ in range(6)))
        assert not overlaps

    play(history())


def test_claim_whose_deletion_is_under_way_is_never_granted(own_etcd: EtcdServer) -> None:
    """Its key may still be there when it looks."""

    async def history() -> None:
        runtime = AsyncioRuntime()
        backend: Any = find_store(own_etcd.url).open_backend(runtime)
        held, place = await backend.join(claim_by(runtime)), await backend.join(claim_by(runtime))
        assert isinstance(held, Grant)
        assert isinstance(place, Place)
        local = backend._claims.by_owner[place.claim.owner]
        local.give_up(runtime.now())
        assert local.start_deleting(runtime.now())
        assert await backend.release(held)
        assert isinstance(await backend.turn(place), Refusal)
        end = time.monotonic() + 30
        while own_etcd.stored_keys():  # a sweep that began before may have it, and be under way
            assert time.monotonic() < end, "its key was never deleted"
            with until(math.inf):  # as a verb does
                await backend._claims.sessions.sweep(local.session)
            await asyncio.sleep(0.02)
        await backend.close()

    play(history())


def test_renewal_of_a_claim_whose_deletion_is_under_way_is_a_loss(own_etcd: EtcdServer) -> None:
    async def history() -> None:
        runtime = AsyncioRuntime()
        backend: Any = find_store(own_etcd.url).open_backend(runtime)
        held, other = await backend.join(claim_by(runtime)), claim_by(runtime)
        local = backend._claims.by_owner[held.claim.owner]
        local.give_up(runtime.now())
        assert local.start_deleting(runtime.now())
        (answer,) = await backend.renew([held])
        assert isinstance(answer, leasehold.Loss)
        assert isinstance(await backend.join(other), Grant), "and its key went before the session was kept alive"
        await backend.close()

    play(history())


def test_permit_whose_key_vanishes_before_it_is_marked_is_not_granted(
    own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was: three holders of two permits."""
    mark_granted = transactions.mark_granted
    lost: list[bytes] = []

    def lose_the_key(key: bytes, created: int, value: bytes) -> bytes:
        if not lost:
            own_etcd.delete(key)
        lost.append(key)
        return mark_granted(key, created, value)

    async def history() -> None:
        first, second = (leasehold.connect_async(own_etcd.url, ttl=10) for _ in range(2))
        async with first, second:
            held = [await first.semaphore("x", 2).acquire() for _ in range(2)]
            waiter = asyncio.create_task(second.semaphore("x", 2).acquire(timeout=30))
            while (state := await first.inspect("x")) is None or not state.waiting:
                await asyncio.sleep(0.02)
            monkeypatch.setattr(transactions, "mark_granted", lose_the_key)
            await held[0].release()
            lease = await waiter
            assert lost
            assert await first.semaphore("x", 2).try_acquire() is None
            assert await lease.release()
            await held[1].release()

    play(history())


def test_failures_of_an_outage_do_not_use_up_the_places_of_a_client(own_etcd: EtcdServer) -> None:
    """They did: after 64 of them in all, the client never joined the queue of that name again."""

    async def history(proxy: FaultProxy) -> None:
        url = f"etcd://127.0.0.1:{proxy.port}"
        client, other = leasehold.connect_async(url, ttl=5), leasehold.connect_async(own_etcd.url, ttl=5)

        async def fail() -> None:
            with pytest.raises(leasehold.LeaseholdError):
                await client.lock("x").acquire(timeout=3)

        async with client, other:
            held = await other.lock("x").acquire()
            failing = [asyncio.create_task(fail()) for _ in range(66)]
            while len(own_etcd.stored_keys()) < 65:
                await asyncio.sleep(0.02)
            await asyncio.sleep(1.5)
            proxy.refuse()
            await asyncio.gather(*failing)
            proxy.accept()
            await held.release()
            assert await (await client.lock("x").acquire(timeout=30)).release()

    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy:
        play(history(proxy))


def test_no_claim_overtakes_the_local_queue(own_etcd: EtcdServer) -> None:
    async def history() -> None:
        order: list[str] = []
        async with leasehold.connect_async(own_etcd.url, ttl=30) as client:

            async def take(name: str) -> None:
                async with client.lock("x").hold():
                    order.append(name)

            held = await client.lock("x").acquire()
            tasks = [asyncio.create_task(take("in store")) for _ in range(64)]
            while len(own_etcd.stored_keys()) < 65:
                await asyncio.sleep(0.02)
            early = [asyncio.create_task(take(f"early {number}")) for number in range(5)]
            local_queue = backend_of(client)._claims.local_queue
            while len(local_queue._signals) < 5:
                await asyncio.sleep(0.02)
            await asyncio.sleep(1.5)  # then they only wait to be woken
            await held.release()
            late = [asyncio.create_task(take(f"late {number}")) for number in range(3)]
            await asyncio.gather(*tasks, *early, *late)
        inside = [name for name in order if name != "in store"]
        assert inside == [f"early {number}" for number in range(5)] + [f"late {number}" for number in range(3)]

    play(history())


def test_records_that_are_contended_leave_one_lease_for_each_key(own_etcd: EtcdServer) -> None:
    """A lost race left a lease of a day behind."""

    async def history() -> None:
        runtime = AsyncioRuntime()
        backends: list[Any] = [find_store(own_etcd.url).open_backend(runtime) for _ in range(2)]
        for number in range(10):
            reads = [backends[place % 2].read(f"ns:r{number}", 100 + place) for place in range(4)]
            await asyncio.gather(*reads, return_exceptions=True)
        for backend in backends:
            await backend.close()
        assert len(own_etcd.leases()) == len(own_etcd.stored_keys()) == 10

    play(history())
