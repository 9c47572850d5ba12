"""The guard in MySQL and MariaDB (InnoDB): it raises the fence in a row, and keeps that row locked until the commit.

Why no update is lost, at each level of isolation:

    read committed,    every later statement of the transaction sees what is committed by then, and no other guarded
    read uncommitted   transaction of the resource commits while the row is locked. What was read *before* the guard may
                       be older. It is not where nothing was read (the guard opens the transaction), and where this
                       session was the last to pass: none has written since. Anything else is refused, for the server
                       does not tell what a transaction has read.
    repeatable read    a statement that locks sees the newest row, and a plain SELECT the snapshot of the first one. So
                       the row is locked first, and then looked at through the snapshot: if it shows fewer passes than
                       there were, guarded transactions have committed since, and this one has to be run again.
    serializable       a plain SELECT locks what it reads; what was read before cannot have changed.

A transaction that was refused is rolled back, and a read-only one is opened in its place, so that a program that goes
on all the same can neither commit nor write before it has ended that one itself.
"""

from __future__ import annotations

import secrets
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold.errors import ConfigurationError, RetryTransaction
from leasehold.fencing.token import refused, wrong_lock
from leasehold.sql.errors import objects_from_before
from leasehold.sql.mysql_table import MysqlTable, abort, as_hex, as_text, explain, fresh_state, level_variable
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from leasehold.fencing.token import Token
    from leasehold.sql.wires import Wire

__all__ = ["SCHEMA", "TABLE", "raise_fence"]

PRINTED_BY = "leasehold schema guard --dialect mysql"
TABLE = MysqlTable(
    "leasehold_guard",
    """\
CREATE TABLE IF NOT EXISTS @table@ (
  resource VARBINARY(1024) NOT NULL PRIMARY KEY,
  `lock` VARBINARY(1024),            -- namespace and name of the one lock that guards it
  exclusive_fence BIGINT NOT NULL,   -- the highest fence of an exclusive holder that was here
  exclusive_grant VARBINARY(32),     -- which grant that was, as a digest
  shared_fence BIGINT NOT NULL,      -- the highest fence of a shared holder
  passes BIGINT NOT NULL,            -- how often an exclusive holder has passed: it rises with each transaction
  session VARBINARY(32)              -- the session that was the last to pass
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
""",
    printed_by=PRINTED_BY,
)
SCHEMA = TABLE.script(None)

# A name for this session that no other ever has; the triggers of `leasehold schema fence` read it, too.
_NAME_SESSION = "SET @leasehold_session = COALESCE(@leasehold_session, %(session)s)"

# resource: locks its row, makes it if there is none, and changes nothing. Unlike a SELECT it leaves no lock on a gap.
_LOCK = """
INSERT INTO @table@ (resource, exclusive_fence, shared_fence, passes) VALUES (UNHEX(%(resource)s), 0, 0, 0)
ON DUPLICATE KEY UPDATE passes = passes
"""

# resource -> the level of isolation, and the passes that this transaction sees
_SEEN = "SELECT @level@, (SELECT passes FROM @table@ WHERE resource = UNHEX(%(resource)s))"

_IF_NEWER = """(COALESCE(`lock` = UNHEX(%(lock)s), 1)
    AND (%(fence)s > exclusive_fence
      OR (%(fence)s = exclusive_fence AND COALESCE(exclusive_grant = %(grant)s, 1)))
    AND %(fence)s > shared_fence
    AND (%(fresh)s OR passes IN (0, %(seen)s) OR session = @leasehold_session))"""

# resource, lock, fence, grant; fresh: whether nothing was read before; seen: the passes in the snapshot of what was.
# Assignments see the ones before them: what the condition reads is changed last, and never so that it would turn.
_EXCLUSIVE = f"""
INSERT INTO @table@ (resource, `lock`, exclusive_fence, exclusive_grant, shared_fence, passes, session)
VALUES (UNHEX(%(resource)s), UNHEX(%(lock)s), %(fence)s, %(grant)s, 0, 1, @leasehold_session)
ON DUPLICATE KEY UPDATE
  session = IF({_IF_NEWER}, @leasehold_session, session),
  passes = passes + IF({_IF_NEWER}, 1, 0),
  `lock` = IF({_IF_NEWER}, COALESCE(`lock`, UNHEX(%(lock)s)), `lock`),
  exclusive_grant = IF({_IF_NEWER},
    IF(%(fence)s = exclusive_fence, COALESCE(exclusive_grant, %(grant)s), %(grant)s), exclusive_grant),
  exclusive_fence = IF({_IF_NEWER}, %(fence)s, exclusive_fence)
"""  # noqa: S608 - put together from constants

# resource -> the newest row, whatever the snapshot shows
_NEWEST = """
SELECT `lock`, exclusive_fence, exclusive_grant, shared_fence, COALESCE(session = @leasehold_session, 0), passes,
  @level@
FROM @table@ WHERE resource = UNHEX(%(resource)s) FOR UPDATE
"""

# resource, lock, fence -> one row if this reader has raised the fence before; then readers do not wait for each other
_SHARED_AGAIN = """
SELECT passes, @level@ FROM @table@
WHERE resource = UNHEX(%(resource)s) AND `lock` = UNHEX(%(lock)s)
  AND exclusive_fence < %(fence)s AND shared_fence >= %(fence)s
LOCK IN SHARE MODE
"""

_IF_READABLE = "(COALESCE(`lock` = UNHEX(%(lock)s), 1) AND %(fence)s > exclusive_fence)"

# resource, lock, fence
_SHARED = f"""
INSERT INTO @table@ (resource, `lock`, exclusive_fence, shared_fence, passes)
VALUES (UNHEX(%(resource)s), UNHEX(%(lock)s), 0, %(fence)s, 0)
ON DUPLICATE KEY UPDATE
  `lock` = IF({_IF_READABLE}, COALESCE(`lock`, UNHEX(%(lock)s)), `lock`),
  shared_fence = IF({_IF_READABLE}, GREATEST(shared_fence, %(fence)s), shared_fence)
"""  # noqa: S608 - put together from constants

_STATEMENTS = "SHOW SESSION STATUS LIKE 'Questions'"
_OWN_STATEMENTS = 4  # of a guard until it knows how many there were: name, lock, look, and that question
_SEES_COMMITS = {"READ-COMMITTED", "READ-UNCOMMITTED"}
_NOTHING_SEEN = -1

# How many statements a session had executed at the end of a guard before which nothing was read.
_COUNTED: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()


async def raise_fence(
    wire: Wire, token: Token, *, trust_earlier_reads: bool = False, schema: str | None = None
) -> None:
    """Let the token pass and remember it, or refuse it."""
    place: dict[str, object] = {"resource": as_hex(token.resource)}
    values: dict[str, object] = {**place, "lock": as_hex(token.lock), "fence": token.fence}
    state = await fresh_state(wire, _NAME_SESSION, {"session": secrets.token_hex(16)})
    if state is Transaction.AUTOCOMMIT:
        raise ConfigurationError(
            "guard() was called outside a transaction, on a connection that commits every statement by itself: there "
            "it would protect nothing. Call it first inside a transaction"
        )
    passage = _Passage(wire, token, schema, place, values, trust=trust_earlier_reads, opens=state is Transaction.OPENS)
    try:
        await passage.go()
    except Exception as error:  # noqa: BLE001 - raised again, in words
        await abort(wire)
        explain(error, "guard()", TABLE.name, PRINTED_BY, "SELECT, INSERT, UPDATE")


class _Passage:
    """One call of the guard in one transaction."""

    def __init__(
        self,
        wire: Wire,
        token: Token,
        schema: str | None,
        place: dict[str, object],
        values: dict[str, object],
        *,
        trust: bool,
        opens: bool,
    ) -> None:
        self._wire = wire
        self._token = token
        self._schema = schema
        self._place = place
        self._values = values
        self._trust = trust
        self._fresh = opens or trust
        self._level = ""
        self._seen = _NOTHING_SEEN

    async def go(self) -> None:
        """Pass, or raise."""
        if not self._fresh:
            await self._look_at_what_was_read()
        if self._wire.holds_objects and not self._trust:
            await self._require_fresh_objects()
        await (self._pass_shared() if self._token.shared else self._pass_exclusive())
        await TABLE.require_transactions(self._wire, self._schema)
        if self._fresh and not self._trust:
            await self._count()

    async def _query(self, statement: str, values: dict[str, object]) -> Any:
        text = statement.replace("@level@", level_variable(self._wire))
        return (await TABLE.query(self._wire, text, self._schema, values)).rows

    async def _look_at_what_was_read(self) -> None:
        """A transaction was open: what does it see, with the row locked; and has it done anything but guard."""
        await self._query(_LOCK, self._place)
        ((self._level, seen),) = await self._query(_SEEN, self._place)
        if self._level not in _SEES_COMMITS:
            self._seen = _NOTHING_SEEN if seen is None else seen
            return
        before = _counted(self._wire.driver)
        self._fresh = before is not None and await self._statements() == before + _OWN_STATEMENTS

    async def _statements(self) -> int:
        """How many this session has executed."""
        ((_, count),) = (await self._wire.query(_STATEMENTS, {})).rows
        return int(count)

    async def _count(self) -> None:
        """So that a guard of another resource, right after this one, knows that nothing was read between."""
        if self._level in _SEES_COMMITS:
            count = await self._statements()
            with suppress(TypeError):  # without weak references to its connections, this is not known
                _COUNTED[self._wire.driver] = count

    async def _require_fresh_objects(self) -> None:
        """What an object mapper has read may be older than the fence, unless this grant was here before."""
        await self._query(_LOCK, self._place)
        ((_, exclusive, grant, shared, *_),) = await self._query(_NEWEST, self._place)
        fence = self._token.fence
        here = (
            shared >= fence > exclusive
            if self._token.shared
            else (exclusive, as_text(grant)) == (fence, self._token.grant)
        )
        if not here:
            raise objects_from_before()

    async def _pass_exclusive(self) -> None:
        rule = {"grant": self._token.grant, "fresh": int(self._fresh), "seen": self._seen}
        await self._query(_EXCLUSIVE, {**self._values, **rule})
        ((lock, exclusive, grant, shared, ours, _, self._level),) = await self._query(_NEWEST, self._place)
        fence, own = self._token.fence, self._token.grant
        self._require_lock(as_text(lock))
        equal = fence == exclusive and (own is None or grant is None or own == as_text(grant))
        if not (fence > exclusive or equal) or fence <= shared:
            raise refused(self._token, max(exclusive, shared), _name(lock))
        if not ours:
            self._refuse_earlier_read()

    async def _pass_shared(self) -> None:
        rows = await self._query(_SHARED_AGAIN, self._values)
        if not rows:
            await self._query(_SHARED, self._values)
            ((lock, exclusive, _, shared, _, passes, level),) = await self._query(_NEWEST, self._place)
            self._require_lock(as_text(lock))
            if not shared >= self._token.fence > exclusive:
                raise refused(self._token, exclusive, _name(lock))
            rows = [(passes, level)]
        ((passes, self._level),) = rows
        if not self._fresh and passes not in (0, self._seen):
            self._refuse_earlier_read()

    def _require_lock(self, lock: str | None) -> None:
        if self._token.lock is not None and lock is not None and lock != self._token.lock:
            raise wrong_lock(self._token, lock)

    def _refuse_earlier_read(self) -> NoReturn:
        if self._level not in _SEES_COMMITS:
            raise RetryTransaction(
                "this transaction sees the database as it was before another guarded one committed: roll back and run "
                "the whole transaction again, with guard() as its first statement"
            )
        raise ConfigurationError(
            "this transaction was open before guard() was called, and at READ COMMITTED the server does not tell what "
            "it has read: that may be older than the fence. Call guard() first, for every resource, on a connection "
            "with autocommit off and without BEGIN; or use REPEATABLE READ; or, if nothing was read that has to do "
            "with the resource, trust_earlier_reads=True"
        )


def _counted(driver: object) -> int | None:
    try:
        return _COUNTED.get(driver)
    except TypeError:
        return None


def _name(lock: bytes | str | None) -> str | None:
    """What the user calls the lock of a row."""
    return (as_text(lock) or "").partition(":")[2] or None
