"""gRPC for asyncio: a call suspends its task, and a cancelled task cancels its call.

Unless the call has to run to its end: etcd 3.5.0 to 3.5.4 panics when a transaction that only reads is cancelled while
it is carried out (etcd issue 14110), and waiters are cancelled all the time.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.pool import GRACE, ChannelPool
from leasehold._backends.etcd.wire import (
    CALLS,
    CHANNEL_OPTIONS,
    NO_ANSWER,
    channel_credentials,
    http_request,
    load_grpc,
    ssl_context,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leasehold._backends.etcd.pool import Channel
    from leasehold._backends.etcd.wire import Metadata, Target
    from leasehold.spi import Runtime

__all__ = ["AsyncioWire"]

UNCANCELLED = 30.0  # seconds that an uncancelled request gets, however long its caller waits: a deadline cancels too
LAST_CALLS = 1.0  # seconds that such requests get when the client is closed


class AsyncioWire:
    """One member, over gRPC for asyncio."""

    def __init__(self, target: Target, runtime: Runtime, longest_call: float) -> None:
        self._target = target
        self._now = runtime.now
        self._grpc = load_grpc(prepared=False)
        self._aio: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the channels
        self._pool = ChannelPool(self._connect, runtime.now, nullcontext(), max(GRACE, 2 * longest_call))
        self._closed = False
        self._uncancelled: dict[Any, asyncio.Future[None]] = {}  # gRPC cancels a call without references to it

    async def call(
        self, method: str, request: bytes, timeout: float, metadata: Metadata, *, uncancelled: bool = False
    ) -> bytes:
        channel = self._pool.current or self._pool.open()
        if self._loop is not None and self._loop.is_closed():
            raise CallFailed("UNAVAILABLE", "Cannot invoke RPC: its event loop is closed")
        try:
            given = max(timeout, UNCANCELLED) if uncancelled else timeout
            call = (channel.methods.get(method) or channel.method(method))(request, timeout=given, metadata=metadata)
            if uncancelled and not await self._is_done(call, timeout):
                await self._timed_out(channel, timeout)
                raise CallFailed(NO_ANSWER, "Deadline Exceeded")
            response: bytes = await call
        except self._grpc.RpcError as error:
            code = error.code().name
            if code == NO_ANSWER:
                await self._timed_out(channel, timeout)
            raise CallFailed(code, error.details() or "") from None
        except asyncio.CancelledError:
            if self._closed and not _is_cancelled():  # gRPC cancels its calls when their channel is closed
                raise CallFailed("CANCELLED", "the channel was closed") from None
            raise
        except self._aio.UsageError as error:  # the channel was closed
            raise CallFailed("UNAVAILABLE", f"Cannot invoke RPC: {error}") from None
        channel.answered_at = self._now()
        return response

    async def _timed_out(self, channel: Channel, timeout: float) -> None:
        dead = self._pool.timed_out(channel, timeout)
        if dead is not None:
            await dead.close()

    async def _is_done(self, call: Any, timeout: float) -> bool:
        """Wait for the end of a call without ending it; False if it takes longer, or the client is closed."""
        loop = asyncio.get_running_loop()
        self._uncancelled[call] = waiter = loop.create_future()
        call.add_done_callback(partial(_wake, self._uncancelled))
        timer = loop.call_later(timeout, _finish, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
        done: bool = call.done()
        return done

    def stream(self, method: str, metadata: Metadata) -> AsyncioStream:
        channel = self._pool.current or self._pool.open()
        return AsyncioStream(channel.grpc.stream_stream(method), metadata, self._grpc)

    async def date(self, timeout: float) -> str:
        target = self._target
        context = None if target.tls is None else ssl_context(target.tls)
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(target.host, target.http_port, ssl=context)
            try:
                writer.write(http_request(target))
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as ended:
                head = ended.partial
            finally:
                writer.close()
        return head.decode("latin-1")

    async def close(self) -> None:
        self._closed = True
        for waiter in list(self._uncancelled.values()):
            _finish(waiter)
        for channel in self._pool.take_all():
            await channel.close(LAST_CALLS if self._uncancelled else None)

    def _connect(self) -> Any:
        from grpc import aio  # noqa: PLC0415 - only where asyncio is used

        self._aio, self._loop = aio, asyncio.get_running_loop()
        CALLS.uses_asyncio = True
        tls = self._target.tls
        if tls is None:
            return aio.insecure_channel(str(self._target), options=CHANNEL_OPTIONS)
        return aio.secure_channel(str(self._target), channel_credentials(tls, self._grpc), options=CHANNEL_OPTIONS)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _wake(calls: dict[Any, asyncio.Future[None]], call: Any) -> None:
    _finish(calls.pop(call))


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class AsyncioStream:
    """A stream; the caller of `receive` reads the responses."""

    def __init__(self, method: Any, metadata: Metadata, grpc: Any) -> None:
        self._grpc = grpc
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = False
        self._call = method(self._outgoing(), metadata=metadata)

    async def _outgoing(self) -> AsyncIterator[bytes]:
        while (request := await self._requests.get()) is not None:
            yield request

    def send(self, request: bytes) -> None:
        self._requests.put_nowait(request)

    async def receive(self) -> bytes | None:
        try:
            response = await self._call.read()
        except self._grpc.RpcError as error:
            raise CallFailed(error.code().name, error.details() or "") from None
        except asyncio.CancelledError:
            if self._closed:  # the call was cancelled, and not the task that reads from it
                return None
            raise
        return response if isinstance(response, bytes) else None  # anything else is gRPC's mark for the end

    def close(self) -> None:
        self._closed = True
        self._requests.put_nowait(None)
        self._call.cancel()
