"""Everything a Redis server may answer instead of doing it: each ends in the right error, or in a retry in time."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.values import LossReason
from tests.stores.redis.redis_calls import VERBS, backend_of, failure_of
from tests.stores.support import eventually, opened, waiters
from verification.lab.process import wait_until
from verification.lab.redis import RedisServer, redis_program, valkey_program
from verification.lab.resp import ErrorReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold.testing import contract


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One whose settings these tests may change."""
    server = RedisServer()
    with server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[leasehold.Client]:
    server.flush()
    with leasehold.connect(server.url) as client:
        yield client


def in_background(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start it on a thread; the result is what it returned, or raises what it raised."""
    box: list[Any] = []

    def call() -> None:
        try:
            box.append(work())
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=call)
    thread.start()

    def result() -> Any:
        thread.join(60)
        assert box, "it still runs"
        if isinstance(box[0], BaseException):
            raise box[0]
        return box[0]

    return result


# --- what was kept is gone


def test_flush_while_held_is_a_loss_at_the_next_renewal_and_fences_still_rise(
    driver: contract.Driver, server: RedisServer
) -> None:
    async def body() -> None:
        async with opened(driver, server.url) as client, opened(driver, server.url) as other:
            lease = await client.lock("name", ttl=3).acquire()
            server.flush()
            successor = await other.lock("name", ttl=30).try_acquire()
            assert successor is not None
            assert successor.fence > lease.fence
            assert await lease.lost.wait(30)
            assert lease.loss is not None
            assert lease.loss.reason is LossReason.TAKEN
            assert await lease.release() is False
            successor.check()
            assert await successor.release()

    driver.run(body())


def test_flush_while_waiting_is_noticed_by_the_waiter(client: leasehold.Client, server: RedisServer) -> None:
    first = client.lock("name", ttl=30, renew=False).acquire()
    result = in_background(lambda: client.lock("name", ttl=30).acquire(timeout=60))
    eventually(lambda: waiters(client, "name") == 1)
    server.flush()
    lease = result()
    assert lease.fence > first.fence
    assert lease.release()
    assert first.release() is False


def test_evicted_lock_is_a_loss_at_the_next_renewal_and_fences_still_rise() -> None:
    server = RedisServer(maxmemory="3mb", policy="allkeys-random")
    with server, leasehold.connect(server.url) as client:
        lease = client.lock("name", ttl=3).acquire()
        with server.connect() as filler:
            number = 0
            while lease.loss is None:
                filler.ask("SET", f"filler {number}", "x" * 10_000)
                number += 1
                assert number < 100_000
        assert lease.loss.reason is LossReason.TAKEN
        assert lease.release() is False
        server.flush()
        again = client.lock("name").acquire()
        assert again.fence > lease.fence
        again.release()


def test_server_without_memory_is_a_clear_error_and_what_is_held_can_be_released(server: RedisServer) -> None:
    server.flush()
    with leasehold.connect(server.url) as client:
        lease = client.lock("held", ttl=30).acquire()
        server.configure("maxmemory", "1")
        try:
            with pytest.raises(leasehold.BackendError, match=r"(?i)memory|OOM") as caught:
                client.lock("name").acquire(timeout=0)
            assert not isinstance(caught.value, leasehold.OutcomeUnknown)
            assert lease.release()
        finally:
            server.configure("maxmemory", "0")
        assert client.lock("name").acquire(timeout=10).release()


def test_release_that_the_server_refuses_hands_nothing_over(server: RedisServer) -> None:
    """It notified the next waiter before the server refused its first write: there were two holders."""
    server.flush()
    with leasehold.connect(server.url) as client, leasehold.connect(server.url) as other:
        first = client.lock("name", ttl=3).acquire()
        result = in_background(lambda: other.lock("name", ttl=30).acquire(timeout=60))
        eventually(lambda: server.ask("PUBSUB", "CHANNELS", "leasehold:*") and waiters(client, "name") == 1)
        server.configure("min-replicas-to-write", "1")
        try:
            with pytest.raises(leasehold.BackendUnavailable, match="NOREPLICAS"):
                first.release()
        finally:
            server.configure("min-replicas-to-write", "0")
        lease = result()
        state = client.inspect("name")
        assert state is not None
        assert [holding.fence for holding in state.holdings] == [lease.fence]
        assert lease.release()


@pytest.mark.parametrize("wait", [0.0, 3.0])
def test_server_without_memory_hands_over_what_is_released(server: RedisServer, wait: float) -> None:
    """It did for as long as a place lives without being refreshed: here that is a second."""
    server.flush()
    with leasehold.connect(server.url) as client, leasehold.connect(server.url) as other:
        first = client.lock("name", ttl=30).acquire()
        result = in_background(lambda: other.lock("name", ttl=1).acquire(timeout=60))
        eventually(lambda: server.ask("PUBSUB", "CHANNELS", "leasehold:*") and waiters(client, "name") == 1)
        server.configure("maxmemory", "1")
        try:
            time.sleep(wait)
            assert waiters(client, "name") == 1, "it lost its place"
            assert first.release()
            lease = result()
            state = client.inspect("name")
            assert state is not None
            assert [holding.fence for holding in state.holdings] == [lease.fence]
            assert lease.release()
        finally:
            server.configure("maxmemory", "0")


# --- scripts and connections


def test_server_that_forgets_its_scripts_between_all_calls_is_not_noticed(
    driver: contract.Driver, server: RedisServer
) -> None:
    async def body() -> None:
        async with opened(driver, server.url) as client:
            fences = []
            for _ in range(5):
                server.forget_scripts()
                lease = await client.lock("name", ttl=30).acquire(timeout=10)
                server.forget_scripts()
                await lease.renew()
                server.forget_scripts()
                assert await client.inspect("name") is not None
                server.forget_scripts()
                assert await client.lock("name").try_acquire() is None
                server.forget_scripts()
                assert await lease.release() is True
                fences.append(lease.fence)
            assert fences == sorted(set(fences))
            assert await client.inspect("name") is None

    driver.run(body())


def test_all_due_renewals_survive_a_forgotten_script(driver: contract.Driver, server: RedisServer) -> None:
    async def body() -> None:
        async with opened(driver, server.url) as client:
            leases = [await client.lock(f"name {number}", ttl=1.5).acquire() for number in range(20)]
            for _ in range(20):
                server.forget_scripts()
                await driver.runtime().sleep(0.15)
            for lease in leases:
                lease.check()
                assert await lease.release()

    driver.run(body())


def test_connections_killed_while_holding_and_waiting_cost_nothing(
    client: leasehold.Client, server: RedisServer
) -> None:
    with leasehold.connect(server.url) as other:
        lease = client.lock("name", ttl=3).acquire()
        result = in_background(lambda: other.lock("name", ttl=30).acquire(timeout=60))
        eventually(lambda: waiters(client, "name") == 1)
        killed = 0
        for _ in range(20):
            killed += server.hang_up()
            time.sleep(0.2)
        assert killed >= 5
        lease.check()
        assert lease.release()
        assert result().release()


# --- answers that mean: not now


def test_readonly_server_is_unavailable_and_waited_for(client: leasehold.Client, server: RedisServer) -> None:
    held = client.lock("held", ttl=30).acquire()
    server.ask("REPLICAOF", "127.0.0.1", 1)
    try:
        with pytest.raises(leasehold.BackendError) as caught:
            client.lock("name").acquire(timeout=0)
        assert isinstance(caught.value, leasehold.BackendUnavailable), "it was surely not applied"
        result = in_background(lambda: client.lock("name").acquire(timeout=60))
        time.sleep(0.5)
    finally:
        server.ask("REPLICAOF", "NO", "ONE")
    assert result().release()
    held.check()
    assert held.release()


def test_server_that_still_loads_its_data_is_unavailable_and_waited_for() -> None:
    server = RedisServer(settings=["enable-debug-command local"])
    with server:
        server.ask("DEBUG", "POPULATE", 3000)
        server.ask("SAVE")
        server.kill()
        with server._configuration.open("a") as file:
            file.write("key-load-delay 2000\nloading-process-events-interval-bytes 1024\n")
        server.launch()
        eventually(lambda: is_loading(server), "it does not load")
        with leasehold.connect(server.url) as client:
            with pytest.raises(leasehold.BackendUnavailable):
                client.lock("name").acquire(timeout=0)
            assert is_loading(server), "the server was ready too soon for this test"
            assert client.lock("name").acquire(timeout=60).release()


def is_loading(server: RedisServer) -> bool:
    try:
        server.ask("GET", "nothing")
    except ErrorReply as error:
        return "LOADING" in str(error)
    except OSError:
        return False
    return False


def test_busy_server_is_waited_for_or_unavailable(client: leasehold.Client, server: RedisServer) -> None:
    """A script of another program runs for long: the server answers BUSY meanwhile."""
    server.configure("busy-reply-threshold", "50")
    with server.connect() as other:
        other.send("EVAL", "while true do end", 0)
        wait_until(lambda: is_busy(server), "the script does not run")
        result = in_background(lambda: client.lock("name").acquire(timeout=60))
        time.sleep(0.3)
        server.ask("SCRIPT", "KILL")
        with pytest.raises(ErrorReply):
            other.receive()
    assert result().release()


def is_busy(server: RedisServer) -> bool:
    try:
        server.ask("GET", "nothing")
    except ErrorReply as error:
        return "BUSY" in str(error)
    return False


def test_too_many_connections_are_unavailable(server: RedisServer) -> None:
    server.configure("maxclients", "1")
    try:
        with server.connect() as only:
            assert only.ask("PING") == b"PONG"
            with leasehold.connect(server.url) as client, pytest.raises(leasehold.BackendUnavailable):
                client.lock("name").acquire(timeout=0)
    finally:
        eventually(lambda: can_configure(server), "the server does not answer any more")


def can_configure(server: RedisServer) -> bool:
    try:
        server.configure("maxclients", "10000")
    except (ErrorReply, OSError):
        return False
    return True


# --- answers that mean: never


def test_foreign_values_under_our_keys_are_refused_and_never_overwritten(
    client: leasehold.Client, server: RedisServer
) -> None:
    lease = client.lock("name", ttl=30).acquire()
    queued = in_background(lambda: client.lock("name", ttl=30).acquire(timeout=60))
    eventually(lambda: waiters(client, "name") == 1)
    shared = client.rwlock("shared", ttl=30).read.acquire()
    keys = set(server.ask("KEYS", "*"))
    lease.release()
    queued().release()
    shared.release()
    refusals = 0
    for key in keys:
        server.flush()
        server.ask("RPUSH", key, "theirs")
        for lock in (client.lock("name"), client.rwlock("shared").read):
            try:
                got = lock.acquire(timeout=0)
            except leasehold.BackendRejected as error:
                assert "another program" in str(error) or "WRONGTYPE" in str(error)
                refusals += 1
            else:
                got.release()
        assert server.ask("LRANGE", key, 0, -1) == [b"theirs"]
    assert refusals >= 2
    server.flush()


def test_foreign_text_under_the_holder_s_key_counts_as_held_and_is_never_overwritten(
    client: leasehold.Client, server: RedisServer
) -> None:
    lease = client.lock("name", ttl=30).acquire()
    keys = [key for key in server.ask("KEYS", "*") if server.ask("TYPE", key) == b"string"]
    assert len(keys) == 1
    lease.release()
    server.flush()
    server.ask("SET", keys[0], "theirs")
    with pytest.raises((leasehold.AcquireTimeout, leasehold.BackendRejected)):
        client.lock("name").acquire(timeout=0.2)
    assert server.ask("GET", keys[0]) == b"theirs"
    server.flush()


def test_missing_and_wrong_passwords_are_rejected_at_once() -> None:
    server = RedisServer(password="secret")
    with server:
        assert leasehold_takes(server.url)
        for login in ("", ":wrong@", "nobody:secret@"):
            began = time.monotonic()
            with (
                leasehold.connect(f"redis://{login}127.0.0.1:{server.port}/0") as client,
                pytest.raises(leasehold.BackendRejected) as caught,
            ):
                client.lock("name").acquire(timeout=30)
            assert time.monotonic() - began < 10, "it was asked again and again"
            assert "secret" not in str(caught.value)
            assert "wrong" not in str(caught.value).replace("wrong password", "")


@pytest.mark.parametrize("program", [redis_program, valkey_program])
def test_missing_password_has_the_same_error_in_every_verb(driver: contract.Driver, program: Callable[[], str]) -> None:
    """A long request was refused with a sentence about the protocol, which names no password."""
    server = RedisServer(password="secret", program=program())

    async def body() -> None:
        async with backend_of(driver, f"redis://127.0.0.1:{server.port}/0") as (backend, _):
            for verb in VERBS.values():
                error = await failure_of(verb(backend, math.inf))
                assert isinstance(error, leasehold.BackendRejected)
                assert "it wants a user name and password in the URL" in str(error)
            with pytest.raises(leasehold.BackendRejected, match="user name and password"):
                await backend.inspect("leasehold:name")

    with server:
        driver.run(body())


def leasehold_takes(url: str) -> bool:
    with leasehold.connect(url) as client:
        return client.lock("name").acquire(timeout=10).release()


def test_account_that_loses_a_right_is_rejected_with_the_command_s_name(server: RedisServer) -> None:
    server.flush()
    server.ask("ACL", "SETUSER", "worker", "reset", "on", ">word", "~*", "&*", "+@all")
    with leasehold.connect(f"redis://worker:word@127.0.0.1:{server.port}/0") as client:
        lease = client.lock("name", ttl=30).acquire()
        server.ask("ACL", "SETUSER", "worker", "-evalsha", "-eval")
        began = time.monotonic()
        with pytest.raises(leasehold.BackendRejected, match=r"(?i)eval|right|permission"):
            client.lock("other").acquire(timeout=30)
        assert time.monotonic() - began < 10
        server.ask("ACL", "SETUSER", "worker", "+@all")
        assert lease.release()


def test_database_that_does_not_exist_is_rejected(server: RedisServer) -> None:
    with (
        leasehold.connect(f"redis://127.0.0.1:{server.port}/4711") as client,
        pytest.raises(leasehold.BackendRejected),
    ):
        client.lock("name").acquire(timeout=5)
