"""The Redis store of a run: one server, or a primary with a replica, and what befalls it.

In half of the seeds the server keeps what it acknowledged and its clock does not step; then every check holds. In the
others it forgets, or its clock steps, in one way per seed: there the checks about who may hold excuse those whom the
fault concerns, and everything else must still hold, above all that fences rise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.redis.backend import RedisBackend
from leasehold._backends.redis.keys import DEFAULT_PREFIX, Names
from leasehold._backends.redis.options import Options
from leasehold.errors import BackendError
from leasehold.values import Claim, Grant, Holder, Mode
from verification.simulation.network import Link
from verification.simulation.redis.server import SimRedis
from verification.simulation.redis.store import RedisOverLink, open_plain
from verification.simulation.redis.watcher import RedisWatcher
from verification.simulation.server_stage import ServerStage

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.spi import Store
    from verification.simulation.history import History
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import World

__all__ = ["RedisStage"]

DAY, HOUR = 86_400.0, 3_600.0
SKEW = 0.02  # between the clocks of a primary and its replica
SHORTEST_OUTAGE = 0.1  # a fail-over takes longer than clocks differ: fences rely on it
REFUSALS = ("NOREPLICAS", "OOM")
LATE = f"{DEFAULT_PREFIX}late"


class RedisStage(ServerStage):
    """One Redis server for one run."""

    capabilities = RedisBackend.capabilities
    keeps_records = False  # it is flushed, restarted empty, and fails over to a replica that lags

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        super().__init__(world, history, schedule)
        self._server = SimRedis(world, rate=1.0 + 0.001 * (2 * world.random.random() - 1))
        self._watcher = RedisWatcher(world, history, self._server, Names(DEFAULT_PREFIX, compat=False))
        self._server.watcher = self._watcher
        self.records = RecordsOfRedis(self._server)
        self.model = self._watcher.model
        self._options: dict[str, float] = {}

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:
        """See `Stage`. Draws how the store is used and what befalls the server."""
        random = self._world.random
        self._ttl, self._queueing = ttl, queueing
        forgets = random.choice(["", "", "", "restart", "fail over", "flush", "step"])
        if forgetful:
            forgets = random.choice(["restart", "fail over"])
        self.forgets = forgets != ""
        self._faults = [
            self._stall,
            self._forget_scripts,
            self._hang_up,
            self._lose_listeners,
            self._refuse_writes,
            *{
                "restart": (self._restart,) * 3,
                "fail over": (self._fail_over,) * 3,
                "flush": (self._flush,),
                "step": (self._step, self._step),
            }.get(forgets, ()),
        ]
        if forgets == "fail over":
            self._server.lag = random.choice([0.0, 0.01, 0.1, ttl, 3 * ttl])
        if forgets == "step":
            self.delay = 4 * ttl  # a clock that is set back gives everything more time
        strict = {"": 0.1, "restart": 0.5, "fail over": 0.5}.get(forgets, 0.0)
        if random.random() < strict:
            self._options["strict"] = self.delay = 2 * ttl
            self.model.waits_out = True
        elif random.random() < 0.1:
            self._options["acks"] = 1

    def store(self, link: Link) -> Store:
        """See `Stage`."""
        options = Options(**self._options, answer_timeout=link.timeout)  # type: ignore[arg-type] # by name
        shared = self._world.random.random() < 0.6
        return RedisOverLink(self._server, link, self._watcher, options, shared=shared, queueing=self._queueing)

    # --- faults

    def heal(self) -> None:
        """See `Stage`."""
        super().heal()
        self._server.lag = 0.0
        self._server.refuses = ""
        if self._server.is_down:
            self._server.is_down = False
            self._server.restart_empty()

    def can_be_disturbed(self) -> bool:
        """See `ServerStage`."""
        return super().can_be_disturbed() and not self._server.is_down

    def _stall(self) -> None:
        seconds = self._ttl * self._world.random.random() ** 2
        self._note("stall", seconds)
        self._server.stall(seconds)

    def _forget_scripts(self) -> None:
        self._note("forget scripts")
        self._server.forget_scripts()

    def _hang_up(self) -> None:
        self._note("hang up")
        self._server.hang_up_on_all()

    def _lose_listeners(self) -> None:
        self._note("lose listeners")
        self._server.lose_listeners()

    def _refuse_writes(self) -> None:
        seconds = self._ttl * self._world.random.random() ** 2
        self._server.refuses = f"{self._world.random.choice(REFUSALS)} not now"
        self._note("refuse writes", seconds)

        def accept() -> None:
            self._server.refuses = ""

        self._world.after(seconds, accept)

    def _restart(self) -> None:
        self._down("restart empty", "empty restarts", self._server.restart_empty)

    def _fail_over(self) -> None:
        skew = SKEW * (2 * self._world.random.random() - 1)
        self._down("fail over", "failovers", lambda: self._server.fail_over(skew))

    def _down(self, what: str, counted: str, then: Callable[[], None]) -> None:
        seconds = SHORTEST_OUTAGE + self._ttl * self._world.random.random() ** 3
        self._note(what, seconds)
        self._server.is_down = True
        self._server.hang_up_on_all(in_silence=self._world.random.random() < 0.3)

        def back() -> None:
            if self._server.is_down:
                self._server.is_down = False
                self._history.counts[counted] += 1
                then()

        self._world.after(seconds, back)

    def _flush(self) -> None:
        self._note("flush all")
        self._server.flush()

    def _step(self) -> None:
        chance = self._world.random.random()
        seconds = 2 * self._ttl * chance * chance * self._world.random.choice([-1, 1])
        self._note("clock step", abs(seconds))
        self._server.step_clock(seconds)

    # --- the end

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """See `Stage`. Also: a fence that ran ahead of the clock is remembered until the clock has caught up."""
        try:
            await self._look(runtime)
        except BackendError as error:
            self._history.violate("the server does not answer although all is healed", repr(error))

    async def _look(self, runtime: SimRuntime) -> None:
        states = await self._client(runtime).list("")
        if states:
            self._history.violate("left in the store", f"{[(state.name, len(state.holdings)) for state in states]}")
        ahead = self._server.now_us + round((2 * DAY + HOUR) * 1e6)
        await self._client(runtime).raise_fence(LATE, ahead)
        first = await self._fence(runtime)
        self._pass(DAY + HOUR)
        second = await self._fence(runtime)
        if not ahead < first < second:
            self._history.violate("a raised fence was forgotten", f"{ahead} {first} {second}")
        self._pass(4 * DAY)
        left = self._server.database.present()
        if left:
            self._history.violate("remembered for ever", f"{left}")

    async def _fence(self, runtime: SimRuntime) -> int:
        backend = self._client(runtime)
        claim = Claim(LATE, runtime.owner(), 1.0, Mode.EXCLUSIVE, 1, 0.0, Holder("late", 1))
        self._watcher.expect(claim, Link(runtime.process, timeout=1.0))
        answer = await backend.try_acquire(claim)
        if not isinstance(answer, Grant):
            self._history.violate("a free lock is refused", f"{answer}")
            return 0
        await backend.release(answer)
        return answer.fence

    def _client(self, runtime: SimRuntime) -> RedisBackend:
        """A client that remembers nothing."""
        link = Link(runtime.process, timeout=1.0)
        return open_plain(self._server, link, runtime, Options(), shared=True)

    def _pass(self, seconds: float) -> None:
        self._world.now += seconds
        self._server.database.now_ms = self._server.now_us // 1000


class RecordsOfRedis:
    """The hashes of records."""

    error = 0.0

    def __init__(self, server: SimRedis) -> None:
        self._server = server
        self._names = Names(DEFAULT_PREFIX, compat=False)

    def time(self) -> float:
        """See `StoredRecords`."""
        return self._server.now_us / 1e6

    def value(self, key: str) -> bytes:
        """See `StoredRecords`."""
        found = self._server.database._values.get(self._names.keys(key).record)
        return b"" if found is None else found.get(b"v", b"")
