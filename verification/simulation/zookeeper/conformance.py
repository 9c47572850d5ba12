"""The simulated ensemble against a real server: requests of two sessions drawn at random, compared answer by answer.

What a request is answered with, which watches were told before, and the number of the last transaction have to agree;
times, and the numbers of sessions, differ by nature. Sessions are closed and opened in between, which removes their
nodes. That a session runs out, and that members lag behind each other, is no matter of single requests: the tests of
the store have real ensembles for that.
"""

from __future__ import annotations

import random
import threading
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kazoo.protocol.serialization import CloseInstance, Create2, Delete, Exists, GetChildren, GetData, SetData, Sync
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from leasehold._backends.zookeeper.options import Options
from leasehold._backends.zookeeper.wire import EPHEMERAL_SEQUENTIAL, CreateContainer, KazooWire, Reply
from verification.lab.zookeeper import ZooKeeperServer
from verification.simulation.world import World
from verification.simulation.zookeeper.member import BROKEN, Answer, Hello, Welcome
from verification.simulation.zookeeper.server import SimEnsemble
from verification.simulation.zookeeper.tree import EPHEMERAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Twins", "against", "real_server"]

ROOT = "/conformance"
PARENTS = [f"{ROOT}/{name}" for name in ("plain", "container", "idle")]
LONG = 600.0  # seconds that a session lives
PATIENCE = 30.0


def real_server() -> ZooKeeperServer:
    """One of its own, that removes no containers meanwhile."""
    return ZooKeeperServer(name="conformance", properties={"znode.container.checkIntervalMs": 10**9})


class RealSession:
    """A session with a real server."""

    def __init__(self, server: ZooKeeperServer) -> None:
        ready = threading.Event()
        options = Options((("127.0.0.1", server.port),), ROOT, "conformance")
        self._wire = KazooWire(options, LONG, lambda _: ready.set(), lambda _: None)
        self._wire.start()
        if not ready.wait(PATIENCE):
            raise TimeoutError("the server does not answer")
        self.number = self._wire.session_id
        self.events: list[WatchedEvent] = []

    @property
    def zxid(self) -> int:
        """Of the last transaction that it knows."""
        return self._wire.last_zxid

    def ask(self, request: Any) -> Any:
        """The answer, or the error."""
        done = threading.Event()
        reply = Reply(0.0, done, None, lambda _: None)
        self._wire.send(request, reply)
        if not done.wait(PATIENCE):
            raise TimeoutError("the server does not answer")
        return reply.value if reply.error is None else reply.error

    def close(self) -> None:
        """End it, with its nodes."""
        self._wire.close(notify=True)


class SimSession:
    """A session with the one member of a simulated ensemble, at no time and without a network."""

    def __init__(self, ensemble: SimEnsemble) -> None:
        self._told: list[Any] = []
        self.events: list[WatchedEvent] = []
        self.zxid = 0
        self._watchers: dict[str, Callable[[Any], None]] = {}
        self._connection = ensemble.members[0].accept(self._told.append)
        self._connection.hear(Hello(0, LONG, 0))
        welcome = self._told.pop()
        assert isinstance(welcome, Welcome)
        self.number = welcome.session

    def _events(self) -> None:
        while self._told and isinstance(self._told[0], WatchedEvent):
            event = self._told.pop(0)
            if event.path in self._watchers:
                self._watchers.pop(event.path)(event)

    def ask(self, request: Any) -> Any:
        """The answer, or the error; watches that were told before it are known."""
        self._connection.hear(request)
        self._events()
        answer = self._told.pop(0)
        assert isinstance(answer, Answer)
        self.zxid = answer.zxid
        if getattr(request, "watcher", None) is not None and not isinstance(answer.value, Exception):
            self._watchers[request.path] = request.watcher
        return answer.value

    def close(self) -> None:
        """End it, with its nodes."""
        self._connection.hear(CloseInstance)
        assert self._told[-1] is BROKEN


class Twins:
    """A real server, a simulated one, and two sessions with each."""

    def __init__(self, server: ZooKeeperServer, seed: int) -> None:
        self._random = random.Random(seed)
        self._server = server
        self._ensemble = SimEnsemble(World(0), members=1)
        first = RealSession(server)
        _remove(first, ROOT)
        first.ask(Create2(ROOT, b"", OPEN_ACL_UNSAFE, 0))
        self._ensemble.epoch, self._ensemble.counter = first.zxid >> 32, (first.zxid & 0xFFFFFFFF) - 2
        self._real = [first, RealSession(server)]
        self._twin = [self._first_of_twin(), SimSession(self._ensemble)]

    def _first_of_twin(self) -> SimSession:
        """Its last transaction is the root's creation, with the number that it has at the real server."""
        session = SimSession(self._ensemble)
        session.ask(Create2(ROOT, b"", OPEN_ACL_UNSAFE, 0))
        return session

    def one(self) -> tuple[Any, Any, Any]:
        """See `Comparison`."""
        who = self._random.randrange(2)
        if self._random.random() < 0.01:
            self._real[who].close()
            self._twin[who].close()
            self._real[who], self._twin[who] = RealSession(self._server), SimSession(self._ensemble)
        real, twin = self._real[who], self._twin[who]
        request = self._draw()
        watched = isinstance(request, (Exists, GetData)) and self._random.random() < 0.5
        answers = [self._ask(session, request, watched=watched) for session in (real, twin)]
        return (who, request, watched), answers[0], answers[1]

    def close(self) -> None:
        """See `Comparison`."""
        for session in self._real:
            session.close()

    def _ask(self, session: RealSession | SimSession, request: Any, *, watched: bool) -> Any:
        events = session.events
        if watched:
            request = request._replace(watcher=events.append)
        answer = session.ask(request)
        told = _in_order(events)
        events.clear()
        return self._plain(session, answer), told, session.zxid

    def _plain(self, session: RealSession | SimSession, answer: Any) -> Any:
        if isinstance(answer, Exception):
            return type(answer).__name__
        if isinstance(answer, ZnodeStat):
            sessions: Sequence[RealSession | SimSession] = (
                self._real if isinstance(session, RealSession) else self._twin
            )
            numbers: dict[int | None, str] = {each.number: f"session {at}" for at, each in enumerate(sessions)}
            owner = numbers.get(answer.ephemeralOwner, answer.ephemeralOwner)
            return answer._replace(ctime=0, mtime=0, ephemeralOwner=owner)
        if isinstance(answer, (tuple, list)):
            parts = [self._plain(session, part) for part in answer]
            return sorted(parts) if isinstance(answer, list) else parts
        return answer

    # --- requests

    def _draw(self) -> Any:
        draw = self._random
        path = self._path()
        chance = draw.random()
        data = b"%d" % draw.randrange(1000)
        if chance < 0.12:
            parent = draw.choice(PARENTS)
            return CreateContainer(parent, OPEN_ACL_UNSAFE) if "plain" not in parent else self._create(parent, data, 0)
        if chance < 0.32:
            parent = draw.choice([*PARENTS[:2], *PARENTS[:2], path, f"{ROOT}/nowhere"])
            return self._create(f"{parent}/x-", data, EPHEMERAL_SEQUENTIAL)
        if chance < 0.4:
            return self._create(f"{draw.choice(PARENTS)}/{draw.choice('ab')}", data, draw.choice([0, EPHEMERAL]))
        if chance < 0.58:
            return Delete(path, draw.choice([-1, -1, 0, 1]))
        if chance < 0.7:
            return SetData(path, data, draw.choice([-1, -1, 0, 1]))
        if chance < 0.75:
            return Sync(draw.choice([path, ROOT]))
        kind = draw.choice([Exists, GetData, GetChildren])
        return kind(draw.choice([path, path, *PARENTS]), None)

    def _create(self, path: str, data: bytes, flags: int) -> Any:
        return Create2(path, data, OPEN_ACL_UNSAFE, flags)

    def _path(self) -> str:
        """One that is there, mostly."""
        known = sorted(path for path in self._ensemble.tree.nodes if path.startswith(f"{ROOT}/"))
        if not known or self._random.random() < 0.1:
            return f"{ROOT}/plain/nothing"
        return self._random.choice(known)


def _in_order(events: list[WatchedEvent]) -> list[tuple[str, str]]:
    """As they came; nodes that end with one session do so in any order."""
    told: list[tuple[str, str]] = []
    for ends, some in groupby(events, lambda event: event.type == EventType.DELETED):
        mine = [(event.type, event.path) for event in some]
        told += sorted(mine) if ends else mine
    return told


def _remove(session: RealSession, path: str) -> None:
    """With all that is below; nothing, if it is not there."""
    children = session.ask(GetChildren(path, None))
    if isinstance(children, list):
        for name in children:
            _remove(session, f"{path}/{name}")
        session.ask(Delete(path, -1))


def against(server: ZooKeeperServer, seed: int) -> Twins:
    """The comparison with this server."""
    return Twins(server, seed)
