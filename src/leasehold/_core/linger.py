"""Lingering: a lock that was released stays with its client for a moment, and the next call there has it at once.

A release *parks* the grant instead of giving it back: the keeper goes on renewing it, and the next call of this client
for the same lock takes it without a request, under the next of the fences that the store keeps free behind that of the
grant (see `local_queue`). The program has released it; for the store this client has it still.

Others wait longer for that, so it is bounded: from the first release of a grant on, it stays for `linger` seconds at
most, however often it is taken meanwhile, and for `MOST` fences. A grant that had to be waited for does not linger:
most likely other clients wait as well. Nor does one that another call of this client wants.

A call that removes a parked tenure from `OpenClient.parked`, under the keeper's guard, is the one that has to use it or
to end it. Assignments without a call between them are one step here: no signal handler runs in there.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

from leasehold._core.backoff import GRACE
from leasehold._core.batch import MOST, Batch, LocalTenure
from leasehold._core.events import Acquired
from leasehold._core.local_acquire import LocalAttempt
from leasehold._core.release import give_back
from leasehold._core.states import HELD, LOST, RELEASED
from leasehold._log import is_logged
from leasehold._record import replace
from leasehold.values import Grant, Refusal

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold._core.tenure import Tenure
    from leasehold._face.lock_spec import LockSpec
    from leasehold.values import Claim

__all__ = ["LingeringAttempt", "LingeringTenure", "end_parked", "take_parked", "unpark"]


class LingeringBatch(Batch):
    """One grant of the store that several calls use, one after the other, although none has waited for another."""

    __slots__ = ("is_ending", "is_parked", "linger", "opened", "taken_by")

    def __init__(self, opened: OpenClient, grant: Grant, linger: float, trusted: float) -> None:
        self.opened: OpenClient = opened
        self.linger: float = linger
        self.left: int = min(grant.spare, MOST)
        self.until: float = math.inf  # set by the first release
        self.trusted: float = trusted
        self.present: weakref.ref[LocalTenure] | None = None
        self.is_parked: bool = False  # its present tenure has no holder
        self.is_ending: bool = False  # it goes back to the store, and to no call any more
        self.taken_by: object = None  # the call that took it last


class LingeringTenure(LocalTenure):
    """A tenure that is parked when it is released; or one that is parked already, and has no holder."""

    __slots__ = ()

    batch: LingeringBatch

    @property
    def is_parked(self) -> bool:  # type: ignore[override]
        """Whether the program has released it: only the store still counts this client as the holder."""
        return self.batch.is_parked

    def next_action(self) -> float:
        """When the keeper has to look again: at the end of its stay too."""
        action = super().next_action()
        return min(action, self.batch.until) if self.batch.is_parked else action

    def pass_on(self, opened: OpenClient) -> bool:
        """Park it for the next call; False if it has to be given back."""
        return _park(opened, self)

    def stop_lingering(self) -> bool:
        """Let no call take it any more; True if it has to be given back."""
        return _stop(self, None)

    async def go_back(self) -> None:
        """Give it back to the store."""
        opened = self.batch.opened
        await give_back(opened, self)


class LingeringAttempt(LocalAttempt):
    """A call of acquire whose lock lingers after its release."""

    __slots__ = ()

    def _fresh_claim(self) -> Claim:
        """With fences for those who take it after this one."""
        self._claim = claim = replace(super()._fresh_claim(), spare=MOST)
        return claim

    async def _accept(self, claim: Claim, answer: Grant | Refusal) -> Tenure | None:
        if isinstance(answer, Refusal) or not answer.spare or self.has_waited or self._doubt:
            return await super()._accept(claim, answer)
        opened, spec, runtime = self._opened, self._spec, self._runtime
        since = self._sent if answer.since is None else answer.since
        tenure = LingeringTenure(spec.name, answer, since, renew=True, max_hold=spec.max_hold)
        if runtime.now() >= tenure.deadline:
            return await super()._accept(claim, answer)  # which withdraws it
        tenure.batch = batch = LingeringBatch(opened, answer, spec.linger, tenure.trusted_until(since, answer.ttl))
        tenure.taker = id(runtime.current())
        batch.present = weakref.ref(tenure)
        opened.keeper.admit(tenure, True)  # noqa: FBT003 - see there
        if opened.events.listeners or is_logged(Acquired.level):
            self._report_acquired(answer)
        return tenure


# --- taking


async def take_parked(opened: OpenClient, spec: LockSpec) -> Tenure | None:
    """The parked lease of this lock, if there is one that can still be used; one that cannot is given back first."""
    parked = opened.parked.get(spec.key)
    if parked is None:
        return None
    call = object()
    try:
        taken = _take(opened, spec, parked, call)
    except GeneratorExit:
        raise
    except BaseException:  # a signal handler raised
        await opened.runtime.shielded(lambda: _end(parked, call))
        raise
    if not taken:
        await opened.runtime.shielded(lambda: _end(parked, call))
        return None
    events = opened.events
    if events.listeners or is_logged(Acquired.level):
        events.acquired(spec.name, parked.grant.fence, 0.0, spec.group, spec.mode._value_, 0)
    return parked


def _take(opened: OpenClient, spec: LockSpec, parked: LingeringTenure, call: object) -> bool:
    """Make this call the holder; False if it may not be."""
    batch, runtime = parked.batch, opened.runtime
    current = id(runtime.current())
    with opened.keeper.guard:
        now = runtime.now()
        if opened.parked.get(spec.key) is not parked or not _suits(opened, spec, parked, now):
            return False
        if spec.max_hold is not None:
            parked.max_hold, parked.ends = spec.max_hold, now + spec.max_hold
            parked.deadline = min(batch.trusted, parked.ends)
        parked.taker = current
        batch.taken_by, batch.is_parked = call, False
        del opened.parked[spec.key]
    return True


def _suits(opened: OpenClient, spec: LockSpec, parked: LingeringTenure, now: float) -> bool:
    """Whether a call of these terms may have it now: with at least half of what the store gave still to go."""
    batch, claim = parked.batch, parked.grant.claim
    is_there = parked.state is HELD and now < batch.until and batch.trusted - now >= parked.grant.ttl / 2
    if not is_there or opened.waiting_calls.is_leaving or spec.key in opened.seen:  # its fence may be too low
        return False
    return spec.in_batches and spec.ttl == claim.ttl and (spec.holder is claim.holder or spec.holder == claim.holder)


# --- parking


def _park(opened: OpenClient, tenure: LingeringTenure) -> bool:
    batch, keeper, key = tenure.batch, opened.keeper, tenure.grant.claim.key
    local = opened.local
    with keeper.guard:
        now = opened.runtime.now()
        tenure.settle(now)
        if tenure.state is not HELD:
            return False
        batch.until = min(batch.until, now + batch.linger)
        is_wanted = local is not None and key in local.queues  # by a call that waits for it
        if is_wanted or opened.waiting_calls.is_leaving or not batch.passes_on(tenure, now):
            return False
        following = _following(tenure)
        batch.is_parked = True
        batch.present = weakref.ref(following)
        keeper.succeed(tenure, following)
        keeper.look_by(batch.until)
        # From here on it is parked; what was interrupted before is done again.
        batch.left, opened.parked[key], tenure.state = batch.left - 1, following, RELEASED
    return True


def _following(before: LingeringTenure) -> LingeringTenure:
    """The tenure of the next holder: the same grant of the store, under the next fence."""
    batch, grant = before.batch, before.grant
    grant = Grant(grant.claim, grant.fence + 1, grant.ttl, grant.since, False, grant.spare - 1)  # noqa: FBT003
    tenure = LingeringTenure(before.name, grant, 0.0, renew=True, max_hold=None)
    tenure.batch, tenure.deadline = batch, batch.trusted
    tenure.due, tenure.ttl, tenure.confirmed = before.due, before.ttl, before.confirmed
    tenure.under_way, tenure.failure = before.under_way, before.failure
    return tenure


# --- ending


async def end_parked(opened: OpenClient, until: float = math.inf) -> None:
    """Give back all that is parked: the client leaves, and no call may take any more."""
    everything, limit = list(opened.parked.values()), min(until, opened.runtime.now() + GRACE)

    async def give_back_all() -> None:
        for parked in everything:
            if parked.state is not LOST and parked.stop_lingering():  # not what was given back with the others
                await give_back(opened, parked, limit)

    await opened.runtime.shielded(give_back_all)


async def unpark(opened: OpenClient, key: str) -> None:
    """Give back the lock of this key if it is parked: a call waits for it that cannot take it."""
    parked = opened.parked.get(key)
    if parked is not None:
        await opened.runtime.shielded(lambda: _end(parked, None))


async def _end(parked: LingeringTenure, call: object) -> None:
    """Give it back, unless a call other than this one took it."""
    if _stop(parked, call):
        await parked.go_back()


def _stop(parked: LingeringTenure, call: object) -> bool:
    """Whether it has to be given back; from then on no call takes it, and it is not renewed. May be repeated."""
    batch, key = parked.batch, parked.grant.claim.key
    opened = batch.opened
    with opened.keeper.guard:
        if opened.parked.get(key) is parked:
            batch.is_ending = True
            del opened.parked[key]
        elif call is not None and batch.taken_by is call:  # it was interrupted before it could use it
            batch.is_ending = batch.is_parked = True
        if batch.is_ending:
            opened.keeper.begin_release(parked)
        return batch.is_ending
