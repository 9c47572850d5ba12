"""The text that makes the tables of the store, and the rights to use them. It needs no driver.

The tables live in the database that the URL names, and begin with `leasehold_`.
"""

from __future__ import annotations

from pathlib import Path

from leasehold.errors import ConfigurationError

__all__ = ["VERSION", "ddl", "grants", "statements"]

VERSION = 1


def statements() -> list[str]:
    """Each statement that makes the tables; may be run twice."""
    text = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";\n") if part.strip()]


def ddl() -> str:
    """All of them as one text, with its comments."""
    return Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")


def grants(database: str, role: str) -> str:
    """The least that a user or role needs to lock; `role` is `name` or `name@host`."""
    name, _, host = role.partition("@")
    if "`" in database or not name:
        raise ConfigurationError("the database and the role must have plain names")
    who = _quoted(name) + (f"@{_quoted(host)}" if host else "")
    tables = ("lock", "claim", "record")
    rights = [
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{database}`.`leasehold_{table}` TO {who};\n" for table in tables
    ]
    return "".join([*rights, f"GRANT SELECT ON `{database}`.`leasehold_about` TO {who};\n"])


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"
