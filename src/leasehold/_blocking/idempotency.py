"""`Idempotency` and `KeyedAttempt`: the blocking twins of the idempotency keys in `leasehold._patterns`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from leasehold._blocking.lease import Lease
from leasehold._blocking.twin import SelfBlockTwin, Twin
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._durations import Duration
    from leasehold._patterns.idempotency import AsyncIdempotency
    from leasehold._patterns.keyed_attempt import AsyncKeyedAttempt
    from leasehold.values import KeyState

__all__ = ["Idempotency", "KeyedAttempt"]

P = ParamSpec("P")
R = TypeVar("R")


class Idempotency(Twin):
    """Idempotency keys of one kind of work, made by `client.idempotency`: use `attempt` or the decorator `once_per`."""

    _twin: AsyncIdempotency

    @property
    def scope(self) -> str:
        """The kind of work that these keys belong to; the same key in another scope is another key."""
        return self._twin.scope

    def attempt(self, key: str, fingerprint: object = None) -> KeyedAttempt:
        """A context manager for one attempt at the work of this key: inside, look at `replayed`, or run and `complete`.

        `fingerprint`: the payload, as bytes, text or a JSON value; only its hash is stored. Another payload under the
        same key raises `KeyReused`. While another attempt is in flight, `InFlight` is raised, or with `wait` its end is
        awaited. With on_expired="refuse", a key whose last holder vanished raises `AttemptExpired`.
        """
        return KeyedAttempt._of(self._twin.attempt(key, fingerprint))

    def once_per(self, template: str, *, fingerprint: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: each call is an attempt at the key that is made from its arguments, as in `{order_id}`.

        `fingerprint` is a template, too, of what must be the same in every call with this key. The result must be a
        JSON value, and every call returns it as JSON gives it back (a tuple as a list). A parameter called `lease` that
        the caller leaves out receives the lease.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is async; decorate it with a client of connect_async()"
                )
            prepare = self._twin._prepare(template, fingerprint, function)

            @functools.wraps(function)
            def replaying(*args: P.args, **kwargs: P.kwargs) -> R:
                twin, with_lease = prepare(args, kwargs)
                with KeyedAttempt._of(twin) as attempt:
                    if attempt.replayed:
                        return cast("R", attempt.result)
                    return cast("R", attempt.complete(function(*args, **with_lease(attempt.lease))))

            return replaying

        return decorate

    def forget(self, key: str) -> bool:
        """Forget what is stored for a key, so that its work can run again; False if there was nothing.

        For an operator who has found out what became of an attempt that vanished. `InFlight` while one is running.
        """
        return run(self._twin.forget(key))

    def inspect(self, key: str) -> KeyState | None:
        """What is stored about a key, without its result; None if nothing is. For operators: it takes no lock."""
        return run(self._twin.inspect(key))


class KeyedAttempt(SelfBlockTwin):
    """One attempt at the work of an idempotency key, good for one block; made by `idempotency.attempt`.

    If it is `replayed`, `result` is what an earlier attempt stored. Otherwise do the work and call `complete`: a block
    that is left without it drops the record, and the next attempt runs.
    """

    _twin: AsyncKeyedAttempt

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self._twin.key

    @property
    def replayed(self) -> bool:
        """Whether an earlier attempt has completed the work, so that there is nothing to do but to use `result`."""
        return self._twin.replayed

    @property
    def result(self) -> Any:
        """The result that is stored, a JSON value; RuntimeError while the work is not complete.

        `ResultNotKept` if the work was done but its result could not be stored.
        """
        return self._twin.result

    @property
    def abandoned(self) -> bool:
        """Whether an earlier attempt with this key vanished, so that its work may be done already, or half done."""
        return self._twin.abandoned

    @property
    def protected(self) -> bool:
        """False if the store did not answer and outage="open" let this attempt run all the same."""
        return self._twin.protected

    @property
    def lease(self) -> Lease | None:
        """The lease of the key's lock, renewed while the block runs; None if replayed or unprotected."""
        return None if self._twin.lease is None else Lease._of(self._twin.lease)

    @property
    def fence(self) -> int | None:
        """The fencing token of the lease, for what the work writes to; None if replayed or unprotected."""
        return self._twin.fence

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless the key is ours for another `need` seconds; call it before a side effect."""
        self._twin.check(need)

    def complete(self, result: Any = None) -> Any:
        """Store the result, a JSON value, and return it as every replay will; it is durable when this returns.

        `LeaseLost` if another attempt began meanwhile: its result counts. A `BackendError` leaves open whether it is
        stored. A result that is no JSON value, or too large, is a `ConfigurationError`; the key is completed then
        without a result, so that the work is not done a second time.
        """
        return run(self._twin.complete(result))
