"""Connecting, and waiting for a socket: on a thread, and on an event loop. All that the two kinds of wire differ in."""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from leasehold.backends.postgres.line import Line, Wire
    from leasehold.spi import Runtime

T = TypeVar("T")

__all__ = ["AsyncioWire", "BlockingWire", "in_time", "in_time_async", "wire_for"]

LOOK_AGAIN = 0.1  # how often one that waits for a connection asks whether it is still of use


def wire_for(runtime: Runtime) -> Wire:
    """The wire that a runtime can wait on."""
    return BlockingWire() if runtime.blocking else AsyncioWire()


class BlockingWire:
    """Blocks the calling thread; a signal handler that raises interrupts it."""

    async def connect(
        self, parameters: dict[str, Any], seconds: float, is_over: Callable[[], bool]
    ) -> psycopg.BaseConnection[Any]:
        """See `Wire`. psycopg waits for two seconds at the least, and for as long as a name takes to be resolved."""

        def make() -> psycopg.BaseConnection[Any]:
            return psycopg.Connection.connect(**parameters, autocommit=True, prepare_threshold=None)

        return in_time(make, lambda made: made.pgconn.finish(), seconds, is_over)

    async def readable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        return _poll(line, seconds)

    async def writable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(line.pgconn.socket, select.POLLOUT)
            return bool(poller.poll(max(seconds, 0.0) * 1000))
        return bool(select.select([], [line.pgconn.socket], [], max(seconds, 0.0))[1])

    async def watch(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        looking_on = line.view()
        looking_on.poller = None  # one of its own: a poller cannot be used by two threads
        try:
            return _poll(looking_on, seconds)
        except psycopg.Error:  # closed meanwhile
            return True

    def is_readable(self, line: Line) -> bool:
        """See `Wire`."""
        return _poll(line, 0.0)

    def interrupt(self, line: Line) -> None:
        """See `Wire`."""
        _end(line)


class AsyncioWire:
    """Suspends the calling task."""

    async def connect(
        self, parameters: dict[str, Any], seconds: float, is_over: Callable[[], bool]
    ) -> psycopg.BaseConnection[Any]:
        """See `Wire`."""

        def make() -> Awaitable[psycopg.BaseConnection[Any]]:
            return psycopg.AsyncConnection.connect(**parameters, autocommit=True, prepare_threshold=None)

        return await in_time_async(make, _finish, seconds, is_over)

    async def readable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        loop = _loop()
        return await _ready(loop, line.pgconn.socket, seconds, loop.add_reader, loop.remove_reader)

    async def writable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        loop = _loop()
        return await _ready(loop, line.pgconn.socket, seconds, loop.add_writer, loop.remove_writer)

    async def watch(self, line: Line, seconds: float) -> bool:
        """See `Wire`. A loop knows one reader of a descriptor only, so this is another one of the same socket."""
        try:
            loop, descriptor = _loop(), os.dup(line.pgconn.socket)
        except psycopg.Error:  # closed
            return True
        try:
            return await _ready(loop, descriptor, seconds, loop.add_reader, loop.remove_reader)
        finally:
            os.close(descriptor)

    def is_readable(self, line: Line) -> bool:
        """See `Wire`."""
        return _poll(line, 0.0)

    def interrupt(self, line: Line) -> None:
        """See `Wire`."""
        _end(line)


def in_time(
    make: Callable[[], T], undo: Callable[[T], object], seconds: float, is_over: Callable[[], bool] = lambda: False
) -> T:
    """Do on another thread what cannot be interrupted, and go on without it if it takes too long.

    What is made too late is undone there.
    """
    work = _Work(make, undo)
    threading.Thread(target=work.run, name="leasehold postgres connect", daemon=True).start()
    ends = monotonic() + seconds
    try:
        while not work.done.wait(min(LOOK_AGAIN, max(ends - monotonic(), 0.0))):
            if monotonic() >= ends or is_over():
                raise TimeoutError
    except BaseException:
        work.abandon()
        raise
    return work.result()


class _Work(Generic[T]):
    """What a thread makes for another one, which may go away without it."""

    def __init__(self, make: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._make = make
        self._undo = undo
        self._outcome: list[T] = []  # taken out by exactly one
        self._error: BaseException | None = None
        self._abandoned = False
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._outcome.append(self._make())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
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
    """Do in another task what may take long to be cancelled, and go on without it if it takes too long.

    What is made too late is undone there.
    """
    from asyncio import wait  # noqa: PLC0415 - a blocking program does not load it here

    async def work() -> T:
        made = await make()
        if abandoned:
            await undo(made)
            raise TimeoutError
        return made

    abandoned: list[bool] = []
    loop = _loop()
    task, ends = loop.create_task(work()), loop.time() + seconds
    task.add_done_callback(_take_note)
    try:
        while not task.done():
            if loop.time() >= ends or is_over():
                raise TimeoutError
            await wait({task}, timeout=max(min(LOOK_AGAIN, ends - loop.time()), 0.0))
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


def _take_note(task: asyncio.Task[Any]) -> None:
    """Nobody may be left to look at its error."""
    if not task.cancelled():
        task.exception()


async def _finish(late: psycopg.BaseConnection[Any]) -> None:
    late.pgconn.finish()


def _poll(line: Line, seconds: float) -> bool:
    """Block until there is something to read, or the time is over."""
    if not hasattr(select, "poll"):
        return bool(select.select([line.pgconn.socket], [], [], max(seconds, 0.0))[0])
    if line.poller is None:
        line.poller = select.poll()
        line.poller.register(line.pgconn.socket, select.POLLIN)
    return bool(line.poller.poll(max(seconds, 0.0) * 1000))


def _end(line: Line) -> None:
    """End the stream, so that whoever waits for it finds out. The descriptor stays with whoever closes the line."""
    with suppress(OSError), socket.socket(fileno=os.dup(line.pgconn.socket)) as stream:
        stream.shutdown(socket.SHUT_RDWR)


async def _ready(
    loop: asyncio.AbstractEventLoop,
    descriptor: int,
    seconds: float,
    watch: Callable[..., object],
    forget: Callable[[int], object],
) -> bool:
    ready: asyncio.Future[bool] = loop.create_future()
    timer = loop.call_later(max(seconds, 0.0), _settle, ready, False)  # noqa: FBT003 - called by position
    watch(descriptor, _settle, ready, True)  # noqa: FBT003
    try:
        return await ready
    finally:
        forget(descriptor)
        timer.cancel()


def _settle(future: asyncio.Future[bool], value: bool) -> None:  # noqa: FBT001
    if not future.done():
        future.set_result(value)


def _loop() -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop  # noqa: PLC0415 - a blocking program does not load it here

    return get_running_loop()
