"""`guard(tx, lease)`: the one statement at the start of a transaction that keeps a late writer out.

Knows which kinds of connection there are; each kind has a module of its own that is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from leasehold.errors import ConfigurationError
from leasehold.sql.token import token_of

if TYPE_CHECKING:
    from leasehold.blocking import Lease
    from leasehold.lease import AsyncLease
    from leasehold.sql.token import Token

__all__ = ["guard", "guard_schema"]

# By the first part of the module that a connection's class, or one of its base classes, is defined in.
DIALECTS = {"sqlite3": "leasehold.sql.guard_sqlite"}


class Dialect(Protocol):
    """A module that guards one kind of connection."""

    SCHEMA: str

    def raise_fence(self, tx: Any, token: Token) -> None:
        """Let the token pass and remember it, or refuse it."""


def guard(tx: Any, lease: Lease | AsyncLease | int, *, resource: str | None = None) -> None:
    """Let this transaction go on only if no later holder has been here; call it first, before the first read.

    `tx` is a connection or cursor inside a transaction; on a sqlite3 connection that opens transactions by itself the
    guard opens it. `lease` is a lease of a lock or of a read/write lock, or the number of a fence that another process
    was given, with `resource`. `resource` names what is protected, if that is more or less than what the lock's name
    says; it belongs to one lock for ever.

    Promises that no acknowledged write of a later holder is overwritten, as long as every writer of the resource calls
    the guard first in its transaction and the database keeps what it committed. Raises `StaleFence` for a late writer,
    and `ConfigurationError` outside a transaction, where it would protect nothing. It makes its table on first use.
    """
    token = token_of(lease, resource)
    _dialect_of(tx).raise_fence(tx, token)


def guard_schema(dialect: str = "sqlite") -> str:
    """The statement that makes the guard's table, for programs that may not create tables themselves."""
    known = {module.rpartition("_")[2]: module for module in DIALECTS.values()}
    if dialect not in known:
        raise ConfigurationError(f"no guard for {dialect!r}; there is one for {', '.join(sorted(known))}")
    return cast("Dialect", import_module(known[dialect])).SCHEMA


def _dialect_of(tx: object) -> Dialect:
    for kind in type(tx).__mro__:
        module = DIALECTS.get(kind.__module__.partition(".")[0])
        if module is not None:
            return cast("Dialect", import_module(module))
    raise ConfigurationError(
        f"guard() does not know a {type(tx).__module__}.{type(tx).__qualname__}; it takes a connection or cursor of "
        f"{', '.join(sorted(DIALECTS))}"
    )
