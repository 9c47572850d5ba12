"""The one table of a kind in a database of PostgreSQL: found in whatever schema it is, made if there is none.

Programs with different search paths must not have a table each: two tables do not know of each other. Names are
qualified, operators too, so that nothing that was planted in the search path runs as the caller.
"""

from __future__ import annotations

import functools
import json
import re
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError
from leasehold.sql.identifiers import escaped, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.sql.wires import Wire

__all__ = ["OneTable", "home_among", "in_schema", "no_schema"]

# table -> the schemas that have such a table, the one in which it would be made, and what this transaction has made
_LOOK = """
SELECT (
    SELECT CAST(pg_catalog.jsonb_agg(n.nspname) AS pg_catalog.text)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE CAST(c.relname AS pg_catalog.text) OPERATOR(pg_catalog.=) CAST(%(table)s AS pg_catalog.text)
      AND c.relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'p']) AND c.relpersistence OPERATOR(pg_catalog.<>) 't'),
  CAST(pg_catalog.current_schema() AS pg_catalog.text),
  coalesce(pg_catalog.current_setting('leasehold.made', true), '')
"""

# Only one transaction makes the table: two that do it at once would end with an error about PostgreSQL's own tables.
# The others do not wait for it here: that transaction is the user's, and may take as long as it likes.
_ALONE = """
SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(CAST(%(table)s AS pg_catalog.text), 0))
"""


# A table that this transaction has made goes with it if it is rolled back; so does this setting.
_MADE = "SELECT pg_catalog.set_config('leasehold.made', CAST(%(table)s AS pg_catalog.text), true)"


class OneTable:
    """A table by its name, the statements that make it, with `@table@` for it, and what prints them."""

    def __init__(self, name: str, statements: tuple[str, ...], printed_by: str) -> None:
        self.name = name
        self._statements = statements
        self._printed_by = printed_by
        self._seen: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()  # by connection

    def script(self, schema: str | None) -> str:
        """What makes it, for an owner who does that beforehand."""
        named = self.name if schema is None else f"{quoted(schema, 'a schema')}.{self.name}"
        return "".join(f"{each.strip().replace('@table@', named)};\n" for each in self._statements)

    async def home(self, wire: Wire, schema: str | None) -> str | None:
        """The schema that it is in; None while another transaction makes it.

        It is looked for once per connection.
        """
        driver = wire.driver
        with suppress(TypeError):  # without weak references to its connections, the table is looked for every time
            seen = self._seen.get(driver)
            if seen is not None and schema in (None, seen):
                return seen
        found, _, made = await self._look(wire)
        home = home_among(found, schema, self.name)
        if home is None:
            return await self._make(wire, schema)
        if not made:
            with suppress(TypeError):
                self._seen[driver] = home
        return home

    async def found(self, wire: Wire, schema: str | None) -> str | None:
        """The schema that it is in; None if there is no such table. Makes nothing."""
        return home_among((await self._look(wire))[0], schema, self.name)

    def forget(self, wire: Wire) -> None:
        """It is not where it was."""
        with suppress(TypeError):
            self._seen.pop(wire.driver, None)

    async def _make(self, wire: Wire, schema: str | None) -> str | None:
        if not (await wire.query(_ALONE, {"table": self.name})).rows[0][0]:
            return None
        found, current, _ = await self._look(wire)  # another transaction may have been faster, in another schema
        home = home_among(found, schema, self.name)
        if home is not None:
            return home
        home = schema or current
        if home is None:
            raise no_schema(self.name, self._printed_by)
        for statement in self._statements:
            await wire.query(in_schema(statement, home, self.name), {})
        await wire.query(_MADE, {"table": self.name})
        return home

    async def _look(self, wire: Wire) -> tuple[list[str], str | None, bool]:
        ((found, current, made),) = (await wire.query(_LOOK, {"table": self.name})).rows
        return sorted(json.loads(found or "[]")), current, made != ""


def home_among(found: Sequence[str], schema: str | None, table: str) -> str | None:
    """The schema that the one table is in; None if it has to be made."""
    if schema is not None:
        return schema if schema in found else None
    if len(found) > 1:
        raise ConfigurationError(
            f"there is a table {table} in each of the schemas {', '.join(map(repr, found))}, and none of them knows "
            "what the others have seen: keep one, move it with ALTER TABLE ... SET SCHEMA if need be, and drop the "
            "others; or, where each belongs to data of its own, say which with schema="
        )
    return found[0] if found else None


def no_schema(table: str, printed_by: str) -> ConfigurationError:
    """There is no schema to make the table in."""
    return ConfigurationError(
        f"there is no table {table}, and the search path names no schema to make it in: name one with schema=, or let "
        f"the owner of the database run the output of `{printed_by}`"
    )


@functools.lru_cache(256)
def in_schema(statement: str, schema: str, table: str) -> str:
    """The statement for the table in that schema."""
    named = escaped(f"{quoted(schema, 'a schema')}.{table}")
    return re.sub("@table@", lambda _: named, statement)
