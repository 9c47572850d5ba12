"""The blocking wire: a few plain sockets, each used by one thread at a time.

A connection whose exchange was interrupted is closed, never used again: the reply that is still to come would be taken
for the answer to the next call.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.connection import BlockingConnection, BlockingSubscription
from leasehold._backends.redis.wire import is_hasty, no_time, stepped
from leasehold.errors import ClientClosed, OutcomeUnknown
from leasehold.kit.openings import Openings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.redis.wire import Dialer, Node, Subscription
    from leasehold.spi import Runtime

__all__ = ["FRESH", "BlockingWire"]

MOST_IDLE = 8  # connections kept for later; more are opened while more threads need one at once
FRESH = 1.0  # one that was used within this time is taken to be alive


class BlockingRequest:
    """A request that has to connect first. That blocks, so it cannot share a thread with those to other servers."""

    def __init__(self, wire: BlockingWire, node: Node, commands: Sequence[bytes], timeout: float, until: float) -> None:
        self._wire, self._node = wire, node
        self._payload, self._count = b"".join(commands), len(commands)
        self._timeout, self._until = timeout, until

    async def perform(self) -> list[Any]:
        """Send and wait."""
        return await self._wire.exchange(self._node, self._payload, self._count, self._timeout, self._until)


class BlockingPollable(BlockingRequest):
    """A request on an open connection: it can be sent now and collected later."""

    def __init__(
        self, wire: BlockingWire, connection: BlockingConnection, commands: Sequence[bytes], timeout: float,
        until: float,
    ) -> None:  # fmt: skip
        super().__init__(wire, connection.node, commands, timeout, until)
        self._connection = connection
        self._replies: list[Any] = []

    async def perform(self) -> list[Any]:
        """Send and wait."""
        return self._wire.exchange_on(self._connection, self._payload, self._count, self._timeout, self._until)

    def send(self) -> None:
        """Send without waiting."""
        left = self._wire.left(self._until)
        if left <= 0:
            self._wire.give_back(self._connection)
            raise no_time(self._connection.label)
        self._connection.set_timeout(stepped(self._timeout, left))
        self._connection.send(self._payload)

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._connection.fileno()

    def receive(self) -> tuple[list[Any]] | None:
        """Read what is there. The connection goes back only with the last reply; otherwise it ends with this object."""
        connection = self._connection
        try:
            connection.feed()
        except OutcomeUnknown:
            self._wire.broke(self._node)
            raise
        connection.take_replies(self._replies, self._count)
        if len(self._replies) < self._count:
            return None
        self._wire.give_back(connection)
        return (self._replies,)


class BlockingWire:
    """Connections for threads."""

    def __init__(self, dialer: Dialer, runtime: Runtime, label: str) -> None:
        self._dialer = dialer
        self._runtime = runtime
        self._label = label
        self._guard = runtime.guard()
        self._idle: dict[Node, deque[BlockingConnection]] = {}
        self._connections: dict[int, weakref.ref[BlockingConnection]] = {}  # idle or in use
        self._openings = Openings[BlockingConnection](runtime, label)
        self._closed = False

    def left(self, until: float) -> float:
        return until - self._runtime.now()

    async def exchange(
        self,
        node: Node,
        payload: bytes,
        count: int,
        timeout: float,
        until: float = math.inf,
        *,
        alone: bool = False,  # noqa: ARG002 - it always is
    ) -> list[Any]:
        if self._closed:
            raise ClientClosed(backend=self._label)
        connection = self._take(node) or await self._open(node, until)
        return self.exchange_on(connection, payload, count, timeout, until)

    def exchange_on(
        self, connection: BlockingConnection, payload: bytes, count: int, timeout: float, until: float
    ) -> list[Any]:
        """The same on a connection that the caller took; it is given back."""
        limit = timeout
        if until != math.inf:
            left = until - self._runtime.now()
            if left <= 0:
                self.give_back(connection)
                raise no_time(self._label)
            if left < timeout:
                limit = stepped(timeout, left)
        try:
            if connection.timeout != limit:
                connection.set_timeout(limit)
            replies = connection.exchange(payload, count)
        except OutcomeUnknown:
            connection.close()
            self.broke(connection.node, hasty=is_hasty(limit, timeout))
            raise
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)
        return replies

    def request(
        self, node: Node, commands: Sequence[bytes], timeout: float, until: float = math.inf
    ) -> BlockingRequest:
        connection = None if self._closed else self._take(node)
        if connection is None:
            return BlockingRequest(self, node, commands, timeout, until)
        return BlockingPollable(self, connection, commands, timeout, until)

    async def subscribe(
        self, node: Node, on_message: Callable[[Any], None], on_lost: Callable[[], None], until: float = math.inf
    ) -> Subscription:
        if self._closed:
            raise ClientClosed(backend=self._label)
        return BlockingSubscription(await self._open(node, until), self._runtime, on_message, on_lost)

    # --- opening

    async def _open(self, node: Node, until: float) -> BlockingConnection:
        return await self._openings.open(partial(self._connect, node), self.give_back, until)

    def _connect(self, node: Node) -> BlockingConnection:
        connection = BlockingConnection(self._dialer, node, self._label)
        number = id(connection)
        self._connections[number] = weakref.ref(connection, lambda _: self._connections.pop(number, None))
        return connection

    # --- idle connections

    def _take(self, node: Node) -> BlockingConnection | None:
        """An idle connection; the one used last, which is the likeliest to be alive."""
        idle = self._idle.get(node)
        if idle is None:
            return None
        while True:
            try:
                connection = idle.pop()
            except IndexError:
                return None
            now = time.monotonic()
            if now - connection.used_at < FRESH or connection.is_quiet():
                connection.used_at = now
                return connection
            connection.close()

    def give_back(self, connection: BlockingConnection) -> None:
        """Keep it for later."""
        idle = self._idle.get(connection.node)
        if idle is None:
            idle = self._idle.setdefault(connection.node, deque())
        if self._closed or len(idle) >= MOST_IDLE:
            connection.close()
            return
        connection.used_at = time.monotonic()
        idle.append(connection)

    def broke(self, node: Node, *, hasty: bool = False) -> None:
        """A connection to this server died: the idle ones most likely died too, and would cost an attempt each."""
        if self._closed:
            raise ClientClosed(backend=self._label)
        if not hasty:
            self.drop_connections(node)

    def drop_connections(self, node: Node) -> None:
        idle: deque[BlockingConnection] = self._idle.get(node, deque())
        while idle:
            with suppress(IndexError):  # another thread was quicker
                idle.pop().close()

    async def close(self) -> None:
        """Close what is idle, and interrupt the rest: each is closed by the thread that uses it."""
        self._closed = True
        self._openings.close()
        for idle in tuple(self._idle.values()):
            while idle:
                with suppress(IndexError):
                    idle.pop().close()
        for known in tuple(self._connections.values()):
            connection = known()
            if connection is not None:
                connection.interrupt()
