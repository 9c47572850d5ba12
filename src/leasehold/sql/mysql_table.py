"""What the parts of `leasehold.sql` share on MySQL and MariaDB: their tables, names as bytes, refusals, and errors.

DDL commits there whatever transaction is open, so a table is only ever made where none is. Names are sent as
hexadecimal digits and kept as bytes: neither the character set of a connection nor a collation changes them.
"""

from __future__ import annotations

import functools
import re
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold.errors import ConfigurationError, LeaseholdError, RetryTransaction
from leasehold.sql.errors import is_retryable, mysql_code
from leasehold.sql.identifiers import escaped, quoted
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from leasehold.sql.wires import Answer, Wire

__all__ = ["MysqlTable", "abort", "as_hex", "as_text", "at_once", "explain", "fresh_state", "level_variable"]

LONGEST_NAME = 1024  # bytes; names are primary keys
NO_TABLE = 1146
_NO_RIGHTS = {1044, 1142, 1143, 1227, 1370}
_READ_ONLY = {1290, 1792, 1836}
_NO_DATABASE = 1046


class MysqlTable:
    """A table by its name, the statement that makes it, with `@table@` for it, and what prints that."""

    def __init__(self, name: str, statement: str, printed_by: str) -> None:
        self.name = name
        self._statement = statement
        self._printed_by = printed_by
        self._checked: weakref.WeakKeyDictionary[object, set[str | None]] = weakref.WeakKeyDictionary()

    def script(self, schema: str | None) -> str:
        """What makes it, for an owner who does that beforehand."""
        return self.named(self._statement, schema).replace("%%", "%")

    def named(self, statement: str, schema: str | None) -> str:
        """The statement with the table's name in it; without a schema, the one of the current database."""
        return _named(statement, self.name, schema)

    async def query(
        self, wire: Wire, statement: str, schema: str | None, values: dict[str, object], *, waits: bool = True
    ) -> Answer:
        """Execute a statement about the table, and make the table if it is not there and nothing is open."""
        text = self.named(statement, schema)
        try:
            return await (wire.query(text, values) if waits else at_once(wire, text, values))
        except Exception as error:
            if mysql_code(error) != NO_TABLE:
                raise
            if await fresh_state(wire, "DO 0", {}) is Transaction.OPEN:
                raise self._missing() from error
        await wire.query(self.named(self._statement, schema), {})
        return await wire.query(text, values)

    async def require_transactions(self, wire: Wire, schema: str | None) -> None:
        """Once per connection: a table of an engine without transactions and row locks would protect nothing."""
        driver = wire.driver
        with suppress(TypeError):  # without weak references to its connections, every time
            if schema in self._checked.setdefault(driver, set()):
                return
        ((_, text, *_),) = (await wire.query(self.named("SHOW CREATE TABLE @table@", schema), {})).rows
        if "engine=innodb" not in str(text).lower():
            raise ConfigurationError(
                f"the table {self.name} is not of InnoDB, and the locks of other engines do not last until the commit: "
                f"ALTER TABLE {self.name} ENGINE = InnoDB"
            )
        with suppress(TypeError):
            self._checked[driver].add(schema)

    def _missing(self) -> ConfigurationError:
        return ConfigurationError(
            f"there is no table {self.name}, and to make it now would commit the transaction that is open, for that is "
            f"what MySQL does: run the output of `{self._printed_by}` once, beforehand"
        )


@functools.lru_cache(256)
def _named(statement: str, table: str, schema: str | None) -> str:
    home = "" if schema is None else f"{quoted(schema, 'a database', 'mysql')}."
    return re.sub("@table@", lambda _: escaped(f"{home}{table}"), statement)


def as_hex(text: str | None) -> str | None:
    """A name for `UNHEX(%(...)s)`."""
    if text is None:
        return None
    data = text.encode()
    if len(data) > LONGEST_NAME:
        raise ConfigurationError(f"a name has at most {LONGEST_NAME} bytes in MySQL, and this one {len(data)}")
    return data.hex()


def as_text(value: bytes | str | None) -> str | None:
    """What a driver gives for such a name."""
    return value.decode() if isinstance(value, bytes | bytearray) else value


async def fresh_state(wire: Wire, statement: str, values: dict[str, object]) -> Transaction:
    """What would happen to the next statement, by the answer to this one, which gives no rows.

    Drivers keep the server's word of the last answer without rows: a SELECT opens a transaction that they do not see.
    """
    await wire.query(statement, values)
    return wire.transaction()


def _is_mariadb(wire: Wire) -> bool:
    driver: Any = wire.driver
    return "mariadb" in str(driver.get_server_info()).lower()


def level_variable(wire: Wire) -> str:
    """The level of isolation: MySQL 8 knows only the one, and MariaDB before 11.1 only the other name."""
    return "@@tx_isolation" if _is_mariadb(wire) else "@@transaction_isolation"


async def at_once(wire: Wire, statement: str, values: dict[str, object]) -> Answer:
    """Execute a statement that waits for no lock, or fails with 1205; MySQL cannot wait for less than a second."""
    if _is_mariadb(wire):
        return await wire.query(f"SET STATEMENT innodb_lock_wait_timeout = 0 FOR {statement.strip()}", values)
    ((before,),) = (await wire.query("SELECT @@innodb_lock_wait_timeout", {})).rows
    await wire.query("SET SESSION innodb_lock_wait_timeout = 1", {})
    try:
        return await wire.query(statement, values)
    finally:
        await wire.query(f"SET SESSION innodb_lock_wait_timeout = {int(before)}", {})


async def abort(wire: Wire) -> None:
    """Take back what is open, and let nothing more be written before the program itself ends its transaction.

    An error of a statement ends no transaction in MySQL, so a program that goes on could commit.
    """
    with suppress(Exception):
        await wire.query("ROLLBACK", {})
        await wire.query("START TRANSACTION READ ONLY", {})


def explain(error: Exception, what: str, table: str, printed_by: str, rights: str) -> NoReturn:
    """Raise an error that says what to do, for those that are to be expected; others are left as they are."""
    number = mysql_code(error)
    if isinstance(error, LeaseholdError):
        raise error
    if is_retryable(error):
        raise RetryTransaction(
            "the database could not bring this transaction into an order with another one: roll back and run the whole "
            f"transaction again, {what} included"
        ) from error
    if number in _NO_RIGHTS:
        raise ConfigurationError(
            f"this account may not create or write the table {table}: let its owner run the output of `{printed_by}`, "
            f"and GRANT {rights} on it"
        ) from error
    if number in _READ_ONLY:
        raise ConfigurationError(
            f"{what} has to write, and this transaction or server is read-only: use a read-write transaction on the "
            "primary. A transaction that was refused before is read-only until it is rolled back"
        ) from error
    if number == _NO_DATABASE:
        raise ConfigurationError(
            "this connection has no current database: USE one, or name one with schema="
        ) from error
    raise error
