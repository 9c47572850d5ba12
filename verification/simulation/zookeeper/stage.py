"""The ZooKeeper store of a run: an ensemble of three members, and what befalls it.

Members stand still, go down, lag behind and drop their clients; they are cut off from the others, the leader too, which
goes on answering until it knows; leaders change. None of that breaks a promise of the store, so every check holds in
every seed. Sessions are six ticks long at least, as the store asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.zookeeper.backend import ZooKeeperBackend
from leasehold._backends.zookeeper.claim_node import Registry
from leasehold._backends.zookeeper.keys import BREAK_NOTE, NodeData, Paths, key_of, node_id, parse_node
from leasehold._backends.zookeeper.options import DEFAULT_ROOT, Options
from leasehold._backends.zookeeper.queue import split
from leasehold._backends.zookeeper.validity import session_timeout
from leasehold.errors import BackendError
from leasehold.values import Refusal
from verification.simulation.network import Link
from verification.simulation.server_stage import ServerStage
from verification.simulation.watched import Held, ServerModel
from verification.simulation.zookeeper.server import MEMBERS, SimEnsemble
from verification.simulation.zookeeper.wire import Host

if TYPE_CHECKING:
    from leasehold._backends.zookeeper.keys import Sibling
    from leasehold.values import Claim
    from verification.simulation.history import History
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import World
    from verification.simulation.zookeeper.member import Member

__all__ = ["ZooKeeperStage", "open_plain"]

OPTIONS = Options(tuple((f"member-{number}", 2181) for number in range(MEMBERS)), DEFAULT_ROOT, "zk://simulated")
SHORTEST_TTL = 0.5  # of the usual one, as the programs draw it
TICKS = 6  # of the shortest session, at least
RECOVERED = 4.0  # seconds after a disturbance of the ensemble in which a client has found a member that works
SETTLED = 0.5  # seconds without a disturbance in which a client knows whether its session lives
SYNC_LIMIT = 5  # ticks after which a member that is cut off drops its clients


def open_plain(ensemble: SimEnsemble, link: Link, runtime: Any) -> ZooKeeperBackend:
    """The shipped protocol over the simulated wire, and nothing in front of it."""
    host = Host(link, runtime, ensemble)
    return ZooKeeperBackend(
        OPTIONS, runtime, registry=Registry(), open_wire=host.open_wire, make_worker=host.make_worker
    )


class ZooKeeperStage(ServerStage):
    """One ensemble for one run."""

    faulty = "ensemble"
    keeps_records = False
    model: ZooKeeperModel
    capabilities = ZooKeeperBackend.capabilities

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        super().__init__(world, history, schedule)
        self._ensemble = SimEnsemble(world)
        self._nodes = NodesOfZooKeeper(self._ensemble)
        self.model = ZooKeeperModel(world, history, self._nodes)
        self._ensemble.on_change = self._changed

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:  # noqa: ARG002 - it never does
        """See `Stage`."""
        self._ttl, self._queueing = ttl, queueing
        shortest = session_timeout(SHORTEST_TTL * ttl)
        self._ensemble.tick = shortest / TICKS / self._world.random.choice([1, 1, 3, 10])
        self.delay = 8 * session_timeout(1.5 * ttl) + 3 * RECOVERED
        self._faults = [self._stall, self._down, self._elect, self._drop, self._lag, self._cut_off, self._cut_off]

    def open_plain(self, link: Link, runtime: Any) -> ZooKeeperBackend:
        """See `ServerStage`."""
        return open_plain(self._ensemble, link, runtime)

    def _changed(self, path: str) -> None:
        name = self._nodes.name_of(path)
        if name is not None:
            self.model.changed(name)

    # --- faults

    def heal(self) -> None:
        """See `Stage`."""
        super().heal()
        for member in self._ensemble.members:
            member.lag = 0.0
            member.stalled_until = self._world.now
            self._back(member)

    def felt_for(self, link: Link) -> float:  # noqa: ARG002 - clients of all links look for a member alike
        """See `ServerStage`."""
        return RECOVERED

    def _some_time(self) -> float:
        return 0.05 + 2 * self._ttl * self._world.random.random() ** 2

    def _one(self) -> Member:
        return self._world.random.choice(self._ensemble.members)

    def _stall(self) -> None:
        member, seconds = self._one(), self._some_time()
        self._note(f"stall {member.number}", seconds)
        member.stalled_until = self._world.now + seconds
        self._world.after(seconds + 1e-6, self._ensemble.resume)

    def _drop(self) -> None:
        member = self._one()
        self._note(f"drop the clients of {member.number}")
        member.drop_clients()

    def _lag(self) -> None:
        member, seconds = self._one(), self._some_time()
        self._note(f"lag {member.number}", seconds)
        member.lag = 0.3 * self._ttl * self._world.random.random()

        def back() -> None:
            member.lag = 0.0

        self._world.after(seconds, back)

    def _elect(self) -> None:
        seconds = 0.2 * self._some_time()
        self._note("another leader", seconds)
        self._replace_the_leader(seconds)

    def _replace_the_leader(self, seconds: float) -> None:
        others = [each for each in self._ensemble.members if each.number != self._ensemble.leader]
        able = [each for each in others if not each.is_away] or others
        self._history.counts["failovers"] += 1
        self._ensemble.elect(self._world.random.choice(able).number, seconds)

    def _is_whole(self) -> bool:
        """Whether another member may be lost without a majority being lost."""
        return not any(each.is_down or each.is_cut_off for each in self._ensemble.members)

    def _down(self) -> None:
        member, seconds = self._one(), self._some_time()
        if not self._is_whole():
            return
        self._note(f"down {member.number}", seconds)
        member.is_down = True
        member.drop_clients()
        if member.number == self._ensemble.leader:
            self._replace_the_leader(0.2 * seconds)
        self._world.after(seconds, lambda: self._back(member))

    def _cut_off(self) -> None:
        """A member is cut off from the others: it answers reads and pings for a while."""
        member, seconds = self._one(), self._some_time()
        if not self._is_whole():
            return
        self._note(f"cut off {member.number}", seconds)
        knows_after = SYNC_LIMIT * self._ensemble.tick
        if member.number == self._ensemble.leader:  # the others have noticed: it does so at most a tick later
            member.is_stale_leader = True
            self._replace_the_leader(0.1 * seconds)
            knows_after = self._ensemble.tick * self._world.random.random()
        member.is_cut_off = True
        self._world.after(knows_after, lambda: self._knows(member))
        self._world.after(seconds, lambda: self._back(member))

    def _knows(self, member: Member) -> None:
        if member.is_cut_off or member.is_stale_leader:
            member.drop_clients()
            member.is_stale_leader = False

    def _back(self, member: Member) -> None:
        if member.is_stale_leader:
            member.drop_clients()
        member.is_down = member.is_cut_off = member.is_stale_leader = False
        self._ensemble.resume()
        member.catch_up()

    # --- the end

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """See `Stage`. Nothing is left but the root, and containers of which a process died before it used them."""
        self._world.now += 30.0
        backend = self.open_plain(Link(runtime.process, timeout=1.0), runtime)
        try:
            await runtime.sleep(30.0)
            states = await backend.list("")
        except BackendError as error:
            self._history.violate("the ensemble does not answer although all is healed", repr(error))
            return
        finally:
            await backend.close()
        if states:
            self._history.violate("left in the store", f"{[(state.name, len(state.holdings)) for state in states]}")
        await runtime.sleep(60.0)
        paths = self._nodes.paths
        known = {"/", paths.root, paths.locks, paths.fence}
        nodes = self._ensemble.tree.nodes
        left = [path for path, node in sorted(nodes.items()) if path not in known and not node.is_unused_container]
        if left or self._ensemble.sessions:
            self._history.violate("remembered for ever", f"{left}, {len(self._ensemble.sessions)} sessions")
        watches = sum(len(member.watches) for member in self._ensemble.members)
        if watches:
            self._history.violate("remembered for ever", f"{watches} watches")


class ZooKeeperModel(ServerModel):
    """A client that stood still gives up its session, and with it its claims; their nodes end with the session."""

    _servers: NodesOfZooKeeper

    def expect(self, claim: Claim, link: Link) -> None:
        """See `Watcher`."""
        super().expect(claim, link)
        self._servers.owners[node_id(claim.owner)] = claim.owner

    def answered(self, verb: str, subject: Any, answer: Any) -> None:
        """See `StoreModel`."""
        if isinstance(answer, Refusal) or verb in ("withdraw", "leave") or (verb == "release" and answer is False):
            owner: str = getattr(subject, "claim", subject).owner
            if self.links[owner].well_for < SETTLED:
                self.unwithdrawn.add(owner)


class NodesOfZooKeeper:
    """The claims as the leader has them, read with the store's own readers."""

    def __init__(self, ensemble: SimEnsemble) -> None:
        self._ensemble = ensemble
        self.paths = Paths(OPTIONS.root)
        self.owners: dict[str, str] = {}  # by what a node's name says of them

    def name_of(self, path: str) -> str | None:
        """The name of the lock that a claim's node belongs to."""
        parent, _, name = path.rpartition("/")
        if not name or not parent.startswith(f"{self.paths.locks}/"):
            return None
        return key_of(parent.rpartition("/")[2])

    def _claims(self, key: str) -> tuple[list[Sibling], list[Sibling]]:
        """Those that hold, and those that wait."""
        siblings = [parse_node(name) for name in self._ensemble.tree.below(self.paths.lock(key))]
        return split(sorted((s for s in siblings if s.letter != BREAK_NOTE), key=lambda s: s.sequence))

    def held(self, key: str) -> dict[str, Held]:
        """See `Servers`. A session whose time is over is there until the leader ends it."""
        held, ensemble = {}, self._ensemble
        for sibling in self._claims(key)[0]:
            node = ensemble.tree.nodes[f"{self.paths.lock(key)}/{sibling.name}"]
            data, session = NodeData.decode(node.data), ensemble.sessions.get(node.owner)
            ends = ensemble.world.now + 1e-6
            if session is not None:
                ends = max(ends, session.expires / ensemble.rate)
            held[self.owners.get(sibling.id, sibling.id)] = Held(
                data.floor + node.czxid, ends, broken=data.broken is not None
            )
        return held

    def waiting(self, key: str) -> set[str]:
        """See `Servers`."""
        return {self.owners.get(sibling.id, sibling.id) for sibling in self._claims(key)[1]}
