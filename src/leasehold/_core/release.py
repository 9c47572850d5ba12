"""Releasing a lock: a release may be repeated, because it names its grant.

The call tries for `GRACE`. If the store does not answer by then, the call raises, and the release goes on in the
background until the lease's own deadline, so that the next holder need not wait for the ttl once the store is back.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold._core import events as happened
from leasehold._core.backoff import GRACE, OUTAGE
from leasehold._core.states import HELD, RELEASED, RELEASING
from leasehold._log import is_logged, logger
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold._core.tenure import Tenure

__all__ = ["give_back", "release"]


async def release(opened: OpenClient, tenure: Tenure) -> bool:
    """Release the lock; False if it was already gone. Finishes even when the caller is interrupted.

    When the store does not answer, the lease stays "releasing": it is not renewed, and is tried again, in the
    background and by a second call.
    """
    if tenure.batch is not None and await _is_passed_on(opened, tenure):
        return True
    if not opened.keeper.begin_release(tenure):
        return _freed_meanwhile(tenure)

    runtime = opened.runtime
    limit = runtime.now() + GRACE
    try:
        try:
            return await runtime.shielded(partial(_attempt, opened, tenure, limit))
        except (BackendUnavailable, OutcomeUnknown) as failure:
            return await runtime.shielded(partial(_try_again, opened, tenure, limit, failure))
    except GeneratorExit:
        raise
    except BaseException as failure:
        if tenure.state is RELEASING or isinstance(failure, (BackendError, ClientClosed)):
            text = str(failure) or type(failure).__name__
            opened.events.emit(happened.ReleaseFailed(tenure.name, text, fence=tenure.grant.fence))
        raise


async def give_back(opened: OpenClient, tenure: Tenure, until: float = math.inf) -> None:
    """Release what no caller has got: without a word to listeners, and whatever became of it meanwhile."""
    now = opened.runtime.now()
    opened.keeper.begin_release(tenure)
    if tenure.state is RELEASED:
        return
    try:
        await _attempt(opened, tenure, min(until, now + GRACE), is_reported=False)
    except (BackendUnavailable, OutcomeUnknown):
        _go_on_in_the_background(opened, tenure)
    except (BackendError, ClientClosed):
        logger.debug("could not give back %r; its ttl will free it", tenure.name, exc_info=True)


async def _is_passed_on(opened: OpenClient, tenure: Any) -> bool:  # it is a `LocalTenure`
    """Whether the next one here has it now, or shall have it: there is nothing to release in the store."""
    was_held = tenure.state is HELD
    try:
        passed: bool = tenure.pass_on(opened)
    except GeneratorExit:
        raise
    except BaseException:  # a signal handler raised
        if tenure.state is HELD:
            await release(opened, tenure)
        raise
    if passed and was_held:
        _report_passed_on(opened, tenure)
    return passed and was_held


def _report_passed_on(opened: OpenClient, tenure: Tenure) -> None:
    for watcher in tenure.present_watchers():
        watcher.on_end(None)
    events = opened.events
    if events.listeners or is_logged(happened.Released.level):
        events.released(tenure.name, tenure.grant.fence, True)  # noqa: FBT003 - freed for the next waiter


async def _try_again(opened: OpenClient, tenure: Tenure, limit: float, failure: BackendError) -> bool:
    """Repeat until the limit or the end of the lease; then raise the failure, and go on in the background."""
    runtime, failures = opened.runtime, 0
    while True:
        pause = OUTAGE.delay(failures, runtime.random())
        if runtime.now() + pause >= min(limit, tenure.kept_until):
            _go_on_in_the_background(opened, tenure)
            raise _as_it_stands(tenure, failure)
        await runtime.sleep(pause)
        try:
            return await _attempt(opened, tenure, limit)
        except (BackendUnavailable, OutcomeUnknown) as error:
            failure = error
        failures += 1


async def _attempt(opened: OpenClient, tenure: Tenure, until: float, *, is_reported: bool = True) -> bool:
    """Send one release. After doubt, "gone" within the lease's own time means that an earlier copy freed it.

    Listeners learn of it here, in the shield of the request: also of a release that outlives its caller.
    """
    runtime, backend = opened.runtime, opened.backend
    try:
        answer = await backend.release(tenure.grant, until)
    except OutcomeUnknown:
        tenure.perhaps_freed = True
        raise
    freed = answer is True or (answer is False and tenure.perhaps_freed and runtime.now() < tenure.kept_until)
    if tenure.doubtful:  # a copy of its claim may still be under way, and would take the lock without a holder
        tenure.perhaps_freed = freed
        await backend.withdraw(tenure.grant.claim, until)
    if runtime.switches:
        await runtime.switch()
    if answer is True or answer is False:
        opened.keeper.finish_release(tenure)
    elif opened.keeper.finish_release(tenure, answer) and not tenure.is_parked:
        opened.events.emit(happened.Lost(tenure.name, tenure.grant.fence, answer))
    if not is_reported:
        return freed
    if not freed:
        freed = _freed_meanwhile(tenure)
    events = opened.events
    if events.listeners or is_logged(happened.Released.level):
        events.released(tenure.name, tenure.grant.fence, freed)
    return freed


def _go_on_in_the_background(opened: OpenClient, tenure: Tenure) -> None:
    async def perform(until: float) -> None:
        if not opened.keeper.begin_release(tenure):
            return  # another call of release was faster
        freed = await _attempt(opened, tenure, until, is_reported=False)
        tenure.freed = freed
        if not tenure.is_parked:
            opened.events.released(tenure.name, tenure.grant.fence, freed)

    opened.cleanup.add(tenure.name, perform, tenure.kept_until)


def _as_it_stands(tenure: Tenure, failure: BackendError) -> BackendError:
    """The error to raise: a last try that was surely not applied does not undo the doubt about an earlier one."""
    if not tenure.perhaps_freed or isinstance(failure, OutcomeUnknown):
        return failure
    unknown = OutcomeUnknown(
        f"the lock {tenure.name!r} may be free already: a request to release it got no answer, and now {failure}; the "
        "release is repeated in the background",
        name=tenure.name,
        backend=failure.backend,
    )
    unknown.__cause__ = failure
    return unknown


def _freed_meanwhile(tenure: Tenure) -> bool:
    """Whether a release that went on in the background has freed it; True only once."""
    freed, tenure.freed = tenure.freed, False
    return freed
