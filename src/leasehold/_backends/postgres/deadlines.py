"""Giving up in time on what cannot be interrupted, or is slow to cancel: making a connection, or borrowing one."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leasehold._backends.postgres.wire import CHECK_EVERY

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

__all__ = ["in_time", "in_time_async"]


def in_time(
    make: Callable[[], T], undo: Callable[[T], object], seconds: float, is_over: Callable[[], bool] = lambda: False
) -> T:
    """Run on another thread what cannot be interrupted, and give up on it with `TimeoutError` if it takes too long.

    A result that comes after that is undone on the other thread.
    """
    work = _Work(make, undo)
    threading.Thread(target=work.run, name="leasehold postgres connect", daemon=True).start()
    ends = monotonic() + seconds
    try:
        while not work.done.wait(min(CHECK_EVERY, max(ends - monotonic(), 0.0))):
            if monotonic() >= ends or is_over():
                raise TimeoutError
    except BaseException:
        work.abandon()
        raise
    return work.result()


class _Work(Generic[T]):
    """A result that one thread makes for another, which may give up on it."""

    def __init__(self, make: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._make = make
        self._undo = undo
        self._outcome: list[T] = []  # popped exactly once, by the user of the result or by its undoing
        self._error: BaseException | None = None
        self._abandoned = False
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._outcome.append(self._make())
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            self._error = error
        self.done.set()
        if self._abandoned:
            self._undo_it()

    def abandon(self) -> None:
        self._abandoned = True
        if self.done.is_set():
            self._undo_it()

    def _undo_it(self) -> None:
        with suppress(IndexError):
            made = self._outcome.pop()
            with suppress(Exception):
                self._undo(made)

    def result(self) -> T:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._outcome.pop()


async def in_time_async(
    make: Callable[[], Awaitable[T]],
    undo: Callable[[T], Awaitable[object]],
    seconds: float,
    is_over: Callable[[], bool] = lambda: False,
) -> T:
    """Run in another task what may be slow to cancel, and give up on it with `TimeoutError` if it takes too long.

    A result that comes after that is undone in the other task.
    """
    import asyncio  # noqa: PLC0415 - a blocking program does not load it for this

    async def work() -> T:
        made = await make()
        if abandoned:
            await undo(made)
            raise TimeoutError
        return made

    abandoned: list[bool] = []
    loop = asyncio.get_running_loop()
    task, ends = loop.create_task(work()), loop.time() + seconds
    task.add_done_callback(_retrieve_error)
    try:
        while not task.done():
            if loop.time() >= ends or is_over():
                raise TimeoutError
            await asyncio.wait({task}, timeout=max(min(CHECK_EVERY, ends - loop.time()), 0.0))
    except GeneratorExit:
        abandoned.append(True)
        raise
    except BaseException:
        abandoned.append(True)
        if task.done() and not task.cancelled() and task.exception() is None:
            await undo(task.result())
        task.cancel()
        raise
    return task.result()


def _retrieve_error(task: Task[Any]) -> None:
    """Mark the error as seen: asyncio would log that of a task whose waiter has given up."""
    if not task.cancelled():
        task.exception()
