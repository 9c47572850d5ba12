"""What the simulated programs do with locks: every way to take, use, lose and give back, drawn from the seed.

It uses the public face of the library, and reports to the checkers what it requested and what it got.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold._core import events as happened
from leasehold._core.backoff import GRACE
from leasehold._face.client import AsyncClient
from leasehold._face.hold import AsyncHold
from leasehold._face.lease import AsyncLease, AsyncLeaseSet
from leasehold._face.lock_spec import LockOptions
from leasehold.errors import AcquireTimeout, AttemptExpired, BackendError, InFlight, LeaseLost, StaleFence
from leasehold.values import Capability, LossReason
from verification.simulation.batches import is_passed_on, owners_in_use
from verification.simulation.idempotency import attempt_once
from verification.simulation.leaders import lead_on, timings_for
from verification.simulation.schedule import LAST
from verification.simulation.world import Cancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from leasehold._face.lock import AsyncLock, AsyncLockSet
    from leasehold._patterns.election import AsyncLeading, AsyncTerm
    from leasehold._patterns.once import AsyncAttempt
    from leasehold.spi import Store
    from leasehold.values import Loss
    from verification.simulation.accounts import StoreModel
    from verification.simulation.batches import Batches
    from verification.simulation.checkers import Beliefs
    from verification.simulation.history import History
    from verification.simulation.idempotency import Results
    from verification.simulation.jobs import Jobs
    from verification.simulation.leaders import Leaders
    from verification.simulation.network import Link
    from verification.simulation.resource import Register
    from verification.simulation.runtime import SimRuntime, SimTaskHandle
    from verification.simulation.schedule import Schedule

__all__ = ["EXPECTED", "LONG_TTL", "Actor", "BodyError", "Entered", "Scene", "Site"]

PERMITS = 2
LONG_TTL = 12.0  # of leases that must not be waited for
CLEANED = 2.5  # seconds after a disturbance in which everything is cleaned up: the longest pause, one call, slack


class BodyError(Exception):
    """An error of the user's own code under a lock."""


EXPECTED = (AcquireTimeout, LeaseLost, BackendError, StaleFence, BodyError, InFlight, AttemptExpired)


@dataclass(slots=True)
class Scene:
    """What all programs of a run share."""

    history: History
    schedule: Schedule
    model: StoreModel
    beliefs: Beliefs
    leaders: Leaders
    batches: Batches
    ttl: float
    mutexes: tuple[str, ...]
    fenced: dict[str, Register]
    plain: dict[str, Register]
    queueing: bool
    rates: float = 1.006  # a little more than two clocks can differ in rate
    delay: float = 0.0  # how much longer than that of others a wait may be, because of the store
    keeps_until: bool = True
    capabilities: frozenset[Capability] = frozenset(Capability)
    results: Results | None = None  # of idempotency keys; None where the store may lose its records
    jobs: Jobs | None = None  # in a run of jobs
    contenders: int = 0
    healed_at: float = math.inf

    @property
    def patience(self) -> float:
        """How long a waiter can have to wait once all faults are healed."""
        return (self.contenders + 1) * (3 * self.ttl + 1.0) + self.delay


class Site:
    """One process with its client."""

    def __init__(self, scene: Scene, runtime: SimRuntime, link: Link, store: Store) -> None:
        self.runtime = runtime
        self.link = link
        self.client = AsyncClient(store, runtime, ttl=scene.ttl, label=link.process.name)
        self._scene = scene
        self.client.on_event(self._listen)

    def _listen(self, event: happened.Event) -> None:
        scene, process = self._scene, self.link.process
        process.world.note(process.name, type(event).__name__, event.name, getattr(event, "fence", ""))
        if isinstance(event, happened.Acquired):
            assert self.client._opened is not None
            known = self.client._opened.keeper.tenures()
            tenure = next((each for each in known if (each.name, each.grant.fence) == (event.name, event.fence)), None)
            if tenure is None:
                scene.history.violate("the keeper does not know a new lease", f"{process.name} {event.fence}")
            else:
                scene.beliefs.admitted(self.link, tenure)
                scene.batches.acquired(tenure)
        elif isinstance(event, happened.Released):
            scene.batches.released(event.name, event.fence)
        elif isinstance(event, happened.Lost):
            scene.beliefs.lost(self.link, event.name, event.fence, event.loss.reason)
        if scene.jobs is not None:
            scene.jobs.heard(event)


class Actor:
    """One task of a program: does a few things, one after the other, then contends once more after all is healed."""

    ends_when_healed = False  # or all of its operations are done, however long they take

    def __init__(self, scene: Scene, site: Site, operations: int, pace: float = 1.0) -> None:
        self._scene = scene
        self._number = scene.contenders
        self._pace = pace
        self._site = site
        self._operations = operations
        self._runtime = site.runtime
        self._world = site.runtime.world
        self._random = site.runtime.world.random
        self._choices()

    def _choices(self) -> None:
        """What it may do."""
        self._deeds: list[Callable[[], Awaitable[None]]] = [
            self._hold_one,
            self._hold_one,
            self._hold_one,
            self._acquire_and_release,
            self._acquire_and_release,
            self._try,
            self._hold_shared,
            self._hold_shared,
            self._hold_all,
            self._be_cancelled,
            self._be_cancelled,
            self._operate,
            self._drop,
            self._enter_twice,
            self._watch_the_end,
            self._release_in_vain,
            self._lead,
            self._lead,
        ]
        self._cancellable = [self._hold_one, self._hold_shared, self._hold_all, self._acquire_and_release]
        if not {Capability.SHARED, Capability.PERMITS} <= self._scene.capabilities:
            self._deeds = [deed for deed in self._deeds if deed != self._hold_shared]
            self._cancellable.remove(self._hold_shared)
        if self._scene.results is not None:
            self._deeds += [self._attempt_a_key, self._attempt_a_key]
            self._cancellable.append(self._attempt_a_key)

    async def live(self) -> None:
        """Do everything."""
        for number in range(self._operations):
            await self._runtime.sleep(self._random.random() * self._scene.ttl / 2 * self._pace)
            if self.ends_when_healed and self._scene.healed_at <= self._world.now:
                break
            deed = self._random.choice(self._deeds)
            if self._is_kept(number, deed):
                await self._attempt(deed)
        await self._runtime.sleep(max(0.0, self._scene.healed_at - self._world.now) + self._random.random())
        if self._is_kept(LAST, self._contend):
            await self._attempt(self._contend)

    def _is_kept(self, number: int | str, deed: Callable[[], Awaitable[None]]) -> bool:
        what = deed.__name__.strip("_").replace("_", " ")
        return self._scene.schedule.step(self._site.link.process.name, self._number, number, what)

    async def _attempt(self, deed: Callable[[], Awaitable[None]]) -> None:
        try:
            await deed()
        except EXPECTED as error:
            self._world.note(self._site.link.process.name, deed.__name__, "ended with", type(error).__name__)

    # --- deeds

    async def _hold_one(self) -> None:
        name = self._mutex()
        await self._hold(self._site.client.lock(name, **self._mutex_options()), self._timeout(), name)

    async def _contend(self) -> None:
        name = self._mutex()
        await self._hold(self._site.client.lock(name, ttl=self._scene.ttl), None, name)

    async def _hold_shared(self) -> None:
        client, options = self._site.client, self._options()
        both = client.rwlock("rw", **options)
        lock = self._random.choice(
            [client.semaphore("semaphore", PERMITS, **options), both.read, both.read, both.write]
        )
        await self._hold(lock, self._timeout(), None)

    async def _hold_all(self) -> None:
        names = self._scene.mutexes
        await self._hold(self._site.client.lock_all(names, **self._mutex_options()), self._timeout(), None)

    async def _acquire_and_release(self) -> None:
        name = self._mutex()
        lease = await self._acquire(self._site.client.lock(name, **self._mutex_options()), self._timeout())
        try:
            await self._work(lease, name)
        finally:
            await self._release(lease)
        if self._random.random() < 0.5 and await lease.release():
            self._scene.history.violate("the second release freed something", f"{lease!r}")

    async def _try(self) -> None:
        lock = self._site.client.lock(self._mutex(), **self._mutex_options())
        lease = await self._ask(lock, lock.try_acquire(), patient=False)
        if lease is not None:
            try:
                await self._work(lease, None)
            finally:
                await self._release(lease)

    async def _be_cancelled(self) -> None:
        """A waiting, working or releasing task is cancelled at any moment."""
        deed = self._random.choice(self._cancellable)
        victim: SimTaskHandle = self._runtime.start(self._attempt(deed), "victim")
        chance = self._random.random()
        await self._runtime.sleep(chance * chance * 2 * self._scene.ttl)
        victim.task.cancel()
        if self._random.random() < 0.3:  # once more, while it cleans up
            await self._runtime.sleep(self._random.random() * 0.01)
            victim.task.cancel()
        await victim.join()

    async def _operate(self) -> None:
        """An operator looks, and breaks what is held."""
        name = self._random.choice([self._mutex(), "semaphore", "rw"])
        state = await self._site.client.inspect(name)
        if state is None or not state.holdings:
            return
        fence = self._random.choice(state.holdings).fence
        await self._site.client.break_lock(name, fence=fence, reason="stuck", now=self._random.random() < 0.5)

    async def _drop(self) -> None:
        """A lease that is forgotten is not renewed any more."""
        lease = await self._acquire(self._site.client.lock(self._mutex()), self._timeout())
        await self._runtime.sleep(self._random.random() * self._scene.ttl)
        del lease

    async def _enter_twice(self) -> None:
        lock = self._site.client.lock(self._mutex(), reentrant=True, ttl=self._scene.ttl)
        first = await self._acquire(lock, self._timeout())
        try:
            if first.remaining() <= 0:
                return
            second = await lock.acquire(0)
            if second.fence != first.fence:
                self._scene.history.violate("entering again gave another fence", f"{first!r} {second!r}")
            await second.release()
            if first.loss is None and first.remaining() <= 0:
                self._scene.history.violate("the inner release ended the outer lease", f"{first!r}")
            self._check_alive(first)
            await self._work(first, None)
        finally:
            await self._release(first)

    async def _watch_the_end(self) -> None:
        """Without renewal a lease is lost at its deadline, and a wait for that ends."""
        lease = await self._acquire(self._site.client.lock(self._mutex(), renew=False), self._timeout())
        ends = self._runtime.now() + lease.remaining()
        limit = self._random.random() * 2 * self._scene.ttl
        try:
            lost = await lease.lost.wait(limit)
            if lost and self._runtime.now() < ends and lease.loss is None:
                self._scene.history.violate("lost before its end", f"{lease!r}")
        finally:
            await self._release(lease)

    async def _release_in_vain(self) -> None:
        """The store is away at the moment of the release: it is released soon after the store is back."""
        link = self._site.link
        lock = self._site.client.lock(f"long of {link.process.name}", ttl=LONG_TTL)
        lease = await self._acquire(lock, 0.0)
        link.cut = True
        seconds = self._random.random() * 3
        link.trouble(seconds + 2 * link.timeout)
        self._world.after(seconds, link.mend)
        try:
            await lease.release()
        except BackendError:
            self._world.note(link.process.name, "release goes on in the background")
        await self._well_for(CLEANED)
        self._check_gone([lease], answered=True)

    async def _attempt_a_key(self) -> None:
        """Work under an idempotency key: replayed, refused, completed, dropped, or succeeded by another."""
        assert self._scene.results is not None
        await attempt_once(self._site.client, self._runtime, self._scene.results, self._scene.ttl)

    async def _lead(self) -> None:
        """Campaign for the chair, lead, and resign however the body ends."""
        scene, timeout = self._scene, self._timeout()
        losses: list[Loss] = []
        options = timings_for(scene.ttl)
        options["on_lost"] = losses.append
        election = self._site.client.election("chair", **options)
        scene.leaders.watch(self._site.link, election)
        leading = election.lead(timeout)
        try:
            term = await self._ask(election._lock, leading.__aenter__(), patient=timeout is None, timeout=timeout)
            async with Entered(leading):
                await lead_on(election, term, self._runtime, self._random, scene.history)
            if term.loss is None or term.loss.reason is LossReason.RELEASED:
                self._check_resigned(term)
        finally:
            scene.leaders.forget(election)
        if len(losses) != 1:
            scene.history.violate("on_lost was not called once", f"{term!r} {losses!r}")

    # --- taking, using and giving back

    async def _hold(self, lock: AsyncLock | AsyncLockSet, timeout: float | None, register: str | None) -> None:
        losses: list[Loss] = []
        held: list[AsyncLease | AsyncLeaseSet] = []
        try:
            async with AsyncHold(lock._client, lambda _: self._acquire(lock, timeout), timeout, losses.append) as lease:
                held.append(lease)
                await self._work(lease, register, losses)
                if self._random.random() < 0.1:
                    raise BodyError
        except LeaseLost:
            raise
        except (Cancelled, BodyError):
            self._check_gone(held)
            raise
        else:
            self._check_gone(held)
        finally:
            if len(losses) > len(getattr(lock, "names", ("one",))):
                self._scene.history.violate("on_lost was called twice", f"{losses!r}")

    async def _acquire(self, lock: Any, timeout: float | None) -> Any:
        lease = await self._ask(lock, lock.acquire(timeout), patient=timeout is None, timeout=timeout)
        assert lease is not None
        return lease

    async def _ask(self, lock: Any, question: Awaitable[Any], *, patient: bool, timeout: float | None = 0.0) -> Any:
        names: tuple[str, ...] = getattr(lock, "names", None) or (lock.name,)
        scene, world, task = self._scene, self._world, self._world.current
        assert task is not None
        attempt = scene.history.begin("+".join(names), self._site.link.process, patient=patient)
        scene.model.claims_of[task.number] = set()
        lease = None
        why = "busy"
        try:
            lease = await question
        except BaseException as error:
            why = type(error).__name__
            raise
        finally:
            claimed = scene.model.claims_of.pop(task.number)
            if timeout is not None and len(names) == 1 and why != "Cancelled" and scene.keeps_until:
                self._check_timeout(attempt.began_at, timeout)
            leases = [] if lease is None else _each(lease)
            if lease is None:
                scene.history.refused(attempt, why)
            if not world.over:
                granted = {each._tenure.grant.claim.owner for each in leases}
                self._check_nothing_left(names, claimed - granted - scene.model.unanswered, why)
                later = (claimed - granted) & scene.model.unanswered
                if later:
                    self._runtime.start(self._check_cleaned_up(names, later, why), "check")
        for each in leases:
            excused = scene.batches.is_of_a_broken_grant(each._tenure)
            scene.history.granted(attempt, each.name, each.fence, excused=excused)
            scene.batches.used(each._tenure, attempt.began_at)
            scene.beliefs.limit(each.name, each.fence, self._max_hold(lock, each.name))
        if len(leases) == 1 and leases[0].remaining() <= 0:
            scene.history.violate("acquire returned a lease that was over", f"{leases[0]!r}")
        self._check_patience(attempt.began_at, lock, patient=patient)
        return lease

    async def _work(self, lease: Any, register: str | None, losses: Sequence[Loss] = ()) -> None:
        """Use the lease as programs do: look, renew, change what it protects; sometimes without looking."""
        for _ in range(self._random.randrange(1, 4)):
            if losses and self._runtime.interrupts:
                self._scene.history.violate("a block ran on after its loss was announced", f"{lease!r}")
            chance = self._random.random()
            if chance < 0.2 or (register is None and chance >= 0.5):
                await self._runtime.sleep(self._random.random() * self._scene.ttl / 2)
            elif chance < 0.35:
                need = self._random.choice([0, 0, self._scene.ttl / 3])
                lease.check(need)
                self._check_alive(lease, need)
            elif chance < 0.5:
                await lease.renew()
                self._check_alive(lease)
            elif register is not None and isinstance(lease, AsyncLease):
                pause = self._random.random() ** 2 * self._scene.ttl
                await self._update(lease, register, pause, fenced=chance < 0.75)

    async def _update(self, lease: AsyncLease, register: str, pause: float, *, fenced: bool) -> None:
        registers = self._scene.fenced if fenced else self._scene.plain
        self._scene.history.counts["updates"] += 1
        await registers[register].update(self._runtime, self._site.link, lease.fence, pause)

    async def _release(self, lease: AsyncLease) -> None:
        """Give it back; when the store does not answer, wait a little and try again, which must work."""
        grant = lease._tenure.grant
        try:
            await self._release_once(lease)
        except BackendError:
            await self._runtime.sleep(self._random.random() * self._scene.ttl / 2)
            await self._release_once(lease)
        finally:
            self._scene.model.released.setdefault((grant.claim.owner, grant.fence), self._world.now)

    async def _release_once(self, lease: AsyncLease) -> None:
        try:
            await lease.release()
        except Cancelled:
            self._check_gone([lease])
            raise
        except BackendError:
            grant = lease._tenure.grant
            self._scene.model.released.setdefault((grant.claim.owner, grant.fence), self._world.now)
            raise
        if self._runtime.now() < lease._tenure.deadline:
            self._check_gone([lease], answered=True)

    # --- checks at the moment they can be made

    def _check_alive(self, lease: AsyncLease | AsyncLeaseSet, need: float = 0.0) -> None:
        """The library has just promised the lease for so long: the store must agree."""
        model = self._scene.model
        for each in _each(lease):
            grant, left = each._tenure.grant, each.remaining()
            if model.is_excused(grant.claim.owner) or (need == 0.0 and left <= 0.0):
                continue
            record = model.record(grant.claim.key, grant.claim.owner)
            until = model.clock.now() + max(need, left) / self._scene.rates
            if record is None or not record.has(grant.fence) or record.expires < until:
                self._scene.history.violate("check() believes more than the store", f"{each!r}")

    def _check_gone(self, leases: list[AsyncLease | AsyncLeaseSet], *, answered: bool = False) -> None:
        """Given back: the store keeps nothing of it, unless it did not answer, or an operator broke the lock."""
        model = self._scene.model
        for lease in (each for one in leases for each in _each(one)):
            grant = lease._tenure.grant
            if (grant.claim.owner in model.unwithdrawn and not answered) or lease.loss is not None:
                continue
            if grant.claim.owner in model.forgotten:
                continue
            record = model.record(grant.claim.key, grant.claim.owner)
            if is_passed_on(lease._tenure):
                continue
            if record is not None and record.has(grant.fence) and not record.cooling and not record.broken:
                self._scene.history.violate("released, but still in the store", f"{lease!r}")

    def _check_resigned(self, term: AsyncTerm) -> None:
        """The block has been left without an error: the store keeps nothing, unless it did not answer."""
        model, grant = self._scene.model, term._tenure.grant
        if model.is_excused(grant.claim.owner) or grant.claim.owner in model.unwithdrawn:
            return
        record = model.record(grant.claim.key, grant.claim.owner)
        if record is not None and record.fence == grant.fence and not record.broken:
            self._scene.history.violate("left the chair, but did not resign", f"{term!r}")

    def _check_nothing_left(self, names: tuple[str, ...], owners: set[str], why: str) -> None:
        model = self._scene.model
        owners = owners - owners_in_use(self._site.client)  # the claim may stand for others by now
        owners = {owner for owner in owners if not self._scene.batches.has_served(owner)}
        for owner in sorted(owners - model.unwithdrawn - model.forgotten):
            for name in names:
                key = f"leasehold:{name}"
                if model.outlived(key, owner):
                    continue  # a copy later than one ttl: the port promises no more
                record = model.record(key, owner)
                if (record is not None and not record.cooling and not record.broken) or model.waits(key, owner):
                    self._scene.history.violate("left behind by a failed acquire", f"{name} {owner[:6]} {why}")

    async def _check_cleaned_up(self, names: tuple[str, ...], owners: set[str], why: str) -> None:
        """What could not be withdrawn at once is withdrawn soon after the network works again."""
        await self._well_for(CLEANED)
        self._check_nothing_left(names, owners, f"{why}, and not cleaned up")

    async def _well_for(self, seconds: float) -> None:
        while self._site.link.well_for < seconds:
            await self._runtime.sleep(seconds / 10)

    def _check_timeout(self, began_at: float, timeout: float) -> None:
        """A timeout is kept on every store, whatever its own limits are; not by a process that stood still."""
        took = self._world.now - began_at
        if took > (timeout + GRACE) * self._scene.rates + 0.1 and self._site.link.process.resumed_at < began_at:
            self._scene.history.violate("a timeout was not kept", f"{took:.2f} s instead of {timeout:.2f} s")

    def _check_patience(self, began_at: float, lock: Any, *, patient: bool) -> None:
        healed_at = self._scene.healed_at
        if not patient or not self._scene.queueing:
            return
        waited = self._world.now - max(began_at, healed_at)
        if waited > self._scene.patience:
            self._scene.history.violate("starved", f"{lock!r} after {waited:.1f} s")

    # --- choices

    def _max_hold(self, lock: Any, name: str) -> float | None:
        locks = getattr(lock, "_locks", (lock,))
        return next((each._spec.max_hold for each in locks if each.name == name), None)

    def _mutex(self) -> str:
        return self._random.choice(self._scene.mutexes)

    def _timeout(self) -> float | None:
        return self._random.choice([0.0, self._scene.ttl * self._random.random(), 3 * self._scene.ttl, None, None])

    def _options(self) -> LockOptions:
        ttl, random = self._scene.ttl, self._random.random
        options = LockOptions(ttl=ttl * (1.0 if random() < 0.7 else 0.5 + random()))
        if random() < 0.15:
            options["renew"] = False
        if random() < 0.15:
            options["max_hold"] = ttl * (0.4 + random())
        elif Capability.MIN_HOLD in self._scene.capabilities and random() < 0.15:
            options["min_hold"] = ttl * random()
        return options

    def _mutex_options(self) -> LockOptions:
        """Those of a lock that one holder has alone: it may linger."""
        options, chance = self._options(), self._random.random()
        plain = Capability.RANGES in self._scene.capabilities and not {"renew", "min_hold"} & options.keys()
        if plain and chance < 0.5:
            options["linger"] = min(1.0, self._scene.ttl / 4) * (0.05 + 1.9 * chance)
        return options


class Entered:
    """A block whose beginning was awaited before: of a campaign that has been won, of a slot that is ours."""

    def __init__(self, block: AsyncLeading | AsyncAttempt) -> None:
        self._block = block

    async def __aenter__(self) -> None:
        """Entered before."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._block.__aexit__(kind, error, trace)


def _each(lease: AsyncLease | AsyncLeaseSet) -> list[AsyncLease]:
    return list(lease._leases) if isinstance(lease, AsyncLeaseSet) else [lease]
