"""Where the pages get their facts: one reader of the store for all viewers, and every question bounded in time.

Each question is asked by one at a time and its answer shared for a moment, however many look. A question that takes
longer than `PATIENCE` is a fact to be shown; it goes on meanwhile in a thread, of which there are few.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread

from leasehold.errors import BackendUnavailable, ConfigurationError, LeaseholdError
from leasehold.fleet import FleetReader, FleetState
from leasehold.web.history import History

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from leasehold._blocking import Client
    from leasehold.values import Capability, LockState

__all__ = ["INTERVAL", "PATIENCE", "Source"]

INTERVAL = 2.0  # seconds between two looks of a page that is open
FRESH = 1.5  # an answer is good for so long; shorter than the interval, so that every look sees another one
PATIENCE = 5.0
QUESTIONS = 32  # that wait for the store at the same time
ANSWERS = 2_000

T = TypeVar("T")


class Source:
    """The facts of one store."""

    def __init__(self, client: Client, database: str | None) -> None:
        self.client: Client = client
        self.database: str | None = database
        self.history: History = History()
        self._reader = FleetReader(client, max_age=FRESH, patience=PATIENCE, on_read=self.history.note_fleet)
        self._good: FleetState | None = None
        self._answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._turns: dict[Hashable, anyio.Lock] = {}
        self._limiter: anyio.CapacityLimiter | None = None
        self._free = threading.Semaphore(QUESTIONS)

    def has(self, capability: Capability) -> bool:
        """Whether the store can do this."""
        return capability in self.client.capabilities

    async def fleet(self) -> FleetState:
        """All locks. While the store does not answer: the last that was known, with the error."""
        done = self._reader.begin()
        if done is not None:
            left = self._reader.began + PATIENCE - time.monotonic()
            with anyio.move_on_after(left):
                while not done.is_set():  # noqa: ASYNC110 - the event belongs to a thread
                    await anyio.sleep(0.01)
        state = self._reader.latest if done is None or done.is_set() else self._reader.silence()
        if state is None or state.error is not None:
            error = "the store has not answered yet" if state is None else state.error
            good = self._good or FleetState(read_at=time.monotonic())
            return FleetState(good.locks, error, good.read_at, good.took, good.stalled)
        self._good = state
        return state

    async def lock(self, name: str) -> LockState | None:
        """One lock, asked for by its name."""

        def inspect() -> LockState | None:
            state = self.client.inspect(name)
            self.history.note_lock(name, state)
            return state

        return await self.shared(("lock", name), inspect)

    async def shared(
        self, key: Hashable, question: Callable[[], T], max_age: float = FRESH, patience: float = PATIENCE
    ) -> T:
        """The answer to a question that all viewers share; asked again when it is older than `max_age`."""
        known = self._known(key, max_age)
        if known is None:
            async with self._turns.setdefault(key, anyio.Lock()):
                known = self._known(key, max_age)
                if known is None:
                    known = (time.monotonic(), await self._caught(question, patience))
                    self._answers[key] = known
                    self._answers.move_to_end(key)
            self._turns.pop(key, None)
            while len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
        answer = known[1]
        if isinstance(answer, LeaseholdError):
            raise answer
        return cast("T", answer)

    def _known(self, key: Hashable, max_age: float) -> tuple[float, Any] | None:
        known = self._answers.get(key)
        return known if known is not None and time.monotonic() - known[0] < max_age else None

    async def _caught(self, question: Callable[[], T], patience: float) -> T | LeaseholdError:
        try:
            return await self.ask(question, patience)
        except LeaseholdError as error:  # shared as well: others need not wait for the same
            return error

    async def ask(self, question: Callable[[], T], patience: float = PATIENCE) -> T:
        """Ask in a thread; `BackendUnavailable` when it takes too long."""
        if not self._free.acquire(blocking=False):
            raise BackendUnavailable(f"the store is slow: {QUESTIONS} questions wait for it already")
        begun = False

        def work() -> T:
            nonlocal begun
            begun = True
            try:
                return question()
            finally:
                self._free.release()  # also when no request waits for the answer any more

        try:
            with anyio.move_on_after(patience):
                return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads())
        finally:
            if not begun:
                self._free.release()
        raise BackendUnavailable(f"the store did not answer within {patience:g} s")

    def _threads(self) -> anyio.CapacityLimiter:
        """Threads of our own: a store that hangs must not use up those of the application around us."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(QUESTIONS)
        return self._limiter

    def forget_answers(self) -> None:
        """After a write: the next page shows it."""
        self._answers.clear()
        self._reader.outdate()

    # --- the database of the queues

    async def with_database(self, question: Callable[[Any], T]) -> T:
        """Ask the database of the queues, in a connection of its own."""
        from leasehold.sql.database_url import open_database  # noqa: PLC0415 - only for users of queues

        url = self.database
        if url is None:
            raise ConfigurationError("this dashboard has no database with queues")

        def ask() -> T:
            connection = open_database(url)
            try:
                answer = question(connection)
                connection.commit()
            except LeaseholdError:
                raise
            except Exception as error:
                raise BackendUnavailable(f"the database failed with {type(error).__name__}") from error
            else:
                return answer
            finally:
                connection.close()

        return await self.ask(ask)
