"""Modules of the standard library that are loaded when they are used: a short command pays for every import.

if TYPE_CHECKING:
import inspect
else:
inspect = lazy("inspect")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["lazy"]


class _Lazy:
    """Stands for a module; the first use of a name loads it, and keeps the name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


def lazy(name: str) -> Any:
    """The module of this name, loaded on first use."""
    return _Lazy(name)
