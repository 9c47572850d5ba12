"""NATS: logins, rights, TLS, servers without JetStream, buckets that are not fit, and what the doctor finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.errors import BackendRejected, ConfigurationError
from leasehold.findings import Level
from tests.stores.nats.nats_support import backend_of, claim, fresh_bucket, granted
from verification.lab.certificates import Certificates
from verification.lab.nats import NatsServer
from verification.lab.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold.testing import contract

LEAST = """
authorization { users: [
  { user: admin, password: secret },
  { user: locker, password: "p@ss", permissions: {
      publish: ["$KV.leasehold.>", "$JS.API.STREAM.INFO.KV_leasehold", "$JS.API.STREAM.MSG.GET.KV_leasehold",
                "$JS.API.STREAM.MSG.DELETE.KV_leasehold", "$JS.API.STREAM.CREATE.KV_leasehold"],
      subscribe: ["_INBOX.>", "leasehold.leasehold.>"] } },
  { user: reader, password: "p@ss", permissions: {
      publish: ["$JS.API.STREAM.INFO.KV_leasehold", "$JS.API.STREAM.MSG.GET.KV_leasehold",
                "$JS.API.STREAM.CREATE.KV_leasehold"],
      subscribe: ["_INBOX.>"] } },
  { user: stranger, password: "p@ss", permissions: { publish: ["nothing"], subscribe: ["_INBOX.>"] } },
] }
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[NatsServer]:
    with NatsServer(settings=LEAST, login={"user": "admin", "pass": "secret"}) as server:
        yield server


def url_as(server: NatsServer, user: str) -> str:
    return f"nats://{user}:p%40ss@{server.address}"


def test_the_least_rights_are_enough(driver: contract.Driver, guarded: NatsServer) -> None:
    async def main() -> None:
        async with backend_of(driver, url_as(guarded, "locker")) as backend:
            grant = granted(await backend.try_acquire(claim()))
            await backend.join(claim("b"))
            await backend.withdraw(claim("b"))
            assert await backend.release(grant) is True
            assert await backend.list("ns:") == []

    driver.run(main())


@pytest.mark.parametrize("user", ["reader", "stranger"])
def test_a_missing_right_is_refused_at_once_and_named(driver: contract.Driver, guarded: NatsServer, user: str) -> None:
    async def main() -> None:
        async with backend_of(driver, url_as(guarded, user)) as backend:
            started = backend._runtime.now()
            with pytest.raises(BackendRejected, match=r"lacks a right.*Publish"):
                await backend.try_acquire(claim())
            assert backend._runtime.now() - started < 3

    driver.run(main())


def test_a_wrong_password_is_refused_and_not_shown(driver: contract.Driver, guarded: NatsServer) -> None:
    async def main() -> None:
        async with backend_of(driver, f"nats://locker:wrong-word@{guarded.address}") as backend:
            with pytest.raises(BackendRejected, match="refused the login") as refused:
                await backend.try_acquire(claim())
            assert "wrong-word" not in str(refused.value)

    driver.run(main())


def test_a_token_logs_in_and_is_not_shown(driver: contract.Driver) -> None:
    settings = 'authorization { token: "top-secret" }'
    with NatsServer(settings=settings, login={"auth_token": "top-secret"}) as server:

        async def main() -> None:
            async with backend_of(driver, f"nats://top-secret@{server.address}") as backend:
                granted(await backend.try_acquire(claim()))
                assert "top-secret" not in backend.label

        driver.run(main())


def test_a_server_without_jetstream_is_refused_with_what_to_do(driver: contract.Driver) -> None:
    with NatsServer(jetstream=False) as server:

        async def main() -> None:
            async with backend_of(driver, server.url) as backend:
                with pytest.raises(BackendRejected, match="-js"):
                    await backend.try_acquire(claim())
                (problem, *_) = await backend.examine()
                assert problem.level is Level.PROBLEM
                assert "JetStream" in problem.found

        driver.run(main())


# --- TLS


def test_tls_is_used_where_the_url_says_so_and_required_where_the_server_does(
    driver: contract.Driver, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    with NatsServer(certificates=certificates) as server:

        async def main() -> None:
            async with backend_of(driver, f"{server.url}?tls_ca={certificates.authority}") as backend:
                grant = granted(await backend.try_acquire(claim()))
                await backend.join(claim("b"))
                assert await backend.release(grant) is True
            async with backend_of(driver, server.url) as backend:
                with pytest.raises(BackendRejected, match="TLS failed"):
                    await backend.try_acquire(claim())
            async with backend_of(driver, f"nats://{server.address}") as backend:
                with pytest.raises(BackendRejected, match="requires TLS"):
                    await backend.try_acquire(claim())

        driver.run(main())


def test_the_certificate_of_each_server_is_checked_against_its_own_name(
    driver: contract.Driver, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path, "localhost")
    with NatsServer(certificates=certificates) as server:

        async def main() -> None:
            query = f"tls_ca={certificates.authority}"
            async with backend_of(
                driver, f"nats+tls://127.0.0.1:{free_port()},localhost:{server.port}?{query}"
            ) as backend:
                granted(await backend.try_acquire(claim()))
            async with backend_of(driver, f"nats+tls://{server.address}?{query}") as backend:
                with pytest.raises(BackendRejected, match="TLS failed"):
                    await backend.try_acquire(claim())

        driver.run(main())


def test_a_server_without_tls_gets_no_login(driver: contract.Driver, nats_server: NatsServer) -> None:
    async def main() -> None:
        async with backend_of(driver, f"nats+tls://user:password@{nats_server.address}") as backend:
            with pytest.raises(BackendRejected, match="offers no TLS"):
                await backend.try_acquire(claim())

    driver.run(main())


# --- buckets of other origin


FIT: dict[str, Any] = {"max_msgs_per_subject": 1, "discard": "new", "max_age": 0}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"max_age": 10**12}, "expire"),
        ({"discard": "old"}, "discards old"),
        ({"max_msgs_per_subject": 5}, "history"),
        ({"republish": None}, "announce"),
    ],
    ids=["max_age", "discard", "history", "republish"],
)
def test_a_bucket_in_which_locks_would_vanish_is_refused(
    nats_server: NatsServer, change: dict[str, Any], why: str
) -> None:
    bucket = fresh_bucket()
    republish = {"src": f"$KV.{bucket}.>", "dest": f"leasehold.{bucket}.>"}
    config = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], **FIT, "republish": republish, **change}
    assert "error" not in nats_server.api(f"STREAM.CREATE.KV_{bucket}", config)
    with leasehold.connect(f"{nats_server.url}?bucket={bucket}") as client:
        with pytest.raises(BackendRejected, match=why):
            client.lock("x").acquire()
        findings = {finding.check: finding for finding in client.examine()}
        assert findings["bucket"].level is Level.PROBLEM


# --- the doctor


def test_the_doctor_examines_without_making_a_bucket(nats_server: NatsServer) -> None:
    bucket = fresh_bucket()
    with leasehold.connect(f"{nats_server.url}?bucket={bucket}") as client:
        findings = {finding.check: finding for finding in client.examine()}
        assert findings["jetstream"].level is Level.OK
        assert findings["server version"].level is Level.OK
        assert "not there yet" in findings["bucket"].found
        assert findings["disk"].level is Level.WARNING
        assert "sync_interval" in findings["disk"].advice
        assert "error" in nats_server.stream(bucket)
        client.lock("x").acquire().release()
        findings = {finding.check: finding for finding in client.examine()}
        assert findings["replicas"].level is Level.WARNING
        assert findings["storage"].level is Level.OK
        assert findings["server clock"].level is Level.OK
        assert findings["access"].level is Level.OK


# --- options


def test_the_fence_floor_of_the_url_lifts_every_fence(nats_server: NatsServer) -> None:
    bucket, floor = fresh_bucket(), 5_000_000_000_000_000
    with leasehold.connect(f"{nats_server.url}?bucket={bucket}&fence_floor={floor}") as client:
        assert client.lock("x").acquire().fence > floor
        assert client.lock("y").acquire().fence > floor


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nats://h/path", "no path"),
        ("nats://:word@h", "needs a user"),
        ("nats://h?bucket=a.b", "letters"),
        ("nats://h?replicas=7", "replicas"),
        ("nats://h?tls_ca=x", "nats\\+tls"),
        ("nats://h?timeout=1s", "answer_timeout"),
    ],
)
def test_a_bad_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        leasehold.connect(url)
