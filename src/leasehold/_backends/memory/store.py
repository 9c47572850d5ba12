"""`memory://`: the reference store, with every capability, for the threads and tasks of one process.

`MemoryStore` is the server: one mutex, one clock, and the rows of every name that is in use. What the verbs mean is in
`leasehold.kit.rules`; here each is applied to the rows of its name under the mutex, and the waiters whose turn it may
be are notified. Every grant gets the next number of one counter as its fence, so fences rise within each name and
nothing has to be kept for a name that is idle.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from leasehold._backends.memory.backend import MemoryBackend
from leasehold.errors import ConfigurationError
from leasehold.kit import pauses, rules
from leasehold.kit.local_rows import LocalRows
from leasehold.kit.records import LocalRecords
from leasehold.kit.rules import Queued
from leasehold.spi import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.spi import Backend, Runtime, Signal, Store
    from leasehold.store_url import StoreURL
    from leasehold.values import Claim, Grant, Holder, LockState, Loss, Reading, Record, Refusal

__all__ = ["MemoryStore", "open_url"]

SWEEP_AT_LEAST = 64


class MemoryStore:
    """The server: all state, under one mutex, on one clock; `wall` is the time of day that it shows to others."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        label: str = "memory://",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.label = label
        self._clock = clock
        self._wall = wall
        self._mutex = threading.RLock()  # a signal handler may release a lease while its thread is in here
        self._names: dict[str, LocalRows] = {}
        self._records = LocalRecords()
        self._fence = 0
        self._sweep_in = SWEEP_AT_LEAST  # visits
        _STORES.add(self)

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connect to this store."""
        return MemoryBackend(self, runtime)

    # --- claims

    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        """Grant now or not at all."""
        with self._mutex:
            rows = self._visit(claim.key)
            if rows is None:
                return self._grant_unused(claim)
            answer = rules.try_acquire(rows, claim)
            self._leave(rows)
            return answer

    def join(self, claim: Claim, signal: Signal) -> Grant | Place | Refusal:
        """Grant now or give a place in the queue."""
        with self._mutex:
            rows = self._visit(claim.key)
            if rows is None:
                return self._grant_unused(claim)
            answer = _placed(rules.join(rows, claim, signal))
            self._leave(rows)
            return answer

    def turn(self, place: Place) -> Grant | Place | Refusal:
        """Grant if nothing ahead is in the way; keep the place otherwise."""
        with self._mutex:
            rows = self._enter(place.claim.key)
            answer = _placed(rules.turn(rows, place.claim, place.signal))
            self._leave(rows)
            return answer

    def renew(self, grants: Sequence[Grant]) -> list[Grant | Loss]:
        """Extend what is still held."""
        with self._mutex:
            return list(map(self._renew, grants))

    def release(self, grant: Grant) -> bool | Loss:
        """Free this grant and nothing else. If it was broken, its holder learns that now."""
        with self._mutex:
            rows = self._visit(grant.claim.key)
            if rows is None:
                return False
            answer = rules.release(rows, grant)
            self._leave(rows)
            return answer

    def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        """Undo the claim; with `doubt`, refuse a copy of it that comes late."""
        with self._mutex:
            rows = self._enter(claim.key)
            rules.withdraw(rows, claim, doubt=doubt)
            self._leave(rows)

    # --- operators

    def inspect(self, key: str) -> LockState | None:
        """Who holds and who waits."""
        with self._mutex:
            return self._inspect(key)

    def list(self, prefix: str) -> Sequence[LockState]:
        """All locks in use whose key starts like this."""
        with self._mutex:
            return self._list(prefix)

    def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence; its place stays taken until its ttl is over, unless `now`."""
        with self._mutex:
            rows = self._enter(key)
            broken = rules.break_(rows, fence, reason, now=now)
            self._leave(rows)
            return broken

    def raise_fence(self, key: str, fence: int) -> int:  # noqa: ARG002 - one counter serves all keys
        """Make every later fence higher than this."""
        with self._mutex:
            self._fence = max(self._fence, fence)
            return self._fence

    def pause(self, key: str, by: Holder, seconds: float) -> None:
        """Grant nothing there for so long."""
        with self._mutex:
            rows = self._enter(key)
            pauses.pause(rows, by, seconds)
            self._leave(rows)

    def resume(self, key: str) -> bool:
        """End the pause."""
        with self._mutex:
            rows = self._enter(key)
            resumed = pauses.resume(rows)
            self._leave(rows)
            return resumed

    # --- records

    def read(self, key: str, fence: int = 0) -> Reading:
        """The record, if it has not run out; and let no lower fence write from now on."""
        with self._mutex:
            now = self._clock()
            self._sweep(now)
            return self._records.read(key, fence, now, self._wall())

    def write(self, record: Record) -> bool:
        """Store it unless a higher fence was here."""
        with self._mutex:
            now = self._clock()
            self._sweep(now)
            return self._records.write(record, now)

    @property
    def size(self) -> int:
        """How many claims, notes and records are kept, for tests that look for leaks; an abandoned mark counts too."""
        with self._mutex:
            self._sweep_in = 0
            self._sweep(self._clock())
            return sum(max(1, len(rows)) for rows in self._names.values()) + len(self._records)

    def after_fork(self) -> None:
        """Memory is not shared with the parent: start empty, but never give a fence twice."""
        self._mutex = threading.RLock()
        self._names, self._records = {}, LocalRecords()

    # --- all of these run under the mutex

    def _visit(self, key: str) -> LocalRows | None:
        """The rows of a name as they are now; None if it is not in use."""
        rows = self._names.get(key)
        if rows is not None:
            rows.now = now = self._clock()
            self._sweep(now)
            rules.expire(rows)
        return rows

    def _enter(self, key: str) -> LocalRows:
        rows = self._visit(key)
        return LocalRows(key, self.label, self._clock(), self._next_fence) if rows is None else rows

    def _leave(self, rows: LocalRows) -> None:
        """Notify waiters, and keep the rows for as long as there is something to remember."""
        if rows.is_idle:
            self._names.pop(rows.key, None)
            return
        if rows.changed and rows.waiting():
            notify(rows)
        self._names[rows.key] = rows

    def _grant_unused(self, claim: Claim) -> Grant:
        now = self._clock()
        self._sweep(now)
        self._names[claim.key] = rows = LocalRows(claim.key, self.label, now, self._next_fence)
        return rules.grant(rows, claim)

    def _next_fence(self, spare: int = 0) -> int:
        self._fence = fence = self._fence + 1
        if spare:
            self._fence += spare
        return fence

    def _renew(self, grant: Grant) -> Grant | Loss:
        rows = self._enter(grant.claim.key)
        answer = rules.renew(rows, grant)
        self._leave(rows)
        return answer

    def _inspect(self, key: str) -> LockState | None:
        rows = self._enter(key)
        self._leave(rows)
        return rules.inspect(rows)

    def _list(self, prefix: str) -> Sequence[LockState]:
        keys = sorted(key for key in self._names if key.startswith(prefix))
        return [state for state in map(self._inspect, keys) if state is not None]

    def _sweep(self, now: float) -> None:
        """Forget idle names: once in as many visits as names were left the last time, so that it costs little."""
        self._sweep_in -= 1
        if self._sweep_in > 0:
            return
        for rows in list(self._names.values()):
            rows.now = now
            rules.expire(rows)
            self._leave(rows)
        self._records.sweep(now)
        self._sweep_in = len(self._names) + len(self._records) + SWEEP_AT_LEAST


def notify(rows: LocalRows) -> None:
    """Raise the signal of every waiter whose turn it may be; each then asks for itself."""
    for row in rules.admissible(rows):
        row.listener.set()
    rows.changed = False  # last: after an interruption the next visit notifies them


def _placed(answer: Grant | Queued | Refusal) -> Grant | Place | Refusal:
    if isinstance(answer, Queued):
        row, after, paused = answer.row, answer.retry_after, answer.paused
        return Place(
            row.claim, row.listener, answer.recheck, answer.ahead, answer.holder, retry_after=after, paused=paused
        )
    return answer


def open_url(url: StoreURL) -> Store:
    """`memory://` is a store of its own; `memory://NAME` is shared by all clients of this process."""
    url.refuse_options()
    url.refuse_several_hosts()
    if url.path or url.username or url.port:
        raise ConfigurationError(f"{url} is not a memory store; write memory:// or memory://NAME")
    if not url.host:
        return MemoryStore()
    return _NAMED.setdefault(url.host, MemoryStore(label=f"memory://{url.host}"))


_NAMED: dict[str, MemoryStore] = {}
_STORES: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _start_empty_in_child() -> None:
    for store in list(_STORES):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_empty_in_child)
