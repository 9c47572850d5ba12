"""NATS: answers and requests that get lost, servers that fall silent, restart or lose their bucket."""

from __future__ import annotations

import base64
import json
import threading
import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import LossReason, Record, Refusal
from tests.stores.nats.nats_support import backend_of, claim, fresh_bucket, granted
from tests.stores.support import eventually, waiters
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.testing import contract
    from verification.lab.nats import NatsServer

SWAP, LOAD = b"HPUB $KV.", b"STREAM.MSG.GET"


@pytest.fixture
def proxy(nats_server: NatsServer) -> Iterator[FaultProxy]:
    with FaultProxy(("127.0.0.1", nats_server.port)) as proxy:
        yield proxy


@pytest.fixture
def bucket() -> str:
    return fresh_bucket()


def through(proxy: FaultProxy, bucket: str, answer_timeout: str = "500ms") -> str:
    return f"nats://127.0.0.1:{proxy.port}?bucket={bucket}&answer_timeout={answer_timeout}"


def document(server: NatsServer, bucket: str, key: str = "lock=3Ans=3Ax") -> dict[str, object]:
    found = server.api(f"STREAM.MSG.GET.KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.{key}"})
    document: dict[str, object] = json.loads(base64.b64decode(found["message"]["data"]))
    return document


# --- one request


@pytest.mark.parametrize("then", ["cut", "silence"])
def test_a_lost_answer_to_a_swap_is_answered_by_the_same_grant(
    driver: contract.Driver, nats_server: NatsServer, proxy: FaultProxy, bucket: str, then: str
) -> None:
    async def main() -> None:
        async with backend_of(driver, through(proxy, bucket)) as backend:
            await backend.inspect("ns:x")  # makes the bucket
            proxy.swallow(SWAP, then=then)
            with pytest.raises(OutcomeUnknown):
                await backend.try_acquire(claim())
            fence = document(nats_server, bucket)["fence"]  # it was applied
            assert granted(await backend.try_acquire(claim())).fence == fence
            assert isinstance(await backend.try_acquire(claim("b")), Refusal)
            rows = document(nats_server, bucket)["rows"]
            assert isinstance(rows, list)
            assert len(rows) == 1

    driver.run(main())


def test_a_request_that_never_arrived_is_tried_again(driver: contract.Driver, proxy: FaultProxy, bucket: str) -> None:
    async def main() -> None:
        async with backend_of(driver, through(proxy, bucket)) as backend:
            await backend.inspect("ns:x")
            proxy.lose(SWAP)
            with pytest.raises(OutcomeUnknown):
                await backend.try_acquire(claim())
            assert await backend.inspect("ns:x") is None
            granted(await backend.try_acquire(claim()))

    driver.run(main())


def test_a_lost_answer_to_a_read_means_that_nothing_happened(
    driver: contract.Driver, proxy: FaultProxy, bucket: str
) -> None:
    async def main() -> None:
        async with backend_of(driver, through(proxy, bucket)) as backend:
            await backend.inspect("ns:x")
            proxy.swallow(LOAD)
            with pytest.raises(BackendUnavailable):
                await backend.try_acquire(claim())
            granted(await backend.try_acquire(claim()))

    driver.run(main())


def test_a_swap_on_an_old_version_is_refused_and_changes_nothing(
    driver: contract.Driver, nats_server: NatsServer, bucket: str
) -> None:
    async def main() -> None:
        async with backend_of(driver, f"{nats_server.url}?bucket={bucket}") as backend:
            documents, end = backend._bucket, backend._runtime.now() + 5
            value, version = await documents.load("lock:a", end)
            assert (value, version) == (None, 0)
            assert await documents.swap("lock:a", b"1", 0, end)
            assert not await documents.swap("lock:a", b"2", 0, end)
            value, version = await documents.load("lock:a", end)
            assert value == b"1"
            assert await documents.swap("lock:a", b"2", version, end)
            assert not await documents.swap("lock:a", None, version, end)
            assert (await documents.load("lock:a", end))[0] == b"2"

    driver.run(main())


def test_a_deleted_document_leaves_no_message(driver: contract.Driver, nats_server: NatsServer, bucket: str) -> None:
    async def main() -> None:
        async with backend_of(driver, f"{nats_server.url}?bucket={bucket}") as backend:
            documents, end = backend._bucket, backend._runtime.now() + 5
            await documents.load("record:a", end)
            assert await documents.swap("record:a", b"1", 0, end)
            _, version = await documents.load("record:a", end)
            assert await documents.swap("record:a", None, version, end)
            assert nats_server.keys(bucket) == []
            assert (await documents.load("record:a", end))[0] is None

    driver.run(main())


def test_where_messages_cannot_be_removed_a_deleted_document_is_none(
    driver: contract.Driver, nats_server: NatsServer, bucket: str
) -> None:
    async def main() -> None:
        async with backend_of(driver, f"{nats_server.url}?bucket={bucket}") as backend:
            await backend.inspect("ns:x")
            config = nats_server.stream(bucket)["config"] | {"deny_delete": True}
            assert "error" not in nats_server.api(f"STREAM.UPDATE.KV_{bucket}", config)
            documents, end = backend._bucket, backend._runtime.now() + 5
            assert await documents.swap("record:a", b"1", 0, end)
            _, version = await documents.load("record:a", end)
            assert await documents.swap("record:a", None, version, end)
            value, version = await documents.load("record:a", end)
            assert value is None
            assert len(nats_server.keys(bucket)) == 1
            assert await documents.swap("record:a", b"2", version, end)
            assert await backend.write(Record("b", b"value", 1, 60.0))

    driver.run(main())


def test_a_call_ends_when_its_caller_has_no_time_left(driver: contract.Driver, proxy: FaultProxy, bucket: str) -> None:
    async def main() -> None:
        async with backend_of(driver, through(proxy, bucket, "30s")) as backend:
            await backend.inspect("ns:x")
            proxy.black_hole()
            for _ in range(2):  # on the old connection, and on a new one
                started = backend._runtime.now()
                with pytest.raises((BackendUnavailable, OutcomeUnknown)):
                    await backend.try_acquire(claim(), started + 0.3)
                assert backend._runtime.now() - started < 20, "it waited for an answer"

    driver.run(main())


def test_a_connection_that_fell_silent_is_replaced(driver: contract.Driver, proxy: FaultProxy, bucket: str) -> None:
    async def main() -> None:
        async with backend_of(driver, through(proxy, bucket)) as backend:
            grant = granted(await backend.try_acquire(claim()))
            proxy.black_hole()
            with pytest.raises(BackendUnavailable):
                await backend.release(grant)
            proxy.heal()
            assert await backend.release(grant) is True

    driver.run(main())


def test_the_first_server_that_answers_is_used(
    driver: contract.Driver, nats_server: NatsServer, proxy: FaultProxy, bucket: str
) -> None:
    proxy.black_hole()
    url = f"nats://127.0.0.1:{proxy.port},{nats_server.address}?bucket={bucket}&answer_timeout=500ms"

    async def main() -> None:
        async with backend_of(driver, url) as backend:
            granted(await backend.try_acquire(claim()))
            connections = proxy.accepted
            granted(await backend.try_acquire(claim()))
            assert proxy.accepted == connections, "the silent server was tried again"

    driver.run(main())


def test_a_document_that_is_too_large_is_refused_before_it_is_sent(
    driver: contract.Driver, nats_server: NatsServer, bucket: str
) -> None:
    """The server would close the connection without an answer."""

    async def main() -> None:
        async with backend_of(driver, f"{nats_server.url}?bucket={bucket}") as backend:
            documents, end = backend._bucket, backend._runtime.now() + 5
            await documents.load("lock:a", end)
            with pytest.raises(BackendRejected, match="max_payload"):
                await documents.swap("lock:a", b"x" * 2**20, 0, end)
            assert await documents.swap("lock:a", b"x" * (2**20 - 1024), 0, end)

    driver.run(main())


def test_a_closed_client_leaves_no_connection_and_no_thread(
    driver: contract.Driver, proxy: FaultProxy, bucket: str
) -> None:
    async def main() -> None:
        async with backend_of(driver, through(proxy, bucket)) as backend:
            granted(await backend.try_acquire(claim("a")))
            assert isinstance(await backend.join(claim("b")), Place)
            assert proxy.links > 0

    driver.run(main())
    eventually(lambda: proxy.links == 0, "a connection is left over")
    eventually(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("leasehold n")],
        "a thread is left over",
    )


# --- the server


def test_a_restart_keeps_locks_and_wakes_waiters(own_nats: NatsServer) -> None:
    with leasehold.connect(own_nats.url, ttl=30) as holder, leasehold.connect(own_nats.url, ttl=30) as rival:
        lease = holder.lock("x").acquire()
        won: list[float] = []
        waiting = threading.Thread(target=lambda: won.append(rival.lock("x").acquire(timeout=60).fence))
        waiting.start()
        eventually(lambda: waiters(holder, "x") == 1)
        own_nats.kill()
        own_nats.start()
        lease.renew()
        assert not won
        eventually(lambda: waiters(holder, "x") == 1)
        lease.release()
        released = time.monotonic()
        waiting.join(60)
        assert won[0] > lease.fence
        assert time.monotonic() - released < 10


def test_a_deleted_bucket_is_a_loss_and_fences_go_on_rising(own_nats: NatsServer) -> None:
    with leasehold.connect(own_nats.url, ttl=30) as client:
        lease = client.lock("x").acquire()
        before = own_nats.stream()["state"]["last_seq"]
        own_nats.delete_bucket()
        with pytest.raises(leasehold.LeaseLost):
            lease.renew()
        assert lease.loss is not None
        assert lease.loss.reason is LossReason.TAKEN
        again = client.lock("x").acquire(timeout=10)
        assert again.fence > lease.fence
        assert own_nats.stream()["state"]["first_seq"] > before, "a number was used again"
        again.release()


def test_a_waiter_is_woken_without_waiting_for_its_recheck(driver: contract.Driver, nats_server: NatsServer) -> None:
    url = f"{nats_server.url}?bucket={fresh_bucket()}"

    async def main() -> None:
        async with backend_of(driver, url) as first, backend_of(driver, url) as second:
            grant = granted(await first.try_acquire(claim("a")))
            place = await second.join(claim("b"))
            assert isinstance(place, Place)
            place.signal.clear()
            assert await first.release(grant) is True
            runtime = second._runtime
            assert await runtime.wait(place.signal, runtime.now() + 2)
            granted(await second.turn(place))

    driver.run(main())


def test_a_listener_that_was_cut_off_subscribes_again(
    driver: contract.Driver, nats_server: NatsServer, proxy: FaultProxy, bucket: str
) -> None:
    async def main() -> None:
        async with (
            backend_of(driver, f"{nats_server.url}?bucket={bucket}") as first,
            backend_of(driver, through(proxy, bucket)) as second,
        ):
            grant = granted(await first.try_acquire(claim("a")))
            place = await second.join(claim("b"))
            assert isinstance(place, Place)
            accepted = proxy.accepted
            proxy.cut()
            end = time.monotonic() + 30
            while proxy.accepted == accepted or not proxy.links:
                assert time.monotonic() < end, "it did not connect again"
                await driver.breathe()
            await second._runtime.sleep(0.5)  # the subscription may need a moment
            place.signal.clear()
            assert await first.release(grant) is True
            runtime = second._runtime
            assert await runtime.wait(place.signal, runtime.now() + 5)

    driver.run(main())
