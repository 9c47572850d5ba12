"""`Cache` and `Cached`: the blocking twins of `leasehold._patterns.cache`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from leasehold._blocking.twin import Twin
from leasehold._face.name_template import NameTemplate
from leasehold._patterns.cache import AsyncCache, AsyncCached
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError

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


class Cache(Twin):
    """Values under keys, each built by one caller at a time across all processes; made by `client.cache`."""

    _twin: AsyncCache

    @property
    def name(self) -> str:
        """The name of the cache."""
        return self._twin.name

    def get(self, key: str, build: Callable[[], R]) -> R:
        """The value of the key; where there is none, or it is time, what `build()` gives, which is stored.

        While a value is there, the one caller that builds waits for its own build, and all others get the present value
        at once, until it has been expired for `stale`. Without a value, all wait for the one that builds, at most for
        the cache's `timeout`. When a build raises, the value before it is given out until it has been expired for
        `stale_if_error`, and a warning is logged; else its error is raised to all who waited in this process. Every
        caller gets a value of its own, as it comes back from the encoding.
        """
        return run(self._twin.get(key, _awaited(build)))

    def refresh(self, key: str, build: Callable[[], R]) -> R:
        """Build and store the value now, whatever there is; others go on with the present value meanwhile.

        It waits for a build that is under way, and then builds again: the value is never older than this call. An error
        of the build is raised, and the present value stays.
        """
        return run(self._twin.refresh(key, _awaited(build)))

    def put(self, key: str, value: object) -> None:
        """Store a value that is at hand. A build that is under way cannot overwrite it."""
        run(self._twin.put(key, value))

    def forget(self, key: str) -> None:
        """Drop the value, so that the next call builds it; a build that is under way is not stored any more."""
        run(self._twin.forget(key))

    def cached(self, template: str) -> Callable[[Callable[P, R]], Cached[P, R]]:
        """A decorator: each call gets the value whose key is made from its arguments, as in `{sku}`, or builds it."""

        def decorate(function: Callable[P, R]) -> Cached[P, R]:
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigurationError(
                    f"{function.__qualname__} is async; decorate it with a client of connect_async()"
                )
            return Cached(AsyncCached(self._twin, NameTemplate(template, function), _awaited(function)), function)

        return decorate


class Cached(Generic[P, R]):
    """A function whose results are kept in a cache, made by `cache.cached`."""

    def __init__(self, twin: AsyncCached[P, R], function: Callable[P, R]) -> None:
        self._twin = twin
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The value for these arguments."""
        return run(self._twin(*args, **kwargs))

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key of a call with these arguments."""
        return self._twin.key(*args, **kwargs)

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function now and store what it returns."""
        return run(self._twin.refresh(*args, **kwargs))

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Drop what is stored for these arguments."""
        run(self._twin.forget(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Cached[..., R]:
        """The same as the method of an object."""
        return self if instance is None else Cached(self._twin.__get__(instance, owner), self._function)

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncCached", "Cached")
