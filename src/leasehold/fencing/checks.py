"""What guards decide about fences, for statistics: listeners get each write that passed or was refused.

Guards belong to no client, so these listeners are those of the process. Without one, a check costs a comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["note_passed", "note_stale", "subscribe"]

_listeners: tuple[Callable[[str], object], ...] = ()


def subscribe(listener: Callable[[str], object]) -> Callable[[], None]:
    """Call `listener` with `ok` or `stale` for every check from now on; the result ends that."""
    global _listeners  # noqa: PLW0603 - of the process, see above
    _listeners = (*_listeners, listener)

    def unsubscribe() -> None:
        global _listeners  # noqa: PLW0603
        _listeners = tuple(other for other in _listeners if other is not listener)

    return unsubscribe


def note_passed() -> None:
    """A guard let a write pass."""
    for listener in _listeners:
        listener("ok")


def note_stale() -> None:
    """A guard refused a late writer."""
    for listener in _listeners:
        listener("stale")
