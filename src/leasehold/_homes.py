"""The part of the runtime port that is about event loops: where connections and tasks live, and when that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

__all__ = ["Homes"]


class Homes(Protocol):
    """The home of connections and tasks is the event loop on which they were made, where there are event loops."""

    def home(self) -> Hashable:
        """The event loop that runs now, to which connections and tasks belong; None if none runs, or there are none."""

    def current_at(self, home: Any) -> Hashable:
        """The running task of this event loop, for a caller on it: `current` has to find the loop first."""

    def has_ended(self, home: Any) -> bool:
        """Whether this event loop was closed: nothing of it will ever run again."""

    def before_end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> object:
        """Await `close` when the loop that runs now is shut down in order; keep the result until then.

        `ConfigurationError` where there has to be a loop, and none runs.
        """

    async def at_home(self, home: Any, operation: Callable[[], Coroutine[Any, Any, None]], deadline: float) -> bool:
        """Run it on this event loop, which may be another thread's; returns at the deadline, done or not.

        False if it cannot be run, because the loop does not run.
        """
