"""gRPC for threads: a call blocks its thread, and no coroutine here ever suspends."""

from __future__ import annotations

import queue
import socket
import threading
import weakref
from _thread import start_new_thread
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.pool import GRACE, ChannelPool
from leasehold._backends.etcd.wire import (
    CALLS,
    CHANNEL_OPTIONS,
    NO_ANSWER,
    channel_credentials,
    come_before_grpc,
    http_request,
    load_grpc,
    ssl_context,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._backends.etcd.wire import Metadata, Target
    from leasehold.spi import Runtime

__all__ = ["BlockingWire"]


class BlockingWire:
    """One member, over the blocking gRPC."""

    def __init__(self, target: Target, runtime: Runtime, longest_call: float) -> None:
        self._target = target
        self._now = runtime.now
        self._grpc = load_grpc()
        connect = partial(_connect, self._grpc, target)
        self._pool = ChannelPool(connect, runtime.now, threading.RLock(), max(GRACE, 2 * longest_call))
        weakref.finalize(self, _close_dropped, self._pool).atexit = False  # for a client that is dropped unclosed

    async def call(
        self,
        method: str,
        request: bytes,
        timeout: float,
        metadata: Metadata,
        *,
        uncancelled: bool = False,  # noqa: ARG002 - a thread cannot be cancelled; and gRPC's futures need a Condition
    ) -> bytes:
        with CALLS:
            channel = self._pool.current or self._pool.open()
            try:
                call = channel.methods.get(method) or channel.method(method)
                response: bytes = call(request, timeout=timeout, metadata=metadata)
            except self._grpc.RpcError as error:
                code = error.code().name
                if code == NO_ANSWER and (dead := self._pool.timed_out(channel, timeout)) is not None:
                    dead.close()
                raise CallFailed(code, error.details() or "") from None
            except ValueError as error:  # the channel was closed
                raise CallFailed("UNAVAILABLE", str(error)) from None
        channel.answered_at = self._now()
        return response

    def stream(self, method: str, metadata: Metadata) -> BlockingStream:
        with CALLS:
            channel = self._pool.current or self._pool.open()
            return BlockingStream(channel.grpc.stream_stream(method), metadata, self._grpc)

    async def date(self, timeout: float) -> str:
        target = self._target
        with closing(socket.create_connection((target.host, target.http_port), timeout)) as plain:
            sock = plain
            if target.tls is not None:
                sock = ssl_context(target.tls).wrap_socket(plain, server_hostname=target.host)
            sock.settimeout(timeout)
            sock.sendall(http_request(target))
            head = b""
            while b"\r\n\r\n" not in head and (part := sock.recv(4096)):
                head += part
            if sock is not plain:
                sock.close()
        return head.decode("latin-1")

    async def close(self) -> None:
        with CALLS:
            _close_all(self._pool.take_all())


def _connect(grpc: Any, target: Target) -> Any:
    if target.tls is None:
        channel = grpc.insecure_channel(str(target), CHANNEL_OPTIONS)
    else:
        channel = grpc.secure_channel(str(target), channel_credentials(target.tls, grpc), CHANNEL_OPTIONS)
    come_before_grpc()
    return channel


def _close_dropped(pool: ChannelPool) -> None:
    """Close the channels of a dropped client: gRPC keeps the sockets of a channel until it is closed.

    A finalizer runs wherever the garbage collector does, perhaps inside gRPC, whose locks may be taken then: so the
    channels are closed by a thread of their own.
    """
    dropped = pool.dropped()
    if dropped:
        with suppress(RuntimeError):  # the interpreter ends, and the sockets with it
            start_new_thread(_close_all, (dropped,))


def _close_all(channels: list[Any]) -> None:
    for channel in channels:
        channel.close()


class BlockingStream:
    """A stream. gRPC takes the requests on a thread of its own; the caller of `receive` reads the responses.

    It is a call that is under way while it is read, so a fork ends it.
    """

    def __init__(self, method: Any, metadata: Metadata, grpc: Any) -> None:
        self._grpc = grpc
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = False
        self._call = method(self._outgoing(), metadata=metadata)
        CALLS.streams.add(self)

    def _outgoing(self) -> Iterator[bytes]:
        while (request := self._requests.get()) is not None:
            yield request

    def send(self, request: bytes) -> None:
        self._requests.put(request)

    async def receive(self) -> bytes | None:
        with CALLS:
            try:
                return next(self._call, None)
            except self._grpc.RpcError as error:
                if self._closed:
                    return None
                raise CallFailed(error.code().name, error.details() or "") from None

    def close(self) -> None:
        self._closed = True
        CALLS.streams.discard(self)
        self._requests.put(None)
        self._call.cancel()
