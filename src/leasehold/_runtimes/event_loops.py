"""Which event loop runs, and how to get to know that it ends.

No call announces the end of a loop. But before a loop is closed in order, its asynchronous generators are closed, on
the loop: `asyncio.run`, `asyncio.Runner` and what is built on them await `shutdown_asyncgens`. So a generator that
never ends by itself is what runs `before_shutdown`.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import _get_running_loop as running_loop  # one of its public names; raises nothing, unlike the other
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

__all__ = ["before_shutdown", "forget_tasks", "running_loop"]

NO_LOOP = "an async client needs a running asyncio event loop: await this inside asyncio.run(), or use connect()"
UNDER_TRIO = (
    "the async client runs on asyncio, and trio runs this task: call the blocking client, of connect(), in a thread "
    "with trio.to_thread.run_sync(), or run anyio with its asyncio backend"
)


def _is_trio() -> bool:
    lowlevel: Any = getattr(sys.modules.get("trio"), "lowlevel", None)
    if lowlevel is None:
        return False
    try:
        lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def before_shutdown(close: Callable[[], Coroutine[Any, Any, None]]) -> object:
    """Have the running loop await `close` when it is shut down; for as long as the result is referred to."""
    loop = running_loop()
    if loop is None:
        raise ConfigurationError(UNDER_TRIO if _is_trio() else NO_LOOP)
    if getattr(loop, "_asyncgens_shutdown_called", False):
        return None  # too late: the loop would only warn of a new generator
    generator = _until_shutdown(close)
    with suppress(StopIteration):
        generator.__anext__().send(None)  # the loop knows a generator from its first step on
    return generator


async def _until_shutdown(close: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()


def forget_tasks(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[Any]]:
    """The tasks of ours that a closed loop has left; they may be collected without an error in the log for each."""
    left = {task for task in asyncio.all_tasks(loop) if task.get_name().startswith("leasehold")}
    for task in left:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio does in `gather`
    return left
