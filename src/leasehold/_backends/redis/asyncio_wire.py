"""The asyncio wire: one connection per server, shared by all tasks.

What tasks send in one turn of the loop leaves in few writes, and replies come back in order: the connection pipelines
by itself. A cancelled task keeps its place in the order of replies: its reply is read and dropped, so that no task ever
gets the reply of another. The same holds for a task that has less time than the connection. A connection that has not
answered its oldest call in time is closed, and every call that waits on it ends with it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.errors import could_not_connect
from leasehold._backends.redis.wire import NOTHING_YET, new_reader, no_time
from leasehold.errors import BackendError, ClientClosed, ConfigurationError, OutcomeUnknown
from leasehold.kit.asyncio_waits import close_without_loop
from leasehold.kit.openings import no_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from leasehold._backends.redis.wire import Dialer, Node, Subscription
    from leasehold.spi import Runtime

__all__ = ["AsyncioWire"]

FLUSH_AT = 16  # calls that wait for the end of the loop's turn; more are sent at once, so that the server has work
PART = 500  # of many commands
OVERDUE = 5  # an answer that was not there after this part of its time may never come
MOST_IDLE = 8  # connections kept for calls that share theirs with no other


class AsyncioConnection(asyncio.Protocol):
    """One connection. redis-py opens it (TLS, password, database); then this is the protocol of its transport."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.is_open = False
        self._loop = asyncio.get_running_loop()
        self._reader = new_reader()
        # The answer, how many replies it takes, when its caller gives up, when the connection is dead, when sent.
        self._pending: deque[tuple[asyncio.Future[list[Any]], int, float, float, float]] = deque()
        self._replies: list[Any] = []  # to the oldest call, so far
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._writer: Any = None  # its finalizer would close the transport

    async def open(self, dialer: Dialer, node: Node) -> None:
        """Connect and greet, then take the transport over."""
        try:
            driver = dialer.connection("redis.asyncio.connection", node)
        except ConfigurationError:
            raise
        except Exception as error:
            raise could_not_connect(error, self.label) from error
        try:
            await driver.connect()
        except Exception as error:
            raise could_not_connect(error, self.label) from error
        except BaseException:
            if driver._writer is not None:  # noqa: SLF001 - redis-py has no other way to hand over its transport
                driver._writer.close()  # noqa: SLF001
            raise
        self._writer, driver._writer = driver._writer, None  # noqa: SLF001
        driver._reader = None  # noqa: SLF001
        self._transport = self._writer.transport
        self._transport.set_protocol(self)
        self.is_open = not self._transport.is_closing()

    def call(self, payload: bytes, count: int, timeout: float, patience: float = math.inf) -> asyncio.Future[list[Any]]:
        """Send; the future gets the replies.

        At once when the server has nothing else to do for us, which saves a turn of the loop. Otherwise with what other
        tasks send in this turn: the server works on earlier calls, so nothing is lost by waiting for them.

        `patience`: how long this caller waits, if that is less than the connection is given.
        """
        loop = self._loop
        answer = loop.create_future()
        now = loop.time()
        deadline = now + (patience if patience < timeout else timeout)
        is_idle = not self._pending
        self._pending.append((answer, count, deadline, now + timeout, now))
        if is_idle and self._transport is not None:
            self._transport.write(payload)
        else:
            self._send_later(payload)
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)
        return answer

    def owes_since(self) -> float:
        """When the oldest call was sent that has no answer yet; `inf` if there is none."""
        return self._pending[0][4] if self._pending else math.inf

    def send(self, payload: bytes) -> None:
        """Send something whose answer arrives as a message."""
        if self._transport is not None:
            self._transport.write(payload)

    def _send_later(self, payload: bytes) -> None:
        out = self._out
        out.append(payload)
        if len(out) == 1:
            self._loop.call_soon(self._flush)
        elif len(out) == FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_deadlines)
        self._timer_at = deadline

    def _check_deadlines(self) -> None:
        """A call with less time than those before it ends alone, like a cancelled task; the connection goes on."""
        self._timer = None
        if not self._pending:
            return
        now = self._loop.time()
        next_check = self._pending[0][3]
        if next_check <= now:
            self._fail("did not answer in time")
            self.close()
            return
        for answer, _, gives_up, _, _ in self._pending:
            if gives_up > now:
                next_check = min(next_check, gives_up)
            elif not answer.done():
                answer.set_exception(self._unknown("did not answer in time"))
        self._set_timer(next_check)

    def data_received(self, data: bytes) -> None:
        """Give each reply to the oldest call."""
        self._reader.feed(data)
        take, pending, replies = self._reader.gets, self._pending, self._replies
        while (reply := take()) is not NOTHING_YET:
            if not pending:  # a reply to no call: this connection cannot be trusted any more
                self.close()
                return
            replies.append(reply)
            answer, count, _, _, _ = pending[0]
            if len(replies) == count:
                pending.popleft()
                if not answer.done():  # a cancelled task's replies are dropped here
                    answer.set_result(replies)
                self._replies = replies = []

    def connection_lost(self, exc: Exception | None) -> None:
        """No call will be answered any more."""
        self._fail(f"closed the connection without an answer{f': {exc}' if exc else ''}")
        self.is_open = False

    def _fail(self, why: str, *, closed: bool = False) -> None:
        self.is_open = False
        while self._pending:
            answer = self._pending.popleft()[0]
            if not answer.done():
                answer.set_exception(ClientClosed(backend=self.label) if closed else self._unknown(why))

    def end(self) -> None:
        """Close it because the client is closed; every call that waits on it raises that."""
        self._fail("", closed=True)
        self.close()

    def _unknown(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(f"{self.label} {why}", backend=self.label)

    def close(self) -> None:
        """Close it."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            if self._loop.is_closed():
                close_without_loop(self._transport)
            else:
                self._transport.abort()


class AsyncioSubscription(AsyncioConnection):
    """A connection for messages."""

    def __init__(self, label: str, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        super().__init__(label)
        self._on_message = on_message
        self._on_lost = on_lost
        self._closed = False

    def data_received(self, data: bytes) -> None:
        """Pass every message on."""
        self._reader.feed(data)
        while (message := self._reader.gets()) is not NOTHING_YET:
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """No waiter must rely on it any more."""
        super().connection_lost(exc)
        if not self._closed:
            self._closed = True
            self._on_lost()

    def close(self) -> None:
        """Receive no more."""
        self._closed = True
        super().close()


class AsyncioRequest:
    """Many commands for one server, a part after the other: calls of other tasks wait for one part only."""

    def __init__(self, wire: AsyncioWire, node: Node, commands: Sequence[bytes], timeout: float, until: float) -> None:
        self._wire = wire
        self._node = node
        self._commands = commands
        self._timeout = timeout
        self._until = until

    async def perform(self) -> list[Any]:
        """Send and wait."""
        replies: list[Any] = []
        for start in range(0, len(self._commands), PART):
            part = self._commands[start : start + PART]
            try:
                replies += await self._wire.ask_part(self._node, b"".join(part), len(part), self._timeout, self._until)
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
        self._shared: dict[Node, AsyncioConnection] = {}
        self._opening: dict[Node, asyncio.Task[AsyncioConnection]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # all that open a connection
        self._alone: dict[Node, list[AsyncioConnection]] = {}
        self._busy: set[AsyncioConnection] = set()  # of those for one call at a time, and those for messages
        self._closed = False

    def left(self, until: float) -> float:
        return until - self._runtime.now()

    def exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float = math.inf, *, alone: bool = False
    ) -> Awaitable[list[Any]]:
        if alone:
            return self._exchange_alone(node, payload, count, timeout, until)
        connection = self._shared.get(node)
        if connection is not None and connection.is_open:
            return self._call(connection, payload, count, timeout, until)
        return self._connect_and_exchange(node, payload, count, timeout, until)

    def ask_part(self, node: Node, payload: bytes, count: int, timeout: float, until: float) -> Awaitable[list[Any]]:
        """A renewal that is sent beside one without an answer would be lost like that: it gets a new connection."""
        shared = self._shared.get(node)
        latest = asyncio.get_running_loop().time() - timeout / OVERDUE
        if shared is not None and shared.is_open and shared.owes_since() <= latest:
            return self._exchange_alone(node, payload, count, timeout, until, anew=True)
        return self.exchange(node, payload, count, timeout, until)

    def _call(
        self, connection: AsyncioConnection, payload: bytes, count: int, timeout: float, until: float
    ) -> asyncio.Future[list[Any]]:
        if until == math.inf:
            return connection.call(payload, count, timeout)
        left = until - self._runtime.now()
        if left <= 0:
            raise no_time(self._label)
        return connection.call(payload, count, timeout, left)

    async def _connect_and_exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float
    ) -> list[Any]:
        return await self._call(await self._connected(node, until), payload, count, timeout, until)

    def request(self, node: Node, commands: Sequence[bytes], timeout: float, until: float = math.inf) -> AsyncioRequest:
        return AsyncioRequest(self, node, commands, timeout, until)

    async def subscribe(
        self, node: Node, on_message: Callable[[Any], None], on_lost: Callable[[], None], until: float = math.inf
    ) -> Subscription:
        subscription = AsyncioSubscription(self._label, on_message, on_lost)
        await self._opened(self._start(self._open(subscription, node)), until)
        self._busy = {other for other in self._busy if other.is_open} | {subscription}
        return subscription

    def drop_connections(self, node: Node) -> None:
        connection = self._shared.pop(node, None)
        if connection is not None:
            connection.close()

    # --- opening

    async def _connected(self, node: Node, until: float) -> AsyncioConnection:
        """The shared connection. A task of its own opens it, so that a caller that leaves does not harm the others."""
        task = self._opening.get(node)
        if task is None:
            task = self._opening[node] = self._start(self._open(AsyncioConnection(self._label), node))
            task.add_done_callback(lambda done: self._shares(node, done))
        return await self._wait_for(task, until)

    def _start(self, opening: Coroutine[Any, Any, AsyncioConnection]) -> asyncio.Task[AsyncioConnection]:
        task = asyncio.get_running_loop().create_task(opening, name="leasehold redis connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self, connection: AsyncioConnection, node: Node) -> AsyncioConnection:
        if self._closed:
            raise ClientClosed(backend=self._label)
        await connection.open(self._dialer, node)
        return connection

    async def _opened(self, task: asyncio.Task[AsyncioConnection], until: float) -> AsyncioConnection:
        """A connection for this caller only."""
        try:
            return await self._wait_for(task, until)
        except BaseException:
            task.cancel()
            task.add_done_callback(_dropped)
            raise

    async def _wait_for(self, task: asyncio.Task[AsyncioConnection], until: float) -> AsyncioConnection:
        await asyncio.wait([task], timeout=None if until == math.inf else max(0.0, self.left(until)))
        if self._closed:
            raise ClientClosed(backend=self._label)
        if not task.done():
            raise no_connection(self._label)
        return task.result()

    def _shares(self, node: Node, task: asyncio.Task[AsyncioConnection]) -> None:
        self._opening.pop(node, None)
        if task.cancelled() or task.exception() is not None:
            return
        if self._closed:
            task.result().close()
        else:
            self._shared[node] = task.result()

    async def _exchange_alone(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float, *, anew: bool = False
    ) -> list[Any]:
        """`anew`: on a connection that is opened for this call; one that was idle may be dead like others."""
        idle = [] if anew else self._alone.setdefault(node, [])
        connection = idle.pop() if idle else None
        if connection is None or not connection.is_open:
            connection = await self._opened(self._start(self._open(AsyncioConnection(self._label), node)), until)
        self._busy.add(connection)
        try:
            replies = await self._call(connection, payload, count, timeout, until)
        except BaseException:
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        if anew or self._closed or len(idle) >= MOST_IDLE:
            connection.close()
        else:
            idle.append(connection)
        return replies

    async def close(self) -> None:
        """Close every connection, and stop opening new ones."""
        self._closed = True
        for connection in [
            *self._shared.values(),
            *self._busy,
            *(connection for idle in self._alone.values() for connection in idle),
        ]:
            connection.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # transports close in the next turn of the loop


def _dropped(task: asyncio.Task[AsyncioConnection]) -> None:
    """It was opened after its caller had left."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
