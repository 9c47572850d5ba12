"""The asyncio wire: one connection, shared by all tasks and by notifications.

Every answer carries the number of its request, so a task that is cancelled or has less time than others just leaves:
its answer finds no receiver. A connection on which nothing at all arrived while a request waited its full time is
closed, and every request that waits on it ends with it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold._backends.nats.connection import CONNECT_LIMIT, Greeting, Inbox, Servers, tls_context
from leasehold._backends.nats.errors import could_not_connect, from_server, lost, no_time
from leasehold._backends.nats.notifications import Watches
from leasehold._backends.nats.wire import PING, PONG, Parser, subscribe, unsubscribe
from leasehold.errors import BackendError, ClientClosed, OutcomeUnknown
from leasehold.kit.asyncio_waits import close_without_loop
from leasehold.kit.openings import no_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.nats.options import Options
    from leasehold._backends.nats.wire import Frame, Request
    from leasehold.spi import Runtime

__all__ = ["AsyncioWire"]

CHUNK = 65_536
PATIENCE = 1.0  # how long a waiter waits for its notifications to begin
PAUSE = 0.2  # between attempts to connect again while there are watches


class AsyncioConnection:
    """One connection, with a task that receives."""

    def __init__(self, options: Options, host: tuple[str, int], runtime: Runtime, watches: Watches) -> None:
        self.host = host
        self.label = options.label
        self.is_open = False
        self.answered_at = -math.inf
        self._options = options
        self._runtime = runtime
        self._watches = watches
        self._parser = Parser()
        self._inbox = Inbox(runtime.owner())
        self._pending: dict[str, tuple[str, asyncio.Future[Frame]]] = {}  # the subject of each request, by its reply
        self._confirmations: deque[asyncio.Future[None]] = deque()  # for each PING that was sent, in order
        self.info: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Connect and log in."""
        greeting = Greeting(self._options, self._inbox)
        async with asyncio.timeout(min(CONNECT_LIMIT, self._options.answer_timeout)):
            self._reader, self._writer = await asyncio.open_connection(*self.host)
            try:
                greeting.begin(await self._reader.readline())
                context = tls_context(self._options)
                if context is not None:
                    await self._writer.start_tls(context, server_hostname=self.host[0])
                self._writer.write(greeting.hello())
                while not greeting.done:
                    for frame in self._parser.feed(await self._read()):
                        greeting.take(frame)
            except BaseException:
                self._writer.close()
                raise
        self.info = greeting.info
        self.is_open = True

    async def _read(self) -> bytes:
        try:
            data = await self._reader.read(CHUNK)
        except OSError as error:
            raise lost(self.label, f"the connection broke: {error}") from None
        if not data:
            raise lost(self.label, "the server closed the connection")
        return data

    def send(self, requests: Sequence[Request]) -> dict[str, asyncio.Future[Frame]]:
        """Send all; a future for each answer, by its subject."""
        loop = asyncio.get_running_loop()
        replies, payload = self._inbox.address(requests)
        futures = {reply: loop.create_future() for reply in replies}
        for reply, request in zip(replies, requests, strict=True):
            self._pending[reply] = (request.subject, futures[reply])
        self._writer.write(payload)
        return futures

    def forget(self, replies: Sequence[str]) -> None:
        """Their caller is gone."""
        for reply in replies:
            self._pending.pop(reply, None)

    def confirmed(self, payload: bytes) -> asyncio.Future[None]:
        """Send; the future ends when the server has processed it."""
        future = asyncio.get_running_loop().create_future()
        self._confirmations.append(future)
        self._writer.write(payload + PING)
        return future

    def write(self, payload: bytes) -> None:
        """Send."""
        if self.is_open:
            self._writer.write(payload)

    async def receive(self) -> None:
        """Deliver what arrives, until the connection ends."""
        error: Exception = lost(self.label, "the connection was closed")
        try:
            while True:
                data = await self._read()
                self.answered_at = self._runtime.now()
                for frame in self._parser.feed(data):
                    self._take(frame)
        except OutcomeUnknown as ended:
            error = ended
        finally:
            self.close(error)

    def _take(self, frame: Frame) -> None:
        if frame.kind == "MSG":
            _, future = self._pending.get(frame.subject, ("", None))
            if future is None:
                self._watches.deliver(frame.number)
            elif not future.done():
                future.set_result(frame)
        elif frame.kind == "PING":
            self._writer.write(PONG)
        elif frame.kind == "PONG" and self._confirmations:
            _finish(self._confirmations.popleft())
        elif frame.kind == "-ERR":
            self._refused(frame.body.decode(errors="replace"))

    def _refused(self, text: str) -> None:
        """The server names the subject that this user may not publish to."""
        error = from_server(text, self.label)
        for subject, future in list(self._pending.values()):
            if error is not None and f'"{subject}"' in text and not future.done():
                future.set_exception(error)

    def close(self, error: Exception | None = None) -> None:
        """Close it; every request that waits gets the error."""
        self.is_open = False
        if self._loop.is_closed():
            close_without_loop(self._writer.transport)
        else:
            self._writer.close()
        for _, future in list(self._pending.values()):
            if not future.done():
                future.set_exception(error or lost(self.label, "the connection was closed"))
        while self._confirmations:
            _finish(self._confirmations.popleft())


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncioWire:
    """The connection for one event loop."""

    def __init__(self, options: Options, runtime: Runtime) -> None:
        self._options = options
        self._runtime = runtime
        self._label = options.label
        self._servers = Servers(options.hosts)
        self._watches = Watches()
        self._connection: AsyncioConnection | None = None
        self._opening: asyncio.Task[AsyncioConnection] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.info: dict[str, Any] = {}
        self.closed = False

    async def request(self, requests: Sequence[Request], until: float) -> list[Frame]:
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._open(until)
        if self.closed:
            raise ClientClosed(backend=self._label)
        sent = self._runtime.now()
        limit = min(until, sent + self._options.answer_timeout)
        if limit <= sent:
            raise no_time(self._label)
        answers = connection.send(requests)
        try:
            done, _ = await asyncio.wait(answers.values(), timeout=limit - sent, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            connection.forget(list(answers))
        errors = [future.exception() for future in done]  # of all, so that none is reported as never retrieved
        if self.closed:
            raise ClientClosed(backend=self._label)
        for error in filter(None, errors):
            raise error
        if len(done) == len(answers):
            return [future.result() for future in answers.values()]
        if until >= sent + self._options.answer_timeout and connection.answered_at < sent:
            self._servers.failed(connection.host)
            connection.close()
        raise lost(self._label, "no answer in time")

    async def watch(self, subject: str, changed: Callable[[], None]) -> Callable[[], None]:
        number = self._watches.add(subject, changed)
        connection = self._connection
        try:
            if connection is None or not connection.is_open:
                connection = await self._open(self._runtime.now() + PATIENCE)
            await asyncio.wait([connection.confirmed(subscribe(subject, number))], timeout=PATIENCE)
        except BackendError:
            self._keep_open()
        except BaseException:
            self._end(number)
            raise
        return lambda: self._end(number)

    def _end(self, number: int) -> None:
        if self._watches.remove(number) and self._connection is not None:
            self._connection.write(unsubscribe(number))

    async def close(self) -> None:
        """Close the connection, and stop opening new ones."""
        self.closed = True
        if self._connection is not None:
            self._connection.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # transports close in the next turn of the loop

    # --- opening

    async def _open(self, until: float) -> AsyncioConnection:
        """A new connection, if there is one in time; tasks that need one at once share it."""
        if self.closed:
            raise ClientClosed(backend=self._label)
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._connect(), name="leasehold nats connection")
            self._keep(self._opening)
        opening = self._opening
        timeout = None if until == math.inf else max(0.0, until - self._runtime.now())
        await asyncio.wait([opening], timeout=timeout)
        if self.closed:
            raise ClientClosed(backend=self._label)
        if not opening.done():
            raise no_connection(self._label)
        return opening.result()

    async def _connect(self) -> AsyncioConnection:
        """A connection to the first server that answers."""
        error: Exception = no_connection(self._label)
        for host in self._servers:
            connection = AsyncioConnection(self._options, host, self._runtime, self._watches)
            try:
                await connection.open()
            except (OSError, BackendError) as failure:
                error = failure
                self._servers.failed(host)
                continue
            self._connection = connection
            self.info = connection.info
            connection.write(self._watches.subscriptions())
            self._watches.notify_all()  # changes since the last connection were missed
            loop = asyncio.get_running_loop()
            self._keep(loop.create_task(self._receive(connection), name="leasehold nats answers"))
            return connection
        raise could_not_connect(error, self._label) from None

    async def _receive(self, connection: AsyncioConnection) -> None:
        await connection.receive()
        self._servers.failed(connection.host)
        self._keep_open()

    def _keep_open(self) -> None:
        """Watches need a connection even while no request is sent."""
        if len(self._watches) and not self.closed:
            self._keep(asyncio.get_running_loop().create_task(self._reopen(), name="leasehold nats connection"))

    async def _reopen(self) -> None:
        while len(self._watches) and not self.closed and (self._connection is None or not self._connection.is_open):
            with suppress(BackendError, ClientClosed):
                await self._open(math.inf)
                return
            await asyncio.sleep(PAUSE)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        """The loop itself knows tasks only weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the callers that wait for the connection raise it
