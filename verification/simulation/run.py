"""One run from one seed: build a world, let programs and faults loose, heal, end everything, look for what is left."""

from __future__ import annotations

import gc
import logging
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from leasehold._core import batch
from verification.simulation.batches import Batches
from verification.simulation.checkers import Beliefs, fence_disorder
from verification.simulation.history import History, Violation, last_lines, trace_hash
from verification.simulation.idempotency import Results
from verification.simulation.jobs import Jobs
from verification.simulation.leaders import Leaders
from verification.simulation.nemesis import Nemesis
from verification.simulation.network import Link
from verification.simulation.programs import PROGRAMS
from verification.simulation.resource import Register
from verification.simulation.runtime import SimRuntime, SimTaskHandle
from verification.simulation.schedule import Schedule
from verification.simulation.stage import MemoryStage
from verification.simulation.workloads import LONG_TTL, Scene, Site
from verification.simulation.world import Stuck, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.simulation.programs import Program
    from verification.simulation.schedule import Part
    from verification.simulation.stage import Stage
    from verification.simulation.world import SimTask

__all__ = ["FORGETFUL", "RECORDING", "STORES", "Outcome", "simulate"]

STAGES = {  # loaded only for who wants them: some need an interpreter for scripts, or a driver
    "redis": ("verification.simulation.redis.stage", "RedisStage"),
    "sqlite": ("verification.simulation.sqlite", "SqliteStage"),
    "redlock": ("verification.simulation.redlock.stage", "RedlockStage"),
    "etcd": ("verification.simulation.etcd.stage", "EtcdStage"),
    "mysql": ("verification.simulation.mysql.stage", "MysqlStage"),
    "nats": ("verification.simulation.nats.stage", "NatsStage"),
    "zookeeper": ("verification.simulation.zookeeper.stage", "ZooKeeperStage"),
}
STORES = ("memory", *STAGES)
FORGETFUL = frozenset(
    {"redis", "redlock", "nats"}
)  # stores that are restarted empty, or fail over to one that has less
RECORDING = frozenset(STORES) - {"redlock", "zookeeper"}  # stores that have records, without which there are no jobs


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed brought."""

    seed: int
    violations: tuple[Violation, ...]
    trace: tuple[str, ...]  # the last lines
    trace_hash: str
    virtual_seconds: float  # of the busy part; the day that passes at the end is not counted
    steps: int
    grants: int
    losses: int
    faults: int
    updates: int
    unfenced_losses: int  # of the negative control
    fenced_updates: int  # that were acknowledged
    failovers: int
    empty_restarts: int
    runs: int  # of jobs
    recorded_runs: int  # that were confirmed
    repeated_runs: int  # of a slot whose work another run had ended well, and no record says so
    skips: int  # of jobs
    schedule: tuple[Part, ...]  # what took place, or would have


def simulate(
    seed: int,
    *,
    store: str = "memory",
    program: str = "everything",
    schedule: Schedule | None = None,
    lines: int | None = 40,
) -> Outcome:
    """Run one seed and keep the last lines of its trace. Nothing but these arguments decides what happens."""
    if program == "jobs" and store not in RECORDING:
        raise ValueError(f"{store} has no records, so that no job can run there")
    with _quiet() as complaints:
        run = _Run(seed, store, PROGRAMS[program], schedule or Schedule(), complaints)
        try:
            return run.outcome(lines)
        finally:
            run.world.end()


def _stage(store: str, world: World, history: History, schedule: Schedule) -> Stage:
    """The store of the run."""
    if store == "memory":
        return MemoryStage(world, history)
    module, name = STAGES[store]
    stage: Stage = getattr(import_module(module), name)(world, history, schedule)
    return stage


class _Run:
    def __init__(self, seed: int, store: str, program: Program, schedule: Schedule, complaints: list[str]) -> None:
        self.world = world = World(seed)
        self._program = program
        self._schedule = schedule
        self._complaints = complaints
        self._history = History(world)
        random = world.random
        queueing = random.random() < 0.8
        self._stage = stage = _stage(store, world, self._history, schedule)
        beliefs = Beliefs(world, self._history, stage.model)
        leaders = Leaders(self._history, stage.model, 1.0 + 1.2 * stage.drift)

        batches = Batches(world, self._history, stage.model)

        ttl = random.choice([0.6, 1.0, 2.0, 3.0])
        stage.prepare(ttl, queueing=queueing, forgetful=program.forgetful)
        jobs = Jobs(world, self._history, stage, ttl) if program.runs_jobs else None

        def look() -> None:
            beliefs.look()
            leaders.look()
            batches.look()
            if jobs is not None:
                jobs.look()

        world.on_step = look
        batch.LONGEST = random.choice([0.05, ttl, 3 * ttl])
        mutexes = ("one", "two")[: random.choice([1, 2])]
        self._scene = Scene(
            self._history,
            schedule,
            stage.model,
            beliefs,
            leaders,
            batches,
            ttl,
            mutexes,
            fenced={name: Register(world, fenced=True) for name in mutexes},
            plain={name: Register(world, fenced=False) for name in mutexes},
            queueing=queueing,
            rates=1.0 + 1.2 * stage.drift,
            delay=stage.delay,
            keeps_until=stage.keeps_until,
            capabilities=stage.capabilities,
            results=Results(self._history) if stage.keeps_records else None,
            jobs=jobs,
        )
        self._observer = SimRuntime(world.process("observer"))
        self._sites = [self._site(index) for index in range(random.choice([2, 3, 4]))]
        self._nemesis = Nemesis(world, self._history, schedule, [site.link for site in self._sites], ttl)
        self._busy_until = 0.0

    def outcome(self, lines: int | None) -> Outcome:
        """Run it and judge it."""
        world, history = self.world, self._history
        try:
            world.run(self._script(), self._observer.process)
        except Stuck as stuck:
            history.violate("stuck", str(stuck))
        for task in world.failures:
            history.violate("a task failed", f"{task.process.name} {task.name}: {task.error!r}")
        for complaint in self._complaints:
            history.violate("an error was swallowed", complaint)
        disorder = fence_disorder(history.grants)
        if disorder is not None:
            history.violate("fences out of order", disorder)
        for name, register in self._scene.fenced.items():
            if register.lost:
                history.violate("a fenced update was lost", f"{name} {register.lost}")
        counts = history.counts
        return Outcome(
            world.seed,
            tuple(history.violations),
            tuple(last_lines(world, lines)),
            trace_hash(world),
            self._busy_until or world.now,
            world.steps,
            counts["grants"],
            counts["losses"],
            counts["faults"],
            counts["updates"],
            sum(len(register.lost) for register in self._scene.plain.values()),
            sum(len(register.acknowledged) for register in self._scene.fenced.values()),
            counts["failovers"],
            counts["empty restarts"],
            counts["runs"],
            counts["recorded runs"],
            counts["repeated runs"],
            counts["skips"],
            tuple(self._schedule.parts.values()),
        )

    def _site(self, index: int) -> Site:
        world, random = self.world, self.world.random
        rate = 1.0 + self._stage.drift * (2 * random.random() - 1)
        process = world.process(f"p{index}", rate=rate, offset=1_000.0 * random.random())
        patience = random.random()  # most stores give up soon; some only after the caller has lost its interest
        link = Link(process, timeout=0.15 + 0.625 * patience if patience < 0.8 else 3.0)
        store = self._stage.store(link)
        site = Site(self._scene, SimRuntime(process, interrupts=random.random() < 0.7), link, store)
        self._scene.batches.watch(link, site.client)
        return site

    async def _script(self) -> None:
        """The phases: trouble, healing, one more contest, the end, and a look at what is left."""
        world, random, scene, program = self.world, self.world.random, self._scene, self._program
        scene.healed_at = heal_at = scene.ttl * (4 + 5 * random.random()) * program.length
        tasks = []
        for site in self._sites:
            for _ in range(random.choice([2, 3, 4])):
                scene.contenders += 1
                actor = program.actor(scene, site, random.choice(program.operations), program.pace)
                tasks.append(site.runtime.process.spawn(actor.live(), "actor"))
        self._nemesis.unleash(heal_at)
        self._stage.unleash([site.link for site in self._sites], heal_at)
        if self._schedule.salt:
            random.seed(f"{self.world.seed} {self._schedule.salt}")
        await self._observer.sleep(heal_at)
        self._nemesis.heal()
        self._stage.heal()
        await self._end_of(tasks, heal_at)
        self._busy_until = self.world.now
        await self._close()
        if scene.jobs is not None:
            scene.jobs.close()
        world.now += program.remembered
        await self._stage.look_for_leaks(self._observer)

    async def _end_of(self, tasks: list[SimTask], heal_at: float) -> None:
        """Every live task gets through: each still has its last operations to do, one contest each at the worst."""
        limit = heal_at + 6 * self._scene.patience
        for task in tasks:
            while not task.done and not task.process.crashed:
                if self.world.now > limit:
                    self._history.violate("starved", f"{task.process.name} does not come to its end")
                    return
                await SimTaskHandle(self._observer, task).join(self._observer.now() + 0.25)

    async def _close(self) -> None:
        """Close every client that lives, and see that nothing of it goes on."""
        alive = [site for site in self._sites if not site.link.process.crashed]
        for site in alive:
            closing = site.runtime.process.spawn(self._close_one(site), "close")
            await SimTaskHandle(self._observer, closing).join()
        await self._observer.sleep(3 * self._scene.ttl + 2.0 + LONG_TTL + self._scene.delay)
        for site in alive:
            process = site.link.process
            left = [task.name for task in process.tasks.values()]
            if left:
                self._history.violate("tasks are left", f"{process.name}: {left}")

    async def _close_one(self, site: Site) -> None:
        """Close a client that still holds a lease: its loss is announced, and the keeper ends at once."""
        name = site.link.process.name
        lease = await site.client.lock(f"last of {name}").acquire()
        began = self.world.now
        await site.client.close()
        if self.world.now > began + 0.5:
            self._history.violate("close takes long", f"{name}: {self.world.now - began:.1f} s")
        if lease.loss is None or lease.remaining() > 0:
            self._history.violate("a lease outlives its client", f"{lease!r}")


class _Complaints(logging.Handler):
    """Errors that the library logs with a traceback are errors of the library."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.seen.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """No logging, no warnings about leases that were dropped on purpose, no garbage collector to disturb the order."""
    logger = logging.getLogger("leasehold")
    level, propagate, collecting = logger.level, logger.propagate, gc.isenabled()
    longest = batch.LONGEST
    complaints = _Complaints()
    logger.addHandler(complaints)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            yield complaints.seen
    finally:
        batch.LONGEST = longest
        if collecting:
            gc.enable()
        logger.setLevel(level)
        logger.propagate = propagate
        logger.removeHandler(complaints)
