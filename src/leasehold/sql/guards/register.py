"""The register of `leasehold.fencing.asgi` in a database: the same table as the guard's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.sql.guards.guard import guard_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

__all__ = ["DatabaseRegister"]


class DatabaseRegister:
    """Remembers the highest fence of each resource in the table of the guard.

    `begin` opens a transaction, as the `begin` of SQLAlchemy's `AsyncEngine` does. If the handler guards its own
    transaction with the same resource, this register is not needed.
    """

    def __init__(self, begin: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._begin = begin

    async def raise_fence(self, resource: str, fence: int) -> None:
        """Let it pass and remember it, or raise `StaleFence`."""
        async with self._begin() as tx:
            await guard_async(tx, fence, resource=resource)
