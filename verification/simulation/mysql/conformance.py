"""The simulated server against a real MariaDB: the shipped backend takes random verbs, and every query goes to both.

So histories are what the store really sends. The real server is told the time of the simulated one (`SET timestamp`),
and answers are compared whole: rows, changed rows, insert ids, errors by their numbers.
"""

from __future__ import annotations

import math
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leasehold._backends.mysql import errors
from leasehold._backends.mysql.backend import RowsBackend
from leasehold._backends.mysql.ddl import statements
from leasehold._backends.mysql.maintenance import Cleaning
from leasehold._backends.mysql.notifications import Waiter
from leasehold._backends.mysql.options import parse
from leasehold._backends.mysql.pool import OwnPool
from leasehold._backends.mysql.statements import MICRO
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendUnavailable, LeaseholdError
from leasehold.kit.waits import waits_for
from leasehold.spi import Place
from leasehold.store_url import StoreURL
from leasehold.values import Claim, Grant, Holder, Mode, Record
from verification.lab.mariadb import MariadbServer
from verification.simulation.mysql.server import SimMysql
from verification.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from leasehold._backends.mysql.connection import Connection
    from leasehold._backends.mysql.packets import Answer, Result

__all__ = ["Twins", "against", "real_server"]

DATABASE = "conformance"
NAMES = {  # each with the modes of its claims; a name that is in use is refused in another kind
    "ns:a": (Mode.EXCLUSIVE,),
    "ns:b": (*(Mode.EXCLUSIVE,) * 3, Mode.SHARED),
    "ns:ü": (Mode.PERMIT,),
    "ns:any": tuple(Mode),
}
FOR_EVER = math.inf
MOST = 12  # grants and places that are remembered
LISTENERS = (None, b"7:abc", b"8:def")


def real_server() -> MariadbServer:
    """One of its own."""
    return MariadbServer()


class Both:
    """An executor, and a connection, that asks both servers, at the same time of day."""

    source: Any = None

    def __init__(self, connection: Connection, twin: SimMysql) -> None:
        self.twin = twin
        self.asked: list[tuple[bytes, Any, Any]] = []  # since the last verb: text, and what each server answered
        self._connection = connection
        self._session = twin.connect(lambda: None)

    async def query(self, text: bytes) -> Answer:
        """See `Connection`."""
        micros = round(self.twin.now() * MICRO)
        await self._connection.query(b"SET timestamp=%d.%06d" % divmod(micros, MICRO))
        real, twin = await self._connection.query(text), self.twin.answer(self._session, text)
        self.asked.append((text, _plain(real), _plain(twin)))
        return real

    async def execute(self, text: bytes, *_: float, first: bool = False, extra: bool = False) -> Sequence[Result]:  # noqa: ARG002 - the port's
        """See `Executor`."""
        answer = await self.query(text)
        if answer.error is not None:
            await self.query(b"ROLLBACK")
            raise errors.translated(answer.error, "both")
        return answer.results

    async def look(self, text: bytes) -> Sequence[Result]:
        """See `Executor`."""
        return await self.execute(text)


class Listener:
    """Nobody listens, but rows say so."""

    def __init__(self, draw: random.Random) -> None:
        self._random = draw
        self.name: bytes | None = None
        self._waiters: dict[str, Waiter] = {}

    def expect(self, claim: Claim) -> Waiter:
        """See `notifications.Listener`."""
        return self._waiters.setdefault(claim.owner, Waiter(claim, ThreadRuntime().signal()))

    def forget(self, waiter: Waiter) -> None:
        """See `notifications.Listener`."""
        self._waiters.pop(waiter.claim.owner, None)

    def ensure(self) -> bytes | None:
        """Another name now and then."""
        if self._random.random() < 0.1:
            self.name = self._random.choice(LISTENERS)
        return self.name

    def wake(self, names: Iterable[bytes]) -> None:
        """Nobody sleeps."""


class Twins:
    """A real server, a simulated one, and a client of both."""

    def __init__(self, server: MariadbServer, seed: int) -> None:
        self._random = random.Random(seed)
        self._world = World(0)
        server.run(f"DROP DATABASE IF EXISTS {DATABASE}")
        options = parse(StoreURL.parse(server.make_database(DATABASE)))
        for statement in statements():
            server.run(statement, DATABASE)
        self._runtime = ThreadRuntime()
        self._pool = OwnPool(options, waits_for(self._runtime), self._runtime)
        self._connection = run(self._pool.dedicated())
        self._both = both = Both(self._connection, SimMysql(self._world))
        executor: Any = both
        listener: Any = Listener(self._random)
        self._backend: Any = RowsBackend(options, executor, self._runtime, listen=_nowhere)
        self._backend._listener = listener
        self._cleaning = Cleaning("both", self._runtime)
        self._grants: list[Grant] = []
        self._places: list[Place] = []
        self._verbs: dict[Callable[[], Coroutine[Any, Any, None]], int] = {
            self._acquire: 4,
            self._join: 8,
            self._turn: 8,
            self._renew: 4,
            self._release: 6,
            self._withdraw: 2,
            self._change_of_before: 2,
            self._operate: 2,
            self._keep_a_record: 4,
            self._look: 2,
            self._clean: 1,
        }

    def one(self) -> tuple[Any, Any, Any]:
        """See `Comparison`. A verb may be several queries; the first one with another answer counts."""
        draw = self._random
        self._world.now += draw.choices((0.0, 0.001, 0.1, 3.0, 3 * 86_400.0), (40, 30, 30, 3, 0.1))[0]
        (verb,) = draw.choices(list(self._verbs), list(self._verbs.values()))
        asked = self._both.asked
        asked.clear()
        with suppress(LeaseholdError):  # what the rules refuse, and what the servers do: that is compared
            run(verb())
        asked = asked or [(b"", (), ())]
        return next((each for each in asked if each[1] != each[2]), asked[-1])

    def close(self) -> None:
        """See `Comparison`."""
        self._connection.close()
        run(self._pool.close())

    # --- verbs

    def _claim(self) -> Claim:
        draw = self._random
        name = draw.choices(list(NAMES), (5, 2, 1, 1))[0]
        mode = draw.choice(NAMES[name])
        capacity = draw.choice((2, 2, 2, 3)) if mode is Mode.PERMIT else 1
        min_hold = draw.choice((0.0,) * 9 + (1.5,))
        ttl, owner = draw.choice((1.0, 3.0, 9.5)), f"{draw.getrandbits(64):016x}"
        return Claim(name, owner, ttl, mode, capacity, min_hold, Holder("hö'st", draw.randrange(99)))

    def _one_of(self, known: Sequence[Any]) -> Claim:
        """A new claim, or one that was made before: a late copy, or one that is repeated."""
        if known and self._random.random() < 0.1:
            claim: Claim = self._random.choice(known).claim
            return claim
        return self._claim()

    def _keep(self, answer: Any) -> None:
        known: list[Any] | None = {Grant: self._grants}.get(type(answer))
        if known is None and isinstance(answer, Place):
            known = self._places
        if known is not None:
            known.append(answer)
            if len(known) > MOST:
                known.pop(self._random.randrange(MOST))

    def _drawn(self, known: list[Any]) -> Any:
        return known[self._random.randrange(len(known))] if known else None

    async def _acquire(self) -> None:
        self._keep(await self._backend.try_acquire(self._one_of(self._grants)))

    async def _join(self) -> None:
        self._keep(await self._backend.join(self._one_of(self._places)))

    async def _turn(self) -> None:
        place = self._drawn(self._places)
        if place is not None:
            answer = await self._backend.turn(place)
            if not isinstance(answer, Place):
                self._places.remove(place)
            self._keep(answer)

    async def _renew(self) -> None:
        if self._grants:
            await self._backend.renew(self._random.sample(self._grants, self._random.randint(1, len(self._grants))))

    async def _release(self) -> None:
        if self._grants:
            grant = self._grants[-1] if self._random.random() < 0.7 else self._random.choice(self._grants)
            await self._backend.release(grant)
            if self._random.random() < 0.9:
                self._grants.remove(grant)

    async def _withdraw(self) -> None:
        subject = self._drawn([*self._places, *self._grants])
        if subject is not None:
            await self._backend.withdraw(subject.claim, doubt=self._random.random() < 0.5)

    async def _change_of_before(self) -> None:
        """A change that was decided upon before another client was faster, mostly."""
        claim = self._claim()
        rows = await self._backend._read(claim.key, FOR_EVER)
        if self._random.random() < 0.7:
            await self._backend.try_acquire(replace(self._claim(), key=claim.key))
        self._backend._decided(rows, lambda rows: rows.raise_fence(rows._fence.last + self._random.randrange(3)))
        await self._backend._is_written(rows, FOR_EVER)

    async def _operate(self) -> None:
        draw, name = self._random, self._random.choice(list(NAMES))
        match draw.randrange(4):
            case 0:
                grant = self._drawn(self._grants)
                if grant is not None:
                    await self._backend.break_(grant.claim.key, grant.fence, "why\N{SNOWMAN}'", now=draw.random() < 0.5)
            case 1:
                await self._backend.raise_fence(name, round(self._both.twin.now() * MICRO) + draw.randrange(99))
            case 2:
                await self._backend.pause(name, Holder("op", 1), draw.choice((0.5, 4.0)))
            case _:
                await self._backend.resume(name)

    async def _keep_a_record(self) -> None:
        draw, name = self._random, self._random.choice(list(NAMES))
        if draw.random() < 0.5:
            await self._backend.read(name, draw.choice((0, 0, draw.randrange(20))))
        else:
            await self._backend.write(Record(name, draw.randbytes(3), draw.randrange(20), draw.choice((1.0, 60.0))))

    async def _look(self) -> None:
        if self._random.random() < 0.5:
            await self._backend.inspect(self._random.choice(list(NAMES)))
        else:
            await self._backend.list("ns:")

    async def _clean(self) -> None:
        connection: Any = self._both
        await self._cleaning.run(connection)


async def _nowhere() -> Connection:
    raise BackendUnavailable("nobody listens here")


def against(server: MariadbServer, seed: int) -> Twins:
    """The comparison with this server."""
    return Twins(server, seed)


def _plain(answer: Answer) -> tuple[Any, ...]:
    """What the store looks at: an insert id only of a statement that has changed something."""
    results = [(each.rows, each.affected, each.insert_id if each.affected else 0) for each in answer.results]
    return results, None if answer.error is None else answer.error.code
