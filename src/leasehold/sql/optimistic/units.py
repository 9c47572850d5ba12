"""From `begin` to the transaction of one attempt: what commits at its end, and what only looks like it is refused."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["async_manager_of", "manager_of"]

# Connections and sessions of these close at the end of a `with` block, and what was written is rolled back.
_CLOSE_WITHOUT_COMMIT = {"sqlalchemy", "pymysql", "aiomysql", "asyncmy", "MySQLdb"}
_INSTEAD = {
    "sqlalchemy": "give engine.begin, or the begin of a sessionmaker",
}


def manager_of(begin: Callable[[], Any] | str) -> AbstractContextManager[Any]:
    """The transaction of one attempt of a blocking unit."""
    if isinstance(begin, str):
        return _atomic(begin)
    manager = begin()
    if inspect.isawaitable(manager) and not hasattr(manager, "__aenter__"):
        if inspect.iscoroutine(manager):
            manager.close()
        raise _mismatch("something to await", "async def")
    if not hasattr(manager, "__enter__"):
        if hasattr(manager, "__aenter__"):
            raise _mismatch("an async context manager", "async def")
        raise _no_manager(manager)
    return _committing(manager)  # type: ignore[no-any-return]


async def async_manager_of(begin: Callable[[], Any] | str) -> Any:
    """The same for a coroutine."""
    if isinstance(begin, str):
        raise ConfigurationError(
            f"transactions of Django ({begin!r}) block: make the unit a plain function, and call it with sync_to_async"
        )
    manager = begin()
    if inspect.isawaitable(manager) and not hasattr(manager, "__aenter__"):
        manager = await manager
    if not hasattr(manager, "__aenter__"):
        if hasattr(manager, "__enter__"):
            raise _mismatch("a context manager that blocks", "def")
        raise _no_manager(manager)
    return _committing(manager)


@contextmanager
def _atomic(alias: str) -> Iterator[str]:
    from django.db import transaction  # noqa: PLC0415 - only where Django is used

    # Not inside another one: its rollback to a savepoint would not show the unit anything newer.
    with transaction.atomic(using=alias, durable=True):
        yield alias


def _committing(manager: Any) -> Any:
    maker = type(manager).__module__.partition(".")[0]
    if maker in _CLOSE_WITHOUT_COMMIT and hasattr(manager, "commit"):
        instead = _INSTEAD.get(maker, "write a function with @contextmanager that connects, commits and closes")
        raise ConfigurationError(
            f"begin() gave {kind_of(manager)} of {maker}, which does not commit at the end of a with block, so "
            f"the work of the unit would be lost: {instead}"
        )
    return manager


def _mismatch(what: str, kind: str) -> ConfigurationError:
    return ConfigurationError(f"begin() gave {what}, and the unit is not written for that: it must be a `{kind}`")


def _no_manager(manager: object) -> ConfigurationError:
    return ConfigurationError(
        f"begin() must give a context manager that is one transaction, as engine.begin does, not {kind_of(manager)}"
    )
