"""The etcd store of a run: a cluster of three members, and what befalls it.

Members go down and stand still, leaders change, streams of watches end, and one that was the leader goes on answering
keep-alives. None of that breaks a promise of the store, so every check holds in every seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from leasehold._backends.etcd.backend import EtcdBackend
from leasehold._backends.etcd.claims import read_claim
from leasehold._backends.etcd.inspect import count_holders
from leasehold._backends.etcd.keys import KeySpace
from leasehold._backends.etcd.options import ROOT, Options
from leasehold._backends.etcd.rpc import KeyValue
from leasehold._backends.etcd.wire import Target
from leasehold.errors import BackendError
from leasehold.values import Refusal
from verification.simulation.etcd.server import EPOCH, MEMBERS, SimEtcd
from verification.simulation.etcd.wire import SimEtcdWire
from verification.simulation.network import Link
from verification.simulation.server_stage import ServerStage
from verification.simulation.watched import Held, ServerModel

if TYPE_CHECKING:
    from leasehold._backends.etcd.claims import StoredClaim
    from verification.simulation.history import History
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import World

__all__ = ["EtcdStage", "open_plain"]

LABEL = "etcd://simulated"
SETTLED = 0.5  # seconds without a disturbance in which a client knows whether its session lives
LEASE = 2.5  # seconds for which a claim that was left behind is there at least, whatever its ttl


def open_plain(server: SimEtcd, link: Link, runtime: Any) -> EtcdBackend:
    """The shipped protocol over the simulated wire, and nothing in front of it."""
    targets = tuple(Target("simulated", 2379 + member, 2379) for member in range(MEMBERS))
    wires = [SimEtcdWire(link, runtime, server, member) for member in range(MEMBERS)]
    return EtcdBackend(Options(targets, LABEL, answer_timeout=link.timeout), runtime, wires)


class EtcdStage(ServerStage):
    """One cluster for one run."""

    faulty = "cluster"
    faults_per_ttl = 0.4
    keeps_records = True
    model: EtcdModel
    capabilities = EtcdBackend.capabilities

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        super().__init__(world, history, schedule)
        self._server = SimEtcd(world)
        self._keys = KeysOfEtcd(self._server)
        self.model = EtcdModel(world, history, self._keys)
        self.records = RecordsOfEtcd(self._server)
        self._server.on_change = self._changed
        self.delay = 12 * LEASE

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:  # noqa: ARG002 - it never does
        """See `Stage`."""
        self._ttl, self._queueing = ttl, queueing
        # Its withdrawal is repeated for one ttl. A copy that comes after that, and after no withdrawal, is not refused.
        self._server.latest_copy = 0.4 * ttl
        self._faults = [self._stall, self._down, self._elect, self._lose_streams, self._cut_off_the_leader]

    def open_plain(self, link: Link, runtime: Any) -> EtcdBackend:
        """See `ServerStage`."""
        return open_plain(self._server, link, runtime)

    def _changed(self, key: bytes) -> None:
        name = self._keys.name_of(key)
        if name is not None:
            self.model.changed(name)

    # --- faults

    def heal(self) -> None:
        """See `Stage`."""
        super().heal()
        self._server.is_down = [False] * MEMBERS
        self._server.stale.clear()

    def felt_for(self, link: Link) -> float:
        """See `ServerStage`. A member that does not answer is found out by the first request to it."""
        return 3 * link.timeout

    def _some_time(self) -> float:
        return 0.05 + 2 * self._ttl * self._world.random.random() ** 2

    def _stall(self) -> None:
        member, seconds = self._world.random.randrange(MEMBERS), self._some_time()
        self._note(f"stall {member}", seconds)
        self._server.stalled_until[member] = self._world.now + seconds

    def _down(self) -> None:
        member, seconds = self._world.random.randrange(MEMBERS), self._some_time()
        self._note(f"down {member}", seconds)
        self._server.is_down[member] = True

        def back() -> None:
            self._server.is_down[member] = False

        self._world.after(seconds, back)

    def _elect(self) -> None:
        self._note("another leader")
        self._history.counts["failovers"] += 1
        self._server.elect()

    def _cut_off_the_leader(self) -> None:
        """The leader is cut off; another one is elected; the old one answers keep-alives until it knows."""
        member, seconds = self._world.random.randrange(MEMBERS), self._some_time()
        self._note(f"cut off {member}", seconds)
        self._history.counts["failovers"] += 1
        self._server.stale[member] = self._server.term
        self._server.elect()

        def back() -> None:
            self._server.stale.pop(member, None)

        self._world.after(seconds, back)

    def _lose_streams(self) -> None:
        self._note("lose streams")
        for stream in {name[0] for name in self._server.watches}:
            self._server.end_stream(stream)

    # --- the end

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """See `Stage`. Nothing is left but the floor of the fences, if it was raised, and records."""
        self._world.now += 30.0
        backend = self.open_plain(Link(runtime.process, timeout=1.0), runtime)
        try:
            await runtime.sleep(30.0)
            states = await backend.list("")
        except BackendError as error:
            self._history.violate("the cluster does not answer although all is healed", repr(error))
            return
        finally:
            await backend.close()
        if states:
            self._history.violate("left in the store", f"{[(state.name, len(state.holdings)) for state in states]}")
        await runtime.sleep(2 * 86_400.0)
        if self._server.leases:
            self._history.violate("remembered for ever", f"{len(self._server.leases)} leases")
        left = [key for key in self._server.keys if not key.startswith((b"leasehold/1/f/", b"leasehold/1/r/"))]
        if left:
            self._history.violate("remembered for ever", f"{left}")


class EtcdModel(ServerModel):
    """A client that stood still gives up its session, and with it its claims; their keys end with the lease."""

    def answered(self, verb: str, subject: Any, answer: Any) -> None:  # noqa: ARG002 - the port's shape
        """See `StoreModel`."""
        if isinstance(answer, Refusal) and self.links[(owner := _owner(subject))].well_for < SETTLED:
            self.unwithdrawn.add(owner)


def _owner(subject: Any) -> str:
    owner: str = getattr(subject, "claim", subject).owner
    return owner


class KeysOfEtcd:
    """The claims in the cluster, read with the store's own reader."""

    def __init__(self, server: SimEtcd) -> None:
        self._server = server
        self._space = KeySpace(ROOT)

    def name_of(self, key: bytes) -> str | None:
        """The name of the lock that a claim's key belongs to."""
        rest = key.removeprefix(f"{self._space.root}q/".encode())
        return None if rest == key else unquote(rest.decode().partition("/")[0])

    def _claims(self, key: str) -> tuple[list[StoredClaim], int]:
        """All claims of a lock, oldest first, and how many of them hold."""
        start, end = self._space.queue(key)
        found = sorted(self._server._matching(start, end), key=lambda each: each.created)
        claims = [read_claim(KeyValue(each.key, each.created, each.written, each.value, each.lease)) for each in found]
        return claims, count_holders([(self._space.parse(claim.kv.key), claim) for claim in claims])

    def held(self, key: str) -> dict[str, Held]:
        """See `Servers`. A lease that has run out is there until the leader ends it."""
        claims, holders = self._claims(key)
        held = {}
        for claim in claims[:holders]:
            lease = self._server.leases[claim.kv.lease]
            ends = max(lease.expires, self._server.world.now + 1e-6)
            held[claim.owner] = Held(claim.fence, ends, claim.cooling, broken=claim.broken is not None)
        return held

    def waiting(self, key: str) -> set[str]:
        """See `Servers`."""
        claims, holders = self._claims(key)
        return {claim.owner for claim in claims[holders:]}


class RecordsOfEtcd:
    """The keys of records. Clients read whole seconds of the time of day, and go by their own clocks for a while."""

    error = 1.5

    def __init__(self, server: SimEtcd) -> None:
        self._server = server
        self._keys = KeySpace(ROOT)

    def time(self) -> float:
        """See `StoredRecords`."""
        return EPOCH + self._server.world.now

    def value(self, key: str) -> bytes:
        """See `StoredRecords`."""
        stored = self._server.keys.get(self._keys.record(key)[1])
        return b"" if stored is None else stored.value
