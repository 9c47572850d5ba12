"""How a waiter is woken when its claim was granted: by LISTEN and NOTIFY, or by polling where those are of no use.

One connection listens for all waiters of a client, while there are any and for a moment after. Its channel has a random
name, which is stored in the rows of the waiters; the transaction that grants to one of them sends its owner, fence and
time there. Behind a pooler that changes servers no notification would arrive, and a LISTEN would be left behind on a
server that others use; there one query for all waiters polls the tables instead.

Nothing depends on a notification: a waiter checks its turn by itself within a second. A listener that failed is started
again after a few seconds. One that received nothing is tried again much later, because each such try may leave a LISTEN
behind.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from leasehold._backends.postgres.statements import array, key_bytes
from leasehold.errors import BackendError, ClientClosed
from leasehold.kit.worker import spawn_late

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._backends.postgres.driver import AnyConnection
    from leasehold._backends.postgres.executor import Executor
    from leasehold._backends.postgres.statements import Statements
    from leasehold.spi import Runtime, Signal, Task
    from leasehold.values import Claim

__all__ = ["Handover", "Listener", "Waiter"]

LINGER = 2.0  # how long an idle listener stays, so that a loop of short waits does not start it each time
CLOSE_PATIENCE = 1.0  # how long close() waits for the listener's end
PROOF = 1.0  # how long the first notification may take
LISTEN_AGAIN = 3.0  # after a listener has failed
PROVE_AGAIN = 60.0  # after the first notification did not arrive
POLL, LONGEST_POLL = 0.05, 0.5

logger = logging.getLogger("leasehold.postgres")


@dataclass(frozen=True, slots=True)
class Handover:
    """The content of a notification: a waiter was granted its claim; `moment` is the database's time then.

    `spare`: so many fences behind its own are free. It is 0 where the holder before had vanished.
    """

    fence: int
    moment: float
    abandoned: bool
    spare: int


class Waiter:
    """A claim in a queue. The listener refers to it weakly: it ends with the call that waits."""

    __slots__ = ("__weakref__", "ahead", "claim", "handover", "moment", "sent", "signal")

    def __init__(self, claim: Claim, signal: Signal) -> None:
        self.claim = claim
        self.signal = signal
        self.ahead = 0
        self.sent = 0.0  # when the last request was sent, on our clock
        self.moment: float | None = None  # when it was answered, on the database's
        self.handover: Handover | None = None


class Listener:
    """Delivers handovers to the waiters of one client."""

    def __init__(
        self,
        runtime: Runtime,
        executor: Executor,
        statements: Statements,
        connect: Callable[[], Awaitable[AnyConnection | None]],
    ) -> None:
        self._runtime = runtime
        self._executor = executor
        self._statements = statements
        self._connect = connect  # a connection to listen on; None where listening is of no use
        self._waiters: WeakValueDictionary[str, Waiter] = WeakValueDictionary()
        self._guard = runtime.guard()
        self._connection: AnyConnection | None = None
        self._poll_until = -math.inf  # until then listening is of no use
        self._has_warned = False  # since the last time that it listened
        self._has_worker = False
        self._worker: Task | None = None
        self._closed = False
        self.channel: bytes | None = None  # None while it does not listen

    # --- for the backend

    def expect(self, claim: Claim) -> Waiter:
        """The waiter of this claim, to which handovers are delivered from now on."""
        waiter = self._waiters.get(claim.owner)
        if waiter is None:
            waiter = self._waiters[claim.owner] = Waiter(claim, self._runtime.signal())
        return waiter

    def ensure(self) -> bytes | None:
        """Start listening or polling; returns the channel. All waiters are woken once there is one to be stored."""
        if not self._has_worker:
            with self._guard:
                begin, self._has_worker = not self._closed and not self._is_started(), True
            if begin:
                self._worker = spawn_late(self._runtime, self._work, "leasehold postgres listener")
        return self.channel

    def _is_started(self) -> bool:
        return self._has_worker  # read again under the guard: another thread may have been faster

    async def close(self) -> None:
        """Stop listening and polling."""
        self._closed = True
        connection, self.channel = self._connection, None
        if connection is not None:
            connection.interrupt()
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + CLOSE_PATIENCE)

    # --- the worker, for as long as there are waiters

    async def _work(self) -> None:
        try:
            await self._listen_if_possible()
            while not self._closed and self._waiters:
                await self._poll()
                await self._listen_if_possible()
        finally:
            self.channel, self._has_worker = None, False
            self._wake_all()  # each checks its own turn now

    async def _listen_if_possible(self) -> None:
        if self._must_poll():
            return
        try:
            await self._listen()
        except (BackendError, ClientClosed) as error:
            self._poll_until = self._runtime.now() + LISTEN_AGAIN
            if not self._closed:
                self._warn(logging.INFO, f"waiters are not notified of their turn for now, and poll: {error}")
        finally:
            self.channel = None

    def _must_poll(self) -> bool:
        return self._runtime.now() < self._poll_until

    def _warn(self, level: int, sentence: str) -> None:
        """Log it once at this level until the listener works again."""
        logger.log(logging.DEBUG if self._has_warned else level, sentence)
        self._has_warned = True

    async def _listen(self) -> None:
        """Deliver notifications until there are no waiters any more; returns early where none can arrive."""
        connection = await self._connect()
        if connection is None:
            self._poll_until = math.inf
            return
        self._connection = connection
        channel = f"leasehold_{os.urandom(16).hex()}".encode()
        try:
            if self._closed:  # while it connected, so that close() could not interrupt this connection
                return
            await connection.listen(channel)
            if not await self._is_proven(connection, channel):
                self._poll_until = self._runtime.now() + PROVE_AGAIN
                self._warn(
                    logging.WARNING,
                    "notifications of PostgreSQL do not arrive here, so waiters poll; if there is a pooler in between, "
                    "give the server's own address as ?listen_url=",
                )
                return
            self.channel, self._has_warned = channel, False
            self._wake_all()  # the channel has to be stored in the row of each
            while await connection.notified(LINGER) or self._waiters:
                self._receive(connection)
        finally:
            self._connection = None
            connection.close()

    async def _is_proven(self, connection: AnyConnection, channel: bytes) -> bool:
        """Send a notification by another connection: if that does not arrive, none would."""
        await self._executor.execute(self._statements.notify, (channel,))
        deadline = self._runtime.now() + PROOF
        while (left := deadline - self._runtime.now()) > 0:
            if await connection.notified(left) and self._receive(connection):
                return True
        return False

    def _receive(self, connection: AnyConnection) -> int:
        """Deliver what has arrived; the number of notifications."""
        arrived = connection.notifications()
        for content in arrived:
            self._deliver(content.split())
        return len(arrived)

    def _deliver(self, words: list[str]) -> None:
        if len(words) != 4:
            return  # the proof, or not ours
        waiter = self._waiters.get(words[0])
        if waiter is not None:
            spare = int(words[3][1:]) if words[3].startswith("r") else 0  # an older client's functions tell of none
            waiter.handover = Handover(int(words[1]), float(words[2]), words[3] == "1", spare)
            waiter.signal.set()

    def _wake_all(self) -> None:
        for waiter in list(self._waiters.values()):
            waiter.signal.set()

    async def _poll(self) -> None:
        """Query the tables for all waiters until listening may be tried again; the nearer a turn is, the more often."""
        while not self._closed and self._must_poll() and (waiters := list(self._waiters.values())):
            await self._query_all(waiters)
            first = min(waiter.ahead for waiter in waiters)
            await self._runtime.sleep(min(POLL * (1 + first), LONGEST_POLL))

    async def _query_all(self, waiters: list[Waiter]) -> None:
        keys = array((key_bytes(waiter.claim.key) for waiter in waiters), binary=True)
        owners = array(waiter.claim.owner.encode() for waiter in waiters)
        try:
            rows = await self._executor.execute(self._statements.handovers, (keys, owners))
        except (BackendError, ClientClosed) as error:
            logger.debug("a query for handovers failed: %s", error)
            return
        for row in range(rows.ntuples):
            self._deliver([(rows.get_value(row, column) or b"").decode() for column in range(4)])
