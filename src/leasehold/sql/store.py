"""The tables of a SQL database that is itself the store of locks, for owners that make them beforehand."""

from __future__ import annotations

import re

from leasehold._backends.mysql import ddl as mysql
from leasehold._backends.postgres.ddl import ddl, grants
from leasehold.errors import ConfigurationError

__all__ = ["store_schema"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def store_schema(dialect: str = "postgresql", *, schema: str = "leasehold", role: str | None = None) -> str:
    """The statements that make the tables of the store, and give a role the rights that locking needs.

    A client makes them by itself if it may. Where it may not, its owner runs these; `schema` is what the store's URL
    says as `?schema=`, and for MySQL and MariaDB (`mysql`) the database that it names. They may be run again, and
    upgrade the tables of an earlier leasehold.
    """
    if dialect not in ("postgresql", "mysql"):
        raise ConfigurationError(f"no tables for {dialect!r}; they exist for postgresql and mysql")
    if not _IDENTIFIER.fullmatch(schema):
        raise ConfigurationError(f"schema must be letters, digits and underscores, not {schema!r}")
    if role is not None and (not role or "\0" in role):
        raise ConfigurationError("role must be the name of a role")
    if dialect == "mysql":
        return mysql.ddl() + ("" if role is None else mysql.grants(schema, role))
    return ddl(schema) + ("" if role is None else grants(schema, role))
