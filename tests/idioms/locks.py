"""The idioms of locks and leases, for type checkers: mypy and pyright must accept every line.

What must be refused carries an ignore with its rule; a checker that does not refuse it reports the ignore as unused.
"""

from __future__ import annotations

import asyncio

import leasehold
from leasehold import CURRENT, AsyncLease, Lease

client = leasehold.connect("memory://idioms")
lock = client.lock("invoice", ttl="30s")


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
    with lock:  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportGeneralTypeIssues]
        show()
    lock.release()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


@client.locked("order:{order}", timeout=0)
def ship(order: int, lease: Lease = CURRENT) -> str:
    return f"{order} with fence {lease.fence}"


shipped: str = ship(7)
ship("7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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
        async with other.lock("invoice"):  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportGeneralTypeIssues]
            show()
