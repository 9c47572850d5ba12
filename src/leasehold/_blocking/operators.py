"""`Operators`: the blocking twin of `leasehold._face.operators`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._runtimes.threads import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._durations import Duration
    from leasehold._face.client import AsyncClient
    from leasehold._face.held import Held
    from leasehold.findings import Finding
    from leasehold.values import LastRun, LockState

__all__ = ["Operators"]


class Operators:
    """What operators ask of a client; a part of `Client`, which has what is named here."""

    _twin: AsyncClient

    def held(self) -> tuple[Held, ...]:
        """The leases that this client holds now, by its own clock, in all threads; no I/O."""
        return self._twin.held()

    def inspect(self, name: str) -> LockState | None:
        """The holders and the waiters of the lock; None when there are none."""
        return run(self._twin.inspect(name))

    def examine(self) -> Sequence[Finding]:
        """How well the store is set up for locks; empty where it has no findings. Changes nothing."""
        return run(self._twin.examine())

    def locks(self, prefix: str = "") -> Sequence[LockState]:
        """All locks of this namespace that are in use and whose name starts with `prefix`."""
        return run(self._twin.locks(prefix))

    def break_lock(self, name: str, *, fence: int, reason: str, by: str | None = None, now: bool = False) -> bool:
        """End the grant with this fence, by an operator's order; False when it is not held with that fence.

        The holder learns of it with its next renewal, and may still be running until then: the next holder waits until
        the ttl is over, unless `now`. The reason is stored, logged and shown to the old holder.
        """
        return run(self._twin.break_lock(name, fence=fence, reason=reason, by=by, now=now))

    def raise_fence(self, name: str, fence: int, *, reason: str, by: str | None = None) -> int:
        """Make every later grant of the name higher than `fence`, by an operator's order; returns the new floor.

        For a resource that has seen a higher fence than the store gives out, after the store was restored from a backup
        or replaced by another. A fence cannot be lowered again.
        """
        return run(self._twin.raise_fence(name, fence, reason=reason, by=by))

    def highest_fence(self, name: str | None = None) -> int:
        """A number that no grant of the name has exceeded so far; without a name, of all whose fence was never raised.

        For comparing with what a resource has seen, and for moving to another store. It takes the lock of a name that
        is free: stores forget the number of an idle name, but not that the next one has to be higher.
        """
        return run(self._twin.highest_fence(name))

    def pause(self, name: str, *, reason: str, by: str | None = None, duration: Duration | None = None) -> None:
        """Grant the name no more, by an operator's order: until `resume`, or for `duration`.

        Who holds it keeps it and may renew it. A refusal says why and by whom (`Paused`); a waiter goes on waiting, and
        gets it when the pause is over. It outlives this process. Pausing again replaces the pause.
        """
        run(self._twin.pause(name, reason=reason, by=by, duration=duration))

    def resume(self, name: str, *, by: str | None = None) -> bool:
        """End the pause of a name, by an operator's order: the next waiter gets it. False if it was not paused."""
        return run(self._twin.resume(name, by=by))

    def last_run(self, name: str, *, slot: str | None = None) -> LastRun | None:
        """The last run of a `once` job that ended, or the last one for this slot; None where nothing is remembered.

        A run is remembered for as long as its slot is; the last of a job with labels, or one that failed, for a month.
        """
        return run(self._twin.last_run(name, slot=slot))

    def forget(self, name: str, *, slot: str, reason: str, by: str | None = None) -> bool:
        """Drop the record of a slot of a `once` job, by an operator's order, so that the slot can run again.

        False if the slot is not remembered. `AlreadyRunning` while the job runs; a paused job can be made to forget.
        """
        return run(self._twin.forget(name, slot=slot, reason=reason, by=by))
