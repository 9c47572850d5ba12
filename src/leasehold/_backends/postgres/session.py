"""`?mode=session`: grants that end with the session of their holder, so that a crash frees them at once.

All requests of a client go over one connection. Its session has an advisory lock under a random number, which is
stored in the rows of its grants: if that lock can be had, the session has ended, and its grants with it. The lock says
*that* a holder lives, not *what* it holds. An advisory lock for each name could be had twice by two threads of one
session, could not be broken, found again or released by another session, and would not show who holds it.

Grants run out with their ttl as well, so a holder that is cut off is succeeded even if the server does not notice.

The connection is watched while it is idle: if the server ends it, every grant is renewed at once, and lost.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING

from leasehold._backends.postgres import statements as sql
from leasehold._backends.postgres.base import BaseBackend
from leasehold._backends.postgres.connection import Connection, open_connection
from leasehold._backends.postgres.driver import GOOD
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit.one_session import OneSession
from leasehold.values import Capability, Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from leasehold._backends.postgres.executor import Executor
    from leasehold._backends.postgres.options import PostgresOptions
    from leasehold._backends.postgres.statements import Statements
    from leasehold._backends.postgres.wire import Wire
    from leasehold.spi import Runtime
    from leasehold.values import Claim, Refusal

__all__ = ["SessionBackend", "SessionSource"]

ENDED = Loss(LossReason.SESSION_ENDED, "the session that held it has ended, or the store lost it")


class SessionSource(OneSession[Connection]):
    """The session of one client, with its advisory lock."""

    product = "postgres"

    def __init__(
        self,
        options: PostgresOptions,
        parameters: Mapping[str, Any],
        wire: Wire,
        runtime: Runtime,
        statements: Statements,
    ) -> None:
        super().__init__(runtime, options.label, options.answer_timeout)
        self._options = options
        self._parameters = dict(parameters)
        self._wire = wire
        self._sql = statements

    async def _open(self, until: float) -> Connection:
        label, timeout = self._options.label, self._options.answer_timeout
        connection = await open_connection(
            self._wire, self._parameters, self._runtime, label, timeout, until=until, is_over=lambda: self.is_closed
        )
        try:
            await self._name(connection, until)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _comes(self, connection: Connection, seconds: float) -> bool:
        return await self._wire.watch(connection, seconds)

    def _interrupt(self, connection: Connection) -> None:
        self._wire.interrupt(connection)

    async def _name(self, connection: Connection, until: float) -> None:
        """Take the advisory lock of the session. Nothing of the caller's is sent before."""
        label, number = self._options.label, b"%d" % (secrets.randbits(63) - 2**62)
        try:
            await connection.greet(self._sql.greet, own=True, until=until)
            if not connection.is_direct:
                raise BackendRejected(
                    f"{label}: a pooler is in between, and mode=session needs a session of its own; use the address of "
                    "the server itself, or leave mode=session out",
                    backend=label,
                )
            answer = await connection.execute(self._sql.begin, (number, number), until)
        except OutcomeUnknown as unanswered:
            raise BackendUnavailable(str(unanswered), backend=label) from None
        if answer.status not in GOOD or answer.get_value(0, 0) != b"t":
            raise BackendUnavailable(f"{label}: the session could not take its advisory lock; try again", backend=label)


class SessionBackend(BaseBackend):
    """Grants that end with the session."""

    capabilities = frozenset(
        {Capability.EXCLUSIVE, Capability.SHARED, Capability.FENCING, Capability.INSPECT, Capability.SESSION}
    )
    in_session = True
    gone = ENDED

    def __init__(
        self,
        options: PostgresOptions,
        statements: Statements,
        executor: Executor,
        runtime: Runtime,
        source: SessionSource,
    ) -> None:
        super().__init__(options, statements, executor, runtime)
        self._source = source

    def on_alert(self, alert: Callable[[], None]) -> None:
        self._source.on_end(alert)

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        values = sql.claim_values(claim, self._options.fence_floor, in_session=True)
        sent = self._runtime.now()
        rows = await self._execute(self._sql.acquire, values, until)
        grant = self._granted(rows, claim)
        if grant is None:
            return self._refusal(sql.Answer(rows, sent), claim)
        self._source.hold(claim)
        return Grant(claim, grant.fence, grant.ttl)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        return self._source.renewed(await super().renew(grants, until))

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        freed = await super().release(grant, until)
        self._source.drop(grant.claim)
        return freed

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await super().withdraw(claim, until, doubt=doubt)
        self._source.drop(claim)

    async def close(self) -> None:
        """The session ends, and its grants with it: their holders have an event of that already."""
        await self._source.close()
