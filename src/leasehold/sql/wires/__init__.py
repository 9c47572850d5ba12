"""How `leasehold.sql` reaches a database: one small wire per kind of connection, by the class of what was passed.

A wire knows its driver and nothing of fences. A driver's module is loaded only when one of its connections is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from leasehold._words import with_article
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Answer", "Transaction", "Wire", "async_twin", "column_names", "wire_of"]

# By the first part of the module that a connection's class, or one of its base classes, is defined in.
WIRES = {
    "MySQLdb": "leasehold.sql.wires.mysql",
    "aiomysql": "leasehold.sql.wires.mysql",
    "aiosqlite": "leasehold.sql.wires.aiosqlite",
    "asyncmy": "leasehold.sql.wires.mysql",
    "asyncpg": "leasehold.sql.wires.asyncpg",
    "django": "leasehold.sql.wires.django",
    "psycopg": "leasehold.sql.wires.psycopg",
    "pymysql": "leasehold.sql.wires.mysql",
    "sqlalchemy": "leasehold.sql.wires.sqlalchemy",
    "sqlite3": "leasehold.sql.wires.sqlite3",
}


class Transaction(Enum):
    """What happens to the next statement."""

    OPEN = "it belongs to the transaction that is open"
    OPENS = "it opens a transaction"
    AUTOCOMMIT = "it is committed by itself"


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that a statement gave, how many it changed, and how the columns of the rows are called."""

    rows: Sequence[tuple[Any, ...]]
    count: int
    columns: Sequence[str] = ()


class Wire(Protocol):
    """One connection of the user's, inside or before a transaction."""

    @property
    def dialect(self) -> str:
        """Which database it is: `mysql` (also for MariaDB), `postgresql` or `sqlite`."""

    @property
    def driver(self) -> object:
        """The driver's own connection, which lives as long as the session with the database."""

    @property
    def is_async(self) -> bool:
        """Whether `query` suspends."""

    @property
    def holds_objects(self) -> bool:
        """Whether an object mapper keeps values that were read before."""

    def transaction(self) -> Transaction:
        """What would happen to the next statement."""

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        """Execute one statement, whose values stand in it as `%(name)s`, and a per cent sign as `%%`."""


def column_names(description: Any) -> tuple[str, ...]:
    """How the columns of an answer are called, from the `description` of a cursor."""
    return tuple(str(each[0]) for each in description or ())


def wire_of(tx: object) -> Wire:
    """The wire for a connection, cursor or session; a text is the alias of a Django database."""
    return cast("Wire", import_module(WIRES[_maker_of(tx)]).make_wire(tx))


def async_twin(tx: object) -> Any | None:
    """For SQLAlchemy's async classes, the object that runs blocking code over them; else None."""
    return import_module(WIRES["sqlalchemy"]).async_twin(tx) if _maker_of(tx) == "sqlalchemy" else None


def _maker_of(tx: object) -> str:
    if isinstance(tx, str):
        return "django"
    for kind in type(tx).__mro__:
        maker = kind.__module__.partition(".")[0]
        if maker in WIRES:
            return maker
    what = with_article(f"{type(tx).__module__}.{type(tx).__qualname__}")
    raise ConfigurationError(
        f"leasehold.sql does not know {what}; it takes a connection, cursor "
        f"or session of {', '.join(sorted(WIRES))}, inside a transaction"
    )
