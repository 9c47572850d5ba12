"""The way between a process and one node of Redlock: the `NodeWire` that the shipped protocol talks to.

One connection for all tasks of the process. An answer that comes after the decision is still read, by a task of the
process, so that nothing happens in a process that is paused; a call after an unanswered request goes out behind it on
the same connection.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold._backends.redlock.wire import SILENCE_LIMIT, lacks_script, reply_or_error
from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown
from verification.simulation.network import Fate, Link
from verification.simulation.redis.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.redlock.calls import Call
    from leasehold._backends.redlock.node import Node
    from leasehold.spi import Signal
    from verification.simulation.redis.server import SimRedis
    from verification.simulation.runtime import SimRuntime

__all__ = ["NodeLink", "SimNodeWire"]

CONNECT_TIMEOUT = 1.0


class NodeLink(Link):
    """The way of one process to one node: as bad as the network of the process, and it can be cut by itself."""

    def __init__(self, whole: Link) -> None:
        self._whole = whole
        self._is_cut = False
        super().__init__(whole.process, whole.timeout)
        self.weather = whole.weather

    @property
    def cut(self) -> bool:
        """Whether packets are lost in silence."""
        return self._is_cut or self._whole.cut

    @cut.setter
    def cut(self, value: bool) -> None:
        self._is_cut = value

    def trouble(self, seconds: float = 0.0) -> None:
        """The whole process is disturbed."""
        self._whole.trouble(seconds)


class _Question:
    """Commands that were sent together; `answered` leads to the task that reads for the process."""

    __slots__ = ("answered", "deadline", "failure", "replies")

    def __init__(self, wire: SimNodeWire, done: Callable[[list[Any] | Exception], None]) -> None:
        self.answered = _Answered(wire, self, done)
        self.deadline = wire.runtime.now() + SILENCE_LIMIT
        self.replies: list[Any] | None = None
        self.failure: str | None = None


class _Answered:
    __slots__ = ("_done", "_question", "_wire")

    def __init__(self, wire: SimNodeWire, question: _Question, done: Callable[[list[Any] | Exception], None]) -> None:
        self._wire = wire
        self._question = question
        self._done = done

    def set(self) -> None:
        self._wire.inbox.append(self)
        self._wire.something.set()

    def deliver(self) -> None:
        """In a task of the process."""
        replies, failure = self._question.replies, self._question.failure
        if replies is None:
            self._done(OutcomeUnknown(f"the node {failure}", backend=self._wire.label))
        else:
            self._done(replies)


class SimNodeRequest:
    """One call to one node."""

    def __init__(self, wire: SimNodeWire, node: Node, call: Call) -> None:
        self.node = node
        self._wire = wire
        self._call = call
        self._connection: Connection | None = None
        self._is_repeated = False

    async def perform(self) -> Any:
        """See `NodeRequest`."""
        if self.node.failure is not None:
            raise self.node.failure
        self._connection = connection = self._wire.shared(self.node)
        answer: list[Any] = []
        answered: Signal = self._wire.runtime.signal()

        def arrived(result: list[Any] | Exception) -> None:
            if isinstance(result, Exception):
                self.node.deliver_later(self._call)
                self.node.failed(result)
            elif lacks_script(result) and connection.is_open and not self._is_repeated:
                self._is_repeated = True
                self._wire.send(connection, self._call.whole, arrived)
                return
            else:
                self.node.misses = 0
                result = reply_or_error(self._call, result, self._wire.label)
            answer.append(result)
            answered.set()

        self._wire.send(connection, self._call.short, arrived)
        await self._wire.runtime.wait(answered, None)
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]

    def send_after(self, call: Call) -> None:
        """See `NodeRequest`."""
        self._deliver(call, call.short)

    def _deliver(self, call: Call, payload: bytes) -> None:
        connection = self._connection
        if connection is None or not connection.is_open:
            self.node.deliver_later(call)
            return

        def check(result: list[Any] | Exception) -> None:
            if isinstance(result, Exception):
                self.node.deliver_later(call)
            elif payload is call.short and lacks_script(result):
                self._deliver(call, call.whole)

        self._wire.send(connection, payload, check)

    def finish(self) -> None:
        """The answer is read by itself."""

    def abort(self) -> None:
        """The answer is read by itself."""


class SimNodeWire:
    """The connection of one process to one node."""

    def __init__(self, link: NodeLink, runtime: SimRuntime, server: SimRedis, timeout: float) -> None:
        self.link = link
        self.runtime = runtime
        self.server = server
        self.label = server.name
        self.inbox: deque[_Answered] = deque()
        self.something = runtime.signal()
        self._timeout = timeout
        self._shared: Connection | None = None
        self._reads = False
        self._closed = False

    @property
    def is_ready(self) -> bool:
        """See `NodeWire`."""
        return self._shared is not None and self._shared.is_open

    @property
    def has_pending(self) -> bool:
        """See `NodeWire`."""
        return self._shared is not None and bool(self._shared.questions)

    async def open(self) -> None:
        """See `NodeWire`."""
        if not self.is_ready:
            await self._connect()

    def request(self, node: Node, call: Call, until: float) -> SimNodeRequest:  # noqa: ARG002 - it never connects
        """See `NodeWire`."""
        return SimNodeRequest(self, node, call)

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        """See `NodeWire`."""
        connection = await self._connect() if fresh else self.shared()
        answers: list[list[Any] | Exception] = []
        answered = self.runtime.signal()

        def arrived(result: list[Any] | Exception) -> None:
            answers.append(result)
            answered.set()

        self.send(connection, payload, arrived)
        await self.runtime.wait(answered, None)
        (answer,) = answers
        if isinstance(answer, Exception):
            raise answer
        assert len(answer) == count
        return answer

    def close(self) -> None:
        """See `NodeWire`."""
        self._closed = True
        if self._shared is not None and self._shared.is_open:
            self._shared.close()
        self.something.set()

    def shared(self, node: Node | None = None) -> Connection:
        """The open connection. A node whose answers are late is on its way to be left out."""
        connection = self._shared
        if connection is None or not connection.is_open:
            raise BackendUnavailable(f"{self.label} is not connected", backend=self.label)
        sent = connection.questions[0].deadline - SILENCE_LIMIT if connection.questions else None
        if node is not None and sent is not None and self.runtime.now() - sent > self._timeout:
            node.missed()
            if node.failure is not None:
                raise node.failure
        return connection

    def send(self, connection: Connection, payload: bytes, done: Callable[[list[Any] | Exception], None]) -> None:
        """Send; `done` is called by a task of the process, with the replies or what became of the connection."""
        link, fate = self.link, self.link.fate()
        ambush, link._whole.ambush = link._whole.ambush, None
        if ambush is not None:
            ambush()
        if fate is Fate.REFUSED:
            fate = Fate.REQUEST_LOST
        connection.ask(payload, _Question(self, done), fate)  # type: ignore[arg-type]  # as much of it as is used
        self._read()

    def _read(self) -> None:
        if not self._reads:
            self._reads = True
            self.runtime.spawn(self._reading(), "redlock reader")
        self.something.set()

    async def _reading(self) -> None:
        """Until no answer is missing: hand out what came, and give up a connection that is silent for too long."""
        while True:
            while self.inbox:
                self.inbox.popleft().deliver()
            connection = self._shared
            waiting = None if connection is None or not connection.questions else connection.questions[0].deadline
            if waiting is None and not self.inbox:
                self._reads = False
                return
            self.something.clear()
            if not await self.runtime.wait(self.something, waiting) and connection is not None:
                self.link.trouble()
                connection.close()

    async def _connect(self) -> Connection:
        link, world = self.link, self.link.process.world
        if self._closed:
            raise ClientClosed(backend=self.label)
        await self.runtime.sleep(2 * link.delay())
        if link.cut or self.server.stalled_until > world.now:
            await self.runtime.sleep(CONNECT_TIMEOUT)
            raise BackendUnavailable(f"no answer to a connection attempt of {self.label}", backend=self.label)
        if self.server.is_down or world.random.random() < link.weather.refuse:
            raise BackendUnavailable(f"{self.label} refused the connection", backend=self.label)
        if self._closed:
            raise ClientClosed(backend=self.label)
        before, self._shared = self._shared, Connection(self)  # type: ignore[arg-type]  # link and server are used
        if before is not None and before.is_open:
            before.close()
        return self._shared
