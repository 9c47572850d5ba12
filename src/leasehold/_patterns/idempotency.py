"""Idempotency keys: work that is asked for again gives the stored result instead of a second effect. The async face.

An attempt reads the record of its key. If that is completed, the result is replayed: one request, no lock. Otherwise
the attempt takes the lock of the key, reads again under its fence, and writes that it is in progress; from then on no
earlier holder can write. `complete` writes the result under the same fence. So a holder that was paused for too long
cannot overwrite what its successor stored, and a result that was stored never changes.

This is the lease mode, which is at-least-once: a holder that is paused or dies between its work and `complete` leaves a
key in progress that another attempt may take over. The work itself has to check the fence, or pass the key on, where
that is not enough.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeAlias, TypedDict, TypeVar, cast, get_args

from leasehold._core.names import check_name, key_for
from leasehold._durations import optional_seconds, seconds, ttl_seconds
from leasehold._face.lock_spec import LockOptions, is_whole
from leasehold._face.name_template import NameTemplate
from leasehold._patterns.idempotency_states import Begin, Entry, OnExpired, Phase, decode, encode, retry_after
from leasehold._patterns.keyed_attempt import AsyncKeyedAttempt
from leasehold._patterns.retry import retry_until
from leasehold.errors import AcquireTimeout, ConfigurationError, InFlight, OutcomeUnknown
from leasehold.values import KeyState, Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from leasehold._core.open_client import OpenClient
    from leasehold._durations import Duration
    from leasehold._face.client import AsyncClient
    from leasehold._face.lease import AsyncLease
    from leasehold._face.lock import AsyncLock
    from leasehold.spi import Recording
    from leasehold.values import Reading

__all__ = ["AsyncIdempotency", "IdempotencyOptions", "OnOutage"]

OnOutage: TypeAlias = Literal["closed", "open"]

DAY = 86_400.0
MAX_SIZE = 64 * 1024
MAX_SCOPE_BYTES = 128
MAX_KEY_BYTES = 255
PATIENCE = 2.0  # seconds that a store may fail to answer before that is an outage

P = ParamSpec("P")
R = TypeVar("R")


class IdempotencyOptions(TypedDict, total=False):
    """The options of `client.idempotency`."""

    keep: Duration
    ttl: Duration | None
    wait: Duration | None
    on_expired: OnExpired
    max_size: int
    outage: OnOutage
    outage_after: Duration


class AsyncIdempotency:
    """Idempotency keys of one kind of work, made by `client.idempotency`: use `attempt` or the decorator `once_per`."""

    def __init__(
        self,
        client: AsyncClient,
        scope: str,
        *,
        keep: Duration = DAY,
        ttl: Duration | None = None,
        wait: Duration | None = None,
        on_expired: OnExpired = "run",
        max_size: int = MAX_SIZE,
        outage: OnOutage = "closed",
        outage_after: Duration = PATIENCE,
    ) -> None:
        self._client = client
        self._scope = check_name(scope)
        if (size := len(scope.encode())) > MAX_SCOPE_BYTES:
            raise ConfigurationError(f"the scope of idempotency keys has {size} bytes; at most {MAX_SCOPE_BYTES} fit")
        if not is_whole(max_size) or max_size < 1:
            raise ConfigurationError(f"max_size must be a whole number of bytes from 1, not {max_size!r}")
        self._keep = ttl_seconds(keep, "keep")
        self._wait = optional_seconds(wait, "wait") or 0.0
        self._on_expired: OnExpired = _one_of(on_expired, "on_expired", OnExpired)
        self._max_size = max_size
        self._outage: OnOutage = _one_of(outage, "outage", OnOutage)
        self._outage_after = seconds(outage_after, "outage_after")
        self._options = LockOptions(ttl=ttl, group=f"idempotency:{scope}")
        self._ttl = self._lock("x").ttl  # also to check the options now rather than in the first attempt

    @property
    def scope(self) -> str:
        """The kind of work that these keys belong to; the same key in another scope is another key."""
        return self._scope

    def attempt(self, key: str, fingerprint: object = None) -> AsyncKeyedAttempt:
        """A context manager for one attempt at the work of this key: inside, look at `replayed`, or run and `complete`.

        `fingerprint`: the payload, as bytes, text or a JSON value; only its hash is stored. Another payload under the
        same key raises `KeyReused`. While another attempt is in flight, `InFlight` is raised, or with `wait` its end is
        awaited. With on_expired="refuse", a key whose last holder vanished raises `AttemptExpired`.
        """
        return AsyncKeyedAttempt(self, _checked_key(key), fingerprint)

    def once_per(
        self, template: str, *, fingerprint: str | None = None
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """A decorator: each call is an attempt at the key that is made from its arguments, as in `{order_id}`.

        `fingerprint` is a template, too, of what must be the same in every call with this key. The result must be a
        JSON value, and every call returns it as JSON gives it back (a tuple as a list). A parameter called `lease` that
        the caller leaves out receives the lease.
        """

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if not inspect.iscoroutinefunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is not async; decorate it with a client of connect()"
                )
            prepare = self._prepare(template, fingerprint, function)

            @functools.wraps(function)
            async def replaying(*args: P.args, **kwargs: P.kwargs) -> R:
                attempt, with_lease = prepare(args, kwargs)
                async with attempt:
                    if attempt.replayed:
                        return cast("R", attempt.result)
                    result = await function(*args, **with_lease(attempt.lease))
                    return cast("R", await attempt.complete(result))

            return replaying

        return decorate

    async def forget(self, key: str) -> bool:
        """Forget what is stored for a key, so that its work can run again; False if there was nothing.

        For an operator who has found out what became of an attempt that vanished. `InFlight` while one is running.
        """
        opened = self._client._open()
        name = self._name(_checked_key(key))
        try:
            lease = await self._lock(key).acquire(0)
        except AcquireTimeout as busy:
            raise self._in_flight(opened, name, await self._read(opened, name), busy) from None
        try:
            reading = await self._read(opened, name, lease.fence)
            known = _entry(reading) is not None
            if known:
                await self._write(opened, lease, Entry(Phase.DROPPED, None, reading.time), self._outage_after)
        finally:
            await lease.release()
        return known

    async def inspect(self, key: str) -> KeyState | None:
        """What is stored about a key, without its result; None if nothing is. For operators: it takes no lock."""
        opened = self._client._open()
        reading = await self._read(opened, self._name(_checked_key(key)))
        entry = _entry(reading)
        if entry is None or reading.record is None:
            return None
        state: Literal["in progress", "completed"] = "completed" if entry.phase is Phase.COMPLETED else "in progress"
        return KeyState(self._scope, key, state, max(0.0, reading.time - entry.since), reading.record.ttl)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("idempotency keys belong to their client; make them with the same scope in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._scope!r}>"

    # --- for attempts and faces

    def _prepare(
        self, template: str, fingerprint: str | None, function: Callable[..., Any]
    ) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[AsyncKeyedAttempt, Callable[[object], dict[str, Any]]]]:
        """What both faces of the decorator need for one call: its attempt, and its arguments once there is a lease."""
        keys = NameTemplate(template, function)
        payloads = None if fingerprint is None else NameTemplate(fingerprint, function)

        def prepare(
            args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[AsyncKeyedAttempt, Callable[[object], dict[str, Any]]]:
            payload = None if payloads is None else payloads.name(args, kwargs)
            attempt = self.attempt(keys.name(args, kwargs), payload)
            return attempt, functools.partial(keys.with_lease, args, kwargs)

        return prepare

    def _name(self, key: str) -> str:
        """The name of the key's lock and of its record; no two pairs of scope and key have the same."""
        return f"idempotency:{len(self._scope)}:{self._scope}:{key}"

    def _lock(self, key: str) -> AsyncLock:
        return self._client.lock(self._name(key), **self._options)

    async def _read(self, opened: OpenClient, name: str, fence: int = 0) -> Reading:
        store, key = cast("Recording", opened.backend), key_for(self._client._namespace, name)
        until = opened.runtime.now() + self._outage_after
        return await retry_until(until, opened, name, lambda: store.read(key, fence))

    async def _write(self, opened: OpenClient, lease: AsyncLease, entry: Entry, patience: float) -> bool:
        """Write under the lease's fence; False if a later holder was there. The lease need not be held any more."""
        store, key = cast("Recording", opened.backend), key_for(self._client._namespace, lease.name)
        keep = lease.ttl if entry.phase is Phase.DROPPED else self._keep
        record = Record(key, encode(entry), lease.fence, keep)
        until = opened.runtime.now() + patience
        return await retry_until(until, opened, lease.name, lambda: store.write(record))

    async def _begin(self, opened: OpenClient, lease: AsyncLease, entry: Entry) -> Begin:
        """Write that the work begins, and say whether a copy of that may still be under way."""
        store, key = cast("Recording", opened.backend), key_for(self._client._namespace, lease.name)
        record, is_doubtful = Record(key, encode(entry), lease.fence, self._keep), False

        async def write() -> bool:
            nonlocal is_doubtful
            try:
                return await store.write(record)
            except OutcomeUnknown:
                is_doubtful = True
                raise

        until = opened.runtime.now() + self._outage_after
        if not await retry_until(until, opened, lease.name, write):
            return Begin.TAKEN
        return Begin.IN_DOUBT if is_doubtful else Begin.SURE

    def _in_flight(self, opened: OpenClient, name: str, reading: Reading, busy: AcquireTimeout) -> InFlight:
        after = retry_after(_entry(reading), reading.time, self._ttl)
        return InFlight(
            f"another attempt at {name!r} is in flight, by {busy.holder or 'another holder'}; try again in {after:.0f} "
            "s, with the same key",
            name=name,
            backend=opened.backend.label,
            retry_after=after,
            holder=busy.holder,
        )


def _entry(reading: Reading) -> Entry | None:
    return decode(None if reading.record is None else reading.record.value)


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise ConfigurationError(f"an idempotency key must be text, and not empty, not {key!r}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ConfigurationError("an idempotency key contains a lone surrogate, which UTF-8 cannot store") from None
    if size > MAX_KEY_BYTES:
        raise ConfigurationError(
            f"an idempotency key has {size} bytes of UTF-8; at most {MAX_KEY_BYTES} are allowed: use a hash of it"
        )
    return key


def _one_of(value: Any, what: str, choices: Any) -> Any:
    if value not in get_args(choices):
        raise ConfigurationError(f"{what} must be one of {', '.join(map(repr, get_args(choices)))}, not {value!r}")
    return value
