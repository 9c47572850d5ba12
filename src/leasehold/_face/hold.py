"""The block that runs under a lease: interrupted by a loss, released at the end, its own errors never hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from leasehold.errors import AcquireTimeout, BackendError, ClientClosed, ConfigurationError, LeaseLost
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from leasehold._core.open_client import OpenClient
    from leasehold._core.tenure import Watcher
    from leasehold._face.client import AsyncClient
    from leasehold._face.lock_spec import OnBusy, Timeout
    from leasehold.spi import Signal

__all__ = ["AsyncHold", "Block", "lost_error", "wait_lost"]


class Held(Protocol):
    """What a block needs of the lease, or set of leases, that it runs under."""

    @property
    def _opened(self) -> OpenClient: ...
    @property
    def name(self) -> str: ...
    @property
    def loss(self) -> Loss | None: ...
    def remaining(self) -> float: ...
    def _is_kept(self) -> bool: ...
    async def release(self) -> bool: ...
    def _watch(self, watcher: Watcher) -> None: ...
    def _unwatch(self, watcher: Watcher) -> None: ...


L = TypeVar("L", bound="Held")


def lost_error(lease: Held, loss: Loss, *, completed: bool) -> LeaseLost:
    """The error for a lost lease."""
    done = "; the block had already run to its end" if completed else ""
    return LeaseLost(
        f"the lease of {lease.name!r} is over ({loss.reason}): {loss.detail}{done}",
        name=lease.name,
        backend=lease._opened.backend.label,
        reason=loss.reason,
        completed=completed,
    )


class Block:
    """The code between entering and leaving.

    It must not refer to its lease: the lease refers to it, and a lease that the program has dropped has to disappear at
    once, without waiting for the garbage collector, so that it is not renewed.
    """

    def __init__(self, lease: Held, on_lost: Callable[[Loss], object] | None = None) -> None:
        self._on_lost = on_lost
        self._scope = lease._opened.runtime.scope()
        lease._watch(self)

    def on_end(self, loss: Loss | None) -> None:
        """Interrupt the code, where the runtime can, and call the user's `on_lost`."""
        if loss is None:
            return
        self._scope.cancel()
        if self._on_lost is not None:
            self._on_lost(loss)

    def loss_is_raised(self) -> None:
        """The code is about to get the loss as an exception of its own call, so that it need not be interrupted."""
        self._scope.loss_is_raised()

    async def leave(
        self,
        lease: Held,
        error: BaseException | None,
        before_release: Callable[[], Awaitable[Loss | None]] | None = None,
    ) -> None:
        """Release, or raise `LeaseLost` if the lease was lost before the code ended.

        `before_release` is called while the lease is still held, and may find that it is not.
        """
        lease._unwatch(self)  # first: what comes now must not be interrupted by a loss
        interrupted = await self._scope.leave(error)
        loss = lease.loss
        if loss is None and before_release is not None:
            loss = await _wind_up(lease, error, before_release)
        elif loss is None or lease._is_kept():
            taken = await _give_back(lease, error)
            loss = loss or taken
        if loss is None:
            return
        if error is None or interrupted:
            raise lost_error(lease, loss, completed=error is None) from error
        if not isinstance(error, LeaseLost):
            error.add_note(f"leasehold: the lease of {lease.name!r} was lost as well ({loss.reason}): {loss.detail}")


async def _wind_up(
    lease: Held, error: BaseException | None, before_release: Callable[[], Awaitable[Loss | None]]
) -> Loss | None:
    """Do what has to be done under the lease, then release, whatever came of it."""
    try:
        found = await before_release()
    except GeneratorExit:
        raise  # nothing can be awaited any more; the ttl frees the lock
    except BaseException as failure:
        await _give_back(lease, failure)
        raise
    gone = await _give_back(lease, error)  # also if it is lost: the keeper must stop keeping it
    return found or gone


async def _give_back(lease: Held, error: BaseException | None) -> Loss | None:
    """Release at the end of a block. A store that does not answer is a warning: it is tried again until the ttl."""
    held = lease.remaining() > 0
    try:
        freed = await lease.release()
    except (BackendError, ClientClosed) as failure:
        if error is not None:
            error.add_note(f"leasehold: {lease.name!r} could not be released either: {failure}")
        return None
    if freed or not held:
        return None
    return lease.loss or Loss(LossReason.TAKEN, "the store no longer knew this grant when it was released")


class AsyncHold(Generic[L]):
    """Takes a lock for a block: `async with lock.hold() as lease`. The body never runs without the lock."""

    def __init__(
        self,
        client: AsyncClient,
        acquire: Callable[[float | None], Awaitable[L]],
        timeout: Timeout,
        on_lost: Callable[[Loss], object] | None,
        on_busy: OnBusy = None,
    ) -> None:
        if on_busy is not None:
            client._check_on_busy(on_busy)
        if on_lost is not None and not callable(on_lost):
            raise ConfigurationError(f"on_lost must be a function, not {on_lost!r}")
        self._client = client
        self._acquire = acquire  # until a deadline, which begins to run when the block is entered
        self._timeout = timeout
        self._on_lost = on_lost
        self._on_busy = on_busy
        self._lease: L | None = None
        self._block: Block | None = None

    async def __aenter__(self) -> L:
        if self._lease is not None:
            raise TypeError("this hold is in use or used up; call lock.hold() again for another block")
        try:
            self._lease = lease = await self._acquire(self._client._deadline(self._timeout))
        except AcquireTimeout as busy:
            if self._on_busy is not None:
                await self._client._when_busy(self._on_busy, busy)
            raise
        self._block = Block(lease, self._on_lost)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None and self._block is not None:
            await self._block.leave(self._lease, error)


class _SignalOnEnd:
    """A watcher that sets a signal."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal

    def on_end(self, _: Loss | None) -> None:
        self._signal.set()

    def loss_is_raised(self) -> None:
        pass


async def wait_lost(lease: Held, limit: float | None) -> bool:
    """Wait until the lease is lost or released or the limit is over; True if it is lost."""
    lease._opened.require_home(lease.name)
    runtime = lease._opened.runtime
    deadline = None if limit is None else runtime.now() + limit
    signal = runtime.signal()
    watcher = _SignalOnEnd(signal)
    lease._watch(watcher)
    try:
        while (remaining := lease.remaining()) > 0:
            now = runtime.now()
            if deadline is not None and now >= deadline:
                break
            # The clock decides as well, so that nothing depends on the keeper being on time.
            ends = now + remaining
            await runtime.wait(signal, ends if deadline is None else min(deadline, ends))
            signal.clear()
    finally:
        lease._unwatch(watcher)
    return lease.loss is not None
