"""gRPC for asyncio: a call suspends its task, and a cancelled task cancels its call.

Unless the call has to run to its end: etcd 3.5.0 to 3.5.4 panics when a transaction that only reads is cancelled while
it is carried out (etcd issue 14110), and waiters are cancelled all the time.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold.backends.etcd.channels import Channels
from leasehold.backends.etcd.forking import CALLS
from leasehold.backends.etcd.trouble import CallFailed
from leasehold.backends.etcd.wire import CHANNEL_OPTIONS, NO_ANSWER, http_request, load_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leasehold.backends.etcd.channels import Channel
    from leasehold.backends.etcd.wire import Metadata, Target
    from leasehold.spi import Runtime

__all__ = ["AsyncioWire"]

WHOLE = (
    30.0  # seconds that a request gets which is not cancelled, however long its caller waits; a deadline cancels, too
)
LAST_CALLS = 1.0  # seconds that such requests get when the client is closed


class AsyncioWire:
    """See `Wire`."""

    def __init__(self, target: Target, runtime: Runtime) -> None:
        self._target = target
        self._grpc = load_grpc()
        self._aio: Any = None
        self._channels = Channels(self._connect, runtime.now, nullcontext())
        self._closed = False
        self._whole: dict[Any, asyncio.Future[None]] = {}  # gRPC cancels a call that nobody refers to

    async def call(
        self, method: str, request: bytes, timeout: float, metadata: Metadata, *, to_its_end: bool = False
    ) -> bytes:
        """See `Wire`."""
        channel = self._channels.current()
        try:
            given = max(timeout, WHOLE) if to_its_end else timeout
            call = channel.method(method)(request, timeout=given, metadata=metadata)
            if to_its_end and not await self._is_done(call, timeout):
                await self._no_answer(channel, timeout)
                raise CallFailed(NO_ANSWER, "Deadline Exceeded")
            answer: bytes = await call
        except self._grpc.RpcError as error:
            code = error.code().name
            if code == NO_ANSWER:
                await self._no_answer(channel, timeout)
            raise CallFailed(code, error.details() or "") from None
        except asyncio.CancelledError:
            if self._closed and not _is_cancelled():  # gRPC cancels its calls when their channel is closed
                raise CallFailed("CANCELLED", "the channel was closed") from None
            raise
        except self._aio.UsageError as error:  # the channel was closed
            raise CallFailed("UNAVAILABLE", f"Cannot invoke RPC: {error}") from None
        self._channels.answered(channel)
        return answer

    async def _no_answer(self, channel: Channel, timeout: float) -> None:
        dead = self._channels.unanswered(channel, timeout)
        if dead is not None:
            await dead.close()

    async def _is_done(self, call: Any, timeout: float) -> bool:
        """Wait for the end of a call without ending it; False if it takes longer, or the client is closed."""
        loop = asyncio.get_running_loop()
        self._whole[call] = waiter = loop.create_future()
        call.add_done_callback(partial(_wake, self._whole))
        timer = loop.call_later(timeout, _finish, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
        done: bool = call.done()
        return done

    def stream(self, method: str, metadata: Metadata) -> AsyncioStream:
        """See `Wire`."""
        return AsyncioStream(self._channels.current().grpc.stream_stream(method), metadata, self._grpc)

    async def date(self, timeout: float) -> str:
        """See `Wire`."""
        target = self._target
        context = None if target.security is None else target.security.context()
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
        """See `Wire`."""
        self._closed = True
        for waiter in list(self._whole.values()):
            _finish(waiter)
        for channel in self._channels.hang_up():
            await channel.close(LAST_CALLS if self._whole else None)

    def _connect(self) -> Any:
        from grpc import aio  # noqa: PLC0415 - only where asyncio is used

        self._aio = aio
        CALLS.uses_asyncio = True
        security = self._target.security
        if security is None:
            return aio.insecure_channel(str(self._target), options=CHANNEL_OPTIONS)
        return aio.secure_channel(str(self._target), security.credentials(self._grpc), options=CHANNEL_OPTIONS)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _wake(calls: dict[Any, asyncio.Future[None]], call: Any) -> None:
    _finish(calls.pop(call))


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class AsyncioStream:
    """See `Stream`."""

    def __init__(self, method: Any, metadata: Metadata, grpc: Any) -> None:
        self._grpc = grpc
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = False
        self._call = method(self._outgoing(), metadata=metadata)

    async def _outgoing(self) -> AsyncIterator[bytes]:
        while (request := await self._requests.get()) is not None:
            yield request

    def send(self, request: bytes) -> None:
        """See `Stream`."""
        self._requests.put_nowait(request)

    async def receive(self) -> bytes | None:
        """See `Stream`."""
        try:
            answer = await self._call.read()
        except self._grpc.RpcError as error:
            raise CallFailed(error.code().name, error.details() or "") from None
        except asyncio.CancelledError:
            if self._closed:  # it is the call that was cancelled, and not who reads from it
                return None
            raise
        return answer if isinstance(answer, bytes) else None  # the other is gRPC's mark for the end

    def close(self) -> None:
        """See `Stream`."""
        self._closed = True
        self._requests.put_nowait(None)
        self._call.cancel()
