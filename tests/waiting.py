"""What tests of every folder share: waiting for a condition, signals of a process, two leases of one lock in turn."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import leasehold
    from leasehold.testing import contract

__all__ = ["LIMIT", "catches", "eventually", "two_in_turn", "two_in_turn_async", "until"]

LIMIT = 60.0  # generous: a machine that is busy is slow, and a condition that holds ends the wait at once


def eventually(condition: Callable[[], object], what: str = "it did not happen", limit: float = LIMIT) -> None:
    """Block until the condition holds."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


async def until(driver: contract.Driver, condition: Callable[[], object], what: str = "it did not happen") -> None:
    """Wait for a condition that others bring about, on threads or on this loop."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what
        await driver.breathe()


def two_in_turn(lock: leasehold.Lock) -> tuple[leasehold.Lease, leasehold.Lease]:
    """The lease of a holder that is late, and that of the holder after it; both are released."""
    first = lock.acquire()
    first.release()
    second = lock.acquire()
    second.release()
    return first, second


async def two_in_turn_async(lock: leasehold.AsyncLock) -> tuple[leasehold.AsyncLease, leasehold.AsyncLease]:
    """The same on an event loop."""
    first = await lock.acquire()
    await first.release()
    second = await lock.acquire()
    await second.release()
    return first, second


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal; ours takes itself away when it was called."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
