"""What both modes share: a verb reads the rows of a name, decides by the kit's rules, and writes the difference.

Reading locks nothing, and what is refused writes nothing. A change that another client was faster than is decided
again, for a bounded time. The common case, an exclusive claim without competitors, is one statement.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.rows import NameRows, names_of
from leasehold.errors import BackendError, BackendUnavailable, ConfigurationError
from leasehold.kit import rules
from leasehold.kit.rows import State
from leasehold.kit.turns import Turns
from leasehold.values import Grant, Loss, LossReason, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.mysql.options import MysqlOptions
    from leasehold._backends.mysql.pool import Executor
    from leasehold.findings import Finding
    from leasehold.kit.rows import Row
    from leasehold.spi import Runtime
    from leasehold.values import Claim, LockState, Refusal

__all__ = ["BaseBackend"]

T = TypeVar("T")

PATIENCE = 1.0  # how long a call starts again after conflicts; the core asks again after that
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.03
LONGEST_KEY = 2400  # bytes, of the column; a namespace with escapes and a name have 2049 at most
RENEWED_AT_ONCE = 500
MOST_CROWDED = 1000  # names that are remembered to have had waiters


class BaseBackend:
    """Granting, renewing, releasing, withdrawing, inspecting; the modes add queues and records, or sessions."""

    gone = rules.TAKEN  # the loss of a grant that is not there any more
    session = sql.NO_SESSION  # what grants are bound to

    def __init__(self, options: MysqlOptions, executor: Executor, runtime: Runtime) -> None:
        self.label = options.label
        self._options = options
        self._executor = executor
        self._execute = executor.execute
        self._runtime = runtime
        self._turns = Turns(runtime)
        self._first_fence = options.fence_floor + 1
        self._crowded: set[str] = set()  # names that had waiters when we last looked: the common case fails there

    # --- claims

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        grant = await self._grant_plain(claim, until)
        if grant is not None:
            return grant
        return await self._visit(claim.key, until, partial(_swapped, rules.try_acquire, claim))

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        answers: list[Grant | Loss | BackendError] = []
        for start in range(0, len(grants), RENEWED_AT_ONCE):
            try:
                answers += await self._renew(grants[start : start + RENEWED_AT_ONCE], until)
            except BackendError as error:
                if not start:
                    raise
                return [*answers, *[error] * (len(grants) - start)]  # those before it are renewed
        return answers

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        if grant.claim.mode is Mode.EXCLUSIVE and await self._is_released_plain(grant, until):
            return True
        return await self._release_by_rules(grant, until)

    async def _is_released_plain(self, grant: Grant, until: float) -> bool:
        (result,) = await self._execute(sql.release_plain(grant), until, first=True)
        return bool(result.affected)

    async def _release_by_rules(self, grant: Grant, until: float) -> bool | Loss:
        return await self._visit(grant.claim.key, until, partial(_swapped, rules.release, grant), first=True)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        verb = partial(_swapped, partial(rules.withdraw, doubt=doubt), claim)
        await self._visit(claim.key, until, verb, first=True)

    # --- operators

    async def inspect(self, key: str) -> LockState | None:
        for result in await self._executor.look(sql.read_name(key.encode())):
            rows = NameRows(key, self.label, result.rows)
            rules.expire(rows)
            return rules.inspect(rows)
        return None

    async def list(self, prefix: str) -> Sequence[LockState]:
        results = await self._executor.look(sql.read_names(*sql.key_range(prefix)))
        states = []
        for rows in (rows for result in results for rows in names_of(result.rows, self.label)):
            rules.expire(rows)
            states.append(rules.inspect(rows))
        return [state for state in states if state is not None]

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return await self._visit(key, math.inf, lambda rows: rules.break_(rows, fence, reason, now=now))

    async def raise_fence(self, key: str, fence: int) -> int:
        return await self._visit(key, math.inf, lambda rows: rows.raise_fence(fence))

    async def examine(self) -> Sequence[Finding]:
        from leasehold._backends.mysql.doctor import examine  # noqa: PLC0415 - only the doctor needs it

        return await examine(self._executor, self._options)

    # --- the common case

    async def _grant_plain(self, claim: Claim, until: float) -> Grant | None:
        """An exclusive claim on a name that is not in use; None if it is not that simple."""
        self._check_length(claim.key)
        if claim.mode is not Mode.EXCLUSIVE or claim.min_hold or claim.spare or claim.key in self._crowded:
            return None
        (result,) = await self._execute(sql.grant_plain(claim, self._first_fence, self.session), until)
        return Grant(claim, result.insert_id, claim.ttl, None, abandoned=False) if result.affected else None

    def _check_length(self, key: str) -> None:
        if len(key) * 4 > LONGEST_KEY and len(key.encode()) > LONGEST_KEY:
            raise ConfigurationError(
                f"namespace and name have {len(key.encode())} bytes together; {self.label} takes {LONGEST_KEY}"
            )

    async def _renew(self, grants: Sequence[Grant], until: float) -> Sequence[Grant | Loss]:
        renewed = [Grant(each.claim, each.fence, each.claim.ttl, None, each.abandoned, each.spare) for each in grants]
        if all(each.claim.mode is Mode.EXCLUSIVE for each in grants):
            results = await self._execute(sql.renew_plain(grants, self.session), until, first=True, extra=True)
            if sum(result.affected for result in results) == len(grants):
                return renewed
        results = await self._execute(sql.renew_all(grants, self.session), until, first=True, extra=True)
        owners = {owner for (owner,) in results[-2].rows}
        return [
            answer if answer.claim.owner.encode() in owners else await self._renew_one(answer, until)
            for answer in renewed
        ]

    async def _renew_one(self, grant: Grant, until: float) -> Grant | Loss:
        """Why this grant is not there any more; or it was passed on, and is there under an earlier fence."""
        rows = await self._read(grant.claim.key, until)
        rules.expire(rows)
        for row in rows.of_owner(grant.claim.owner):
            if rules.has_fence(row, grant.fence) and row.broken is not None:
                return Loss(LossReason.BROKEN, row.broken)
            if rules.has_fence(row, grant.fence) and row.state == State.HOLDING:
                return await self._visit(grant.claim.key, until, partial(_swapped, rules.renew, grant), first=True)
        return self.gone

    # --- everything else

    async def _visit(self, key: str, until: float, verb: Callable[[NameRows], T], *, first: bool = False) -> T:
        """Apply a verb to the rows of a name, and notify the waiters whom it concerns.

        Calls of one client go one after the other: all at once, each but one would conflict in vain.
        """
        self._check_length(key)
        turn = self._runtime.signal()
        try:
            await self._turns.wait(key, turn, until)
            return await self._changed(key, until, verb, first=first)
        finally:
            self._turns.leave(key, turn)

    async def _changed(self, key: str, until: float, verb: Callable[[NameRows], T], *, first: bool) -> T:
        give_up, pause = min(until, self._runtime.now() + PATIENCE), FIRST_PAUSE
        while True:
            rows = await self._read(key, until, first=first)
            answer = self._decided(rows, verb)
            if await self._is_written(rows, until, first=first):
                return answer
            if self._runtime.now() >= give_up:
                raise BackendUnavailable(
                    f"{self.label}: other clients change this name all the time; nothing was changed, try again",
                    backend=self.label,
                )
            if not first:  # a release goes first: claims that pause give way to it
                await self._runtime.sleep(pause * self._runtime.random())
            pause = min(pause * 2, LONGEST_PAUSE)

    def _decided(self, rows: NameRows, verb: Callable[[NameRows], T]) -> T:
        """What the rules answer for the rows as they were read; the change is in the rows, and not written yet."""
        rows.session = self.session
        rules.expire(rows)
        answer = verb(rows)
        self._note_crowd(rows)
        return answer

    async def _is_written(self, rows: NameRows, until: float, *, first: bool = False) -> bool:
        """Write the change, and notify the waiters whom it concerns; False if another client was faster."""
        change = rows.change()
        if change is None:
            return True
        if not change.is_applied(await self._execute(change.text, until, first=first)):
            return False
        waiters = rows.notify()
        if waiters:
            self._notify(waiters)
        return True

    def _note_crowd(self, rows: NameRows) -> None:
        if not rows.waiting():
            self._crowded.discard(rows.key)
        elif len(self._crowded) < MOST_CROWDED:
            self._crowded.add(rows.key)
        else:
            self._crowded = {rows.key}

    async def _read(self, key: str, until: float, *, first: bool = False) -> NameRows:
        (result,) = await self._execute(sql.read_name(key.encode()), until, first=first)
        return NameRows(key, self.label, result.rows, self._first_fence)

    def _notify(self, waiters: Sequence[Row]) -> None:
        """These waiters should ask for their turn now."""


def _swapped(verb: Callable[..., T], given: object, rows: NameRows) -> T:
    return verb(rows, given)
