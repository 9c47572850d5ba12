"""`IdempotencyKeys`: work that is asked for twice is done once, because its record is in the same SQL transaction.

Each database has a module of its own, which is loaded when it is used. `wires` knows the drivers. The client of a store
is not needed, and no lease: what is not committed has not happened, and its key is free again at that very moment.
"""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from leasehold._durations import optional_seconds, seconds, ttl_seconds
from leasehold._runtimes.threads import run
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.idempotency.record import (
    Kept,
    Rules,
    check_text,
    make_claim,
    read_result,
    replayable,
    write_result,
)
from leasehold.sql.wires import async_twin, wire_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from leasehold._durations import Duration
    from leasehold.sql.idempotency.record import Claim, Dialect, Opened
    from leasehold.sql.wires import Wire

__all__ = ["AsyncTransactionAttempt", "IdempotencyKeys", "TransactionAttempt", "idempotency_schema"]

DIALECTS = {
    "mysql": "leasehold.sql.idempotency.mysql",
    "postgresql": "leasehold.sql.idempotency.postgresql",
    "sqlite": "leasehold.sql.idempotency.sqlite",
}
SWEPT_PER_KEY = 2  # more than one, so that a backlog becomes smaller


class IdempotencyKeys:
    """The idempotency keys of one kind of work; make one per kind, and use it from any thread or task.

        with database.transaction():
            with keys.attempt(database, key, fingerprint=body) as attempt:
                if not attempt.replayed:
                    attempt.complete(charge(database))
        return attempt.result

    `keep`: how long a key and its result are remembered after the work was done. `wait`: how long an attempt waits for
    one that is in flight before `InFlight`; without it PostgreSQL answers at once, and SQLite after the busy timeout of
    the connection. `retry_after`: what `InFlight` suggests. `max_result`: the most bytes that a result has as JSON.
    `sweep_every`: with each so many new keys, the first included, some records that are over are removed in the same
    transaction; 0 never does. `schema`: where the table is in PostgreSQL, for databases in which each schema has data
    of its own; without it there is one table for the whole database, wherever it was made first.
    """

    def __init__(
        self,
        name: str,
        *,
        keep: Duration = "24h",
        wait: Duration | None = None,
        retry_after: Duration = 1.0,
        max_result: int = 65_536,
        sweep_every: int = 100,
        schema: str | None = None,
    ) -> None:
        self.name: str = check_text(name, "the name of idempotency keys")
        self._rules = Rules(
            keep=ttl_seconds(keep, "keep"),
            wait=optional_seconds(wait, "wait"),
            retry_after=seconds(retry_after, "retry_after"),
            schema=None if schema is None else check_text(schema, "schema"),
        )
        self._max_result = _whole(max_result, "max_result", 1)
        self._sweep_every = _whole(sweep_every, "sweep_every", 0)
        self._completed = itertools.count()

    def attempt(self, tx: Any, key: str, *, fingerprint: object, principal: str | None = None) -> TransactionAttempt:
        """Use a key for the work of the block, in the transaction that `tx` is in.

        `tx` is a connection, cursor or session inside a transaction: of psycopg, sqlite3, PyMySQL, SQLAlchemy
        (`Connection`, `Session`) or Django (a connection, or its alias). A connection that opens transactions
        by itself is made to open one. `fingerprint` is the payload, as bytes, text or anything that JSON can
        write; its SHA-256 is kept. None says on purpose that payloads are not compared. `principal` says whose
        key it is: the same key of two principals is two keys.

        Promises that of all transactions with this key one is committed, and that `attempt.result` of every later one
        is what that one completed, for as long as `keep`. Leaving the block without `complete` records nothing, and
        leaves to your transaction what the block has written: raise an error to take it back.

        Entering it raises `InFlight` while another transaction is at it, `KeyReused` for another payload,
        `RetryTransaction` when the whole transaction has to be run again, and `ConfigurationError` outside a
        transaction. It makes its table on first use, in MySQL only where no transaction is open yet.
        """
        return TransactionAttempt(self, tx, make_claim(self.name, principal, key, fingerprint))

    def attempt_async(
        self, tx: Any, key: str, *, fingerprint: object, principal: str | None = None
    ) -> AsyncTransactionAttempt:
        """The same for asyncio: psycopg's and SQLAlchemy's async classes, asyncpg, aiosqlite.

        `async with keys.attempt_async(...) as attempt`, and `await attempt.complete(...)`.
        """
        return AsyncTransactionAttempt(self, tx, make_claim(self.name, principal, key, fingerprint))

    def sweep(self, tx: Any, *, limit: int = 1000) -> int:
        """Remove at most so many records that are over, of all names in the table; how many it were.

        For a job of its own, where `sweep_every` is 0 or not enough. It works inside a transaction and outside.
        """
        most = _whole(limit, "limit", 1)
        wire = _blocking_wire(tx, "sweep_async(tx)")
        return run(_dialect(wire).sweep(wire, most, self._rules.schema))

    async def sweep_async(self, tx: Any, *, limit: int = 1000) -> int:
        """The same as `sweep` for asyncio."""
        most = _whole(limit, "limit", 1)
        twin = async_twin(tx)
        if twin is not None:
            return int(await twin.run_sync(lambda blocking: self.sweep(blocking, limit=most)))
        wire = _async_wire(tx, "sweep(tx)")
        return await _dialect(wire).sweep(wire, most, self._rules.schema)

    def schema(self, dialect: str = "postgresql") -> str:
        """The statements that make the table, for programs that may not create tables themselves."""
        return _load(dialect).schema(self._rules.schema)

    def _sweeps_now(self) -> bool:
        return self._sweep_every > 0 and next(self._completed) % self._sweep_every == 0


def idempotency_schema(dialect: str = "postgresql", *, schema: str | None = None) -> str:
    """The statements that make the table of `IdempotencyKeys`, in this schema of PostgreSQL or in the current one."""
    return _load(dialect).schema(schema)


class _Attempt:
    """What both faces have in common; it is given a wire for every step, made of the transaction as it is then."""

    def __init__(self, keys: IdempotencyKeys, tx: Any, claim: Claim) -> None:
        self.key: str = claim.key
        self._keys = keys
        self._tx = tx
        self._claim = claim
        self._found: Kept | Opened | None = None
        self._result: str | None = None
        self._over = False

    @property
    def replayed(self) -> bool:
        """Whether the work was done before; `result` is what it gave then."""
        if self._found is None:
            raise ConfigurationError("an attempt begins with its block: with keys.attempt(...) as attempt")
        return isinstance(self._found, Kept)

    @property
    def result(self) -> Any:
        """What the work gave, now or before: the same value for all callers, as JSON kept it."""
        if self._result is None:
            raise ConfigurationError(f"the idempotency key {self.key!r} has no result: this attempt was not completed")
        return read_result(self._result)

    def _require_fresh(self) -> None:
        """Before the transaction is touched: a session whose block is over would open another one."""
        if self._found is not None:
            raise ConfigurationError("an attempt is used for one block only: call keys.attempt(...) again")

    async def _begin(self, wire: Wire) -> None:
        rules = self._keys._rules  # noqa: SLF001 - its own maker
        found = await _dialect(wire).begin(wire, self._claim, rules)
        if isinstance(found, Kept):
            self._result = replayable(self._claim, found).result
        self._found = found

    def _write(self, result: object) -> str:
        """The result as it will be kept; refused, before anything is sent, where there is nothing to complete."""
        if self.replayed:
            raise ConfigurationError(f"the idempotency key {self.key!r} was completed before: use attempt.result")
        if self._result is not None or self._over:
            raise ConfigurationError("an attempt is completed once, inside its block")
        return write_result(result, self._keys._max_result)  # noqa: SLF001 - its own maker

    async def _complete(self, wire: Wire, text: str) -> None:
        keys, opened = self._keys, cast("Opened", self._found)
        dialect = _dialect(wire)
        await dialect.complete(wire, self._claim, opened, text, keys._rules)  # noqa: SLF001 - its own maker
        self._result = text
        if opened.may_sweep and keys._sweeps_now():  # noqa: SLF001 - its own maker
            await dialect.sweep(wire, SWEPT_PER_KEY * keys._sweep_every, opened.schema)  # noqa: SLF001 - its own maker

    def _to_leave(self, error: type[BaseException] | None) -> Opened | None:
        """What has to be left in the database; after an error nothing is sent: the transaction has to end anyway."""
        self._over = True
        completed = error is None and self._result is not None and not isinstance(self._found, Kept)
        return cast("Opened", self._found) if completed else None


class TransactionAttempt(_Attempt):
    """One use of a key in one transaction, made by `IdempotencyKeys.attempt` or `attempt_async`."""

    def __enter__(self) -> Self:
        self._require_fresh()
        run(self._begin(self._wire()))
        return self

    def complete(self, result: object = None) -> Any:
        """Record that the work is done, and what it gave, in the transaction; gives the result as replays will see it.

        Raises `ConfigurationError` for a result that is too large or not JSON, and when the transaction has ended
        inside the block; `RetryTransaction` when the whole transaction has to be run again.
        """
        text = self._write(result)
        run(self._complete(self._wire(), text))
        return self.result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened = self._to_leave(kind)
        if opened is not None:
            wire = self._wire()
            run(_dialect(wire).leave(wire, opened))

    def _wire(self) -> Wire:
        return _blocking_wire(self._tx, "attempt_async(tx, ...)")


class AsyncTransactionAttempt(_Attempt):
    """One use of a key in one transaction, made by `IdempotencyKeys.attempt` or `attempt_async`."""

    async def __aenter__(self) -> Self:
        self._require_fresh()
        twin = async_twin(self._tx)
        if twin is not None:
            await twin.run_sync(lambda blocking: run(self._begin(wire_of(blocking))))
        else:
            await self._begin(self._wire())
        return self

    async def complete(self, result: object = None) -> Any:
        """Record that the work is done, and what it gave, in the transaction; gives the result as replays will see it.

        Raises `ConfigurationError` for a result that is too large or not JSON, and when the transaction has ended
        inside the block; `RetryTransaction` when the whole transaction has to be run again.
        """
        text = self._write(result)
        twin = async_twin(self._tx)
        if twin is not None:
            await twin.run_sync(lambda blocking: run(self._complete(wire_of(blocking), text)))
        else:
            await self._complete(self._wire(), text)
        return self.result

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened = self._to_leave(kind)
        if opened is None:
            return
        twin = async_twin(self._tx)
        if twin is not None:
            await twin.run_sync(lambda blocking: _leave(wire_of(blocking), opened))
        else:
            wire = self._wire()
            await _dialect(wire).leave(wire, opened)

    def _wire(self) -> Wire:
        return _async_wire(self._tx, "attempt(tx, ...)")


def _leave(wire: Wire, opened: Opened) -> None:
    run(_dialect(wire).leave(wire, opened))


def _blocking_wire(tx: Any, other: str) -> Wire:
    if async_twin(tx) is None:
        wire = wire_of(tx)
        if not wire.is_async:
            return wire
    raise ConfigurationError(f"{kind_of(tx)} is async: use {other} for it, and await")


def _async_wire(tx: Any, other: str) -> Wire:
    wire = wire_of(tx)
    if not wire.is_async:
        raise ConfigurationError(f"{kind_of(tx)} is not async: use {other} for it")
    return wire


def _dialect(wire: Wire) -> Dialect:
    return _load(wire.dialect)


def _load(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        raise ConfigurationError(f"no idempotency keys in {dialect!r}; there are in {', '.join(sorted(DIALECTS))}")
    return cast("Dialect", import_module(DIALECTS[dialect]))


def _whole(value: object, what: str, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ConfigurationError(f"{what} must be a whole number of at least {lowest}, not {value!r}")
    return value
