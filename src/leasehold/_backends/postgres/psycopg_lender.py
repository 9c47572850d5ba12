"""Pools of `psycopg_pool`, and engines that use psycopg."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

import psycopg

from leasehold._backends.postgres.connection import Connection, open_connection
from leasehold._backends.postgres.deadlines import in_time, in_time_async
from leasehold._backends.postgres.lender import EngineLender, OneLoop, label_of, require_process
from leasehold._backends.postgres.wire import wire_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.spi import Runtime

__all__ = ["PsycopgEngine", "PsycopgPool"]


class _OverPsycopg:
    """What both have in common: connections of psycopg."""

    label: str
    driver_errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def connection(
        self, driver_connection: psycopg.BaseConnection[Any], runtime: Runtime, timeout: float
    ) -> Connection | None:
        try:
            return Connection(driver_connection, wire_for(runtime), runtime, self.label, timeout)
        except psycopg.Error:  # closed
            return None

    async def another(
        self, like: psycopg.BaseConnection[Any], runtime: Runtime, timeout: float, is_over: Callable[[], bool]
    ) -> Connection | None:
        parameters: dict[str, object] = {**like.info.get_parameters(), "password": like.info.password}
        return await open_connection(wire_for(runtime), parameters, runtime, self.label, timeout, is_over=is_over)


class PsycopgPool(_OverPsycopg):
    """`psycopg_pool.ConnectionPool` and `AsyncConnectionPool`. Its connections do not survive a fork."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._process = os.getpid()
        self._one_loop = OneLoop()
        self.blocking = not inspect.iscoroutinefunction(pool.getconn)
        known = psycopg.conninfo.conninfo_to_dict(pool.conninfo) if isinstance(pool.conninfo, str) else {}
        given = pool.kwargs if isinstance(pool.kwargs, dict) else {}
        self.label = label_of({**known, **given})

    async def borrow(self, seconds: float) -> tuple[Any, Any]:
        def lend() -> Any:
            return self._pool.getconn(timeout=seconds)

        if getattr(self._pool, "_check", None) is None:  # then it keeps to the timeout
            connection = lend() if self.blocking else await lend()
        elif self.blocking:
            connection = in_time(lend, self._pool.putconn, seconds)
        else:
            connection = await in_time_async(lend, self._pool.putconn, seconds)
        return connection, connection

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        if broken:
            loan.pgconn.finish()
        returned = self._pool.putconn(loan)
        if not self.blocking:
            await returned

    def check(self) -> None:
        require_process(self._process)
        if not self.blocking:
            self._one_loop.require(self._pool)


class PsycopgEngine(_OverPsycopg, EngineLender):
    """An engine that uses psycopg, plain or async."""
