"""The triggers of `leasehold schema fence` for MySQL and MariaDB, statement by statement."""

from __future__ import annotations

import hashlib

from leasehold.sql.guards.mysql import TABLE
from leasehold.sql.identifiers import MAX_BYTES, quoted

__all__ = ["script", "statements"]

_END = "\n{end}\n"


def statements(
    table: str,
    key: str | None,
    lock: tuple[str, str],
    texts: dict[str, str],
    schemas: tuple[str | None, str | None],
    *,
    strict: bool,
) -> list[str]:
    """Each is executed by itself.

    `key` is None where one lock protects the whole table; `lock` is what comes before and after it in the lock's name.
    `texts` are for the comment, and `schemas` those of the table and of the guard.
    """
    from importlib.resources import files  # noqa: PLC0415 - slow to load, and most programs print no schema

    home, guard_home = map(_home, schemas)
    names = {
        "home": home,
        "guard_home": guard_home,
        "table": f"{home}{_quoted(table, 'a table')}",
        "guard_table": TABLE.script(schemas[1]).strip(),
        "old_resource": _resource(lock, None if key is None else f"OLD.{_quoted(key)}"),
        "new_resource": _resource(lock, None if key is None else f"NEW.{_quoted(key)}"),
        "strict": "TRUE" if strict else "FALSE",
        **{f"{event}_trigger": _quoted(_trigger_name(table, event)) for event in ("insert", "update", "delete")},
    }
    template = (files("leasehold.sql.guards") / "fence_mysql.sql").read_text().strip()
    comment, *rest = (part.format(**texts, **names) for part in template.split(_END))
    return [f"{comment}\n{rest[0]}", *rest[1:]]


def script(parts: list[str]) -> str:
    """All of them for the program `mysql`, which needs a mark where a statement ends."""
    mark = "//"
    while any(mark in part for part in parts):
        mark += "/"
    ended = "".join(f"{part}\n{mark}\n" for part in parts)
    return f"DELIMITER {mark}\n{ended}DELIMITER ;\n"


def _home(schema: str | None) -> str:
    return "" if schema is None else f"{_quoted(schema, 'a database')}."


def _quoted(name: str, what: str = "a column") -> str:
    return quoted(name, what, "mysql")


def _resource(lock: tuple[str, str], value: str | None) -> str:
    """As bytes, whatever the character set of the connection that runs the script; no key gives a name of no lock."""
    prefix, suffix = lock
    if value is None:
        return _bytes(prefix + suffix)
    return f"COALESCE(CONCAT({_bytes(prefix)}, CONVERT({value} USING utf8mb4), {_bytes(suffix)}), X'')"


def _bytes(text: str) -> str:
    return f"X'{text.encode().hex()}'"


def _trigger_name(table: str, event: str) -> str:
    """One per table and event; also for long names."""
    name = f"leasehold_fence_{event}_{table}"
    if len(name.encode()) <= MAX_BYTES:
        return name
    return f"leasehold_fence_{event}_{hashlib.sha256(table.encode()).hexdigest()[:32]}"
