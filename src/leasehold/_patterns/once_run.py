"""One run of a `once` job: the slot that is ours, and what is written about it. The async face."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from leasehold._face.hold import Block
from leasehold._patterns.job_records import LAST_KEPT, finished_facts, last_key
from leasehold._patterns.pattern_events import RunEnded
from leasehold._patterns.retry import retry_until
from leasehold.errors import BackendError
from leasehold.values import Loss, LossReason, Record

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold._durations import Duration
    from leasehold._face.lease import AsyncLease, AsyncLost
    from leasehold._patterns.once import AsyncOnce
    from leasehold._patterns.slots import Slot
    from leasehold.spi import Recording

__all__ = ["TAKEN", "AsyncRun", "Order"]

TAKEN = Loss(LossReason.TAKEN, "another run of this job began meanwhile, so this one was not recorded")


class Order(NamedTuple):
    """An operator's order to run a slot once more."""

    reason: str
    by: str

    def __str__(self) -> str:
        return f"{self.reason} (by {self.by})"


class AsyncRun:
    """A slot that is ours: the block runs under the lease of the job's lock."""

    def __init__(
        self,
        job: AsyncOnce,
        opened: OpenClient,
        lease: AsyncLease,
        *,
        slot: Slot,
        key: str,
        time: float,
        order: Order | None = None,
    ) -> None:
        self._job = job
        self._order = order
        self._opened = opened
        self._lease = lease
        self._slot = slot
        self._key = key
        self._time, self._since = time, opened.runtime.now()
        self._failed = False
        self._recorded = False  # the store confirmed it

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._lease.name

    @property
    def slot(self) -> str:
        """The slot that this run is for: the local time at which it begins, or the caller's own label."""
        return self._slot.label

    @property
    def lease(self) -> AsyncLease:
        """The lease of the job's lock, which is renewed while the block runs."""
        return self._lease

    @property
    def fence(self) -> int:
        """The fencing token of the lease."""
        return self._lease.fence

    @property
    def lost(self) -> AsyncLost:
        """Whether the lease is lost, so that another run may have begun: `is_set()` and `wait(timeout)`."""
        return self._lease.lost

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless the lease is ours for another `need` seconds; call it before a side effect."""
        self._lease.check(need)

    def fail(self) -> None:
        """Count this run as failed although the block ends without an exception."""
        self._failed = True

    def __bool__(self) -> Literal[True]:
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} slot={self.slot!r} fence={self.fence}>"

    def _enter(self) -> None:
        self._block = Block(self._lease)

    async def _leave(self, error: BaseException | None) -> None:
        """Record the run, then release; raise `LeaseLost` if it could not be recorded as ours."""
        interrupted = error is not None and not isinstance(error, Exception)
        failed = self._failed or error is not None
        try:
            if interrupted:
                await self._block.leave(self._lease, error)
            else:
                await self._block.leave(self._lease, error, lambda: self._record(error, failed=failed))
        finally:
            self._report(failed=failed)

    def _report(self, *, failed: bool) -> None:
        """Tell listeners of the end of the run."""
        opened, job = self._opened, self._job._options.get("group") or self.name
        if opened.events.wanted(RunEnded):
            took = opened.runtime.now() - self._since
            opened.events.emit(RunEnded(self.name, job, self.slot, self.fence, took, failed, self._recorded))

    async def _record(self, error: BaseException | None, *, failed: bool) -> Loss | None:
        """Write what became of the run, under the lease."""
        closed = not failed or self._job._on_failure == "close"
        now = self._opened.runtime.now()
        facts = finished_facts(
            self._slot,
            self._lease.holder,
            began=self._time,
            finished=self._time + (now - self._since),
            fence=self.fence,
            failed=failed,
            closed=closed,
            again=None if self._order is None else str(self._order),
        )
        loss = await self._close_slot(json.dumps(facts).encode(), error) if closed else None
        if loss is None and (not closed or self._slot.start is None):
            noted = await self._write_last_run(json.dumps(facts).encode())
            self._recorded = noted if not closed else self._recorded
        return loss

    async def _close_slot(self, facts: bytes, error: BaseException | None) -> Loss | None:
        """Write that the slot is done; it counts only if the store confirmed it under our fence."""
        opened = self._opened
        record = Record(self._key, facts, self.fence, max(self._slot.keep, self._job._keep))
        until = opened.runtime.now() + self._lease.remaining()
        store = cast("Recording", opened.backend)

        async def write() -> bool:
            return await retry_until(until, opened, self.name, lambda: store.write(record))

        try:
            self._recorded = await opened.runtime.shielded(write)
        except BackendError as failure:
            text = f"the run of {self.name!r} for slot {self.slot} ended, but may not be recorded: it may run again"
            if error is None:
                failure.add_note(f"leasehold: {text}")
                raise
            error.add_note(f"leasehold: {text}: {failure}")
            return None
        return None if self._recorded else TAKEN

    async def _write_last_run(self, facts: bytes) -> bool:
        """Write what `last_run` shows; whether the store confirmed it. Nothing depends on it: it is tried once."""
        store, key = cast("Recording", self._opened.backend), last_key(self._job._client._namespace, self.name)
        try:
            return await store.write(Record(key, facts, self.fence, LAST_KEPT))
        except BackendError:
            return False
