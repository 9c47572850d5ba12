"""The SQLite store of a run: the shipped ledger, with its SQL, on a database in memory whose clock is the world's.

What the file system and the operating system do is left out: opening, the pipes that wake waiters, a second process
that is writing. A request travels as over a network, so that it can be lost, late or repeated like any other; and a
commit can fail, after which nothing may be left of its transaction.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leasehold._backends.sqlite import inspect, records
from leasehold._backends.sqlite import statements as sql
from leasehold._backends.sqlite.backend import SqliteBackend
from leasehold._backends.sqlite.connection import _CommitFailed
from leasehold._backends.sqlite.ledger import Ledger
from leasehold._backends.sqlite.maintenance import Cleaning
from leasehold._backends.sqlite.schema import _create
from leasehold.errors import OutcomeUnknown
from leasehold.kit.rules import RECHECKS_MISSED, place_lifetime
from leasehold.spi import Place
from verification.simulation.accounts import StoreModel
from verification.simulation.network import NetworkStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leasehold._backends.sqlite.rows import Notification
    from leasehold.spi import Signal, Store
    from leasehold.values import Claim, Grant, LockState, Loss, Reading, Record, Refusal
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.stage import StoredRecords
    from verification.simulation.world import World

__all__ = ["SimLedger", "SqliteStage"]

EPOCH = 1_600_000_000
DAY = 86_400.0
LABEL = "sqlite://simulated"


class SimHost:
    """The one host on which all processes run."""

    boot = "simulated"

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        """Seconds since the boot."""
        return self._world.now

    def wall(self) -> float:
        """Seconds since 1970."""
        return EPOCH + self._world.now


class SimNotifications:
    """The listeners of all processes: each waiter has a signal, by the number of its row."""

    def __init__(self) -> None:
        self._signals: dict[int, Signal] = {}

    def listen(self) -> str:
        """One listener for all."""
        return "simulated"

    def expect(self, number: int, signal: Signal) -> None:
        """Wake this waiter by its number."""
        self._signals[number] = signal

    def is_ours(self, _: str) -> bool:
        """All of them: a hand-over counts on the host's clock, and simulated processes have clocks of their own."""
        return True

    def notify(self, notifications: Iterable[Notification]) -> list[Notification]:
        """Wake them; none is found to be dead."""
        for each in notifications:
            if (signal := self._signals.get(each.number)) is not None:
                signal.set()
        return []


class _Connection(sqlite3.Connection):
    """A connection whose next commit can be made to fail."""

    fails = False

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if self.fails and (statement == "COMMIT" or not self.in_transaction) and statement != "BEGIN IMMEDIATE":
            self.fails = False
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, *values)


class SimLedger:
    """The store in one place: see `PlainStore`."""

    def __init__(self, world: World) -> None:
        host = self._host = SimHost(world)
        self.connection = sqlite3.connect(":memory:", isolation_level=None, factory=_Connection)
        _create(self.connection, host)
        self.cleaner = Cleaning(host, self._clean)
        notifications: Any = SimNotifications()
        self._ledger = Ledger(host, notifications, self.cleaner, LABEL, 0, now=host.now)

    def _clean(self) -> None:
        """At once: there is nobody else to wait for."""
        if not self.connection.in_transaction:
            self.cleaner.clean(self.connection)

    def _do(self, work: Callable[..., Any], *given: Any) -> Any:
        try:
            return work(self.connection, *given)
        except (sqlite3.Error, _CommitFailed) as error:
            raise OutcomeUnknown(f"the commit failed: {error}", backend=LABEL) from None

    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        return self._do(self._ledger.try_acquire, claim)  # type: ignore[no-any-return]

    def join(self, claim: Claim, signal: Signal) -> Grant | Place | Refusal:
        return self._do(self._ledger.join, claim, lambda: signal)  # type: ignore[no-any-return]

    def turn(self, place: Place) -> Grant | Place | Refusal:
        return self._do(self._ledger.turn, place)  # type: ignore[no-any-return]

    def renew(self, grants: Sequence[Grant]) -> Sequence[Grant | Loss]:
        return self._do(self._ledger.renew, grants)  # type: ignore[no-any-return]

    def release(self, grant: Grant) -> bool | Loss:
        return self._do(self._ledger.release, grant)  # type: ignore[no-any-return]

    def withdraw(self, claim: Claim, *, doubt: bool) -> None:
        self._do(self._ledger.withdraw, claim, doubt)

    def inspect(self, key: str) -> LockState | None:
        return self._do(inspect.inspect, self._host, key)  # type: ignore[no-any-return]

    def list(self, prefix: str) -> Sequence[LockState]:
        return self._do(inspect.list_states, self._host, prefix)  # type: ignore[no-any-return]

    def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return self._do(self._ledger.break_, key, fence, reason, now)  # type: ignore[no-any-return]

    def raise_fence(self, key: str, fence: int) -> int:
        return self._do(self._ledger.raise_fence, key, fence)  # type: ignore[no-any-return]

    def read(self, key: str, fence: int) -> Reading:
        return self._do(records.read_record, self._host, key, fence)  # type: ignore[no-any-return]

    def write(self, record: Record) -> bool:
        return self._do(records.write_record, self._host, record)  # type: ignore[no-any-return]


class LedgerModel(StoreModel):
    """A waiter is told to ask again early where the holder's end is near; its place lives for as long as ever."""

    def applied(self, link: Link, verb: str, subject: Any, answer: Any, sent_at: float) -> None:
        """See `Observer`."""
        if isinstance(answer, Place):
            answer = replace(answer, recheck=place_lifetime(answer.claim) / RECHECKS_MISSED)
        super().applied(link, verb, subject, answer, sent_at)


class SqliteStage:
    """One file for one run."""

    drift = 0.005
    delay = 0.0
    keeps_until = True
    keeps_records = True
    forgets = False
    capabilities = SqliteBackend.capabilities

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        self._world = world
        self._history = history
        self._schedule = schedule
        self.model = LedgerModel(world, history)
        self._ledger = SimLedger(world)
        self.records: StoredRecords | None = RecordsOfSqlite(world, self._ledger.connection)
        self._queueing = True
        self._healed = False
        self._links: Sequence[Link] = ()
        self._ttl = 1.0

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:  # noqa: ARG002 - it never does
        """See `Stage`."""
        self._ttl, self._queueing = ttl, queueing

    def store(self, link: Link) -> Store:
        """See `Stage`."""
        return NetworkStore(self._ledger, link, self.model, queueing=self._queueing)

    def unleash(self, links: Sequence[Link], until: float) -> None:
        """See `Stage`. A commit that fails was not done, and its caller cannot know."""
        self._links = links
        random, moment = self._world.random, self._world.now
        while (moment := moment + random.expovariate(0.5 / self._ttl)) < until:
            if self._schedule.fault(moment, "the next commit fails"):
                self._world.at(moment, self._fail)

    def _fail(self) -> None:
        if not self._healed:
            self._history.counts["faults"] += 1
            self._world.note("nemesis", "the next commit fails")
            self._ledger.connection.fails = True
            for link in self._links:
                link.trouble(2 * link.timeout)

    def heal(self) -> None:
        """See `Stage`."""
        self._healed = True
        self._ledger.connection.fails = False

    async def look_for_leaks(self, runtime: SimRuntime) -> None:  # noqa: ARG002 - it can be looked at from here
        """See `Stage`. Cleaning writes down that a holder vanished, and forgets that a day later."""
        connection = self._ledger.connection
        states = self._ledger.list("")
        if states:
            self._history.violate("left in the store", f"{[(state.name, len(state.holdings)) for state in states]}")
        for _ in range(2):
            self._world.now += 2 * DAY
            self._ledger.cleaner.clean_all(connection)
        left = connection.execute("SELECT key FROM lock UNION ALL SELECT key FROM claim").fetchall()
        if left:
            self._history.violate("remembered for ever", f"{left}")
        connection.close()


class RecordsOfSqlite:
    """The table of records; looking at it is not what the next failure of a commit is for."""

    error = 0.0

    def __init__(self, world: World, connection: sqlite3.Connection) -> None:
        self._world = world
        self._connection = connection

    def time(self) -> float:
        """See `StoredRecords`."""
        return EPOCH + self._world.now

    def value(self, key: str) -> bytes:
        """See `StoredRecords`."""
        row = sqlite3.Connection.execute(self._connection, sql.READ_RECORD, (key,)).fetchone()
        return b"" if row is None else row[0]
