"""gRPC for asyncio: a call suspends its task, and a cancelled task cancels its call."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from leasehold.backends.etcd.channels import Channels
from leasehold.backends.etcd.trouble import CallFailed
from leasehold.backends.etcd.wire import CHANNEL_OPTIONS, NO_ANSWER, http_request, load_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leasehold.backends.etcd.wire import Metadata, Target
    from leasehold.spi import Runtime

__all__ = ["AsyncioWire"]


class AsyncioWire:
    """See `Wire`."""

    def __init__(self, target: Target, runtime: Runtime) -> None:
        self._target = target
        self._grpc = load_grpc()
        self._aio: Any = None
        self._channels = Channels(self._connect, runtime.now, nullcontext())

    async def call(self, method: str, request: bytes, timeout: float, metadata: Metadata) -> bytes:
        """See `Wire`."""
        channel = self._channels.current()
        try:
            answer: bytes = await channel.method(method)(request, timeout=timeout, metadata=metadata)
        except self._grpc.RpcError as error:
            code = error.code().name
            if code == NO_ANSWER and (dead := self._channels.unanswered(channel, timeout)) is not None:
                await dead.close()
            raise CallFailed(code, error.details() or "") from None
        except self._aio.UsageError as error:  # the channel was closed
            raise CallFailed("UNAVAILABLE", f"Cannot invoke RPC: {error}") from None
        self._channels.answered(channel)
        return answer

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
        for channel in self._channels.hang_up():
            await channel.close()

    def _connect(self) -> Any:
        from grpc import aio  # noqa: PLC0415 - only where asyncio is used

        self._aio = aio
        security = self._target.security
        if security is None:
            return aio.insecure_channel(str(self._target), options=CHANNEL_OPTIONS)
        return aio.secure_channel(str(self._target), security.credentials(self._grpc), options=CHANNEL_OPTIONS)


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
