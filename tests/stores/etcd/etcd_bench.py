"""A simulated cluster of etcd, clients of it whose calls are noted and can fail, and time that passes on command."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd.backend import EtcdBackend
from leasehold._backends.etcd.claims import LocalClaim
from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.keys import KeySpace
from leasehold._backends.etcd.options import Options
from leasehold._backends.etcd.rpc import Method
from leasehold._backends.etcd.sessions import Session
from leasehold._backends.etcd.wire import Target
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode
from verification.simulation import SimRuntime, World
from verification.simulation.etcd.server import MEMBERS, SimEtcd
from verification.simulation.etcd.wire import SimEtcdWire
from verification.simulation.network import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from leasehold._backends.etcd.wire import Metadata, Stream

__all__ = [
    "BROKEN", "DENIED", "GONE", "LABEL", "LOST", "REFUSED", "RESET", "Bench", "Call", "NotedWire", "granted", "local",
    "same_suffixes", "session", "waiting",
]  # fmt: skip

LABEL = "etcd://bench"
LOST = CallFailed("DEADLINE_EXCEEDED", "Deadline Exceeded")
RESET = CallFailed("UNAVAILABLE", "Connection reset by peer")
REFUSED = CallFailed("UNAVAILABLE", "failed to connect to all addresses")
DENIED = CallFailed("PERMISSION_DENIED", "etcdserver: permission denied")
GONE = CallFailed("NOT_FOUND", "etcdserver: requested lease not found")
BROKEN = Loss(LossReason.BROKEN, "stuck")
CLAIM = Claim("ns:x", "owner", 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


class Call:
    """One call as it left the client."""

    def __init__(self, member: int, method: str, request: bytes, timeout: float) -> None:
        self.member = member
        self.method = Method(method)
        self.request = request
        self.timeout = timeout


class NotedWire:
    """A simulated wire that notes its calls; `then` of the bench may let one fail."""

    def __init__(self, bench: Bench, wire: SimEtcdWire, member: int) -> None:
        self._bench = bench
        self._wire = wire
        self._member = member

    async def call(
        self, method: str, request: bytes, timeout: float, metadata: Metadata, *, uncancelled: bool = False
    ) -> bytes:
        call = Call(self._member, method, request, timeout)
        self._bench.calls.append(call)
        before = self._bench.before.pop(call.method, None)
        if before is not None:
            before()
        plan = self._bench.plans.get(call.method, [])
        step = plan.pop(0) if plan else None
        if isinstance(step, CallFailed):
            await self._wire.runtime.sleep(0.001)
            raise CallFailed(step.code, step.details)
        answer = await self._wire.call(method, request, timeout, metadata, uncancelled=uncancelled)
        if step == "lost":
            raise CallFailed(LOST.code, LOST.details)
        if step == "slow":
            await self._wire.runtime.sleep(1.0)
        return answer

    def stream(self, method: str, metadata: Metadata) -> Stream:
        return self._wire.stream(method, metadata)

    async def date(self, timeout: float) -> str:
        return await self._wire.date(timeout)

    async def close(self) -> None:
        await self._wire.close()


class Bench:
    """One world with one cluster; every client is a process of its own."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.server = SimEtcd(self.world)
        self.main = SimRuntime(self.world.process("main"))
        self.calls: list[Call] = []
        self.plans: dict[str, list[CallFailed | str | None]] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self._clients = self._claims = 0

    def client(self, **options: Any) -> Any:
        """A backend in a process of its own."""
        self._clients += 1
        process = self.world.process(f"p{self._clients}")
        runtime, link = SimRuntime(process), Link(process, timeout=3.0)
        targets = tuple(Target("bench", 2379 + member, 2379) for member in range(MEMBERS))
        wires = [NotedWire(self, SimEtcdWire(link, runtime, self.server, member), member) for member in range(MEMBERS)]
        return EtcdBackend(Options(targets, LABEL, **options), runtime, wires)

    def claim(
        self, key: str = "ns:x", ttl: float = 60.0, mode: Mode = Mode.EXCLUSIVE, capacity: int = 1, min_hold: float = 0
    ) -> Claim:
        """A claim of its own."""
        self._claims += 1
        return Claim(key, f"owner{self._claims}", ttl, mode, capacity, min_hold, Holder("host", self._claims))

    def plan(self, method: Method, *steps: CallFailed | str | None) -> None:
        """What becomes of the next calls of this method: an error, `lost` (applied, and no answer), `slow`, nothing."""
        self.plans[method] = list(steps)

    def methods(self) -> list[Method]:
        """What was called since the last time."""
        calls, self.calls = self.calls, []
        return [call.method for call in calls]

    def stored(self) -> list[bytes]:
        """Every key in the cluster."""
        return sorted(self.server.keys)

    def claims_stored(self) -> list[bytes]:
        """The keys of claims."""
        return [key for key in self.stored() if b"/q/" in key]

    def seconds_of(self, key: bytes) -> float:
        """The ttl of the lease that this key is on."""
        return float(self.server.leases[self.server.keys[key].lease].ttl)

    def write(self, key: bytes, value: bytes, lease: int = 0) -> None:
        """As another client or program does."""
        self.server._changed = []
        self.server._put(key, value, lease)
        self.server._commit()

    def rewrite(self, key: bytes) -> None:
        """Another client writes a key, and what it has already."""
        stored = self.server.keys[key]
        self.write(key, stored.value, stored.lease)

    def delete(self, key: bytes) -> None:
        """As another client or program does."""
        self.server._changed = []
        self.server._delete(key)
        self.server._commit()

    def lose_lease(self) -> int:
        """The only lease is gone, as if it had expired."""
        (lease,) = self.server.leases
        self.server.revoke(lease)
        return int(lease)

    @contextmanager
    def interference(self, client: Any, act: Callable[[], object], times: int = 1000) -> Iterator[None]:
        """Before each of the next transactions of this client somebody acts, so many times."""
        plain, left = client._connection.txn, [times]

        async def act_first(request: bytes, *given: Any, **options: Any) -> Any:
            if left[0]:
                left[0] -= 1
                act()
            return await plain(request, *given, **options)

        client._connection.txn = act_first
        try:
            yield
        finally:
            client._connection.txn = plain

    async def together(self, *verbs: Coroutine[Any, Any, Any]) -> None:
        """All of them at once, to their ends."""
        tasks = [self.main.start(verb, f"one of {len(verbs)}") for verb in verbs]
        until = self.main.now() + 60
        for task in tasks:
            assert await task.join(until)

    def run(self, history: Coroutine[Any, Any, None]) -> None:
        """Run it to its end, in the main process; after that nothing runs any more."""
        try:
            self.world.run(history, self.main.process)
        finally:
            self.world.end()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await self.main.sleep(seconds)


def granted(answer: object) -> Grant:
    """The answer, which must be a grant."""
    assert isinstance(answer, Grant), answer
    return answer


def waiting(answer: object) -> Place:
    """The answer, which must be a place in the queue."""
    assert isinstance(answer, Place), answer
    return answer


def session(ttl: int = 10, sent: float = 100.0, lease: int = 7) -> Session:
    """A session without a cluster."""
    return Session(lease, ttl, sent, nullcontext())


def local(of: Session, claim: Claim = CLAIM) -> LocalClaim:
    """What a client remembers of a claim in this session."""
    return LocalClaim(claim, KeySpace("l/").of(claim.key, claim.mode, claim.capacity), of, b"key", 3)


def same_suffixes(*clients: Any) -> None:
    """They begin at the same number, and so collide."""
    for client in clients:
        client._claims.suffixes._first = 7
