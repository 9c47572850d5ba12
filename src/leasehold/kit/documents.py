"""A full store over compare-and-swap: one small document per name.

`Documents` is all that the author of such a store writes: load, swap, list, and the store's clock. `DocumentBackend`
makes every capability of it (`ClocklessBackend`: all but records, where the store has no clock). A verb loads the
document of its name, applies `leasehold.kit.rules` to it and swaps the new one in, if no other client did so meanwhile;
otherwise it starts again, for a bounded time.

What a failed call means. A swap that answers False was not applied, so a call that only ever met conflicts raises
`BackendUnavailable`: surely nothing happened. A swap whose answer got lost raises `OutcomeUnknown`, and is never
repeated here; the same claim, asked again by the core, is answered by what the document says by then.

A document stays after its name became idle, because it carries the fence: fences rise with every grant, and with the
store's clock (in microseconds). So it may be deleted once that clock alone gives higher fences, with a day to spare for
a clock that is set back; a worker does that, a few documents at a time. Without a clock it stays for good.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from leasehold.errors import BackendError, BackendUnavailable
from leasehold.kit import pauses, rules
from leasehold.kit.document_format import Name, Observations, read_name, read_record, write_name, write_record
from leasehold.kit.rules import Queued
from leasehold.kit.turns import Turns
from leasehold.kit.worker import Worker
from leasehold.spi import Place
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.kit.records import KeptRecord
    from leasehold.spi import Runtime, Signal
    from leasehold.values import Claim, Grant, Holder, LockState, Loss, Reading, Record, Refusal

__all__ = ["ClocklessBackend", "DocumentBackend", "Documents", "Notifying", "Timed"]

LOCK, RECORD = "lock:", "record:"  # how the keys of documents begin
PATIENCE = 1.0  # how long a call starts again after conflicts; the core asks again after that
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05
RECHECK_WITHOUT_NOTIFICATIONS = 0.2
CLEAN_EVERY = 256  # swaps, each of which may have added a document
CLEAN_AT_ONCE = 512  # documents looked at then: more than can have been added, so that cleaning keeps up
SPARE = 86_400.0

T = TypeVar("T")


class Documents(Protocol):
    """A store of small documents that can be replaced on condition. What a store author writes.

    Every call ends by itself within a bounded time, and by `until`, an instant of the runtime's clock. It raises
    `BackendUnavailable` when it was surely not applied, `OutcomeUnknown` when it may have been, `BackendRejected` when
    the store refused it for good. A key is any text.
    """

    async def load(self, key: str, until: float, /) -> tuple[bytes | None, Any]:
        """The document, None if there is none, and its version: any value that `swap` takes back."""

    async def swap(self, key: str, value: bytes | None, seen: Any, until: float, /) -> bool:
        """Replace the document, or delete it for None; False, and nothing changed, if its version is not `seen`."""

    async def keys(self, prefix: str, /) -> Sequence[str]:
        """All keys that start with this."""

    async def now(self) -> float | None:
        """Seconds since 1970 on the store's own clock; None if it has none, which `ClocklessBackend` is for.

        Then every client counts from when it first saw a change, and there are no records, which need one clock.
        """

    async def close(self) -> None:
        """Let go of connections. Calls that come later, or are under way, raise `ClientClosed`."""


@runtime_checkable
class Timed(Protocol):
    """Documents whose store gives its clock with a document: one round trip less for every call."""

    async def load_with_time(self, key: str, until: float, /) -> tuple[bytes | None, Any, float]:
        """The same as `load`, and what `now` would give."""


@runtime_checkable
class Notifying(Protocol):
    """Documents that can announce changes: capability PUSH. Nothing depends on it but how soon a waiter is served."""

    async def watch(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        """Call `changed`, from any thread, after every change of this document; returns what ends that."""


class ClocklessBackend:
    """A client's connection to a store of documents that has no clock: every port but records.

    `pause` is the first one after a conflict; 0 where the clock is turned by hand, and stands still during a call.
    """

    has_clock = False

    def __init__(
        self,
        documents: Documents,
        runtime: Runtime,
        label: str,
        *,
        fence_floor: int = 0,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self.label = label
        self._pause = pause
        self._waiters: weakref.WeakSet[Signal] = weakref.WeakSet()
        self.capabilities: frozenset[Capability] = _capabilities(documents, has_clock=self.has_clock)
        self._documents = documents
        self._timed = documents if self.has_clock and isinstance(documents, Timed) else None
        self._turns = Turns(runtime) if pause else None
        self._runtime = runtime
        self._first_fence = fence_floor + 1
        self._seen = None if self.has_clock else Observations()
        self._notifications = _Notifications(self, documents, runtime) if isinstance(documents, Notifying) else None
        self._cleaner = Worker(runtime, self._clean, "leasehold cleaning")
        self._swaps = 0
        self._position = ""
        self._closed = False

    # --- claims

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        return await self._change(claim.key, until, lambda name: rules.try_acquire(name.rows, claim))

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        answer = await self._change(claim.key, until, lambda name: rules.join(name.rows, claim))
        if not isinstance(answer, Queued):
            return answer
        place = self._place(answer, self._runtime.signal())
        if self._notifications is not None and await self._notifications.expect(place):
            return await self.turn(place, until)  # a change before the watch began was not announced
        return place

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        answer = await self._change(place.claim.key, until, lambda name: rules.turn(name.rows, place.claim))
        return self._place(answer, place.signal) if isinstance(answer, Queued) else answer

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        return [await self._renew(grant, until) for grant in grants]

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        return await self._change(grant.claim.key, until, lambda name: rules.release(name.rows, grant))

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await self._change(claim.key, until, lambda name: rules.withdraw(name.rows, claim, doubt=doubt))

    async def close(self) -> None:
        self._closed = True
        await self._cleaner.close()
        if self._notifications is not None:
            await self._notifications.close()
        await self._documents.close()
        for signal in list(self._waiters):  # nothing else wakes them before they ask again by themselves
            signal.set()

    # --- operators

    async def inspect(self, key: str) -> LockState | None:
        value, _, now = await self._load(LOCK + key, math.inf)
        return None if value is None else rules.inspect(self._name(key, value, now).rows)

    async def list(self, prefix: str) -> Sequence[LockState]:
        keys = [key.removeprefix(LOCK) for key in sorted(await self._documents.keys(LOCK + prefix))]
        states = [await self.inspect(key) for key in keys]
        return [state for state in states if state is not None]

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return await self._change(key, math.inf, lambda name: rules.break_(name.rows, fence, reason, now=now))

    async def raise_fence(self, key: str, fence: int) -> int:
        return await self._change(key, math.inf, lambda name: name.raise_fence(fence))

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        await self._change(key, math.inf, lambda name: pauses.pause(name.rows, by, seconds))

    async def resume(self, key: str) -> bool:
        return await self._change(key, math.inf, lambda name: pauses.resume(name.rows))

    # --- how a document changes

    async def _change(self, key: str, until: float, verb: Callable[[Name], T]) -> T:
        def change(value: bytes | None, now: float) -> tuple[T, bytes | None]:
            name = self._name(key, value, now)
            answer = verb(name)
            if value is None and name.rows.is_idle and not name.fence:
                return answer, None
            return answer, write_name(name, self._seen)

        return await self._swapped(LOCK + key, until, change)

    async def _swapped(
        self, document: str, until: float, change: Callable[[bytes | None, float], tuple[T, bytes | None]]
    ) -> T:
        """Load, change and swap, one call of this client after the other."""
        if self._turns is None:
            return await self._swapped_now(document, until, change)
        turn = self._runtime.signal()
        try:
            await self._turns.wait(document, turn, until)
            return await self._swapped_now(document, until, change)
        finally:
            self._turns.leave(document, turn)

    async def _swapped_now(
        self, document: str, until: float, change: Callable[[bytes | None, float], tuple[T, bytes | None]]
    ) -> T:
        """Load, change and swap; again while other clients were faster, for a bounded time."""
        runtime, pause = self._runtime, self._pause
        deadline = min(until, runtime.now() + PATIENCE)
        while True:
            loaded = runtime.now()
            value, seen, now = await self._load(document, until)
            answer, fresh = change(value, now)
            # A process that stood still decides on what it read then. A name without a document has no version that
            # would tell: after the store was emptied, a grant of an earlier time would get a lower fence.
            is_old = runtime.now() - loaded > PATIENCE
            if fresh == value or (not is_old and await self._documents.swap(document, fresh, seen, until)):
                self._count(fresh != value)
                return answer
            left = deadline - runtime.now()
            if left <= 0:
                raise BackendUnavailable(
                    "other clients changed this lock again and again; nothing was done, try again", backend=self.label
                )
            await runtime.sleep(min(pause * (0.5 + runtime.random()), left))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _load(self, document: str, until: float) -> tuple[bytes | None, Any, float]:
        """The document, its version, and the instant on the clock that its rows live on."""
        if self._timed is not None:
            return await self._timed.load_with_time(document, until)
        value, seen = await self._documents.load(document, until)
        return value, seen, await self._now()

    async def _now(self) -> float:
        """The instant on the clock that the rows live on: the store's, or this client's where it has none."""
        if self._seen is not None:
            return self._runtime.now()
        now = await self._documents.now()
        if now is None:
            raise BackendUnavailable("the store gave no time; ask again", backend=self.label)
        return now

    def _name(self, key: str, value: bytes | None, now: float) -> Name:
        fence_by_clock = 0 if self._seen is not None else int(now * 1_000_000)
        lowest = max(self._first_fence, fence_by_clock)
        name = read_name(Name(key, self.label, now, lowest), value, self._seen)
        rules.expire(name.rows)
        return name

    async def _renew(self, grant: Grant, until: float) -> Grant | Loss | BackendError:
        try:
            return await self._change(grant.claim.key, until, lambda name: rules.renew(name.rows, grant))
        except BackendError as error:
            return error  # the answer for this grant: others may be renewed

    def _place(self, queued: Queued, signal: Signal) -> Place:
        claim, recheck, after = queued.row.claim, queued.early_recheck, queued.retry_after
        if self._notifications is None:
            recheck = min(recheck, RECHECK_WITHOUT_NOTIFICATIONS)
        self._waiters.add(signal)
        return Place(claim, signal, recheck, queued.ahead, queued.holder, retry_after=after, paused=queued.paused)

    async def waiters_to_notify(self, key: str) -> Sequence[str]:
        """The owners of this name whose turn it may be."""
        value, _, now = await self._load(LOCK + key, self._runtime.now() + PATIENCE)
        if value is None:
            return ()
        return [row.claim.owner for row in rules.admissible(self._name(key, value, now).rows)]

    # --- cleaning

    def _count(self, swapped: bool) -> None:  # noqa: FBT001
        self._swaps += swapped
        if self._swaps >= CLEAN_EVERY and self._seen is None:
            self._swaps = 0
            self._cleaner.start()

    async def _clean(self) -> None:
        """Delete documents of idle names and of records that ran out; goes on after the last key the next time."""
        keys = sorted(await self._documents.keys(""))
        due = [key for key in keys if key > self._position][:CLEAN_AT_ONCE]
        for key in due:
            if self._closed:
                return
            if key.startswith((LOCK, RECORD)):
                await self._clean_one(key)
        self._position = due[-1] if len(due) == CLEAN_AT_ONCE else ""

    async def _clean_one(self, document: str) -> None:
        until = self._runtime.now() + PATIENCE
        value, seen, now = await self._load(document, until)
        if value is None:
            return
        if document.startswith(LOCK):
            name = self._name(document.removeprefix(LOCK), value, now)
            is_over = name.rows.is_idle and name.fence < (now - SPARE) * 1_000_000
            if not is_over and name.rows.changed:  # a holder vanished: the time of its mark begins when it is written
                await self._documents.swap(document, write_name(name, self._seen), seen, until)
        else:
            is_over = read_record(value, self.label).is_over(now)
        if is_over:
            await self._documents.swap(document, None, seen, until)


class DocumentBackend(ClocklessBackend):
    """A client's connection to a store of documents: every port, on the store's clock."""

    has_clock = True

    async def read(self, key: str, fence: int = 0) -> Reading:
        return await self._change_record(key, lambda kept, now: kept.read(key, fence, now, now))

    async def write(self, record: Record) -> bool:
        return await self._change_record(record.key, lambda kept, now: kept.write(record, now))

    async def _change_record(self, key: str, verb: Callable[[KeptRecord, float], T]) -> T:
        def change(value: bytes | None, now: float) -> tuple[T, bytes | None]:
            kept = read_record(value, self.label)
            answer = verb(kept, now)
            return answer, None if kept.is_over(now) else write_record(kept)

        return await self._swapped(RECORD + key, math.inf, change)


class _Notifications:
    """Watches the documents of names that this client waits for, and wakes the waiters whose turn it may be."""

    def __init__(self, backend: ClocklessBackend, documents: Notifying, runtime: Runtime) -> None:
        self._backend = backend
        self._documents = documents
        self._signals: dict[str, weakref.WeakValueDictionary[str, Signal]] = {}  # by key, by owner
        self._ends: dict[str, Callable[[], None]] = {}  # by key: what ends its watch
        self._changed: set[str] = set()
        self._worker = Worker(runtime, self._deliver, "leasehold notifications", is_needed=lambda: bool(self._ends))

    async def expect(self, place: Place) -> bool:
        """Wake this waiter from now on; True if the watch of its name has only just begun."""
        key = place.claim.key
        self._signals.setdefault(key, weakref.WeakValueDictionary())[place.claim.owner] = place.signal
        self._worker.start()
        if key in self._ends:
            return False
        end = await self._documents.watch(LOCK + key, lambda: self._note(key))
        if self._ends.setdefault(key, end) is not end:
            end()  # another task was faster
        return True

    async def close(self) -> None:
        """End all watches."""
        await self._worker.close()
        for key in list(self._ends):
            self._end(key)

    def _note(self, key: str) -> None:
        self._changed.add(key)
        self._worker.wake()

    async def _deliver(self) -> None:
        while self._changed:
            await self._notify(self._changed.pop())
        for key in [key for key in list(self._ends) if not self._signals.get(key)]:
            self._end(key)

    async def _notify(self, key: str) -> None:
        signals = self._signals.get(key)
        if not signals:
            return
        try:
            owners = await self._backend.waiters_to_notify(key)
        except BackendError:
            owners = list(signals)  # each finds out for itself
        for owner in owners:
            signal = signals.get(owner)
            if signal is not None:
                signal.set()

    def _end(self, key: str) -> None:
        if not self._signals.get(key):
            self._signals.pop(key, None)
        end = self._ends.pop(key, None)
        if end is not None:
            end()


def _capabilities(documents: Documents, *, has_clock: bool) -> frozenset[Capability]:
    missing = {Capability.SESSION}
    if not isinstance(documents, Notifying):
        missing.add(Capability.PUSH)
    if not has_clock:
        missing.add(Capability.RECORD)
    return frozenset(Capability) - missing
