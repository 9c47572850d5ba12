"""`connect` and `Client`: the blocking twins of `leasehold.client`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, Unpack, cast

from leasehold._core.keeper import CLOSE_PATIENCE
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.blocking._mirror import mirrors
from leasehold.blocking.lease import Lease
from leasehold.blocking.lock import Lock, LockSet, RWLock
from leasehold.blocking.operators import Operators
from leasehold.blocking.patterns import Patterns
from leasehold.client import DEFAULT_TTL, AsyncClient
from leasehold.errors import AcquireTimeout, ConfigurationError
from leasehold.lock_spec import SLOW_WAIT, WaitOptions, how_to_wait, takes_the_call, with_group
from leasehold.name_template import NameTemplate
from leasehold.urls import find_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from leasehold._core.events import Event
    from leasehold.backoff import Backoff
    from leasehold.durations import Duration
    from leasehold.lock_spec import LockOptions, OnWait, Timeout
    from leasehold.signals import ReleaseOnSignals
    from leasehold.values import Capability

__all__ = ["Client", "connect"]

P = ParamSpec("P")
R = TypeVar("R")


def connect(
    url_or_client: object = None,
    /,
    *,
    namespace: str | None = None,
    ttl: Duration = DEFAULT_TTL,
    timeout: Duration | None = None,
    label: str | None = None,
    slow_wait: Duration | None = SLOW_WAIT,
    slow_wait_level: int | str = "WARNING",
    options: Mapping[str, object] | None = None,
) -> Client:
    """Make a blocking client; no I/O yet. Without a URL, `LEASEHOLD_URL` is used; there is no silent default.

    `slow_wait`: a call that waits longer for a lock is logged once, with holder and queue, at `slow_wait_level`; None
    for never. `options`: with a driver's client of your own, what a URL would have behind its question mark.
    """
    twin = AsyncClient(
        find_store(url_or_client, options),
        ThreadRuntime(),
        namespace=namespace,
        ttl=ttl,
        timeout=timeout,
        label=label,
        slow_wait=slow_wait,
        slow_wait_level=slow_wait_level,
    )
    return Client(twin)


@mirrors(AsyncClient)
class Client(Patterns, Operators):
    def __init__(self, twin: AsyncClient) -> None:
        self._twin = twin

    @mirrors(AsyncClient.lock)
    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        return Lock(self._twin.lock(name, **options))

    @mirrors(AsyncClient.semaphore)
    def semaphore(self, name: str, permits: int, **options: Unpack[LockOptions]) -> Lock:
        return Lock(self._twin.semaphore(name, permits, **options))

    @mirrors(AsyncClient.rwlock)
    def rwlock(self, name: str, **options: Unpack[LockOptions]) -> RWLock:
        return RWLock(self._twin.rwlock(name, **options))

    @mirrors(AsyncClient.lock_all)
    def lock_all(self, names: Iterable[str], **options: Unpack[LockOptions]) -> LockSet:
        return LockSet(self._twin.lock_all(names, **options))

    @mirrors(AsyncClient.locked)
    def locked(
        self,
        template: str,
        *,
        timeout: Timeout = ...,
        on_busy: Callable[..., Any] | None = None,
        backoff: Backoff | None = None,
        on_wait: OnWait = None,
        **options: Unpack[LockOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        how = how_to_wait(WaitOptions(backoff=backoff, on_wait=on_wait))
        with_call = on_busy is not None and takes_the_call(self._twin._check_on_busy(on_busy))

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is async; decorate it with a client of connect_async()"
                )
            names = NameTemplate(template, function)

            @functools.wraps(function)
            def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
                lock = self.lock(names.name(args, kwargs), **with_group(options, template))
                try:
                    lease = Lease(run(lock._twin._acquire_until(self._twin._deadline(timeout), how)))
                except AcquireTimeout as busy:
                    if on_busy is None:
                        raise
                    call = (functools.partial(under_lock, *args, **kwargs),) if with_call else ()
                    return cast("R", run(self._twin._when_busy(on_busy, busy, *call)))
                with lease:
                    return function(*args, **names.with_lease(args, kwargs, lease))

            return under_lock

        return decorate

    @mirrors(AsyncClient.on_event)
    def on_event(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        return self._twin.on_event(listener)

    @property
    @mirrors(AsyncClient.capabilities)
    def capabilities(self) -> frozenset[Capability]:
        return self._twin.capabilities

    @property
    @mirrors(AsyncClient.store)
    def store(self) -> str:
        return self._twin.store

    @property
    @mirrors(AsyncClient.is_private)
    def is_private(self) -> bool:
        return self._twin.is_private

    @mirrors(AsyncClient.exists)
    def exists(self) -> bool:
        return self._twin.exists()

    @mirrors(AsyncClient.close)
    def close(self, *, release: bool = False, timeout: Duration = CLOSE_PATIENCE) -> None:
        run(self._twin.close(release=release, timeout=timeout))

    @mirrors(AsyncClient.release_on_signals)
    def release_on_signals(
        self, signals: Iterable[int] | None = None, *, timeout: Duration = CLOSE_PATIENCE
    ) -> ReleaseOnSignals:
        return self._twin.release_on_signals(signals, timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @mirrors(AsyncClient.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncClient", "Client")
