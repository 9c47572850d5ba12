"""The way between a process and a Redis server: connections that keep the order of what they carry, and can fail.

It is the `Wire` that the store's own code talks to. Within one connection nothing overtakes; across connections
anything may. A request can be lost, a reply can be lost after the request was done, both can be late, a request can
arrive long after its caller gave up, and a connection can end with a word to the client or fall silent in one direction
only.

Two ways to use connections, as the real wires do: one that all tasks share, where the oldest question that is not
answered in time costs all of them; or one for each question.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown
from verification.simulation.network import Fate
from verification.simulation.redis.server import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.redis.wire import Node, Subscription
    from leasehold.spi import Request
    from verification.simulation.network import Link
    from verification.simulation.redis.server import SimRedis
    from verification.simulation.runtime import SimRuntime

__all__ = ["SimWire", "parse"]

LABEL = "redis://simulated"
CONNECT_TIMEOUT = 0.5
RETRANSMIT = 0.2


class Pipe:
    """One direction of a connection: what is put in comes out in the same order, or not at all."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._world = link.process.world
        self._queue: deque[tuple[float, Callable[[], None], bool]] = deque()
        self._moving = False
        self.is_silent = False  # nothing comes out any more, and nobody knows

    def put(self, deliver: Callable[[], None], delay: float, *, by_another_way: bool = False) -> None:
        """Let it arrive after the delay, but not before what went in earlier."""
        self._queue.append((self._world.now + delay, deliver, by_another_way))
        self._move()

    def put_first(self, deliver: Callable[[], None], delay: float) -> None:
        """It has come out, and has to wait a little longer, with everything behind it."""
        self._queue.appendleft((self._world.now + delay, deliver, True))

    def _move(self) -> None:
        if self._queue and not self._moving:
            self._moving = True
            self._world.at(max(self._world.now, self._queue[0][0]), self._arrive)

    def _arrive(self) -> None:
        self._moving = False
        if self.is_silent:
            self._queue.clear()
            return
        _, deliver, by_another_way = self._queue[0]
        if self._link.cut and not by_another_way:
            self._cut_off()
            return
        self._queue.popleft()
        deliver()
        self._move()

    def _cut_off(self) -> None:
        """Either the network forgets this connection, or what it carries arrives when it is mended."""
        if self._world.random.random() < 0.5:
            self.is_silent = True
            self._queue.clear()
            return
        _, deliver, by_another_way = self._queue.popleft()
        self._queue.appendleft((self._world.now + RETRANSMIT, deliver, by_another_way))
        self._move()


class Question:
    """Commands that were sent together, and what became of them.

    `deadline`: when the connection counts as dead without an answer. `gives_up`: when its own caller has no more time.
    """

    __slots__ = ("answered", "deadline", "failure", "gives_up", "replies")

    def __init__(self, wire: SimWire, timeout: float, until: float) -> None:
        self.answered = wire.runtime.signal()
        self.deadline = wire.runtime.now() + timeout
        self.gives_up = until
        self.replies: list[Any] | None = None
        self.failure: str | None = None


class Connection:
    """One connection, both ends of it; also the server's `Session`."""

    def __init__(self, wire: SimWire) -> None:
        self.link = wire.link
        self.sent_at = 0.0  # of the request that the server is doing
        self.is_open = True
        self._server = wire.server
        self._world = wire.link.process.world
        self._up = Pipe(wire.link)
        self._down = Pipe(wire.link)
        self.questions: deque[Question] = deque()
        self._number = wire.server.attach(self)

    # --- the client's end

    def ask(self, payload: bytes, question: Question, fate: Fate) -> None:
        """Send, and let the question be answered in its turn."""
        link, random = self.link, self._world.random
        self.questions.append(question)
        delay = link.delay()
        if fate is Fate.ZOMBIE:
            delay += link.timeout * (0.5 + 4 * random.random())
        sent_at = self._world.now
        self._up.put(
            lambda: self._reach_server(payload, question, fate, sent_at), delay, by_another_way=fate is Fate.ZOMBIE
        )

    def close(self) -> None:
        """The client has no more use for it; what is under way still arrives."""
        self._fail("was given up")
        self._up.put(self._end_at_server, self.link.delay())

    def _fail(self, why: str) -> None:
        self.is_open = False
        while self.questions:
            question = self.questions.popleft()
            question.failure = why
            question.answered.set()

    # --- on the way

    def _reach_server(self, payload: bytes, question: Question, fate: Fate, sent_at: float) -> None:
        server = self._server
        if server.is_down:
            self._refused()
        elif server.stalled_until > self._world.now:
            wait = server.stalled_until - self._world.now
            self._up.put_first(lambda: self._reach_server(payload, question, fate, sent_at), wait)
        elif fate is Fate.REQUEST_LOST:
            self._break(self._up)
        elif self._number not in server.sessions:
            self._refused()
        else:
            self.sent_at = sent_at
            self._answer([server.execute(self, self._number, words) for words in parse(payload)], question, fate)

    def _answer(self, replies: list[Any], question: Question, fate: Fate) -> None:
        if fate is Fate.REPLY_LOST:
            self._break(self._down)
            return
        delay = self.link.delay() + sum(reply.seconds for reply in replies if isinstance(reply, Later))
        if fate is Fate.REPLY_LATE:
            delay += self.link.timeout * 2 * self._world.random.random()
        plain = [reply.reply if isinstance(reply, Later) else reply for reply in replies]
        self._down.put(lambda: self._return(question, plain), delay)

    def _return(self, question: Question, replies: list[Any]) -> None:
        if self.questions and self.questions[0] is question:
            self.questions.popleft()
            question.replies = replies
            question.answered.set()

    def _break(self, pipe: Pipe) -> None:
        """In silence, or with a word to the client."""
        pipe.is_silent = True
        if self._world.random.random() < 0.4:
            self._refused()

    def _refused(self) -> None:
        self._world.after(self.link.delay(), self._reset)

    def _reset(self) -> None:
        """The client hears that the connection is over, unless it cannot hear."""
        if not self.link.cut and not self.link.process.crashed:
            self._fail("closed the connection without an answer")

    def _end_at_server(self) -> None:
        self._server.detach(self._number)

    # --- the server's end

    def hear(self, message: list[Any]) -> None:
        """See `Session`. Only a subscription receives messages."""
        raise AssertionError(f"nobody listens for {message}")

    def hang_up(self, *, in_silence: bool) -> None:
        """See `Session`."""
        if not in_silence:
            self._refused()

    def crashed(self) -> None:
        """The client's process is gone: its host closes the connection, unless it is gone too."""
        self.is_open = False
        self._up.put(self._end_at_server, self.link.delay())


class SimSubscription(Connection):
    """A connection for messages, and the task that hears them."""

    def __init__(self, wire: SimWire, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        super().__init__(wire)
        self._runtime = wire.runtime
        self._inbox: deque[Any] = deque()
        self._something = wire.runtime.signal()
        self._closed = False
        self._runtime.spawn(self._listen(on_message, on_lost), "redis messages")

    def send(self, payload: bytes) -> None:
        """See `Subscription`."""
        self._up.put(lambda: self._command(payload), self.link.delay())

    def _command(self, payload: bytes) -> None:
        if self._server.is_down or self._number not in self._server.sessions:
            self._refused()
            return
        for words in parse(payload):
            self.hear(self._server.execute(self, self._number, words))

    def hear(self, message: Any) -> None:
        """See `Session`. A lost packet of a stream is the end of the stream."""
        if self._world.random.random() < self.link.weather.reply_loss:
            self.link.trouble(self.link.timeout)
            self._break(self._down)
        self._down.put(lambda: self._receive(message), self.link.delay())

    def _receive(self, message: Any) -> None:
        self._inbox.append(message)
        self._something.set()

    def _fail(self, why: str) -> None:
        super()._fail(why)
        self._something.set()

    async def _listen(self, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        while True:
            await self._runtime.wait(self._something, None)
            self._something.clear()
            while self._inbox:
                on_message(self._inbox.popleft())
            if not self.is_open:
                break
        if not self._closed:
            on_lost()

    def close(self) -> None:
        """See `Subscription`."""
        self._closed = True
        super().close()


class SimRequest:
    """A question for one of many nodes."""

    def __init__(self, wire: SimWire, node: Node, commands: Sequence[bytes], timeout: float, until: float) -> None:
        self._wire = wire
        self._question = (node, b"".join(commands), len(commands), timeout, until)

    async def perform(self) -> list[Any]:
        """Ask and wait."""
        return await self._wire.exchange(*self._question)


class SimWire:
    """The connections of one process."""

    def __init__(self, link: Link, runtime: SimRuntime, server: SimRedis, *, shared: bool) -> None:
        self.link = link
        self.runtime = runtime
        self.server = server
        self._is_shared = shared
        self._shared: Connection | None = None
        self._idle: list[Connection] = []
        self._everything: list[Connection] = []
        self._closed = False
        link.on_crash = self._crash

    def left(self, until: float) -> float:
        """See `Wire`."""
        return until - self.runtime.now()

    async def exchange(
        self,
        node: Node,  # noqa: ARG002 - there is one
        payload: bytes,
        count: int,
        timeout: float,
        until: float = math.inf,
        *,
        alone: bool = False,
    ) -> list[Any]:
        """See `Wire`."""
        link, fate = self.link, self.link.fate()
        ambush, link.ambush = link.ambush, None
        if ambush is not None:
            ambush()
        if fate is Fate.REFUSED:
            await self.runtime.sleep(min(link.delay(), max(0.0, self.left(until))))
            raise BackendUnavailable("connection refused", backend=LABEL)
        pooled = alone or not self._is_shared
        connection = await self._take(until, pooled=pooled)
        if self.runtime.now() >= until:
            if pooled:
                self._idle.append(connection)
            raise BackendUnavailable("there was no time left", backend=LABEL)
        question = Question(self, timeout, until)
        connection.ask(payload, question, fate)
        try:
            replies = await self._answer(connection, question)
        except BaseException as error:
            is_over = isinstance(error, OutcomeUnknown) and self.runtime.now() < until
            if pooled or is_over:  # a shared one is not given up because one caller had little time
                connection.close()
            raise
        if pooled:
            self._idle.append(connection)
        assert len(replies) == count
        return replies

    def request(
        self, node: Node, commands: Sequence[bytes], timeout: float, until: float = math.inf
    ) -> Request[list[Any]]:
        """See `Wire`."""
        return SimRequest(self, node, commands, timeout, until)

    async def subscribe(
        self,
        node: Node,  # noqa: ARG002 - there is one
        on_message: Callable[[Any], None],
        on_lost: Callable[[], None],
        until: float = math.inf,
    ) -> Subscription:
        """See `Wire`."""
        await self._reach(until)
        subscription = SimSubscription(self, on_message, on_lost)
        self._everything.append(subscription)
        return subscription

    def drop_connections(self, node: Node) -> None:
        """See `Wire`. No password is wanted here."""

    async def close(self) -> None:
        """See `Wire`."""
        self._closed = True
        for connection in self._everything:
            if connection.is_open:
                connection.close()

    async def _take(self, until: float, *, pooled: bool) -> Connection:
        if not pooled and self._shared is not None and self._shared.is_open:
            return self._shared
        while pooled and self._idle:
            if (idle := self._idle.pop()).is_open:
                return idle
        await self._reach(until)
        connection = Connection(self)
        self._everything.append(connection)
        if not pooled:
            if self._shared is not None and self._shared.is_open:  # another task was quicker
                connection.close()
                return self._shared
            self._shared = connection
        return connection

    async def _reach(self, until: float) -> None:
        """Open a connection: surely nothing was sent if that fails."""
        link, server = self.link, self.server
        if self._closed:
            raise ClientClosed(backend=LABEL)
        takes = 2 * link.delay()
        await self.runtime.sleep(min(takes, max(0.0, self.left(until))))
        if self.runtime.now() >= until:
            raise BackendUnavailable("no connection in time", backend=LABEL)
        if link.cut or server.stalled_until > link.process.world.now:
            await self.runtime.sleep(min(CONNECT_TIMEOUT, max(0.0, self.left(until))))
            raise BackendUnavailable("no answer to a connection attempt", backend=LABEL)
        if server.is_down or link.process.world.random.random() < link.weather.refuse:
            raise BackendUnavailable("connection refused", backend=LABEL)

    async def _answer(self, connection: Connection, question: Question) -> list[Any]:
        while question.replies is None and question.failure is None:
            oldest = connection.questions[0]
            wake = min(oldest.deadline, question.gives_up)
            is_late = not await self.runtime.wait(question.answered, wake) and oldest in connection.questions
            if is_late or (not question.answered.is_set() and self.runtime.now() >= question.gives_up):
                self.link.trouble()
                raise OutcomeUnknown("no answer in time", backend=LABEL)
        if question.replies is None:
            self.link.trouble()
            raise OutcomeUnknown(f"the server {question.failure}", backend=LABEL)
        return question.replies

    def _crash(self) -> None:
        told = self.link.process.world.random.random() < 0.5
        for connection in self._everything:
            if told and connection.is_open:
                connection.crashed()


def parse(payload: bytes) -> list[list[bytes]]:
    """The commands in these bytes."""
    commands, place = [], 0
    while place < len(payload):
        count, place = _number(payload, place)
        words = []
        for _ in range(count):
            size, place = _number(payload, place)
            words.append(payload[place : place + size])
            place += size + 2
        commands.append(words)
    return commands


def _number(payload: bytes, place: int) -> tuple[int, int]:
    end = payload.index(b"\r\n", place)
    return int(payload[place + 1 : end]), end + 2
