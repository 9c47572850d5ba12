"""One kazoo client, used for its protocol only: requests out, answers and events in, in the order of the connection.

kazoo does the hosts, TLS, authentication, pings, and taking a session along to another server. Its recipes, its
retries and its worker threads are not used. What is done here by ourselves, and why (ADR 33):

- Answers and events are handled on the connection's own thread, in the order in which they came. An event that arrived
  before an answer is then known before the answer is: what was watched and has not been reported had not changed.
  Nothing is ever *sent* from that thread: kazoo's queue has a limited bell, and would wait for itself.
- The negotiated session timeout is kept; kazoo tells it to nobody.
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
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Create2
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from leasehold.backends.zookeeper.sockets import close_session, open_socket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.spi import Signal

__all__ = ["CreateContainer", "Reply", "Wire"]

logger = logging.getLogger("leasehold.zookeeper")

CLOSE_PATIENCE = 2.0  # how long a goodbye may take
SHORTEST_HOST_PATIENCE = 0.5


class Reply:
    """The answer to one request.

    `first` and `then` run on the connection's thread, before anybody who waits is woken.
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
        except Exception:  # it would end the connection, for everybody
            logger.exception("the answer of a ZooKeeper server could not be noted")
        if self.signal is not None:
            self.signal.set()


class CreateContainer(Create2):  # type: ignore[misc]  # kazoo has no types
    """A node that the ensemble removes by itself once it has had children and has none any more."""

    type = 19
    CONTAINER = 4

    def __new__(cls, path: str, acl: Sequence[Any]) -> CreateContainer:
        """It has no content."""
        return super().__new__(cls, path, b"", acl, cls.CONTAINER)  # type: ignore[no-any-return]  # kazoo has no types


class _Log:
    """What kazoo may log: nothing that shows a request."""

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
        """Even more of them."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's port to threads: without workers, callbacks are run where they come."""

    name = "leasehold"

    def __init__(self, host_patience: float) -> None:
        super().__init__()
        self.host_patience = host_patience
        self.is_connecting = True
        self.is_over = False
        self.close_by: float | None = None  # when to give up a goodbye
        self.socket_in_use: socket.socket | None = None
        self.trouble = ""  # why the last host could not be reached

    def start(self) -> None:
        """No workers are needed."""

    def stop(self) -> None:
        """None have to be stopped."""

    def dispatch_callback(self, callback: Any) -> None:
        """Call it here and now."""
        callback.func(*callback.args)

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        """The thread of the connection."""
        thread = threading.Thread(target=func, args=args, kwargs=kwargs, name="leasehold zookeeper", daemon=True)
        thread.start()
        return thread

    def create_connection(self, address: tuple[str, int], *, timeout: float, **options: Any) -> socket.socket:
        """Connect to the next host, unless this client has come to its end."""
        self._refuse_if_over()
        self.is_connecting = True
        try:
            self.socket_in_use = opened = open_socket(address, timeout=min(timeout, self.host_patience), **options)
        except OSError as error:
            self.trouble = str(error)
            raise
        try:
            self._refuse_if_over()  # it may have come to its end meanwhile: resuming the session would keep it alive
        except AuthFailedError:
            opened.close()
            raise
        return opened

    def _refuse_if_over(self) -> None:
        if self.is_over:
            raise AuthFailedError("the session is over")  # the only error after which kazoo does not try again

    def select(self, rlist: Any, wlist: Any, _: Any, timeout: float | None = None) -> tuple[Any, Any, Any]:
        """Wait for sockets; quicker than making a selector each time, and bounded while connecting or closing."""
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
        limit = self.host_patience if self.is_connecting else None
        if self.close_by is not None:
            limit = self.close_by - time.monotonic()
            if limit <= 0:
                raise self.timeout_exception("saying goodbye took too long")
        if limit is None:
            return timeout
        return limit if timeout is None else min(timeout, limit)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, which tells the negotiated timeout once everything is ready to send."""

    def __init__(self, client: KazooClient, on_ready: Callable[[float], None]) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)  # noqa: SLF001 - as kazoo makes its own
        self._on_ready = on_ready

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout, connect_timeout = super()._connect(host, hostip, port)
        self.handler.is_connecting = False
        self._on_ready(read_timeout * 1.5 / 1000)  # kazoo waits two thirds of the session timeout for an answer
        return read_timeout, connect_timeout


class Wire:
    """One session's connection. `on_ready(timeout)`, `on_state(state)` are called on the connection's thread."""

    def __init__(
        self,
        settings: Settings,
        timeout: float,
        on_ready: Callable[[float], None],
        on_state: Callable[[str], None],
    ) -> None:
        patience = max(SHORTEST_HOST_PATIENCE, timeout / (3 * len(settings.hosts)))
        self._settings = settings
        self._handler = _Handler(patience)
        self._client = KazooClient(
            hosts=settings.address,
            timeout=timeout + 0.0005,  # kazoo cuts off what is less than a millisecond
            handler=self._handler,
            auth_data=list(settings.auth),
            logger=_Log(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.02, max_delay=min(1.0, timeout / 20)),
            **settings.kazoo_options,
        )
        self._client._connection = _Connection(self._client, on_ready)  # noqa: SLF001 - kazoo has no way to give it one
        self._client.add_listener(on_state)

    def start(self) -> None:
        """Begin to connect; not from a thread on which signal handlers run, because it starts another thread."""
        self._client.start_async()

    @property
    def session_id(self) -> int | None:
        """The ensemble's number for this session."""
        client_id = self._client.client_id
        return None if client_id is None else client_id[0]

    @property
    def last_zxid(self) -> int:
        """The highest transaction number seen on this connection."""
        return int(self._client.last_zxid)

    @property
    def trouble(self) -> str:
        """Why no host could be reached, in the words of the operating system."""
        return self._handler.trouble

    @property
    def is_refused(self) -> bool:
        """Whether the ensemble did not accept who we are."""
        return self._client.client_state == KeeperState.AUTH_FAILED and not self._handler.is_over

    def send(self, request: Any, reply: Reply) -> None:
        """Put a request into the queue of the connection."""
        self._client._call(request, reply)  # noqa: SLF001 - the public methods wrap each answer in two more objects

    def end(self) -> None:
        """Never connect again; what is connected stays so."""
        self._handler.is_over = True

    def cut(self) -> None:
        """Drop the connection, as a broken network would."""
        sock = self._handler.socket_in_use
        if sock is not None:
            with suppress(OSError):  # it is gone already
                sock.shutdown(SHUT_RDWR)

    def close_elsewhere(self) -> None:
        """Ask the ensemble to close the session, over a connection that is made for this alone."""
        session = (self._client._session_id, self._client._session_passwd)  # noqa: SLF001 - public while connected only
        options = {name: value for name, value in self._settings.kazoo_options.items() if name != "randomize_hosts"}
        if session[0]:
            close_session(self._settings.hosts, session, self._handler.host_patience, **options)

    def close(self, *, goodbye: bool) -> None:
        """End the thread; with a goodbye the session ends now, without one when its timeout is over."""
        if not goodbye:
            self.end()
            self.cut()
        self._handler.close_by = time.monotonic() + CLOSE_PATIENCE
        self._client.stop()
        self._client.close()
