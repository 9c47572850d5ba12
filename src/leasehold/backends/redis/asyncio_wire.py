"""The asyncio wire: one connection per server, shared by all tasks.

What tasks send in one turn of the loop leaves in few writes, and replies come back in order: the connection pipelines
by itself. A cancelled task leaves its place in the line of replies: the reply is read and dropped, so nobody ever gets
another's. The same holds for a task that has less time than the connection. If the oldest question is not answered
within the time of the connection, that is given up, and with it all that wait on it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold.backends.redis.trouble import could_not_connect
from leasehold.backends.redis.wire import NOTHING_YET, new_reader, no_time
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from leasehold.backends.redis.wire import Dialer, Ear, Node
    from leasehold.spi import Runtime

__all__ = ["AsyncioWire"]

FLUSH_AT = (
    16  # commands that wait for the end of the turn; more are sent at once, so that the server has work meanwhile
)
PART = 500  # of many commands
MOST_IDLE = 8  # connections kept for those who must be alone on one


class AsyncioLink(asyncio.Protocol):
    """One connection. redis-py opens it (TLS, password, database); then its transport talks to us."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.is_open = False
        self._loop = asyncio.get_running_loop()
        self._reader = new_reader()
        # The answer, how many replies it takes, until when somebody waits, when the connection is dead without it.
        self._questions: deque[tuple[asyncio.Future[list[Any]], int, float, float]] = deque()
        self._replies: list[Any] = []  # to the oldest question, so far
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._writer: Any = None  # its finalizer would close the transport

    async def open(self, dialer: Dialer, node: Node) -> None:
        """Connect and greet, then take the transport over."""
        try:
            connection = dialer.connection("redis.asyncio.connection", node)
        except ConfigurationError:
            raise
        except Exception as error:
            raise could_not_connect(error, self.label) from error
        try:
            await connection.connect()
        except Exception as error:
            raise could_not_connect(error, self.label) from error
        except BaseException:
            if connection._writer is not None:  # noqa: SLF001 - see the head of this file
                connection._writer.close()  # noqa: SLF001
            raise
        self._writer, connection._writer = connection._writer, None  # noqa: SLF001 - see the head of this file
        connection._reader = None  # noqa: SLF001
        self._transport = self._writer.transport
        self._transport.set_protocol(self)
        self.is_open = not self._transport.is_closing()

    def ask(self, payload: bytes, count: int, timeout: float, patience: float = math.inf) -> asyncio.Future[list[Any]]:
        """Send with the next write of the loop; the future gets the replies.

        `patience`: how long this caller waits, if that is less than the connection is given.
        """
        loop = self._loop
        answer = loop.create_future()
        now = loop.time()
        deadline = now + (patience if patience < timeout else timeout)
        self._questions.append((answer, count, deadline, now + timeout))
        out = self._out
        out.append(payload)
        if len(out) == 1:
            loop.call_soon(self._flush)
        elif len(out) == FLUSH_AT:
            self._flush()
        if self._timer is None or deadline < self._timer_at:
            self._look_again_at(deadline)
        return answer

    def send(self, payload: bytes) -> None:
        """Send something whose answer is heard like a message."""
        if self._transport is not None:
            self._transport.write(payload)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    def _look_again_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._look_at_deadlines)
        self._timer_at = deadline

    def _look_at_deadlines(self) -> None:
        """One that may wait less long than those before it just leaves, like a cancelled task."""
        self._timer = None
        if not self._questions:
            return
        now = self._loop.time()
        next_look = self._questions[0][3]
        if next_look <= now:
            self._fail("did not answer in time")
            self.close()
            return
        for answer, _, gives_up, _ in self._questions:
            if gives_up > now:
                next_look = min(next_look, gives_up)
            elif not answer.done():
                answer.set_exception(self._unknown("did not answer in time"))
        self._look_again_at(next_look)

    def data_received(self, data: bytes) -> None:
        """Hand each reply to whoever asked first."""
        self._reader.feed(data)
        take, questions, replies = self._reader.gets, self._questions, self._replies
        while (reply := take()) is not NOTHING_YET:
            if not questions:  # nothing was asked: this cannot be trusted any more
                self.close()
                return
            replies.append(reply)
            answer, count, _, _ = questions[0]
            if len(replies) == count:
                questions.popleft()
                if not answer.done():  # a cancelled task's replies are dropped here
                    answer.set_result(replies)
                self._replies = replies = []

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody will be answered any more."""
        self._fail(f"closed the connection without an answer{f': {exc}' if exc else ''}")
        self.is_open = False

    def _fail(self, why: str, *, closed: bool = False) -> None:
        self.is_open = False
        while self._questions:
            answer = self._questions.popleft()[0]
            if not answer.done():
                answer.set_exception(ClientClosed(backend=self.label) if closed else self._unknown(why))

    def end(self) -> None:
        """Close it because the client is closed, and say so to all who wait."""
        self._fail("", closed=True)
        self.close()

    def _unknown(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(f"{self.label} {why}", backend=self.label)

    def close(self) -> None:
        """Give it up."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            with suppress(RuntimeError):  # the loop may be closed
                self._transport.abort()


class AsyncioEar(AsyncioLink):
    """A connection for messages."""

    def __init__(self, label: str, hear: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        super().__init__(label)
        self._hear = hear
        self._lost = lost
        self._closed = False

    def data_received(self, data: bytes) -> None:
        """Pass every message on."""
        self._reader.feed(data)
        while (message := self._reader.gets()) is not NOTHING_YET:
            self._hear(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who relies on hearing."""
        super().connection_lost(exc)
        if not self._closed:
            self._closed = True
            self._lost()

    def close(self) -> None:
        """Hear no more."""
        self._closed = True
        super().close()


class AsyncioRequest:
    """Many commands for one server, a part after the other: tasks that ask meanwhile wait for one part only."""

    def __init__(self, wire: AsyncioWire, node: Node, commands: Sequence[bytes], timeout: float, until: float) -> None:
        self._wire = wire
        self._node = node
        self._commands = commands
        self._timeout = timeout
        self._until = until

    async def perform(self) -> list[Any]:
        """Ask and wait."""
        replies: list[Any] = []
        for start in range(0, len(self._commands), PART):
            part = self._commands[start : start + PART]
            try:
                replies += await self._wire.exchange(self._node, b"".join(part), len(part), self._timeout, self._until)
            except BackendError as error:
                if not start:
                    raise
                return replies + [error] * (len(self._commands) - start)
        return replies


class AsyncioWire:
    """Connections for tasks of one loop."""

    def __init__(self, dialer: Dialer, runtime: Runtime, label: str) -> None:
        self._dialer = dialer
        self._runtime = runtime
        self._label = label
        self._shared: dict[Node, AsyncioLink] = {}
        self._opening: dict[Node, asyncio.Task[AsyncioLink]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # all that open a connection
        self._alone: dict[Node, list[AsyncioLink]] = {}
        self._busy: set[AsyncioLink] = set()  # of those for one, and those for messages
        self._closed = False

    def left(self, until: float) -> float:
        """See `Wire`."""
        return until - self._runtime.now()

    def exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float = math.inf, *, alone: bool = False
    ) -> Awaitable[list[Any]]:
        """Send commands and wait for so many replies."""
        if alone:
            return self._exchange_alone(node, payload, count, timeout, until)
        link = self._shared.get(node)
        if link is not None and link.is_open:
            return self._ask(link, payload, count, timeout, until)
        return self._connect_and_exchange(node, payload, count, timeout, until)

    def _ask(
        self, link: AsyncioLink, payload: bytes, count: int, timeout: float, until: float
    ) -> asyncio.Future[list[Any]]:
        if until == math.inf:
            return link.ask(payload, count, timeout)
        left = until - self._runtime.now()
        if left <= 0:
            raise no_time(self._label)
        return link.ask(payload, count, timeout, left)

    async def _connect_and_exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float
    ) -> list[Any]:
        return await self._ask(await self._connected(node, until), payload, count, timeout, until)

    def request(self, node: Node, commands: Sequence[bytes], timeout: float, until: float = math.inf) -> AsyncioRequest:
        """Many commands for one server."""
        return AsyncioRequest(self, node, commands, timeout, until)

    async def listen(
        self, node: Node, hear: Callable[[list[Any]], None], lost: Callable[[], None], until: float = math.inf
    ) -> Ear:
        """A connection for messages."""
        ear = AsyncioEar(self._label, hear, lost)
        await self._opened(self._start(self._open(ear, node)), until)
        self._busy = {other for other in self._busy if other.is_open} | {ear}
        return ear

    def distrust(self, node: Node) -> None:
        """See `Wire`."""
        link = self._shared.pop(node, None)
        if link is not None:
            link.close()

    # --- opening

    async def _connected(self, node: Node, until: float) -> AsyncioLink:
        """The shared connection. It is opened by a task of its own, so that a caller that leaves harms nobody else."""
        task = self._opening.get(node)
        if task is None:
            task = self._opening[node] = self._start(self._open(AsyncioLink(self._label), node))
            task.add_done_callback(lambda done: self._shares(node, done))
        return await self._wait_for(task, until)

    def _start(self, opening: Coroutine[Any, Any, AsyncioLink]) -> asyncio.Task[AsyncioLink]:
        task = asyncio.get_running_loop().create_task(opening, name="leasehold redis connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self, link: AsyncioLink, node: Node) -> AsyncioLink:
        if self._closed:
            raise ClientClosed(backend=self._label)
        await link.open(self._dialer, node)
        return link

    async def _opened(self, task: asyncio.Task[AsyncioLink], until: float) -> AsyncioLink:
        """A connection for this caller only."""
        try:
            return await self._wait_for(task, until)
        except BaseException:
            task.cancel()
            task.add_done_callback(_dropped)
            raise

    async def _wait_for(self, task: asyncio.Task[AsyncioLink], until: float) -> AsyncioLink:
        await asyncio.wait([task], timeout=None if until == math.inf else max(0.0, self.left(until)))
        if self._closed:
            raise ClientClosed(backend=self._label)
        if not task.done():
            raise BackendUnavailable(f"{self._label} cannot be reached: no connection in time", backend=self._label)
        return task.result()

    def _shares(self, node: Node, task: asyncio.Task[AsyncioLink]) -> None:
        self._opening.pop(node, None)
        if task.cancelled() or task.exception() is not None:
            return
        if self._closed:
            task.result().close()
        else:
            self._shared[node] = task.result()

    async def _exchange_alone(self, node: Node, payload: bytes, count: int, timeout: float, until: float) -> list[Any]:
        idle = self._alone.setdefault(node, [])
        link = idle.pop() if idle else None
        if link is None or not link.is_open:
            link = await self._opened(self._start(self._open(AsyncioLink(self._label), node)), until)
        self._busy.add(link)
        try:
            replies = await self._ask(link, payload, count, timeout, until)
        except BaseException:
            link.close()
            raise
        finally:
            self._busy.discard(link)
        if self._closed or len(idle) >= MOST_IDLE:
            link.close()
        else:
            idle.append(link)
        return replies

    async def close(self) -> None:
        """Close every connection, and stop opening new ones."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for link in [*self._shared.values(), *self._busy, *(link for idle in self._alone.values() for link in idle)]:
            link.end()
        await asyncio.sleep(0)  # transports close in the next turn of the loop


def _dropped(task: asyncio.Task[AsyncioLink]) -> None:
    """It was opened after all, when nobody wanted it any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
