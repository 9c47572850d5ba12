"""gRPC for threads: a call blocks the thread that makes it, and nothing ever suspends."""

from __future__ import annotations

import queue
import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

from leasehold.backends.etcd.trouble import CallFailed
from leasehold.backends.etcd.wire import CHANNEL_OPTIONS, http_request, load_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold.backends.etcd.wire import Metadata, Target

__all__ = ["BlockingWire"]


class BlockingWire:
    """See `Wire`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._grpc = load_grpc()
        self._channel: Any = None
        self._mutex = threading.RLock()
        self._methods: dict[str, Callable[..., Any]] = {}

    async def call(self, method: str, request: bytes, timeout: float, metadata: Metadata) -> bytes:
        """See `Wire`."""
        ask = self._methods.get(method) or self._method(method)
        try:
            answer: bytes = ask(request, timeout=timeout, metadata=metadata)
        except self._grpc.RpcError as error:
            raise CallFailed(error.code().name, error.details() or "") from None
        except ValueError as error:  # the channel was closed
            raise CallFailed("UNAVAILABLE", str(error)) from None
        return answer

    def stream(self, method: str, metadata: Metadata) -> BlockingStream:
        """See `Wire`."""
        return BlockingStream(self._open().stream_stream(method), metadata, self._grpc)

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
        with self._mutex:
            channel, self._channel = self._channel, None
            self._methods = {}
        if channel is not None:
            channel.close()

    def _method(self, method: str) -> Callable[..., Any]:
        ask: Callable[..., Any] = self._open().unary_unary(method)
        self._methods[method] = ask
        return ask

    def _open(self) -> Any:
        with self._mutex:
            if self._channel is None:
                self._channel = self._connect()
            return self._channel

    def _connect(self) -> Any:
        security = self._target.security
        if security is None:
            return self._grpc.insecure_channel(str(self._target), CHANNEL_OPTIONS)
        return self._grpc.secure_channel(str(self._target), security.credentials(self._grpc), CHANNEL_OPTIONS)


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
