"""Which nodes Redlock accepts, and how it refuses the others."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import leasehold
from leasehold.findings import Level
from tests.stores.support import opened
from verification.lab.certificates import Certificates
from verification.lab.redis import RedisServer
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold._face.client import AsyncClient
    from leasehold.testing import contract


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    with RedlockNodes(3, max_ttl=60, answer_timeout=0.5) as started:
        yield started


async def works(client: AsyncClient) -> None:
    lease = await client.lock("name").acquire(timeout=30)
    assert await lease.release()


def test_one_address_named_twice_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(leasehold.ConfigurationError, match="h1:6379 is named twice"):
        leasehold.connect("redlock://h1,h2,h1:6379").lock("x").try_acquire()


def test_more_than_nine_nodes_are_refused() -> None:
    hosts = ",".join(f"h{number}" for number in range(10))
    with pytest.raises(leasehold.ConfigurationError, match="1 to 9 nodes"):
        leasehold.connect(f"redlock://{hosts}").lock("x").try_acquire()


def test_one_server_under_two_names_is_refused(driver: contract.Driver, nodes: RedlockNodes) -> None:
    first, second, _ = nodes.servers

    async def body() -> None:
        url = nodes.url(addresses=[first.address, ("localhost", first.port), second.address])
        async with opened(driver, url, connect_timeout=0.5) as client:
            with pytest.raises(leasehold.BackendRejected, match="one and the same server"):
                for _ in range(1000):  # the others may be a majority before the second name is connected
                    await works(client)

    driver.run(body())


def test_replica_is_no_node(driver: contract.Driver) -> None:
    primary = RedisServer("primary")
    replica = RedisServer("replica", replica_of=primary)
    with primary, replica:
        hosts = f"127.0.0.1:{replica.port}"

        async def body() -> None:
            async with opened(driver, f"redlock://{hosts}", connect_timeout=0.5) as client:
                with pytest.raises(leasehold.BackendRejected, match=f"is a replica of 127.0.0.1:{primary.port}"):
                    await client.lock("x").acquire(timeout=30)

        driver.run(body())


@pytest.mark.parametrize(("hosts", "said"), [("h1", "redis:// does more"), ("h1,h2,h3,h4", "no more than 3 nodes do")])
def test_numbers_of_nodes_that_bring_nothing_are_warned_of(
    hosts: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="leasehold"):
        leasehold.connect(f"redlock://{hosts}")
    assert said in caplog.text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("max_ttl=0", "max_ttl must be"),
        ("max_ttl=soon", "max_ttl must look like"),
        ("answer_timeout=60", "answer_timeout must be"),
        ("acks=1", "has no option 'acks'"),
        ("ssl_ca_certs=x", "has no option 'ssl_ca_certs'; it is called tls_ca here"),
        ("node_timeout=1", "has no option 'node_timeout'; it is called answer_timeout here"),
        ("tls_ca=x", "tls_ca has no meaning without TLS; add tls=yes"),
    ],
)
def test_options_are_checked_by_name(query: str, said: str) -> None:
    with pytest.raises(leasehold.ConfigurationError, match=said):
        leasehold.connect(f"redlock://h1,h2,h3?{query}").lock("x").try_acquire()


def test_ttl_longer_than_max_ttl_is_refused_with_the_option_to_change(nodes: RedlockNodes) -> None:
    with (
        leasehold.connect(nodes.url()) as client,
        pytest.raises(leasehold.ConfigurationError, match=r"max_ttl=60 .* larger \?max_ttl="),
    ):
        client.lock("x", ttl=61).try_acquire()


def test_clients_that_disagree_about_max_ttl_do_not_lock_together(nodes: RedlockNodes) -> None:
    with (
        leasehold.connect(nodes.url(max_ttl=45)) as client,
        pytest.raises(leasehold.BackendRejected, match="set up with max_ttl=60 as one of 3 nodes"),
    ):
        client.lock("x").acquire(timeout=30)


def test_clients_that_disagree_about_the_number_of_nodes_do_not_lock_together(nodes: RedlockNodes) -> None:
    """Two of three and three of five can be different nodes."""
    two = nodes.url(addresses=[server.address for server in nodes.servers[:2]])
    with (
        leasehold.connect(two) as client,
        pytest.raises(leasehold.BackendRejected, match="as one of 3 nodes: give all clients the same URL") as caught,
    ):
        client.lock("x").acquire(timeout=30)
    assert "delete the key leasehold:redlock:node on every node" in str(caught.value)


@pytest.mark.parametrize("count", [2, 3])
def test_looking_writes_nothing_so_a_wrong_url_does_not_set_the_nodes_up(driver: contract.Driver, count: int) -> None:
    nodes = RedlockNodes(3, max_ttl=60, answer_timeout=0.5)
    for server in nodes.servers:
        server.start()

    async def body() -> None:
        addresses = [server.address for server in nodes.servers[:count]]
        async with opened(driver, nodes.url(addresses=addresses)) as client:
            assert await client.inspect("name") is None
            assert await client.locks() == []
            await client.examine()
        assert [server.ask("KEYS", "*") for server in nodes.servers] == [[], [], []]
        async with opened(driver, nodes.url()) as client:
            with pytest.raises(leasehold.BackendUnavailable, match="sits out for 6"):
                await client.lock("name").try_acquire()
        for server in nodes.servers:
            assert server.ask("HGET", "leasehold:redlock:node", "x") == b"60000/3", "the first acquire sets it up"

    try:
        driver.run(body())
    finally:
        nodes.remove()


def test_value_of_another_program_under_a_key_is_refused_and_not_touched(nodes: RedlockNodes) -> None:
    for server in nodes.servers:
        server.ask("SET", "leasehold:redlock:lock:leasehold:x", "theirs")
    with (
        leasehold.connect(nodes.url()) as client,
        pytest.raises(leasehold.BackendRejected, match="another program's value"),
    ):
        client.lock("x").acquire(timeout=30)
    assert nodes.servers[0].ask("GET", "leasehold:redlock:lock:leasehold:x") == b"theirs"


def test_password_and_database_are_those_of_every_node(driver: contract.Driver) -> None:
    with RedlockNodes(3, max_ttl=60, answer_timeout=0.5, password="secret-word") as nodes:
        url = nodes.url().replace("redlock://", "redlock://:secret-word@")

        async def body() -> None:
            async with opened(driver, url) as client:
                await works(client)
                assert "secret" not in client.store
            async with opened(driver, nodes.url(), connect_timeout=0.5) as client:
                with pytest.raises(leasehold.BackendRejected):
                    await client.lock("x").acquire(timeout=30)

        driver.run(body())


def test_nodes_behind_tls(driver: contract.Driver, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with RedlockNodes(3, max_ttl=60, answer_timeout=0.5, certificates=certificates) as nodes:

        async def body() -> None:
            async with opened(driver, nodes.url(tls=1, tls_ca=certificates.authority)) as client:
                await works(client)
            async with opened(driver, nodes.url(tls=1), connect_timeout=0.5) as client:
                with pytest.raises(leasehold.BackendRejected, match="TLS failed"):
                    await client.lock("x").acquire(timeout=30)

        driver.run(body())


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("module", [redis, redis.asyncio], ids=["blocking", "asyncio"])
def test_clients_of_the_users_own_can_be_the_nodes(nodes: RedlockNodes, module: Any, kind: type) -> None:
    clients = kind(module.Redis(port=server.port) for server in nodes.servers)
    with ExitStack() as stack, leasehold.connect(clients, ttl=0.5, options={"max_ttl": nodes.max_ttl}) as client:
        other = stack.enter_context(leasehold.connect(nodes.url(), ttl=0.5))
        other.lock("another").acquire(timeout=30).release()  # connected to a majority, which may take a while
        with suppress(leasehold.LeaseLost), client.lock("name").hold(timeout=30) as lease:
            found = other.lock("name").try_acquire()
            if found is not None:
                found.release()
                assert lease.lost.is_set(), "it has two holders, and the first was not late"
        assert client.store.startswith("redlock://localhost:")
    with pytest.raises(leasehold.ConfigurationError, match="no option 'tls'; it takes answer_timeout, max_ttl"):
        leasehold.connect(clients, options={"tls": True})


def test_doctor_looks_at_every_node_and_at_all_together(driver: contract.Driver, nodes: RedlockNodes) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url()) as client:
            await works(client)
            nodes.servers[1].flush()
            nodes.servers[2].kill()
            findings = {finding.check: finding for finding in await client.examine()}
            first, second, third = (f"127.0.0.1:{server.port}" for server in nodes.servers)
            assert findings["number of nodes"].level is Level.OK
            assert findings["independence"].level is Level.PROBLEM
            assert findings[f"memory of grants of {first}"].level is Level.OK
            assert findings[f"memory of grants of {second}"].level is Level.WARNING
            assert findings[f"node {third}"].level is Level.PROBLEM
            for check in ("round trip", "replicas", "server", "eviction"):
                assert findings[f"{check} of {first}"].level is Level.OK, check
            assert findings[f"clock of {first}"].level is Level.OK

    driver.run(body())


def test_doctor_names_a_max_ttl_that_differs_and_an_even_number(nodes: RedlockNodes) -> None:
    with leasehold.connect(nodes.url(addresses=[server.address for server in nodes.servers[:2]], max_ttl=7)) as client:
        findings = {finding.check: finding for finding in client.examine()}
    assert findings["number of nodes"].level is Level.WARNING
    mismatch = findings[f"settings of 127.0.0.1:{nodes.servers[0].port}"]
    assert mismatch.level is Level.PROBLEM
    assert "max_ttl=60 as one of 3 nodes" in mismatch.found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "empty after a restart"),
        (("save 60 1",), "snapshots only"),
        (("appendonly yes", "appendfsync always"), "on disk before it is confirmed"),
    ],
)
def test_doctor_judges_the_persistence_of_each_node_for_redlock(settings: tuple[str, ...], said: str) -> None:
    with (
        RedlockNodes(3, max_ttl=60, answer_timeout=0.5, settings=settings) as nodes,
        leasehold.connect(nodes.url()) as client,
    ):
        findings = {finding.check: finding for finding in client.examine()}
        for server in nodes.servers:
            finding = findings[f"persistence of 127.0.0.1:{server.port}"]
            assert finding.level is Level.OK, "a single server would be warned of"
            assert said in finding.found
            assert "sits out for 64 s" in finding.found
            assert "safe whatever it kept" in finding.why
