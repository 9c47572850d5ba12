"""The locks of a whole fleet, read from the store in one place: for the exporter, and for whatever else shows them.

The store is asked by one reader at a time and at most once per `max_age`, however many ask this object; each request
to the store is a page of its own (`client.locks`). Who asks waits no longer than `patience`: a store that does not
answer is a fact to be shown, and the request goes on meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leasehold._blocking import Client
    from leasehold.values import LockState

__all__ = ["FleetReader", "FleetState", "GroupState", "Groups", "summary"]

OTHER, UNGROUPED = "other", "ungrouped"


@dataclass(frozen=True, slots=True)
class FleetState:
    """The last answer of the store. `error` is None if it answered; then `locks` are those of that answer.

    `read_at` is on the clock of `time.monotonic`, and `took` is how long the store needed. `stalled` has, for each lock
    with waiters, for how long it has been seen with the same holders.
    """

    locks: Sequence[LockState] = ()
    error: str | None = None
    read_at: float = 0.0
    took: float = 0.0
    stalled: dict[str, float] = field(default_factory=dict)


class FleetReader:
    """Reads the locks of a client's namespace, for as many as want to see them."""

    def __init__(
        self,
        client: Client,
        *,
        prefix: str = "",
        max_age: float = 5.0,
        patience: float = 5.0,
        on_read: Callable[[FleetState], object] | None = None,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._max_age = max_age
        self.patience: float = patience
        self._on_read = on_read  # called in the thread that reads, with every answer, before anybody else sees it
        self._guard = threading.Lock()
        self._reading: threading.Event | None = None  # set when the reading that is under way has ended
        self._queues: dict[str, tuple[tuple[int, ...], float]] = {}
        self._outdated = 0.0
        self.began: float = 0.0  # when the last reading did, on the clock of `time.monotonic`
        self.latest: FleetState | None = None
        self.failures: int = 0

    def read(self) -> FleetState:
        """The present state, at most `max_age` old; with an error if the store did not answer in time."""
        done = self.begin()
        if (done is None or done.wait(self.patience)) and self.latest is not None:
            return self.latest
        return self.silence()

    def begin(self) -> threading.Event | None:
        """Begin a reading if the latest is too old; the event of the one under way, None while `latest` is good."""
        with self._guard:
            if self._reading is not None:
                return self._reading
            now = time.monotonic()
            if self.latest is not None and self._is_fresh(self.latest, now):
                return None
            done = self._reading = threading.Event()
            self.began = now
            try:
                threading.Thread(target=self._ask, args=(done,), name="leasehold fleet", daemon=True).start()
            except (RuntimeError, MemoryError) as error:  # too many threads; they may become fewer
                self.latest, self._reading = FleetState(error=f"the store was not asked: {error}", read_at=now), None
                self.failures += 1
                done.set()
            return done

    def outdate(self) -> None:
        """Something was changed: what was read before is not good any more."""
        self._outdated = time.monotonic()

    def _is_fresh(self, state: FleetState, now: float) -> bool:
        return now - state.read_at < self._max_age and state.read_at - state.took >= self._outdated

    def silence(self) -> FleetState:
        """The state of a store that has not answered for as long as anybody is ready to wait."""
        return FleetState(error=f"the store did not answer within {self.patience:g} s", read_at=time.monotonic())

    def _ask(self, done: threading.Event) -> None:
        began = time.monotonic()
        try:
            locks = self._client.locks(self._prefix)
            now = time.monotonic()
            state = FleetState(locks, None, now, now - began, self._note_queues(locks, now))
            if self._on_read is not None:
                self._on_read(state)
        except Exception as error:  # noqa: BLE001 - whatever it is, callers get it as text, and the next read may succeed
            text = str(error) if isinstance(error, LeaseholdError) else f"it failed with {type(error).__name__}"
            state = FleetState(error=text, read_at=time.monotonic(), took=time.monotonic() - began)
            self.failures += 1
        with self._guard:
            self.latest, self._reading = state, None
        done.set()

    def _note_queues(self, locks: Iterable[LockState], now: float) -> dict[str, float]:
        """For how long each lock with waiters has had the same holders, as far as was seen here."""
        seen: dict[str, tuple[tuple[int, ...], float]] = {}
        for state in locks:
            if state.waiting:
                fences = tuple(sorted(holding.fence for holding in state.holdings))
                before = self._queues.get(state.name)
                seen[state.name] = before if before is not None and before[0] == fences else (fences, now)
        self._queues = seen
        return {name: now - since for name, (_, since) in seen.items()}


class Groups:
    """Names of locks into few groups: by prefixes that are given, or by what stands before the first `:` or `/`."""

    def __init__(self, prefixes: Sequence[str] = (), most: int = 50) -> None:
        self._prefixes = sorted(prefixes, key=len, reverse=True)
        self._most = most
        self.known: set[str] = set(prefixes)

    def of(self, name: str) -> str:
        """The group of a name; `other` where no prefix fits or there are too many groups already."""
        if self._prefixes:
            return next((prefix for prefix in self._prefixes if name.startswith(prefix)), OTHER)
        places = [place for place in (name.find(":"), name.find("/")) if place > 0]
        if not places:
            return UNGROUPED
        group = name[: min(places)]
        if group not in self.known and len(self.known) >= self._most:
            return OTHER
        self.known.add(group)
        return group


@dataclass(slots=True)
class GroupState:
    """The locks of one group, in figures."""

    held: int = 0
    waiters: int = 0
    paused: int = 0
    longest_hold: float = 0.0
    stalled: float = 0.0
    modes: Counter[str] = field(default_factory=Counter)


def summary(state: FleetState, groups: Groups) -> dict[str, GroupState]:
    """The figures of each group, in order of their names."""
    found = {group: GroupState() for group in groups.known}  # a group that is empty now is a zero
    for lock in state.locks:
        facts = found.setdefault(groups.of(lock.name), GroupState())
        holdings = [holding for holding in lock.holdings if holding.broken is None and not holding.cooling]
        facts.held += len(holdings)
        facts.modes[lock.mode.value] += len(holdings)
        facts.waiters += len(lock.waiting)
        facts.paused += lock.paused is not None
        facts.longest_hold = max(facts.longest_hold, *(holding.held_for for holding in holdings), 0.0)
        facts.stalled = max(facts.stalled, state.stalled.get(lock.name, 0.0))
    return dict(sorted(found.items()))
