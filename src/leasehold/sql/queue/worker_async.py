"""The worker of a queue on an event loop: its loops are tasks, and end with the one that runs them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold.errors import ConfigurationError
from leasehold.sql.queue.transactions import open_source
from leasehold.sql.queue.worker import Worker, handler_is_async, stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from leasehold.spi import Runtime
    from leasehold.sql.queue.transactions import TransactionSource
    from leasehold.sql.queue.worker import Plan, Worked

__all__ = ["run_tasks"]


class _Tasks:
    def __init__(self, handler: Callable[..., Any], database: Any) -> None:
        self.runtime: Runtime = AsyncioRuntime()
        self._handler = handler
        self._database = database
        self._tasks: set[asyncio.Task[None]] = set()

    def transactions(self) -> TransactionSource:
        return open_source(self._database, is_async=True)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def handle(self, *arguments: object) -> None:
        await self._handler(*arguments)

    async def cancel(self) -> None:
        """End what is left; each loop gives its job back."""
        left = list(self._tasks)
        for task in left:
            if "keeper" not in task.get_name():  # it ends by itself
                task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def run_tasks(
    plan: Plan, database: Any, signals: Iterable[int] | None, stop: Callable[[Callable[[], None]], object] | None
) -> Worked:
    """Run a worker on this loop until it is over."""
    if not handler_is_async(plan.handler):
        raise ConfigurationError(
            "the handler of run_async() must be an async def: another one would stop the event loop"
        )
    tasks = _Tasks(plan.handler, database)
    worker = Worker(plan, tasks)
    loop = asyncio.get_running_loop()
    if stop is not None:
        stop(worker.stop.set)
    try:
        # A signal handler alone would not wake a loop that waits for its sockets.
        with stopping(lambda: loop.call_soon_threadsafe(worker.stop.set), signals):
            return await worker.run()
    finally:
        worker.stop.set()
        worker.over.set()
        await tasks.cancel()
