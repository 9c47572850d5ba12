"""The home of work where there are no event loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

__all__ = ["WithoutLoops"]


class WithoutLoops:
    """For runtimes whose work runs anywhere: connections and workers have no home, and none ends."""

    def home(self) -> Hashable:
        """None: any thread may use them."""
        return None

    def current_at(self, home: object) -> Hashable:  # noqa: ARG002 - there is none
        """None: nothing runs on a loop."""
        return None

    def has_ended(self, home: object) -> bool:  # noqa: ARG002 - there is none
        """Never."""
        return False

    def before_end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> object:
        """There is no end to wait for."""

    async def at_home(self, home: object, operation: Callable[[], Coroutine[Any, Any, None]], deadline: float) -> bool:  # noqa: ARG002 - here is as good as anywhere
        """Run it here."""
        await operation()
        return True
