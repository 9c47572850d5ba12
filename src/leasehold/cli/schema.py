"""`schema`: print the SQL that a database needs, to be the store or to refuse late writers. Executes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.errors import ConfigurationError
from leasehold.sql import (
    fence_schema,
    guard_schema,
    idempotency_schema,
    queue_schema,
    reservations_schema,
    store_schema,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["schema"]


def schema(arguments: Namespace, console: Console) -> int:
    """Print it; what the words do not allow is bad usage."""
    try:
        text = _PRINTED[arguments.what](arguments)
    except ConfigurationError as error:
        console.error(str(error))
        return exit_codes.USAGE
    print(text.rstrip())  # noqa: T201 - SQL is printed as it is: escaping control characters would change names
    return exit_codes.OK


def _guard(arguments: Namespace) -> str:
    return f"{guard_schema(arguments.dialect or 'postgresql').rstrip()};"


def _fence(arguments: Namespace) -> str:
    if arguments.table is None or arguments.key is None:
        raise ConfigurationError("schema fence needs --table and --key")
    options = {
        "lock": arguments.lock,
        "namespace": arguments.lock_namespace,
        "schema": arguments.schema,
        "guard_schema": arguments.guard_schema,
        "dialect": arguments.dialect,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return fence_schema(arguments.table, arguments.key, strict=not arguments.lenient, **given)


def _store(arguments: Namespace) -> str:
    if arguments.schema is None:
        return store_schema(arguments.what, role=arguments.role)
    return store_schema(arguments.what, schema=arguments.schema, role=arguments.role)


def _idempotency(arguments: Namespace) -> str:
    return idempotency_schema(arguments.dialect or "postgresql", schema=arguments.schema)


def _reservations(arguments: Namespace) -> str:
    return reservations_schema(arguments.dialect or "postgresql", schema=arguments.schema)


def _queue(arguments: Namespace) -> str:
    return queue_schema(arguments.dialect or "postgresql", schema=arguments.schema)


_PRINTED = {
    "fence": _fence,
    "guard": _guard,
    "idempotency": _idempotency,
    "mysql": _store,
    "postgresql": _store,
    "queue": _queue,
    "reservations": _reservations,
}
