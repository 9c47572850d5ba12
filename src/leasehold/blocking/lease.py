"""`Lease`, `LeaseSet`, `Lost` and `Hold`: the blocking twins of `leasehold.lease` and `leasehold.hold`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from leasehold._runtimes.threads import run
from leasehold.blocking._mirror import mirrors
from leasehold.hold import AsyncHold
from leasehold.lease import AsyncLease, AsyncLeaseSet, AsyncLost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from leasehold.durations import Duration
    from leasehold.values import Holder, Loss

__all__ = ["Hold", "Lease", "LeaseSet", "Lost"]

L = TypeVar("L")


@mirrors(AsyncLost)
class Lost:
    def __init__(self, twin: AsyncLost) -> None:
        self._twin = twin

    @mirrors(AsyncLost.is_set)
    def is_set(self) -> bool:
        return self._twin.is_set()

    @mirrors(AsyncLost.wait)
    def wait(self, timeout: Duration | None = None) -> bool:
        return run(self._twin.wait(timeout))


@mirrors(AsyncLease)
class Lease:
    def __init__(self, twin: AsyncLease) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncLease.name)
    def name(self) -> str:
        return self._twin.name

    @property
    @mirrors(AsyncLease.fence)
    def fence(self) -> int:
        return self._twin.fence

    @property
    @mirrors(AsyncLease.ttl)
    def ttl(self) -> float:
        return self._twin.ttl

    @property
    @mirrors(AsyncLease.holder)
    def holder(self) -> Holder:
        return self._twin.holder

    @property
    @mirrors(AsyncLease.abandoned)
    def abandoned(self) -> bool | None:
        return self._twin.abandoned

    @property
    @mirrors(AsyncLease.lost)
    def lost(self) -> Lost:
        return Lost(self._twin.lost)

    @property
    @mirrors(AsyncLease.loss)
    def loss(self) -> Loss | None:
        return self._twin.loss

    @mirrors(AsyncLease.remaining)
    def remaining(self) -> float:
        return self._twin.remaining()

    @mirrors(AsyncLease.check)
    def check(self, need: Duration = 0) -> None:
        self._twin.check(need)

    @mirrors(AsyncLease.renew)
    def renew(self) -> float:
        return run(self._twin.renew())

    @mirrors(AsyncLease.release)
    def release(self) -> bool:
        return run(self._twin.release())

    def __enter__(self) -> Lease:
        run(self._twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))

    @mirrors(AsyncLease.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncLease", "Lease")


@mirrors(AsyncLeaseSet)
class LeaseSet:
    def __init__(self, twin: AsyncLeaseSet) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncLeaseSet.name)
    def name(self) -> str:
        return self._twin.name

    @property
    @mirrors(AsyncLeaseSet.leases)
    def leases(self) -> Mapping[str, Lease]:
        return {name: Lease(lease) for name, lease in self._twin.leases.items()}

    @property
    @mirrors(AsyncLeaseSet.fences)
    def fences(self) -> Mapping[str, int]:
        return self._twin.fences

    @property
    @mirrors(AsyncLeaseSet.lost)
    def lost(self) -> Lost:
        return Lost(self._twin.lost)

    @property
    @mirrors(AsyncLeaseSet.loss)
    def loss(self) -> Loss | None:
        return self._twin.loss

    @mirrors(AsyncLeaseSet.remaining)
    def remaining(self) -> float:
        return self._twin.remaining()

    @mirrors(AsyncLeaseSet.check)
    def check(self, need: Duration = 0) -> None:
        self._twin.check(need)

    @mirrors(AsyncLeaseSet.renew)
    def renew(self) -> float:
        return run(self._twin.renew())

    @mirrors(AsyncLeaseSet.release)
    def release(self) -> bool:
        return run(self._twin.release())

    def __enter__(self) -> LeaseSet:
        run(self._twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))

    @mirrors(AsyncLeaseSet.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncLeaseSet", "LeaseSet")


@mirrors(AsyncHold)
class Hold(Generic[L]):
    def __init__(self, twin: AsyncHold[Any], wrap: Callable[[Any], L]) -> None:
        self._twin = twin
        self._wrap = wrap

    def __enter__(self) -> L:
        return self._wrap(run(self._twin.__aenter__()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))
