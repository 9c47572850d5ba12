"""One attempt at the work of an idempotency key: replayed, or run under the lock of the key. The async face.

Where the outcome of a request to the store is unknown, the key stays in progress: a later attempt then finds that it
has expired, and `on_expired` decides. Only a block that ended by itself without `complete` drops its record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leasehold._face.hold import Block, lost_error
from leasehold._patterns.idempotency_events import Completed, KeyRefused, NotRecorded, Replayed, Unprotected
from leasehold._patterns.idempotency_states import (
    Begin,
    Entry,
    Phase,
    Step,
    decode,
    fingerprint_of,
    json_text,
    next_step,
)
from leasehold.errors import (
    AcquireTimeout,
    AttemptExpired,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    ResultNotKept,
)
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from types import TracebackType

    from leasehold._core.events import Event
    from leasehold._core.open_client import OpenClient
    from leasehold._durations import Duration
    from leasehold._face.lease import AsyncLease
    from leasehold._patterns.idempotency import AsyncIdempotency
    from leasehold.values import Reading

__all__ = ["AsyncKeyedAttempt"]

_TAKEN = Loss(LossReason.TAKEN, "another attempt with this key began meanwhile, so the result of this one is not kept")


class AsyncKeyedAttempt:
    """One attempt at the work of an idempotency key, good for one block; made by `idempotency.attempt`.

    If it is `replayed`, `result` is what an earlier attempt stored. Otherwise do the work and call `complete`: a block
    that is left without it drops the record, and the next attempt runs.
    """

    def __init__(self, keys: AsyncIdempotency, key: str, fingerprint: object) -> None:
        self._keys = keys
        self._key = key
        self._name = keys._name(key)
        self._fingerprint = fingerprint_of(self._name, fingerprint)
        self._entered = False
        self._lease: AsyncLease | None = None
        self._block: Block | None = None
        self._entry: Entry | None = None  # what is completed: by an earlier attempt, or by this one
        self._replayed = False
        self._abandoned = False
        self._in_doubt = False  # `complete` was called, and its outcome is not known
        self._settled = False  # the key was freed before the end of the block
        self._own: str | None = None
        self._store_ahead = 0.0  # by so much the clock of the store is ahead of ours

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self._key

    @property
    def replayed(self) -> bool:
        """Whether an earlier attempt has completed the work, so that there is nothing to do but to use `result`."""
        return self._replayed

    @property
    def result(self) -> Any:
        """The result that is stored, a JSON value; RuntimeError while the work is not complete.

        `ResultNotKept` if the work was done but its result could not be stored.
        """
        if self._entry is None:
            raise RuntimeError(f"the attempt at {self._name!r} has no result yet; call complete(result) first")
        if not self._entry.kept:
            raise ResultNotKept(
                f"the work of {self._name!r} is done, but its result was too large to be kept, or no JSON value",
                name=self._name,
            )
        return self._entry.result

    @property
    def abandoned(self) -> bool:
        """Whether an earlier attempt with this key vanished, so that its work may be done already, or half done."""
        return self._abandoned

    @property
    def protected(self) -> bool:
        """False if the store did not answer and outage="open" let this attempt run all the same."""
        return self._replayed or self._lease is not None

    @property
    def lease(self) -> AsyncLease | None:
        """The lease of the key's lock, renewed while the block runs; None if replayed or unprotected."""
        return self._lease

    @property
    def fence(self) -> int | None:
        """The fencing token of the lease, for what the work writes to; None if replayed or unprotected."""
        return None if self._lease is None else self._lease.fence

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless the key is ours for another `need` seconds; call it before a side effect."""
        if self._lease is not None:
            self._lease.check(need)

    async def complete(self, result: Any = None) -> Any:
        """Store the result, a JSON value, and return it as every replay will; it is durable when this returns.

        `LeaseLost` if another attempt began meanwhile: its result counts. A `BackendError` leaves open whether it is
        stored. A result that is no JSON value, or too large, is a `ConfigurationError`; the key is completed then
        without a result, so that the work is not done a second time.
        """
        self._check_open()
        try:
            text = json_text(result, f"the result of {self._name!r}")
            if len(text) > self._keys._max_size:
                raise ConfigurationError(
                    f"the result of {self._name!r} has {len(text)} bytes as JSON, and max_size is "
                    f"{self._keys._max_size}; keep less of it, or raise max_size",
                    name=self._name,
                )
        except ConfigurationError as refused:
            refused.add_note("leasehold: the key is completed all the same, without its result")
            await self._finish(None, kept=False)
            raise
        await self._finish(json.loads(text), kept=True)
        return self.result

    async def __aenter__(self) -> AsyncKeyedAttempt:
        if self._entered:
            raise TypeError("this attempt is in use or used up; call attempt() again for another block")
        self._entered = True
        opened = self._keys._client._open()
        try:
            await self._start(opened)
        except (BackendUnavailable, OutcomeUnknown) as failure:
            if self._keys._outage == "closed":
                raise
            self._emit(Unprotected(self._name, str(failure)))
        if self._lease is not None:
            self._block = Block(self._lease)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease, block = self._lease, self._block
        if lease is None or block is None:
            return
        interrupted = error is not None and not isinstance(error, Exception)
        keep = self._entry is not None or self._in_doubt or self._settled or interrupted
        try:
            await block.leave(lease, error, None if keep else self._drop)
        except LeaseLost:
            if self._entry is None or error is not None:
                raise  # what is completed is completed, whatever becomes of the lock

    def __repr__(self) -> str:
        state = "replayed" if self._replayed else "completed" if self._entry else "open"
        return f"<{type(self).__name__} {self._name!r} {state}>"

    # --- the steps

    async def _start(self, opened: OpenClient) -> None:
        """Replay, or take the lock and read again under its fence."""
        keys = self._keys
        deadline = opened.runtime.now() + keys._wait
        reading = await keys._read(opened, self._name)
        if self._next_step(opened, reading, held=False) is Step.REPLAY:
            return
        is_settled = False
        while not is_settled:
            try:
                lease = await keys._lock(self._key)._acquire_until(deadline)
            except AcquireTimeout as busy:
                reading = await keys._read(opened, self._name)  # it may have been completed meanwhile
                if self._next_step(opened, reading, held=False) is not Step.REPLAY:
                    self._emit_if_wanted(KeyRefused(self._name, "in_progress"))
                    raise keys._in_flight(opened, self._name, reading, busy) from None
                return
            is_settled = await self._under(opened, lease)

    async def _under(self, opened: OpenClient, lease: AsyncLease) -> bool:
        """Read again now that no other attempt can begin; keep the lock only if the work is ours.

        False: the work is to begin under another fence. A copy of the record that begins it may still be under way, and
        would be taken for the present one if it came after the result: both have the fence of this lease.
        """
        keys, began, in_doubt = self._keys, False, False
        try:
            reading = await keys._read(opened, self._name, lease.fence)
            if reading.fence > lease.fence:
                raise lost_error(lease, _TAKEN, completed=False)
            step = self._next_step(opened, reading, held=True)
            if step is not Step.REPLAY:
                began, self._abandoned = True, self._abandoned or step is Step.RUN_AGAIN
                self._store_ahead = reading.time - opened.runtime.now()
                entry = Entry(Phase.IN_PROGRESS, self._fingerprint, reading.time, attempt=self._id(opened))
                outcome = await keys._begin(opened, lease, entry)
                if outcome is Begin.TAKEN:
                    raise lost_error(lease, _TAKEN, completed=False)
                in_doubt = outcome is Begin.IN_DOUBT
                if not in_doubt:
                    self._lease = lease
                    return True
                if not self._abandoned:  # another attempt may come first, and must not take it for one that vanished
                    await self._drop_record(lease, 0.0)
        except GeneratorExit:
            raise  # nothing can be awaited any more; the ttl frees the lock
        except BaseException:
            if began and not self._abandoned:  # the work was not begun: try once to take the record back
                await self._drop_record(lease, 0.0)
            await _let_go(lease)
            raise
        await _let_go(lease)
        return not in_doubt

    def _id(self, opened: OpenClient) -> str:
        """What tells the records of this attempt from those of others."""
        self._own = self._own or opened.runtime.owner()
        return self._own

    def _next_step(self, opened: OpenClient, reading: Reading, *, held: bool) -> Step:
        """What to do about this reading; raises where the answer is no."""
        entry = decode(None if reading.record is None else reading.record.value)
        step = next_step(entry, self._fingerprint, self._keys._on_expired, held=held, attempt=self._own)
        facts = {"name": self._name, "backend": opened.backend.label}
        if step is Step.REUSED:
            self._emit_if_wanted(KeyRefused(self._name, "mismatch"))
            raise KeyReused(
                f"{self._name!r} was used before with another payload; use a new key for other work", **facts
            )
        if step is Step.REFUSE:
            self._emit_if_wanted(KeyRefused(self._name, "expired"))
            raise AttemptExpired(
                f"an earlier attempt at {self._name!r} vanished, and its work may be done or not; find out, then call "
                "forget(key) to allow another attempt",
                **facts,
            )
        if step is Step.REPLAY:
            self._entry, self._replayed = entry, True
            if opened.events.wanted(Replayed):
                opened.events.emit(Replayed(self._name))
        return step

    def _check_open(self) -> None:
        if not self._entered:
            raise RuntimeError("complete() belongs inside the block of its attempt")
        if self._entry is not None:
            how = "was replayed" if self._replayed else "is completed"
            raise RuntimeError(f"the attempt at {self._name!r} {how} already; its result never changes")

    async def _finish(self, result: Any, *, kept: bool) -> None:
        """Write that the work is done; it counts only once the store has confirmed it under our fence.

        The lease may be over: while no later holder has read under its own fence, the result is still the only one.
        """
        lease, block, keys = self._lease, self._block, self._keys
        if lease is None or block is None:  # unprotected: there is no fence to write it under
            self._entry = Entry(Phase.COMPLETED, self._fingerprint, 0.0, result, kept)
            return
        opened = lease._opened
        entry = Entry(Phase.COMPLETED, self._fingerprint, self._store_ahead + opened.runtime.now(), result, kept)
        self._in_doubt = True
        lease._unwatch(block)  # the work is done: a loss must not interrupt what follows
        patience = max(lease.remaining(), opened.connect_timeout)
        try:
            if not await opened.runtime.shielded(lambda: keys._write(opened, lease, entry, patience)):
                raise lost_error(lease, _TAKEN, completed=True)
        except BackendError as failure:
            failure.add_note(f"leasehold: the work of {self._name!r} is done, but its result may not be stored")
            if keys._outage == "closed" or not isinstance(failure, BackendUnavailable | OutcomeUnknown):
                raise
            self._emit(NotRecorded(self._name, str(failure)))
        else:
            self._emit_if_wanted(Completed(self._name, lease.fence))
        self._entry = entry

    async def _settle(self) -> None:
        """The outcome is known: drop the record if there is no result, and free the key before the end of the block."""
        lease, block = self._lease, self._block
        if lease is None or block is None or lease.loss is not None:
            return
        lease._unwatch(block)
        if self._entry is None and not self._in_doubt:
            await self._drop_record(lease, lease.remaining())
        self._settled = True
        await _let_go(lease)

    async def _drop(self) -> None:
        """The block ended without a result: the next attempt runs."""
        if self._lease is not None:
            await self._drop_record(self._lease, self._lease.remaining())

    async def _drop_record(self, lease: AsyncLease, patience: float) -> None:
        """Write that there is nothing; where that fails, the key stays in progress."""
        opened, entry = lease._opened, Entry(Phase.DROPPED, None, 0.0)
        try:
            await opened.runtime.shielded(lambda: self._keys._write(opened, lease, entry, patience))
        except BackendError as failure:
            self._emit(NotRecorded(self._name, str(failure)))

    def _emit_if_wanted(self, event: Event) -> None:
        if self._keys._client._events.wanted(type(event)):
            self._emit(event)

    def _emit(self, event: Event) -> None:
        self._keys._client._events.emit(event)


async def _let_go(lease: AsyncLease) -> None:
    """Release a lock that was not used; if the store does not answer, the ttl frees it."""
    try:
        await lease.release()
    except BackendError:
        return
