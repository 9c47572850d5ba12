"""The same worker of the counter experiment over a pool of asyncpg, with the guard that is awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg

from leasehold.sql import guard_async
from verification.lab.counter_worker import TooLate, Worker

if TYPE_CHECKING:
    import leasehold

__all__ = ["AsyncpgWorker"]


class AsyncpgWorker(Worker):
    """Each update is a coroutine on a loop of the worker's own; it is stopped in the middle as the other one is."""

    def _open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool: Any = self._run(asyncpg.create_pool(self._job.url, min_size=1, max_size=2, loop=self._loop))

    def close(self) -> None:
        """Leave the database."""
        self._run(self._pool.close())
        self._loop.close()

    def _roll_back(self) -> None:
        """Done already: an error has left the block of its transaction."""

    def _run(self, work: Any) -> Any:
        async def wait() -> Any:
            return await work

        return self._loop.run_until_complete(wait())

    def _begin(self, connection: Any) -> Any:
        return connection.transaction(isolation=self._job.level.replace(" ", "_"))

    def _in_one_transaction(self, lease: leasehold.Lease, think: float) -> None:
        self._run(self._at_once(lease, think))

    def _in_two_transactions(self, lease: leasehold.Lease, think: float) -> None:
        self._run(self._in_two_steps(lease, think))

    async def _at_once(self, lease: leasehold.Lease, think: float) -> None:
        async with self._pool.acquire() as connection, self._begin(connection):
            n = await self._read_async(connection, lease)
            self._pause(think)
            await self._write_async(connection, lease, n + 1)

    async def _in_two_steps(self, lease: leasehold.Lease, think: float) -> None:
        async with self._pool.acquire() as connection, self._begin(connection):
            n = await self._read_async(connection, lease)
        self._pause(think)
        async with self._pool.acquire() as connection, self._begin(connection):
            if self._job.check == "guard":
                await guard_async(connection, lease)
            await self._write_async(connection, lease, n + 1)

    async def _read_async(self, connection: Any, lease: leasehold.Lease) -> int:
        if self._job.check == "guard":
            await guard_async(connection, lease)
        return int(await connection.fetchval("SELECT n FROM counter"))

    async def _write_async(self, connection: Any, lease: leasehold.Lease, n: int) -> None:
        if self._job.check == "guard":
            await connection.execute("UPDATE counter SET n = $1", n)
            return
        changed = await connection.execute("UPDATE counter SET n = $1, fence = $2 WHERE fence <= $2", n, lease.fence)
        if changed == "UPDATE 0":
            raise TooLate
