"""Connections to one node for threads. A connection goes back into the stock with answers still to come.

That is the difference to the wire of `redis://`: a vote that is late must be read before the next answer on the same
connection, and a clean-up must be sent behind it. So each connection knows in which order answers are owed.
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

from leasehold.backends.redis.blocking_wire import FRESH, BlockingLink
from leasehold.backends.redis.wire import NOTHING_YET, Dialer
from leasehold.backends.redlock.node import LINE_TIMEOUT, lacks_script, meaning
from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold.backends.redis.wire import Node as Address
    from leasehold.backends.redlock.calls import Call
    from leasehold.backends.redlock.node import Node
    from leasehold.backends.redlock.unsaid import Unsaid

__all__ = ["BlockingLines"]

MOST_IDLE = 8
LOOK_EVERY = 0.5  # seconds between looks at idle connections that nobody takes


class Owed:
    """What is owed for one call, or for `count` commands: answers, in the order in which they were asked for."""

    __slots__ = ("call", "count", "is_repeated", "replies", "sent")

    def __init__(self, call: Call | None, count: int) -> None:
        self.call = call
        self.count = count
        self.sent = 0.0
        self.is_repeated = False
        self.replies: list[Any] = []


class Line(BlockingLink):
    """One connection; one thread at a time."""

    __slots__ = ("_owed", "_secure", "descriptor", "is_torn")

    def __init__(self, dialer: Dialer, address: Address, label: str) -> None:
        super().__init__(dialer, address, label)
        self._owed: deque[Owed] = deque()
        self._secure = isinstance(self._socket, ssl.SSLSocket)
        self.descriptor = self._socket.fileno()
        self.is_torn = False  # it was interrupted while sending: what is owed is not what was asked for

    def ask(self, owed: Owed, payload: bytes) -> None:
        """Send; the answers are owed from now on."""
        self.used_at = owed.sent = time.monotonic()
        self.is_torn = True
        self._owed.append(owed)
        try:
            self._socket.sendall(payload)
        except OSError as error:
            raise OutcomeUnknown(f"{self.label}: the connection broke while sending: {error}") from None
        self.is_torn = False

    def hear(self) -> None:
        """Read what is there, and give each answer to whom it is owed."""
        self.feed()
        while self._secure and self._socket.pending():  # type: ignore[attr-defined]  # a socket with TLS has it
            self.feed()
        gets, all_owed = self._reader.gets, self._owed
        while all_owed:
            first = all_owed[0]
            replies = first.replies
            while len(replies) < first.count:
                reply = gets()
                if reply is NOTHING_YET:
                    return
                replies.append(reply)
            all_owed.popleft()
            if lacks_script(replies):
                self._repeat(first)

    def _repeat(self, owed: Owed) -> None:
        """Send the text of the script, whether or not somebody still waits: a clean-up must not get lost."""
        if owed.call is not None and not owed.is_repeated:
            owed.is_repeated = True
            owed.replies.clear()
            self.ask(owed, owed.call.whole)

    def catch_up(self) -> bool:
        """Read late answers that have come meanwhile; whether there were any."""
        before = len(self._owed)
        while self._owed and select.select([self._socket], [], [], 0)[0]:
            self.hear()
        return len(self._owed) < before

    def unanswered(self) -> list[Call]:
        """Calls that the node may not have got, now that this connection is over."""
        return [owed.call for owed in self._owed if owed.call is not None]

    def owed_for(self) -> float:
        """How long the oldest answer has been owed."""
        if not self._owed:
            return 0.0
        try:
            return time.monotonic() - self._owed[0].sent
        except IndexError:  # another thread has read it just now
            return 0.0

    @property
    def is_owed(self) -> bool:
        """Whether any answer is still to come."""
        return bool(self._owed)

    def hang_up(self) -> None:
        """End it from another thread. Closing is left to its owner: the descriptor must not become another's."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def is_fresh(self) -> bool:
        """Whether it owes nothing and was used just now, so that nothing has to be checked."""
        return not self._owed and time.monotonic() - self.used_at < FRESH

    def is_alive(self) -> bool:
        """Whether the other side has not closed it. One that was used just now, or owes answers, is taken to be."""
        return bool(self._owed) or time.monotonic() - self.used_at < FRESH or self.is_quiet()


class BlockingQuestion(Owed):
    """One call to one node, sent now and collected later."""

    __slots__ = ("_line", "_lines", "_until", "node")

    call: Call

    def __init__(self, lines: BlockingLines, node: Node, call: Call, until: float) -> None:
        super().__init__(call, call.count)
        self.node = node
        self._lines = lines
        self._until = until
        self._line: Line | None = None

    async def perform(self) -> Any:
        """Ask and wait."""
        self.send()
        while (answer := self.receive()) is None:
            pass
        return answer[0]

    def send(self) -> None:
        """Send without waiting."""
        if self.node.trouble is not None:
            raise self.node.trouble
        self._line = line = self._lines.take(self.node, self._until)
        try:
            line.ask(self, self.call.short)
        except OutcomeUnknown as error:
            self._broke(error)
            raise

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return -1 if self._line is None else self._line.descriptor

    def receive(self) -> tuple[Any] | None:
        """Read what is there."""
        try:
            self._line.hear()  # type: ignore[union-attr]  # it was sent
        except OutcomeUnknown as error:
            self._broke(error)
            raise
        if len(self.replies) < self.count:
            return None
        self.node.misses = 0
        answer = meaning(self.call, self.replies, self._lines.label)
        if isinstance(answer, Exception):
            raise answer
        return (answer,)

    def behind(self, call: Call) -> None:
        """Send another call after this one."""
        if self._line is None:
            self.node.say_later(call)
            return
        try:
            self._line.ask(Owed(call, call.count), call.short)
        except OutcomeUnknown as error:
            self._broke(error)

    def finish(self) -> None:
        """Give the connection back, whatever it still owes."""
        line, self._line = self._line, None
        if line is not None:
            self._lines.give_back(line)

    def drop(self) -> None:
        """Close the connection: an answer may have been half read."""
        line, self._line = self._line, None
        if line is not None:
            self._lines.give_up(line)

    def _broke(self, error: OutcomeUnknown) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._lines.give_up(line)
        self.node.failed(error)


class BlockingLines:
    """The connections to one node."""

    def __init__(self, dialer: Dialer, address: Address, timeout: float, unsaid: Unsaid) -> None:
        self.label = str(address)
        self._dialer = dialer
        self._address = address
        self._timeout = timeout
        self._unsaid = unsaid
        self._idle: deque[Line] = deque()
        self._taken: set[Line] = set()  # lines that a thread uses now
        self._look_at = 0.0  # when to look at idle lines next
        self._closed = False

    @property
    def is_ready(self) -> bool:
        """Whether there is one that nobody uses."""
        return bool(self._idle)

    @property
    def is_owed(self) -> bool:
        """Whether any answer is still to come, on a connection that is used or idle."""
        return any(line.is_owed for line in (*self._taken, *self._idle))

    async def open(self) -> None:
        """Connect once more."""
        self.give_back(self._connected(math.inf))

    def _connected(self, until: float) -> Line:
        left = until - time.monotonic()
        if left <= 0:
            raise BackendUnavailable(f"{self.label}: there was no time left to connect", backend=self.label)
        line = Line(self._dialer if left == math.inf else _Hurried(self._dialer, left), self._address, self.label)
        self._taken.add(line)
        line.set_timeout(self._timeout)
        return line

    def question(self, node: Node, call: Call, until: float) -> BlockingQuestion:
        """A question for this node."""
        return BlockingQuestion(self, node, call, until)

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        """Send commands and wait for all replies; the connection is not given back if anything goes wrong."""
        line = self._connected(math.inf) if fresh else self.take(None)
        try:
            line.set_timeout(LINE_TIMEOUT)
            owed = Owed(None, count)
            line.ask(owed, payload)
            while len(owed.replies) < count:
                line.hear()
            line.set_timeout(self._timeout)
        except BaseException:
            self.give_up(line)
            raise
        self.give_back(line)
        return owed.replies

    def take(self, node: Node | None, until: float = math.inf) -> Line:
        """One that nobody uses; the one used last. A node whose answers are late is on its way to be left out."""
        while not self._closed:
            try:
                line = self._idle.pop()
                self._taken.add(line)
            except IndexError:
                line = self._connected(until)
            if line.is_fresh():
                return line
            if self._is_usable(line, node):
                line.set_timeout(self._timeout)
                return line
            self.give_up(line)
        raise ClientClosed(backend=self.label)

    def _is_usable(self, line: Line, node: Node | None) -> bool:
        try:
            late = line.owed_for()
            if late > self._timeout and line.catch_up():
                late = line.owed_for()
                if node is not None:
                    node.misses = 0
        except OutcomeUnknown:
            return False
        except BaseException:
            self.give_up(line)
            raise
        if late > self._timeout and node is not None:
            node.missed()
            if node.trouble is not None:
                self.give_back(line)
                raise node.trouble
        return late < LINE_TIMEOUT and line.is_alive()

    def give_up(self, line: Line) -> None:
        """Close a connection that is of no use; what it may not have delivered is said again later."""
        self._taken.discard(line)
        line.close()
        for call in line.unanswered():
            self._unsaid.keep(call)

    def give_back(self, line: Line) -> None:
        """Keep it for later, with what it still owes."""
        if self._closed or line.is_torn or len(self._idle) >= MOST_IDLE:
            self.give_up(line)
            return
        self._taken.discard(line)
        self._idle.append(line)
        if line.used_at > self._look_at and len(self._idle) > 1:
            self._look_at = line.used_at + LOOK_EVERY
            self._give_up_silent()

    def _give_up_silent(self) -> None:
        """Give up idle connections that have fallen silent, so that what the node has not got is sent again.

        The connection used last is taken first, so nobody else might ever look at these.
        """
        for line in tuple(self._idle):
            if line.owed_for() > LINE_TIMEOUT:
                try:
                    self._idle.remove(line)
                except ValueError:  # another thread uses it
                    continue
                if self._is_usable(line, None):
                    self._idle.appendleft(line)
                else:
                    self.give_up(line)

    def close(self) -> None:
        """Close what is idle, and end what is used: a thread that waits there has no client any more."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        for line in tuple(self._taken):
            line.hang_up()


class _Hurried(Dialer):
    """The dialer, for a caller that has little time: half of it to connect, half to be greeted."""

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
