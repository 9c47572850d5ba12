"""How drivers write a named value in a statement. Ours are written as `%(name)s`."""

from __future__ import annotations

import functools
import re

__all__ = ["with_colons"]

_VALUE = re.compile(r"%\((\w+)\)s")


@functools.cache
def with_colons(statement: str) -> str:
    """The same statement with `:name`, as sqlite3 and SQLAlchemy want it."""
    return _VALUE.sub(r":\1", statement)
