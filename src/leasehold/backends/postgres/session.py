"""`?mode=session`: grants that end with the session of their holder, so that a crash frees them at once.

All requests of a client go over one connection. Its session has an advisory lock under a random number, which stands
in the rows of its grants: whoever finds that lock free knows that the session has ended, and with it its grants. The
lock says *that* a holder lives, not *what* it holds. An advisory lock for each name would be had twice by two threads
of one session, could not be broken, found again or released by another session, and would hide who holds it.

Grants run out with their ttl as well, so a holder that is cut off is succeeded even if the server does not notice.

The connection is watched while nobody uses it: if the server ends it, every grant is renewed at once, and lost.
"""

from __future__ import annotations

import logging
import math
import secrets
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from psycopg import pq

from leasehold.backends.postgres import statements as sql
from leasehold.backends.postgres.background import start
from leasehold.backends.postgres.line import GOOD, Line, open_line
from leasehold.backends.postgres.pool import BUSY, GOODBYE, LINGER
from leasehold.backends.postgres.pool_places import Queue, Slot
from leasehold.backends.postgres.verbs import Verbs
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.values import Capability, Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from leasehold.backends.postgres.line import Wire
    from leasehold.backends.postgres.pool import Asking, Chore
    from leasehold.backends.postgres.settings import Settings
    from leasehold.backends.postgres.statements import Statements
    from leasehold.spi import Runtime, Task
    from leasehold.values import Claim, Refusal

__all__ = ["SessionBackend", "SessionSource"]

logger = logging.getLogger("leasehold.postgres")

LOOK_AGAIN = 0.02  # how soon the connection is looked at again after a call has used it
ACTIVE = pq.TransactionStatus.ACTIVE
ENDED = Loss(LossReason.SESSION_ENDED, "the session that it was held in has ended, or the store forgot it")


class SessionSource:
    """The one connection, used by one call after the other, and kept for as long as something is held.

    A call that is interrupted leaves its answer behind; the next one reads that first. Only a connection that failed
    is given up, for everything that is held in it goes with it.
    """

    def __init__(
        self, settings: Settings, parameters: Mapping[str, Any], wire: Wire, runtime: Runtime, statements: Statements
    ) -> None:
        self._settings = settings
        self._parameters = dict(parameters)
        self._wire = wire
        self._runtime = runtime
        self._sql = statements
        self._guard = runtime.guard()
        self._queue = Queue(runtime)
        self._wake = runtime.signal()
        self._user: ReferenceType[Slot] | None = None  # whose turn it is now
        self._line: Line | None = None
        self._used = 0.0
        self._held: dict[str, float] = {}  # until when an owner's grant may need the session
        self._housekeeper: Task | None = None
        self._keeps_house = False
        self._alarm: Callable[[], None] | None = None
        self.is_closed = False
        self.chore: Chore | None = None

    # --- what is held in it

    def on_end(self, alarm: Callable[[], None]) -> None:
        """Call this when the server has ended the session."""
        self._alarm = alarm

    def hold(self, claim: Claim) -> None:
        """A grant was confirmed: the session is needed for one ttl at the least."""
        self._held[claim.owner] = self._runtime.now() + claim.ttl

    def drop(self, claim: Claim) -> None:
        """It is not needed for this claim any more."""
        self._held.pop(claim.owner, None)

    # --- a `Source`

    async def take(self, until: float = math.inf, *, urgent: bool = False) -> Line:  # noqa: ARG002 - there is only one
        """See `Source`."""
        self._require_open()
        slot = self._only_user() if self._queue.is_empty() else None
        if slot is None:
            deadline = min(self._runtime.now() + BUSY * self._settings.answer_timeout, until)
            slot = await self._queue.wait_for(self._only_user, deadline, self._require_open)
        if slot is None:
            label = self._settings.label
            raise BackendUnavailable(f"the session at {label} was busy for too long", backend=label)
        try:
            line = self._line
            if line is None or not await self._recovers(line, until):
                line = await self._begin(until)
            view = line.view()  # known to its user only, so that one that gets lost on the way frees the session
            view.slot = slot
        except BaseException as error:
            self._leave(slot)
            if isinstance(error, BackendError):
                self._require_open()
            raise
        return view

    def give(self, line: Line) -> None:
        """See `Source`."""
        self._used = self._runtime.now()
        if self.is_closed:
            self._end()
        self._leave(line.slot)
        if not self._keeps_house:
            self._start_housekeeper()

    def discard(self, line: Line, *, dead: bool) -> None:
        """See `Source`."""
        if dead and line.is_broken():
            self._end()
        self.give(line)

    async def close(self) -> None:
        """See `Source`."""
        self.is_closed = True
        self._wake.set()
        self._queue.call_all()
        line, slot = self._line, self._only_user()
        if slot is not None:
            self._end()
            self._leave(slot)
        elif line is not None:  # whoever uses it now finds out, and closes it
            self._wire.interrupt(line)
        if self._housekeeper is not None:
            await self._housekeeper.join(self._runtime.now() + GOODBYE)

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._settings.label)

    # --- the session

    def _only_user(self) -> Slot | None:
        """Whose turn it is now, if it is ours. One that the same thread had before was left without a word."""
        slot = Slot(self._runtime.current())
        with self._guard:
            user = None if self._user is None else self._user()
            if user is None or user.user == slot.user:
                self._user = ref(slot)
                return slot
        return None

    def _leave(self, slot: Slot) -> None:
        with self._guard:
            if self._user is not None and self._user() is slot:
                self._user = None
        self._queue.call_one()

    async def _recovers(self, line: Line, until: float) -> bool:
        """Whether the session goes on. One that does not answer is given up when nothing can be held in it any more."""
        try:
            return await line.recovers(until)
        except BackendUnavailable:
            if self._needed() or self._runtime.now() >= until:
                raise
            return False

    def _needed(self) -> bool:
        now = self._runtime.now()
        for owner in [owner for owner, until in list(self._held.items()) if until <= now]:
            self._held.pop(owner, None)
        return bool(self._held)

    async def _begin(self, until: float) -> Line:
        self._end()
        self._require_open()
        label, timeout = self._settings.label, self._settings.answer_timeout
        line = await open_line(
            self._wire, self._parameters, self._runtime, label, timeout, until=until, is_over=lambda: self.is_closed
        )
        try:
            await self._name(line, until)
        except BaseException:
            line.close()
            raise
        self._line = line
        return line

    async def _name(self, line: Line, until: float) -> None:
        """Give the session its advisory lock. Nothing of the caller's is sent before it has one."""
        label, number = self._settings.label, b"%d" % (secrets.randbits(63) - 2**62)
        try:
            await line.greet(self._sql.greet, own=True, until=until)
            if not line.is_direct:
                raise BackendRejected(
                    f"{label}: a pooler is in between, and mode=session needs a session of its own; use the address of "
                    "the server itself, or leave mode=session out",
                    backend=label,
                )
            answer = await line.ask(self._sql.begin, (number, number), until)
        except OutcomeUnknown as unanswered:
            raise BackendUnavailable(str(unanswered), backend=label) from None
        if answer.status not in GOOD or answer.get_value(0, 0) != b"t":
            raise BackendUnavailable(f"{label}: the session could not be named", backend=label)

    def _end(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    # --- letting it go

    def _start_housekeeper(self) -> None:
        with self._guard:
            if self._keeps_house or self.is_closed:
                return
            self._keeps_house = True
        self._housekeeper = start(self._runtime, self._keep_house, "leasehold postgres session")

    async def _keep_house(self) -> None:
        try:
            while (line := self._line) is not None and not self.is_closed:
                await self._watch(line)
                await self._do_chore()
                self._end_if_idle()
        except BaseException:  # the event loop is shut down
            self._end()
            raise
        finally:
            self._keeps_house = False

    async def _watch(self, line: Line) -> None:
        """Wait for a while, or until the server says something that no call has asked for: it ends the session."""
        self._wake.clear()
        if not await self._wire.watch(line, LINGER / 2) or self.is_closed:
            return
        slot = self._only_user() if self._line is line else None
        if slot is None:  # the answer to a call that is under way, most likely
            await self._runtime.wait(self._wake, self._runtime.now() + LOOK_AGAIN)
            return
        try:
            ended = line.pgconn.transaction_status != ACTIVE and not line.is_usable()
            if ended:
                self._end()
        finally:
            self._leave(slot)
        if ended and self._alarm is not None:
            self._alarm()
        elif not ended:
            await self._runtime.wait(self._wake, self._runtime.now() + LOOK_AGAIN)

    async def _do_chore(self) -> None:
        """In the session as it is, and only while nobody else wants it."""
        line = self._line
        if self.chore is None or line is None or not self._queue.is_empty():
            return
        slot = self._only_user()
        if slot is None:
            return
        try:
            if self.chore.is_due() and await line.recovers():
                await self.chore.do(line)
        except Exception as error:  # noqa: BLE001 - if the connection has failed, the next one to use it finds out
            logger.debug("a chore was not done, and is left for later: %s", error)
        finally:
            self._leave(slot)

    def _end_if_idle(self) -> None:
        if self._needed() or self._runtime.now() < self._used + LINGER:
            return
        slot = self._only_user()
        if slot is not None:
            self._end()
            self._leave(slot)


class SessionBackend(Verbs):
    """Grants that end with the session."""

    capabilities = frozenset(
        {Capability.EXCLUSIVE, Capability.SHARED, Capability.FENCING, Capability.INSPECT, Capability.SESSION}
    )
    in_session = True
    gone = ENDED

    def __init__(
        self, settings: Settings, statements: Statements, asking: Asking, runtime: Runtime, source: SessionSource
    ) -> None:
        super().__init__(settings, statements, asking, runtime)
        self._source = source

    def on_alert(self, alert: Callable[[], None]) -> None:
        """See `Alerting`."""
        self._source.on_end(alert)

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        values = sql.claim_values(claim, self._settings.fence_floor, in_session=True)
        sent = self._runtime.now()
        answer = sql.Answer(await self._ask(self._sql.acquire, values, until), sent)
        grant = self.granted(answer, claim)
        if grant is None:
            return self.refusal(answer, claim)
        self._source.hold(claim)
        return Grant(claim, grant.fence, grant.ttl)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        answers = await super().renew(grants, until)
        for answer in answers:
            if isinstance(answer, Grant):
                self._source.hold(answer.claim)
        return answers

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        """See `Backend`."""
        freed = await super().release(grant, until)
        self._source.drop(grant.claim)
        return freed

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`."""
        await super().withdraw(claim, until, doubt=doubt)
        self._source.drop(claim)

    async def close(self) -> None:
        """See `Backend`. The session ends, and its grants with it: their holders have been told."""
        await self._source.close()
