"""`zk://h1,h2,h3/root`: the verbs of the port, each handed to the part that does it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from leasehold._backends.zookeeper.acquire import Acquirer
from leasehold._backends.zookeeper.calls import Calls
from leasehold._backends.zookeeper.claim_node import registry_for
from leasehold._backends.zookeeper.fences import Fences
from leasehold._backends.zookeeper.inspect import Inspector
from leasehold._backends.zookeeper.keys import Paths
from leasehold._backends.zookeeper.pool import Pool
from leasehold._backends.zookeeper.release import Releaser
from leasehold._backends.zookeeper.renew import Renewer
from leasehold._backends.zookeeper.session_worker import SessionWorker
from leasehold._backends.zookeeper.wire import KazooWire
from leasehold.errors import ClientClosed
from leasehold.spi import Place
from leasehold.values import Capability, Grant, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.zookeeper.claim_node import Registry
    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.wire import OpenWire
    from leasehold.findings import Finding
    from leasehold.spi import Runtime
    from leasehold.values import Claim, LockState, Loss

__all__ = ["ZooKeeperBackend"]

Answer = TypeVar("Answer", bound=Grant | Place | Refusal)


class ZooKeeperBackend:
    """A client's sessions with an ensemble."""

    capabilities = frozenset(
        {
            Capability.EXCLUSIVE,
            Capability.FENCING,
            Capability.INSPECT,
            Capability.SHARED,
            Capability.PERMITS,
            Capability.FIFO,
            Capability.PUSH,
            Capability.SESSION,
        }
    )

    def __init__(
        self,
        options: Options,
        runtime: Runtime,
        *,
        registry: Registry | None = None,
        open_wire: OpenWire = KazooWire,
        make_worker: Callable[[Callable[[], float], str], SessionWorker] = SessionWorker,
    ) -> None:
        self.label = options.label
        self._options = options
        self._runtime = runtime
        self._paths = paths = Paths(options.root)
        self._registry = registry = registry or registry_for(options.identity)
        self._calls = calls = Calls(runtime, options.label)
        self._pool = pool = Pool(options, paths, registry, runtime, open_wire=open_wire, make_worker=make_worker)
        fences = Fences(options, paths, runtime, calls)
        self._releaser = releaser = Releaser(runtime, registry, calls)
        self._renewer = Renewer(runtime, registry, calls, releaser)
        self._acquirer = Acquirer(
            options,
            paths,
            runtime=runtime,
            registry=registry,
            calls=calls,
            pool=pool,
            fences=fences,
            releaser=releaser,
        )
        self._inspector = Inspector(options, paths, runtime=runtime, calls=calls, pool=pool, fences=fences)

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        with self._calls:
            answer = self._unless_closed(claim, await self._acquirer.join(claim, until))
            if not isinstance(answer, Place):
                return answer
            await self._releaser.withdraw(claim, until, doubt=False)
            return Refusal(claim.key, answer.holder, None, answer.ahead)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        with self._calls:
            return self._unless_closed(claim, await self._acquirer.join(claim, until))

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        with self._calls:
            return self._unless_closed(place.claim, await self._acquirer.turn(place.claim, until))

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        with self._calls:
            return await self._renewer.renew(grants, until)

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        with self._calls:
            return await self._releaser.release(grant, until)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        """Works after `close` too: the session worker deletes nodes that are left in sessions with grants."""
        await self._releaser.withdraw(claim, until, doubt=doubt)

    async def inspect(self, key: str) -> LockState | None:
        with self._calls:
            return await self._inspector.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        with self._calls:
            return await self._inspector.list(prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        with self._calls:
            return await self._inspector.break_(key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        with self._calls:
            return await self._inspector.raise_fence(key, fence)

    async def examine(self) -> Sequence[Finding]:
        from leasehold._backends.zookeeper.doctor import Doctor  # noqa: PLC0415 - only the doctor needs it

        doctor = Doctor(self._options, self._paths, runtime=self._runtime, calls=self._calls, pool=self._pool)
        with self._calls:
            return await doctor.examine()

    async def close(self) -> None:
        self._calls.close()
        await self._pool.close()

    def _unless_closed(self, claim: Claim, answer: Answer) -> Answer:
        """An answer that arrives while the client is closed is given up: no caller will use it."""
        if self._calls.is_closed:
            node = self._registry.nodes.get(claim.owner)
            if node is not None:
                node.session.give_up(node)
                node.session.wake()
            raise ClientClosed(backend=self.label)
        return answer
