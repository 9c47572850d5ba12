"""What every object of the blocking face is: a shell around its async twin.

Objects are made by methods, as `client.lock`, and never by calling their class. So type checkers and editors see no
constructor: `_of` is the class itself, under another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._runtimes.threads import run

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["BlockTwin", "SelfBlockTwin", "Twin"]


class Twin:
    """A part of every class of the blocking face; each declares the type of its `_twin`."""

    _twin: Any

    if TYPE_CHECKING:

        @classmethod
        def _of(cls, twin: Any) -> Self: ...

    else:

        def __init__(self, twin: Any) -> None:
            self._twin = twin

        def __init_subclass__(cls) -> None:
            cls._of = cls

    def __reduce__(self) -> Any:
        """Pickling is refused by the twin, with the reason."""
        return self._twin.__reduce__()

    def __repr__(self) -> str:
        name = type(self).__name__
        return repr(self._twin).replace(f"Async{name}", name)


class BlockTwin(Twin):
    """A twin that is entered as a block; `__enter__` of each returns what the block works with."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))


class SelfBlockTwin(BlockTwin):
    """A twin whose block works with the twin itself."""

    def __enter__(self) -> Self:
        run(self._twin.__aenter__())
        return self
