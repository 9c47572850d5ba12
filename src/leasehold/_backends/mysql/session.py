"""`?mode=session`: grants that end with the session of their holder, so that a crash frees them at once.

All requests of a client go over one connection. Its session takes one user lock (`GET_LOCK`) under a random name, which
is stored in the rows of its grants: if that lock is free, the session has ended, and its grants with it. The lock says
*that* a holder lives, not *what* it holds. A user lock for each name could be had twice by two threads of one session,
is shared by all databases of the server, has at most 64 characters that ignore case, and could not be broken.

Grants run out with their ttl as well, so a holder that is cut off is succeeded even if the server does not notice.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING

from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.base import BaseBackend
from leasehold._backends.mysql.connection import Connection
from leasehold._backends.mysql.packets import binary
from leasehold._backends.mysql.pool import Dialer
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit.one_session import OneSession
from leasehold.values import Capability, Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.mysql.options import MysqlOptions
    from leasehold._backends.mysql.pool import Executor
    from leasehold.kit.waits import Waits
    from leasehold.spi import Runtime
    from leasehold.values import Claim, Refusal

__all__ = ["SessionBackend", "SessionSource"]

WEEK = 7 * 86_400  # how long the server keeps an idle session: a lease of hours is renewed rarely
ENDED = Loss(LossReason.SESSION_ENDED, "the session that held it has ended, or the store lost it")


class SessionSource(OneSession[Connection]):
    """The session of one client, with its user lock."""

    product = "mysql"

    def __init__(self, options: MysqlOptions, waits: Waits, runtime: Runtime) -> None:
        super().__init__(runtime, options.label, options.answer_timeout)
        self._dialer = Dialer(options, waits, runtime, idle=WEEK)

    async def close(self) -> None:
        """See `OneSession`."""
        self._dialer.close()
        await super().close()

    async def _open(self, until: float) -> Connection:
        connection = await self._dialer.connected(until)
        try:
            await self._name(connection, until)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _name(self, connection: Connection, until: float) -> None:
        """Take the user lock of the session. Nothing of the caller's is sent before."""
        label, name = self._label, binary(f"leasehold:{secrets.token_hex(16)}".encode())
        await self._dialer.prepare(connection, until)
        if not connection.is_direct:
            raise BackendRejected(
                f"{label}: a proxy is in between, and mode=session needs a session of its own; use the address of the "
                "server itself, or leave mode=session out",
                backend=label,
            )
        try:
            answer = await connection.query(b"SET %b = %b; SELECT GET_LOCK(%b, 0)" % (sql.SESSION, name, name), until)
        except OutcomeUnknown as unanswered:
            raise BackendUnavailable(str(unanswered), backend=label) from None
        if answer.error is not None or answer.results[-1].rows != [(b"1",)]:
            raise BackendUnavailable(f"{label}: the session could not take its user lock; try again", backend=label)

    async def _comes(self, connection: Connection, seconds: float) -> bool:
        return await connection.watch(seconds)

    def _interrupt(self, connection: Connection) -> None:
        connection.interrupt()


class SessionBackend(BaseBackend):
    """Grants that end with the session."""

    capabilities = frozenset(
        {Capability.EXCLUSIVE, Capability.SHARED, Capability.FENCING, Capability.INSPECT, Capability.SESSION}
    )
    session = sql.SESSION
    gone = ENDED

    def __init__(self, options: MysqlOptions, executor: Executor, runtime: Runtime, source: SessionSource) -> None:
        super().__init__(options, executor, runtime)
        self._source = source

    def on_alert(self, alert: Callable[[], None]) -> None:
        self._source.on_end(alert)

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        answer = await super().try_acquire(claim, until)
        if isinstance(answer, Grant):
            self._source.hold(claim)
            return Grant(claim, answer.fence, answer.ttl)
        return answer

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
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
