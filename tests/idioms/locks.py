"""The idioms of locks and leases, for type checkers: mypy and pyright must accept every line.

What must be refused carries an ignore with its rule; a checker that does not refuse it reports the ignore as unused.
"""

from __future__ import annotations

import asyncio
from typing import assert_type

import leasehold
from leasehold import CURRENT, AsyncLease, Lease

client = leasehold.connect("memory://idioms")
lock = client.lock("invoice", ttl="30s")
in_order = client.lock("auction", fair="strict")


def show(*_: object) -> None:
    """What a program does with it."""


with lock.hold(timeout=5) as lease:
    lease.check(need=1)
    fence: int = lease.fence
    if lease.lost:
        show(lease.loss)

taken = lock.try_acquire()
if taken is not None:
    released: bool = taken.release()
taken.release()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]

answer: Lease | str = lock.acquire(timeout=0, on_busy=lambda busy: f"busy: {busy.holder}")

with client.lock_all(["a", "b"]).hold() as leases:
    show(leases.fences["a"])


def never() -> None:
    """What is refused at run time with a sentence is refused here as well."""
    with lock:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        show()
    lock.release()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


@client.locked("order:{order}", timeout=0)
def ship(order: int, lease: Lease = CURRENT) -> str:
    return f"{order} with fence {lease.fence}"


shipped: str = ship(7)
ship("7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def every_kind() -> None:
    assert_type(lock, leasehold.Lock)
    assert_type(lock.hold(on_lost=show), leasehold.Hold[Lease])
    assert_type(lock.acquire(timeout="5s").lost, leasehold.Lost)
    assert_type(client.semaphore("pool", 3).try_acquire(), Lease | None)
    pair = client.rwlock("config")
    assert_type(pair, leasehold.RWLock)
    assert_type(pair.read, leasehold.Lock)
    several = client.lock_all(["a", "b"], reason="transfer")
    assert_type(several, leasehold.LockSet)
    assert_type(several.acquire(), leasehold.LeaseSet)
    mutex = lock.as_mutex()
    assert_type(mutex, leasehold.Mutex)
    with mutex:
        show(mutex.locked())
    lock.acquire(blocking=False)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    client.lock("x", timeout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    lock.locked()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


async def every_kind_async(other: leasehold.AsyncClient) -> None:
    own = other.lock("invoice")
    assert_type(own, leasehold.AsyncLock)
    assert_type(own.hold(), leasehold.AsyncHold[AsyncLease])
    assert_type((await own.acquire()).lost, leasehold.AsyncLost)
    assert_type(other.rwlock("config"), leasehold.AsyncRWLock)
    several = other.lock_all(["a", "b"])
    assert_type(several, leasehold.AsyncLockSet)
    assert_type(await several.acquire(), leasehold.AsyncLeaseSet)
    assert_type(own.as_mutex(), leasehold.AsyncMutex)


async def story() -> None:
    async with leasehold.connect_async("memory://idioms") as other:

        @other.locked("order:{order}")
        async def deliver(order: int, lease: AsyncLease = CURRENT) -> bytes:
            return f"{order} {lease.fence}".encode()

        task = asyncio.create_task(deliver(7))
        parcel: bytes = await task
        async with other.lock("invoice").hold() as held:
            if not held.lost:
                show(parcel)
        async with other.lock("invoice"):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
            show()
