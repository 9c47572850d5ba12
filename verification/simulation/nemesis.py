"""The faults of a run, drawn from the seed: pauses, crashes, cut links, bad weather. All healed before the last phase.

It knows processes and links, not locks. Each seed uses only some kinds of faults, so that rare pairs meet as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import World

__all__ = ["Nemesis"]


class Nemesis:
    """Disturbs links and their processes until `heal` is called."""

    def __init__(self, world: World, history: History, schedule: Schedule, links: Sequence[Link], ttl: float) -> None:
        self._world = world
        self._schedule = schedule
        self._history = history
        self._links = links
        self._ttl = ttl
        self._healed = False
        self._may_crash = (len(links)) // 2
        faults: list[Callable[[Link], None]] = [
            self._pause,
            self._ambush,
            self._ambush,
            self._crash,
            self._cut,
            self._losses,
            self._zombies,
            self._slowness,
            self._refusals,
        ]
        self._faults = [fault for fault in faults if world.random.random() < 0.6]

    def unleash(self, until: float) -> None:
        """Plan faults from now on to that moment."""
        moment, random = self._world.now, self._world.random
        while self._faults and (moment := moment + random.expovariate(1.5 / self._ttl)) < until:
            fault = random.choice(self._faults)
            link = random.choice(self._links)
            if self._schedule.fault(moment, f"{link.process.name} {fault.__name__.strip('_')}"):
                self._world.at(moment, self._planned(fault, link))

    def heal(self) -> None:
        """Everything that is not dead works again."""
        self._healed = True
        self._world.note("nemesis", "heal")
        for link in self._links:
            link.trouble(2 * link.timeout)  # what is still under way may be disturbed
            link.cut = False
            link.ambush = None
            link.weather.calm()
            link.process.resume()

    def _planned(self, fault: Callable[[Link], None], link: Link) -> Callable[[], None]:
        def strike() -> None:
            if not self._healed and not link.process.crashed:
                fault(link)

        return strike

    def _note(self, link: Link, what: str, seconds: float) -> None:
        self._history.counts["faults"] += 1
        self._world.note("nemesis", what, link.process.name, round(seconds, 3))
        link.trouble(seconds + 2 * link.timeout)

    def _some_time(self) -> float:
        """Between a tenth of a ttl and three of them, short ones more often."""
        chance = self._world.random.random()
        return self._ttl * (0.1 + 2.9 * chance * chance)

    def _pause(self, link: Link) -> None:
        seconds = self._some_time()
        self._note(link, "pause", seconds)
        link.process.pause()
        self._world.after(seconds, link.process.resume)

    def _ambush(self, link: Link) -> None:
        """Pause the process while its next request is under way: the moment that hurts most."""

        def strike() -> None:
            if not self._healed and not link.process.crashed:
                self._world.after(self._world.random.random() * 0.008, lambda: self._pause_again(link))

        link.ambush = strike

    def _pause_again(self, link: Link) -> None:
        if not self._healed and not link.process.crashed:
            self._pause(link)

    def _crash(self, link: Link) -> None:
        if self._may_crash > 0:
            self._may_crash -= 1
            self._note(link, "crash", 0.0)
            link.process.crash()
            if link.on_crash is not None:
                link.on_crash()

    def _cut(self, link: Link) -> None:
        seconds = self._some_time()
        self._note(link, "cut", seconds)
        link.cut = True
        self._world.after(seconds, link.mend)

    def _losses(self, link: Link) -> None:
        link.weather.request_loss = 0.15
        link.weather.reply_loss = 0.25
        self._storm(link, "losses")

    def _zombies(self, link: Link) -> None:
        link.weather.zombie = 0.25
        link.weather.reply_late = 0.15
        self._storm(link, "zombies")

    def _slowness(self, link: Link) -> None:
        link.weather.slow = 10 ** (1 + 1.3 * self._world.random.random())
        self._storm(link, "slowness")

    def _refusals(self, link: Link) -> None:
        link.weather.refuse = 0.7
        self._storm(link, "refusals")

    def _storm(self, link: Link, what: str) -> None:
        seconds = self._some_time()
        self._note(link, what, seconds)
        self._world.after(seconds, link.weather.calm)
