"""Names of tables and columns, and texts, written into a statement so that nothing in them is ever read as SQL."""

from __future__ import annotations

from leasehold.errors import ConfigurationError

__all__ = ["escaped", "literal", "quoted", "table_name"]

MAX_BYTES = 63  # PostgreSQL cuts longer names off, and two of them could become one


def quoted(name: str, what: str = "a column", dialect: str | None = None) -> str:
    """A name in quotes, taken as it is: nothing is folded, cut off or split at dots. MySQL has quotes of its own."""
    if not name or "\0" in name:
        raise ConfigurationError(f"the name of {what} must be a text that is not empty and has no NUL, not {name!r}")
    if len(name.encode()) > MAX_BYTES:
        raise ConfigurationError(f"the name of {what} has more than {MAX_BYTES} bytes: {name!r}")
    mark = "`" if dialect == "mysql" else '"'
    return mark + name.replace(mark, mark * 2) + mark


def table_name(table: str | tuple[str, str], dialect: str | None = None) -> tuple[str, str]:
    """How a table is named in a statement, with its schema if there is one; and how its columns are qualified."""
    if isinstance(table, tuple):
        schema, name = table
        qualifier = quoted(name, "a table", dialect)
        return f"{quoted(schema, 'a schema', dialect)}.{qualifier}", qualifier
    return quoted(table, "a table", dialect), quoted(table, "a table", dialect)


def literal(text: str) -> str:
    """A text as a constant of PostgreSQL, whatever `standard_conforming_strings` says."""
    if "\0" in text:
        raise ConfigurationError(f"PostgreSQL cannot store a NUL character: {text!r}")
    doubled = text.replace("'", "''")
    return f"'{doubled}'" if "\\" not in text else "E'" + doubled.replace("\\", "\\\\") + "'"


def escaped(name: str) -> str:
    """A part of a statement in which a per cent sign is only that; see `wires`."""
    return name.replace("%", "%%")
