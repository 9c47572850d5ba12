"""TLS to Redis is verified by default: a certificate that is not in order ends it before anything is sent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.support import opened
from verification.lab.certificates import Certificates
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold.testing import contract


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(certificates=Certificates(folder / "good"), password="secret")
    with server:
        yield server


def url(server: RedisServer, authority: Path | None, host: str = "localhost", **options: str) -> str:
    if authority is not None:
        options["tls_ca"] = str(authority)
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"rediss://:{server.password}@{host}:{server.port}/0?{query}"


def refused(target: str) -> str:
    """Acquire a lock; why it was refused, which must be known soon, and without the password."""
    began = time.monotonic()
    with leasehold.connect(target) as client, pytest.raises(leasehold.BackendError) as caught:
        client.lock("name").acquire(timeout=20)
    assert time.monotonic() - began < 10, "a bad certificate does not get better"
    assert isinstance(caught.value, leasehold.BackendRejected)
    assert "secret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_certificate_in_order_is_accepted(driver: contract.Driver, server: RedisServer, host: str) -> None:
    assert server.certificates is not None
    target = url(server, server.certificates.authority, host)

    async def body() -> None:
        async with opened(driver, target) as client:
            lease = await client.lock("name", ttl=30).acquire(timeout=10)
            await lease.renew()
            assert await lease.release()

    driver.run(body())


def test_unknown_authority_is_refused(server: RedisServer, folder: Path) -> None:
    assert "certificate" in refused(url(server, None))
    other = Certificates(folder / "other")
    assert "certificate" in refused(url(server, other.authority))


def test_unknown_authority_is_refused_on_asyncio_too(driver: contract.Driver, server: RedisServer) -> None:
    async def body() -> None:
        async with opened(driver, url(server, None)) as client:
            with pytest.raises(leasehold.BackendRejected):
                await client.lock("name").acquire(timeout=20)

    driver.run(body())


def test_certificate_for_another_host_is_refused(folder: Path) -> None:
    certificates = Certificates(folder / "elsewhere", "elsewhere.example")
    server = RedisServer(certificates=certificates, password="secret")
    with server:
        assert "localhost" in refused(url(server, certificates.authority))


def test_expired_certificate_is_refused(folder: Path) -> None:
    certificates = Certificates(folder / "expired", expired=True)
    server = RedisServer(certificates=certificates, password="secret")
    with server:
        assert "expired" in refused(url(server, certificates.authority))


def test_plain_talk_to_a_tls_port_is_an_error_and_no_hang(server: RedisServer) -> None:
    with leasehold.connect(f"redis://:secret@127.0.0.1:{server.port}/0") as client:
        with pytest.raises(leasehold.BackendError):
            client.lock("name").acquire(timeout=2)


def test_tls_talk_to_a_plain_port_is_an_error_and_no_hang(redis_server: RedisServer) -> None:
    with leasehold.connect(f"rediss://127.0.0.1:{redis_server.port}/0") as client:
        with pytest.raises(leasehold.BackendError):
            client.lock("name").acquire(timeout=2)


@pytest.mark.parametrize("word", ["no", "0"])
def test_verification_can_be_switched_off_by_name(server: RedisServer, word: str) -> None:
    with leasehold.connect(url(server, None, tls_verify=word)) as client:
        assert client.lock("name").acquire(timeout=10).release()
