"""Change what is loaded already, so that a mutant costs no import: a fork, the change, the tests."""

from __future__ import annotations

import gc
import importlib
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.mutants.sweep.places import Place

__all__ = ["Loaded"]


class Loaded:
    """The functions and constants of modules under a folder, found before the first fork.

    A child that looked for them itself would touch every object, and so copy the whole process.
    """

    def __init__(self, root: str, files: set[str]) -> None:
        self._root = root
        for file in sorted(files):  # what a test loads by itself would be loaded with the mutant, in some tests only
            name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            importlib.import_module(f"leasehold.{name}" if name != "__init__" else "leasehold")
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        gc.unfreeze()  # what was collected of tests is frozen, and would not be found: see tests/conftest.py
        for one in gc.get_objects():
            if type(one) is FunctionType and (code := one.__code__).co_filename.startswith(root):
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                self._functions.setdefault(key, []).append(one)

    def change(self, place: Place, before: bytes) -> bool:
        """Whether the change could be made in this process; if not, it takes a new interpreter."""
        path, after = f"{self._root}{place.file}", place.text(before)
        if place.function:
            return self._change_function(path, before, after, place.function)
        return self._change_constant(path, before, after, place)

    def _change_function(self, path: str, before: bytes, after: bytes, function: str) -> bool:
        old = _codes(compile(before, path, "exec"), function)
        new = _codes(compile(after, path, "exec"), function)
        if list(old) != list(new):
            return False  # a function inside has come or gone
        changed = 0
        for key, code in old.items():
            for one in self._functions.get((path, code.co_qualname, code.co_firstlineno), ()):
                if new[key].co_freevars != one.__code__.co_freevars:
                    return False
                one.__code__ = new[key]
                changed += 1
        return changed > 0

    def _change_constant(self, path: str, before: bytes, after: bytes, place: Place) -> bool:
        """A constant of a module, where it is defined and wherever it was imported."""
        [name, *more] = place.names or ("",)
        home = next((one for one in sys.modules.values() if getattr(one, "__file__", None) == path), None)
        if more or home is None or not isinstance(getattr(home, name, None), int | float):
            return False
        line = before[: place.start].rpartition(b"\n")[2]
        if not line.startswith(name.encode()):  # a default, or a field of a class
            return False
        statement = after.splitlines()[place.line - 1]
        namespace = dict(vars(home))
        exec(statement, namespace)  # a line of the library itself
        value = getattr(home, name)
        for module in [one for key, one in sys.modules.items() if key.startswith("leasehold")]:
            if vars(module).get(name) is value or vars(module).get(name) == value:
                setattr(module, name, namespace[name])
        return True


def _codes(module: CodeType, function: str) -> dict[tuple[str, int], CodeType]:
    """The code of a function and of those inside it, by name and number."""
    found: dict[tuple[str, int], CodeType] = {}
    for code in _inside(module):
        name = code.co_qualname
        if name == function or name.startswith(f"{function}."):
            number = sum(1 for known, _ in found if known == name)
            found[name, number] = code
    return found


def _inside(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _inside(one)
