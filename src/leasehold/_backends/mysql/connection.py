"""One connection, one query at a time. It decides nothing about locks and never sends a query twice.

PyMySQL makes the connection (addresses, TLS, authentication), on a thread of its own because it blocks; then its socket
is used directly, without blocking: see `packets`. How to wait for a socket is all that differs between threads and
asyncio.
"""

from __future__ import annotations

import math
import secrets
import select
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT

from leasehold._backends.mysql import errors
from leasehold._backends.mysql.packets import AnswerReader, query_packet
from leasehold.errors import ConfigurationError, OutcomeUnknown
from leasehold.kit.waits import shut_down

if TYPE_CHECKING:
    from leasehold._backends.mysql.options import MysqlOptions
    from leasehold._backends.mysql.packets import Answer
    from leasehold.kit.options import TLSFiles
    from leasehold.kit.waits import Waits
    from leasehold.spi import Runtime

__all__ = ["Connection", "dial"]

CHUNK = 65536
_WAIT = (BlockingIOError, ssl.SSLWantReadError)


class Link:
    """The stream of a connection, and what is under way on it."""

    __slots__ = ("descriptor", "driver", "number", "reader", "stream")

    def __init__(self, driver: Any) -> None:
        self.driver = driver  # referred to, because PyMySQL closes what is collected
        self.stream: socket.socket = driver._sock  # noqa: SLF001 - see the head of this file
        self.stream.setblocking(False)  # noqa: FBT003 - the standard library's own
        self.descriptor: int = self.stream.fileno()  # negative once it is closed
        self.number: int = driver.thread_id()  # of the session, from the greeting of the server
        self.reader: AnswerReader | None = None  # of a query that was sent and not answered yet


class Connection:
    """One connection, used by one call at a time."""

    __slots__ = (
        "__weakref__",
        "_label",
        "_link",
        "_runtime",
        "_timeout",
        "_waits",
        "idle_since",
        "is_direct",
        "number",
        "slot",
    )

    def __init__(self, link: Link, waits: Waits, runtime: Runtime, label: str, timeout: float) -> None:
        self._link = link
        self._waits = waits
        self._runtime = runtime
        self._label = label
        self._timeout = timeout
        self.number = link.number
        self.is_direct = False  # known to have no proxy in between that changes servers from query to query
        self.idle_since = 0.0
        self.slot: Any = None  # belongs to the pool that it came from

    async def query(self, text: bytes, until: float = math.inf, *, patience: float | None = None) -> Answer:
        """Send one query and wait for its answer, at the longest until `until`; the answer may be a server's error.

        Raises `OutcomeUnknown` when no answer came. After that, and after any other exception, the connection must be
        closed: the next answer on it belongs to this call.
        """
        deadline = min(self._runtime.now() + (self._timeout if patience is None else patience), until)
        self._link.reader = AnswerReader()
        try:
            await self._send(query_packet(text), deadline)
            answer = await self._receive(self._link.reader, deadline)
        except (OSError, IndexError, KeyError) as error:  # the latter: not an answer of this protocol
            raise errors.lost(error, self._label) from None
        self._link.reader = None
        return answer

    async def _send(self, packet: bytes, deadline: float) -> None:
        while packet:
            try:
                packet = packet[self._link.stream.send(packet) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                if not await self._waits.writable(self._link.descriptor, deadline - self._runtime.now()):
                    raise errors.lost(None, self._label) from None

    async def _receive(self, reader: AnswerReader, deadline: float) -> Answer:
        waited = False  # an answer is not there at once: wait before the first try, unless TLS may have kept some
        while True:
            if waited or isinstance(self._link.stream, ssl.SSLSocket):
                try:
                    data = self._link.stream.recv(CHUNK)
                except _WAIT:
                    data = None
                if data == b"":
                    raise ConnectionError("the server closed the connection")
                if data is not None and (answer := reader.feed(data)) is not None:
                    return answer
                if data is not None and len(data) == CHUNK:
                    continue
            if not await self._waits.readable(self._link.descriptor, deadline - self._runtime.now()):
                raise errors.lost(None, self._label)
            waited = True

    def is_usable(self) -> bool:
        """Whether the server has not ended the connection while it was idle. Sends nothing."""
        return self._link.reader is None and not self.is_broken() and self._is_quiet()

    def _is_quiet(self) -> bool:
        try:
            if not _has_input(self._link.descriptor):
                return True
            self._link.stream.recv(1, 0 if isinstance(self._link.stream, ssl.SSLSocket) else socket.MSG_PEEK)
        except _WAIT:  # a message of TLS itself
            return True
        except (OSError, ValueError):
            return False
        return False

    async def recovers(self, until: float = math.inf) -> bool:
        """Read what an interrupted call left behind; False if the connection has failed.

        Whether that call had sent its query is not known: it may have been interrupted on either side of that. So a
        query of our own is sent, and all answers are read until its own.
        """
        if self._link.reader is not None and not self.is_broken():
            try:
                await self._read_up(min(self._runtime.now() + self._timeout, until))
            except OutcomeUnknown as unknown:
                raise errors.unanswered(unknown, self._label) from None
            except (OSError, IndexError, KeyError):
                return False
        return self.is_usable()

    async def _read_up(self, deadline: float) -> None:
        mark = secrets.token_hex(8).encode()
        await self._send(query_packet(b"SELECT '%b'" % mark), deadline)
        while (reader := self._link.reader) is not None:
            answer = reader.feed(b"") or await self._receive(reader, deadline)
            is_ours = answer.error is None and answer.results[-1].rows == [(mark,)]
            self._link.reader = None if is_ours else AnswerReader(reader.rest())

    def view(self) -> Connection:
        """A second object for the same connection and session, to be referred to by one call alone."""
        view = Connection(self._link, self._waits, self._runtime, self._label, self._timeout)
        view.is_direct = self.is_direct
        return view

    async def watch(self, seconds: float) -> bool:
        """Wait until something comes, beside a call that may use the connection; False if the time is over first."""
        return await self._waits.watch(self._link.descriptor, seconds)

    def is_owed(self) -> bool:
        """Whether the answer to a query has not been read."""
        return self._link.reader is not None

    def is_broken(self) -> bool:
        """Whether the connection was closed."""
        return self._link.descriptor < 0

    def interrupt(self) -> None:
        """End a wait for this connection, from any thread; it cannot be used afterwards."""
        if self._link.descriptor >= 0:
            shut_down(self._link.descriptor)

    def close(self) -> None:
        """Close it; a query that is under way may still be applied."""
        if self._link.descriptor >= 0:
            self._link.descriptor = -1
            self._link.driver._force_close()  # noqa: SLF001 - a farewell would wait for room in the socket


def _has_input(descriptor: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([descriptor], [], [], 0)[0])
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


class _Driver(pymysql.Connection):  # type: ignore[misc]  # PyMySQL has no types
    """PyMySQL without what takes most of the time of its connecting."""

    def set_character_set(self, charset: str, collation: str | None = None) -> None:
        """No round trip: the login has set it, and answers are bytes to us."""

    def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
        """No reading of all authorities of the system where TLS is only taken if it is offered, and not checked."""
        if isinstance(given, ssl.SSLContext):
            return given
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


def dial(options: MysqlOptions, waits: Waits, runtime: Runtime) -> Connection:
    """Connect, and block meanwhile. Raises `BackendUnavailable` or `BackendRejected`, for nothing was sent."""
    words: dict[str, Any] = {"unix_socket": options.socket} if options.socket else {}
    if options.user is not None:
        words["user"] = options.user
    try:
        driver = _Driver(
            host=options.host,
            port=options.port,
            password=options.password,
            database=options.database,
            charset="utf8mb4",
            autocommit=None,
            client_flag=CLIENT.MULTI_STATEMENTS,
            connect_timeout=options.connect_timeout,
            read_timeout=options.connect_timeout,
            write_timeout=options.connect_timeout,
            program_name="leasehold",
            ssl=None if options.tls is None else _tls_context(options.tls),
            **words,
        )
        return Connection(Link(driver), waits, runtime, options.label, options.answer_timeout)
    except (pymysql.Error, OSError, RuntimeError) as error:
        raise errors.connect_failed(error, options.label) from None


def _tls_context(tls: TLSFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key, tls.key_password)
    except OSError as error:
        raise ConfigurationError(f"the files of TLS cannot be used: {error}") from None
    return context
