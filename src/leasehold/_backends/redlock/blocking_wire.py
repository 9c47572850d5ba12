"""Connections to one node for threads. A connection goes back into the stock with answers still to come.

That is the difference to the wire of `redis://`: a vote that is late must be read before the next answer on the same
connection, and a clean-up must be sent after it. So each connection keeps the order of pending answers.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.blocking_wire import FRESH
from leasehold._backends.redis.connection import BlockingConnection
from leasehold._backends.redis.wire import NOTHING_YET, Dialer, no_time
from leasehold._backends.redlock.wire import SILENCE_LIMIT, lacks_script, reply_or_error
from leasehold.errors import ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold._backends.redis.wire import Node as Address
    from leasehold._backends.redlock.calls import Call
    from leasehold._backends.redlock.node import Node
    from leasehold._backends.redlock.undelivered import Undelivered

__all__ = ["BlockingWire"]

MOST_IDLE = 8
LOOK_EVERY = 0.5  # seconds between looks at connections that stay idle


class Pending:
    """The pending answer to one call, or to `count` commands: its replies, in the order of the commands."""

    __slots__ = ("call", "count", "is_repeated", "replies", "sent")

    def __init__(self, call: Call | None, count: int) -> None:
        self.call = call
        self.count = count
        self.sent = 0.0
        self.is_repeated = False
        self.replies: list[Any] = []


class NodeConnection(BlockingConnection):
    """One connection; one thread at a time."""

    __slots__ = ("_pending", "_secure", "descriptor", "is_torn")

    def __init__(self, dialer: Dialer, address: Address, label: str) -> None:
        super().__init__(dialer, address, label)
        self._pending: deque[Pending] = deque()
        self._secure = isinstance(self._socket, ssl.SSLSocket)
        self.descriptor = self._socket.fileno()
        self.is_torn = False  # it was interrupted while sending: the server may have got half of a command

    def start(self, pending: Pending, payload: bytes) -> None:
        """Send; the answers are pending from now on."""
        self.used_at = pending.sent = time.monotonic()
        self.is_torn = True
        self._pending.append(pending)
        try:
            self._socket.sendall(payload)
        except OSError as error:
            raise OutcomeUnknown(f"{self.label}: the connection broke while sending: {error}") from None
        self.is_torn = False

    def read(self) -> None:
        """Read what is there, and give each reply to the oldest pending answer."""
        self.feed()
        while self._secure and self._socket.pending():  # type: ignore[attr-defined]  # a socket with TLS has it
            self.feed()
        gets, waiting = self._reader.gets, self._pending
        while waiting:
            first = waiting[0]
            replies = first.replies
            while len(replies) < first.count:
                reply = gets()
                if reply is NOTHING_YET:
                    return
                replies.append(reply)
            waiting.popleft()
            if lacks_script(replies):
                self._repeat(first)

    def _repeat(self, pending: Pending) -> None:
        """Send the text of the script, also without a caller that waits: a clean-up must not get lost."""
        if pending.call is not None and not pending.is_repeated:
            pending.is_repeated = True
            pending.replies.clear()
            self.start(pending, pending.call.whole)

    def catch_up(self) -> bool:
        """Read late answers that have come meanwhile; whether there were any."""
        before = len(self._pending)
        while self._pending and select.select([self._socket], [], [], 0)[0]:
            self.read()
        return len(self._pending) < before

    def unanswered(self) -> list[Call]:
        """Calls that the node may not have got, now that this connection is over."""
        return [pending.call for pending in self._pending if pending.call is not None]

    def pending_for(self) -> float:
        """How long the oldest answer has been pending."""
        if not self._pending:
            return 0.0
        try:
            return time.monotonic() - self._pending[0].sent
        except IndexError:  # another thread has read it just now
            return 0.0

    @property
    def has_pending(self) -> bool:
        """Whether any answer is still to come."""
        return bool(self._pending)

    def hang_up(self) -> None:
        """End it from another thread. Closing is left to its owner: the descriptor must not become another's."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def is_fresh(self) -> bool:
        """Whether no answer is pending and it was used just now, so that nothing has to be checked."""
        return not self._pending and time.monotonic() - self.used_at < FRESH

    def is_alive(self) -> bool:
        """Whether the other side has not closed it: assumed if it was used just now or has pending answers."""
        return bool(self._pending) or time.monotonic() - self.used_at < FRESH or self.is_quiet()


class BlockingNodeRequest(Pending):
    """One call to one node, sent now and collected later."""

    __slots__ = ("_connection", "_until", "_wire", "node")

    call: Call

    def __init__(self, wire: BlockingWire, node: Node, call: Call, until: float) -> None:
        self.call = call  # as `Pending` does, in one call less: there is one of these for each node and request
        self.count = call.count
        self.sent = 0.0
        self.is_repeated = False
        self.replies = []
        self.node = node
        self._wire = wire
        self._until = until
        self._connection: NodeConnection | None = None

    async def perform(self) -> Any:
        """Send and wait."""
        self.send()
        while (answer := self.receive()) is None:
            pass
        return answer[0]

    def send(self) -> None:
        """Send without waiting."""
        if self.node.failure is not None:
            raise self.node.failure.with_traceback(None)  # each time the same one: it would keep the frames of all
        self._connection = connection = self._wire.take(self.node, self._until)
        try:
            connection.start(self, self.call.short)
        except OutcomeUnknown as error:
            self._broke(error)
            raise

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return -1 if self._connection is None else self._connection.descriptor

    def receive(self) -> tuple[Any] | None:
        """Read what is there."""
        try:
            self._connection.read()  # type: ignore[union-attr]  # it was sent
        except OutcomeUnknown as error:
            self._broke(error)
            raise
        if len(self.replies) < self.count:
            return None
        self.node.misses = 0
        answer = reply_or_error(self.call, self.replies, self._wire.label)
        if isinstance(answer, Exception):
            raise answer
        return (answer,)

    def send_after(self, call: Call) -> None:
        """Send another call after this one."""
        if self._connection is None:
            self.node.deliver_later(call)
            return
        try:
            self._connection.start(Pending(call, call.count), call.short)
        except OutcomeUnknown as error:
            self._broke(error)

    def finish(self) -> None:
        """Give the connection back, with what is still pending."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._wire.give_back(connection)

    def abort(self) -> None:
        """Close the connection: an answer may have been half read."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._wire.discard(connection)

    def _broke(self, error: OutcomeUnknown) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._wire.discard(connection)
        self.node.failed(error)


class BlockingWire:
    """The connections to one node."""

    def __init__(self, dialer: Dialer, address: Address, timeout: float, undelivered: Undelivered) -> None:
        self.label = str(address)
        self._dialer = dialer
        self._address = address
        self._timeout = timeout
        self._undelivered = undelivered
        self._idle: deque[NodeConnection] = deque()
        self._taken: set[NodeConnection] = set()  # lines that a thread uses now
        self._look_at = 0.0  # when to look at idle lines next
        self._closed = False

    @property
    def is_ready(self) -> bool:
        """Whether one is idle."""
        return bool(self._idle)

    @property
    def has_pending(self) -> bool:
        """Whether any answer is still to come, on a connection that is used or idle."""
        return any(connection.has_pending for connection in (*self._taken, *self._idle))

    async def open(self) -> None:
        """Connect once more."""
        self.give_back(self._connected(math.inf))

    def _connected(self, until: float) -> NodeConnection:
        left = until - time.monotonic()
        if left <= 0:
            raise no_time(self.label)
        connection = NodeConnection(
            self._dialer if left == math.inf else _Hurried(self._dialer, left), self._address, self.label
        )
        self._taken.add(connection)
        connection.set_timeout(self._timeout)
        return connection

    def request(self, node: Node, call: Call, until: float) -> BlockingNodeRequest:
        return BlockingNodeRequest(self, node, call, until)

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        """Send commands and wait for all replies; the connection is not given back if anything goes wrong."""
        connection = self._connected(math.inf) if fresh else self.take(None)
        try:
            connection.set_timeout(SILENCE_LIMIT)
            pending = Pending(None, count)
            connection.start(pending, payload)
            while len(pending.replies) < count:
                connection.read()
            connection.set_timeout(self._timeout)
        except BaseException:
            self.discard(connection)
            raise
        self.give_back(connection)
        return pending.replies

    def take(self, node: Node | None, until: float = math.inf) -> NodeConnection:
        """An idle one; the one used last. A node whose answers are late is on its way to be left out."""
        while not self._closed:
            try:
                connection = self._idle.pop()
                self._taken.add(connection)
            except IndexError:
                connection = self._connected(until)
            if connection.is_fresh():
                return connection
            if self._is_usable(connection, node):
                connection.set_timeout(self._timeout)
                return connection
            self.discard(connection)
        raise ClientClosed(backend=self.label)

    def _is_usable(self, connection: NodeConnection, node: Node | None) -> bool:
        try:
            late = connection.pending_for()
            if late > self._timeout and connection.catch_up():
                late = connection.pending_for()
                if node is not None:
                    node.misses = 0
        except OutcomeUnknown:
            return False
        except BaseException:
            self.discard(connection)
            raise
        if late > self._timeout and node is not None:
            node.missed()
            if node.failure is not None:
                self.give_back(connection)
                raise node.failure.with_traceback(None)
        return late < SILENCE_LIMIT and connection.is_alive()

    def discard(self, connection: NodeConnection) -> None:
        """Close a connection that is of no use; what it may not have delivered is sent again later."""
        self._taken.discard(connection)
        connection.close()
        for call in connection.unanswered():
            self._undelivered.keep(call)

    def give_back(self, connection: NodeConnection) -> None:
        """Keep it for later, with what is still pending."""
        if self._closed or connection.is_torn or len(self._idle) >= MOST_IDLE:
            self.discard(connection)
            return
        self._taken.discard(connection)
        self._idle.append(connection)
        if connection.used_at > self._look_at and len(self._idle) > 1:
            self._look_at = connection.used_at + LOOK_EVERY
            self._discard_silent()

    def _discard_silent(self) -> None:
        """Close idle connections that have fallen silent, so that what the node has not got is sent again.

        The connection used last is taken first, so these might never be taken again.
        """
        for connection in tuple(self._idle):
            if connection.pending_for() > SILENCE_LIMIT:
                try:
                    self._idle.remove(connection)
                except ValueError:  # another thread uses it
                    continue
                if self._is_usable(connection, None):
                    self._idle.appendleft(connection)
                else:
                    self.discard(connection)

    def close(self) -> None:
        """Close what is idle, and wake the threads that use the rest: their client is closed."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        for connection in tuple(self._taken):
            connection.hang_up()


class _Hurried(Dialer):
    """The dialer, for a caller that has little time: half of it to connect, half for the greeting."""

    def __init__(self, dialer: Dialer, left: float) -> None:
        self._dialer = dialer
        self._left = left

    def connection(self, *words: Any) -> Any:
        """A new connection object, not connected yet."""
        connection = self._dialer.connection(*words)
        for name in ("socket_connect_timeout", "socket_timeout"):
            usual = getattr(connection, name)
            setattr(connection, name, self._left / 2 if usual is None else min(usual, self._left / 2))
        return connection
