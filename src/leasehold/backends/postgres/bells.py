"""Hearing that a place in the queue has become a grant: by LISTEN, or by asking again and again where that is no use.

One connection listens for all who wait in this client, only while somebody waits and for a moment after. Its channel
has a random name, which stands in the rows of those who wait; whoever lets one of them in tells its owner, fence and
time there. Behind a pooler that changes servers nothing would be heard, and a LISTEN would be left behind on a server
that others use: then one request for all who wait asks the tables instead. Nothing depends on a message: a waiter
asks by itself within a second. A listener that failed is tried again after a few seconds. One that heard nothing is
tried again much later, because each such try may leave a LISTEN behind.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import psycopg

from leasehold.backends.postgres import trouble
from leasehold.backends.postgres.background import start
from leasehold.backends.postgres.line import GOOD
from leasehold.backends.postgres.statements import array, key_bytes
from leasehold.errors import BackendError, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.backends.postgres.line import Line, Wire
    from leasehold.backends.postgres.pool import Asking
    from leasehold.backends.postgres.statements import Statements
    from leasehold.spi import Runtime, Signal, Task
    from leasehold.values import Claim

__all__ = ["Bells", "Handed", "Standing"]

LINGER = 2.0  # how long an idle listener stays, so that a loop of short waits does not start it each time
GOODBYE = 1.0  # how long the end of the listener is waited for
PROOF = 1.0  # how long the first message may take
LISTEN_AGAIN = 3.0  # after a listener has failed
PROVE_AGAIN = 60.0  # after nothing was heard
POLL, LONGEST_POLL = 0.05, 0.5

logger = logging.getLogger("leasehold.postgres")


@dataclass(frozen=True, slots=True)
class Handed:
    """News that a claim was let in; `moment` is the database's time then."""

    fence: int
    moment: float
    abandoned: bool


class Standing:
    """One who waits, known weakly here: whoever waits holds it."""

    __slots__ = ("__weakref__", "ahead", "claim", "handed", "moment", "sent", "signal")

    def __init__(self, claim: Claim, signal: Signal) -> None:
        self.claim = claim
        self.signal = signal
        self.ahead = 0
        self.sent = 0.0  # the last request was sent then, on our clock
        self.moment: float | None = None  # and answered then, on the database's
        self.handed: Handed | None = None


class Bells:
    """How one client learns that its turn has come."""

    def __init__(
        self,
        runtime: Runtime,
        wire: Wire,
        asking: Asking,
        statements: Statements,
        connect: Callable[[], Awaitable[Line | None]],
    ) -> None:
        self._runtime = runtime
        self._wire = wire
        self._asking = asking
        self._statements = statements
        self._connect = connect  # a line to listen on; None where listening is of no use
        self._standing: WeakValueDictionary[str, Standing] = WeakValueDictionary()
        self._guard = runtime.guard()
        self._line: Line | None = None
        self._deaf_until = -math.inf  # until then it is of no use to listen
        self._is_known_deaf = False  # and that was said
        self._serves = False
        self._task: Task | None = None
        self._closed = False
        self.channel: bytes | None = None  # where we are told; None while we are not

    # --- what the verbs call

    def expect(self, claim: Claim) -> Standing:
        """Be ready for news of this claim."""
        standing = self._standing.get(claim.owner)
        if standing is None:
            standing = self._standing[claim.owner] = Standing(claim, self._runtime.signal())
        return standing

    def ensure(self) -> bytes | None:
        """See to it that somebody listens or asks. Whoever waits is woken when there is a channel to be told of."""
        if not self._serves:
            with self._guard:
                begin, self._serves = not self._closed and not self._is_served(), True
            if begin:
                self._task = start(self._runtime, self._serve, "leasehold postgres listener")
        return self.channel

    def _is_served(self) -> bool:
        return self._serves  # looked at again: another thread may have been quicker

    async def close(self) -> None:
        """Stop listening and asking."""
        self._closed = True
        line, self.channel = self._line, None
        if line is not None:
            self._wire.interrupt(line)
        if self._task is not None:
            await self._task.join(self._runtime.now() + GOODBYE)

    # --- for as long as somebody waits

    async def _serve(self) -> None:
        try:
            await self._listen_if_possible()
            while not self._closed and self._standing:
                await self._poll()
                await self._listen_if_possible()
        finally:
            self.channel, self._serves = None, False
            self._wake_all()  # each asks for itself now

    async def _listen_if_possible(self) -> None:
        if self._is_deaf():
            return
        try:
            await self._listen()
        except (psycopg.Error, BackendError, ClientClosed) as error:
            self._deaf_until = self._runtime.now() + LISTEN_AGAIN
            if not self._closed:
                self._say(logging.INFO, f"waiters cannot be told of their turn for now, and ask again: {error}")
        finally:
            self.channel = None

    def _is_deaf(self) -> bool:
        return self._runtime.now() < self._deaf_until

    def _say(self, level: int, sentence: str) -> None:
        """Say it once, until something is heard."""
        logger.log(logging.DEBUG if self._is_known_deaf else level, sentence)
        self._is_known_deaf = True

    async def _listen(self) -> None:
        """Hear messages until nobody waits any more; returns early where nothing can be heard."""
        line = await self._connect()
        if line is None:
            self._deaf_until = math.inf
            return
        self._line = line
        channel = f"leasehold_{os.urandom(16).hex()}".encode()
        try:
            if self._closed:  # while we connected, so nobody interrupts this line
                return
            answer = await line.run_script(b"LISTEN " + channel)
            if answer.status not in GOOD:
                raise trouble.translated(answer, self._asking.label)
            if not await self._is_proven(line, channel):
                self._deaf_until = self._runtime.now() + PROVE_AGAIN
                self._say(logging.WARNING, "messages of PostgreSQL do not arrive here: waiters ask again and again")
                return
            self.channel, self._is_known_deaf = channel, False
            self._wake_all()  # to be told of it, each has to say so
            while await self._wire.readable(line, LINGER) or self._standing:
                self._hear(line)
        finally:
            self._line = None
            line.close()

    async def _is_proven(self, line: Line, channel: bytes) -> bool:
        """Send ourselves a message by another connection. If that does not come, nothing would."""
        await self._asking.ask(self._statements.ring, (channel,))
        deadline = self._runtime.now() + PROOF
        while (left := deadline - self._runtime.now()) > 0:
            if await self._wire.readable(line, left) and self._hear(line):
                return True
        return False

    def _hear(self, line: Line) -> int:
        heard = 0
        line.pgconn.consume_input()
        while (message := line.pgconn.notifies()) is not None:
            heard += 1
            self._deliver(message.extra.decode(errors="replace").split())
        return heard

    def _deliver(self, words: list[str]) -> None:
        if len(words) != 4:
            return  # the proof, or nothing of ours
        standing = self._standing.get(words[0])
        if standing is not None:
            standing.handed = Handed(int(words[1]), float(words[2]), words[3] == "1")
            standing.signal.set()

    def _wake_all(self) -> None:
        for standing in list(self._standing.values()):
            standing.signal.set()

    async def _poll(self) -> None:
        """Ask for all who wait until one may listen again, the more often the nearer the first is to its turn."""
        while not self._closed and self._is_deaf() and (waiting := list(self._standing.values())):
            await self._ask_for(waiting)
            first = min(standing.ahead for standing in waiting)
            await self._runtime.sleep(min(POLL * (1 + first), LONGEST_POLL))

    async def _ask_for(self, waiting: list[Standing]) -> None:
        keys = array((key_bytes(standing.claim.key) for standing in waiting), binary=True)
        owners = array(standing.claim.owner.encode() for standing in waiting)
        try:
            answer = await self._asking.ask(self._statements.handed, (keys, owners))
        except (BackendError, ClientClosed) as error:
            logger.debug("could not ask whose turn it is: %s", error)
            return
        for place in range(answer.ntuples):
            self._deliver([(answer.get_value(place, column) or b"").decode() for column in range(4)])
