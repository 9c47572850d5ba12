"""The text that makes the tables and functions of the store, and the rights to use them. It needs no driver.

Functions carry the version that they came with in their names. A newer leasehold adds its own beside those of an older
one, so that both can run while a fleet is upgraded.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["STEPS", "VERSION", "ddl", "grants", "guarded_ddl"]

FOLDER = Path(__file__).with_name("sql")
STEPS: dict[int, tuple[str, ...]] = {  # functions of earlier versions are not made any more, and stay where they are
    1: ("tables.sql",),
    2: ("upgrade_2.sql",),
    # Those of version 3 learnt of pauses in version 4, and of ranges in version 5: clients of then call them still.
    5: ("rules.sql", "verbs.sql", "records.sql", "pauses.sql", "earlier.sql"),
}
VERSION = max(STEPS)
ONE_AT_A_TIME = 5_496_912_345_067_201  # the advisory lock of a client that makes tables


def ddl(schema: str, after: int = 0) -> str:
    """All that makes the tables of this version out of those of an earlier one; may be run twice."""
    quoted = f'"{schema}"'
    files = [name for version in sorted(STEPS) if version > after for name in STEPS[version]]
    parts = [(FOLDER / name).read_text(encoding="utf-8").replace("@schema@", quoted) for name in files]
    older = f"version OPERATOR(pg_catalog.<) {VERSION}"
    done = f"UPDATE {quoted}.about SET version = {VERSION} WHERE {older};\n"  # noqa: S608 - checked names
    return "\n".join([*parts, done])


def guarded_ddl(schema: str, after: int = 0) -> str:
    """The same in one transaction that other clients wait for, and that does nothing if one of them was faster.

    Many clients may find the tables missing at once. Each new run would replace all functions, lock `claim` against
    writes meanwhile, and make every session compile the functions anew: requests of clients that already hold locks
    would wait for all those runs. A short `statement_timeout` of the role is meant for requests, not for this.
    """
    about = f'"{schema}".about'
    return f"""\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL statement_timeout = 0;
DO $leasehold$
DECLARE
  present integer := 0;
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock({ONE_AT_A_TIME});
  IF pg_catalog.to_regclass('{about}') IS NOT NULL THEN
    SELECT version INTO present FROM {about};
  END IF;
  IF present IS NULL OR present OPERATOR(pg_catalog.<) {VERSION} THEN
    EXECUTE $leasehold_ddl${ddl(schema, after)}$leasehold_ddl$;
  END IF;
END
$leasehold$;
"""  # noqa: S608 - checked names


def grants(schema: str, role: str) -> str:
    """The least that a role needs to lock."""
    quoted = f'"{schema}"'
    name = '"' + role.replace('"', '""') + '"'
    return (
        f"GRANT USAGE ON SCHEMA {quoted} TO {name};\n"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted}.lock, {quoted}.claim, {quoted}.record TO {name};\n"
        f"GRANT SELECT, UPDATE ON {quoted}.about TO {name};\n"
    )
