"""Calls to etcd that must end in time: by the instant that the caller has named, or because the client is closed."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._urls import find_store
from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode
from verification.lab.process import free_port, wait_until
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from leasehold.spi import Runtime
    from leasehold.testing import contract
    from verification.lab.etcd import EtcdServer

OWN_LIMIT = 20.0  # seconds that a call of the store may take by itself
GIVEN = 0.3
ENOUGH = OWN_LIMIT / 3


def patient(address: str) -> str:
    """A store that waits for very long by itself."""
    return f"etcd://{address}?answer_timeout={OWN_LIMIT:g}s"


@contextmanager
def mute_peer() -> Iterator[str]:
    """It takes connections, and never says a word on them."""
    with socket.create_server(("127.0.0.1", free_port()), backlog=50) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def claim(runtime: Runtime, key: str = "until:x", ttl: float = 60.0) -> Claim:
    return Claim(key, runtime.owner(), ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


async def _try(backend: Any, grant: Grant, place: Place, until: float) -> Any:
    return await backend.try_acquire(grant.claim, until)


async def _join(backend: Any, grant: Grant, place: Place, until: float) -> Any:
    return await backend.join(grant.claim, until)


async def _turn(backend: Any, grant: Grant, place: Place, until: float) -> Any:
    return await backend.turn(place, until)


async def _renew(backend: Any, grant: Grant, place: Place, until: float) -> Any:
    return await backend.renew([grant], until)


async def _release(backend: Any, grant: Grant, place: Place, until: float) -> Any:
    return await backend.release(grant, until)


async def _withdraw(backend: Any, grant: Grant, place: Place, until: float) -> Any:
    await backend.withdraw(grant.claim, until)


VERBS = [_try, _join, _turn, _renew, _release, _withdraw]


@pytest.mark.parametrize("user", ["", "app:secret@"], ids=["no user", "a user"])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__[1:])
def test_call_to_a_peer_that_is_mute_from_the_start_ends_by_its_instant(
    driver: contract.Driver, verb: Any, user: str
) -> None:
    async def history(address: str) -> None:
        runtime = driver.runtime()
        backend: Any = find_store(patient(f"{user}{address}")).open_backend(runtime)
        wanted = claim(runtime)
        grant, place = Grant(wanted, 7, 60.0), Place(wanted, runtime.signal(), 1.0, 0)
        started = runtime.now()
        with pytest.raises((BackendUnavailable, OutcomeUnknown)):
            await verb(backend, grant, place, started + GIVEN)
        assert runtime.now() - started < ENOUGH
        await backend.close()

    with mute_peer() as address:
        driver.run(history(address))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__[1:])
def test_call_to_a_member_that_has_gone_silent_ends_by_its_instant(
    driver: contract.Driver, verb: Any, etcd_server: EtcdServer
) -> None:
    async def history(proxy: FaultProxy) -> None:
        runtime = driver.runtime()
        backend: Any = find_store(patient(f"127.0.0.1:{proxy.port}")).open_backend(runtime)
        key = f"until:{runtime.owner()}"
        grant = await backend.join(claim(runtime, key))
        place = await backend.join(claim(runtime, key))
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        proxy.black_hole()
        started = runtime.now()
        with pytest.raises((BackendUnavailable, OutcomeUnknown)):
            await verb(backend, grant, place, started + GIVEN)
        assert runtime.now() - started < ENOUGH
        proxy.heal()
        await backend.close()

    with FaultProxy(("127.0.0.1", etcd_server.port)) as proxy:
        driver.run(history(proxy))


def test_call_whose_instant_has_passed_sends_nothing(driver: contract.Driver, own_etcd: EtcdServer) -> None:
    async def history() -> None:
        runtime = driver.runtime()
        backend: Any = find_store(own_etcd.url).open_backend(runtime)
        with pytest.raises(BackendUnavailable, match="no time"):
            await backend.join(claim(runtime), runtime.now() - 1)
        assert own_etcd.stored_keys() == []
        assert own_etcd.leases() == []
        assert isinstance(await backend.join(claim(runtime)), Grant)  # the instant was that call's alone
        await backend.close()

    driver.run(history())


def test_claim_that_waits_for_a_session_of_another_one_ends_by_its_own_instant(driver: contract.Driver) -> None:
    async def history(address: str) -> None:
        runtime = driver.runtime()
        backend: Any = find_store(patient(address)).open_backend(runtime)
        failures: list[Exception] = []

        async def open_it() -> None:
            try:
                await backend.join(claim(runtime), runtime.now() + 4.0)
            except Exception as error:
                failures.append(error)

        opening = runtime.spawn(open_it(), "opens the session")
        while not backend._claims.sessions._opening:
            await runtime.sleep(0.005)
        started = runtime.now()
        with pytest.raises(BackendUnavailable):
            await backend.join(claim(runtime), started + GIVEN)
        assert not failures, "it waited for the other one"
        assert await opening.join(runtime.now() + 30)
        assert len(failures) == 1
        await backend.close()

    with mute_peer() as address:
        driver.run(history(address))


def test_watches_that_a_hurried_waiter_began_go_on_after_it(driver: contract.Driver, etcd_server: EtcdServer) -> None:
    """The instant of the call that begins the stream of watches must not end the stream's own calls."""

    async def history() -> None:
        runtime = driver.runtime()
        backend: Any = find_store(etcd_server.url).open_backend(runtime)
        grant = await backend.join(claim(runtime, "until:watched"))
        place = await backend.join(claim(runtime, "until:watched"), runtime.now() + 0.5)
        await runtime.sleep(0.6)
        backend._claims.notifications._stream.close()  # it has to be begun anew, long after that instant
        await runtime.sleep(0.2)
        place.signal.clear()
        assert await backend.release(grant) is True
        assert await runtime.wait(place.signal, runtime.now() + 30)
        await backend.withdraw(place.claim)
        await backend.close()

    driver.run(history())


# --- a client that is closed


def test_call_that_is_under_way_when_the_client_is_closed_ends_with_that(
    driver: contract.Driver, etcd_server: EtcdServer
) -> None:
    async def history(proxy: FaultProxy) -> None:
        runtime = driver.runtime()
        backend: Any = find_store(patient(f"127.0.0.1:{proxy.port}")).open_backend(runtime)
        key = f"until:{runtime.owner()}"
        await backend.join(claim(runtime, key))
        place = await backend.join(claim(runtime, key))
        proxy.black_hole()
        ends: list[Exception] = []

        async def ask(question: Coroutine[Any, Any, Any]) -> None:
            try:
                await question
            except Exception as error:
                ends.append(error)

        questions = [backend.turn(place), backend.try_acquire(claim(runtime, key))]
        tasks = [runtime.spawn(ask(question), "under way") for question in questions]
        await runtime.sleep(0.3)
        started = runtime.now()
        await backend.close()
        for task in tasks:
            assert await task.join(runtime.now() + 30)
        assert runtime.now() - started < ENOUGH
        assert [type(end) for end in ends] == [ClientClosed, ClientClosed]
        proxy.heal()

    with FaultProxy(("127.0.0.1", etcd_server.port)) as proxy:
        driver.run(history(proxy))


def test_closed_client_sends_nothing_and_opens_no_connection(driver: contract.Driver, etcd_server: EtcdServer) -> None:
    async def history(proxy: FaultProxy) -> None:
        runtime = driver.runtime()
        backend: Any = find_store(patient(f"127.0.0.1:{proxy.port}")).open_backend(runtime)
        wanted = claim(runtime, f"until:{runtime.owner()}")
        grant = await backend.join(wanted)
        await backend.release(grant)
        await backend.close()
        before = proxy.accepted
        for question in (
            backend.join(wanted),
            backend.try_acquire(wanted),
            backend.release(grant),
            backend.withdraw(wanted),
            backend.inspect("x"),
            backend.read("x"),
        ):
            with pytest.raises(ClientClosed):
                await question
        assert proxy.accepted == before

    with FaultProxy(("127.0.0.1", etcd_server.port)) as proxy:
        driver.run(history(proxy))


def test_waiters_are_woken_when_their_client_is_closed(driver: contract.Driver, etcd_server: EtcdServer) -> None:
    async def history() -> None:
        runtime = driver.runtime()
        backend: Any = find_store(etcd_server.url).open_backend(runtime)
        await backend.join(claim(runtime, "until:closing", ttl=2.0))
        places = [await backend.join(claim(runtime, "until:closing", ttl=2.0)) for _ in range(66)]
        for place in places:
            place.signal.clear()
        await backend.close()
        assert [place for place in places if not place.signal.is_set()] == []

    driver.run(history())


def test_blocking_waiter_of_a_closed_client_returns(etcd_server: EtcdServer) -> None:
    holder = leasehold.connect(etcd_server.url, ttl=60, namespace="closing")
    client = leasehold.connect(etcd_server.url, ttl=60, namespace="closing")
    held = holder.lock("x").acquire()
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            client.lock("x").acquire(timeout=100)
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: len(getattr(holder.inspect("x"), "waiting", ())) == 1, "nobody waits")
    client.close()
    thread.join(OWN_LIMIT)
    assert [type(end) for end in ends] == [ClientClosed]
    held.release()
    holder.close()
