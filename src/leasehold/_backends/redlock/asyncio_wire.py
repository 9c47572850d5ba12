"""The connection to one node for the tasks of one loop: they share it, and it reads late answers by itself."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.asyncio_wire import AsyncioConnection
from leasehold._backends.redlock.wire import SILENCE_LIMIT, lacks_script, reply_or_error
from leasehold.errors import BackendUnavailable, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.redis.wire import Dialer
    from leasehold._backends.redis.wire import Node as Address
    from leasehold._backends.redlock.calls import Call
    from leasehold._backends.redlock.node import Node

__all__ = ["AsyncioWire"]


class AsyncioNodeRequest:
    """One call to one node."""

    __slots__ = ("_call", "_connection", "_is_repeated", "_wire", "node")

    def __init__(self, wire: AsyncioWire, node: Node, call: Call) -> None:
        self.node = node
        self._wire = wire
        self._call = call
        self._is_repeated = False
        self._connection: AsyncioConnection | None = None

    async def perform(self) -> Any:
        """Send and wait."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.start(lambda result: None if answer.done() else answer.set_result(result))
        result = await answer
        if isinstance(result, Exception):
            raise result
        return result

    def start(self, done: Callable[[Any], None]) -> None:
        """Send; the answer comes later. A node that has not cached the script gets its text, on the same connection."""
        if self.node.failure is not None:
            raise self.node.failure.with_traceback(None)  # each time the same one: it would keep the frames of all
        self._connection = connection = self._wire.shared(self.node)

        def arrived(answer: asyncio.Future[list[Any]]) -> None:
            self._wire.answered()
            error = BackendUnavailable("cancelled") if answer.cancelled() else answer.exception()
            if error is not None:
                self.node.deliver_later(self._call)
                self.node.failed(error)  # type: ignore[arg-type]  # a connection sets no other exceptions
                done(error)
                return
            replies = answer.result()
            if lacks_script(replies) and connection.is_open and not self._is_repeated:
                self._is_repeated = True
                self._wire.send(connection, self._call.whole, self._call.count).add_done_callback(arrived)
                return
            self.node.misses = 0
            done(reply_or_error(self._call, replies, self._wire.label))

        self._wire.send(connection, self._call.short, self._call.count).add_done_callback(arrived)

    def send_after(self, call: Call) -> None:
        """Send another call after this one; its answer is not waited for, but it must not get lost."""
        self._deliver(call, call.short)

    def _deliver(self, call: Call, payload: bytes) -> None:
        connection = self._connection
        if connection is None or not connection.is_open:
            self.node.deliver_later(call)
            return

        def check(answer: asyncio.Future[list[Any]]) -> None:
            """Read the error, or asyncio would log it as one that was never retrieved."""
            self._wire.answered()
            if answer.cancelled() or answer.exception() is not None:
                self.node.deliver_later(call)
            elif payload is call.short and lacks_script(answer.result()):
                self._deliver(call, call.whole)

        self._wire.send(connection, payload, call.count).add_done_callback(check)

    def finish(self) -> None:
        """The connection reads the answer by itself."""

    def abort(self) -> None:
        """A task is not interrupted while it sends or reads: the connection reads the answer by itself."""


class AsyncioWire:
    """The connection to one node."""

    def __init__(self, dialer: Dialer, address: Address, timeout: float) -> None:
        self.label = str(address)
        self._dialer = dialer
        self._address = address
        self._timeout = timeout
        self._shared: AsyncioConnection | None = None
        self._pending: deque[float] = deque()  # when each request was sent that has no answer yet
        self._closed = False

    @property
    def is_ready(self) -> bool:
        """Whether it is open."""
        return self._shared is not None and self._shared.is_open

    @property
    def has_pending(self) -> bool:
        """Whether any answer is still to come."""
        return bool(self._pending)

    async def open(self) -> None:
        """Connect."""
        if not self.is_ready:
            await self._connect()

    async def _connect(self) -> AsyncioConnection:
        connection = AsyncioConnection(str(self._address))
        await connection.open(self._dialer, self._address)
        if self._closed:
            connection.close()
            raise ClientClosed(backend=str(self._address))
        before, self._shared = self._shared, connection
        if before is not None:
            before.close()
        return connection

    def shared(self, node: Node | None = None) -> AsyncioConnection:
        """The open connection. A node whose answers are late is on its way to be left out."""
        connection = self._shared
        if connection is None or not connection.is_open:
            raise BackendUnavailable(f"{self._address} is not connected", backend=str(self._address))
        if node is not None and self._pending and time.monotonic() - self._pending[0] > self._timeout:
            node.missed()
            if node.failure is not None:
                raise node.failure.with_traceback(None)
        return connection

    def send(self, connection: AsyncioConnection, payload: bytes, count: int) -> asyncio.Future[list[Any]]:
        """Send; answers come in the order of the requests. What is called at the end of it calls `answered` first.

        Not a callback of its own: asyncio would schedule two for each answer.
        """
        self._pending.append(time.monotonic())
        return connection.call(payload, count, SILENCE_LIMIT)

    def answered(self) -> None:
        """The oldest request is over."""
        if self._pending:
            self._pending.popleft()

    def request(self, node: Node, call: Call, until: float) -> AsyncioNodeRequest:  # noqa: ARG002 - it never connects
        return AsyncioNodeRequest(self, node, call)

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        """Send commands and wait for all replies."""
        connection = await self._connect() if fresh else self.shared()
        answer = self.send(connection, payload, count)
        answer.add_done_callback(lambda _: self.answered())
        return await answer

    def close(self) -> None:
        """Close it."""
        self._closed = True
        if self._shared is not None:
            self._shared.close()
