"""Questions to the store that may be repeated, put until they are answered or time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leasehold._core.backoff import OUTAGE
from leasehold.errors import BackendError, BackendRejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._core.open_client import OpenClient

__all__ = ["ask"]

A = TypeVar("A")


async def ask(opened: OpenClient, name: str, question: Callable[[], Awaitable[A]], until: float) -> A:
    """The answer. Only for questions that may be asked twice: an unknown outcome is asked about again."""
    runtime, failures = opened.runtime, 0
    while True:
        try:
            return await question()
        except BackendError as error:
            error.name = name
            pause = OUTAGE.delay(failures, runtime.random())
            failures += 1
            if isinstance(error, BackendRejected) or runtime.now() + pause >= until:
                raise
        await runtime.sleep(pause)
