"""The local queue's own checks: who may be served out of a batch, and that no line is without a delegate.

A batch is one grant of the store that several calls of one client use, one after the other. Its holders are watched
like all others (`checkers`); here is what others may rely on: how many overtake them, and for how long.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leasehold._core import batch
from leasehold._core.batch import LocalTenure
from leasehold._core.linger import LingeringTenure
from leasehold._core.local_queue import LocalQueue
from leasehold._core.states import State

if TYPE_CHECKING:
    from leasehold._core.local_queue import LocalWaiter
    from leasehold._core.tenure import Tenure
    from leasehold._face.client import AsyncClient
    from leasehold.values import Claim
    from verification.simulation.accounts import StoreModel
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.world import World

__all__ = ["Batches", "is_passed_on", "owners_in_use"]

SLACK = 0.01  # clocks of processes are not the world's


def is_passed_on(tenure: Tenure) -> bool:
    """Whether the next one in line has the grant of this lease, which has been released."""
    if not isinstance(tenure, LocalTenure) or tenure.state is not State.RELEASED:
        return False
    present = None if tenure.batch.present is None else tenure.batch.present()
    return present is not tenure


def owners_in_use(client: AsyncClient) -> set[str]:
    """The owners of claims that stand, or hold, for more than the call that made them."""
    opened = client._opened
    if opened is None or opened.local is None:
        return set()
    owners = {tenure.grant.claim.owner for tenure in opened.keeper.tenures() if isinstance(tenure, LocalTenure)}
    for queue in opened.local.queues.values():
        if isinstance(queue, LocalQueue) and queue.delegate is not None:
            claim = _claim_of(queue.delegate)
            if claim is not None:
                owners.add(claim.owner)
    return owners


def _claim_of(delegate: LocalWaiter) -> Claim | None:
    """The claim that stands in the store for a line, also while a request of it is under way; it may be adopted."""
    call: Any = delegate.call
    return None if call._traceless else call._claim


class Batches:
    """Watches the lines of all clients."""

    def __init__(self, world: World, history: History, model: StoreModel) -> None:
        self._world = world
        self._history = history
        self._model = model
        self._clients: list[tuple[Link, AsyncClient]] = []
        self._began: dict[str, float] = {}  # by owner, when the first of a batch had it
        self._acquired: dict[tuple[str, int], float] = {}  # by name and fence
        self._released: dict[tuple[str, int], float] = {}

    def watch(self, link: Link, client: AsyncClient) -> None:
        """From now on."""
        self._clients.append((link, client))

    def has_served(self, owner: str) -> bool:
        """Whether a call got a lease of this claim: what is left of it is no leftover of the call that made it."""
        return owner in self._began

    def acquired(self, tenure: Tenure) -> None:
        """A call has a new lease."""
        self._began.setdefault(tenure.grant.claim.owner, self._world.now)
        self._acquired.setdefault((tenure.name, tenure.grant.fence), self._world.now)

    def released(self, name: str, fence: int) -> None:
        """A lease was given back, or passed on."""
        self._released.setdefault((name, fence), self._world.now)

    def is_of_a_broken_grant(self, tenure: Tenure) -> bool:
        """Whether the grant was broken at once before this lease was passed on: its client learns that later."""
        owner, fence = tenure.grant.claim.owner, tenure.grant.fence
        _, first = self._model.granted_at.get(owner, (math.inf, fence))
        return fence != first and owner in self._model.broken_at_once

    def used(self, tenure: Tenure, called_at: float) -> None:
        """A call that began then has returned this lease."""
        grant, what = tenure.grant, f"{tenure.name} fence {tenure.grant.fence}"
        granted_at, first = self._model.granted_at.get(grant.claim.owner, (math.inf, grant.fence))
        if grant.fence == first or not isinstance(tenure, LocalTenure):
            return
        self._history.counts["passed on"] += 1
        if isinstance(tenure, LingeringTenure):
            self._lingered(tenure, first)
        elif called_at > self._began.get(grant.claim.owner, math.inf):
            self._history.violate("served before those who wait elsewhere", f"{what} was asked for after its grant")
        if grant.fence > first + batch.MOST:
            self._history.violate("a batch without bound", f"{what}, the first had {first}")
        if isinstance(tenure, LingeringTenure):
            return
        passed_at = self._released.get((tenure.name, grant.fence - 1), -math.inf)
        if passed_at > self._began.get(grant.claim.owner, math.inf) + batch.LONGEST * 1.02 + SLACK:
            self._history.violate("a batch that lasts too long", f"{what}, granted at {granted_at:.3f}")

    def _lingered(self, tenure: LingeringTenure, first: int) -> None:
        """It was taken after a release: those who wait elsewhere may rely on the end of its stay."""
        self._history.counts["lingered"] += 1
        taken_at = self._acquired[tenure.name, tenure.grant.fence]
        if taken_at > self._released.get((tenure.name, first), math.inf) + tenure.batch.linger * 1.02 + SLACK:
            self._history.violate("taken after its stay", f"{tenure.name} fence {tenure.grant.fence}")

    def look(self) -> None:
        """Check every line now."""
        for link, client in self._clients:
            opened = client._opened
            if link.process.crashed or opened is None or opened.local is None:
                continue
            for queue in opened.local.queues.values():
                if isinstance(queue, LocalQueue):
                    self._check_line(link, queue)

    def _check_line(self, link: Link, queue: LocalQueue) -> None:
        delegate = queue.delegate
        name = f"{link.process.name} {queue.claim_fields[0]}"
        if delegate is None:
            if queue.waiting:
                self._history.violate("a line without a delegate", name)
            return
        if delegate not in queue.waiting and delegate.tenure is None:
            self._history.violate("a delegate that is not in line", name)
        standing = [w for w in queue.waiting if w is not delegate and not w.call._traceless]  # type: ignore[attr-defined]
        if standing:
            self._history.violate("two stand in the store for one line", name)
