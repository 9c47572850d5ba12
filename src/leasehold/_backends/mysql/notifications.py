"""How a waiter is woken: its client sleeps in the server, and the client that makes room ends that sleep.

One connection listens for all waiters of a client, while there are any and for a moment after: it runs
`SELECT /* leasehold listener TOKEN */ GET_LOCK('leasehold listeners', 2)` again and again. The first listener of a
server gets that user lock, and runs `SLEEP(2)` instead; all others wait for the lock in vain, which is what they want.
They do not all sleep, because in MariaDB all that sleep share one mutex: `KILL QUERY` of one, at the moment at which
another one falls asleep or wakes, keeps all of them and itself from moving for up to two seconds.

Number and token of a listener are stored in the rows of its waiters. A change that makes room looks up that number, and
if the statement with that token runs there, ends it with `KILL QUERY`, for which sessions of the same user need no
right. The client then has the first of its waiters at each name check its turn.

Nothing depends on it: a waiter checks its turn by itself within a second. Where listening is of no use (a proxy in
between, which has numbers of its own, or a user that may not end the statements of another), waiters check twice a
second.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from leasehold._backends.mysql import errors
from leasehold.errors import BackendError, BackendRejected, ClientClosed
from leasehold.kit.worker import Worker, spawn_late

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from leasehold._backends.mysql.connection import Connection
    from leasehold._backends.mysql.pool import Executor
    from leasehold.spi import Runtime, Signal, Task
    from leasehold.values import Claim

__all__ = ["Listener", "Waiter"]

SLEEP, WAIT_FOR_LOCK = b"SLEEP(2)", b"GET_LOCK('leasehold listeners', 2)"  # the two statements of a listener
PATIENCE = 10.0  # how long it may take
CLOSE_PATIENCE = 1.0  # how long close() waits for the listener's end
LISTEN_AGAIN = 3.0  # after a listener has failed
TRY_AGAIN = 60.0  # where there seems to be a proxy
WAKE_PATIENCE = 1.0  # how long one may take: others are to be woken after it
WAKE_PAUSES = (0.0, 0.02, 0.1)  # a listener may be between two statements

logger = logging.getLogger("leasehold.mysql")


class Waiter:
    """A claim in a queue. The listener refers to it weakly: it ends with the call that waits."""

    __slots__ = ("__weakref__", "claim", "listener", "number", "signal")

    def __init__(self, claim: Claim, signal: Signal) -> None:
        self.claim = claim
        self.signal = signal
        self.number = 0  # of its row
        self.listener: bytes | None = None  # the name in its row


class Listener:
    """Wakes the waiters of one client, and the listeners of others."""

    def __init__(self, runtime: Runtime, executor: Executor, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._runtime = runtime
        self._executor = executor
        self._connect = connect
        self._waiters: WeakValueDictionary[str, Waiter] = WeakValueDictionary()
        self._guard = runtime.guard()
        self._connection: Connection | None = None
        self._has_user_lock = False  # whether this listener holds the lock that the others wait for
        self._rest_until = -math.inf  # until then listening is of no use
        self._has_worker = False
        self._worker: Task | None = None
        self._closed = False
        self._to_wake: deque[bytes] = deque()
        self._wake_up_worker = Worker(runtime, self._wake_listeners, "leasehold mysql wake-ups")
        self.name: bytes | None = None  # None while it does not listen

    # --- for the backend

    def expect(self, claim: Claim) -> Waiter:
        """The waiter of this claim, which is woken from now on."""
        waiter = self._waiters.get(claim.owner)
        if waiter is None:
            waiter = self._waiters[claim.owner] = Waiter(claim, self._runtime.signal())
        return waiter

    def forget(self, waiter: Waiter) -> None:
        """It waits no more; a wake-up for the first in line is not for it, however long its call still runs."""
        self._waiters.pop(waiter.claim.owner, None)

    def ensure(self) -> bytes | None:
        """Start listening; returns the name to be stored. All waiters are woken once there is one."""
        if not self._has_worker and self._runtime.now() >= self._rest_until:
            with self._guard:
                begin, self._has_worker = not self._closed and not self._is_started(), True
            if begin:
                self._worker = spawn_late(self._runtime, self._work, "leasehold mysql listener")
        return self.name

    def _is_started(self) -> bool:
        return self._has_worker  # read again under the guard: another thread may have been faster

    def wake(self, names: Iterable[bytes]) -> None:
        """Wake these listeners, ours at once and others soon."""
        others = {name for name in names if name != self.name}
        if len(others) < len(set(names)):
            self._wake_first()
        if others:
            self._to_wake.extend(others)
            self._wake_up_worker.start()

    async def close(self) -> None:
        """Stop listening. Listeners that a release has still to wake are woken first: its process may end now."""
        self._closed = True
        connection, self.name = self._connection, None
        if connection is not None:
            connection.interrupt()
        await self._wake_up_worker.close()
        await self._wake_listeners()  # what the worker has not come to
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + CLOSE_PATIENCE)

    # --- the worker, for as long as there are waiters

    async def _work(self) -> None:
        try:
            await self._listen()
        except (BackendError, ClientClosed) as error:
            self._rest_until = self._runtime.now() + LISTEN_AGAIN
            if not self._closed:
                logger.info("waiters are not woken for now, and check their turn twice a second: %s", error)
        finally:
            self.name, self._has_worker = None, False
            self._wake_all()  # each checks its own turn now

    async def _listen(self) -> None:
        connection = await self._connect()
        self._connection, self._has_user_lock = connection, False
        try:
            if self._closed:  # while it connected, so that close() could not interrupt this connection
                return
            if not connection.is_direct:
                self._rest_until = self._runtime.now() + TRY_AGAIN
                logger.info("a proxy is between us and the server, so waiters check their turn twice a second")
                return
            token = os.urandom(8).hex().encode()
            self.name = b"%d:%b" % (connection.number, token)
            self._wake_all()  # the name has to be stored in the row of each
            while await self._sleep(connection, token):
                self._wake_first()
        finally:
            self._connection = None
            connection.close()

    async def _sleep(self, connection: Connection, token: bytes) -> bool:
        """Sleep in the server until another client ends it; False once there are no waiters any more."""
        while not self._closed:
            wait = SLEEP if self._has_user_lock else WAIT_FOR_LOCK
            statement = b"SELECT /* leasehold listener %b */ %b" % (token, wait)
            answer = await connection.query(statement, patience=PATIENCE)
            if answer.error is not None:
                if answer.error.code in errors.INTERRUPTED:
                    return True
                if self._has_user_lock:
                    raise errors.translated(answer.error, self._executor.label)
                self._has_user_lock = True  # a server that knows no such lock: then all sleep
            elif answer.results[0].rows != [(b"0",)]:  # how MySQL tells of an interruption; or the lock is ours now
                if self._has_user_lock or answer.results[0].rows != [(b"1",)]:
                    return True
                self._has_user_lock = True
            if not self._waiters:
                return False
        return False

    def _wake_all(self) -> None:
        for waiter in list(self._waiters.values()):
            waiter.signal.set()

    def _wake_first(self) -> None:
        """Of each name, the first of our waiters; when it gets its turn, it calls the next one.

        One that has no number yet, because its place was not confirmed, may be the one that is meant; so it is woken
        besides, and not instead.
        """
        first: dict[str, Waiter] = {}
        for waiter in list(self._waiters.values()):
            if not waiter.number:
                waiter.signal.set()
                continue
            other = first.setdefault(waiter.claim.key, waiter)
            if waiter.number < other.number:
                first[waiter.claim.key] = waiter
        for waiter in first.values():
            waiter.signal.set()

    # --- waking the listeners of other clients

    async def _wake_listeners(self) -> None:
        while self._to_wake:
            with suppress(IndexError):
                await self._wake_listener(self._to_wake.popleft())

    async def _wake_listener(self, name: bytes) -> None:
        number, _, token = name.partition(b":")
        if not number.isdigit() or not token.isalnum():
            return
        text = (
            b"SET @leasehold_listener = (SELECT ID FROM information_schema.PROCESSLIST WHERE ID = %b "
            b"AND INFO LIKE 'SELECT /* leasehold listener %b */%%'); KILL QUERY @leasehold_listener"
        ) % (number, token)
        for pause in WAKE_PAUSES:
            await self._runtime.sleep(pause)
            try:
                await self._executor.execute(text, self._runtime.now() + WAKE_PATIENCE)
            except BackendRejected:
                continue  # it sleeps no more, or not yet; or it is another user's
            except (BackendError, ClientClosed) as error:
                logger.debug("a listener could not be woken: %s", error)
            return
