"""The rows of queues: every statement once, in words that each database has its own spelling for.

A job that may be claimed has a due time: when it is ready, or when the claim of another worker runs out. What is done
or dead has none. So one range of one index holds all that a claim looks at, and jobs that were made for later cost it
nothing.

    ready    -> claimed              claim: the fence grows by one, the attempt counts
    claimed  -> done                 complete
    claimed  -> ready | dead         fail: later, or never again
    claimed  -> ready                release: at once, and the attempt does not count
    claimed  -> claimed | dead       claim, when the visibility timeout of the claim before is over
    dead     -> ready                retry_dead

What a claim may do to its job is one `UPDATE ... WHERE fence = its fence AND state = 'claimed'`.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol, cast

from leasehold.errors import ConfigurationError, LeaseholdError
from leasehold.sql.queue.job import (
    Job,
    JobInfo,
    QueueCounts,
    read_payload,
    refused_answer,
    require_same_payload,
    vanished,
)
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeVar

    from leasehold.sql.queue.job import JobState, Rules
    from leasehold.sql.wires import Answer, Wire

    T = TypeVar("T")

__all__ = ["INSERT", "PLAIN_OPERATORS", "Dialect", "Rows", "insert"]

PLAIN_OPERATORS = {"eq": "=", "le": "<=", "gt": ">", "plus": "+", "minus": "-"}

COLUMNS = """id, queue, job_key, payload, state, fence, attempts, worker, last_error,
  {age[due_at]}, {age[enqueued_at]}, {age[changed_at]}"""

INSERT = """
INSERT INTO {table} (queue, job_key, payload, state, due_at, fence, attempts, enqueued_at, changed_at)
VALUES ({queue}, {key}, {payload}, 'ready', {later}, 0, 0, {now}, {now})
"""
_INSERT_IF_NEW = f"{INSERT} ON CONFLICT (queue, job_key) DO NOTHING RETURNING id"

_DUE = f"""
SELECT {COLUMNS} FROM {{table}} {{by_due}}
WHERE queue {{eq}} {{queue}} AND due_at {{le}} {{then}}
ORDER BY due_at, id LIMIT {{limit}} {{skip_locked}}
"""  # noqa: S608 - constants

_CLAIM = """
UPDATE {table} SET state = 'claimed', fence = fence {plus} 1, attempts = attempts {plus} 1,
  due_at = {later}, changed_at = {now}, worker = {worker}
WHERE {among}
"""

_BURY = """
UPDATE {table} SET state = 'dead', due_at = NULL, changed_at = {now}, last_error = {error} WHERE id {eq} {id}
"""

_THIS_CLAIM = "WHERE id {eq} {id} AND fence {eq} {fence} AND state {eq} 'claimed'"

_COMPLETE = f"UPDATE {{table}} SET state = 'done', due_at = NULL, changed_at = {{now}} {_THIS_CLAIM}"  # noqa: S608

_FAIL = f"""
UPDATE {{table}} SET state = 'ready', due_at = {{later}}, changed_at = {{now}}, last_error = {{error}} {_THIS_CLAIM}
"""  # noqa: S608

_GIVE_UP = f"""
UPDATE {{table}} SET state = 'dead', due_at = NULL, changed_at = {{now}}, last_error = {{error}} {_THIS_CLAIM}
"""  # noqa: S608

_RELEASE = f"""
UPDATE {{table}} SET state = 'ready', due_at = {{now}}, changed_at = {{now}}, attempts = attempts {{minus}} 1
{_THIS_CLAIM}
"""  # noqa: S608

_EXTEND = f"UPDATE {{table}} SET due_at = {{later}} {_THIS_CLAIM}"  # noqa: S608

_STATE = "SELECT state, fence FROM {table} WHERE id {eq} {id} {as_it_is}"

_KNOWN = "SELECT id, payload FROM {table} WHERE queue {eq} {queue} AND job_key {eq} {key} {as_it_is}"

_DEAD = """
SELECT id FROM {table} WHERE queue {eq} {queue} AND state {eq} 'dead' ORDER BY changed_at, id LIMIT {limit}
{skip_ended}
"""

_RETRY = """
UPDATE {table} SET state = 'ready', attempts = 0, due_at = {now}, changed_at = {now}
WHERE queue {eq} {queue} AND state {eq} 'dead' AND {among}
"""

_OVER = """
SELECT id FROM {table} WHERE queue {eq} {queue} AND state {eq} {state} AND changed_at {le} {earlier}
ORDER BY changed_at, id LIMIT {limit} {skip_ended}
"""

_PURGE = "DELETE FROM {table} WHERE queue {eq} {queue} AND state {eq} {state} AND {among}"

_LIST = f"SELECT {COLUMNS} FROM {{table}} WHERE {{which}} ORDER BY id LIMIT {{limit}}"  # noqa: S608

_COUNTS = """
SELECT queue, state, CASE WHEN due_at {gt} {then} THEN 1 ELSE 0 END, {count}(*), {max}({age[due_at]})
FROM {table} GROUP BY 1, 2, 3
"""


class Dialect(Protocol):
    """A module that knows one kind of database."""

    WORDS: Mapping[str, Any]  # how the words of the statements are spelt, and the values cast

    def schema(self, schema: str | None) -> str:
        """The statements that make the table."""

    async def table(self, wire: Wire, schema: str | None, *, make: bool) -> str | None:
        """What the table is called in a statement; None if there is none, and it was not to be made."""

    async def make(self, wire: Wire, schema: str | None) -> None:
        """Make the table where there is none."""

    async def heal(self, wire: Wire, error: Exception) -> bool:
        """Whether what failed can be done again now, in the same transaction."""

    async def before_claim(self, wire: Wire) -> None:
        """Keep others from claiming, where rows cannot be locked."""

    async def insert(self, rows: Rows, values: dict[str, object]) -> int | None:
        """Write the row; its number, or None if its key is there already."""

    def is_missing_table(self, error: Exception) -> bool:
        """Whether the error says so."""

    def explain(self, wire: Wire, error: Exception) -> None:
        """Raise an error that says what to do, for those that are to be expected."""


class Rows:
    """The rows of one queue, over one wire."""

    def __init__(self, wire: Wire, dialect: Dialect, rules: Rules) -> None:
        self.wire = wire
        self.rules = rules
        self._dialect = dialect
        self._table = ""

    # --- what a program does

    async def enqueue(self, payload: str, key: str | None, delay: float) -> int:
        """Write a job into the transaction; its number, or the number of the job that has the key."""
        self._require_transaction("enqueue()", "the job would be there although your transaction was rolled back")
        return await self._do(lambda: self._enqueue({"payload": payload, "key": key, "seconds": delay}))

    async def _enqueue(self, values: dict[str, object]) -> int:
        values["queue"] = self.rules.queue
        for _ in range(3):
            made = await self._dialect.insert(self, values)
            if made is not None:
                return made
            known = await self.ask(_KNOWN, values)
            if known.rows:
                number, stored = known.rows[0]
                require_same_payload(self.rules, str(values["key"]), str(values["payload"]), _text(stored))
                return int(number)
        raise ConfigurationError(
            f"the job with the key {values['key']!r} is removed as often as it is looked for: run the transaction again"
        )

    async def claim(self, limit: int, visibility: float, worker: str) -> list[Job]:
        """Take due jobs, oldest first; those that had their last attempt are dead now."""
        self._require_transaction("claim()", "the jobs that it reads may be claimed by others before it writes")
        return await self._do(lambda: self._claim(limit, visibility, worker))

    async def _claim(self, limit: int, visibility: float, worker: str) -> list[Job]:
        await self._dialect.before_claim(self.wire)
        while True:
            due = [_info(row) for row in (await self.ask(_DUE, {"queue": self.rules.queue, "limit": limit})).rows]
            used_up = [info for info in due if self.rules.is_last(info.attempts)]
            for info in used_up:
                await self.ask(_BURY, {"id": info.id, "error": vanished(info.attempts, info.last_error)})
            ours = [info for info in due if info not in used_up]
            if ours:
                values = {"seconds": visibility, "worker": worker}
                await self._ask_for(_CLAIM, [info.id for info in ours], values)
            if ours or not used_up:
                return [_claimed(info) for info in ours]

    async def complete(self, job: Job) -> None:
        """The work is done."""
        await self._answer(job, _COMPLETE, "done", {})

    async def fail(self, job: Job, error: str, delay: float | None) -> None:
        """The work was not done; try again after a delay, or never if that is None."""
        if delay is None:
            await self._answer(job, _GIVE_UP, "dead", {"error": error})
        else:
            await self._answer(job, _FAIL, "ready", {"error": error, "seconds": delay})

    async def release(self, job: Job) -> None:
        """The work was not begun."""
        await self._answer(job, _RELEASE, "ready", {})

    async def extend(self, job: Job, visibility: float) -> None:
        """The work takes longer."""
        await self._answer(job, _EXTEND, "claimed", {"seconds": visibility})

    async def _answer(self, job: Job, statement: str, wanted: str, values: dict[str, object]) -> None:
        this = {"id": job.id, "fence": job.fence}

        async def change() -> None:
            if (await self.ask(statement, {**values, **this})).count == 1:
                return
            found = (await self.ask(_STATE, this)).rows
            state, fence = (_text(found[0][0]), int(found[0][1])) if found else (None, None)
            refusal = refused_answer(job, state, fence, wanted)
            if refusal is not None:
                raise refusal

        await self._do(change)

    # --- what an operator does

    async def retry_dead(self, number: int | None, limit: int) -> int:
        """Make dead jobs ready again; how many."""

        async def retry() -> int:
            values = {"queue": self.rules.queue, "limit": limit}
            numbers = [number] if number is not None else [row[0] for row in (await self.ask(_DEAD, values)).rows]
            return await self._ask_for(_RETRY, numbers, {"queue": self.rules.queue})

        return await self._do(retry)

    async def purge(self, state: JobState, older_than: float, limit: int, number: int | None = None) -> int:
        """Remove jobs that are over, or one of them; how many."""

        async def purge() -> int:
            values = {"queue": self.rules.queue, "state": state}
            if number is not None:
                return await self._ask_for(_PURGE, [number], values)
            over = (await self.ask(_OVER, {**values, "seconds": older_than, "limit": limit})).rows
            return await self._ask_for(_PURGE, [row[0] for row in over], values)

        return await self._do(purge)

    async def jobs(self, limit: int, **wanted: object) -> list[JobInfo]:
        """The jobs whose columns have these values: of `queue`, `state` and `id`; by their numbers."""
        which = " AND ".join(f"{column} {{eq}} {{{column}}}" for column in wanted) or "1 {eq} 1"

        async def look() -> list[JobInfo]:
            answer = await self.ask(_LIST.replace("{which}", which), {**wanted, "limit": limit})
            return [_info(row) for row in answer.rows]

        return await self._look(look, [])

    async def counts(self) -> list[QueueCounts]:
        """All queues that have jobs, by name."""

        async def look() -> list[QueueCounts]:
            return _counts((await self.ask(_COUNTS, {})).rows)

        return await self._look(look, [])

    async def make(self) -> None:
        """Make the table, where there is none."""
        try:
            await self._dialect.make(self.wire, self.rules.schema)
        except LeaseholdError:
            raise
        except Exception as error:
            self._dialect.explain(self.wire, error)
            raise

    # --- statements

    async def ask(self, statement: str, values: Mapping[str, object], **more: str) -> Answer:
        """One statement, in the words of this database."""
        written = _in_words(cast("Any", self._dialect), statement, tuple(more.items())).replace("@table@", self._table)
        return await self.wire.query(written, self._stored(values))

    async def _ask_for(self, statement: str, numbers: Sequence[int], values: Mapping[str, object]) -> int:
        """The same for several jobs; how many it has changed."""
        if not numbers:
            return 0
        named = {f"id_{place}": number for place, number in enumerate(numbers)}
        words = self._dialect.WORDS
        ids = ", ".join(words["id"].replace("(id)", f"({name})") for name in named)
        return (await self.ask(statement, {**values, **named}, among=words["among"].replace("@ids@", ids))).count

    def _stored(self, values: Mapping[str, object]) -> dict[str, object]:
        hexadecimal: frozenset[str] = self._dialect.WORDS["hexadecimal"]
        return {
            name: value.encode().hex() if name in hexadecimal and isinstance(value, str) else value
            for name, value in values.items()
        }

    async def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            self._table = cast("str", await self._dialect.table(self.wire, self.rules.schema, make=True))
            try:
                return await work()
            except Exception as error:
                if not await self._dialect.heal(self.wire, error):
                    raise
            return await work()
        except LeaseholdError:
            raise
        except Exception as error:
            self._dialect.explain(self.wire, error)
            raise

    async def _look(self, work: Callable[[], Awaitable[T]], nothing: T) -> T:
        """The same for a question, for which no table is made."""
        try:
            table = await self._dialect.table(self.wire, self.rules.schema, make=False)
            if table is None:
                return nothing
            self._table = table
            return await work()
        except LeaseholdError:
            raise
        except Exception as error:
            if self._dialect.is_missing_table(error):
                return nothing
            self._dialect.explain(self.wire, error)
            raise

    def _require_transaction(self, verb: str, harm: str) -> None:
        if self.wire.transaction() is Transaction.AUTOCOMMIT:
            raise ConfigurationError(
                f"{verb} was called outside a transaction, on a connection that commits every statement by itself: "
                f"{harm}. Call it inside a transaction block"
            )


async def insert(rows: Rows, values: dict[str, object]) -> int | None:
    """Write the row; its number, or None if its key is there already. For databases that give back what they wrote."""
    made = (await rows.ask(_INSERT_IF_NEW, values)).rows
    return int(made[0][0]) if made else None


@functools.lru_cache(256)
def _in_words(dialect: Dialect, statement: str, more: tuple[tuple[str, str], ...]) -> str:
    return statement.format_map({**dialect.WORDS, **dict(more)}).strip()


def _text(value: str | bytes) -> str:
    """MySQL keeps names as bytes, so that no two of them are the same to it."""
    return value.decode() if isinstance(value, (bytes, bytearray)) else value


def _info(row: Sequence[Any]) -> JobInfo:
    number, queue, key, payload, state, fence, attempts, worker, last_error, overdue, age, changed = row
    return JobInfo(
        id=int(number),
        queue=_text(queue),
        key=None if key is None else _text(key),
        payload=read_payload(_text(payload)),
        state=cast("JobState", _text(state)),
        fence=int(fence),
        attempts=int(attempts),
        worker=None if worker is None else _text(worker),
        last_error=None if last_error is None else _text(last_error),
        due_in=None if overdue is None else -float(overdue),
        age=float(age),
        changed=float(changed),
    )


def _claimed(info: JobInfo) -> Job:
    return Job(
        info.id, info.queue, info.key, info.payload, info.fence + 1, info.attempts + 1, info.last_error, info.age
    )


def _counts(rows: Sequence[Sequence[Any]]) -> list[QueueCounts]:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for queue, state, is_later, count, overdue in rows:
        kind, facts = _text(state), found[_text(queue)]
        if kind == "ready" and is_later:
            kind = "delayed"
        elif kind == "ready":
            facts["lag"] = float(overdue)
        facts[kind] = facts.get(kind, 0) + int(count)
    return [QueueCounts(queue, **found[queue]) for queue in sorted(found)]
