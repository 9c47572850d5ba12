"""`memory://`: the reference store, in its plainest form, with every capability.

`MemoryStore` is the server: one mutex, one clock, all rules. `MemoryBackend` is a client's connection to it. Reading
this file is the quickest way to learn what a store has to do; copy it to start a new one.

The rules. A name has holders and a queue. A claim is admitted when nothing ahead of it, holding or waiting, is in the
way; `rules` says what is. A waiter that does not ask again within three re-checks is dead and loses its place. Every
grant gets the next number of one counter as its fence, so fences rise within each name and nothing has to be kept for a
name that is idle.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from leasehold.backends.memory_entry import Entry, Held, Waiting
from leasehold.backends.memory_records import Records
from leasehold.backends.rules import ABANDONED_KEPT, check_kind, place_lifetime
from leasehold.errors import ConfigurationError
from leasehold.spi import Place
from leasehold.values import (
    Capability,
    Claim,
    Grant,
    LockState,
    Loss,
    LossReason,
    Reading,
    Record,
    Refusal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.spi import Backend, Runtime, Signal, Store
    from leasehold.store_url import StoreURL

__all__ = ["MemoryBackend", "MemoryStore", "open_url"]

SWEEP_AT_LEAST = 64


class MemoryStore:
    """The server: all state, under one mutex, on one clock; `wall` is the time of day that it tells to others."""

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
        self._entries: dict[str, Entry] = {}
        self._records = Records()
        self._fence = 0
        self._visits = 0  # since the last sweep
        _STORES.add(self)

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connect to this store."""
        return MemoryBackend(self, runtime)

    # --- claims

    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        """Grant now or not at all."""
        with self._mutex:
            now, entry = self._visit(claim.key)
            if claim.owner in entry.holdings:
                return self._repeated(entry, claim, now)
            self._check_mode(entry, claim)
            if claim.owner in entry.withdrawn or not entry.admits(claim, entry.queue.values()):
                return self._refusal(entry, claim, now)
            return self._grant(entry, claim, now)

    def join(self, claim: Claim, signal: Signal) -> Grant | Place | Refusal:
        """Grant now or give a place in the queue."""
        with self._mutex:
            now, entry = self._visit(claim.key)
            if claim.owner in entry.holdings:
                return self._repeated(entry, claim, now)
            if claim.owner in entry.withdrawn:
                return self._refusal(entry, claim, now)
            self._check_mode(entry, claim)
            if claim.owner not in entry.queue and entry.admits(claim, entry.queue.values()):
                return self._grant(entry, claim, now)
            return self._stand(entry, claim, signal, now)

    def turn(self, place: Place) -> Grant | Place | Refusal:
        """Grant if nobody ahead is in the way; keep the place otherwise."""
        claim = place.claim
        with self._mutex:
            now, entry = self._visit(claim.key)
            if claim.owner in entry.holdings:
                return self._repeated(entry, claim, now)
            if claim.owner not in entry.queue:
                return self._refusal(entry, claim, now)
            if not entry.admits(claim, entry.ahead_of(claim.owner)):
                return self._stand(entry, claim, place.signal, now)
            del entry.queue[claim.owner]
            grant = self._grant(entry, claim, now)
            entry.call_next()  # several readers or permits may be admissible at once
            return grant

    def renew(self, grants: Sequence[Grant]) -> list[Grant | Loss]:
        """Extend what is still held."""
        with self._mutex:
            return list(map(self._renew, grants))

    def release(self, grant: Grant) -> bool | Loss:
        """Free this grant and nothing else. If it was broken, its holder learns that now."""
        key, owner = grant.claim.key, grant.claim.owner
        with self._mutex:
            now, entry = self._visit(key)
            holding = entry.holdings.get(owner)
            if holding is None or holding.cooling or holding.fence != grant.fence:
                return _broken(entry.reason_of(owner)) or False
            kept_until = holding.since + holding.claim.min_hold
            if kept_until > now:
                holding.cooling, holding.expires = True, kept_until
                entry.runs_out(kept_until)
            else:
                del entry.holdings[owner]
                entry.call_next()
                self._forget_if_idle(key, entry, now)
            return True if holding.broken is None else Loss(LossReason.BROKEN, holding.broken)

    def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        """Undo the claim; with `doubt`, refuse a copy of it that comes late."""
        with self._mutex:
            now, entry = self._visit(claim.key)
            holding = entry.holdings.get(claim.owner)
            if holding is not None and not holding.cooling:
                del entry.holdings[claim.owner]
                if holding.abandoned:  # it never got to know; the next one has to
                    entry.abandoned_until = now + ABANDONED_KEPT
            entry.queue.pop(claim.owner, None)
            if doubt:
                entry.withdrawn[claim.owner] = now + claim.ttl
                entry.runs_out(now + claim.ttl)
                self._entries[claim.key] = entry
            entry.call_next()
            self._forget_if_idle(claim.key, entry, now)

    # --- operators

    def inspect(self, key: str) -> LockState | None:
        """Who holds and who waits."""
        with self._mutex:
            now, entry = self._visit(key)
            return entry.state(key, now)

    def list(self, prefix: str) -> Sequence[LockState]:
        """All locks in use whose key starts like this."""
        with self._mutex:
            return self._list(prefix)

    def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence; its place stays taken until its ttl is over, unless `now`."""
        with self._mutex:
            instant, entry = self._visit(key)
            holding = next((held for held in entry.holdings.values() if held.fence == fence), None)
            if holding is None or holding.cooling:
                return False
            holding.broken = reason
            if now:
                entry.broken[holding.claim.owner] = (reason, holding.expires)
                entry.drop(holding, instant)
                entry.call_next()
            return True

    def raise_fence(self, key: str, fence: int) -> int:  # noqa: ARG002 - one counter serves all keys
        """Make every later fence higher than this."""
        with self._mutex:
            self._fence = max(self._fence, fence)
            return self._fence

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
        """How many claims, marks and records are kept, for tests that look for leaks."""
        with self._mutex:
            self._visits = len(self._entries) + len(self._records) + SWEEP_AT_LEAST
            self._sweep(self._clock())
            return sum(entry.size for entry in self._entries.values()) + len(self._records)

    # --- all of these run under the mutex

    def _visit(self, key: str) -> tuple[float, Entry]:
        """The entry as it is now; one that does not exist is not kept until something is put into it."""
        now = self._clock()
        self._sweep(now)
        entry = self._entries.get(key)
        if entry is None:
            return now, Entry()
        entry.expire(now)
        return now, entry

    def _sweep(self, now: float) -> None:
        """Forget idle keys. Once in as many visits as there are keys, so that it costs nothing on average."""
        self._visits += 1
        if self._visits < len(self._entries) + len(self._records) + SWEEP_AT_LEAST:
            return
        self._visits = 0
        for key, entry in list(self._entries.items()):
            entry.expire(now)
            self._forget_if_idle(key, entry, now)
        self._records.sweep(now)

    def _forget_if_idle(self, key: str, entry: Entry, now: float) -> None:
        if entry.is_idle(now):
            self._entries.pop(key, None)

    def _check_mode(self, entry: Entry, claim: Claim) -> None:
        present = entry.first_claim()
        if present is not None:
            check_kind(claim, present.mode, present.capacity, self.label)

    def _grant(self, entry: Entry, claim: Claim, now: float) -> Grant:
        self._fence += 1
        abandoned = entry.abandoned_until > now
        entry.abandoned_until = 0.0
        entry.holdings[claim.owner] = Held(claim, self._fence, now, now + claim.ttl, abandoned)
        entry.runs_out(now + claim.ttl)
        self._entries[claim.key] = entry
        return Grant(claim, self._fence, claim.ttl, None, abandoned)

    def _repeated(self, entry: Entry, claim: Claim, now: float) -> Grant | Refusal:
        """The same claim again, because its answer was lost: the same grant, with a new expiry."""
        holding = entry.holdings[claim.owner]
        if holding.cooling or holding.broken is not None:
            return self._refusal(entry, claim, now)
        holding.expires = now + claim.ttl
        return Grant(claim, holding.fence, claim.ttl, None, holding.abandoned)

    def _list(self, prefix: str) -> Sequence[LockState]:
        keys = sorted(key for key in self._entries if key.startswith(prefix))
        states = (self._visit(key)[1].state(key, self._clock()) for key in keys)
        return [state for state in states if state is not None]

    def _renew(self, grant: Grant) -> Grant | Loss:
        now, entry = self._visit(grant.claim.key)
        owner = grant.claim.owner
        holding = entry.holdings.get(owner)
        if holding is not None and holding.fence != grant.fence:
            holding = None  # a late copy of the claim was granted anew: that is another grant
        broken = _broken(entry.reason_of(owner) if holding is None else holding.broken)
        if broken is not None:
            return broken
        if holding is None or holding.cooling:
            return Loss(LossReason.TAKEN, "the store does not know this grant any more")
        holding.expires = now + grant.claim.ttl
        return Grant(grant.claim, holding.fence, grant.claim.ttl, None, holding.abandoned)

    def _stand(self, entry: Entry, claim: Claim, signal: Signal, now: float) -> Place:
        lifetime = place_lifetime(claim)
        ahead = len(entry.ahead_of(claim.owner)) if claim.owner in entry.queue else len(entry.queue)
        entry.queue[claim.owner] = Waiting(claim, signal, now + lifetime)
        entry.runs_out(now + lifetime)
        self._entries[claim.key] = entry
        return Place(claim, signal, lifetime / 3, ahead, entry.first_holder())

    def _refusal(self, entry: Entry, claim: Claim, now: float) -> Refusal:
        ends = [held.expires - now for held in entry.holdings.values()]
        return Refusal(claim.key, entry.first_holder(), min(ends, default=None), len(entry.queue))

    def after_fork(self) -> None:
        """Memory is not shared with the parent: start empty, but never give a fence twice."""
        self._mutex = threading.RLock()
        self._entries, self._records = {}, Records()


class MemoryBackend:
    """A client's connection to a memory store."""

    capabilities = frozenset(Capability) - {Capability.SESSION}

    def __init__(self, store: MemoryStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self.label = store.label

    async def try_acquire(self, claim: Claim, _until: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        return self._store.try_acquire(claim)

    async def join(self, claim: Claim, _until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        return self._store.join(claim, self._runtime.signal())

    async def turn(self, place: Place, _until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        return self._store.turn(place)

    async def renew(self, grants: Sequence[Grant], _until: float = math.inf, /) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        return self._store.renew(grants)

    async def release(self, grant: Grant, _until: float = math.inf, /) -> bool | Loss:
        """See `Backend`."""
        return self._store.release(grant)

    async def withdraw(self, claim: Claim, _until: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`."""
        self._store.withdraw(claim, doubt=doubt)

    async def inspect(self, key: str) -> LockState | None:
        """See `Inspecting`."""
        return self._store.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        """See `Inspecting`."""
        return self._store.list(prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """See `Inspecting`."""
        return self._store.break_(key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        """See `Inspecting`."""
        return self._store.raise_fence(key, fence)

    async def read(self, key: str, fence: int = 0) -> Reading:
        """See `Recording`."""
        return self._store.read(key, fence)

    async def write(self, record: Record) -> bool:
        """See `Recording`."""
        return self._store.write(record)

    async def close(self) -> None:
        """Nothing to let go of."""


def _broken(reason: str | None) -> Loss | None:
    return None if reason is None else Loss(LossReason.BROKEN, reason)


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
