"""The connection to one node for the tasks of one loop: they share it, and it reads late answers by itself."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold.backends.redis.asyncio_wire import AsyncioLink
from leasehold.backends.redlock.node import LINE_TIMEOUT, lacks_script, meaning
from leasehold.errors import BackendUnavailable, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.backends.redis.wire import Dialer
    from leasehold.backends.redis.wire import Node as Address
    from leasehold.backends.redlock.calls import Call
    from leasehold.backends.redlock.node import Node

__all__ = ["AsyncioLines"]


class AsyncioQuestion:
    """One call to one node."""

    __slots__ = ("_call", "_is_repeated", "_line", "_lines", "node")

    def __init__(self, lines: AsyncioLines, node: Node, call: Call) -> None:
        self.node = node
        self._lines = lines
        self._call = call
        self._is_repeated = False
        self._line: AsyncioLink | None = None

    async def perform(self) -> Any:
        """Ask and wait."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.start(lambda result: None if answer.done() else answer.set_result(result))
        result = await answer
        if isinstance(result, Exception):
            raise result
        return result

    def start(self, done: Callable[[Any], None]) -> None:
        """Ask; the answer comes later. A node that does not know the script gets its text, on the same connection."""
        if self.node.trouble is not None:
            raise self.node.trouble
        self._line = line = self._lines.shared(self.node)

        def arrived(answer: asyncio.Future[list[Any]]) -> None:
            error = BackendUnavailable("cancelled") if answer.cancelled() else answer.exception()
            if error is not None:
                self.node.say_later(self._call)
                self.node.failed(error)  # type: ignore[arg-type]  # a connection sets no other exceptions
                done(error)
                return
            replies = answer.result()
            if lacks_script(replies) and line.is_open and not self._is_repeated:
                self._is_repeated = True
                self._lines.ask(line, self._call.whole, self._call.count).add_done_callback(arrived)
                return
            self.node.misses = 0
            done(meaning(self._call, replies, self._lines.label))

        self._lines.ask(line, self._call.short, self._call.count).add_done_callback(arrived)

    def behind(self, call: Call) -> None:
        """Send another call after this one; nobody waits for it, but it must not get lost."""
        self._say(call, call.short)

    def _say(self, call: Call, payload: bytes) -> None:
        line = self._line
        if line is None or not line.is_open:
            self.node.say_later(call)
            return

        def look_at(answer: asyncio.Future[list[Any]]) -> None:
            """An error must not be reported as one nobody saw."""
            if answer.cancelled() or answer.exception() is not None:
                self.node.say_later(call)
            elif payload is call.short and lacks_script(answer.result()):
                self._say(call, call.whole)

        self._lines.ask(line, payload, call.count).add_done_callback(look_at)

    def finish(self) -> None:
        """The connection reads the answer by itself."""

    def drop(self) -> None:
        """A task is not interrupted while it sends or reads: the connection reads the answer by itself."""


class AsyncioLines:
    """The connection to one node."""

    def __init__(self, dialer: Dialer, address: Address, timeout: float) -> None:
        self.label = str(address)
        self._dialer = dialer
        self._address = address
        self._timeout = timeout
        self._shared: AsyncioLink | None = None
        self._owed: deque[float] = deque()  # when each question was sent that has no answer yet
        self._closed = False

    @property
    def is_ready(self) -> bool:
        """Whether it is open."""
        return self._shared is not None and self._shared.is_open

    @property
    def is_owed(self) -> bool:
        """Whether any answer is still to come."""
        return bool(self._owed)

    async def open(self) -> None:
        """Connect."""
        if not self.is_ready:
            await self._connect()

    async def _connect(self) -> AsyncioLink:
        line = AsyncioLink(str(self._address))
        await line.open(self._dialer, self._address)
        if self._closed:
            line.close()
            raise ClientClosed(backend=str(self._address))
        before, self._shared = self._shared, line
        if before is not None:
            before.close()
        return line

    def shared(self, node: Node | None = None) -> AsyncioLink:
        """The open connection. A node whose answers are late is on its way to be left out."""
        line = self._shared
        if line is None or not line.is_open:
            raise BackendUnavailable(f"{self._address} is not connected", backend=str(self._address))
        if node is not None and self._owed and time.monotonic() - self._owed[0] > self._timeout:
            node.missed()
            if node.trouble is not None:
                raise node.trouble
        return line

    def ask(self, line: AsyncioLink, payload: bytes, count: int) -> asyncio.Future[list[Any]]:
        """Send; answers come in the order of the questions."""
        self._owed.append(time.monotonic())
        answer = line.ask(payload, count, LINE_TIMEOUT)
        answer.add_done_callback(self._answered)
        return answer

    def _answered(self, _: asyncio.Future[list[Any]]) -> None:
        if self._owed:
            self._owed.popleft()

    def question(self, node: Node, call: Call, until: float) -> AsyncioQuestion:  # noqa: ARG002 - it never connects
        """A question for this node."""
        return AsyncioQuestion(self, node, call)

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        """Send commands and wait for all replies."""
        line = await self._connect() if fresh else self.shared()
        return await self.ask(line, payload, count)

    def close(self) -> None:
        """Close it."""
        self._closed = True
        if self._shared is not None:
            self._shared.close()
