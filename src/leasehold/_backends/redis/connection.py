"""One connection for threads: a plain socket that redis-py has opened; and the connection for messages.

redis-py opens a connection (TLS, password, database); then its socket is used directly, because redis-py's own layers
cost more than the server does.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.errors import could_not_connect
from leasehold._backends.redis.wire import NOTHING_YET, new_reader
from leasehold.errors import ConfigurationError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.redis.wire import Dialer, Node
    from leasehold.spi import Runtime

__all__ = ["BlockingConnection", "BlockingSubscription"]

CHUNK = 16384
FINEST = 0.25  # of the time for an answer: how early the socket may wake us


class BlockingConnection:
    """One connection; it belongs to one thread at a time."""

    __slots__ = ("__weakref__", "_driver", "_reader", "_socket", "_tick", "label", "node", "timeout", "used_at")

    def __init__(self, dialer: Dialer, node: Node, label: str) -> None:
        self.label = label
        self.node = node
        self._reader = new_reader()
        self.timeout = self._tick = -1.0
        try:
            self._driver = dialer.connection("redis.connection", node)
            self._driver.connect()
        except ConfigurationError:
            raise
        except Exception as error:
            raise could_not_connect(error, label) from error
        self._socket: socket.socket = self._driver._sock  # noqa: SLF001 - see the head of this file
        self.used_at = time.monotonic()

    def set_timeout(self, seconds: float) -> None:
        """How long to wait for an answer; 0 is for ever.

        The socket itself may wake us earlier: a release and an acquire are given different times, and changing that of
        the socket costs three system calls.
        """
        self.timeout = seconds
        if seconds * FINEST <= self._tick <= seconds:
            return
        self._tick = seconds
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
        if count == 1 and (reply := self._reader.gets()) is not NOTHING_YET:
            return [reply]
        replies: list[Any] = []
        while True:
            self.take_replies(replies, count)
            if len(replies) == count:
                return replies
            if self._is_late():
                raise self._silent()
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
            if self._tick < self.timeout and not self._is_late():
                self.feed()
                return
            raise self._silent() from None
        except OSError as error:
            raise OutcomeUnknown(f"{self.label}: the connection broke: {error}", backend=self.label) from None
        if not data:
            raise OutcomeUnknown(f"{self.label} closed the connection without an answer", backend=self.label)
        self._reader.feed(data)

    def _is_late(self) -> bool:
        return time.monotonic() - self.used_at >= self.timeout

    def _silent(self) -> OutcomeUnknown:
        return OutcomeUnknown(f"{self.label} did not answer within {self.timeout:.3g} s", backend=self.label)

    def is_quiet(self) -> bool:
        """Whether the other side has neither closed it nor sent anything that no call waits for."""
        try:
            self._socket.setblocking(False)  # noqa: FBT003 - the standard library's own
            self._tick = self.timeout = -1.0
            self._socket.recv(1, 0 if isinstance(self._socket, ssl.SSLSocket) else socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def interrupt(self) -> None:
        """Wake the thread that waits on it, which closes it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it; a thread that waits on it is woken."""
        self.interrupt()
        self._driver.disconnect()


class BlockingSubscription:
    """A connection for messages, with a thread that receives them."""

    def __init__(
        self,
        connection: BlockingConnection,
        runtime: Runtime,
        on_message: Callable[[Any], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._guard = runtime.guard()
        self._closed = False
        connection.set_timeout(0.0)
        runtime.spawn(self._receive(on_message, on_lost), "leasehold redis messages")

    def send(self, payload: bytes) -> None:
        """Several threads may subscribe at once."""
        with self._guard:
            self._connection.send(payload)

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._connection.close()

    async def _receive(self, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        messages: list[Any] = []
        try:
            while True:
                self._connection.feed()
                self._connection.take_replies(messages, CHUNK)
                for message in messages:
                    on_message(message)
                messages.clear()
        except OutcomeUnknown:
            pass  # the connection ended
        finally:  # whatever ends this thread, no waiter must rely on it any more
            if not self._closed:
                self.close()
                on_lost()
