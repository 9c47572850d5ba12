"""What the tests of NATS share: a backend on either runtime, claims, and a bucket for each test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from leasehold._urls import find_store
from leasehold.values import Claim, Grant, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leasehold._backends.nats.backend import NatsBackend
    from leasehold.testing import contract

__all__ = ["backend_of", "claim", "fresh_bucket", "granted"]

_numbers = count(1)


def fresh_bucket() -> str:
    return f"test-{next(_numbers)}"


def claim(owner: str = "a", key: str = "ns:x", ttl: float = 30.0) -> Claim:
    return Claim(key, f"owner-{owner}", ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def granted(answer: object) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


@asynccontextmanager
async def backend_of(driver: contract.Driver, url: str) -> AsyncIterator[NatsBackend]:
    backend: Any = find_store(url).open_backend(driver.runtime())
    try:
        yield backend
    finally:
        await backend.close()
