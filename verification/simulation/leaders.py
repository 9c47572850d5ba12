"""The election as a workload, and its own checker: who leads, at every step of any task.

`Leaders` reads `is_leader` of every process at one instant of the world, which no process could: more than one that is
true is a violation, and so is one that is true although the store would let another in before the time to stop is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.errors import LeaseLost
from leasehold.values import LossReason

if TYPE_CHECKING:
    from random import Random

    from leasehold._patterns.election import AsyncElection, AsyncElectionOptions, AsyncTerm
    from verification.simulation.accounts import StoreModel
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime

__all__ = ["Leaders", "lead_on", "timings_for"]

SLACK = 0.02  # a store counts in whole milliseconds, and its clock is not the world's


def timings_for(ttl: float) -> AsyncElectionOptions:
    """Of the elections of a run: two fifths of the ttl are left to stop."""
    return {"ttl": ttl, "renew_deadline": 0.6 * ttl, "retry": ttl / 8}


@dataclass(slots=True)
class _Campaign:
    link: Link
    election: AsyncElection


class Leaders:
    """Watches all elections of one name."""

    def __init__(self, history: History, model: StoreModel, rates: float) -> None:
        self._history = history
        self._model = model
        self._rates = rates
        self._campaigns: list[_Campaign] = []

    def watch(self, link: Link, election: AsyncElection) -> None:
        """From now on, until `forget`."""
        self._campaigns.append(_Campaign(link, election))

    def forget(self, election: AsyncElection) -> None:
        """The campaign is over."""
        self._campaigns = [campaign for campaign in self._campaigns if campaign.election is not election]

    def look(self) -> None:
        """Check now who would read that it leads."""
        leading = [term for campaign in self._campaigns if (term := self._term(campaign)) is not None]
        if len(leading) > 1:
            self._history.violate("two leaders", f"{[term.fence for term in leading]}")
        for term in leading:
            self._check_time_to_stop(term)

    def _term(self, campaign: _Campaign) -> AsyncTerm | None:
        if campaign.link.process.crashed or not campaign.election.is_leader:
            return None
        term = campaign.election.term
        if term is None or self._model.is_excused(term._tenure.grant.claim.owner):
            return None
        return term

    def _check_time_to_stop(self, term: AsyncTerm) -> None:
        """Whoever leads has the rest of the ttl to stop, before the store lets another in."""
        tenure = term._tenure
        claim = tenure.grant.claim
        record = self._model.record(claim.key, claim.owner)
        if record is None or record.broken or tenure.is_window or tenure.ttl < claim.ttl:
            return  # an operator wants no such time, and what a hand-over grants first is short
        left = record.expires - self._model.clock.now()
        if left < (claim.ttl - 0.6 * claim.ttl) / self._rates - SLACK:
            self._history.violate("leads with too little time to stop", f"{term!r}, {left:.3f} s left in the store")


async def lead_on(
    election: AsyncElection, term: AsyncTerm, runtime: SimRuntime, random: Random, history: History
) -> None:
    """What a leader does: look, work, sometimes step down, and at the end take its time to stop."""
    for _ in range(random.randrange(1, 5)):
        if random.random() < 0.15:
            term.step_down()
            if election.is_leader:
                history.violate("leads after it stepped down", f"{term!r}")
        if not election.is_leader:
            break
        await runtime.sleep(random.random() * term.ttl / 2)
        try:
            term.check()
        except LeaseLost as lost:
            if lost.reason is LossReason.RELEASED:
                history.violate("lost by its own release", f"{term!r}")
            raise
    await runtime.sleep(random.random() * term.ttl / 4)
