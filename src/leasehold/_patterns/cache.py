"""Cache: values that are built once, however many want them at the same moment. The async face, which is the core face.

A read is one question to the store. Early refresh decides when a value is built again, a try-lock decides by whom, and
all others get the value that is there, also for a while after it has expired. Only where there is none do callers
wait, in the queue of the key's lock. Values are stored under a fence: a builder that was paused for too long cannot
overwrite what came after it, nor bring back what was forgotten.
"""

from __future__ import annotations

import functools
import inspect
import json
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypedDict, TypeVar

from leasehold._core.names import check_name, key_for
from leasehold._durations import optional_seconds, seconds, ttl_seconds
from leasehold._face.lock_spec import LockOptions, is_whole
from leasehold._face.name_template import NameTemplate
from leasehold._patterns.cache_build import Building, let_go, read_record, write_record
from leasehold._patterns.cache_entry import FORGOTTEN, Freshness, Policy, freshness, lifetime, pack, readable
from leasehold._patterns.cache_events import CacheRead
from leasehold._patterns.single_flight import GAVE_UP
from leasehold.errors import ConfigurationError
from leasehold.values import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._core.open_client import OpenClient
    from leasehold._durations import Duration
    from leasehold._face.client import AsyncClient
    from leasehold._face.lock_spec import Timeout
    from leasehold._patterns.cache_entry import Entry
    from leasehold.values import Reading

__all__ = ["AsyncCache", "AsyncCached", "CacheOptions"]

TTL = "10m"
JITTER = 0.1
MAX_SIZE = 500_000  # bytes; etcd and NATS take about a million

P = ParamSpec("P")
R = TypeVar("R")


class CacheOptions(TypedDict, total=False):
    """The options of `client.cache`."""

    ttl: Duration
    stale: Duration | None
    stale_if_error: Duration | None
    beta: float
    jitter: float
    lock_ttl: Duration | None
    timeout: Timeout
    max_size: int
    encode: Callable[[Any], bytes] | None
    decode: Callable[[bytes], Any] | None


class AsyncCache:
    """Values under keys, each built by one caller at a time across all processes; made by `client.cache`."""

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        *,
        ttl: Duration = TTL,
        stale: Duration | None = None,
        stale_if_error: Duration | None = None,
        beta: float = 1.0,
        jitter: float = JITTER,
        lock_ttl: Duration | None = None,
        timeout: Timeout = ...,
        max_size: int = MAX_SIZE,
        encode: Callable[[Any], bytes] | None = None,
        decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._client = client
        self._name = check_name(name)
        self._policy = _policy(
            ttl=ttl,
            stale=stale,
            stale_if_error=stale_if_error,
            beta=beta,
            jitter=jitter,
            max_size=max_size,
            encode=encode,
            decode=decode,
        )
        self._options = LockOptions(ttl=lock_ttl, group=f"cache:{name}"[:256])
        self._timeout = timeout if timeout is ... else optional_seconds(timeout, "timeout")
        self._hold_off: dict[str, float] = {}
        client.lock(self._lock_name("x"), **self._options)  # to check the options now rather than in the first build

    @property
    def name(self) -> str:
        """The name of the cache."""
        return self._name

    async def get(self, key: str, build: Callable[[], Awaitable[R]]) -> R:
        """The value of the key; where there is none, or it is time, what `build()` gives, which is stored.

        While a value is there, the one caller that builds waits for its own build, and all others get the present value
        at once, until it has been expired for `stale`. Without a value, all wait for the one that builds, at most for
        the cache's `timeout`. When a build raises, the value before it is given out until it has been expired for
        `stale_if_error`, and a warning is logged; else its error is raised to all who waited in this process. Every
        caller gets a value of its own, as it comes back from the encoding.
        """
        name, deadline = self._lock_name(key), self._client._deadline(self._timeout)
        building = None
        while True:
            opened = self._client._open()
            reading = await self._look(opened, name)
            entry = readable(reading.record, self._policy)
            now = freshness(entry, reading.time, self._policy, 1.0 - opened.runtime.random())
            if building is None and opened.events.wanted(CacheRead):
                opened.events.emit(CacheRead(name, self._name, _found(entry, now, reading.time)))
            if entry is not None and now is Freshness.FRESH:
                return entry.value  # type: ignore[no-any-return]
            building = building or self._building(opened, name, build)
            if entry is not None and now is Freshness.DUE:
                return await building.renew(entry, reading)  # type: ignore[no-any-return]
            value = await building.first(entry, reading, deadline)
            if value is not GAVE_UP:
                return value  # type: ignore[no-any-return]

    async def refresh(self, key: str, build: Callable[[], Awaitable[R]]) -> R:
        """Build and store the value now, whatever there is; others go on with the present value meanwhile.

        It waits for a build that is under way, and then builds again: the value is never older than this call. An error
        of the build is raised, and the present value stays.
        """
        deadline = self._client._deadline(self._timeout)
        building = self._building(self._client._open(), self._lock_name(key), build)
        return await building.anew(deadline)  # type: ignore[no-any-return]

    async def put(self, key: str, value: object) -> None:
        """Store a value that is at hand. A build that is under way cannot overwrite it."""
        payload = self._policy.encode(value)
        if len(payload) > self._policy.max_size:
            raise ConfigurationError(
                f"a value of {len(payload)} bytes is more than the cache {self._name!r} takes; store less, or make it "
                f"with a larger max_size than {self._policy.max_size}"
            )

        def record(reading: Reading, fence: int, draw: float) -> tuple[bytes, float]:
            before = readable(reading.record, self._policy)
            fresh = lifetime(self._policy, draw)
            took = 0.0 if before is None else before.took
            value = pack(payload, expires=reading.time + fresh, took=took, fence=fence)
            return value, fresh + self._policy.longest_stale

        await self._overwrite(key, record)

    async def forget(self, key: str) -> None:
        """Drop the value, so that the next call builds it; a build that is under way is not stored any more."""
        await self._overwrite(key, lambda _, __, ___: (FORGOTTEN, 1.0))

    def cached(self, template: str) -> Callable[[Callable[P, Awaitable[R]]], AsyncCached[P, R]]:
        """A decorator: each call gets the value whose key is made from its arguments, as in `{sku}`, or builds it."""

        def decorate(function: Callable[P, Awaitable[R]]) -> AsyncCached[P, R]:
            if not inspect.iscoroutinefunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is not async; decorate it with a client of connect()"
                )
            return AsyncCached(self, NameTemplate(template, function), function)

        return decorate

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("a cache belongs to its client; make one with the same name in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} ttl={self._policy.ttl:g}>"

    def _lock_name(self, key: object) -> str:
        """The name of the key's lock, and of its record; the length keeps names and keys apart that read the same."""
        if not isinstance(key, str) or not key:
            raise ConfigurationError(f"a key of a cache must be text that is not empty, not {key!r}")
        return check_name(f"cache:{len(self._name)}:{self._name}:{key}")

    def _building(self, opened: OpenClient, name: str, build: Callable[[], Awaitable[Any]]) -> Building:
        async def checked() -> Any:
            made: Any = build()
            if not inspect.isawaitable(made):
                raise ConfigurationError("build must be async here; with a function that is not, use connect()")
            return await made

        return Building(opened, self._client.lock(name, **self._options), self._policy, checked, self._hold_off)

    async def _look(self, opened: OpenClient, name: str) -> Reading:
        key, until = key_for(self._client._namespace, name), opened.runtime.now() + opened.connect_timeout
        return await read_record(opened, name, key, 0, until)

    async def _overwrite(self, key: str, make: Callable[[Reading, int, float], tuple[bytes, float]]) -> None:
        """Write under the lock if it is free, and else without it: no caller waits for a build here."""
        name, opened = self._lock_name(key), self._client._open()
        lease = await self._client.lock(name, **self._options).try_acquire()
        try:
            await self._write_above(opened, name, 0 if lease is None else lease.fence, make)
        except GeneratorExit:
            raise  # nothing can be awaited any more; the ttl frees the lock
        except BaseException:
            await let_go(lease)
            raise
        await let_go(lease)

    async def _write_above(
        self, opened: OpenClient, name: str, ours: int, make: Callable[[Reading, int, float], tuple[bytes, float]]
    ) -> None:
        """Write under our own fence, or where a build is under way, one above all that was seen.

        Every build that had begun by then has a lower one, and cannot write any more. One that begins between our read
        and our write began after this call, so what it builds is new enough, whichever of the two writes last.
        """
        record_key, until = key_for(self._client._namespace, name), opened.runtime.now() + opened.connect_timeout
        while True:
            reading = await read_record(opened, name, record_key, ours, until)
            fence = ours if ours >= reading.fence else reading.fence + 1
            value, ttl = make(reading, fence, opened.runtime.random())
            if await write_record(opened, name, Record(record_key, value, fence, ttl), until):
                self._hold_off.pop(record_key, None)
                return


class AsyncCached(Generic[P, R]):
    """A function whose results are kept in a cache, made by `cache.cached`."""

    def __init__(
        self,
        cache: AsyncCache,
        names: NameTemplate,
        function: Callable[P, Awaitable[R]],
        before: tuple[Any, ...] = (),
    ) -> None:
        self._cache = cache
        self._names = names
        self._function = function
        self._before = before  # the object, where it is the method of one
        functools.update_wrapper(self, function)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The value for these arguments."""
        return await self._cache.get(self.key(*args, **kwargs), self._build(args, kwargs))

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key of a call with these arguments."""
        return self._names.name((*self._before, *args), kwargs)

    async def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function now and store what it returns."""
        return await self._cache.refresh(self.key(*args, **kwargs), self._build(args, kwargs))

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Drop what is stored for these arguments."""
        await self._cache.forget(self.key(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> AsyncCached[..., R]:
        """The same as the method of an object."""
        if instance is None:
            return self
        return AsyncCached(self._cache, self._names, self._function, (instance,))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._function.__qualname__} of {self._cache.name!r}>"

    def _build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Awaitable[R]]:
        return functools.partial(self._function, *self._before, *args, **kwargs)


def _found(entry: Entry | None, now: Freshness, time: float) -> str:
    """What a reader found, in a word."""
    if entry is None or now is Freshness.GONE:
        return "miss"
    if now is Freshness.FRESH:
        return "hit"
    return "early" if time < entry.expires else "stale"


def _policy(
    *,
    ttl: Duration,
    stale: Duration | None,
    stale_if_error: Duration | None,
    beta: float,
    jitter: float,
    max_size: int,
    encode: Callable[[Any], bytes] | None,
    decode: Callable[[bytes], Any] | None,
) -> Policy:
    """Check the options; a `ConfigurationError` names the one that cannot be used, and why."""
    fresh = ttl_seconds(ttl)
    served = fresh if stale is None else seconds(stale, "stale")
    kept = served if stale_if_error is None else seconds(stale_if_error, "stale_if_error")
    if (encode is None) != (decode is None):
        raise ConfigurationError("encode and decode belong together; give both, or neither for JSON")
    if not is_whole(max_size) or max_size < 1:
        raise ConfigurationError(f"max_size must be a whole number of bytes, not {max_size!r}")
    return Policy(
        ttl=fresh,
        stale=served,
        stale_if_error=kept,
        beta=_number(beta, "beta", 0, 100),
        jitter=_number(jitter, "jitter", 0, 1),
        max_size=max_size,
        encode=_to_json if encode is None else _checked(encode),
        decode=json.loads if decode is None else decode,
    )


def _number(value: object, what: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ConfigurationError(f"{what} must be a number from {least} to {most}, not {value!r}")
    return float(value)


def _to_json(value: object) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except TypeError as error:
        error.add_note("leasehold: a cache keeps JSON; return what JSON can express, or give it encode= and decode=")
        raise


def _checked(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """An encoder of the user's own, which must give bytes, and must not be pickle."""
    if getattr(encode, "__module__", "") in ("pickle", "_pickle", "marshal"):
        raise ConfigurationError(
            "a cache does not take pickle: one who can write to the store could run code in every reader; use JSON, or "
            "an encoding that holds data only"
        )

    def checked(value: object) -> bytes:
        encoded = encode(value)
        if not isinstance(encoded, bytes):
            raise ConfigurationError(f"encode must return bytes, not {type(encoded).__name__}")
        return encoded

    return checked
