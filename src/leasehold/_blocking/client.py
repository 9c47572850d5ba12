"""`connect` and `Client`: the blocking twins of `leasehold._face.client`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast

from leasehold._blocking.lease import Lease
from leasehold._blocking.lock import Lock, LockSet, RWLock
from leasehold._blocking.operators import Operators
from leasehold._blocking.patterns import Patterns
from leasehold._blocking.twin import Twin
from leasehold._core.keeper import CLOSE_PATIENCE
from leasehold._face.client import DEFAULT_TTL, AsyncClient
from leasehold._face.lock_spec import SLOW_WAIT, WaitOptions, how_to_wait, takes_the_call, with_group
from leasehold._lazy import lazy
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_namespace, find_store
from leasehold.errors import AcquireTimeout, ConfigurationError

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from leasehold._backoff import Backoff
    from leasehold._core.events import Event
    from leasehold._durations import Duration
    from leasehold._face.lock_spec import LockOptions, OnWait, Timeout
    from leasehold._face.signals import ReleaseOnSignals
    from leasehold.values import Capability
else:
    inspect = lazy("inspect")

__all__ = ["Client", "connect"]

P = ParamSpec("P")
R = TypeVar("R")


def connect(
    url: object = None,
    *,
    namespace: str | None = None,
    ttl: Duration = DEFAULT_TTL,
    timeout: Duration | None = None,
    label: str | None = None,
    slow_wait: Duration | None = SLOW_WAIT,
    slow_wait_level: int | str = "WARNING",
    options: Mapping[str, object] | None = None,
) -> Client:
    """Make a blocking client; no I/O yet.

    Without a URL, `LEASEHOLD_URL` is used, or the file that `LEASEHOLD_URL_FILE` names; there is no silent default.
    `namespace` keeps applications apart that share a store; `LEASEHOLD_NAMESPACE`, or else `leasehold`.

    `slow_wait`: a call that waits longer for a lock is logged once, with holder and queue, at `slow_wait_level`; None
    for never. `options`: with a driver's client of your own, what a URL would have behind its question mark.
    """
    twin = AsyncClient(
        find_store(url, options),
        ThreadRuntime(),
        namespace=find_namespace(namespace),
        ttl=ttl,
        timeout=timeout,
        label=label,
        slow_wait=slow_wait,
        slow_wait_level=slow_wait_level,
    )
    return Client._of(twin)


class Client(Twin, Patterns, Operators):
    """Makes locks on one store; use it as a context manager, or call `close`."""

    _twin: AsyncClient

    if not TYPE_CHECKING:  # so that type checkers refuse what it explains

        def __init__(self, twin: AsyncClient) -> None:
            if not isinstance(twin, AsyncClient):
                raise TypeError("a client is made by leasehold.connect(url)")
            self._twin = twin

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """A lock that one holder has alone. Nothing is sent to the store yet.

        `ttl` (the client's): it frees itself after this long when its holder vanishes. `renew` (True): extend it while
        it is held. `max_hold` (None): stop renewing after this long, for workers that hang. `min_hold` (0): keep it at
        least so long, for jobs so short that clocks differ by more. `group` (None): what it counts as in statistics.
        `reason` (None): shown to those who wait. `reentrant` (False): the same thread may acquire it again, and gets
        the same fence. `slow_wait`, `slow_wait_level` (the client's): when a wait for it is logged, and how. `fair`
        ("batches"): calls of this client that wait for it together are served together, without a request for each,
        before the next process in line; "strict": strictly in order of arrival across processes. `linger` (None): after
        a release keep it for so long, at most a second, so that the next call of this client has it without a request;
        for a worker that takes the same few names again and again. Others wait that much longer.
        """
        return Lock._of(self._twin.lock(name, **options))

    def semaphore(self, name: str, permits: int, **options: Unpack[LockOptions]) -> Lock:
        """A lock that up to `permits` holders have together. An order of fences cannot protect a resource from them."""
        return Lock._of(self._twin.semaphore(name, permits, **options))

    def rwlock(self, name: str, **options: Unpack[LockOptions]) -> RWLock:
        """A lock that readers share and a writer has alone: `.read` and `.write`."""
        return RWLock._of(self._twin.rwlock(name, **options))

    def lock_all(self, names: Iterable[str], **options: Unpack[LockOptions]) -> LockSet:
        """Several locks taken together, in a fixed order; the lease set has `fences[name]`."""
        return LockSet._of(self._twin.lock_all(names, **options))

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
        """A decorator: each call runs under the lock whose name is made from its arguments, as in `order:{order_id}`.

        When the lock cannot be had, `on_busy(error)` gives the result; without it `AcquireTimeout` is raised. An
        `on_busy` with two parameters also gets the call itself, a `functools.partial` to be put on a queue and called
        later. A parameter called `lease` that the caller leaves out receives the lease; `lease: Lease = CURRENT` says
        so to type checkers. `backoff` and `on_wait` are those of `acquire`.
        """
        from leasehold._face.name_template import NameTemplate, check_template  # noqa: PLC0415 - only for decorators

        check_template(template, "locked")
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
                    lease = Lease._of(run(lock._twin._acquire_until(self._twin._deadline(timeout), how)))
                except AcquireTimeout as busy:
                    if on_busy is None:
                        raise
                    call = (functools.partial(under_lock, *args, **kwargs),) if with_call else ()
                    return cast("R", run(self._twin._when_busy(on_busy, busy, *call)))
                with lease:
                    return function(*args, **names.with_lease(args, kwargs, lease))

            return under_lock

        return decorate

    def on_event(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Call `listener` with every event of `leasehold.events`; the result ends that."""
        return self._twin.on_event(listener)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the store promises."""
        return self._twin.capabilities

    @property
    def store(self) -> str:
        """Which store this is, for messages; without its password."""
        return self._twin.store

    @property
    def is_private(self) -> bool:
        """Whether the store ends at the border of this process, as `memory://` does: no other process can share it."""
        return self._twin.is_private

    def exists(self) -> bool:
        """False for a store that the first grant would create: a SQLite file, perhaps with a misspelt name."""
        return self._twin.exists()

    def close(self, *, release: bool = False, timeout: Duration = CLOSE_PATIENCE) -> None:
        """Stop renewing and let go of connections; may be called twice. Leases still held are lost to their holders.

        Those leases are left to their ttl, as another thread may be at work under them. With `release` they are given
        back, so that the next holder need not wait: for a program that is about to end. Their holders learn it first,
        with the reason `given back`, and `on_lost` may take up to half of `timeout`; after `timeout` seconds what is
        left is left to its ttl.
        """
        run(self._twin.close(release=release, timeout=timeout))

    def release_on_signals(
        self, signals: Iterable[int] | None = None, *, timeout: Duration = CLOSE_PATIENCE
    ) -> ReleaseOnSignals:
        """When a signal ends the process, give back all leases, `close(release=True)`, and then let it end.

        `signals`: SIGTERM and SIGINT, unless others are given; those that are ignored stay ignored. Afterwards the
        handler that was there before gets the signal, or the process ends by it. That comes after `timeout` seconds at
        the latest, also when the store is away, and at once when a second signal comes. Call it in the main thread; the
        result undoes it, as a call or at the end of a `with` block.
        """
        return self._twin.release_on_signals(signals, timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
