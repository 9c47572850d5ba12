"""A process whose first uses of Redis are a blocking client in a thread and an asyncio client in another, at once."""

from __future__ import annotations

import asyncio
import sys
import threading

import leasehold

URL = sys.argv[1]
together = threading.Barrier(2)
failures: list[BaseException] = []


def blocking() -> None:
    """With the blocking face."""
    with leasehold.connect(URL) as client:
        together.wait()
        client.lock("blocking").acquire(timeout=30).release()


def on_a_loop() -> None:
    """With asyncio."""

    async def main() -> None:
        async with leasehold.connect_async(URL) as client:
            together.wait()
            await (await client.lock("asyncio").acquire(timeout=30)).release()

    asyncio.run(main())


def attempt(work: object) -> None:
    """Keep what it raises."""
    try:
        work()  # type: ignore[operator]
    except BaseException as error:
        failures.append(error)


threads = [threading.Thread(target=attempt, args=(work,)) for work in (blocking, on_a_loop)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert "redis" in sys.modules
sys.exit("; ".join(f"{type(error).__name__}: {error}" for error in failures) or 0)
