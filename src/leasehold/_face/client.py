"""The client: opens a store and makes locks. This is the async face, which is also the core face.

Making a client does no I/O. It opens its store with the first call on each event loop, and again in a forked child,
where everything that belongs to the parent is left untouched.
"""

from __future__ import annotations

import functools
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, Unpack, cast

from leasehold._core.capabilities import CAPABILITY_OF_MODE, require
from leasehold._core.events import Events
from leasehold._core.keeper import CLOSE_PATIENCE
from leasehold._core.names import DEFAULT_NAMESPACE, check_fact, check_namespace
from leasehold._core.open_client import open_client
from leasehold._core.open_clients import OpenClients, close_at_home
from leasehold._durations import Duration, optional_seconds, seconds, ttl_seconds
from leasehold._face.lock import AsyncLock, AsyncLockSet, AsyncRWLock
from leasehold._face.lock_spec import (
    SLOW_WAIT,
    LockOptions,
    SlowWait,
    WaitOptions,
    how_to_wait,
    is_whole,
    make_spec,
    takes_the_call,
    with_group,
)
from leasehold._face.operators import AsyncOperators
from leasehold._face.this_process import this_process
from leasehold._lazy import lazy
from leasehold._patterns.of_client import AsyncPatterns
from leasehold._urls import find_namespace, find_store
from leasehold.errors import AcquireTimeout, ConfigurationError
from leasehold.spi import Embedded
from leasehold.values import Capability, Holder, Mode

if TYPE_CHECKING:
    import inspect
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
    from types import TracebackType

    from leasehold._backoff import Backoff
    from leasehold._core.events import Event
    from leasehold._core.open_client import OpenClient
    from leasehold._face.lock_spec import OnBusy, OnWait, Timeout
    from leasehold._face.signals import ReleaseOnSignals
    from leasehold.spi import Runtime, Store
else:
    inspect = lazy("inspect")

__all__ = ["DEFAULT_TTL", "AsyncClient", "connect_async"]

DEFAULT_TTL = 30.0
CONNECT_TIMEOUT = 10.0
MAX_PERMITS = 1_000_000
ROOM_FOR_FENCES = 2**40  # a fence raised to the very end would leave none for the grants after it

P = ParamSpec("P")
R = TypeVar("R")


def connect_async(
    url: object = None,
    *,
    namespace: str | None = None,
    ttl: Duration = DEFAULT_TTL,
    timeout: Duration | None = None,
    label: str | None = None,
    slow_wait: Duration | None = SLOW_WAIT,
    slow_wait_level: int | str = "WARNING",
    options: Mapping[str, object] | None = None,
) -> AsyncClient:
    """Make a client for asyncio; no I/O yet.

    Without a URL, `LEASEHOLD_URL` is used, or the file that `LEASEHOLD_URL_FILE` names; there is no silent default.
    `namespace` keeps applications apart that share a store; `LEASEHOLD_NAMESPACE`, or else `leasehold`.

    `slow_wait`: a call that waits longer for a lock is logged once, with holder and queue, at `slow_wait_level`; None
    for never. `options`: with a driver's client of your own, what a URL would have behind its question mark.
    """
    from leasehold._runtimes.asyncio import AsyncioRuntime  # noqa: PLC0415 - asyncio is loaded only when it is used

    return AsyncClient(
        find_store(url, options),
        AsyncioRuntime(),
        namespace=find_namespace(namespace),
        ttl=ttl,
        timeout=timeout,
        label=label,
        slow_wait=slow_wait,
        slow_wait_level=slow_wait_level,
    )


class AsyncClient(AsyncPatterns, AsyncOperators):
    """Makes locks on one store; use it as an async context manager, or call `close`."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        *,
        namespace: str | None = None,
        ttl: Duration = DEFAULT_TTL,
        timeout: Duration | None = None,
        label: str | None = None,
        connect_timeout: Duration = CONNECT_TIMEOUT,
        slow_wait: Duration | None = SLOW_WAIT,
        slow_wait_level: int | str = "WARNING",
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._namespace = check_namespace(DEFAULT_NAMESPACE if namespace is None else namespace)
        self._ttl = ttl_seconds(ttl)
        self._timeout = optional_seconds(timeout, "timeout")
        self._label = check_fact(label, "label")
        self._connect_timeout = seconds(connect_timeout, "connect_timeout")
        self._slow_wait = SlowWait(slow_wait, slow_wait_level)
        self._events = Events()
        self._close_patience = CLOSE_PATIENCE
        self._open_clients = OpenClients(runtime)
        self._by_home = self._open_clients.by_home
        self._home = None if runtime.blocking else runtime.home
        self._process = os.getpid()
        _CLIENTS.add(self)

    # --- locks

    def lock(self, name: str, **options: Unpack[LockOptions]) -> AsyncLock:
        """A lock that one holder has alone. Nothing is sent to the store yet.

        `ttl` (the client's): it frees itself after this long when its holder vanishes. `renew` (True): extend it while
        it is held. `max_hold` (None): stop renewing after this long, for workers that hang. `min_hold` (0): keep it at
        least so long, for jobs so short that clocks differ by more. `group` (None): what it counts as in statistics.
        `reason` (None): shown to those who wait. `reentrant` (False): the same thread or task may acquire it again,
        and gets the same fence. `slow_wait`, `slow_wait_level` (the client's): when a wait for it is logged, and how.
        `fair` ("batches"): calls of this client that wait for it together are served together, without a request for
        each, before the next process in line; "strict": strictly in order of arrival across processes.
        `linger` (None): after a release keep it for so long, at most a second, so that the next call of this client has
        it without a request; for a worker that takes the same few names again and again. Others wait that much longer.
        """
        return self._make(name, Mode.EXCLUSIVE, 1, **options)

    def semaphore(self, name: str, permits: int, **options: Unpack[LockOptions]) -> AsyncLock:
        """A lock that up to `permits` holders have together. An order of fences cannot protect a resource from them."""
        if not is_whole(permits) or not 1 <= permits <= MAX_PERMITS:
            raise ConfigurationError(f"permits must be a whole number from 1 to {MAX_PERMITS}, not {permits!r}")
        return self._make(name, Mode.PERMIT, permits, **options)

    def rwlock(self, name: str, **options: Unpack[LockOptions]) -> AsyncRWLock:
        """A lock that readers share and a writer has alone: `.read` and `.write`."""
        return AsyncRWLock(self._make(name, Mode.SHARED, 1, **options), self._make(name, Mode.EXCLUSIVE, 1, **options))

    def lock_all(self, names: Iterable[str], **options: Unpack[LockOptions]) -> AsyncLockSet:
        """Several locks taken together, in a fixed order; the lease set has `fences[name]`."""
        if isinstance(names, str):
            raise ConfigurationError("lock_all takes several names, not one text; use lock() for a single name")
        unique = dict.fromkeys(names)
        if not unique:
            raise ConfigurationError("lock_all needs at least one name")
        return AsyncLockSet(self, [self._make(name, Mode.EXCLUSIVE, 1, **options) for name in unique])

    def locked(
        self,
        template: str,
        *,
        timeout: Timeout = ...,
        on_busy: Callable[..., Any] | None = None,
        backoff: Backoff | None = None,
        on_wait: OnWait = None,
        **options: Unpack[LockOptions],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """A decorator: each call runs under the lock whose name is made from its arguments, as in `order:{order_id}`.

        When the lock cannot be had, `on_busy(error)` gives the result; without it `AcquireTimeout` is raised. An
        `on_busy` with two parameters also gets the call itself, a `functools.partial` to be put on a queue and called
        later. A parameter called `lease` that the caller leaves out receives the lease; `lease: Lease = CURRENT` says
        so to type checkers. `backoff` and `on_wait` are those of `acquire`.
        """
        from leasehold._face.name_template import NameTemplate, check_template  # noqa: PLC0415 - only for decorators

        check_template(template, "locked")
        how = how_to_wait(WaitOptions(backoff=backoff, on_wait=on_wait))
        with_call = on_busy is not None and takes_the_call(self._check_on_busy(on_busy))

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if not inspect.iscoroutinefunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is not async; decorate it with a client of connect()"
                )
            names = NameTemplate(template, function)

            @functools.wraps(function)
            async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
                lock = self.lock(names.name(args, kwargs), **with_group(options, template))
                try:
                    lease = await lock._acquire_until(self._deadline(timeout), how)
                except AcquireTimeout as busy:
                    if on_busy is None:
                        raise
                    call = (partial(under_lock, *args, **kwargs),) if with_call else ()
                    return cast("R", await self._when_busy(on_busy, busy, *call))
                async with lease:
                    return await function(*args, **names.with_lease(args, kwargs, lease))

            return under_lock

        return decorate

    def on_event(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Call `listener` with every event of `leasehold.events`; the result ends that."""
        return self._events.subscribe(listener)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the store promises."""
        return self._current().backend.capabilities

    @property
    def store(self) -> str:
        """Which store this is, for messages; without its password."""
        return self._current().backend.label

    @property
    def is_private(self) -> bool:
        """Whether the store ends at the border of this process, as `memory://` does: no other process can share it."""
        backend = self._current().backend
        return isinstance(backend, Embedded) and backend.is_private

    def exists(self) -> bool:
        """False for a store that the first grant would create: a SQLite file, perhaps with a misspelt name."""
        backend = self._current().backend
        return not isinstance(backend, Embedded) or backend.exists()

    # --- life

    async def close(self, *, release: bool = False, timeout: Duration = CLOSE_PATIENCE) -> None:
        """Stop renewing and let go of connections; may be called twice. Leases still held are lost to their holders.

        Those leases are left to their ttl, as another thread or task may be at work under them. With `release` they are
        given back, so that the next holder need not wait: for a program that is about to end. Their holders learn it
        first, with the reason `given back`, and `on_lost` may take up to half of `timeout`; after `timeout` seconds
        what is left is left to its ttl. The client is closed on every event loop that has used it; leases of a loop
        that does not run any more count as dropped.
        """
        deadline = self._runtime.now() + seconds(timeout, "timeout")
        await close_at_home(self._open_clients.take(), partial(_close, deadline if release else None), deadline)

    def release_on_signals(
        self, signals: Iterable[int] | None = None, *, timeout: Duration = CLOSE_PATIENCE
    ) -> ReleaseOnSignals:
        """When a signal ends the process, give back all leases, `close(release=True)`, and then let it end.

        `signals`: SIGTERM and SIGINT, unless others are given; those that are ignored stay ignored. Afterwards the
        handler that was there before gets the signal, or the process ends by it. That comes after `timeout` seconds at
        the latest, also when the store is away, and at once when a second signal comes. Call it in the main thread; the
        result undoes it, as a call or at the end of a `with` block.
        """
        from leasehold._face.signals import ENDING, ReleaseOnSignals  # noqa: PLC0415 - loaded only when it is used

        return ReleaseOnSignals(self, ENDING if signals is None else signals, timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("a client belongs to this process; call connect() in the other one")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} namespace={self._namespace!r}>"

    # --- for locks and faces

    def _open(self) -> OpenClient:
        """What this client has while it is open; on the event loop that runs now, where there is one."""
        home = self._home
        opened = self._by_home.get(None if home is None else home())
        return self._open_clients.here(self._make_open_client) if opened is None else opened

    @property
    def _opened(self) -> OpenClient | None:
        """That of any event loop, for tests that use one."""
        return next(iter(self._open_clients.all()), None)

    def _current(self) -> OpenClient:
        """That of any event loop, to ask what the store is like."""
        return self._open_clients.anywhere(self._make_open_client)

    def _make_open_client(self) -> OpenClient:
        """Without I/O, and without a loop."""
        backend = self._store.open_backend(self._runtime)
        return open_client(self._runtime, backend, self._events, self._connect_timeout, self._close_patience)

    def _deadline(self, timeout: Timeout) -> float | None:
        limit = self._timeout if timeout is ... else optional_seconds(timeout, "timeout")
        return None if limit is None else self._runtime.now() + limit

    async def _acquire_or(
        self, on_busy: OnBusy, acquire: Callable[[float | None], Awaitable[R]], timeout: Timeout
    ) -> Any:
        """Acquire, and if the lock cannot be had return what `on_busy` gives."""
        if on_busy is not None:
            self._check_on_busy(on_busy)
        try:
            return await acquire(self._deadline(timeout))
        except AcquireTimeout as busy:
            if on_busy is None:
                raise
            return await self._when_busy(on_busy, busy)

    async def _when_busy(self, on_busy: Callable[..., Any], *facts: object) -> Any:
        """What the user's function makes of a lock that cannot be had; in the async face it may be a coroutine."""
        result = on_busy(*facts)
        return await result if not self._runtime.blocking and inspect.isawaitable(result) else result

    def _check_on_busy(self, on_busy: object) -> Callable[..., Any]:
        """Refuse what could not be called when the time comes."""
        if not callable(on_busy):
            raise ConfigurationError(f"on_busy must be a function, not {on_busy!r}")
        if self._runtime.blocking and inspect.iscoroutinefunction(on_busy):
            raise ConfigurationError("on_busy is async, and this client blocks; give it a plain function")
        return on_busy

    def _holder(self, reason: str | None) -> Holder:
        return this_process(self._label, reason)

    def _make(self, name: str, mode: Mode, capacity: int, **options: Unpack[LockOptions]) -> AsyncLock:
        """Check everything before any I/O."""
        spec = make_spec(
            name,
            options,
            namespace=self._namespace,
            mode=mode,
            capacity=capacity,
            default_ttl=self._ttl,
            slow_wait=self._slow_wait,
            holder=self._holder,
        )
        backend = self._current().backend
        require(backend, CAPABILITY_OF_MODE[mode])
        if spec.min_hold:
            require(backend, Capability.MIN_HOLD)
        if spec.linger:
            require(backend, Capability.RANGES)
        return AsyncLock(self, spec)

    def _after_fork(self) -> None:
        """In the child: leases are the parent's, connections are the parent's; use neither, and close nothing."""
        self._process = os.getpid()
        for opened in self._open_clients.take_after_fork():
            opened.bury()
            _GRAVEYARD.append(opened)


async def _close(release_by: float | None, opened: OpenClient) -> None:
    """Close it; with an instant, give back what it holds first."""
    if release_by is None:
        await opened.close()
        return
    from leasehold._face.departure import depart  # noqa: PLC0415 - loaded only when it is used

    await depart(opened, release_by)
    await opened.close(release_by)


_CLIENTS: weakref.WeakSet[AsyncClient] = weakref.WeakSet()
_GRAVEYARD: list[OpenClient] = []  # never finalised: closing an inherited connection would end the parent's


def _leave_everything_to_the_parent() -> None:
    for client in list(_CLIENTS):
        client._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_everything_to_the_parent)
