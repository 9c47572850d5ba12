"""A process that locks and writes over one pool of asyncpg; `test_asyncpg_processes` kills and stops it.

It prints a line per event: `held FENCE`, then, at each line that it is given, `written` or the name of the error.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg

import leasehold
from leasehold.sql import guard_async


def say(*words: object) -> None:
    """Print a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(url: str, ttl: float) -> None:
    """Hold, and write once for each line."""
    pool = await asyncpg.create_pool(url, min_size=1, max_size=2)
    async with leasehold.connect_async(pool, ttl=ttl) as client:
        lease = await client.lock("account").acquire(timeout=60)
        say("held", lease.fence)
        while await asyncio.to_thread(sys.stdin.readline):
            try:
                async with pool.acquire() as connection, connection.transaction():
                    await guard_async(connection, lease)
                    await connection.execute("UPDATE account SET n = n + 1")
                say("written")
            except leasehold.LeaseholdError as error:
                say(type(error).__name__)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
