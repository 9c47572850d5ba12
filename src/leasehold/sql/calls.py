"""One coroutine behind two names: what a blocking function and its `_async` twin do with the connection they got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leasehold._runtimes.threads import run
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Transaction, async_twin, wire_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.sql.wires import Wire

__all__ = ["call", "call_async", "call_either", "require_transaction"]

T = TypeVar("T")


def call(tx: Any, name: str, work: Callable[[Wire], Coroutine[Any, Any, T]]) -> T:
    """Finish the work over a connection that blocks; `name` is what the user has called."""
    if async_twin(tx) is None:
        wire = wire_of(tx)
        if not wire.is_async:
            return run(work(wire))
    raise ConfigurationError(f"{kind_of(tx)} is async: write await {name}_async(tx, ...)")


async def call_async(tx: Any, name: str, work: Callable[[Wire], Coroutine[Any, Any, T]]) -> T:
    """The same over one that is awaited; one that blocks is refused, for it would stop the event loop."""
    if async_twin(tx) is None and not wire_of(tx).is_async:
        raise ConfigurationError(f"{kind_of(tx)} is not async: write {name}(tx, ...)")
    return await call_either(tx, work)


async def call_either(tx: Any, work: Callable[[Wire], Coroutine[Any, Any, T]]) -> T:
    """The work over either kind. SQLAlchemy's async objects run the blocking form on their own."""
    twin = async_twin(tx)
    if twin is not None:
        done: T = await twin.run_sync(lambda blocking: run(work(wire_of(blocking))))
        return done
    return await work(wire_of(tx))


def require_transaction(wire: Wire, name: str, why: str) -> Transaction:
    """What happens to the next statement; refused where it would be committed by itself."""
    state = wire.transaction()
    if state is Transaction.AUTOCOMMIT:
        raise ConfigurationError(
            f"{name} was called outside a transaction, on a connection that commits every statement by itself: {why}. "
            "Call it inside a transaction block"
        )
    return state
