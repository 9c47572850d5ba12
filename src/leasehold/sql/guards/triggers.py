"""The triggers that make a table refuse every write without a good fence, whatever program it is from.

They are printed and not executed: a change of the user's own tables belongs into the user's migrations.
"""

from __future__ import annotations

import hashlib

from leasehold.errors import ConfigurationError
from leasehold.sql.guards.postgresql import SCHEMA
from leasehold.sql.identifiers import MAX_BYTES, literal, quoted

__all__ = ["fence_schema", "fence_statements"]

_DEFAULT_NAMESPACE = "leasehold"
_TRUNCATE_NEEDS_ROWS = (
    "RAISE EXCEPTION 'leasehold: TRUNCATE has no single row to fence; DELETE instead' USING ERRCODE = 'LH002';"
)


def fence_schema(
    table: str,
    key: str,
    *,
    lock: str | None = None,
    namespace: str = _DEFAULT_NAMESPACE,
    schema: str | None = None,
    guard_schema: str | None = None,
    strict: bool = True,
    dialect: str = "postgresql",
) -> str:
    """The statements that fence a table of PostgreSQL, or of MySQL and MariaDB, for the user's own migration.

    `lock` is the name of the lock that protects a row, with the row's key in braces; without it, TABLE:{KEY} in plain
    text, as in `orders:{id}`. Without braces one lock protects the whole table. Names are taken as they are.
    `schema` is where the table is: without it `public`, or the current database of MySQL. `guard_schema` is where the
    table of the guard is, if not there. Not `strict`: writes without any fence are let through, for the time until
    every program carries one. The text for MySQL is for the program `mysql`, with DELIMITER; `fence_statements` gives
    what a driver takes.
    """
    parts = fence_statements(
        table,
        key,
        lock=lock,
        namespace=namespace,
        schema=schema,
        guard_schema=guard_schema,
        strict=strict,
        dialect=dialect,
    )
    if dialect == "mysql":
        from leasehold.sql.guards.triggers_mysql import script  # noqa: PLC0415 - only if asked for

        return script(parts)
    return parts[0]


def fence_statements(
    table: str,
    key: str,
    *,
    lock: str | None = None,
    namespace: str = _DEFAULT_NAMESPACE,
    schema: str | None = None,
    guard_schema: str | None = None,
    strict: bool = True,
    dialect: str = "postgresql",
) -> list[str]:
    """The same as `fence_schema`, as statements that a driver executes one by one; for PostgreSQL there is one text."""
    if dialect not in ("mysql", "postgresql"):
        raise ConfigurationError(
            f"triggers are written for postgresql and mysql, not {dialect!r}; elsewhere use leasehold.sql.fenced_update"
        )
    lock_text = f"{table}:{{{key}}}" if lock is None else lock
    prefix, suffix, per_row = (f"{table}:", "", True) if lock is None else _parts(lock, key)
    prefix = f"{_home(namespace)}:{prefix}"
    texts = {
        "table_text": _comment(table),
        "lock_text": _comment(lock_text),
        "namespace_text": _comment(namespace),
        "unfenced": "refused, with the code LH002" if strict else "let through: this is not the strict form",
    }
    if dialect == "mysql":
        from leasehold.sql.guards.triggers_mysql import statements  # noqa: PLC0415 - only if asked for

        rows = key if per_row else None
        return statements(table, rows, (prefix, suffix), texts, (schema, guard_schema or schema), strict=strict)
    schema = schema or "public"
    guard_home = quoted(guard_schema or schema, "a schema")
    word = "true" if strict else "false"
    names = {
        "table": f"{quoted(schema, 'a schema')}.{quoted(table, 'a table')}",
        "function": f"{quoted(schema, 'a schema')}.{quoted(_function_name(table))}",
        "table_literal": literal(f"{quoted(schema, 'a schema')}.{quoted(table, 'a table')}"),
        "function_literal": literal(f"{quoted(schema, 'a schema')}.{quoted(_function_name(table))}"),
        "guard_schema": guard_home,
        "guard_table": SCHEMA.strip().replace("EXISTS leasehold_guard", f"EXISTS {guard_home}.leasehold_guard"),
        **texts,
        "strict": word,
        "old_resource": _resource(prefix, suffix, f"OLD.{quoted(key)}" if per_row else None),
        "new_resource": _resource(prefix, suffix, f"NEW.{quoted(key)}" if per_row else None),
        "truncate": f"PERFORM {guard_home}.leasehold_check_fence({_resource(prefix, suffix, None)}, {word});",
    }
    if per_row:
        names["truncate"] = _TRUNCATE_NEEDS_ROWS if strict else "NULL;"
    return [_script().format(**names, tag=_tag(names))]


def _script() -> str:
    from importlib.resources import files  # noqa: PLC0415 - slow to load, and most programs print no schema

    return (files("leasehold.sql.guards") / "fence_postgresql.sql").read_text()


def _parts(lock: str, key: str) -> tuple[str, str, bool]:
    """What comes before and after the key in the name of the lock, and whether there is a key at all."""
    place = f"{{{key}}}"
    if not lock or lock.count(place) > 1:
        raise ConfigurationError(f"the name of the lock must not be empty, and have {place} at most once")
    prefix, found, suffix = lock.partition(place)
    return prefix, suffix, bool(found)


def _home(namespace: str) -> str:
    """As in every lock's key, so that it separates."""
    if not namespace:
        raise ConfigurationError("the namespace must not be empty")
    return namespace.replace("%", "%25").replace(":", "%3A")


def _resource(prefix: str, suffix: str, value: str | None) -> str:
    if value is None:
        return literal(prefix + suffix)
    end = f" || {literal(suffix)}" if suffix else ""
    return f"{literal(prefix)} || CAST({value} AS text){end}"


def _function_name(table: str) -> str:
    """One per table, also for names that only differ after the length that PostgreSQL keeps."""
    name = f"leasehold_fence_{table}"
    if len(name.encode()) <= MAX_BYTES:
        return name
    return f"leasehold_fence_{hashlib.sha256(table.encode()).hexdigest()[:32]}"


def _tag(names: dict[str, str]) -> str:
    """Dollar quotes that nothing inside can end."""
    number, everything = 0, "".join(names.values())
    while f"$leasehold{number or ''}$" in everything:
        number += 1
    return f"$leasehold{number or ''}$"


def _comment(text: str) -> str:
    """A text inside a comment: on one line, whatever is in it."""
    return ascii(text)
