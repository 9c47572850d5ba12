"""One member of a simulated ensemble, and the connections that it has accepted."""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo.exceptions import SessionMovedError, ZookeeperError
from kazoo.protocol.serialization import Close, Exists, GetChildren, GetData, Ping, Sync
from kazoo.protocol.states import EventType, WatchedEvent

from verification.simulation.zookeeper.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.zookeeper.server import SimEnsemble

__all__ = ["BROKEN", "FIN", "PONG", "Accepted", "Answer", "Hello", "Member", "Welcome"]

READS = (Exists, GetData, GetChildren)
FIN = "the client has closed the connection"
BROKEN = "the server has closed the connection"
PONG = "the answer to a ping"


class Hello(NamedTuple):
    """The first message on a connection."""

    last_zxid: int
    timeout: float
    session: int  # 0: a new one


class Welcome(NamedTuple):
    """Its answer; no timeout if the session has ended."""

    session: int
    timeout: float


class Answer(NamedTuple):
    """The answer to a request; the error, if it is one."""

    value: Any
    zxid: int


class Way:
    """From a member to the leader, or back: in order, delayed, held up while the member, or the leader, is away."""

    def __init__(self, member: Member, *, to_leader: bool) -> None:
        self._member = member
        self._to_leader = to_leader
        self._last = 0.0
        self._held: deque[tuple[int, Callable[[], object]]] = deque()

    def send(self, task: Callable[[], object]) -> None:
        """Do this at the other end; never, if another leader comes before."""
        member = self._member
        ensemble, world = member.ensemble, member.ensemble.world
        if member.number == ensemble.leader:
            task()
            return
        chance = world.random.random()
        self._last = max(self._last, world.now + 0.0003 + 0.003 * chance * chance + member.lag)
        world.at(self._last, partial(self._arrive, ensemble.epoch, task))

    def _arrive(self, epoch: int, task: Callable[[], object]) -> None:
        self._held.append((epoch, task))
        self.resume()

    def resume(self) -> None:
        """Go on, if nobody is away."""
        member = self._member
        ensemble = member.ensemble
        while self._held:
            if member.is_away or (self._to_leader and ensemble.members[ensemble.leader].is_away):
                return
            epoch, task = self._held.popleft()
            if epoch == ensemble.epoch:
                task()


class Member:
    """Applies what the leader has done, and answers its clients."""

    def __init__(self, ensemble: SimEnsemble, number: int) -> None:
        self.ensemble = ensemble
        self.number = number
        self.tree = Tree()
        self.applied = 0  # transactions of the log
        self.connections: list[Accepted] = []
        self.watches: dict[str, dict[Accepted, None]] = {}
        self.up = Way(self, to_leader=True)
        self.down = Way(self, to_leader=False)
        self.lag = 0.0  # seconds by which it is behind the leader beside the usual
        self.is_down = False
        self.is_cut_off = False  # from the other members
        self.is_stale_leader = False  # it was the leader, is cut off, and does not know
        self.stalled_until = -math.inf
        self._seen: dict[int, float] = {}  # sessions that the leader has to be told of, and their timeouts

    @property
    def zxid(self) -> int:
        """Of the last transaction that it has applied."""
        return self.ensemble.log[self.applied - 1].zxid if self.applied else 0

    @property
    def is_stalled(self) -> bool:
        """Whether it stands still."""
        return self.stalled_until > self.ensemble.world.now

    @property
    def is_away(self) -> bool:
        """Whether other members do not hear of it."""
        return self.is_cut_off or self.is_down or self.is_stalled

    @property
    def serves(self) -> bool:
        """Whether it accepts clients."""
        return not (self.is_down or self.is_cut_off or self.ensemble.is_electing)

    def accept(self, tell: Callable[[Any], None]) -> Accepted:
        """A new connection."""
        connection = Accepted(self, tell)
        self.connections.append(connection)
        return connection

    def drop_clients(self) -> None:
        """Close all connections."""
        for connection in list(self.connections):
            connection.close()

    def drop_session(self, number: int, but: Accepted) -> None:
        """A session has one connection at a member."""
        for connection in list(self.connections):
            if connection.session == number and connection is not but:
                connection.close()

    def seen(self, number: int, timeout: float) -> None:
        """A client has shown that it lives; the leader hears of it with the answer to its next ping."""
        ensemble = self.ensemble
        if self.number == ensemble.leader and not self.is_stale_leader:
            ensemble.touch(number, timeout)
            return
        if not self._seen:
            half = ensemble.tick / 2
            phase = self.number / 3
            ensemble.world.at((math.floor(ensemble.world.now / half - phase) + 1 + phase) * half, self._report)
        self._seen[number] = timeout

    def _report(self) -> None:
        seen, self._seen = self._seen, {}

        def arrive() -> None:
            for number, timeout in seen.items():
                self.ensemble.touch(number, timeout)

        self.up.send(arrive)

    def catch_up(self) -> None:
        """Apply all that was done, unless it is away."""
        if not self.is_cut_off and not self.is_down:
            self.apply(len(self.ensemble.log))

    def apply(self, count: int) -> None:
        """Apply the log up to there: watches are told, and those answered who waited for it."""
        while self.applied < count:
            done = self.ensemble.log[self.applied]
            self.tree.apply(done)
            self.applied += 1
            for path, kind in done.events:
                if kind != EventType.CHILD:
                    for connection in self.watches.pop(path, ()):
                        connection.tell(WatchedEvent(kind, "CONNECTED", path))
            for connection in list(self.connections):
                connection.answer_ready()
                if done.ends and connection.session == done.ends and not connection.waits_for_its_end:
                    connection.close()


class Entry:
    """A request that is not answered yet."""

    __slots__ = ("after", "answer", "request")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.answer: Any = None
        self.after: int | None = None  # how much of the log has to be applied before; None: the leader has not answered


class Accepted:
    """The member's end of a connection."""

    def __init__(self, member: Member, tell: Callable[[Any], None]) -> None:
        self.member = member
        self.session = 0
        self._timeout = 0.0
        self._tell = tell
        self._is_open = True
        self._is_welcome = False
        self._early: list[Any] = []  # what came before the session was known to be alive
        self._entries: deque[Entry] = deque()

    @property
    def waits_for_its_end(self) -> bool:
        """Whether the client itself has asked for the end of the session, and has no answer yet."""
        return any(isinstance(entry.request, Close) for entry in self._entries)

    def tell(self, message: Any) -> None:
        """Send the client a message."""
        if self._is_open:
            self._tell(message)

    def close(self) -> None:
        """The client sees it, unless its network is away."""
        if self._is_open:
            self.tell(BROKEN)
            self._forget()

    def _forget(self) -> None:
        self._is_open = False
        self.member.connections.remove(self)
        for path, mine in list(self.member.watches.items()):
            mine.pop(self, None)
            if not mine:
                del self.member.watches[path]

    def hear(self, message: Any) -> None:
        """A message of the client."""
        if not self._is_open:
            return
        if message is FIN:
            self._forget()
        elif isinstance(message, Hello):
            self._greet(message)
        elif not self._is_welcome:
            self._early.append(message)
        else:
            self._take(message)

    # --- the session

    def _greet(self, hello: Hello) -> None:
        member, ensemble = self.member, self.member.ensemble
        self._timeout = ensemble.bounded(hello.timeout)
        self.session = hello.session
        if hello.last_zxid > member.zxid or member.is_stale_leader:  # the client has seen more than this member
            self.close()
            return
        if hello.session:
            member.drop_session(hello.session, self)
        entry = Entry(hello)
        self._entries.append(entry)
        member.up.send(partial(self._decide, entry, hello.session))

    def _decide(self, entry: Entry, session: int) -> None:
        """At the leader."""
        ensemble, owner = self.member.ensemble, self.member.number
        timeout = self._timeout
        if not session:
            session = ensemble.open_session(timeout, owner)
        elif not ensemble.move_session(session, timeout, owner):
            timeout = 0.0
        self._decided(entry, Welcome(session, timeout))

    def _decided(self, entry: Entry, answer: Any) -> None:
        after = len(self.member.ensemble.log)

        def arrive() -> None:
            entry.answer, entry.after = answer, after
            self.answer_ready()

        self.member.down.send(arrive)

    def _welcomed(self, welcome: Welcome) -> None:
        self.session, self._is_welcome = welcome.session, True
        self.tell(welcome)
        if not welcome.timeout:
            self.close()
        early, self._early = self._early, []
        for message in early:
            self.hear(message)

    # --- requests

    def _take(self, request: Any) -> None:
        member = self.member
        member.seen(self.session, self._timeout)
        if isinstance(request, Ping):
            self.tell(PONG)
            return
        entry = Entry(request)
        self._entries.append(entry)
        if isinstance(request, READS):
            entry.after = 0
        elif member.is_stale_leader:
            if isinstance(request, Sync):  # it answers that alone; a change waits for a majority
                entry.answer, entry.after = request.path, 0
        else:
            member.up.send(partial(self._perform, entry))
        self.answer_ready()

    def _perform(self, entry: Entry) -> None:
        """At the leader. The answer waits for the change, of which the member hears in its turn."""
        ensemble = self.member.ensemble
        answer = ensemble.perform(self.session, self.member.number, entry.request)
        ensemble.world.note("ensemble", type(entry.request).__name__, self.session, ensemble.zxid & 0xFFFFFFFF)
        self._decided(entry, answer)

    def answer_ready(self) -> None:
        """Answer in the order of the requests, as far as that can be done."""
        entries, member = self._entries, self.member
        while self._is_open and entries and entries[0].after is not None and entries[0].after <= member.applied:
            entry = entries.popleft()
            if isinstance(entry.request, Hello):
                self._welcomed(entry.answer)
                continue
            answer = self._read(entry.request) if isinstance(entry.request, READS) else entry.answer
            if isinstance(answer, SessionMovedError):  # it has another connection, for all that the leader knows
                self.close()
                return
            self.tell(Answer(answer, member.zxid))
            if isinstance(entry.request, Close):
                self.close()

    def _read(self, request: Any) -> Any:
        try:
            answer = self.member.tree.read(request)
        except ZookeeperError as error:
            return error
        if request.watcher is not None:
            self.member.watches.setdefault(request.path, {})[self] = None
        return answer
