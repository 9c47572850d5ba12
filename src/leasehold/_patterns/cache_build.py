"""Building a value of a cache: who builds, under which fence, and what becomes of a build that fails or comes late.

One call of one reader. Inside the process `single_flight` decides who goes on, among processes the lock of
the key. Under the lock the record is read again, under the lease's fence: a value that another has built meanwhile is
taken, and from then on no earlier builder can write.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from leasehold._fence_command import raise_command
from leasehold._patterns.cache_entry import Freshness, freshness, lifetime, pack, readable
from leasehold._patterns.cache_events import BuildFailed, Built, FillFailed, FillRefused
from leasehold._patterns.retry import retry_until
from leasehold._patterns.single_flight import GAVE_UP, Outcome, SharedBuild, finish, join_or_start, wait_for
from leasehold.errors import AcquireTimeout, BackendError, ClientClosed, ConfigurationError, FenceAhead
from leasehold.values import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._core.open_client import OpenClient
    from leasehold._face.lease import AsyncLease
    from leasehold._face.lock import AsyncLock
    from leasehold._patterns.cache_entry import Entry, Policy
    from leasehold.spi import Recording
    from leasehold.values import Reading

__all__ = ["Building", "let_go", "read_record", "write_record"]

HOLD_OFF = 1.0  # seconds for which a failed build is not tried again while there is a value to give out
MANY = 1_000  # failed keys; beyond this, those whose time is over are forgotten
ROUNDS = 3  # grants whose fence is too low before an operator has to look


class Building:
    """One call that found a value due, or none at all."""

    def __init__(
        self,
        opened: OpenClient,
        lock: AsyncLock,
        policy: Policy,
        build: Callable[[], Awaitable[Any]],
        hold_off: dict[str, float],
    ) -> None:
        self._opened = opened
        self._runtime = opened.runtime
        self._lock = lock
        self._policy = policy
        self._build = build
        self._hold_off = hold_off
        self._key = lock._spec.key
        self._too_low = 0
        self._fall_back = True

    # --- the ways to a value

    async def renew(self, entry: Entry, reading: Reading) -> Any:
        """Build what is due if no other does; a caller that does not build gets the present value at once."""
        if self._is_held_off():
            return entry.value
        mine, outcome = SharedBuild(self._key, self._runtime.current()), GAVE_UP
        try:
            if join_or_start(self._opened, mine) is mine:
                outcome = await self._lead(mine, self._lock.try_acquire, reading)
        finally:
            finish(self._opened, mine, outcome)
        if outcome.error is not None and outcome.by_build:
            raise outcome.error
        return entry.value if outcome.payload is None else self._policy.decode(outcome.payload)

    async def first(self, entry: Entry | None, reading: Reading, deadline: float | None) -> Any:
        """Wait for a value, or build it; GAVE_UP if it has to be looked for again."""
        if entry is not None and self._is_held_off() and self._serves_after_error(entry, reading.time):
            return entry.value
        until = math.inf if deadline is None else deadline
        mine, outcome = SharedBuild(self._key, self._runtime.current()), GAVE_UP
        try:
            shared = join_or_start(self._opened, mine, reading.fence)
            if shared is mine:
                outcome = await self._lead(mine, lambda: self._lock._acquire_until(deadline), reading)
        finally:
            finish(self._opened, mine, outcome)
        if shared is not mine:
            outcome = await self._share(shared, until)
        if outcome.error is not None:
            raise outcome.error
        return GAVE_UP if outcome.payload is None else self._policy.decode(outcome.payload)

    async def anew(self, deadline: float | None) -> Any:
        """Build now, whatever there is, after those who build already; an error of the build is raised."""
        self._fall_back = False
        while True:
            shared = SharedBuild(self._key, None)
            outcome = await self._lead(shared, lambda: self._lock._acquire_until(deadline), None)
            if outcome.error is not None:
                raise outcome.error
            if outcome.payload is not None:
                return self._policy.decode(outcome.payload)

    # --- one build

    async def _share(self, shared: SharedBuild, deadline: float) -> Outcome:
        if shared.leader is not None and shared.leader is self._runtime.current():
            raise ConfigurationError(
                f"the build of {self._lock.name!r} asks the cache for the very value that it builds; read the source",
                name=self._lock.name,
            )
        started = self._runtime.now()
        outcome = await wait_for(self._opened, shared, deadline)
        if outcome is None:
            waited = self._runtime.now() - started
            raise AcquireTimeout(
                f"could not get {self._lock.name!r} within {waited:.3f} s; this process is building it",
                name=self._lock.name,
                backend=self._opened.backend.label,
                waited=waited,
            )
        return outcome

    async def _lead(
        self, shared: SharedBuild, acquire: Callable[[], Awaitable[AsyncLease | None]], seen: Reading | None
    ) -> Outcome:
        """Take the lock and build under it; an error is an outcome, to be shared."""
        try:
            lease = await acquire()
            if lease is None:
                return GAVE_UP
            try:
                outcome = await self._under(shared, lease, seen)
            except GeneratorExit:
                raise  # nothing can be awaited any more; the ttl frees the lock
            except BaseException:
                await let_go(lease)
                raise
            await let_go(lease)
        except AcquireTimeout:
            raise  # our own deadline; those who share the build have theirs
        except Exception as error:  # noqa: BLE001 - raised in each caller that shares it
            return Outcome(error=error)
        return outcome

    async def _under(self, shared: SharedBuild, lease: AsyncLease, seen: Reading | None) -> Outcome:
        """Read again now that no other can begin, and build unless it was done meanwhile."""
        reading = await read_record(
            self._opened, self._lock.name, self._key, lease.fence, self._runtime.now() + lease.remaining()
        )
        if reading.fence > lease.fence:
            return self._fence_too_low(lease.fence, reading.fence)
        entry = readable(reading.record, self._policy)
        if entry is not None and seen is not None and _raw(reading) != _raw(seen) and reading.time < entry.expires:
            return Outcome(entry.payload)
        shared.fence = lease.fence
        return await self._make(lease, reading, entry)

    async def _make(self, lease: AsyncLease, reading: Reading, entry: Entry | None) -> Outcome:
        runtime, started = self._runtime, self._runtime.now()
        try:
            payload = self._policy.encode(await self._build())
        except Exception as error:  # noqa: BLE001 - it is the caller's code
            return self._failed(error, entry, reading.time + runtime.now() - started)
        took = runtime.now() - started
        self._hold_off.pop(self._key, None)
        if len(payload) > self._policy.max_size:
            self._fill_failed(f"{len(payload)} bytes are more than max_size={self._policy.max_size}")
            return Outcome(payload)
        fresh = lifetime(self._policy, runtime.random())
        value = pack(payload, expires=reading.time + took + fresh, took=took, fence=lease.fence)
        record = Record(self._key, value, lease.fence, fresh + self._policy.longest_stale)
        return await self._fill(lease, record, payload, took)

    async def _fill(self, lease: AsyncLease, record: Record, payload: bytes, took: float) -> Outcome:
        """Store what was built. If a later fence was seen, there is something newer: that is given out."""
        opened, name = self._opened, self._lock.name
        until = self._runtime.now() + lease.remaining()
        try:
            if await self._runtime.shielded(lambda: write_record(opened, name, record, until)):
                if opened.events.wanted(Built):
                    opened.events.emit(Built(name, lease.fence, took))
                return Outcome(payload)
            opened.events.emit(FillRefused(name, lease.fence))
            now = await read_record(opened, name, self._key, 0, until)
        except (BackendError, ClientClosed) as error:
            self._fill_failed(str(error))
            return Outcome(payload)
        newer = readable(now.record, self._policy)
        is_usable = newer is not None and freshness(newer, now.time, self._policy, 1.0) is not Freshness.GONE
        return Outcome(newer.payload if newer is not None and is_usable else payload)

    # --- what can go wrong

    def _failed(self, error: Exception, entry: Entry | None, now: float) -> Outcome:
        serves = self._fall_back and entry is not None and self._serves_after_error(entry, now)
        self._opened.events.emit(BuildFailed(self._lock.name, error, serves))
        if entry is None or not serves:
            return Outcome(error=error, by_build=True)
        if len(self._hold_off) >= MANY:
            self._forget_old_failures()
        self._hold_off[self._key] = self._runtime.now() + HOLD_OFF
        return Outcome(entry.payload)

    def _fill_failed(self, reason: str) -> None:
        self._opened.events.emit(FillFailed(self._lock.name, reason))

    def _fence_too_low(self, fence: int, highest: int) -> Outcome:
        """We were late, or `put` and `forget` have used up fences that the lock has yet to give out: ask again."""
        self._opened.note_fence(self._key, highest)
        self._too_low += 1
        if self._too_low < ROUNDS:
            return GAVE_UP
        raise FenceAhead(
            f"{self._lock.name!r} was stored under fence {highest}, and its lock gives out {fence}: the store has lost "
            f"state; run: {raise_command(self._key, highest, self._opened.backend.label)}",
            name=self._lock.name,
            backend=self._opened.backend.label,
            fence=fence,
            highest=highest,
        )

    def _serves_after_error(self, entry: Entry, now: float) -> bool:
        return now < entry.expires + self._policy.stale_if_error

    def _is_held_off(self) -> bool:
        return self._runtime.now() < self._hold_off.get(self._key, -math.inf)

    def _forget_old_failures(self) -> None:
        now = self._runtime.now()
        for key, until in tuple(self._hold_off.items()):
            if until <= now:
                self._hold_off.pop(key, None)


def _raw(reading: Reading) -> bytes:
    return b"" if reading.record is None else reading.record.value


async def read_record(opened: OpenClient, name: str, key: str, fence: int, until: float) -> Reading:
    """Read a record; repeated until there is an answer or time is up."""
    store = cast("Recording", opened.backend)
    return await retry_until(until, opened, name, lambda: store.read(key, fence))


async def write_record(opened: OpenClient, name: str, record: Record, until: float) -> bool:
    """Write a record; repeated until there is an answer or time is up."""
    store = cast("Recording", opened.backend)
    return await retry_until(until, opened, name, lambda: store.write(record))


async def let_go(lease: AsyncLease | None) -> None:
    """Release the lock; if the store does not answer, the ttl frees it."""
    try:
        if lease is not None:
            await lease.release()
    except (BackendError, ClientClosed):
        return
