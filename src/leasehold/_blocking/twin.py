"""What every object of the blocking face is: a shell around its async twin.

Objects are made by methods, as `client.lock`, and never by calling their class. So type checkers and editors see no
constructor: `_of` is the class itself, under another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Twin"]


class Twin:
    """A part of every class of the blocking face; each says what its `_twin` is."""

    if TYPE_CHECKING:

        @classmethod
        def _of(cls, twin: Any) -> Self: ...

    else:

        def __init__(self, twin: Any) -> None:
            self._twin = twin

        def __init_subclass__(cls) -> None:
            cls._of = cls
