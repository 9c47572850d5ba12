"""Locks in views and jobs of Django: the lock outlives the transaction, and nothing blocks an event loop.

A lock that is taken inside `atomic()` is released before the commit. The next holder then reads what was there before,
and writes over it: the lost update that the lock was for, and no test with one user ever shows it. So that order is
refused.
"""

from __future__ import annotations

import functools
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack

from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.asyncio import async_unsafe

from leasehold import sql
from leasehold.errors import ConfigurationError
from leasehold.integrations._deferred import locked_by
from leasehold.integrations.django.clients import aclient, client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from leasehold import AsyncLease, Lease
    from leasehold._face.lock_spec import LockOptions, OnBusy, Timeout

__all__ = ["ahold", "guard", "hold", "locked"]

P = ParamSpec("P")
R = TypeVar("R")

_IN_A_LOOP = (
    "leasehold's hold() and locked() block, and would stop every other request of this event loop; in an async view "
    "write `async with ahold(name) as lease:`"
)


@contextmanager
def hold(
    name: str,
    *,
    timeout: Timeout = ...,
    inside_transaction: bool = False,
    **options: Unpack[LockOptions],
) -> Iterator[Lease]:
    """Run the block of a `with` under the lock. Put `transaction.atomic()` inside this block, not around it.

    Inside an open `atomic()`, of whichever database, it is refused; `inside_transaction` allows it, for a lock that
    protects nothing in that database.
    """
    _check_place(name, inside_transaction=inside_transaction)
    with client().lock(name, **options).hold(timeout) as lease:
        yield lease


@asynccontextmanager
async def ahold(name: str, *, timeout: Timeout = ..., **options: Unpack[LockOptions]) -> AsyncIterator[AsyncLease]:
    """The same for async views, with `async with`.

    There is nothing to refuse: Django has no `atomic()` in async code, and no ATOMIC_REQUESTS for async views.
    """
    async with aclient().lock(name, **options).hold(timeout) as lease:
        yield lease


def locked(
    template: str,
    *,
    timeout: Timeout = ...,
    on_busy: OnBusy = None,
    inside_transaction: bool = False,
    **options: Unpack[LockOptions],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`client.locked` for views, tasks and methods, which is refused where `hold` is.

    The name is made from the arguments, as in `cart:{cart_id}`, and checked at import. With ATOMIC_REQUESTS, the view
    needs `@transaction.non_atomic_requests` on top, and an `atomic()` of its own.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        under_lock = locked_by(client, template, timeout=timeout, on_busy=on_busy, **options)(function)

        @functools.wraps(function)
        def in_order(*args: P.args, **kwargs: P.kwargs) -> R:
            _check_place(template, inside_transaction=inside_transaction)
            return under_lock(*args, **kwargs)

        return in_order

    return decorate


def guard(
    lease: Lease | AsyncLease,
    *,
    using: str = DEFAULT_DB_ALIAS,
    resource: str | None = None,
    trust_earlier_reads: bool = False,
) -> None:
    """`leasehold.sql.guard` by the alias of a database: the first statement inside `transaction.atomic(using=...)`."""
    sql.guard(using, lease, resource=resource, trust_earlier_reads=trust_earlier_reads)


@async_unsafe(_IN_A_LOOP)
def _check_place(name: str, *, inside_transaction: bool) -> None:
    if inside_transaction:
        return
    for connection in connections.all(initialized_only=True):
        # The blocks that Django's TestCase puts around a test are no part of the program.
        if any(not block._from_testcase for block in connection.atomic_blocks):  # noqa: SLF001 - as `durable` does
            alias = connection.alias
            raise ConfigurationError(
                f"the lock {name!r} would be taken inside a transaction of the database {alias!r} and released before "
                "its commit, so the next holder would not see what this one wrote. Take the lock first: `with "
                f"hold(...) as lease: with transaction.atomic(using={alias!r}): ...`. With ATOMIC_REQUESTS, put "
                "@transaction.non_atomic_requests on the view. A lock that protects nothing in this database may say "
                "inside_transaction=True"
            )
