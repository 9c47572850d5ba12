"""The blocking wire: a few plain sockets, each used by one thread at a time.

redis-py opens a connection (TLS, password, database); then we use its socket ourselves, because its own layers cost
more than the server does. A connection whose exchange was interrupted is closed, never used again: the reply that is
still to come belongs to nobody.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold.backends.redis.trouble import could_not_connect
from leasehold.backends.redis.wire import NOTHING_YET, new_reader
from leasehold.errors import BackendUnavailable, ConfigurationError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.backends.redis.wire import Dialer, Ear, Node
    from leasehold.spi import Runtime

__all__ = ["BlockingWire"]

MOST_IDLE = 8  # connections kept for later; more are opened while more threads talk at once
FRESH = 1.0  # one that was used within this time is taken to be alive
CHUNK = 16384


class BlockingLink:
    """One connection; it belongs to one thread at a time."""

    __slots__ = ("_connection", "_reader", "_socket", "_timeout", "label", "used_at")

    def __init__(self, dialer: Dialer, node: Node, label: str) -> None:
        self.label = label
        self.used_at = time.monotonic()
        self._reader = new_reader()
        self._timeout = -1.0
        try:
            self._connection = dialer.connection("redis.connection", node)
            self._connection.connect()
        except ConfigurationError:
            raise
        except Exception as error:
            raise could_not_connect(error, label) from error
        self._socket: socket.socket = self._connection._sock  # noqa: SLF001 - see the head of this file

    def set_timeout(self, seconds: float) -> None:
        """How long to wait for an answer; 0 is for ever."""
        if seconds == self._timeout:
            return
        self._timeout = seconds
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(seconds or None)
            return
        # The kernel's own timeout, because Python's costs a system call more for each send and receive.
        self._socket.settimeout(None)
        whole = int(seconds)
        interval = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)

    def exchange(self, payload: bytes, count: int) -> list[Any]:
        """Send, and wait for so many replies."""
        self.send(payload)
        self.feed()
        reply = self._reader.gets()
        if count == 1 and reply is not NOTHING_YET:
            return [reply]
        replies = [] if reply is NOTHING_YET else [reply]
        while True:
            self.take_replies(replies, count)
            if len(replies) == count:
                return replies
            self.feed()

    def take_replies(self, replies: list[Any], count: int) -> None:
        """Take what has arrived."""
        while len(replies) < count and (reply := self._reader.gets()) is not NOTHING_YET:
            replies.append(reply)

    def send(self, payload: bytes) -> None:
        """Send without waiting for an answer."""
        try:
            self._socket.sendall(payload)
        except OSError as error:
            raise OutcomeUnknown(
                f"{self.label}: the connection broke while sending: {error}", backend=self.label
            ) from None

    def feed(self) -> None:
        """Wait for more bytes."""
        try:
            data = self._socket.recv(CHUNK)
        except (TimeoutError, BlockingIOError):
            raise OutcomeUnknown(
                f"{self.label} did not answer within {self._timeout:.3g} s", backend=self.label
            ) from None
        except OSError as error:
            raise OutcomeUnknown(f"{self.label}: the connection broke: {error}", backend=self.label) from None
        if not data:
            raise OutcomeUnknown(f"{self.label} closed the connection without an answer", backend=self.label)
        self._reader.feed(data)

    def is_quiet(self) -> bool:
        """Whether the other side has neither closed it nor sent anything unasked."""
        try:
            self._socket.setblocking(False)  # noqa: FBT003 - the standard library's own
            self._timeout = -1.0
            self._socket.recv(1, 0 if isinstance(self._socket, ssl.SSLSocket) else socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it; whoever waits on it is woken."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.disconnect()


class BlockingRequest:
    """A question that has to connect first. That blocks, so it cannot share a thread with those to other servers."""

    def __init__(self, wire: BlockingWire, node: Node, commands: Sequence[bytes], timeout: float) -> None:
        self._wire, self._node = wire, node
        self._payload, self._count, self._timeout = b"".join(commands), len(commands), timeout

    async def perform(self) -> list[Any]:
        """Ask and wait."""
        return await self._wire.exchange(self._node, self._payload, self._count, self._timeout)


class BlockingQuestion(BlockingRequest):
    """A question on a connection that is there: it can be sent now and collected later."""

    def __init__(
        self, wire: BlockingWire, node: Node, commands: Sequence[bytes], timeout: float, link: BlockingLink
    ) -> None:
        super().__init__(wire, node, commands, timeout)
        self._link = link
        self._replies: list[Any] = []

    async def perform(self) -> list[Any]:
        """Ask and wait."""
        return self._wire.talk(self._node, self._link, self._payload, self._count, self._timeout)

    def send(self) -> None:
        """Send without waiting."""
        self._link.set_timeout(self._timeout)
        self._link.send(self._payload)

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._link.fileno()

    def receive(self) -> tuple[list[Any]] | None:
        """Read what is there. The connection goes back only with the last reply; otherwise it ends with this object."""
        link = self._link
        try:
            link.feed()
        except OutcomeUnknown:
            self._wire.distrust(self._node)
            raise
        link.take_replies(self._replies, self._count)
        if len(self._replies) < self._count:
            return None
        self._wire.give_back(self._node, link)
        return (self._replies,)


class BlockingEar:
    """A connection for messages, with a thread that hears them."""

    def __init__(
        self, link: BlockingLink, runtime: Runtime, hear: Callable[[list[Any]], None], lost: Callable[[], None]
    ) -> None:
        self._link = link
        self._guard = runtime.guard()
        self._closed = False
        link.set_timeout(0.0)
        runtime.spawn(self._listen(hear, lost), "leasehold redis messages")

    def send(self, payload: bytes) -> None:
        """Several threads may subscribe at once."""
        with self._guard:
            self._link.send(payload)

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._link.close()

    async def _listen(self, hear: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        messages: list[Any] = []
        try:
            while True:
                self._link.feed()
                self._link.take_replies(messages, CHUNK)
                for message in messages:
                    hear(message)
                messages.clear()
        except OutcomeUnknown:
            pass  # the connection ended
        finally:  # whatever ends this thread, nobody must rely on it any more
            if not self._closed:
                self.close()
                lost()


class BlockingWire:
    """Connections for threads."""

    def __init__(self, dialer: Dialer, runtime: Runtime, label: str) -> None:
        self._dialer = dialer
        self._runtime = runtime
        self._label = label
        self._idle: dict[Node, deque[BlockingLink]] = {}
        self._closed = False

    async def exchange(
        self,
        node: Node,
        payload: bytes,
        count: int,
        timeout: float,
        *,
        alone: bool = False,  # noqa: ARG002 - it always is
    ) -> list[Any]:
        """Send commands and wait for so many replies."""
        self._refuse_if_closed()
        link = self._idle_link(node) or BlockingLink(self._dialer, node, self._label)
        return self.talk(node, link, payload, count, timeout)

    def talk(self, node: Node, link: BlockingLink, payload: bytes, count: int, timeout: float) -> list[Any]:
        """The same on a connection of the caller's, which is kept for later."""
        try:
            link.set_timeout(timeout)
            replies = link.exchange(payload, count)
        except OutcomeUnknown:
            link.close()
            self.distrust(node)
            raise
        except BaseException:
            link.close()
            raise
        self.give_back(node, link)
        return replies

    def request(self, node: Node, commands: Sequence[bytes], timeout: float) -> BlockingRequest:
        """In one write: nobody else waits on the same connection."""
        link = None if self._closed else self._idle_link(node)
        if link is None:
            return BlockingRequest(self, node, commands, timeout)
        return BlockingQuestion(self, node, commands, timeout, link)

    async def listen(self, node: Node, hear: Callable[[list[Any]], None], lost: Callable[[], None]) -> Ear:
        """A connection for messages."""
        self._refuse_if_closed()
        return BlockingEar(BlockingLink(self._dialer, node, self._label), self._runtime, hear, lost)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BackendUnavailable("this client is closed; make a new one with connect()")

    def _idle_link(self, node: Node) -> BlockingLink | None:
        """A connection that nobody uses; the one used last, which is the likeliest to be alive."""
        idle = self._idle.get(node)
        if idle is None:
            idle = self._idle.setdefault(node, deque())
        while True:
            try:
                link = idle.pop()
            except IndexError:
                return None
            if time.monotonic() - link.used_at < FRESH or link.is_quiet():
                return link
            link.close()

    def give_back(self, node: Node, link: BlockingLink) -> None:
        """Keep it for later."""
        idle = self._idle[node]
        if self._closed or len(idle) >= MOST_IDLE:
            link.close()
            return
        link.used_at = time.monotonic()
        idle.append(link)

    def distrust(self, node: Node) -> None:
        """A connection to this server died: the idle ones most likely died too, and would cost an attempt each."""
        idle: deque[BlockingLink] = self._idle.get(node, deque())
        while idle:
            with suppress(IndexError):  # another thread was quicker
                idle.pop().close()

    async def close(self) -> None:
        """Close what is idle; the rest is closed when it comes back."""
        self._closed = True
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
