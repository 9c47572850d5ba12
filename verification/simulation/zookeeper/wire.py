"""The way between a process and a simulated ensemble: the `Wire` that the shipped sessions use, and kazoo's part.

A connection is ordered: within one direction nothing is overtaken or missing. So what befalls a request befalls its
connection. It breaks before the request arrives, or after; it falls silent; it is slow, and a request that waits in it
may be applied after the client has moved to another member. While the network is cut nothing arrives, and afterwards
all does.

What kazoo does is done here again, in a task instead of a thread: trying one member after the other, pings, giving a
silent member up, one answer for each request, watches that end with the connection.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, SessionExpiredError
from kazoo.protocol.serialization import CloseInstance, PingInstance
from kazoo.protocol.states import KazooState, WatchedEvent

from leasehold._backends.zookeeper.connection import ANY_ZXID, SHORTEST_TIMEOUT_MS
from leasehold._backends.zookeeper.session_worker import LONGEST_SLEEP, SessionWorker
from leasehold._backends.zookeeper.wire import CLOSE_TIMEOUT, SHORTEST_HOST_TIMEOUT
from verification.simulation.network import Fate
from verification.simulation.zookeeper.member import BROKEN, FIN, PONG, Answer, Hello, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.wire import Reply
    from leasehold.spi import Signal
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.zookeeper.member import Member
    from verification.simulation.zookeeper.server import SimEnsemble

__all__ = ["Host", "SimWorker", "SimZooKeeperWire"]

TASK = 0  # in place of a thread's number
AGAIN = 0.05  # seconds after which a packet is sent again that did not arrive
FOUND_OUT = 2.0  # seconds in which a client has noticed a silent connection, and has another one
FIRST_BREATH, LONGEST_BREATH = 0.02, 1.0  # between two rounds of tries to connect


class Host:
    """What the sessions of one process share: its network, and the connections that are being closed."""

    def __init__(self, link: Link, runtime: SimRuntime, ensemble: SimEnsemble) -> None:
        self.link = link
        self.runtime = runtime
        self.ensemble = ensemble
        self.closing: list[Signal] = []

    def open_wire(
        self,
        options: Options,  # noqa: ARG002 - there is one ensemble
        timeout: float,
        on_ready: Callable[[float], None],
        on_state: Callable[[str], None],
    ) -> SimZooKeeperWire:
        """See `OpenWire`."""
        return SimZooKeeperWire(self, timeout, on_ready, on_state)

    def make_worker(self, now: Callable[[], float], root: str) -> SimWorker:
        """The worker of a client."""
        return SimWorker(self, now, root)

    def shuffled(self) -> list[Member]:
        """The members in the order in which they are tried."""
        members = list(self.ensemble.members)
        self.runtime.world.random.shuffle(members)
        return members


class SimWorker(SessionWorker):
    """The shipped worker; a task of the process looks at the sessions, not a thread."""

    def __init__(self, host: Host, now: Callable[[], float], root: str) -> None:
        super().__init__(now, root)
        self._host = host
        self._rings = host.runtime.signal()

    def wake(self) -> None:
        """See `SessionWorker`."""
        self._rings.set()

    def _start_if_needed(self) -> None:
        if self._thread is None and self.is_busy:
            self._thread = TASK
            self._host.runtime.process.spawn(self._rounds(), "worker")
        self.wake()

    async def _rounds(self) -> None:
        runtime, closing = self._host.runtime, self._host.closing
        while (again := self.visit_all()) is not None:
            while closing:  # a thread waits there until the connection has ended
                await runtime.wait(closing.pop(), None)
            await runtime.wait(self._rings, min(again, runtime.now() + LONGEST_SLEEP))
            self._rings.clear()


class Pipe:
    """One direction of a connection: in order, late, and never while the network is away."""

    def __init__(self, link: Link, hear: Callable[[Any], None], is_held: Callable[[], bool]) -> None:
        self._link = link
        self._world = link.process.world
        self._hear = hear
        self._is_held = is_held
        self._last = 0.0
        self._messages: deque[Any] = deque()
        self._goes = False
        self.is_mute = False  # nothing arrives any more, and nobody is told

    def send(self, message: Any, late: float = 0.0) -> None:
        """It arrives after all that were sent before."""
        if not self.is_mute:
            self._last = max(self._last, self._world.now + self._link.delay() + late)
            self._messages.append(message)
            self._world.at(self._last, self._arrive)

    def _arrive(self) -> None:
        if self.is_mute:
            return
        if self._link.cut or self._is_held():
            self._world.after(AGAIN, self._arrive)
        else:
            self._hear(self._messages.popleft())


class Socket:
    """The client's end of a connection to a member."""

    def __init__(self, host: Host, member: Member) -> None:
        self._world = host.runtime.world
        self._runtime = host.runtime
        self._inbox: deque[Any] = deque()
        self._arrived = host.runtime.signal()
        self._is_open = True
        self.down = Pipe(host.link, self._receive, lambda: False)
        self._accepted = accepted = member.accept(self.down.send)
        self.up = Pipe(host.link, accepted.hear, lambda: member.is_stalled)

    def _receive(self, message: Any) -> None:
        if self._is_open:
            self._inbox.append(message)
            self._arrived.set()

    async def next(self, deadline: float) -> Any:
        """The next message; None if there is none by then."""
        if not self._inbox:
            self._arrived.clear()
            await self._runtime.wait(self._arrived, deadline)
        return self._inbox.popleft() if self._inbox else None

    def close(self) -> None:
        """The client does not want it any more. What is on its way to the member may still arrive."""
        if self._is_open:
            self._receive(BROKEN)
            self._is_open = False
            self.up.send(FIN)

    def break_(self, *, visibly: bool) -> None:
        """The network ends it. Both ends are told, or neither."""
        self.up.is_mute = self.down.is_mute = True
        if visibly:
            self._accepted.hear(FIN)
            self._world.after(AGAIN * self._world.random.random(), partial(self._receive, BROKEN))


class SimZooKeeperWire:
    """One session's connection, and the task that is kazoo's thread."""

    def __init__(
        self, host: Host, timeout: float, on_ready: Callable[[float], None], on_state: Callable[[str], None]
    ) -> None:
        self._host = host
        self._runtime = host.runtime
        self._random = host.runtime.world.random
        self._timeout = timeout
        self._host_timeout = max(SHORTEST_HOST_TIMEOUT, timeout / (3 * len(host.ensemble.members)))
        self._on_ready = on_ready
        self._on_state = on_state
        self._session = 0
        self._socket: Socket | None = None
        self._is_connected = False
        self._was_connected = False
        self._is_over = False
        self._close_by: float | None = None
        self._pending: deque[tuple[Any, Reply | None]] = deque()
        self._watchers: dict[str, set[Callable[[Any], None]]] = {}
        self._closed = host.runtime.signal()
        self.last_zxid = 0
        self.connect_failure = ""
        self.is_refused = False

    @property
    def session_id(self) -> int | None:
        """See `Wire`. It stays the same while the connection is lost."""
        return self._session or None

    def start(self) -> None:
        """See `Wire`."""
        self._runtime.process.spawn(self._live(), "connection")

    def end(self) -> None:
        """See `Wire`."""
        self._is_over = True

    def cut(self) -> None:
        """See `Wire`."""
        if self._socket is not None:
            self._socket.close()

    def close(self, *, notify: bool) -> None:
        """See `Wire`. Whoever calls it waits for the end afterwards."""
        if not notify:
            self.end()
            self.cut()
        self._close_by = self._runtime.now() + CLOSE_TIMEOUT
        if self._is_connected and self._socket is not None:
            self._pending.append((CloseInstance, None))
            self._socket.up.send(CloseInstance)
        if not self._closed.is_set():
            self._host.closing.append(self._closed)

    # --- requests

    def send(self, request: Any, reply: Reply) -> None:
        """See `Wire`."""
        link, world = self._host.link, self._runtime.world
        socket = self._socket
        if socket is None or not self._is_connected:
            reply.set_exception(ConnectionClosedError())
            return
        fate = link.fate()
        ambush, link.ambush = link.ambush, None
        if ambush is not None:
            ambush()
        self._pending.append((request, reply))
        world.note(link.process.name, "sent", type(request).__name__, fate.value)
        if fate is not Fate.FINE:
            link.trouble(link.timeout + FOUND_OUT)
        if fate in (Fate.REFUSED, Fate.REQUEST_LOST):
            socket.break_(visibly=world.random.random() < 0.7)
            return
        late = link.timeout * (0.5 + 4 * world.random.random()) if fate is Fate.ZOMBIE else 0.0
        socket.up.send(request, late)
        if fate is Fate.REPLY_LOST:
            socket.down.is_mute = True
            if world.random.random() < 0.5:
                world.after(4 * link.delay(), partial(socket.break_, visibly=True))
        elif fate is Fate.REPLY_LATE:
            socket.down.send(PONG, link.timeout * 2 * world.random.random())

    # --- the task

    async def _live(self) -> None:
        breath = FIRST_BREATH
        while not self._is_over:
            for member in self._host.shuffled():
                if await self._serve(member):
                    break
                breath = FIRST_BREATH if self._was_connected else breath
            if not self._is_over:
                await self._runtime.sleep(breath * (0.6 + 0.4 * self._random.random()))
                breath = min(2 * breath, LONGEST_BREATH, max(FIRST_BREATH, self._timeout / 20))
        if self._random.random() < 0.3:  # kazoo notices the end of a session with its next try only
            await self._runtime.sleep(FIRST_BREATH)
        self._lose(KazooState.LOST, SessionExpiredError)
        self._closed.set()

    def _has_ended(self) -> bool:
        """Whether it was told to connect no more; that may change during every wait."""
        return self._is_over

    async def _serve(self, member: Member) -> bool:
        """One connection, to its end; True if the session has ended with it."""
        if self._has_ended():
            return True
        link, runtime = self._host.link, self._runtime
        self._was_connected = False
        if not member.serves or self._random.random() < link.weather.refuse:
            await runtime.sleep(link.delay())
            self.connect_failure = "connection refused"
            return False
        if link.cut:
            await runtime.sleep(self._host_timeout)
            self.connect_failure = "timed out"
            return False
        self._socket = socket = Socket(self._host, member)
        try:
            socket.up.send(Hello(self.last_zxid, self._timeout, self._session))
            welcome = await socket.next(runtime.now() + self._host_timeout)
            if self._has_ended():
                return True
            if not isinstance(welcome, Welcome):
                self.connect_failure = "timed out"
                return False
            if not welcome.timeout:
                self._lose(KazooState.LOST, SessionExpiredError)
                return True
            self._session, self._was_connected, self._is_connected = welcome.session, True, True
            self._on_ready(welcome.timeout)
            return await self._listen(socket, welcome.timeout * 2 / 3)
        finally:
            socket.close()
            self._socket = None
            if self._is_connected:
                self._lose(KazooState.SUSPENDED, ConnectionLoss)

    async def _listen(self, socket: Socket, patience: float) -> bool:
        """Until the connection breaks, or falls silent; True if it was closed on request."""
        runtime = self._runtime
        awaits_pong, sent = False, runtime.now()
        while True:
            jitter = self._random.randint(1, 40) / 100
            deadline = max(sent + patience / 2 - jitter, runtime.now() + jitter)
            if self._close_by is not None:
                deadline = min(deadline, self._close_by)
            message = await socket.next(deadline)
            if message is BROKEN:
                return self._is_over
            if message is PONG:
                awaits_pong = False
            elif isinstance(message, WatchedEvent):
                self._fire(message)
            elif isinstance(message, Answer):
                if self._answered(message):
                    return True
            elif self._close_by is not None and runtime.now() >= self._close_by:
                return True
            elif awaits_pong:
                return False
            else:
                socket.up.send(PingInstance)
                awaits_pong, sent = True, runtime.now()

    def _answered(self, answer: Answer) -> bool:
        """True if it is the last one."""
        request, reply = self._pending.popleft()
        self.last_zxid = answer.zxid or self.last_zxid
        if reply is None:
            return True
        if isinstance(answer.value, Exception):
            reply.set_exception(answer.value)
            return False
        reply.set(answer.value)
        watcher = getattr(request, "watcher", None)
        if watcher is not None:
            self._watchers.setdefault(request.path, set()).add(watcher)
        return False

    def _fire(self, event: WatchedEvent) -> None:
        for watcher in self._watchers.pop(event.path, ()):
            watcher(event)

    def _lose(self, state: str, error: type[Exception]) -> None:
        self._is_connected = False
        self._watchers.clear()
        if state == KazooState.LOST:
            self._on_state(state)
        for _, reply in list(self._pending):
            if reply is not None:
                reply.set_exception(error())
        self._pending.clear()
        if state == KazooState.SUSPENDED:
            self._on_state(state)

    # --- the end of a session that is lost

    def close_elsewhere(self) -> None:
        """See `Wire`."""
        if self._session:
            self._runtime.process.spawn(self._close_elsewhere(), "end")

    async def _close_elsewhere(self) -> None:
        runtime = self._runtime
        for member in self._host.ensemble.members:
            if not member.serves or self._host.link.cut:
                await runtime.sleep(self._host_timeout if self._host.link.cut else self._host.link.delay())
                continue
            socket = Socket(self._host, member)
            socket.up.send(Hello(ANY_ZXID, SHORTEST_TIMEOUT_MS / 1000, self._session))
            socket.up.send(CloseInstance)
            first = message = await socket.next(runtime.now() + self._host_timeout)
            while message is not None and message is not BROKEN:
                message = await socket.next(runtime.now() + self._host_timeout)
            socket.close()
            if first is not None and first is not BROKEN:
                return
