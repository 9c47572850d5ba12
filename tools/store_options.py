"""Draws the reference of URL options from the lists that the stores themselves read: `options.OPTIONS` of each store.

A store is a package of `leasehold.backends`; one without a module `options`, or without `OPTIONS` in it, takes none.
Knows the kit's `Option`; must not know any store.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from leasehold import _backends
from leasehold.kit.options import TLS_OPTIONS, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["draw_options", "option_rows", "stores"]

HEADS = ("option", "takes", "default", "means")
TLS_ROW = ("`tls_*`", "see [TLS](#tls)", "", "certificates and their verification")


def stores() -> Iterator[tuple[str, Sequence[Option[Any]], Mapping[str, str]]]:
    """Every store that takes options: its name, its options, and the names that are refused in favour of another."""
    for package in sorted(pkgutil.iter_modules(_backends.__path__), key=lambda module: module.name):
        name = f"leasehold._backends.{package.name}.options"
        if not package.ispkg or find_spec(name) is None:
            continue
        module = import_module(name)
        options = getattr(module, "OPTIONS", ())
        if options:
            yield package.name, options, getattr(module, "RENAMED", {})


def draw_options(titles: Mapping[str, str]) -> str:
    """A section for each store, and one for the TLS options that they share; `titles` by name of the package."""
    sections = []
    for name, options, renamed in stores():
        sections.append(f"## {titles.get(name, name)}\n\n{_table(option_rows(options))}{_refused(renamed)}")
    tls = _table([_row(option) for option in TLS_OPTIONS])
    return "\n\n".join([*sections, f"## TLS\n\nThe same on every store that can speak TLS.\n\n{tls}"])


def option_rows(options: Sequence[Option[Any]]) -> list[tuple[str, ...]]:
    """A row for each option; the whole set of TLS options is one row."""
    tls = set(TLS_OPTIONS)
    rows = [_row(option) for option in options if option not in tls]
    return [*rows, TLS_ROW] if tls <= set(options) else [_row(option) for option in options]


def _row(option: Option[Any]) -> tuple[str, ...]:
    return f"`{option.name}`", option.takes, _default(option.default), option.meaning


def _default(value: object) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "`yes`" if value else "`no`"
    return f"`{value:g}s`" if isinstance(value, float) else f"`{value}`"  # the only floats are durations


def _refused(renamed: Mapping[str, str]) -> str:
    """The line about old names, and names of drivers, which are refused with the right one in the message."""
    if not renamed:
        return ""
    right = {new: f"`{new}`" if new.isidentifier() else new for new in renamed.values()}
    pairs = ", ".join(f"`{old}` (write {right[new]})" for old, new in sorted(renamed.items()))
    return f"\n\nRefused, with the right name in the message: {pairs}."


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEADS, ["---"] * len(HEADS), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
