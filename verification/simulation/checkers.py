"""What holders may believe, and in which order fences rise.

`Beliefs` watches the holders: each that believes in a lease must be in the account of `accounts.StoreModel` at this
moment. The function at the end judges a finished history.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold._core.states import State
from leasehold.values import LossReason
from verification.simulation.accounts import compatible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold._core.tenure import Tenure
    from leasehold.values import Claim
    from verification.simulation.accounts import StoreModel
    from verification.simulation.history import Grants, History
    from verification.simulation.network import Link
    from verification.simulation.world import World

__all__ = ["Beliefs", "fence_disorder"]

ANNOUNCED_WITHIN = 1.25  # the keeper sleeps at most one second; the rest is slack


@dataclass(slots=True)
class _Belief:
    """A lease, as the checker follows it; weakly, because the keeper must see when the holder forgets it."""

    link: Link
    tenure: weakref.ref[Tenure]
    name: str
    claim: Claim
    fence: int
    ends: float = math.inf  # on the process' clock, where max_hold is over at the latest
    over_since: float | None = None


class Beliefs:
    """Watches the holders' side, after every step of any task."""

    def __init__(self, world: World, history: History, model: StoreModel) -> None:
        self._world = world
        self._history = history
        self._model = model
        self._present: list[_Belief] = []
        self._announced: set[tuple[str, int]] = set()  # names and fences whose loss was announced

    def admitted(self, link: Link, tenure: Tenure) -> None:
        """A client has a new lease."""
        grant = tenure.grant
        self._present.append(_Belief(link, weakref.ref(tenure), tenure.name, grant.claim, grant.fence))

    def limit(self, name: str, fence: int, max_hold: float | None) -> None:
        """The call that took this lease has returned, and it must not be believed longer than this."""
        for belief in self._present:
            if belief.name == name and belief.fence == fence and max_hold is not None:
                belief.ends = belief.link.process.clock() + max_hold

    def lost(self, link: Link, name: str, fence: int, reason: LossReason) -> None:
        """A client announced a loss."""
        self._history.counts["losses"] += 1
        if (name, fence) in self._announced:
            self._history.violate("loss announced twice", f"{link.process.name} {name} fence {fence}")
        self._announced.add((name, fence))
        if reason in (LossReason.EXPIRED, LossReason.UNCONFIRMED):
            self._check_needless(link, name, fence, reason)

    def look(self) -> None:
        """Check every belief now."""
        ended = False
        believers: dict[str, list[Claim]] = {}
        for belief in self._present:
            if self._believed(belief):
                believers.setdefault(belief.claim.key, []).append(belief.claim)
            ended = ended or belief.over_since is not None
        if ended:
            self._present = [belief for belief in self._present if not self._is_settled(belief)]
        for key, claims in believers.items():
            if len(claims) > 1 and not compatible(claims):
                self._history.violate("two holders believe", f"{key} {[claim.owner[:6] for claim in claims]}")

    def _believed(self, belief: _Belief) -> bool:
        process, tenure = belief.link.process, belief.tenure()
        if process.crashed or tenure is None:
            belief.over_since = belief.over_since or self._world.now
            return False
        if tenure.grant.fence != belief.fence:
            self._history.violate("a fence changed", f"{process.name} {belief.fence} to {tenure.grant.fence}")
        clock = process.clock()
        if tenure.state is not State.HELD or clock >= tenure.deadline:
            belief.over_since = belief.over_since or self._world.now
            return False
        if belief.over_since is not None:
            self._history.violate("a lease that was over came back", f"{process.name} fence {belief.fence}")
        if clock >= belief.ends:
            self._history.violate("believed beyond max_hold", f"{process.name} fence {belief.fence}")
        if belief.claim.owner in self._model.broken_at_once:
            return False
        if self._model.is_excused(belief.claim.owner):
            return self._model.waits_out
        record = self._model.record(belief.claim.key, belief.claim.owner)
        if record is None or not record.has(belief.fence) or record.cooling:
            self._history.violate(
                "believes in a grant the store does not have", f"{process.name} {belief.claim.key} {belief.fence}"
            )
        return True

    def _is_settled(self, belief: _Belief) -> bool:
        """Whether there is nothing more to expect of a belief that may be over."""
        if belief.over_since is None:
            return False
        process, tenure = belief.link.process, belief.tenure()
        if (
            process.crashed
            or tenure is None
            or tenure.state is State.RELEASED
            or (belief.name, belief.fence) in self._announced
            or (tenure.loss is not None and tenure.loss.reason is LossReason.RELEASED)  # it stepped down
        ):
            return True
        if process.paused or tenure.state is State.RELEASING:
            return False
        late = self._world.now - max(belief.over_since, process.resumed_at)
        if late > ANNOUNCED_WITHIN:
            self._history.violate(
                "loss not announced in time", f"{process.name} fence {belief.fence}, {late:.2f} s late"
            )
        return False

    def _check_needless(self, link: Link, name: str, fence: int, reason: LossReason) -> None:
        """A lease that is renewed does not run out while its process and network are well."""
        belief = next((each for each in self._present if each.name == name and each.fence == fence), None)
        tenure = None if belief is None else belief.tenure()
        if belief is None or tenure is None or not tenure.renewable:
            return
        # A request that vanished is repeated after a third of the ttl, one that failed much sooner.
        well_for = link.well_for
        if well_for > belief.claim.ttl / 3 + 0.1 and not self._model.is_excused(belief.claim.owner):
            self._history.violate(
                "lost without need", f"{link.process.name} fence {fence}, {reason}, undisturbed for {well_for:.2f} s"
            )


def fence_disorder(grants: Iterable[Grants]) -> str | None:
    """The first pair of grants of one name whose fences do not follow their order in time, or None."""
    by_name: dict[str, list[Grants]] = {}
    for grant in grants:
        by_name.setdefault(grant.name, []).append(grant)
    for name, mine in sorted(by_name.items()):
        seen: dict[int, Grants] = {}
        for grant in mine:
            if grant.fence in seen:
                return f"{name}: fence {grant.fence} was given twice"
            seen[grant.fence] = grant
        returned = sorted(mine, key=lambda grant: grant.returned)
        highest, place = 0, 0
        for grant in sorted(mine, key=lambda grant: grant.began):
            while place < len(returned) and returned[place].returned < grant.began:
                highest = max(highest, returned[place].fence)
                place += 1
            if grant.fence <= highest and not grant.excused:
                return f"{name}: fence {grant.fence} came after {highest}"
    return None
