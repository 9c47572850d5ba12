"""`retry_on_conflict`: a unit of work that lost against another writer is run again, whole, in a fresh transaction.

Half of a unit cannot be repeated: what it has read is out of date, and a session keeps it. So each attempt begins with
`begin()`. What an error means is decided by `after`, which is pure but for the clock; two loops wait and call it.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from leasehold._backoff import Backoff
from leasehold._durations import optional_seconds
from leasehold.errors import ConfigurationError
from leasehold.sql.optimistic.attempts import Attempts, Rules
from leasehold.sql.optimistic.units import manager_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._durations import Duration

__all__ = ["RETRIES", "retry_on_conflict"]

P = ParamSpec("P")
T = TypeVar("T")

RETRIES = Backoff(jitter="full", tries=20)


@overload
def retry_on_conflict(
    begin: Callable[[], Any] | str,
    unit: Callable[[Any], T],
    /,
    *,
    backoff: Backoff = ...,
    timeout: Duration | None = ...,
    idempotent: bool = ...,
    on_retry: Callable[[int, Exception, float], object] | None = ...,
) -> T: ...


@overload
def retry_on_conflict(
    begin: Callable[[], Any] | str,
    /,
    *,
    backoff: Backoff = ...,
    timeout: Duration | None = ...,
    idempotent: bool = ...,
    on_retry: Callable[[int, Exception, float], object] | None = ...,
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]: ...


def retry_on_conflict(
    begin: Callable[[], Any] | str,
    unit: Callable[..., Any] | None = None,
    /,
    *,
    backoff: Backoff = RETRIES,
    timeout: Duration | None = None,
    idempotent: bool = False,
    on_retry: Callable[[int, Exception, float], object] | None = None,
) -> Any:
    """Run a unit of work in a transaction of its own, and again in a fresh one when it meets another writer.

        @retry_on_conflict(Session.begin)       # a sessionmaker's; or engine.begin, or "default" for Django
        def ship(tx, order): ...                # called as ship(order)

        retry_on_conflict(Session.begin, lambda tx: ship_it(tx, 7))     # the same at once

    `begin` makes a transaction: a context manager that commits at its end and gives what the unit gets as its first
    argument. An alias of a Django database stands for `transaction.atomic`. With an `async def` it makes an async one,
    and the call is awaited. `backoff` says how often to try and how long to pause: 20 tries, full jitter. `timeout`:
    no other try after that. `on_retry(attempt, error, pause)` is called for every one, before the pause.

    Runs again after `VersionConflict`, `RetryTransaction`, `RowBusy`, what `is_retryable` knows, and SQLAlchemy's
    `StaleDataError`. Gives up with the last of these errors. A connection that is lost while it commits leaves open
    whether the unit was done: `OutcomeUnknown`, and no other try unless `idempotent` says that the unit may be done
    twice. The unit must have no effect outside its transaction, for it is run several times.
    """
    rules = Rules(_backoff(backoff), optional_seconds(timeout, "timeout"), bool(idempotent), on_retry)
    if unit is None:
        return lambda decorated: _decorate(begin, _unit(decorated), rules)
    if inspect.iscoroutinefunction(_unit(unit)):
        return _run_async(begin, unit, rules)
    return _run(begin, unit, rules)


def _decorate(begin: Callable[[], Any] | str, unit: Callable[..., Any], rules: Rules) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(unit):

        @functools.wraps(unit)
        async def run_async(*args: Any, **words: Any) -> Any:
            async def bound(tx: Any) -> Any:
                return await unit(tx, *args, **words)

            return await _run_async(begin, bound, rules)

        return run_async

    @functools.wraps(unit)
    def run(*args: Any, **words: Any) -> Any:
        return _run(begin, lambda tx: unit(tx, *args, **words), rules)

    return run


def _run(begin: Callable[[], Any] | str, unit: Callable[[Any], Any], rules: Rules) -> Any:
    from time import sleep  # noqa: PLC0415 - as for asyncio below

    attempts = Attempts(rules)
    while True:
        returned, result = False, None
        try:
            with manager_of(begin) as tx:
                result = _plain(unit(tx))
                returned = True
        except Exception as error:  # noqa: BLE001 - what it means is decided there, and most is raised again
            sleep(attempts.after(error, committing=returned))
            continue
        return _finished(result, returned=returned)


async def _run_async(begin: Callable[[], Any] | str, unit: Callable[[Any], Any], rules: Rules) -> Any:
    from asyncio import sleep  # noqa: PLC0415 - a blocking program never loads asyncio

    from leasehold.sql.optimistic.units import async_manager_of  # noqa: PLC0415

    attempts = Attempts(rules)
    while True:
        returned, result = False, None
        try:
            async with await async_manager_of(begin) as tx:
                result = await unit(tx)
                returned = True
        except Exception as error:  # noqa: BLE001 - as above
            await sleep(attempts.after(error, committing=returned))
            continue
        return _finished(result, returned=returned)


def _finished(result: Any, *, returned: bool) -> Any:
    if not returned:
        raise ConfigurationError(
            "the transaction that begin() made has swallowed an error of the unit, so it is unknown whether it was "
            "committed: let errors leave the context manager"
        )
    return result


def _plain(result: Any) -> Any:
    """The result of a blocking unit; refused while the transaction is still open, so that it is rolled back."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ConfigurationError("the unit gave something to await: write it as `async def`, with an async begin()")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise ConfigurationError("the unit gave a generator, which would run after the commit: return a list")
    return result


def _unit(unit: Any) -> Callable[..., Any]:
    if not callable(unit):
        raise ConfigurationError(f"a unit of work is a function that gets the transaction, not {unit!r}")
    if inspect.isgeneratorfunction(unit) or inspect.isasyncgenfunction(unit):
        raise ConfigurationError(
            f"{getattr(unit, '__qualname__', unit)} is a generator: it would run after its transaction, and cannot be "
            "run again. Return a list"
        )
    return unit  # type: ignore[no-any-return]


def _backoff(backoff: object) -> Backoff:
    if not isinstance(backoff, Backoff):
        raise ConfigurationError(f"backoff must be a leasehold.Backoff, not {backoff!r}")
    return backoff
