"""What the stages of simulated servers have in common: faults are planned from the seed, noted, and end at the healing.

A stage says how often its servers are disturbed (`faults_per_ttl`), lists its faults in `prepare`, and says for how
long a client may feel one of them after it is over (`felt_for`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from verification.simulation.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.spi import Backend, Store
    from verification.simulation.accounts import StoreModel
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.stage import StoredRecords
    from verification.simulation.watched import Watcher
    from verification.simulation.world import World

__all__ = ["ServerStage"]


class ServerStage:
    """The servers of one store for one run."""

    faulty: ClassVar[str] = "server"  # what is disturbed, by its name in schedules and traces
    faults_per_ttl: ClassVar[float] = 0.3
    keeps_until = True
    forgets = False
    records: StoredRecords | None = None
    drift = 0.0085  # and up to 0.001 of a server's own: almost all that the library's margin allows
    model: StoreModel

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        self._world = world
        self._history = history
        self._schedule = schedule
        self._links: Sequence[Link] = ()
        self._faults: Sequence[Callable[[], None]] = ()
        self._queueing = True
        self._healed = False
        self._ttl = 1.0
        self.delay = 0.0

    def open_plain(self, link: Link, runtime: Any) -> Backend:
        """The shipped protocol over the simulated wire, and nothing in front of it."""
        raise NotImplementedError

    def store(self, link: Link) -> Store:
        """See `Stage`."""
        return _StoreOverLink(self, link)

    def open(self, link: Link, runtime: Any) -> Backend:
        """What a process gets."""
        watcher = cast("Watcher", self.model)
        return Watched(self.open_plain(link, runtime), link, watcher, queueing=self._queueing)

    def unleash(self, links: Sequence[Link], until: float) -> None:
        """See `Stage`."""
        self._links = links
        random, moment = self._world.random, self._world.now
        while (moment := moment + random.expovariate(self.faults_per_ttl / self._ttl)) < until:
            fault = random.choice(self._faults)
            if self._schedule.fault(moment, f"{self.faulty} {fault.__name__.strip('_')}"):
                self._world.at(moment, self._planned(fault))

    def heal(self) -> None:
        """See `Stage`."""
        self._healed = True

    def can_be_disturbed(self) -> bool:
        """Whether a fault may strike now."""
        return not self._healed

    def felt_for(self, link: Link) -> float:
        """For how many seconds after a fault a client may still feel it."""
        return 2 * link.timeout

    def _planned(self, fault: Callable[[], None]) -> Callable[[], None]:
        def strike() -> None:
            if self.can_be_disturbed():
                fault()

        return strike

    def _note(self, what: str, seconds: float = 0.0, where: str = "", quiet_for: float = 0.0) -> None:
        self._history.counts["faults"] += 1
        self._world.note("nemesis", what, where or self.faulty, round(seconds, 3))
        for link in self._links:
            link.trouble(seconds + quiet_for + self.felt_for(link))

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """See `Stage`."""
        raise NotImplementedError


class _StoreOverLink:
    """The store as one process sees it."""

    def __init__(self, stage: ServerStage, link: Link) -> None:
        self._stage = stage
        self._link = link

    def open_backend(self, runtime: Any) -> Backend:
        """Connect."""
        return self._stage.open(self._link, runtime)
