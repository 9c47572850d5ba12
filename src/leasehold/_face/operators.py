"""What operators ask of a client and order it to do: look at locks and jobs, break, pause, forget. The async face."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar, cast

from leasehold._core import events as happened
from leasehold._core.capabilities import inspecting, operating, pausing
from leasehold._core.names import MAX_FACT_CHARACTERS, check_fact, check_name, key_for, name_of
from leasehold._durations import ttl_seconds
from leasehold._face.lock_spec import is_whole
from leasehold._face.operator_events import Broken, NamePaused, NameResumed, RunForgotten
from leasehold._record import replace
from leasehold.errors import BackendUnavailable, ConfigurationError, OutcomeUnknown
from leasehold.spi import Examining
from leasehold.values import MAX_FENCE, UNLIMITED, Holder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leasehold._core.events import Events
    from leasehold._core.open_client import OpenClient
    from leasehold._core.open_clients import OpenClients
    from leasehold._durations import Duration
    from leasehold._face.client import AsyncClient
    from leasehold._face.held import Held
    from leasehold.findings import Finding
    from leasehold.values import LastRun, LockState

__all__ = ["AsyncOperators"]

PROBE = "leasehold/fence/"  # what follows is random: two who look at the same time do not meet
PROBE_PATIENCE = 60.0  # new nodes of Redlock do not vote for half a minute
ROOM_FOR_FENCES = 2**40  # a fence raised to the very end would leave none for the grants after it

R = TypeVar("R")


class AsyncOperators:
    """What operators ask of a client; a part of `AsyncClient`, which has what is named here."""

    _namespace: str
    _events: Events
    _open: Callable[[], OpenClient]
    _open_clients: OpenClients
    _holder: Callable[[str | None], Holder]

    def held(self) -> tuple[Held, ...]:
        """The leases that this client holds now, by its own clock, in all threads and tasks; no I/O."""
        from leasehold._face.held import held_by  # noqa: PLC0415 - loaded only when it is used

        return held_by(opened.keeper for opened in self._open_clients.all())

    async def inspect(self, name: str) -> LockState | None:
        """The holders and the waiters of the lock; None when there are none."""
        key = key_for(self._namespace, check_name(name))
        state = await _read(inspecting(self._open().backend).inspect, key)
        return None if state is None else _named(state)

    async def locks(self, prefix: str = "") -> Sequence[LockState]:
        """All locks of this namespace that are in use and whose name starts with `prefix`."""
        states = await _read(inspecting(self._open().backend).list, key_for(self._namespace, prefix))
        return [_named(state) for state in states]

    async def examine(self) -> Sequence[Finding]:
        """How well the store is set up for locks; empty where it has no findings. Changes nothing."""
        backend = self._open().backend
        return await backend.examine() if isinstance(backend, Examining) else []

    async def break_lock(self, name: str, *, fence: int, reason: str, by: str | None = None, now: bool = False) -> bool:
        """End the grant with this fence, by an operator's order; False when it is not held with that fence.

        The holder learns of it with its next renewal, and may still be running until then: the next holder waits until
        the ttl is over, unless `now`. The reason is stored, logged and shown to the old holder.
        """
        if not is_whole(fence) or not 1 <= fence <= MAX_FENCE:
            raise ConfigurationError(f"fence must be the number that inspect() shows, not {fence!r}")
        if not reason or not check_fact(reason, "reason"):
            raise ConfigurationError("breaking a lock needs a reason, which its holder will be shown")
        author = check_fact(by, "by") or str(self._holder(None))
        key = key_for(self._namespace, check_name(name))
        broken = await operating(self._open().backend).break_(key, fence, f"{reason} (by {author})", now=now)
        if broken:
            self._events.emit(Broken(name, fence, reason, author))
        return broken

    async def raise_fence(self, name: str, fence: int, *, reason: str, by: str | None = None) -> int:
        """Make every later grant of the name higher than `fence`, by an operator's order; returns the new floor.

        For a resource that has seen a higher fence than the store gives out, after the store was restored from a
        backup or replaced by another. A fence cannot be lowered again.
        """
        if not is_whole(fence) or not 1 <= fence <= MAX_FENCE - ROOM_FOR_FENCES:
            raise ConfigurationError(f"fence must be the number that the resource has seen, not {fence!r}")
        if not reason or not check_fact(reason, "reason"):
            raise ConfigurationError("raising a fence needs a reason, which is logged")
        author = check_fact(by, "by") or str(self._holder(None))
        highest = await operating(self._open().backend).raise_fence(key_for(self._namespace, check_name(name)), fence)
        self._events.emit(happened.FenceRaised(name, highest, reason, author))
        return highest

    async def highest_fence(self, name: str | None = None) -> int:
        """A number that no grant of the name has exceeded so far; without a name, of all whose fence was never raised.

        For comparing with what a resource has seen, and for moving to another store. It takes the lock of a name that
        is free: stores forget the number of an idle name, but not that the next one has to be higher.
        """
        kept = 0
        if name is not None:
            kept = await operating(self._open().backend).raise_fence(key_for(self._namespace, check_name(name)), 1)
        client = cast("AsyncClient", self)
        async with client.lock(f"{PROBE}{os.urandom(8).hex()}").hold(timeout=PROBE_PATIENCE) as lease:
            return max(kept, lease.fence)

    async def pause(self, name: str, *, reason: str, by: str | None = None, duration: Duration | None = None) -> None:
        """Grant the name no more, by an operator's order: until `resume`, or for `duration`.

        Who holds it keeps it and may renew it. A refusal says why and by whom (`Paused`); a waiter goes on waiting, and
        gets it when the pause is over. It outlives this process. Pausing again replaces the pause.
        """
        if not reason or not check_fact(reason, "reason"):
            raise ConfigurationError("pausing a name needs a reason, which those who ask for it will be shown")
        author = check_fact(by, "by") or str(self._holder(None))
        seconds = None if duration is None else ttl_seconds(duration, "duration")
        own = self._holder(reason)
        holder = Holder(own.host, own.pid, author[:MAX_FACT_CHARACTERS], reason)
        key = key_for(self._namespace, check_name(name))
        store = pausing(self._open().backend)
        await _repeated(lambda: store.pause(key, holder, UNLIMITED if seconds is None else seconds))
        self._events.emit(NamePaused(name, reason, author, seconds))

    async def resume(self, name: str, *, by: str | None = None) -> bool:
        """End the pause of a name, by an operator's order: the next waiter gets it. False if it was not paused."""
        author = check_fact(by, "by") or str(self._holder(None))
        key = key_for(self._namespace, check_name(name))
        resumed = await pausing(self._open().backend).resume(key)
        if resumed:
            self._events.emit(NameResumed(name, author))
        return resumed

    async def last_run(self, name: str, *, slot: str | None = None) -> LastRun | None:
        """The last run of a `once` job that ended, or the last one for this slot; None where nothing is remembered.

        A run is remembered for as long as its slot is; the last of a job with labels, or one that failed, for a month.
        """
        from leasehold._patterns.job_records import last_run  # noqa: PLC0415 - loaded only when it is used

        return await last_run(cast("AsyncClient", self), check_name(name), slot)

    async def forget(self, name: str, *, slot: str, reason: str, by: str | None = None) -> bool:
        """Drop the record of a slot of a `once` job, by an operator's order, so that the slot can run again.

        False if the slot is not remembered. `AlreadyRunning` while the job runs; a paused job can be made to forget.
        """
        from leasehold._patterns.job_records import forget  # noqa: PLC0415 - loaded only when it is used

        if not reason or not check_fact(reason, "reason"):
            raise ConfigurationError("forgetting a slot needs a reason, which is logged and shown by last_run()")
        author = check_fact(by, "by") or str(self._holder(None))
        forgotten = await forget(cast("AsyncClient", self), check_name(name), slot, f"{reason} (by {author})")
        if forgotten:
            self._events.emit(RunForgotten(name, slot, reason, author))
        return forgotten


async def _repeated(call: Callable[[], Awaitable[None]]) -> None:
    """Send an order that may be sent twice; once more if its answer was lost."""
    try:
        await call()
    except (BackendUnavailable, OutcomeUnknown):
        await call()


async def _read(call: Callable[[str], Awaitable[R]], key: str) -> R:
    """The answer. A read changes nothing: if its connection broke it is sent again, and nothing is in doubt."""
    try:
        return await call(key)
    except (BackendUnavailable, OutcomeUnknown):
        pass
    try:
        return await call(key)
    except OutcomeUnknown as error:
        raise BackendUnavailable(str(error), backend=error.backend) from None


def _named(state: LockState) -> LockState:
    return replace(state, name=name_of(state.name))
