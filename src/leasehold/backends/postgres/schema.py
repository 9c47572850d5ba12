"""The tables and functions of the store: made on first use, or printed for somebody with the rights; versioned.

Functions carry the version that they came with in their names. A newer leasehold adds its own beside those of an
older one, so that both can run while a fleet is upgraded; it finds out that it has to when a function is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.backends.postgres import trouble
from leasehold.backends.postgres.line import GOOD
from leasehold.errors import BackendRejected

if TYPE_CHECKING:
    from leasehold.backends.postgres.line import Line
    from leasehold.backends.postgres.statements import Statements

__all__ = ["VERSION", "Schema", "ddl", "grants"]

FOLDER = Path(__file__).with_name("sql")
STEPS: dict[int, tuple[str, ...]] = {1: ("tables.sql", "rules.sql", "verbs.sql", "records.sql")}
VERSION = max(STEPS)
ONE_AT_A_TIME = 5_496_912_345_067_201  # an advisory lock: two that make the same tables get into each other's way


def ddl(schema: str, after: int = 0) -> str:
    """All that makes the tables of this version out of those of an earlier one; may be run twice."""
    quoted = f'"{schema}"'
    files = [name for version in sorted(STEPS) if version > after for name in STEPS[version]]
    parts = [(FOLDER / name).read_text(encoding="utf-8").replace("@schema@", quoted) for name in files]
    done = f"UPDATE {quoted}.about SET version = {VERSION} WHERE version < {VERSION};\n"  # noqa: S608 - checked names
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


class Schema:
    """The tables of one client's schema."""

    def __init__(self, statements: Statements, label: str) -> None:
        self._statements = statements
        self._label = label

    async def make(self, line: Line) -> bool:
        """Make what is missing; True when it is there now, also if another was quicker."""
        present = await self._version(line)
        if present > VERSION:
            raise BackendRejected(
                f"{self._label}: its tables were made by a newer leasehold (version {present}, this one knows "
                f"{VERSION}); upgrade leasehold here too",
                backend=self._label,
            )
        if present == VERSION:
            return True
        script = f"SELECT pg_advisory_xact_lock({ONE_AT_A_TIME});\n{ddl(self._statements.schema, present)}"
        answer = await line.run_script(script.encode())
        if answer.status not in GOOD:
            raise trouble.translated(answer, self._label)
        return True

    async def _version(self, line: Line) -> int:
        answer = await line.ask(self._statements.version, ())
        if answer.status in GOOD:
            return int(answer.get_value(0, 0) or 0) if answer.ntuples else 0
        if trouble.sqlstate(answer) in trouble.MISSING:
            return 0
        raise trouble.translated(answer, self._label)
