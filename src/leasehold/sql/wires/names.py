"""How drivers write a named value in a statement. Ours are written as `%(name)s`, and a per cent sign as `%%`."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["in_style", "with_colons"]

_SPECIAL = re.compile(r"%\((?P<name>\w+)\)s|%%")
_POSITIONAL = {"qmark": "?", "format": "%s", "numeric": ":{}", "numeric_dollar": "${}"}


@functools.lru_cache(256)
def with_colons(statement: str) -> str:
    """The same statement with `:name`, as sqlite3 wants it."""
    return _SPECIAL.sub(lambda found: "%" if found["name"] is None else f":{found['name']}", statement)


def in_style(
    statement: str, values: Mapping[str, object], style: str
) -> tuple[str, dict[str, object] | tuple[object, ...]]:
    """The statement and its values in one of the styles that Python's database interface knows."""
    if style == "pyformat":
        return statement, dict(values)
    if style == "named":
        return with_colons(statement), dict(values)
    if style not in _POSITIONAL:
        raise ConfigurationError(f"a driver whose parameters are written in the style {style!r} is not supported")
    text, names = _by_place(statement, style)
    return text, tuple(values[name] for name in names)


@functools.lru_cache(256)
def _by_place(statement: str, style: str) -> tuple[str, tuple[str, ...]]:
    names: list[str] = []
    mark = _POSITIONAL[style]

    def place(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "%%" if style == "format" else "%"
        names.append(found["name"])
        return mark.format(len(names))

    return _SPECIAL.sub(place, statement), tuple(names)
