"""The smallest set of rights that the documentation names is enough for everything, and each of them is needed."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.support import eventually, opened, waiters
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.testing import contract
    from verification.lab.redis_cluster import RedisCluster
    from verification.lab.sentinel import SentinelGroup

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "redis-acl.md"


def documented() -> list[str]:
    """The rule of the page, word by word."""
    block = re.search(r"```console\n\$ redis-cli ACL SETUSER locks ([^`]+)```", PAGE.read_text())
    assert block is not None
    words = block[1].replace("\\\n", " ").split()
    return [word.strip("'") for word in words]


@pytest.fixture(params=["redis_server", "valkey_server"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    found: RedisServer = request.getfixturevalue(request.param)
    found.flush()
    found.ask("ACL", "SETUSER", "locks", "reset", *documented())
    yield found
    found.ask("ACL", "DELUSER", "locks")


def also(what: str) -> list[str]:
    """What a row of the table on that page adds."""
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and what in line]
    rights: str = re.findall(r"`([^`]+)`", row.split("|", 2)[2].replace("\\|", "|"))[0]
    assert rights.startswith("+")
    return rights.split()


def url(server: RedisServer) -> str:
    return f"redis://locks:PASSWORD@127.0.0.1:{server.port}/0"


def test_documented_rights_are_enough_for_everything(driver: contract.Driver, server: RedisServer) -> None:
    server.ask("ACL", "LOG", "RESET")

    async def body() -> None:
        async with opened(driver, url(server)) as client, opened(driver, url(server)) as other:
            runtime = driver.runtime()
            for lock in (client.lock("name", ttl=30), client.rwlock("shared").read, client.semaphore("permits", 2)):
                lease = await lock.acquire(timeout=10)
                await lease.renew()
                assert await client.inspect(lease.name) is not None
                assert [state.name for state in await client.locks()] == [lease.name]
                assert await lease.release()
            first = await other.lock("name", ttl=30).acquire()
            got: list[int] = []

            async def wait() -> None:
                following = await client.lock("name", ttl=30, min_hold=0.01).acquire(timeout=60)
                got.append(following.fence)
                await following.release()

            task = runtime.spawn(wait(), "waiter")
            while (state := await other.inspect("name")) is None or not state.waiting:
                await runtime.sleep(0.01)
            began = runtime.now()
            assert await first.release()
            assert await task.join(runtime.now() + 60)
            assert runtime.now() - began < 5
            assert got[0] > first.fence
            ran: list[int] = []

            async def work() -> None:
                ran.append(1)

            await client.once("job", slot="today").run(work)
            await client.once("job", slot="today").run(work)
            assert ran == [1]
            held = await client.lock("broken", ttl=30).acquire()
            assert await client.break_lock("broken", fence=held.fence, reason="test", now=True)
            await client.raise_fence("broken", held.fence + 1, reason="test")
            await held.release()
            with pytest.raises(leasehold.AcquireTimeout):
                blocker = await other.lock("timeout", ttl=30).acquire()
                try:
                    await client.lock("timeout").acquire(timeout=0.1)
                finally:
                    await blocker.release()

    driver.run(body())
    assert denied(server) == set()


def denied(server: RedisServer) -> set[str]:
    """What was refused since the log was emptied; but redis-py's wish to give its name does not matter."""
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in server.ask("ACL", "LOG")]
    return {entry[b"object"].decode() for entry in entries} - {"client|setinfo"}


def test_keys_of_others_are_out_of_reach(server: RedisServer) -> None:
    with server.connect(("locks", "PASSWORD")) as connection:
        for command in (
            ("GET", "theirs"),
            ("SET", "theirs", "1"),
            ("FLUSHALL",),
            ("CONFIG", "GET", "*"),
            ("KEYS", "*"),
        ):
            with pytest.raises(Exception, match="NOPERM"):
                connection.ask(*command)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # what is refused in the middle leaves leases behind
def test_every_right_is_needed(server: RedisServer) -> None:
    """A rule that could be left out would be a right too much."""
    rights = [word for word in documented() if word.startswith("+")]
    assert len(rights) > 5
    useless = []
    for right in rights:
        server.flush()
        server.forget_scripts()
        server.ask("ACL", "LOG", "RESET")
        server.ask("ACL", "SETUSER", "locks", "reset", *[word for word in documented() if word != right])
        with suppress(leasehold.BackendRejected):
            exercise(server)
        if right.strip("+") not in denied(server):
            useless.append(right)
    assert useless == []


def exercise(server: RedisServer) -> None:
    """Everything once, quickly."""
    with leasehold.connect(url(server)) as client, leasehold.connect(url(server)) as other:
        for lock in (client.lock("name", ttl=30), client.rwlock("shared").read, client.semaphore("permits", 2)):
            for _ in range(2):
                lease = lock.acquire(timeout=2)
                lease.renew()
                client.inspect(lease.name)
                client.locks()
                lease.release()
        permits = client.semaphore("permits", 2)
        with permits.hold(timeout=2), permits.hold(timeout=2):
            assert permits.try_acquire() is None
        hand_over(server, client, other)
        lease = client.lock("name", ttl=30).acquire(timeout=2)
        client.break_lock("name", fence=lease.fence, reason="test", now=True)
        lease.release()
        client.raise_fence("name", lease.fence + 1, reason="test")
        client.lock("name", ttl=30, min_hold=0.01).acquire(timeout=2).release()
        client.once("job", slot="today").run(lambda: None)
        shared = client.rwlock("shared", ttl=0.1, renew=False)
        shared.read.acquire(timeout=2)
        shared.write.acquire(timeout=5).release()


def can_be_called(server: RedisServer) -> bool:
    """Whether the waiter has a channel in the store."""
    return any(b"push:" in value for value in server.ask("HVALS", "leasehold:{leasehold:handed}:w"))


def hand_over(server: RedisServer, client: leasehold.Client, other: leasehold.Client) -> None:
    """From a holder to a waiter."""
    lease = client.lock("handed", ttl=30).acquire(timeout=2)

    def wait() -> None:
        with suppress(leasehold.LeaseholdError):
            other.lock("handed", ttl=30).acquire(timeout=10).release()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        eventually(lambda: not thread.is_alive() or waiters(client, "handed") == 1)
        with suppress(AssertionError):  # without the right to subscribe it never can be called
            eventually(lambda: not thread.is_alive() or can_be_called(server), limit=0.5)
    finally:
        lease.release()
        thread.join()


def test_denied_command_is_a_clear_error_and_no_timeout(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "locks", "-hset")
    with leasehold.connect(url(server)) as client:
        with pytest.raises(leasehold.BackendRejected) as caught:
            client.lock("name").acquire(timeout=30)
        assert "may not" in str(caught.value)
        assert "doctor" in str(caught.value)


def test_key_pattern_that_does_not_cover_the_prefix_is_a_clear_error(server: RedisServer) -> None:
    with leasehold.connect(f"{url(server)}?prefix=elsewhere:") as client:
        with pytest.raises(leasehold.BackendRejected) as caught:
            client.lock("name").acquire(timeout=30)
        assert "may not" in str(caught.value)


def test_without_the_right_to_subscribe_waiters_ask_for_themselves(server: RedisServer) -> None:
    """Push is a matter of speed, not of correctness."""
    server.ask("ACL", "SETUSER", "locks", "resetchannels")
    with leasehold.connect(url(server)) as client, leasehold.connect(url(server)) as other:
        first = client.lock("name", ttl=1, renew=False).acquire()
        try:
            lease = other.lock("name", ttl=30).acquire(timeout=20)
        except leasehold.BackendRejected as error:
            assert "may not" in str(error)
        else:
            assert lease.fence > first.fence
            assert lease.release()
        eventually(lambda: client.inspect("name") is None, limit=40)


@pytest.mark.parametrize(
    ("what", "rest"),
    [("?acks=N", "0?acks=1&acks_timeout=0.05"), ("?strict=1", "0?strict=0.5"), ("another database", "5")],
)
def test_rights_for_options_are_the_documented_ones(server: RedisServer, what: str, rest: str) -> None:
    target = f"redis://locks:PASSWORD@127.0.0.1:{server.port}/{rest}"
    with leasehold.connect(target) as client, pytest.raises(leasehold.BackendRejected):
        client.lock("name").acquire(timeout=5)
    server.ask("ACL", "SETUSER", "locks", *also(what))
    with leasehold.connect(target) as client:
        if what == "?acks=N":  # there is no replica, and the error names that
            with pytest.raises(leasehold.BackendUnavailable, match="0 of 1 replicas"):
                client.lock("name").acquire(timeout=0)
        else:
            assert client.lock("name", ttl=0.5).acquire(timeout=10).release()


@pytest.mark.parametrize("driver_of", ["redis+sentinel", "redis+cluster"])
def test_rights_for_several_servers_are_the_documented_ones(
    driver_of: str, sentinel_group: SentinelGroup, cluster_nodes: RedisCluster
) -> None:
    servers = sentinel_group.servers if driver_of == "redis+sentinel" else cluster_nodes.nodes
    target = (sentinel_group if driver_of == "redis+sentinel" else cluster_nodes).url
    target = target.replace("://", "://locks:PASSWORD@")
    for server in servers:
        server.ask("ACL", "SETUSER", "locks", "reset", *documented(), *also(f"{driver_of}://"))
        if driver_of == "redis+cluster":
            server.ask("ACL", "SETUSER", "locks", "-publish", "-subscribe")
        server.ask("ACL", "LOG", "RESET")
    try:
        with leasehold.connect(target) as client, leasehold.connect(target) as other:
            first = client.lock("name", ttl=30).acquire(timeout=10)
            assert [state.name for state in client.locks()] == ["name"]
            thread = threading.Thread(target=lambda: other.lock("name", ttl=30).acquire(timeout=30).release())
            thread.start()
            eventually(lambda: waiters(client, "name") == 1)
            assert first.release()
            thread.join()
        for server in servers:
            assert denied(server) == set()
    finally:
        for server in servers:
            server.ask("ACL", "DELUSER", "locks")
