"""`Idempotency` and `KeyedAttempt`: the blocking twins of the idempotency keys in `leasehold.patterns`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from leasehold._runtimes.threads import run as finish
from leasehold.blocking._mirror import mirrors
from leasehold.blocking.lease import Lease
from leasehold.errors import ConfigurationError
from leasehold.patterns.idempotency import AsyncIdempotency
from leasehold.patterns.keyed_attempt import AsyncKeyedAttempt

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from leasehold.durations import Duration

__all__ = ["Idempotency", "KeyedAttempt"]

P = ParamSpec("P")
R = TypeVar("R")


@mirrors(AsyncIdempotency)
class Idempotency:
    def __init__(self, twin: AsyncIdempotency) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncIdempotency.scope)
    def scope(self) -> str:
        return self._twin.scope

    @mirrors(AsyncIdempotency.attempt)
    def attempt(self, key: str, fingerprint: object = None) -> KeyedAttempt:
        return KeyedAttempt(self._twin.attempt(key, fingerprint))

    @mirrors(AsyncIdempotency.once_per)
    def once_per(self, template: str, *, fingerprint: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is async; decorate it with a client of connect_async()"
                )
            prepare = self._twin._prepare(template, fingerprint, function)

            @functools.wraps(function)
            def replaying(*args: P.args, **kwargs: P.kwargs) -> R:
                twin, with_lease = prepare(args, kwargs)
                with KeyedAttempt(twin) as attempt:
                    if attempt.replayed:
                        return cast("R", attempt.result)
                    return cast("R", attempt.complete(function(*args, **with_lease(attempt.lease))))

            return replaying

        return decorate

    @mirrors(AsyncIdempotency.forget)
    def forget(self, key: str) -> bool:
        return finish(self._twin.forget(key))

    @mirrors(AsyncIdempotency.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncIdempotency", "Idempotency")


@mirrors(AsyncKeyedAttempt)
class KeyedAttempt:
    def __init__(self, twin: AsyncKeyedAttempt) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncKeyedAttempt.key)
    def key(self) -> str:
        return self._twin.key

    @property
    @mirrors(AsyncKeyedAttempt.replayed)
    def replayed(self) -> bool:
        return self._twin.replayed

    @property
    @mirrors(AsyncKeyedAttempt.result)
    def result(self) -> Any:
        return self._twin.result

    @property
    @mirrors(AsyncKeyedAttempt.abandoned)
    def abandoned(self) -> bool:
        return self._twin.abandoned

    @property
    @mirrors(AsyncKeyedAttempt.protected)
    def protected(self) -> bool:
        return self._twin.protected

    @property
    @mirrors(AsyncKeyedAttempt.lease)
    def lease(self) -> Lease | None:
        return None if self._twin.lease is None else Lease(self._twin.lease)

    @property
    @mirrors(AsyncKeyedAttempt.fence)
    def fence(self) -> int | None:
        return self._twin.fence

    @mirrors(AsyncKeyedAttempt.check)
    def check(self, need: Duration = 0) -> None:
        self._twin.check(need)

    @mirrors(AsyncKeyedAttempt.complete)
    def complete(self, result: Any = None) -> Any:
        return finish(self._twin.complete(result))

    def __enter__(self) -> KeyedAttempt:
        finish(self._twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._twin.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncKeyedAttempt", "KeyedAttempt")
