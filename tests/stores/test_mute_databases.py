"""A database that takes connections and answers nothing: every verb ends by the instant that its caller has named.

The store itself is given twenty seconds for an answer and for connecting, the calls a fraction of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import leasehold
from leasehold._urls import find_store
from leasehold.errors import AcquireTimeout, BackendError, BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.support import opened
from verification.lab.mariadb import mariadb_url
from verification.lab.postgres import postgres_url
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from leasehold.spi import Runtime
    from leasehold.testing import contract

OWN_LIMIT = 20.0
GIVEN = 0.3
ENOUGH = OWN_LIMIT / 3  # on any machine; a call that overlooks its instant takes the whole of it

Verb: TypeAlias = "Callable[[Any, Grant, Place, float], Awaitable[Any]]"
OF_BOTH_MODES: dict[str, Verb] = {
    "try_acquire": lambda backend, _, place, until: backend.try_acquire(place.claim, until),
    "renew": lambda backend, grant, _, until: backend.renew([grant], until),
    "release": lambda backend, grant, _, until: backend.release(grant, until),
    "withdraw": lambda backend, _, place, until: backend.withdraw(place.claim, until),
}
OF_QUEUES: dict[str, Verb] = {
    "join": lambda backend, _, place, until: backend.join(place.claim, until),
    "turn": lambda backend, _, place, until: backend.turn(place, until),
}
VERBS = OF_BOTH_MODES | OF_QUEUES
CASES = [*(("rows", verb) for verb in VERBS), *(("session", verb) for verb in OF_BOTH_MODES)]


@pytest.fixture(params=["mariadb", "postgresql"])
def way(request: pytest.FixtureRequest) -> Iterator[tuple[FaultProxy, str]]:
    """A proxy before the database, and the url that leads through it; the tables exist."""
    on_mariadb = request.param == "mariadb"
    server: Any = request.getfixturevalue("mariadb" if on_mariadb else "postgres")
    direct: str = request.getfixturevalue("mariadb_database" if on_mariadb else "database")
    with leasehold.connect(direct) as client:
        client.lock("first").acquire().release()
    name = direct.partition("?")[0].rpartition("/")[2]
    with FaultProxy(("127.0.0.1", server.port)) as proxy:
        url = mariadb_url(proxy.port, name) if on_mariadb else postgres_url(proxy.port, name, "postgres")
        yield proxy, f"{url}?answer_timeout={OWN_LIMIT:g}&connect_timeout={OWN_LIMIT:g}"


def claim_of(runtime: Runtime) -> Claim:
    return Claim("leasehold:job", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


async def fails_in_time(runtime: Runtime, call: Callable[[], Awaitable[Any]]) -> Exception:
    """The error of a call that is over long before the store's own limit."""
    began = runtime.now()
    with pytest.raises((BackendError, AcquireTimeout)) as caught:
        await call()
    assert runtime.now() - began < ENOUGH, "the caller was kept for longer than it asked for"
    return caught.value


@pytest.mark.parametrize(("mode", "verb"), CASES)
def test_verb_whose_answer_does_not_come_ends_in_time(
    driver: contract.Driver, way: tuple[FaultProxy, str], mode: str, verb: str
) -> None:
    proxy, url = way
    runtime = driver.runtime()

    async def story() -> None:
        backend: Any = find_store(f"{url}&mode={mode}").open_backend(runtime)
        grant = await backend.try_acquire(claim_of(runtime))
        place = await backend.join(claim_of(runtime)) if verb in OF_QUEUES else a_place(runtime)
        proxy.black_hole()
        error = await fails_in_time(runtime, lambda: VERBS[verb](backend, grant, place, runtime.now() + GIVEN))
        assert isinstance(error, (OutcomeUnknown, BackendUnavailable))
        await backend.close()

    driver.run(story())


@pytest.mark.parametrize(("mode", "verb"), CASES)
def test_verb_that_gets_no_connection_ends_in_time_and_was_not_applied(
    driver: contract.Driver, way: tuple[FaultProxy, str], mode: str, verb: str
) -> None:
    proxy, url = way
    runtime = driver.runtime()

    async def story() -> None:
        backend: Any = find_store(f"{url}&mode={mode}").open_backend(runtime)
        grant = Grant(claim_of(runtime), 1, 60.0)
        proxy.black_hole()
        until = runtime.now() + GIVEN
        error = await fails_in_time(runtime, lambda: VERBS[verb](backend, grant, a_place(runtime), until))
        assert isinstance(error, BackendUnavailable), "nothing was sent"
        await backend.close()

    driver.run(story())


@pytest.mark.parametrize("mode", ["rows", "session"])
def test_timeout_of_an_acquire_is_kept(driver: contract.Driver, way: tuple[FaultProxy, str], mode: str) -> None:
    """Also where there is no time at all, as for `try_acquire`."""
    proxy, url = way

    async def story() -> None:
        async with opened(driver, f"{url}&mode={mode}") as client:
            await (await client.lock("warm").acquire()).release()
            proxy.black_hole()
            await fails_in_time(driver.runtime(), lambda: client.lock("job").acquire(timeout=GIVEN))
            await fails_in_time(driver.runtime(), lambda: client.lock("job").acquire(timeout=0))
            proxy.heal()  # so that closing need not wait
            proxy.cut()

    driver.run(story())


def a_place(runtime: Runtime) -> Place:
    """What a waiter has, made up."""
    return Place(claim_of(runtime), runtime.signal(), 1.0, 0)
