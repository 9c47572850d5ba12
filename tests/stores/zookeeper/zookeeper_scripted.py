"""Sessions on a connection that a test plays: what is sent is kept, and answered as the test says. No server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from leasehold._backends.zookeeper.backend import ZooKeeperBackend
from leasehold._backends.zookeeper.claim_node import ClaimNode, ClaimState, Registry
from leasehold._backends.zookeeper.keys import NodeData, Paths
from leasehold._backends.zookeeper.options import Options
from leasehold._backends.zookeeper.session import Session
from leasehold._backends.zookeeper.session_worker import SessionWorker
from leasehold.store_url import StoreURL
from leasehold.values import Claim, Grant, Holder, Mode
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.zookeeper.wire import Reply

__all__ = ["NO_ANSWER", "PARENT", "Bench", "QuietWorker", "Script", "ScriptedWire", "Store", "data", "made", "stat"]

NO_ANSWER = object()
PARENT = "/tree/locks/ns%3Ax"


class ScriptedWire:
    """A connection. `answer` gives the value or the error for a request at once; without it no answer comes."""

    def __init__(
        self, _options: Options, timeout: float, on_ready: Callable[[float], None], on_state: Callable[[str], None]
    ) -> None:
        self.timeout, self.on_ready, self.on_state = timeout, on_ready, on_state
        self.sent: list[tuple[Any, Reply]] = []
        self.told: list[str] = []
        self.answer: Callable[[Any], object] = lambda _: NO_ANSWER
        self.session_id: int | None = 7
        self.last_zxid = 100
        self.connect_failure = ""
        self.is_refused = False

    def send(self, request: Any, reply: Reply) -> None:
        self.sent.append((request, reply))
        answer = self.answer(request)
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        elif answer is not NO_ANSWER:
            reply.set(answer)

    @property
    def kinds(self) -> list[str]:
        """What was sent so far."""
        return [type(request).__name__ for request, _ in self.sent]

    def start(self) -> None:
        self.told.append("start")

    def end(self) -> None:
        self.told.append("end")

    def cut(self) -> None:
        self.told.append("cut")

    def close_elsewhere(self) -> None:
        self.told.append("close elsewhere")

    def close(self, *, notify: bool) -> None:
        self.told.append(f"close, notify={notify}")


class QuietWorker(SessionWorker):
    """The worker without its thread: a test looks at the sessions."""

    def __init__(self, now: Callable[[], float], root: str) -> None:
        super().__init__(now, root)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def _start_if_needed(self) -> None:
        if self.is_busy:
            self._thread = 0  # in place of a thread's number
        self.wake()


class Bench:
    """One client's sessions on a clock that is turned by hand."""

    def __init__(self, url: str = "zk://h1:1,h2:2/tree") -> None:
        self.runtime = PlannedWaits()
        self.options = Options.from_url(StoreURL.parse(url))
        self.paths = Paths(self.options.root)
        self.registry = Registry()
        self.worker = QuietWorker(self.runtime.now, self.paths.root)
        self.wires: list[ScriptedWire] = []

    def open_wire(self, *given: Any) -> Any:
        self.wires.append(ScriptedWire(*given))
        return self.wires[-1]

    @property
    def wire(self) -> ScriptedWire:
        """The last that was opened."""
        return self.wires[-1]

    def session(self, ttl: float = 20.0, *, connected: bool = True) -> Session:
        """A session of its worker, whose timeout is half as long again as the ttl."""
        session = Session(
            ttl,
            self.worker.wake,
            options=self.options,
            paths=self.paths,
            registry=self.registry,
            runtime=self.runtime,
            open_wire=self.open_wire,
        )
        self.worker.add(session)
        if connected:
            session.start()
            self.wire.on_ready(self.wire.timeout)
        return session

    def claim(self, key: str = "ns:x", ttl: float = 20.0, mode: Mode = Mode.EXCLUSIVE, capacity: int = 1) -> Claim:
        return Claim(key, self.runtime.owner(), ttl, mode, capacity, 0.0, Holder("host", 1))

    def node(self, session: Session, claim: Claim | None = None, state: ClaimState = ClaimState.NEW) -> ClaimNode:
        """A claim in a session; one that is present has the next number of its parent."""
        claim = claim or self.claim()
        node = ClaimNode(claim, session, self.paths.lock(claim.key), self.runtime.signal(), self.runtime.now())
        session.admit(node)
        if state is ClaimState.PRESENT:
            made(node, len(session._created) + 1)
        else:
            node.state = state
        return node

    def advance(self, seconds: float) -> None:
        self.runtime.clock.advance(seconds)


def stat(**facts: Any) -> Any:
    """What a server says of a node."""
    return SimpleNamespace(**{"czxid": 50, "version": 0, "ephemeralOwner": 7, **facts})


def made(node: ClaimNode, number: int) -> str:
    """The server has created the node with this number; its name."""
    node.adopt(f"{node.prefix}{number:010d}", 40 + number, 0)
    node.session.created(node)
    return node.name


class Script:
    """What is expected to be sent, in this order, each with its answer. A callable is asked for its answer."""

    def __init__(self, *lines: tuple[str, object]) -> None:
        self.lines = list(lines)
        self.requests: list[Any] = []

    def __call__(self, request: Any) -> object:
        kind = type(request).__name__
        assert self.lines, f"nothing was expected, and there is {kind} {request.path}"
        expected, answer = self.lines.pop(0)
        assert kind == expected, f"{kind} {request.path} instead of {expected}"
        self.requests.append(request)
        return answer(request) if callable(answer) and not isinstance(answer, type) else answer


class Store(Bench):
    """A backend with one session that is connected, and knows that the fences were never raised."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = ZooKeeperBackend(
            self.options,
            self.runtime,
            registry=self.registry,
            open_wire=self.open_wire,
            make_worker=QuietWorker,
        )
        self.worker = self.backend._pool._worker  # type: ignore[assignment]
        self.first = self.connected(20.0)

    def connected(self, ttl: float) -> Session:
        session = self.backend._pool.session_for(ttl, "")
        session.start()
        self.wire.on_ready(self.wire.timeout)
        session.validity.answered(self.runtime.now())
        session.fence_floor = 0
        session.reserved.clear()
        return session

    def play(self, *lines: tuple[str, object]) -> Script:
        self.check()
        script = self.wires[0].answer = Script(*lines)
        return script

    def check(self) -> None:
        """All that was expected was sent."""
        for wire in self.wires:
            assert not isinstance(wire.answer, Script) or wire.answer.lines == []

    def held(self, key: str = "ns:x", session: Session | None = None) -> tuple[Grant, ClaimNode]:
        """A grant whose node is there."""
        node = self.node(session or self.first, self.claim(key), ClaimState.PRESENT)
        node.fence = 40 + node.sequence
        return Grant(node.claim, node.fence, 20.0), node


def data(broken: str | None = None, *, holder: Holder | None = None, granted: bool = False) -> bytes:
    return NodeData(holder or Holder("host", 1), 30.0, 0, granted=granted, broken=broken).encode()
