"""Election: one leader among many processes, for as long as it can prove it. The async face, which is the core face.

The leader holds the lock of the election's name. Its term ends at the renew deadline, which lies before the end of the
lease: the body is stopped while the store still keeps others out. `is_leader` reads a clock and nothing else.

An election without a fence does not exclude two leaders: one that is paused after its last look may still act. Pass
`term.fence` to what the leader changes.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, NoReturn, TypedDict, cast

from leasehold._core.events import StoreUnreachable
from leasehold._core.validity import margin
from leasehold._durations import Duration, seconds, ttl_seconds
from leasehold._face.hold import Block
from leasehold._face.lease import AsyncLease
from leasehold._face.lock import AsyncLock
from leasehold._patterns.callbacks import Callbacks
from leasehold._patterns.observation import AsyncObservation
from leasehold._patterns.pattern_events import Campaigning, Elected
from leasehold._patterns.term import Term, Timings
from leasehold._record import replace
from leasehold.errors import BackendUnavailable, ConfigurationError, LeaseLost, OutcomeUnknown
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from leasehold._face.client import AsyncClient
    from leasehold._face.lock_spec import Timeout
    from leasehold._patterns.callbacks import Watch
    from leasehold.values import Leader

__all__ = ["JITTER", "AsyncElection", "AsyncElectionOptions", "AsyncLeading", "AsyncTerm", "check_timings"]

JITTER = 1.2  # the longest pause between two tries, in units of `retry`

_STEPPED_DOWN = Loss(LossReason.RELEASED, "the leader stepped down")
_RESIGNED = Loss(LossReason.RELEASED, "the leader resigned")
_KEPT_BY_THE_STORE = frozenset(
    {LossReason.EXPIRED, LossReason.UNCONFIRMED, LossReason.MAX_HOLD, LossReason.RELEASED}
)  # ends that only this process decided


class AsyncElectionOptions(TypedDict, total=False):
    """The options of `client.election`."""

    ttl: Duration
    renew_deadline: Duration
    retry: Duration
    group: str | None
    reason: str | None
    on_elected: Callable[[AsyncTerm], object] | None
    on_lost: Callable[[Loss], object] | None
    on_new_leader: Callable[[Leader], object] | None


def check_timings(ttl: Duration, renew_deadline: Duration, retry: Duration) -> Timings:
    """The timings in seconds; refused unless their order leaves time to renew, and then to stop."""
    timings = Timings(ttl_seconds(ttl), seconds(renew_deadline, "renew_deadline"), seconds(retry, "retry"))
    longest = timings.ttl - margin(timings.ttl)
    if timings.retry <= 0:
        raise ConfigurationError("retry must be more than 0 seconds: it is how often the leader renews its lease")
    if timings.renew_deadline >= longest:
        raise ConfigurationError(
            f"renew_deadline ({timings.renew_deadline:g} s) must be shorter than the part of the ttl that is sure "
            f"({longest:g} s of {timings.ttl:g} s), so that a leader has stopped before its lease can end; make it "
            "shorter, or the ttl longer"
        )
    if timings.renew_deadline <= JITTER * timings.retry:
        raise ConfigurationError(
            f"renew_deadline ({timings.renew_deadline:g} s) must be longer than {JITTER} * retry "
            f"({JITTER * timings.retry:g} s), or one late renewal ends the term; make retry shorter"
        )
    return timings


class AsyncElection:
    """An election, made by `client.election`: `lead` or `run` to be a candidate, `observe` to look on."""

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        *,
        ttl: Duration = 15.0,
        renew_deadline: Duration = 10.0,
        retry: Duration = 2.0,
        group: str | None = None,
        reason: str | None = None,
        on_elected: Callable[[AsyncTerm], object] | None = None,
        on_lost: Callable[[Loss], object] | None = None,
        on_new_leader: Callable[[Leader], object] | None = None,
    ) -> None:
        self._client = client
        self._timings = check_timings(ttl, renew_deadline, retry)
        plain = client.lock(name, ttl=self._timings.ttl, group=group, reason=reason)
        make_term = functools.partial(Term, timings=self._timings)
        self._lock = AsyncLock(client, replace(plain._spec, make_tenure=make_term))
        self._callbacks = Callbacks(name, on_elected, on_lost, on_new_leader)
        self._newest: Callable[[], AsyncTerm | None] = _no_term  # weak: a term that was dropped is not renewed

    @property
    def name(self) -> str:
        """The name of the election, which is also the name of its lock."""
        return self._lock.name

    @property
    def is_leader(self) -> bool:
        """Whether this object leads now, by the clock: true only before the renew deadline. It never waits."""
        term = self._newest()
        return term is not None and term.remaining() > 0

    @property
    def term(self) -> AsyncTerm | None:
        """The term that this object leads in now; None while it does not lead."""
        term = self._newest()
        return term if term is not None and term.remaining() > 0 else None

    def lead(self, timeout: Timeout = None) -> AsyncLeading:
        """A context manager: waits to be elected, runs the block as the leader, and resigns, however the block ends.

        It gives the term, which is a lease. When the term ends first, the block is cancelled. The block then ends with
        `LeaseLost`. `timeout` (None: for ever) limits the wait; `AcquireTimeout` names the leader.
        """
        return AsyncLeading(self, timeout)

    async def run(self, function: Callable[[AsyncTerm], Awaitable[object]]) -> NoReturn:
        """Be a candidate for ever: call `function(term)` in each term, resign when it ends, and campaign again.

        When the term ends first, the function is cancelled. An error of the function ends `run`, after it has resigned;
        so does closing the client. A store that cannot be reached is tried again.
        """
        watch = self._callbacks.watch(self.observe(), self._client)
        try:
            while True:
                leading = AsyncLeading(self, None, watch)
                try:
                    async with leading as term:
                        await function(term)
                except LeaseLost as lost:
                    if not leading._was_ended_by(lost):
                        raise
                except (BackendUnavailable, OutcomeUnknown) as error:
                    if leading._term is not None:
                        raise  # an error of the function
                    self._client._open().events.emit(StoreUnreachable(self.name, self._timings.retry, str(error)))
                await self._pause()
        finally:
            watch.stop()

    def observe(self) -> AsyncObservation:
        """Iterate over the changes of the leader: a `Leader`, or None while there is none; the present one first.

        The store is asked every `retry` seconds; terms that come and go in between are not seen. Looking on is free of
        promises: what it shows may be over by now.
        """
        return AsyncObservation(self._client, self.name, self._timings.retry, JITTER)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("an election belongs to its client; make one with the same name in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}{' leading' if self.is_leader else ''}>"

    async def _pause(self) -> None:
        """Let others campaign first; closing the client ends the pause."""
        opened = self._client._open()
        stretch = 1 + (JITTER - 1) * opened.runtime.random()
        try:
            await opened.waiting_calls.pause(self, self._timings.retry * stretch)
        finally:
            opened.waiting_calls.ended(self)


class AsyncTerm(AsyncLease):
    """One term of a leader: a lease that ends at the renew deadline, while the store still keeps others out."""

    def step_down(self) -> bool:
        """End the term now, from anywhere, without waiting; True if it was not over before.

        `is_leader` is False at once; a body in another task is cancelled, and `lost` is set. The successor is let in
        when the body has ended, no later than after the ttl: stepping down never makes two leaders.
        """
        for watcher in self._tenure.present_watchers():
            watcher.loss_is_raised()  # a body that steps down itself need not be interrupted
        return cast("Term", self._tenure).give_up(self._opened, _STEPPED_DOWN)

    def _is_kept(self) -> bool:
        """Whether the store may still keep it, also after the renew deadline: it is released when the body ended."""
        loss = self.loss
        return loss is None or loss.reason in _KEPT_BY_THE_STORE


class AsyncLeading:
    """Campaigns and leads for one block: `async with election.lead() as term`. The body never runs without a term."""

    def __init__(self, election: AsyncElection, timeout: Timeout, watch: Watch | None = None) -> None:
        self._election = election
        self._timeout = timeout
        self._shared = watch  # that of `run`, for all of its terms
        self._watch: Watch | None = None
        self._term: AsyncTerm | None = None

    async def __aenter__(self) -> AsyncTerm:
        if self._watch is not None:
            raise TypeError("this campaign is in use or used up; call lead() again for another block")
        election, client = self._election, self._election._client
        deadline = client._deadline(self._timeout)
        group = election._lock.group
        if client._events.wanted(Campaigning):
            client._events.emit(Campaigning(election.name, group))
        self._watch = self._shared or election._callbacks.watch(election.observe(), client)
        try:
            lease = await election._lock._acquire_until(deadline)
        except BaseException:
            self._end_watch()
            raise
        self._term = term = AsyncTerm(lease._opened, lease._tenure)
        self._end = election._callbacks.end_of_term(client)
        self._block = Block(term, self._end.beside)
        election._newest = weakref.ref(term)
        if client._events.wanted(Elected):
            client._events.emit(Elected(term.name, term.fence, group))
        self._watch.look_now()
        try:
            await election._callbacks.elected(term)
        except GeneratorExit:
            raise
        except BaseException as error:  # interrupted: the block will not be entered, so it cannot be left either
            await self._leave(term, error)
            raise
        return term

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._term is None:
            return
        try:
            await self._leave(self._term, error)
        except LeaseLost as lost:
            if error is not None or lost.reason is not LossReason.RELEASED:
                raise  # but a body that stepped down and came to its end has not lost anything

    def _was_ended_by(self, lost: LeaseLost) -> bool:
        """Whether this loss is that of the own term, and not of another lease that the body holds."""
        return self._term is not None and lost.name == self._term.name and self._term.loss is not None

    async def _leave(self, term: AsyncTerm, error: BaseException | None) -> None:
        """Resign, whatever came before."""
        try:
            await self._block.leave(term, error)
        finally:
            self._end_watch()
            if not isinstance(error, GeneratorExit):  # nothing can be awaited any more
                await self._end.after(term.loss or _RESIGNED)

    def _end_watch(self) -> None:
        if self._shared is None and self._watch is not None:
            self._watch.stop()


def _no_term() -> None:
    """Before the first term."""
