"""The text that makes the tables and functions of the store, and the rights to use them. It needs no driver.

Functions carry the version that they came with in their names. A newer leasehold adds its own beside those of an older
one, so that both can run while a fleet is upgraded.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["STEPS", "VERSION", "ddl", "grants"]

FOLDER = Path(__file__).with_name("sql")
STEPS: dict[int, tuple[str, ...]] = {  # the functions of version 1 are gone from here, and stay where they were made
    1: ("tables.sql",),
    2: ("upgrade_2.sql", "rules.sql", "verbs.sql", "records.sql"),
}
VERSION = max(STEPS)


def ddl(schema: str, after: int = 0) -> str:
    """All that makes the tables of this version out of those of an earlier one; may be run twice."""
    quoted = f'"{schema}"'
    files = [name for version in sorted(STEPS) if version > after for name in STEPS[version]]
    parts = [(FOLDER / name).read_text(encoding="utf-8").replace("@schema@", quoted) for name in files]
    older = f"version OPERATOR(pg_catalog.<) {VERSION}"
    done = f"UPDATE {quoted}.about SET version = {VERSION} WHERE {older};\n"  # noqa: S608 - checked names
    return "\n".join([*parts, done])


def grants(schema: str, role: str) -> str:
    """The least that a role needs to lock."""
    quoted = f'"{schema}"'
    name = '"' + role.replace('"', '""') + '"'
    return (
        f"GRANT USAGE ON SCHEMA {quoted} TO {name};\n"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted}.lock, {quoted}.claim, {quoted}.record TO {name};\n"
        f"GRANT SELECT, UPDATE ON {quoted}.about TO {name};\n"
    )
