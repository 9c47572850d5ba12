"""Renewals: one request for all leases that are due, and what its answers mean for each of them.

A batch is a task of its own. It refers to leases weakly: one that the program drops meanwhile is not kept for it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from leasehold._core import events as happened
from leasehold._core.states import State
from leasehold._core.ttl_warnings import TtlWarnings
from leasehold._log import logger
from leasehold.errors import BackendError
from leasehold.values import Grant, Loss

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from leasehold._core.batch import Batch
    from leasehold._core.event_dispatcher import EventDispatcher
    from leasehold._core.events import Events
    from leasehold._core.tenure import Tenure
    from leasehold.spi import Backend, Runtime, Signal

__all__ = ["Known", "Renewals"]


class Known(weakref.ref["Tenure"]):
    """A weak reference that keeps name and fence of the lease, to report one that was dropped."""

    __slots__ = ("fence", "name", "number")

    number: int
    name: str
    fence: int

    is_parked = False  # the program has released it: nothing is lost when it is dropped

    def concerned(self) -> Tenure | None:
        """The lease that the answer to a renewal is about."""
        return self()


class BatchKnown(Known):
    """The same for a lease of a batch: what the store says of the grant is about the present one."""

    __slots__ = ("batch",)

    batch: Batch | None

    @property
    def is_parked(self) -> bool:  # type: ignore[override]
        """Whether the grant has no holder just now."""
        return self.batch is not None and self.batch.is_parked

    def concerned(self) -> Tenure | None:
        """The one that it was passed on to meanwhile, if it was."""
        present = None if self.batch is None else self.batch.present
        return self() if present is None else present()


class Renewals:
    """Sends the renewals of a keeper, which shares its guard."""

    def __init__(
        self, runtime: Runtime, backend: Backend, events: Events, dispatcher: EventDispatcher, wake: Signal
    ) -> None:
        self._runtime = runtime
        self._backend = backend
        self._events = events
        self._dispatcher = dispatcher
        self._wake = (
            wake  # has the keeper look again; a reference to the keeper itself would keep both from being freed
        )
        self.guard: AbstractContextManager[Any] = runtime.guard()
        self.ttl_warnings: TtlWarnings = TtlWarnings(dispatcher)
        self.usual: float = 0.0  # how long the store usually takes for a renewal

    async def renew_now(self, tenure: Tenure) -> None:
        """Renew one lease on the holder's own request; errors of the store are the caller's."""
        sent = self._runtime.now()
        (answer,) = await self._backend.renew([tenure.grant], tenure.deadline)
        if isinstance(answer, BackendError):
            raise answer
        await self._runtime.switch()
        self._apply(tenure, answer, sent)
        if tenure.loss is not None and isinstance(answer, Grant) and tenure.gives_back_late:
            await self._give_back([answer])
        if tenure.state is State.HELD:
            self._report_renewed([(tenure.name, tenure.grant.fence)])

    async def renew(self, due: list[tuple[Known, Grant]], sent: float) -> None:
        """All of these in one request, sent now."""
        renewed: list[tuple[str, int]] = []
        late: list[Grant] = []
        try:
            answers = await self._backend.renew([grant for _, grant in due], _last_deadline(due, sent))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the next try may succeed
            for known, _ in due:
                self._renewal_failed(known, error, sent)
        else:
            await self._runtime.switch()
            renewed, late = self._note_answers(due, answers, sent)
        self._wake.set()
        await self._give_back(late)
        self._report_renewed(renewed)

    def _note_answers(
        self, due: list[tuple[Known, Grant]], answers: Sequence[Grant | Loss | BackendError], sent: float
    ) -> tuple[list[tuple[str, int]], list[Grant]]:
        """Name and fence of each renewed lease; and the grants that were confirmed after their leases had ended."""
        renewed, late = [], []
        took = self._runtime.now() - sent
        self.usual = min(took, 2 * self.usual) if self.usual else took  # one late answer does not make a slow store
        for (known, grant), answer in zip(due, answers, strict=True):
            if isinstance(answer, BackendError):
                self._renewal_failed(known, answer, sent)
                continue
            tenure = known.concerned()
            if tenure is None:
                continue
            is_outdated = isinstance(answer, Loss) and grant.fence < tenure.grant.fence
            with self.guard:
                tenure.renewal_ended()
                if is_outdated:  # the store may know a later fence by now, and refuse this one: the present one asks
                    tenure.due = min(tenure.due, self._runtime.now())
            if is_outdated:
                continue
            self._apply(tenure, answer, sent)
            if tenure.state is State.HELD and not tenure.is_parked:
                renewed.append((tenure.name, tenure.grant.fence))
            elif tenure.state is State.LOST and isinstance(answer, Grant) and tenure.gives_back_late:
                late.append(answer)
        return renewed, late

    def _apply(self, tenure: Tenure, answer: Grant | Loss, sent: float) -> None:
        with self.guard:
            if isinstance(answer, Loss):
                tenure.lose(answer)
            else:
                tenure.confirm(answer, sent, self._runtime.now())
        if tenure.ttl != tenure.grant.claim.ttl:
            self.ttl_warnings.note(tenure)

    def _report_renewed(self, renewed: list[tuple[str, int]]) -> None:
        """Called last, and without references to leases: even `wanted` may hang, in a log handler's lock."""
        if renewed and self._events.wanted(happened.Renewed):
            for name, fence in renewed:
                self._dispatcher.dispatch(happened.Renewed(name, fence))

    async def _give_back(self, grants: list[Grant]) -> None:
        """Release grants whose renewal was confirmed after their leases had ended here."""
        for grant in grants:
            try:
                await self._backend.release(grant)
            except Exception:
                logger.debug("could not release a grant that was confirmed too late; its ttl will", exc_info=True)

    def _renewal_failed(self, known: Known, error: Exception, sent: float) -> None:
        now, why = self._runtime.now(), str(error) or type(error).__name__
        tenure = known.concerned()
        if tenure is None:
            return
        with self.guard:
            tenure.renewal_ended()
            first = tenure.failure is None
            failed = tenure.failed(why, sent, now)
        if failed and first and tenure.state is State.HELD and not tenure.is_parked:
            self._dispatcher.dispatch(
                happened.RenewalFailed(tenure.name, tenure.deadline - now, why, tenure.grant.fence)
            )


def _last_deadline(due: list[tuple[Known, Grant]], sent: float) -> float:
    """Until when an answer is of use to one of these."""
    return max((tenure.deadline for known, _ in due if (tenure := known()) is not None), default=sent)
