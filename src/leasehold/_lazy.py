"""What is loaded when it is used: a short command pays for every import.

A package whose names live in other modules:

    __getattr__ = LazyNames(__name__, {"leasehold.errors": ["LeaseLost"]}).find

A module of the standard library:

    if TYPE_CHECKING:
        import inspect
    else:
        inspect = lazy("inspect")
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["LazyNames", "lazy"]


class LazyNames:
    """The names of a package, and the module in which each is defined."""

    def __init__(self, package: str, homes: Mapping[str, Iterable[str]]) -> None:
        self._package = package
        self._home_of = {name: home for home, names in homes.items() for name in names}

    def __contains__(self, name: object) -> bool:
        return name in self._home_of

    def find(self, name: str) -> Any:
        """The `__getattr__` of the package: loads a name, and keeps it there, so that this is called once for it."""
        home = self._home_of.get(name)
        if home is None:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[self._package], name, value)
        return value


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
