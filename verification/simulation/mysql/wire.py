"""The way between a process and a MySQL server: connections in the kit's pool, which the shipped executor uses.

A request or an answer is lost or late, with its connection; a request can be applied long after its caller gave up. The
server ends connections at a restart, and the client hears of it unless it cannot hear.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leasehold._backends.mysql import errors
from leasehold._backends.mysql.backend import RowsBackend
from leasehold._backends.mysql.maintenance import Cleaning
from leasehold._backends.mysql.options import MysqlOptions
from leasehold._backends.mysql.pool import Executor
from leasehold._backends.mysql.schema import Schema
from leasehold.errors import BackendUnavailable
from leasehold.kit.pool import Pool
from verification.simulation.network import Fate

if TYPE_CHECKING:
    from leasehold._backends.mysql.packets import Answer
    from verification.simulation.mysql.server import Session, SimMysql
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime

__all__ = ["LABEL", "SimConnection", "SimPool", "open_plain"]

LABEL = "mysql://simulated/locks"
CONNECT_TIMEOUT = 1.0
HANDSHAKE = 5  # ways of a packet until a new connection is ready


def open_plain(server: SimMysql, link: Link, runtime: SimRuntime) -> RowsBackend:
    """The shipped backend and executor over simulated connections, and nothing in front of them."""
    options = MysqlOptions(LABEL, "simulated", 3306, "locks", answer_timeout=link.timeout)
    pool: Any = SimPool(server, link, runtime, options)
    pool.maintenance = Cleaning(LABEL, runtime)
    schema = Schema(LABEL)
    schema.is_known = True  # the server has the tables
    executor = Executor(pool, schema, LABEL, runtime, options.answer_timeout)
    return RowsBackend(options, executor, runtime, listen=pool.dedicated)


class SimConnection:
    """One connection, the client's end of it."""

    is_direct = True

    def __init__(self, server: SimMysql, link: Link, runtime: SimRuntime, timeout: float) -> None:
        self.slot: Any = None
        self.idle_since = 0.0
        self._server = server
        self._link = link
        self._runtime = runtime
        self._timeout = timeout
        self._life = server.life
        self._session: Session = server.connect(self._hang_up)
        self.number = self._session.number
        self._closed = False
        self._has_ended = False  # the server has closed it, and the client has heard of that
        self._answered = runtime.signal()

    async def query(self, text: bytes, until: float = math.inf, *, patience: float | None = None) -> Answer:
        """See `Connection`."""
        link, runtime = self._link, self._runtime
        deadline = min(runtime.now() + (self._timeout if patience is None else patience), until)
        fate = link.fate()
        ambush, link.ambush = link.ambush, None
        if ambush is not None:
            ambush()
        answers: list[Answer] = []
        answered = self._answered = runtime.signal()
        if self._has_ended:
            answered.set()
        self._send(text, fate, answers)
        is_in_time = await runtime.wait(answered, deadline)
        if answers:
            return answers[0]
        link.trouble()
        raise errors.lost(ConnectionResetError("closed") if is_in_time else None, LABEL)

    def _send(self, text: bytes, fate: Fate, answers: list[Answer]) -> None:
        link, server, world = self._link, self._server, self._link.process.world
        answered = self._answered

        def arrive() -> None:
            if (link.cut and fate is not Fate.ZOMBIE) or server.is_down or server.life != self._life:
                if not server.is_down:
                    self._hang_up()
                return
            if server.stalled_until > world.now:
                world.at(server.stalled_until, arrive)
                return
            server.execute(self._session, text, reply)

        def reply(answer: Answer) -> None:
            if fate is Fate.REPLY_LOST or link.cut:
                return
            late = link.timeout * 2 * world.random.random() if fate is Fate.REPLY_LATE else 0.0
            world.after(link.delay() + late, lambda: come_back(answer))

        def come_back(answer: Answer) -> None:
            if not link.cut and not self._has_ended:
                answers.append(answer)
                answered.set()

        if fate is Fate.REFUSED:
            self._hang_up()
        elif fate is not Fate.REQUEST_LOST and not link.cut:
            late = link.timeout * (0.5 + 4 * world.random.random()) if fate is Fate.ZOMBIE else 0.0
            world.after(link.delay() + late, arrive)

    def _hang_up(self) -> None:
        """The server ends the connection: the client hears of it, unless it cannot hear."""
        self._link.process.world.after(self._link.delay(), self._reset)

    def _reset(self) -> None:
        if not self._link.cut and not self._link.process.crashed:
            self._has_ended = True
            self._answered.set()

    def is_usable(self) -> bool:
        """See `Pooled`."""
        return not self._closed and not self._has_ended

    def is_broken(self) -> bool:
        """See `Pooled`."""
        return self._closed

    def interrupt(self) -> None:
        """See `Connection`."""
        self._has_ended = True
        self._answered.set()

    def close(self) -> None:
        """See `Connection`. The server hears of it if it can."""
        if not self._closed:
            self._closed = True
            self.slot = None  # what is still under way refers to this object, and the pool counts by its slot
            link = self._link
            link.process.world.after(link.delay(), lambda: None if link.cut else self.end_at_server())

    def end_at_server(self) -> None:
        """The session ends, if there was no restart since."""
        self._server.end_session(self.number)


class SimPool(Pool[SimConnection]):
    """The connections of one process."""

    product = "mysql"

    def __init__(self, server: SimMysql, link: Link, runtime: SimRuntime, options: MysqlOptions) -> None:
        super().__init__(runtime, LABEL, options.connections, options.answer_timeout)
        self._server = server
        self._link = link
        self._sim_runtime = runtime
        self._timeout = options.answer_timeout
        self._made: list[SimConnection] = []
        link.on_crash = self._crash

    async def dedicated(self) -> SimConnection:
        """See `OwnPool`."""
        return await self._open(math.inf)

    async def _open(self, until: float) -> SimConnection:
        self._require_open()
        link, server, runtime = self._link, self._server, self._sim_runtime
        by = min(until, runtime.now() + CONNECT_TIMEOUT)
        takes = sum(link.delay() for _ in range(HANDSHAKE))
        if link.cut or server.stalled_until > link.process.world.now:
            takes = math.inf
        await runtime.sleep(min(takes, max(0.0, by - runtime.now())))
        self._require_open()
        if runtime.now() >= by:
            raise BackendUnavailable("no connection in time", backend=LABEL)
        if server.is_down or link.cut or link.process.world.random.random() < link.weather.refuse:
            raise BackendUnavailable("connection refused", backend=LABEL)
        connection = SimConnection(server, link, runtime, self._timeout)
        self._made = [*(each for each in self._made if not each.is_broken()), connection]
        return connection

    def _interrupt(self, connection: SimConnection) -> None:
        connection.interrupt()

    def _in_use(self) -> list[SimConnection]:
        """In an order that is the same in every run of a seed."""
        return sorted(super()._in_use(), key=lambda each: each.number)

    def _crash(self) -> None:
        """The process is gone: its host closes the connections, unless it is gone too."""
        world = self._link.process.world
        if world.random.random() < 0.5:
            for each in self._made:
                world.after(self._link.delay(), each.end_at_server)
