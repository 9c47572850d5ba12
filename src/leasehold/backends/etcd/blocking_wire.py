"""gRPC for threads: a call blocks the thread that makes it, and nothing ever suspends."""

from __future__ import annotations

import queue
import socket
import threading
import weakref
from _thread import start_new_thread
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold.backends.etcd.channels import Channels
from leasehold.backends.etcd.forking import CALLS
from leasehold.backends.etcd.trouble import CallFailed
from leasehold.backends.etcd.wire import CHANNEL_OPTIONS, NO_ANSWER, http_request, load_grpc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.backends.etcd.wire import Metadata, Target
    from leasehold.spi import Runtime

__all__ = ["BlockingWire"]


class BlockingWire:
    """See `Wire`."""

    def __init__(self, target: Target, runtime: Runtime) -> None:
        self._target = target
        self._grpc = load_grpc()
        self._channels = Channels(partial(_connect, self._grpc, target), runtime.now, threading.RLock())
        weakref.finalize(self, _close_dropped, self._channels).atexit = False  # for a client that nobody closed

    async def call(
        self,
        method: str,
        request: bytes,
        timeout: float,
        metadata: Metadata,
        *,
        to_its_end: bool = False,  # noqa: ARG002 - a thread cannot be cancelled; and gRPC's futures need a Condition
    ) -> bytes:
        """See `Wire`."""
        with CALLS:
            channel = self._channels.current()
            try:
                answer: bytes = channel.method(method)(request, timeout=timeout, metadata=metadata)
            except self._grpc.RpcError as error:
                code = error.code().name
                if code == NO_ANSWER and (dead := self._channels.unanswered(channel, timeout)) is not None:
                    dead.close()
                raise CallFailed(code, error.details() or "") from None
            except ValueError as error:  # the channel was closed
                raise CallFailed("UNAVAILABLE", str(error)) from None
        self._channels.answered(channel)
        return answer

    def stream(self, method: str, metadata: Metadata) -> BlockingStream:
        """See `Wire`."""
        with CALLS:
            return BlockingStream(self._channels.current().grpc.stream_stream(method), metadata, self._grpc)

    async def date(self, timeout: float) -> str:
        """See `Wire`."""
        target = self._target
        with closing(socket.create_connection((target.host, target.http_port), timeout)) as plain:
            line = plain
            if target.security is not None:
                line = target.security.context().wrap_socket(plain, server_hostname=target.host)
            line.settimeout(timeout)
            line.sendall(http_request(target))
            head = b""
            while b"\r\n\r\n" not in head and (part := line.recv(4096)):
                head += part
            if line is not plain:
                line.close()
        return head.decode("latin-1")

    async def close(self) -> None:
        """See `Wire`."""
        with CALLS:
            _close_all(self._channels.hang_up())


def _connect(grpc: Any, target: Target) -> Any:
    security = target.security
    if security is None:
        return grpc.insecure_channel(str(target), CHANNEL_OPTIONS)
    return grpc.secure_channel(str(target), security.credentials(grpc), CHANNEL_OPTIONS)


def _close_dropped(channels: Channels) -> None:
    """Close what a dropped client has left: gRPC keeps the sockets of a channel until it is closed.

    A finalizer runs wherever the garbage collector does, perhaps inside gRPC, whose locks may be taken then: so the
    channels are closed by a thread of their own.
    """
    dropped = channels.dropped()
    if dropped:
        with suppress(RuntimeError):  # the interpreter ends, and the sockets with it
            start_new_thread(_close_all, (dropped,))


def _close_all(channels: list[Any]) -> None:
    for channel in channels:
        channel.close()


class BlockingStream:
    """See `Stream`. gRPC takes the requests on a thread of its own; answers are read by whoever receives."""

    def __init__(self, method: Any, metadata: Metadata, grpc: Any) -> None:
        self._grpc = grpc
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = False
        self._call = method(self._outgoing(), metadata=metadata)

    def _outgoing(self) -> Iterator[bytes]:
        while (request := self._requests.get()) is not None:
            yield request

    def send(self, request: bytes) -> None:
        """See `Stream`."""
        self._requests.put(request)

    async def receive(self) -> bytes | None:
        """See `Stream`."""
        try:
            return next(self._call, None)
        except self._grpc.RpcError as error:
            if self._closed:
                return None
            raise CallFailed(error.code().name, error.details() or "") from None

    def close(self) -> None:
        """See `Stream`."""
        self._closed = True
        self._requests.put(None)
        self._call.cancel()
