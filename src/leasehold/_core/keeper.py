"""The keeper: one worker per client that renews every lease in time and notifies each holder of a loss.

It has only weak references to leases, so that a lease the program has dropped is not renewed. It never waits for the
store itself: each batch of renewals is a task of its own, so that a store that hangs cannot delay the notice of a loss
at its deadline. Nor does it wait for code of the user's: `on_lost`, listeners and log handlers run in other tasks, and
may hang there. It never sleeps longer than a second, because timers stop while the host is suspended.

The worker starts with the first lease and ends when it has been idle for a while.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any
from warnings import warn
from weakref import WeakSet

from leasehold._core import events as happened
from leasehold._core.event_dispatcher import EventDispatcher
from leasehold._core.renewals import BatchKnown, Known, Renewals
from leasehold._core.stacklevel import user_stacklevel
from leasehold._core.states import FREED, HELD, LOST, RELEASE, RELEASING, TRANSITIONS
from leasehold._core.tenure import notify
from leasehold._core.validity import hedge_after
from leasehold._log import logger
from leasehold.errors import ClientClosed
from leasehold.spi import Alerting
from leasehold.values import Grant, Loss, LossReason

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from leasehold._core.events import Events
    from leasehold._core.linger import LingeringTenure
    from leasehold._core.tenure import Tenure
    from leasehold.spi import Backend, Runtime, Task

__all__ = ["KEEPERS", "Keeper"]

LONGEST_SLEEP = 1.0
HURRY = 0.05  # half of the time after which a lease that was granted for short is renewed
LINGER = 1.0  # how long an idle worker stays, so that a loop of short holds does not start it each time
BUNDLE = 1 / 30  # renewals due within this part of a ttl go along with one that is due now
CLOSE_PATIENCE = 5.0


class Keeper:
    """Keeps the leases of one client."""

    def __init__(self, runtime: Runtime, backend: Backend, events: Events) -> None:
        self._runtime = runtime
        self._events = events
        self._signal = runtime.signal()
        self._dispatcher = EventDispatcher(runtime, events)
        self.renewals: Renewals = Renewals(runtime, backend, events, self._dispatcher, self._signal)
        self.guard: AbstractContextManager[Any] = self.renewals.guard
        self._known: dict[int, Known] = {}
        self._dropped: deque[Known] = deque()  # finalizers only append here: taking the guard in one could deadlock
        self._over: list[LingeringTenure] = []  # parked for long enough
        self._decided: list[Tenure] = []  # lost by their holders' own clock; kept until the loss is reported
        self._numbers = 0
        self._worker: Task | None = None
        self._wake = math.inf
        self._hurried = False  # a lease was admitted that needs attention before the worker would have looked
        self._idle_since: float | None = None
        self._closed = False
        self._notifier: Task | None = None  # the last task that notified of losses
        KEEPERS.add(self)
        if isinstance(backend, Alerting):
            backend.on_alert(self.renew_soon)

    # --- what the faces call; plain functions, so nothing can await inside a guard

    def admit(self, tenure: Tenure, in_batch: bool = False) -> None:  # noqa: FBT001, FBT002 - keywords cost time here
        """Keep this lease from now on."""
        if in_batch:
            known: Known = BatchKnown(tenure, self._dropped.append)
            known.batch = tenure.batch  # type: ignore[attr-defined]
        else:
            known = Known(tenure, self._dropped.append)
        known.name, known.fence = tenure.name, tenure.grant.fence
        with self.guard:
            if self._closed:
                raise ClientClosed(name=tenure.name)
            self._numbers += 1
            known.number = tenure.number = self._numbers
            self._known[tenure.number] = known
            if self._worker is None:
                self._idle_since = None
                self._worker = self._runtime.spawn(self._work(), "leasehold keeper")
            elif tenure.due < self._wake or tenure.deadline < self._wake:
                self._hurried = True
                self._signal.set()
        if tenure.ttl != tenure.grant.claim.ttl:
            self.renewals.ttl_warnings.note(tenure)

    def succeed(self, before: Tenure, following: Tenure) -> None:
        """Keep this lease instead of the one that was passed on to it; the caller has the guard."""
        known = BatchKnown(following, self._dropped.append)
        known.name, known.fence, known.batch = following.name, following.grant.fence, following.batch
        self._numbers += 1
        known.number = following.number = self._numbers
        self._known[following.number] = known
        self._known.pop(before.number, None)
        if following.deadline < self._wake:
            self._signal.set()

    def look_by(self, instant: float) -> None:
        """Look at that instant at the latest; the caller has the guard."""
        if instant < self._wake:
            self._signal.set()

    def decide(self, tenure: Tenure) -> Loss | None:
        """Whether the lease is lost now, by the clock; the worker then notifies its watchers and listeners."""
        with self.guard:
            loss = tenure.settle(self._runtime.now())
            if loss is not None and tenure.number in self._known:
                self._decided.append(tenure)  # its holder may let go of it before the worker has looked
                self._signal.set()
        return loss

    def begin_release(self, tenure: Tenure) -> bool:
        """Stop renewing; True if a release has to be sent to the store."""
        with self.guard:
            tenure.settle(self._runtime.now())
            tenure.state = TRANSITIONS[tenure.state, RELEASE]
            if tenure.state is LOST:
                # The store may still keep what only our own clock or max_hold ended.
                return tenure.loss is not None and tenure.loss.reason in _LOCAL_LOSSES
            self._known.pop(tenure.number, None)  # nothing to renew or to report, even if the release fails
            return tenure.state is RELEASING

    def finish_release(self, tenure: Tenure, broken: Loss | None = None) -> bool:
        """The store confirmed that nothing is held any more; True if `broken` is the first its holder learns of it."""
        with self.guard:
            lost = tenure.loss
            news = broken is not None and tenure.state is RELEASING
            tenure.state = TRANSITIONS[tenure.state, FREED]
            if news:
                tenure.loss = broken
        if tenure.watchers:
            for watcher in tenure.present_watchers():
                watcher.on_end(lost)  # not the break: a holder that has released must not be interrupted
        return news

    def end_all(self, loss: Loss) -> list[Tenure]:
        """Admit none any more, and end every lease that is held; the caller notifies their holders."""
        with self.guard:
            self._closed = True
            return self._lose_all(loss, self._runtime.now(), forget=True)

    async def close(self, limit: float = math.inf) -> None:
        """Stop. Leases still held are lost at once for their holders, and left to their ttl in the store."""
        now = self._runtime.now()
        with self.guard:
            self._closed = True
            lost = self._lose_all(Loss(LossReason.CLOSED, "its client was closed"), now)
            worker = self._worker
        names = [tenure.name for tenure in lost if not tenure.is_parked]
        del lost
        self._signal.set()
        deadline = min(now + CLOSE_PATIENCE, limit)
        if worker is not None:
            await worker.join(deadline)
        if self._notifier is not None:
            await self._notifier.join(deadline)
        await self._dispatcher.finish(deadline)
        if names:  # last, because a program may have its warnings raised
            advice = "release every lease before close(), or use `with lock.hold():`"
            warn(f"the client was closed while it held {_some(names)}; {advice}", ResourceWarning, user_stacklevel())

    def abandon(self) -> None:
        """The event loop is over, and with it the worker: what is still held counts as dropped. No I/O."""
        with self.guard:
            self._closed = True
            lost = self._lose_all(Loss(LossReason.CLOSED, "its event loop has ended"), forget=True)
        self._signal.set()  # a loop that was only stopped may run again
        self._worker = self._notifier = None
        lost = [tenure for tenure in lost if not tenure.is_parked]  # its ttl frees what the program has released
        for tenure in lost:
            self._events.emit(happened.Dropped(tenure.name, tenure.grant.fence))
        if lost:
            held = _some([tenure.name for tenure in lost])
            advice = "release every lease before, or use `async with lock.hold():`"
            warn(f"an event loop ended while {held} was held on it; {advice}", ResourceWarning, user_stacklevel())

    def bury(self) -> None:
        """Give up all leases in a forked child: they are the parent's. No I/O, no locks of the parent's threads."""
        self.guard = self.renewals.guard = self._runtime.guard()
        self._closed = True
        self._lose_all(Loss(LossReason.FORKED, "this is a child process; the lease belongs to its parent"))
        self._known = {}
        self._dropped.clear()
        self._notifier = None
        self._dispatcher.bury()

    def renew_soon(self) -> None:
        """Renew every lease now: the store has reason to doubt them."""
        now = self._runtime.now()
        for tenure in self.tenures():
            with self.guard:
                tenure.due = min(tenure.due, now)
        self._signal.set()

    def lose(self, tenure: Tenure, loss: Loss) -> None:
        """End a lease for a reason that was found elsewhere; its holder is notified at once."""
        with self.guard:
            tenure.lose(loss)
        self._signal.set()

    @property
    def held(self) -> int:
        """How many leases are kept."""
        return len(self._known)

    def is_quiet(self) -> bool:
        """Whether nothing is due and no renewal is under way, for tests that turn the clock by hand."""
        now = self._runtime.now()
        return all(not tenure.under_way and tenure.next_action() > now for tenure in self.tenures())

    def tenures(self) -> list[Tenure]:
        """The leases that are kept and still exist."""
        with self.guard:
            all_known = list(self._known.values())
        return [tenure for known in all_known if (tenure := known()) is not None]

    def _lose_all(self, loss: Loss, now: float = -math.inf, *, forget: bool = False) -> list[Tenure]:
        """End every lease that is held, and was not over by `now` before the worker looked; returns them."""
        lost = []
        for tenure in self.tenures():
            tenure.settle(now)
            if tenure.state is HELD:
                tenure.lose(loss)
                lost.append(tenure)
                if forget:
                    self._known.pop(tenure.number, None)
        return lost

    # --- the worker

    async def _work(self) -> None:
        try:
            while True:
                now = self._runtime.now()
                self._signal.clear()
                self._wake = self._attend(now)
                if self._hurried:  # more with little time may follow, each over before the next: look once for all
                    self._hurried, self._wake = False, min(self._wake, now + HURRY)
                if self._retire(now):
                    return
                await self._runtime.wait(self._signal, self._wake)
        except BaseException:  # the event loop is shut down: `admit` must not count on this worker any more
            self._worker = None
            raise

    def _attend(self, now: float) -> float:
        """Do what is due; returns when to look again. An error here must not end the renewal of other leases."""
        try:
            self._note_lateness(now, self._wake)
            self._wake = math.inf  # a lease that is admitted during the survey must wake the worker
            with self.guard:
                decided, self._decided = self._decided, []
            self._forget_dropped()
            lost, due, wake = self._survey(now)
            del decided
            self._end_stays()
            if lost:
                self._notifier = self._runtime.spawn(notify(lost), "leasehold loss")
            for tenure in lost:
                if tenure.loss is not None:
                    self._dispatcher.dispatch(happened.Lost(tenure.name, tenure.grant.fence, tenure.loss))
            if due:
                self._runtime.spawn(self.renewals.renew(due, now), "leasehold renewal")
        except Exception:
            logger.exception("the keeper failed and goes on; this is a defect of leasehold, please report it")
            return now + LONGEST_SLEEP
        return wake

    def _survey(self, now: float) -> tuple[list[Tenure], list[tuple[Known, Grant]], float]:
        """The leases that are over, those to renew, and when the next one needs attention."""
        lost: list[Tenure] = []
        due: list[tuple[Known, Grant]] = []
        wake = now + LONGEST_SLEEP
        with self.guard:
            all_known = list(self._known.values())
        bundle = any((tenure := known()) is not None and tenure.wants_renewal(now) for known in all_known)
        for known in all_known:
            tenure = known()
            if tenure is None:
                continue
            if tenure.state is LOST or now >= tenure.deadline:
                if self._end(tenure, now):
                    (self._over if tenure.is_parked else lost).append(tenure)  # type: ignore[arg-type]
                continue
            if tenure.is_parked and now >= tenure.batch.until:  # type: ignore[union-attr]
                self._over.append(tenure)  # type: ignore[arg-type]
                continue
            if tenure.wants_renewal(now, tenure.grant.claim.ttl * BUNDLE if bundle else 0.0):
                with self.guard:
                    tenure.renewal_sent(now, hedge_after(tenure.grant.claim.ttl, self.renewals.usual))
                due.append((known, tenure.grant))
            wake = min(wake, tenure.next_action())
        return lost, due, wake

    def _end_stays(self) -> None:
        """Give back what was parked for long enough: in a task, as the store may not answer."""
        over, self._over = [parked for parked in self._over if parked.stop_lingering()], []

        async def go_back() -> None:
            for parked in over:
                await parked.go_back()

        if over:
            self._runtime.spawn(go_back(), "leasehold linger")

    def _end(self, tenure: Tenure, now: float) -> bool:
        """Stop keeping a lease that is over; True if its holder has to be notified."""
        with self.guard:
            tenure.settle(now)
            return self._known.pop(tenure.number, None) is not None and tenure.state is LOST

    def _note_lateness(self, now: float, planned: float) -> None:
        late = now - planned
        for known in list(self._known.values()) if late > LONGEST_SLEEP / 10 else ():
            tenure = known()
            if tenure is not None and tenure.renewable and late > tenure.grant.claim.ttl / 3:
                self._dispatcher.dispatch(happened.KeeperLate(tenure.name, late))
                return

    def _forget_dropped(self) -> None:
        while self._dropped:
            known = self._dropped.popleft()
            with self.guard:
                forgotten = self._known.pop(known.number, None)
            if forgotten is not None and not known.is_parked:
                self._dispatcher.dispatch(happened.Dropped(known.name, known.fence))

    def _retire(self, now: float) -> bool:
        """Whether the worker may end: closed, or idle for a while."""
        with self.guard:
            if self._closed:
                return True
            if self._known or self._dropped:
                self._idle_since = None
            elif self._idle_since is None:
                self._idle_since = now
            elif now >= self._idle_since + LINGER:
                self._worker = None
                return True
            return False


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


KEEPERS: WeakSet[Keeper] = WeakSet()  # all of this process
_LOCAL_LOSSES = frozenset({LossReason.EXPIRED, LossReason.UNCONFIRMED, LossReason.MAX_HOLD, LossReason.RELEASED})
