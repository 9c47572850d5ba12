"""The blocking wire: a few plain sockets, each used by one thread at a time, and one more for notifications.

A connection whose exchange was interrupted is closed and never used again.
"""

from __future__ import annotations

import socket
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from ssl import SSLWantReadError
from typing import TYPE_CHECKING, Any

from leasehold._backends.nats.connection import CONNECT_LIMIT, Greeting, Inbox, Servers, tls_context
from leasehold._backends.nats.errors import could_not_connect, from_server, lost, no_time
from leasehold._backends.nats.notifications import Watches
from leasehold._backends.nats.wire import PING, PONG, Parser, subscribe, unsubscribe
from leasehold.errors import BackendError, ClientClosed, OutcomeUnknown
from leasehold.kit.openings import Openings, no_connection
from leasehold.kit.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leasehold._backends.nats.options import Options
    from leasehold._backends.nats.wire import Frame, Request
    from leasehold.spi import Runtime, Signal

__all__ = ["BlockingWire"]

CHUNK = 65_536
MOST_IDLE = 8  # connections kept for later; more are opened while more threads need one at once
SHORTEST = 0.001  # a socket takes 0 for "do not wait"
PROBE_EVERY = 2.0  # the listener's connection is dead if it is silent for twice as long
PATIENCE = 1.0  # how long a waiter waits for its notifications to begin
PAUSE = 0.2  # between attempts to connect the listener again


class BlockingConnection:
    """One connection; it belongs to one thread at a time, except for `send` under the guard of the listener."""

    def __init__(self, options: Options, host: tuple[str, int], runtime: Runtime) -> None:
        self.host = host
        self.label = options.label
        self._now = runtime.now
        self._parser = Parser()
        self._inbox = Inbox(runtime.owner())
        greeting = Greeting(options, self._inbox)
        deadline = self._now() + min(CONNECT_LIMIT, options.answer_timeout)
        self._socket = socket.create_connection(host, min(CONNECT_LIMIT, options.answer_timeout))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greeting.begin(self._first_line())
            context = tls_context(options)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host[0])
            self._socket.sendall(greeting.hello())
            while not greeting.done:
                for frame in self.frames(deadline):
                    greeting.take(frame)
        except BaseException:
            self._socket.close()
            raise
        self.info = greeting.info

    def _first_line(self) -> bytes:
        """Byte by byte: what follows may belong to TLS."""
        line = b""
        while not line.endswith(b"\n") and len(line) < CHUNK and (byte := self._socket.recv(1)):
            line += byte
        return line

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Frame]:
        """Send all, and wait for the answer to each."""
        replies, payload = self._inbox.address(requests)
        answers: dict[str, Frame] = {}
        self.send(payload, deadline)
        try:
            while len(answers) < len(replies):
                for frame in self.frames(deadline):
                    self._check(frame)
                    if frame.subject in replies:
                        answers[frame.subject] = frame
        except TimeoutError:
            raise lost(self.label, "no answer in time") from None
        return [answers[reply] for reply in replies]

    def _check(self, frame: Frame) -> None:
        refusal = from_server(frame.body.decode(errors="replace"), self.label) if frame.kind == "-ERR" else None
        if refusal is not None:
            raise refusal

    def send(self, payload: bytes, deadline: float) -> None:
        """Send without waiting for an answer."""
        try:
            self._socket.settimeout(max(deadline - self._now(), SHORTEST))
            self._socket.sendall(payload)
        except OSError as error:
            raise lost(self.label, f"the connection broke while sending: {error}") from None

    def frames(self, deadline: float) -> Iterator[Frame]:
        """Wait for more bytes, and answer the server's PING; `TimeoutError` if none came."""
        try:
            self._socket.settimeout(max(deadline - self._now(), SHORTEST))
            data = self._socket.recv(CHUNK)
        except TimeoutError:
            raise
        except OSError as error:
            raise lost(self.label, f"the connection broke: {error}") from None
        if not data:
            raise lost(self.label, "the server closed the connection")
        for frame in self._parser.feed(data):
            if frame.kind == "PING":
                self.send(PONG, deadline)
            yield frame

    def is_alive(self) -> bool:
        """Read what came while it was idle: the server's PING wants its PONG, and its end shows."""
        try:
            while True:
                self._socket.settimeout(0)
                data = self._socket.recv(CHUNK)
                if not data:
                    return False
                for frame in self._parser.feed(data):
                    if frame.kind == "PING":
                        self.send(PONG, self._now() + SHORTEST)
        except (BlockingIOError, SSLWantReadError):
            return True
        except (OSError, OutcomeUnknown):
            return False

    def interrupt(self) -> None:
        """Wake the thread that waits on it, which closes it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self.interrupt()
        self._socket.close()


class BlockingWire:
    """Connections for threads."""

    def __init__(self, options: Options, runtime: Runtime) -> None:
        self._options = options
        self._runtime = runtime
        self._label = options.label
        self._guard = runtime.guard()
        self._servers = Servers(options.hosts)
        self._idle: deque[BlockingConnection] = deque()
        self._connections: dict[int, weakref.ref[BlockingConnection]] = {}  # idle or in use
        self._openings = Openings[BlockingConnection](runtime, self._label)
        self._listener = Listener(self, runtime)
        self.info: dict[str, Any] = {}
        self.closed = False

    async def request(self, requests: Sequence[Request], until: float) -> list[Frame]:
        self._refuse_closed()
        connection = self._take() or await self._openings.open(self.connect, self._give_back, until)
        now = self._runtime.now()
        if until <= now:
            self._give_back(connection)
            raise no_time(self._label)
        try:
            answers = connection.exchange(requests, min(until, now + self._options.answer_timeout))
        except BaseException as error:
            connection.close()
            if isinstance(error, OutcomeUnknown):
                self._broke(connection)
            raise
        self._give_back(connection)
        return answers

    async def watch(self, subject: str, changed: Callable[[], None]) -> Callable[[], None]:
        return await self._listener.watch(subject, changed)

    async def close(self) -> None:
        """Close what is idle, and interrupt the rest: each is closed by the thread that uses it."""
        self.closed = True
        self._openings.close()
        self._drop_idle()
        for known in tuple(self._connections.values()):
            connection = known()
            if connection is not None:
                connection.interrupt()
        await self._listener.close()

    def _refuse_closed(self) -> None:
        if self.closed:
            raise ClientClosed(backend=self._label)

    # --- opening

    def connect(self) -> BlockingConnection:
        """A new connection to the first server that answers; takes its time, so no caller with a deadline calls it."""
        error: Exception = no_connection(self._label)
        for host in self._servers:
            self._refuse_closed()
            try:
                connection = BlockingConnection(self._options, host, self._runtime)
            except (OSError, BackendError) as failure:
                error = failure
                self._servers.failed(host)
                continue
            number = id(connection)
            self._connections[number] = weakref.ref(connection, partial(self._forget, number))
            self.info = connection.info
            return connection
        raise could_not_connect(error, self._label) from None

    def _forget(self, number: int, _: object) -> None:
        self._connections.pop(number, None)

    # --- idle connections

    def _take(self) -> BlockingConnection | None:
        """An idle connection; the one used last, which is the likeliest to be alive."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_alive():
                return connection
            connection.close()

    def _give_back(self, connection: BlockingConnection) -> None:
        if self.closed or len(self._idle) >= MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def _broke(self, connection: BlockingConnection) -> None:
        """It died: those to the same server most likely died too, and another server may be better."""
        self._refuse_closed()
        self._servers.failed(connection.host)
        self._drop_idle()

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class Listener:
    """The connection for notifications, served by a worker as long as there is something to watch."""

    def __init__(self, wire: BlockingWire, runtime: Runtime) -> None:
        self._wire = weakref.ref(wire)  # a client that is dropped unclosed ends the worker
        self._runtime = runtime
        self._guard = runtime.guard()
        self._watches = Watches()
        self._connection: BlockingConnection | None = None
        self._confirmations: deque[Signal] = deque()  # for each PING that was sent, in order
        self._worker = Worker(runtime, self._listen, "leasehold nats notifications", is_needed=self._is_needed)

    async def watch(self, subject: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Waits for the server's confirmation, but not for long."""
        number = self._watches.add(subject, changed)
        confirmed = self._runtime.signal()
        with self._guard:
            self._send(subscribe(subject, number), confirmed)
        self._worker.start()
        await self._runtime.wait(confirmed, self._runtime.now() + PATIENCE)
        return lambda: self._end(number)

    async def close(self) -> None:
        """End the worker; the wire has interrupted its connection."""
        await self._worker.close()

    def _end(self, number: int) -> None:
        if self._watches.remove(number):
            with self._guard:
                self._send(unsubscribe(number), None)

    def _send(self, payload: bytes, confirmed: Signal | None) -> None:
        """Called under the guard. Without a connection nothing is sent: a new one begins with all subscriptions."""
        if confirmed is not None:
            self._confirmations.append(confirmed)
            payload += PING
        if self._connection is not None:
            with suppress(OutcomeUnknown):  # the worker notices that too
                self._connection.send(payload, self._runtime.now() + PATIENCE)

    def _is_needed(self) -> bool:
        wire = self._wire()
        return wire is not None and not wire.closed and len(self._watches) > 0

    async def _listen(self) -> None:
        while self._is_needed():
            connection = await self._connect()
            if connection is None:
                await self._runtime.sleep(PAUSE)
                continue
            try:
                self._serve(connection)
            except OutcomeUnknown:
                pass  # the connection ended
            finally:
                self._connection = None
                connection.close()

    async def _connect(self) -> BlockingConnection | None:
        wire = self._wire()
        try:
            return None if wire is None else wire.connect()
        except (BackendError, ClientClosed):
            return None

    def _serve(self, connection: BlockingConnection) -> None:
        with self._guard:
            self._connection = connection
            pings = PING * len(self._confirmations)  # of the connection before, or for this one
            self._send(self._watches.subscriptions() + pings, self._runtime.signal())
        self._watches.notify_all()  # changes since the last connection were missed
        probed = False
        while self._is_needed():
            try:
                for frame in connection.frames(self._runtime.now() + PROBE_EVERY):
                    self._take(frame)
                probed = False
            except TimeoutError:
                if probed:
                    return
                probed = True
                with self._guard:
                    self._send(b"", self._runtime.signal())

    def _take(self, frame: Frame) -> None:
        if frame.kind == "MSG":
            self._watches.deliver(frame.number)
        elif frame.kind == "PONG":
            with suppress(IndexError):
                self._confirmations.popleft().set()
