"""The Redlock store of a run: five nodes, each with a clock of its own, and what befalls them.

In every seed nodes may stand still, go down and come back as they were, lose their scripts, or be out of the reach of
one process. In most seeds they also break one of the protocol's assumptions, in one way: they are restarted, empty or
not, flushed, or the clock of one jumps. In seeds without such a jump no two processes may believe at once, whatever
nodes forget. Numbers rise in all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.wire import Node as Address
from leasehold._backends.redlock.backend import RedlockBackend
from leasehold._backends.redlock.calls import LOCK, Calls
from leasehold._backends.redlock.node import Node
from leasehold._backends.redlock.nodes import Nodes
from leasehold._backends.redlock.options import Options
from leasehold._core.quorum import majority
from leasehold.errors import BackendError
from leasehold.values import Refusal
from verification.simulation.network import Link
from verification.simulation.redis.server import SimRedis
from verification.simulation.redlock.wire import NodeLink, SimNodeWire
from verification.simulation.server_stage import ServerStage
from verification.simulation.watched import Held, ServerModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.simulation.history import History
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import Process, World

__all__ = ["RedlockStage", "open_plain"]

NODES = 5
MAX_TTL = 12.0
SITS_OUT = MAX_TTL + 4.0
SKEW = 0.2  # between the clocks of two nodes; the window is 2 s
LABEL = "redlock://simulated"
DAY = 86_400.0
DELIVERED = 2.5  # seconds without a disturbance in which every node gets what was sent to it


def open_plain(servers: Sequence[SimRedis], links: Sequence[NodeLink], runtime: Any) -> RedlockBackend:
    """The shipped protocol over simulated nodes, and nothing in front of it."""
    options = Options(max_ttl=MAX_TTL, answer_timeout=0.05)
    calls = Calls(options.max_ttl, len(servers))
    nodes = [
        Node(Address(server.name), SimNodeWire(link, runtime, server, options.answer_timeout), clock=runtime.now)
        for server, link in zip(servers, links, strict=True)
    ]
    return RedlockBackend(Nodes(nodes, calls, runtime, LABEL), calls, options, runtime)


class RedlockStage(ServerStage):
    """Five nodes for one run."""

    faulty = "node"
    faults_per_ttl = 0.6
    keeps_records = False
    model: RedlockModel
    capabilities = RedlockBackend.capabilities
    drift = 0.004

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        super().__init__(world, history, schedule)
        self._servers = [self._server(f"n{number}") for number in range(NODES)]
        self.model = RedlockModel(world, history, ServersOfRedlock(self._servers))
        self._ways: list[NodeLink] = []
        self._queueing = False
        self.delay = 2 * SITS_OUT
        self.jumps = False
        self._jumper: SimRedis | None = None

    def _server(self, name: str) -> SimRedis:
        random = self._world.random
        server = SimRedis(self._world, rate=1.0 + 0.001 * (2 * random.random() - 1), name=name)
        server.step_clock(SKEW * (random.random() - 0.5))
        return server

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:  # noqa: ARG002 - it has no queue
        """See `Stage`."""
        random = self._world.random
        self._ttl = ttl
        breaks = random.choice(["", "empty", "empty", "flush", "jump", "restart"])
        if forgetful:
            breaks = "empty"
        self._faults = [
            self._stall,
            self._forget_scripts,
            self._hang_up,
            self._part,
            self._go_down,
            *{
                "empty": (self._restart_empty,) * 4,
                "flush": (self._flush,) * 2,
                "jump": (self._jump,) * 3,
                "restart": (self._restart,) * 3,
            }.get(breaks, ()),
        ]
        self.jumps = breaks == "jump"
        self.model.excuses = breaks != ""
        self.model.waits_out = not self.jumps
        self._greet_all()

    def _greet_all(self) -> None:
        """The nodes have been there for long: their markers are older than they would sit out."""
        for server in self._servers:
            run_id, settings = server.run_id.encode(), f"{round(MAX_TTL * 1000)}/{NODES}".encode()
            since = b"%d" % (server.now_us // 1000 - 100_000)
            server.database.run([b"HSET", b"leasehold:redlock:node", b"r", run_id, b"s", since, b"x", settings])

    def open_plain(self, link: Link, runtime: Any) -> RedlockBackend:
        """See `ServerStage`."""
        ways = [NodeLink(link) for _ in self._servers]
        self._ways += ways
        return open_plain(self._servers, ways, runtime)

    # --- faults

    def heal(self) -> None:
        """See `Stage`."""
        super().heal()
        for server in self._servers:
            server.is_down = False
        for way in self._ways:
            way.cut = False

    def _pick(self, what: str, seconds: float = 0.0, quiet_for: float = 0.0) -> SimRedis:
        server = self._world.random.choice(self._servers)
        self._note(what, seconds, server.name, quiet_for)
        return server

    def _some_time(self) -> float:
        return self._ttl * (0.1 + 2 * self._world.random.random() ** 2)

    def _stall(self) -> None:
        seconds = self._some_time()
        self._pick("stall", seconds).stall(seconds)

    def _forget_scripts(self) -> None:
        self._pick("forget scripts").forget_scripts()

    def _hang_up(self) -> None:
        self._pick("hang up").hang_up_on_all(in_silence=self._world.random.random() < 0.3)

    def _part(self) -> None:
        """One process and one node cannot hear each other."""
        if self._ways:
            seconds = self._some_time()
            way = self._world.random.choice(self._ways)
            self._history.counts["faults"] += 1
            self._world.note("nemesis", "part", way.process.name, round(seconds, 3))
            way.trouble(seconds + 2 * way.timeout)
            way.cut = True
            self._world.after(seconds, way.mend)

    def _go_down(self) -> None:
        self._down("down", lambda _: None)

    def _restart(self) -> None:
        self._down("restart", SimRedis.restart, sits_out=True)

    def _restart_empty(self) -> None:
        def back(server: SimRedis) -> None:
            self._history.counts["empty restarts"] += 1
            server.restart_empty()

        self._down("restart empty", back, sits_out=True)

    def _down(self, what: str, then: Callable[[SimRedis], None], *, sits_out: bool = False) -> None:
        seconds = self._some_time()
        server = self._pick(what, seconds, SITS_OUT if sits_out else 0.0)
        if server.is_down:
            return
        server.is_down = True
        server.hang_up_on_all(in_silence=self._world.random.random() < 0.3)

        def back() -> None:
            server.is_down = False
            then(server)

        self._world.after(seconds, back)

    def _flush(self) -> None:
        self._pick("flush all", 0.0, SITS_OUT).flush()

    def _jump(self) -> None:
        """It is the clock of the same node each time: nothing sets it right, and of five only two may be wrong."""
        seconds = 2 * self._ttl * self._world.random.random() * self._world.random.choice([-1, 1])
        if self._jumper is None:
            self._jumper = self._world.random.choice(self._servers)
        self._note("clock jump", abs(seconds), self._jumper.name, SITS_OUT)
        self._jumper.step_clock(seconds)

    # --- the end

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """See `Stage`. A number that is idle is forgotten a day after its own time, and the markers stay."""
        self._world.now += SITS_OUT
        backend = self.open_plain(Link(runtime.process, timeout=1.0), runtime)
        try:
            states = await backend.list("")
        except BackendError as error:
            self._history.violate("the nodes do not answer although all is healed", repr(error))
            return
        finally:
            await backend.close()
        if states:
            self._history.violate("left in the store", f"{[(state.name, len(state.holdings)) for state in states]}")
        self._world.now += 2 * DAY
        for server in self._servers:
            server.database.now_ms = server.now_us // 1000
            left = [key for key in server.database.present() if key != b"leasehold:redlock:node"]
            if left:
                self._history.violate("remembered for ever", f"{server.name} {left}")


class RedlockModel(ServerModel):
    """A release or withdrawal that some nodes have done is done; the others get it when they can be reached.

    So it is with the votes of a claim that is refused although answers of it got lost: they are taken back behind the
    answer, and where the store could not be heard, that is looked at when it can be.
    """

    def sent(self, process: Process, verb: str, subject: Any) -> None:
        """See `Observer`."""
        super().sent(process, verb, subject)
        self.answered(verb, subject, None)

    def answered(self, verb: str, subject: Any, answer: Any) -> None:
        """See `StoreModel`."""
        if isinstance(answer, Refusal) and self.links[subject.owner].well_for < DELIVERED:
            self.unanswered.add(subject.owner)
        if verb in ("release", "withdraw"):
            owner = (subject.claim if verb == "release" else subject).owner
            if self.links[owner].well_for < DELIVERED:
                self.forgotten.add(owner)


class ServersOfRedlock:
    """What a majority of the nodes has."""

    def __init__(self, servers: Sequence[SimRedis]) -> None:
        self._servers = servers

    def held(self, key: str) -> dict[str, Held]:
        """See `Servers`."""
        votes: dict[tuple[str, int], list[tuple[float, bool]]] = {}
        for server in self._servers:
            name = (LOCK + key).encode()
            owner, number, ends, broken = server.database.run([b"HMGET", name, b"o", b"f", b"e", b"b"])
            left = 0.0 if owner is None else (int(ends) - server.now_us // 1000) / 1000
            if left > 0:
                votes.setdefault((owner.decode(), int(number)), []).append((left, broken is not None))
        held = {}
        for (owner, number), each in votes.items():
            if len(each) >= majority(len(self._servers)):
                lefts = sorted((left for left, _ in each), reverse=True)
                now = self._servers[0].world.now
                held[owner] = Held(
                    number, now + lefts[majority(len(self._servers)) - 1], broken=any(b for _, b in each)
                )
        return held

    def waiting(self, key: str) -> tuple[str, ...]:  # noqa: ARG002 - there is no queue
        """See `Servers`."""
        return ()
