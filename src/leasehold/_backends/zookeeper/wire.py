"""The connection of one session: requests out, answers and events in, in the order of the connection.

`Wire` is what a session takes for that, and `KazooWire` is one kazoo client, used for its protocol only; the
simulation has a wire of its own (ADR 125). kazoo does the hosts, TLS, authentication, pings, and moving a session to
another server. Its recipes, its retries and its worker threads are not used. What is done here instead, and why (ADR
33):

- Answers and events are handled on the connection's own thread, in the order in which they arrived. An event that
  arrived before an answer is then known before the answer is: what is watched and was not reported had not changed.
  Nothing is ever *sent* from that thread: kazoo's queue wakes it through a pipe of limited size, and it would wait for
  itself.
- The negotiated session timeout is kept; kazoo has no public name for it.
- A session that ended is never followed by another one of the same client, so that no request meant for the old one is
  done in the new one.
- A host that does not answer costs a part of the session timeout, not the whole of it.
- Nothing is logged below INFO: kazoo's debug lines show passwords and every node.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from contextlib import suppress
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Create2
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from leasehold._backends.zookeeper.connection import close_session, open_socket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from leasehold._backends.zookeeper.options import Options
    from leasehold.spi import Signal

__all__ = ["EPHEMERAL_SEQUENTIAL", "CreateContainer", "KazooWire", "OpenWire", "Reply", "Wire"]

logger = logging.getLogger("leasehold.zookeeper")

EPHEMERAL_SEQUENTIAL = 3  # the kind of node that `Create2` makes
CLOSE_TIMEOUT = 2.0  # how long the request to close a session may take
SHORTEST_HOST_TIMEOUT = 0.5


class Reply:
    """The answer to one request.

    `first` and `then` run on the connection's thread, before a waiting caller is woken.
    """

    __slots__ = ("done", "error", "first", "sent", "signal", "then", "value")

    def __init__(
        self,
        sent: float,
        signal: Signal | None,
        then: Callable[[Reply], None] | None,
        first: Callable[[Reply], None],
    ) -> None:
        self.sent = sent
        self.signal = signal
        self.then = then
        self.first = first
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None

    def set(self, value: Any = None) -> None:
        """The server has answered."""
        self.value = value
        self._finish()

    def set_exception(self, error: Exception) -> None:
        """The server has refused, or no answer will come."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
        if self.done:
            return
        self.done = True
        try:
            self.first(self)
            if self.then is not None:
                self.then(self)
        except Exception:  # it would end the connection, for all claims of the session
            logger.exception("the answer of a ZooKeeper server could not be processed; please report this")
        if self.signal is not None:
            self.signal.set()


class CreateContainer(Create2):  # type: ignore[misc]  # kazoo has no types
    """The creation of a node that the ensemble removes once it has had children and has none any more."""

    type = 19
    CONTAINER = 4

    def __new__(cls, path: str, acl: Sequence[Any]) -> CreateContainer:
        """Without data."""
        return super().__new__(cls, path, b"", acl, cls.CONTAINER)  # type: ignore[no-any-return]  # kazoo has no types


class _Log:
    """The logger for kazoo: no line that shows a request."""

    def __init__(self) -> None:
        self.info, self.warning, self.error, self.exception = (
            logger.debug,
            logger.info,
            logger.warning,
            logger.exception,
        )
        self.warn = self.warning

    def debug(self, *_: object) -> None:
        """Requests and answers."""

    def log(self, *_: object) -> None:
        """The same, at levels of kazoo's own."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's port to threads, without workers: callbacks run on the connection's thread."""

    name = "leasehold"

    def __init__(self, host_timeout: float) -> None:
        super().__init__()
        self.host_timeout = host_timeout
        self.is_connecting = True
        self.is_over = False
        self.close_by: float | None = None  # the deadline of the request to close the session
        self.socket_in_use: socket.socket | None = None
        self.connect_failure = ""  # why the last host could not be reached

    def start(self) -> None:
        """There are no workers to start."""

    def stop(self) -> None:
        """There are no workers to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        """Run it here and now."""
        callback.func(*callback.args)

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        """The thread of the connection."""
        thread = threading.Thread(target=func, args=args, kwargs=kwargs, name="leasehold zookeeper", daemon=True)
        thread.start()
        return thread

    def create_connection(self, address: tuple[str, int], *, timeout: float, **options: Any) -> socket.socket:
        """Connect to the next host, unless the session is over."""
        self._refuse_if_over()
        self.is_connecting = True
        try:
            self.socket_in_use = opened = open_socket(address, timeout=min(timeout, self.host_timeout), **options)
        except OSError as error:
            self.connect_failure = str(error)
            raise
        try:
            self._refuse_if_over()  # it may have ended meanwhile: resuming the session would keep its nodes alive
        except AuthFailedError:
            opened.close()
            raise
        return opened

    def _refuse_if_over(self) -> None:
        if self.is_over:
            raise AuthFailedError("the session is over")  # the only error after which kazoo does not try again

    def select(self, rlist: Any, wlist: Any, _: Any, timeout: float | None = None) -> tuple[Any, Any, Any]:
        """Wait for sockets; faster than a new selector each time, and bounded while connecting or closing."""
        decrypted = [sock for sock in rlist if hasattr(sock, "pending") and sock.pending()]
        if decrypted:
            return decrypted, [], []
        timeout = self._bounded(timeout)
        if not hasattr(select, "poll"):  # Windows
            return super().select(rlist, wlist, [], timeout)  # type: ignore[no-any-return]  # kazoo has no types
        poller = select.poll()
        for sock in rlist:
            poller.register(sock, select.POLLIN)
        for sock in wlist:
            poller.register(sock, select.POLLOUT)
        ready = {file for file, _ in poller.poll(None if timeout is None else timeout * 1000)}
        return (
            [sock for sock in rlist if sock.fileno() in ready],
            [sock for sock in wlist if sock.fileno() in ready],
            [],
        )

    def _bounded(self, timeout: float | None) -> float | None:
        limit = self.host_timeout if self.is_connecting else None
        if self.close_by is not None:
            limit = self.close_by - time.monotonic()
            if limit <= 0:
                raise self.timeout_exception("the request to close the session took too long")
        if limit is None:
            return timeout
        return limit if timeout is None else min(timeout, limit)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, which passes the negotiated timeout to `on_ready` once requests can be sent."""

    def __init__(self, client: KazooClient, on_ready: Callable[[float], None]) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)  # noqa: SLF001 - as kazoo makes its own
        self._on_ready = on_ready

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout, connect_timeout = super()._connect(host, hostip, port)
        self.handler.is_connecting = False
        self._on_ready(read_timeout * 1.5 / 1000)  # kazoo waits two thirds of the session timeout for an answer
        return read_timeout, connect_timeout


class Wire(Protocol):
    """One session's connection. What it tells, it tells on a thread of its own, in the order of the connection."""

    @property
    def send(self) -> Callable[[Any, Reply], None]:
        """Put a request into the queue of the connection. A plain attribute: it is called for every request."""

    def start(self) -> None:
        """Begin to connect; not from a thread on which signal handlers run, because it may start another thread."""

    @property
    def session_id(self) -> int | None:
        """The ensemble's number for this session."""

    @property
    def last_zxid(self) -> int:
        """The highest transaction number seen on this connection."""

    @property
    def connect_failure(self) -> str:
        """Why no host could be reached."""

    @property
    def is_refused(self) -> bool:
        """Whether the ensemble refused the credentials."""

    def end(self) -> None:
        """Never connect again; an open connection stays open."""

    def cut(self) -> None:
        """Drop the connection, as a broken network would."""

    def close_elsewhere(self) -> None:
        """After `end`: begin to send the request to close the session over a new connection, made for this alone."""

    def close(self, *, notify: bool) -> None:
        """End the connection; if the ensemble is notified, the session ends now, else when its timeout is over."""


class OpenWire(Protocol):
    """Makes the connection of a session. `on_ready(timeout)` and `on_state(state)` are called as the `Wire` tells."""

    def __call__(
        self,
        options: Options,
        timeout: float,
        on_ready: Callable[[float], None],
        on_state: Callable[[str], None],
        /,
    ) -> Wire: ...


class KazooWire:
    """A kazoo client. `on_ready` and `on_state` are called on the connection's thread."""

    def __init__(
        self,
        options: Options,
        timeout: float,
        on_ready: Callable[[float], None],
        on_state: Callable[[str], None],
    ) -> None:
        self._options = options
        self._ended = (0, b"")  # number and password of the session that `end` was called for
        self._handler = _Handler(max(SHORTEST_HOST_TIMEOUT, timeout / (3 * len(options.hosts))))
        self._client = KazooClient(
            hosts=options.address,
            timeout=timeout + 0.0005,  # kazoo cuts off what is less than a millisecond
            handler=self._handler,
            auth_data=list(options.auth),
            logger=_Log(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.02, max_delay=min(1.0, timeout / 20)),
            **options.kazoo_options,
        )
        self._client._connection = _Connection(self._client, on_ready)  # noqa: SLF001 - kazoo has no way to give it one
        self._client.add_listener(on_state)
        self.send: Callable[[Any, Reply], None] = self._client._call  # noqa: SLF001 - its public methods wrap each answer twice

    def start(self) -> None:
        self._client.start_async()

    @property
    def session_id(self) -> int | None:
        number: int | None = self._client._session_id  # noqa: SLF001 - the public name loses it with each connection
        return number

    @property
    def last_zxid(self) -> int:
        return int(self._client.last_zxid)

    @property
    def connect_failure(self) -> str:
        """Why no host could be reached, as the operating system describes it."""
        return self._handler.connect_failure

    @property
    def is_refused(self) -> bool:
        return self._client.client_state == KeeperState.AUTH_FAILED and not self._handler.is_over

    def end(self) -> None:
        if not self._handler.is_over:  # kazoo forgets the session as soon as it finds out
            self._ended = (self._client._session_id or 0, self._client._session_passwd)  # noqa: SLF001 - public while connected only
        self._handler.is_over = True

    def cut(self) -> None:
        sock = self._handler.socket_in_use
        if sock is not None:
            with suppress(OSError):  # it is gone already
                sock.shutdown(SHUT_RDWR)

    def close_elsewhere(self) -> None:
        """Runs on a thread of its own: each host may take its time."""
        threading.Thread(target=self._close_elsewhere, name="leasehold zookeeper end", daemon=True).start()

    def _close_elsewhere(self) -> None:
        number, password = self._ended
        if number:
            session, timeout = (number, password), self._handler.host_timeout
            close_session(self._options.hosts, session, timeout, **self._options.socket_options)

    def close(self, *, notify: bool) -> None:
        """Ends kazoo's thread as well."""
        if not notify:
            self.end()
            self.cut()
        self._handler.close_by = time.monotonic() + CLOSE_TIMEOUT
        self._client.stop()
        self._client.close()
