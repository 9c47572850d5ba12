"""`Cache` and `Cached`: the blocking twins of `leasehold.patterns.cache`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

from leasehold._runtimes.threads import run as finish
from leasehold.blocking._mirror import mirrors
from leasehold.errors import ConfigurationError
from leasehold.name_template import NameTemplate
from leasehold.patterns.cache import AsyncCache, AsyncCached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Cache", "Cached"]

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(build: Callable[..., R]) -> Callable[..., Awaitable[R]]:
    """The same as the core wants it: it is called on the thread of the caller, and nothing is awaited."""

    @functools.wraps(build)
    async def call(*args: Any, **kwargs: Any) -> R:
        made = build(*args, **kwargs)
        if inspect.iscoroutine(made):
            made.close()
            raise ConfigurationError("build is async; use it with a client of connect_async()")
        return made

    return call


@mirrors(AsyncCache)
class Cache:
    def __init__(self, twin: AsyncCache) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncCache.name)
    def name(self) -> str:
        return self._twin.name

    @mirrors(AsyncCache.get)
    def get(self, key: str, build: Callable[[], R]) -> R:
        return finish(self._twin.get(key, _awaited(build)))

    @mirrors(AsyncCache.refresh)
    def refresh(self, key: str, build: Callable[[], R]) -> R:
        return finish(self._twin.refresh(key, _awaited(build)))

    @mirrors(AsyncCache.put)
    def put(self, key: str, value: object) -> None:
        finish(self._twin.put(key, value))

    @mirrors(AsyncCache.forget)
    def forget(self, key: str) -> None:
        finish(self._twin.forget(key))

    @mirrors(AsyncCache.cached)
    def cached(self, template: str) -> Callable[[Callable[P, R]], Cached[P, R]]:
        def decorate(function: Callable[P, R]) -> Cached[P, R]:
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is async; decorate it with a client of connect_async()"
                )
            return Cached(AsyncCached(self._twin, NameTemplate(template, function), _awaited(function)), function)

        return decorate

    @mirrors(AsyncCache.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncCache", "Cache")


@mirrors(AsyncCached)
class Cached(Generic[P, R]):
    def __init__(self, twin: AsyncCached[P, R], function: Callable[P, R]) -> None:
        self._twin = twin
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return finish(self._twin(*args, **kwargs))

    @mirrors(AsyncCached.key)
    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        return self._twin.key(*args, **kwargs)

    @mirrors(AsyncCached.refresh)
    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return finish(self._twin.refresh(*args, **kwargs))

    @mirrors(AsyncCached.forget)
    def forget(self, *args: P.args, **kwargs: P.kwargs) -> None:
        finish(self._twin.forget(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Cached[..., R]:
        return self if instance is None else Cached(self._twin.__get__(instance, owner), self._function)

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncCached", "Cached")
