"""Calls of the store that are safe to repeat, repeated until there is an answer or time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leasehold._core.backoff import OUTAGE
from leasehold.errors import BackendError, BackendRejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._core.open_client import OpenClient

__all__ = ["retry_until"]

A = TypeVar("A")


async def retry_until(until: float, opened: OpenClient, name: str, call: Callable[[], Awaitable[A]]) -> A:
    """The answer to a call. After an unknown outcome it is sent again, so it must be safe to repeat."""
    runtime, failures = opened.runtime, 0
    while True:
        try:
            return await call()
        except BackendError as error:
            error.name = name
            pause = OUTAGE.delay(failures, runtime.random())
            failures += 1
            if isinstance(error, BackendRejected) or runtime.now() + pause >= until:
                raise
        await runtime.sleep(pause)
