"""Pools of asyncpg, and engines that use it. A program that has only asyncpg needs no other driver."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.asyncpg_connection import AsyncpgConnection
from leasehold._backends.postgres.deadlines import in_time_async
from leasehold._backends.postgres.lender import EngineLender, OneLoop, label_of, require_process
from leasehold.errors import BackendUnavailable, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.spi import Runtime

__all__ = ["AsyncpgEngine", "AsyncpgPool"]

logger = logging.getLogger("leasehold.postgres")


class _OverAsyncpg:
    """What both have in common: connections of asyncpg."""

    label: str
    driver_errors: tuple[type[Exception], ...] = (asyncpg.PostgresError,)

    def connection(self, driver_connection: Any, runtime: Runtime, timeout: float) -> AsyncpgConnection | None:
        if driver_connection.is_closed():
            return None
        return AsyncpgConnection(driver_connection, runtime, self.label, timeout)

    async def another(
        self,
        like: Any,  # noqa: ARG002 - the pool or engine makes it as it has made that one
        runtime: Runtime,
        timeout: float,
        is_over: Callable[[], bool],
    ) -> AsyncpgConnection | None:
        make = self._maker()
        if make is None:
            return None
        try:
            made = await in_time_async(make, _terminate, timeout, is_over)
        except asyncpg.PostgresError as error:
            raise errors.connect_failed(error, self.label) from None
        except (asyncpg.InterfaceError, OSError) as error:
            why = str(error) or "not in time"
            raise BackendUnavailable(f"{self.label} cannot be reached: {why}", backend=self.label) from None
        return AsyncpgConnection(made, runtime, self.label, timeout)

    def _maker(self) -> Callable[[], Awaitable[Any]] | None:
        """What makes a connection as those of the pool are made, outside of it."""
        raise NotImplementedError


class AsyncpgPool(_OverAsyncpg):
    """`asyncpg.Pool`. Its connections do not survive a fork."""

    blocking = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._process = os.getpid()
        self._one_loop = OneLoop()
        given = dict(getattr(pool, "_connect_kwargs", {}))
        self.label = label_of({**_facts_of(*getattr(pool, "_connect_args", ())), **_renamed(given)})

    async def borrow(self, seconds: float) -> tuple[Any, Any]:
        try:
            loan = await self._pool.acquire(timeout=seconds)
        except TimeoutError:
            raise TimeoutError(f"none was free within {seconds:.1f} s") from None
        except asyncpg.InterfaceError as error:
            if "not initialized" in str(error):
                raise ConfigurationError(
                    "this pool of asyncpg was made and not opened: write pool = await asyncpg.create_pool(...)"
                ) from None
            raise
        return loan, getattr(loan, "_con", loan)  # the proxy is a new one for each loan; behind it is the session

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        """The pool resets the session, in one more round trip; if that fails, it replaces the connection."""
        try:
            if broken:
                loan.terminate()
            await self._pool.release(loan)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            logger.debug("a connection could not be given back as it was: %s", error)

    def check(self) -> None:
        require_process(self._process)
        self._one_loop.require(self._pool)

    def _maker(self) -> Callable[[], Awaitable[Any]] | None:
        # Not public, but the only way that knows all of it: a `connect` and an `init` of the user's own, a password
        # that changes. Without it waiters poll.
        return getattr(self._pool, "_get_new_connection", None)


class AsyncpgEngine(_OverAsyncpg, EngineLender):
    """An async engine for `postgresql+asyncpg`."""

    def _maker(self) -> Callable[[], Awaitable[Any]] | None:
        async def make() -> Any:
            lent = await self._engine.raw_connection()
            driver_connection = lent.driver_connection
            lent.detach()  # the pool may make another one in its place
            return driver_connection

        return make


async def _terminate(late: Any) -> None:
    late.terminate()


def _facts_of(dsn: object = None, *_: object) -> dict[str, Any]:
    """What messages may show of a DSN: no password, and nothing of the part behind the question mark."""
    if not isinstance(dsn, str):
        return {}
    parts = urlsplit(dsn)
    return {"user": parts.username, "host": parts.netloc.rpartition("@")[2], "dbname": parts.path.lstrip("/")}


def _renamed(given: dict[str, Any]) -> dict[str, Any]:
    facts = {"user": given.get("user"), "host": given.get("host"), "port": given.get("port")}
    return {name: value for name, value in {**facts, "dbname": given.get("database")}.items() if value}
