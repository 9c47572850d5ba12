"""Whether all stores follow the same rules: random requests to a store and to the memory store, answer by answer.

    python -m verification.differential --seeds 500
    python -m verification.differential --store redis --first 41 --seeds 1

The rules of a lock are written four times: in `memory`, in SQLite's rows, in PL/pgSQL and in Lua. Here the memory store
is the oracle. A seed gives a sequence of requests of the port, with repeats of claims and late copies of them; each is
made to the oracle and to the store, and the two answers must be equal.

Time. Both sides have a clock that is set: the oracle and SQLite by a hook, the servers by a library that is loaded
between them and the system. Time passes in steps of an even number of seconds and everything that runs out lasts an odd
number, so each end is at least a second away from each request. What really passes while the requests of one step are
made is taken off the next step; a sequence in which that was too much is not compared, and run again.

What the port leaves open is not compared. When exactly a lock is handed over: PostgreSQL and Redis do it in the request
that makes room, memory and SQLite when the waiter asks; so after each request every waiter asks, in order, and then
nothing is open. How long a place in the queue lives: time passes either for so short that every waiter is there again
in time, or for so long that all of them are dead. For how much longer than a ttl a withdrawn claim is refused. The
values of fences: of each key the first is 1, the second 2, and each must be above all before. Which of several holders
a refusal names, and the time it gives. How many wait, while there may be dead ones among them: Redis counts these until
it comes across them.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from leasehold._backends.memory import MemoryStore
from leasehold._backends.sqlite.options import Location
from leasehold._backends.sqlite.store import SqliteStore
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendError, ModeConflict
from leasehold.spi import Place
from leasehold.testing import ManualClock
from leasehold.values import UNLIMITED, Claim, Grant, Holder, LockState, Loss, Mode, Pause, Refusal
from verification.lab.shifted_clock import ShiftedClock, ShiftedMariadbServer, ShiftedPostgresServer, ShiftedRedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leasehold.spi import Backend, Store

__all__ = ["KNOWN", "STORES", "Difference", "Known", "Report", "Rig", "compare", "rig_for"]

Answer = tuple[Any, ...]

CLIENTS = 2
CLAIMS = 9
STEPS = 60
TRIES = 5  # of a sequence that the machine was too slow for
TOO_LONG = 0.8  # seconds that may pass between two steps of the clock
SHORT, LONG = 2.0, 8.0  # every waiter is there again after the first; none is alive after the second
TTLS = (5.0, 9.0, 15.0, 25.0)
PAUSE = 11.0
MIN_HOLDS = (0.0, 0.0, 0.0, 3.0, 7.0)
ODDS = {
    "join": 24,
    "try_acquire": 12,
    "release": 16,
    "renew": 12,
    "withdraw": 8,
    "break": 7,
    "turn": 4,
    "short": 8,
    "long": 3,
    "raise_fence": 3,
    "pause": 3,
    "resume": 4,
}


class TooSlow(Exception):
    """More time passed than the sequence allows for: its answers cannot be compared."""


# --- stores whose clock is set --------------------------------------------------------------------------------------


class Rig(Protocol):
    """A store under test, and its clock."""

    name: str

    def open_store(self) -> Store:
        """The store, reached by one more client."""

    def begin(self) -> None:
        """A sequence begins."""

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass at once."""

    def check_pace(self) -> None:
        """Raise `TooSlow` when the sequence cannot be judged any more."""


class MemoryRig:
    """The memory store: the oracle."""

    name = "memory"

    def __init__(self) -> None:
        self._clock = ManualClock()
        self._store = MemoryStore(self._clock.now, wall=lambda: 0.0)

    def open_store(self) -> Store:
        return self._store

    def begin(self) -> None:
        pass

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def check_pace(self) -> None:
        pass


class _ManualHost:
    """The clocks of a host, set by hand."""

    boot = "differential"

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def wall(self) -> float:
        return 1_800_000_000.0 + self._clock.now()


class SqliteRig:
    """A lock file."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._clock = ManualClock()
        self._location = Location(str(folder / "locks.db"), private=False, label="sqlite")

    def open_store(self) -> Store:
        return SqliteStore(self._location, synchronous="off", host=_ManualHost(self._clock))

    def begin(self) -> None:
        pass

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def check_pace(self) -> None:
        pass


class ServerRig:
    """A server of its own whose time of day is shifted; real time passes too, and is made up for at each step."""

    def __init__(self, name: str, url: str, clock: ShiftedClock) -> None:
        self.name = name
        self._url = url
        self._clock = clock
        self._shift = 0.0
        self._began = 0.0

    def open_store(self) -> Store:
        return find_store(self._url)

    def begin(self) -> None:
        self._began = time.monotonic()

    def pass_time(self, seconds: float) -> None:
        passed = time.monotonic() - self._began
        self.check_pace()
        self._shift += seconds - passed
        self._clock.set(self._shift)
        self._began += passed

    def check_pace(self) -> None:
        if time.monotonic() - self._began > TOO_LONG:
            raise TooSlow


STORES = ("sqlite", "postgresql", "mysql", "redis")
COUNTS_THE_DEAD = ("redis",)


@contextmanager
def rig_for(store: str) -> Iterator[Rig]:
    """A store of this name, for as long as the block runs."""
    with ExitStack() as stack:
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="leasehold-differential-"))
            yield SqliteRig(Path(folder))
            return
        if store == "postgresql":
            postgres = stack.enter_context(ShiftedPostgresServer())
            yield ServerRig(store, postgres.url(), postgres.clock)
        elif store == "mysql":
            mariadb = stack.enter_context(ShiftedMariadbServer())
            yield ServerRig(store, mariadb.make_database("differential"), mariadb.clock)
        else:
            redis = stack.enter_context(ShiftedRedisServer("differential"))
            yield ServerRig(store, redis.url, redis.clock)


# --- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One request: a verb, the number of the claim that it is about, and which of its grants; or seconds that pass."""

    verb: str
    claim: int = 0
    grant: int = 0
    now: bool = False  # break at once; withdraw without doubt; pause without an end
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.verb in ("short", "long"):
            return f"{self.seconds:.0f} s pass"
        extra = {"break": ", at once", "withdraw": ", no doubt"}.get(self.verb, "") if self.now else ""
        which = f", grant {self.grant}" if self.verb in ("release", "renew", "break") else ""
        return f"{self.verb}(claim {self.claim}{which}{extra})"


def _claims(chance: random.Random, prefix: str) -> list[Claim]:
    """The claims of a sequence: on two keys, most of one kind for each."""
    claims = []
    kinds = [chance.choice(("lock", "lock", "permit")) for _ in range(2)]
    for number in range(CLAIMS):
        key = chance.randrange(2)
        kind = kinds[key] if chance.random() < 0.93 else chance.choice(("lock", "permit", "other"))
        mode = Mode.PERMIT if kind != "lock" else chance.choice((Mode.EXCLUSIVE, Mode.EXCLUSIVE, Mode.SHARED))
        capacity = {"lock": 1, "permit": 2, "other": 3}[kind]
        ttl, min_hold = chance.choice(TTLS), chance.choice(MIN_HOLDS)
        holder = Holder("host", number, f"claim {number}")
        owner = f"{prefix}-{number}".rjust(32, "-")  # no claim of another sequence has it
        claims.append(Claim(f"{prefix}:{key}", owner, ttl, mode, capacity, min_hold, holder))
    return claims


class Side:
    """One store as a sequence sees it: its clients, and what they were granted."""

    def __init__(self, rig: Rig, backends: Sequence[Backend], claims: Sequence[Claim]) -> None:
        self.rig = rig
        self._backends = backends
        self._claims = claims
        self.grants: dict[int, list[Grant]] = defaultdict(list)
        self.places: dict[int, Place] = {}
        self._fences: dict[str, list[int]] = defaultdict(list)
        self._floor: dict[str, int] = defaultdict(int)

    def can(self, step: Step) -> bool:
        """Whether the step means anything: a sequence that was shortened may have lost what it needs."""
        if step.verb in ("release", "renew", "break"):
            return step.grant < len(self.grants[step.claim])
        return step.verb != "turn" or step.claim in self.places

    def perform(self, step: Step) -> Answer:
        """Make the request; the answer in words that are the same for all stores."""
        if step.verb in ("short", "long"):
            self.rig.pass_time(step.seconds)
            return ()
        claim = self._claims[step.claim]
        backend: Any = self._backends[step.claim % CLIENTS]
        try:
            answer = run(getattr(self, f"_{step.verb}")(step, backend, claim))
        except ModeConflict:
            answer = ("mode conflict",)
        except BackendError as error:
            answer = ("error", f"{type(error).__name__}: {error}")
        self.rig.check_pace()
        return cast("Answer", answer)

    def inspect(self, claim: Claim) -> Answer:
        """What an operator sees of the claim's key."""
        state = run(cast("Any", self._backends[0]).inspect(claim.key))
        self.rig.check_pace()
        if state is None:
            return ("free",)
        return self._seen(claim.key, state)

    def _seen(self, key: str, state: LockState) -> Answer:
        holdings = sorted(
            (
                self._number(key, held.fence),
                held.holder.label,
                held.broken,
                held.cooling,
                math.ceil(held.expires_in / 2),
            )
            for held in state.holdings
        )
        kind = state.capacity if state.mode is Mode.PERMIT else "lock"
        return ("in use", kind, holdings, [waiter.label for waiter in state.waiting], _paused(state.paused))

    def _number(self, key: str, fence: int) -> int | str:
        seen = self._fences[key]
        return seen.index(fence) + 1 if fence in seen else f"unknown {fence}"

    # --- verbs

    async def _try_acquire(self, step: Step, backend: Any, claim: Claim) -> Answer:
        return await self._answer(step.claim, backend, await backend.try_acquire(claim))

    async def _join(self, step: Step, backend: Any, claim: Claim) -> Answer:
        return await self._answer(step.claim, backend, await backend.join(claim))

    async def _turn(self, step: Step, backend: Any, _: Claim) -> Answer:
        return await self._answer(step.claim, backend, await backend.turn(self.places[step.claim]))

    async def _renew(self, step: Step, backend: Any, claim: Claim) -> Answer:
        (answer,) = await backend.renew([self.grants[step.claim][step.grant]])
        if isinstance(answer, Grant):
            return ("renewed", self._number(claim.key, answer.fence))
        return _loss(answer) if isinstance(answer, Loss) else ("error", str(answer))

    async def _release(self, step: Step, backend: Any, _: Claim) -> Answer:
        answer = await backend.release(self.grants[step.claim][step.grant])
        return _loss(answer) if isinstance(answer, Loss) else (answer,)

    async def _withdraw(self, step: Step, backend: Any, claim: Claim) -> Answer:
        await backend.withdraw(claim, doubt=not step.now)
        return ()

    async def _break(self, step: Step, backend: Any, claim: Claim) -> Answer:
        fence = self.grants[step.claim][step.grant].fence
        return (await backend.break_(claim.key, fence, f"reason {step.claim}", now=step.now),)

    async def _raise_fence(self, _: Step, backend: Any, claim: Claim) -> Answer:
        key = claim.key
        wanted = max([0, self._floor[key], *self._fences[key]]) + 1_000_000_000
        answer = await backend.raise_fence(key, wanted)
        self._floor[key] = max(self._floor[key], answer)
        return (answer >= wanted,)

    async def _pause(self, step: Step, backend: Any, claim: Claim) -> Answer:
        by = Holder("ops", 1, f"operator {step.claim}", f"reason {step.claim}")
        await backend.pause(claim.key, by, UNLIMITED if step.now else PAUSE)
        return ()

    async def _resume(self, _: Step, backend: Any, claim: Claim) -> Answer:
        return (await backend.resume(claim.key),)

    async def _answer(self, number: int, backend: Any, answer: Grant | Place | Refusal) -> Answer:
        if isinstance(answer, Place):
            self.places[number] = answer
            return (
                "place",
                answer.ahead,
                answer.holder is not None or answer.paused is not None,
                _paused(answer.paused),
            )
        self.places.pop(number, None)
        if isinstance(answer, Refusal):
            known = answer.holder is not None or answer.paused is not None
            return ("refused", answer.queue, known, _paused(answer.paused))
        if answer.ttl < answer.claim.ttl:  # a claim window after a hand-over: to be renewed at once
            await backend.renew([answer])
        return self._granted(number, answer)

    def _granted(self, number: int, grant: Grant) -> Answer:
        key = grant.claim.key
        seen = self._fences[key]
        if grant.fence not in seen:
            if grant.fence <= max([self._floor[key], *seen]):
                return ("granted with a fence that is not above all before",)
            seen.append(grant.fence)
        if all(known.fence != grant.fence for known in self.grants[number]):
            self.grants[number].append(grant)
        return ("granted", self._number(key, grant.fence), grant.abandoned)


def _uncounted(answer: Answer) -> Answer:
    return (answer[0], *answer[2:]) if answer[:1] in (("place",), ("refused",)) else answer


def _paused(pause: Pause | None) -> Answer:
    if pause is None:
        return ()
    left = None if pause.expires_in is None else math.ceil(pause.expires_in / 2)
    return (pause.by, pause.reason, left)


def _loss(loss: Loss) -> Answer:
    return ("lost", str(loss.reason), loss.detail if loss.reason == "broken" else "")


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Past:
    """What happened to one claim so far, by the oracle's answers; for the rules of `KNOWN`."""

    claim: Claim
    broken: bool = False
    released: bool = False
    withdrawn: bool = False
    refused_until: float = math.inf  # withdrawn: its late copies come before that, by the sequence's clock
    is_over: bool = False  # no request of it comes any more: its process died waiting, or withdrew it without doubt


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers to one request that are not the same."""

    store: str
    seed: int
    steps: tuple[Step, ...]  # up to the one after which it was seen
    request: str  # that step itself, or a later request that shows its effect
    claim: Claim
    oracle: Answer
    answer: Answer
    past: Past  # of the claim of the last step

    @property
    def verb(self) -> str:
        """What the last step did."""
        return self.steps[-1].verb

    def __str__(self) -> str:
        story = "\n".join(f"    {step}" for step in self.steps)
        claim = self.claim
        about = f"{claim.mode} of {claim.capacity}, ttl {claim.ttl}, min_hold {claim.min_hold}"
        return (
            f"seed {self.seed}: after\n{story}\n  {self.request} ({about})\n"
            f"    memory: {self.oracle}\n    {self.store}: {self.answer}"
        )


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is known and allowed for now; a sequence ends where it is met."""

    name: str
    stores: frozenset[str]
    covers: Callable[[Difference], bool]


ASKING = ("join", "turn", "try_acquire")
KNOWN: tuple[Known, ...] = ()  # none: a row is for a difference that is found now and removed later


@dataclass(slots=True)
class Report:
    """What came out of all sequences on one store."""

    sequences: int = 0
    requests: int = 0
    too_slow: int = 0
    known: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)


class _Sequence:
    """One sequence of requests on both sides, drawn or given."""

    def __init__(self, rig: Rig, backends: Sequence[Backend], seed: int, prefix: str) -> None:
        self._seed = seed
        self._chance = random.Random(seed)
        self._claims = _claims(self._chance, prefix)
        oracle = MemoryRig()
        store, runtime = oracle.open_store(), ThreadRuntime()
        self.oracle = Side(oracle, [store.open_backend(runtime) for _ in range(CLIENTS)], self._claims)
        self.side = Side(rig, backends, self._claims)
        self.requests = 0
        self._past = [Past(claim) for claim in self._claims]
        self._waiters: list[int] = []
        self._keys_with_dead: set[str] = set()
        self._done: list[Step] = []
        self._now = 0.0

    def run(self, steps: Sequence[Step] | None) -> Difference | None:
        """Until the first difference, or to the end."""
        self.side.rig.begin()
        for number in range(STEPS if steps is None else len(steps)):
            step = self._draw() if steps is None else steps[number]
            if not self._is_allowed(step):
                continue
            difference = self._step(step)
            if difference is not None:
                return difference
        return None

    def _step(self, step: Step) -> Difference | None:
        self._done.append(step)
        self._now += step.seconds
        if step.verb == "long":
            self._bury_waiters()
        difference = self._both(step)
        self._note(step)
        waiting = list(self._waiters)
        for number in waiting:
            difference = difference or self._both(Step("turn", number))
        keys = {claim.key: claim for claim in self._claims}
        for claim in keys.values() if step.seconds else [self._claims[step.claim]]:
            difference = difference or self._compare_states(claim)
        return difference

    def _both(self, step: Step) -> Difference | None:
        oracle, answer = self.oracle.perform(step), self.side.perform(step)
        self.requests += 1
        if step.verb in ASKING:
            self._note_place(step.claim, oracle)
        return self._difference(str(step), self._claims[step.claim], oracle, answer)

    def _compare_states(self, claim: Claim) -> Difference | None:
        self.requests += 1
        oracle, answer = self.oracle.inspect(claim), self.side.inspect(claim)
        return self._difference(f"inspect({claim.key.partition(':')[2]})", claim, oracle, answer)

    def _difference(self, request: str, claim: Claim, oracle: Answer, answer: Answer) -> Difference | None:
        if oracle == answer:
            return None
        store = self.side.rig.name
        if store in COUNTS_THE_DEAD and claim.key in self._keys_with_dead and _uncounted(oracle) == _uncounted(answer):
            return None
        past = self._past[self._done[-1].claim]
        return Difference(store, self._seed, tuple(self._done), request, claim, oracle, answer, past)

    # --- the next step

    def _is_allowed(self, step: Step) -> bool:
        """What the port allows a client to do, as far as both sides know of it."""
        past = self._past[step.claim]
        if step.verb in ASKING and (past.is_over or self._now > past.refused_until):
            return False
        if step.verb == "try_acquire" and step.claim in self._waiters:
            return False
        return self.oracle.can(step) and self.side.can(step)

    def _draw(self) -> Step:
        while True:
            (verb,) = self._chance.choices(list(ODDS), list(ODDS.values()))
            step = self._make(verb)
            if self._is_allowed(step):
                return step

    def _make(self, verb: str) -> Step:
        if verb in ("short", "long"):
            return Step(verb, seconds=SHORT if verb == "short" else LONG)
        number = self._chance.randrange(CLAIMS)
        grants = len(self.oracle.grants[number])
        # Mostly the latest grant of a claim, sometimes one that is over.
        grant = max(0, grants - 1) if self._chance.random() < 0.8 else self._chance.randrange(max(1, grants))
        return Step(verb, number, grant, now=self._chance.random() < (0.5 if verb == "break" else 0.3))

    def _note(self, step: Step) -> None:
        past = self._past[step.claim]
        past.broken |= step.verb == "break"
        past.released |= step.verb == "release"
        if step.verb == "withdraw":
            past.withdrawn = True
            past.is_over |= step.now
            past.refused_until = min(past.refused_until, self._now + past.claim.ttl)
            if step.claim in self._waiters:
                self._waiters.remove(step.claim)

    def _bury_waiters(self) -> None:
        """No live waiter is silent for so long: the processes of these are dead."""
        for number in self._waiters:
            self._past[number].is_over = True
            self._keys_with_dead.add(self._claims[number].key)
        self._waiters.clear()

    def _note_place(self, number: int, answer: Answer) -> None:
        waits = answer[0] == "place"
        if waits and number not in self._waiters:
            self._waiters.append(number)
        elif not waits and number in self._waiters:
            self._waiters.remove(number)


class _Comparison:
    """All sequences on one store."""

    def __init__(self, rig: Rig, known: Sequence[Known]) -> None:
        self.report = Report()
        self._rig = rig
        self._known = known
        runtime = ThreadRuntime()
        self._backends = [rig.open_store().open_backend(runtime) for _ in range(CLIENTS)]
        self._prefix = f"{random.SystemRandom().getrandbits(32):08x}"
        self._runs = 0
        run(self._warm_up())

    async def _warm_up(self) -> None:
        """Connections and tables are made before time counts, those of listeners too."""
        for backend in cast("Any", self._backends):
            claims = _claims(random.Random(0), f"{self._prefix}-warm")
            for claim in claims:
                if claim.mode is Mode.EXCLUSIVE:
                    await backend.join(claim)
            for claim in claims:
                await backend.withdraw(claim, doubt=False)

    def close(self) -> None:
        for backend in self._backends:
            run(backend.close())

    def run(self, seed: int) -> None:
        self.report.sequences += 1
        difference = self._attempt(seed, None)
        if difference is None:
            return
        known = self._name_of(difference)
        if known is not None:
            self.report.known[known] += 1
        else:
            self.report.differences.append(self._shortened(difference))

    def _name_of(self, difference: Difference) -> str | None:
        rows = (row for row in self._known if difference.store in row.stores and row.covers(difference))
        return next((row.name for row in rows), None)

    def _attempt(self, seed: int, steps: Sequence[Step] | None) -> Difference | None:
        for _ in range(TRIES):
            self._runs += 1
            sequence = _Sequence(self._rig, self._backends, seed, f"{self._prefix}-{self._runs}")
            try:
                return sequence.run(steps)
            except TooSlow:
                self.report.too_slow += 1
            finally:
                self.report.requests += sequence.requests
        return None

    def _shortened(self, difference: Difference) -> Difference:
        """The same difference after as few steps as possible: leave one out, as long as it is still there."""
        place = len(difference.steps) - 1
        while place >= 0:
            steps = difference.steps
            shorter = self._attempt(difference.seed, steps[:place] + steps[place + 1 :])
            if shorter is not None and self._name_of(shorter) is None:
                difference = shorter
            place = min(place, len(difference.steps)) - 1
        return difference


def compare(rig: Rig, seeds: Sequence[int], known: Sequence[Known] | None = None) -> Report:
    """Run the sequences of these seeds on the store and on the oracle."""
    comparison = _Comparison(rig, KNOWN if known is None else known)
    try:
        for seed in seeds:
            comparison.run(seed)
    finally:
        comparison.close()
    return comparison.report


def main(arguments: list[str] | None = None) -> int:
    """0: no difference that is not known."""
    parser = argparse.ArgumentParser(prog="python -m verification.differential", description=__doc__)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=5, help="how many differences to show of each store")
    parser.add_argument("--strict", action="store_true", help="allow no known difference")
    options = parser.parse_args(arguments)
    found = 0
    for store in options.store or STORES:
        with rig_for(store) as rig:
            seeds = range(options.first, options.first + options.seeds)
            report = compare(rig, seeds, () if options.strict else None)
        for difference in report.differences[: options.show]:
            print(difference)
        print(
            f"{store}: {report.sequences} sequences, {report.requests} requests, {report.too_slow} too slow to judge, "
            f"known: {dict(report.known) or 'none'}, {len(report.differences)} differences",
            flush=True,
        )
        found += len(report.differences)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
