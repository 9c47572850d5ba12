"""Docstrings are written once, on the async face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["mirrors"]

T = TypeVar("T")


def mirrors(original: Any) -> Callable[[T], T]:
    """Take the docstring of the async twin."""

    def copy_docstring(twin: T) -> T:
        twin.__doc__ = original.__doc__
        return twin

    return copy_docstring
