"""Who may talk to etcd, over what, and to which member; and an etcd that has gone back in time."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.etcd.doctor import _Facts, _version
from leasehold._backends.etcd.rpc import Method, Status
from leasehold._backends.etcd.wire import load_grpc
from leasehold.findings import Level
from leasehold.values import LossReason
from verification.lab.certificates import Certificates
from verification.lab.etcd import EtcdServer
from verification.lab.process import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

grpc = load_grpc()


def pair(url: str) -> int:
    """One acquire and release; the fence."""
    with leasehold.connect(url, ttl=5) as client:
        lease = client.lock("x").acquire(timeout=30)
        assert lease.release() is True
        return lease.fence


async def async_pair(url: str) -> int:
    async with leasehold.connect_async(url, ttl=5) as client, client.lock("x").hold(timeout=30) as lease:
        return lease.fence


# --- TLS


def test_tls_is_verified_and_works_in_both_faces(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = EtcdServer(certificates=certificates)
    with server:
        url = f"{server.url}?tls_ca={certificates.authority}"
        assert 0 < pair(url) < asyncio.run(async_pair(url))


@pytest.mark.parametrize("fault", ["another authority", "expired", "another host"])
def test_certificate_that_is_not_good_is_refused_at_once(tmp_path: Path, fault: str) -> None:
    hosts = ("etcd.example.org",) if fault == "another host" else ()
    certificates = Certificates(tmp_path / "own", *hosts, expired=fault == "expired")
    trusted = Certificates(tmp_path / "other") if fault == "another authority" else certificates
    server = EtcdServer(certificates=certificates)
    with server, pytest.raises(leasehold.BackendRejected, match="TLS"):
        pair(f"{server.url}?tls_ca={trusted.authority}")


def test_plain_client_gets_nothing_from_a_server_that_wants_tls(tmp_path: Path) -> None:
    server = EtcdServer(certificates=Certificates(tmp_path))
    with server, leasehold.connect(f"etcd://{server.address}") as client, pytest.raises(leasehold.BackendUnavailable):
        client.lock("x").acquire(timeout=1)


def test_client_certificate_is_shown_where_the_server_wants_one(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = EtcdServer(certificates=certificates, client_certificates=True)
    with server:
        url = f"{server.url}?tls_ca={certificates.authority}"
        with pytest.raises(leasehold.BackendRejected):
            pair(url)
        assert pair(f"{url}&tls_cert={certificates.certificate}&tls_key={certificates.key}") > 0


def test_once_reads_the_clock_of_a_server_with_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = EtcdServer(certificates=certificates)
    with server, leasehold.connect(f"{server.url}?tls_ca={certificates.authority}") as client:
        ran: list[int] = []
        job = client.once("nightly", every="1d")
        assert job.run(lambda: ran.append(1)).ran
        assert not job.run(lambda: ran.append(2))
        assert ran == [1]


# --- users


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """A server with users, whose tokens last for a second."""
    server = EtcdServer(options=["--auth-token-ttl=1"])
    with server:
        server.enable_auth({"app": ("pass word", "leasehold/"), "elsewhere": ("secret", "other/")})
        yield server


def test_user_with_rights_on_our_keys_alone_can_do_everything(guarded: EtcdServer) -> None:
    url = f"etcd://app:pass%20word@{guarded.address}"
    assert pair(url) > 0
    with leasehold.connect(url, ttl=5) as client:
        first, got = client.lock("x").acquire(), []
        thread = threading.Thread(target=lambda: got.append(client.lock("x").acquire(timeout=30)))
        thread.start()
        wait_until(lambda: len(getattr(client.inspect("x"), "waiting", ())) == 1, "nobody waits")
        first.release()
        thread.join(30)
        got[0].release()
        assert client.once("job", slot="a").run(lambda: 7).value == 7
        assert client.raise_fence("x", 10_000, reason="test") >= 10_000
        held = client.lock("x").acquire()
        assert client.break_lock("x", fence=held.fence, reason="test", now=True)
        with suppress(leasehold.LeaseLost):
            assert held.release() is not True


def test_token_that_ran_out_is_replaced(guarded: EtcdServer) -> None:
    with leasehold.connect(f"etcd://app:pass%20word@{guarded.address}", ttl=5) as client:
        for _ in range(2):
            client.lock("y").acquire(timeout=5).release()
            time.sleep(3.5)  # etcd forgets tokens that nobody has used for a second, and looks once a second


def test_user_without_rights_is_refused_at_once_with_the_remedy(guarded: EtcdServer) -> None:
    with pytest.raises(leasehold.BackendRejected, match="rights"):
        pair(f"etcd://elsewhere:secret@{guarded.address}")
    assert pair(f"etcd://elsewhere:secret@{guarded.address}/other") > 0


@pytest.mark.parametrize("user", ["app:wrong@", "nobody:x@", ""])
def test_wrong_password_is_refused_and_never_shown(guarded: EtcdServer, user: str) -> None:
    with pytest.raises(leasehold.BackendRejected) as refused:
        pair(f"etcd://{user}{guarded.address}")
    assert "wrong" not in str(refused.value)


def test_user_where_there_are_none_is_refused(etcd_server: EtcdServer) -> None:
    with pytest.raises(leasehold.BackendRejected, match="no users"):
        pair(f"etcd://app:secret@{etcd_server.address}")


# --- members


def test_member_that_is_absent_is_passed_over(etcd_server: EtcdServer) -> None:
    url = f"etcd://127.0.0.1:{free_port()},127.0.0.1:{free_port()},{etcd_server.address}"
    assert 0 < pair(url) < asyncio.run(async_pair(url))


def test_store_without_a_reachable_member_is_unavailable() -> None:
    with leasehold.connect(f"etcd://127.0.0.1:{free_port()}") as client, pytest.raises(leasehold.BackendUnavailable):
        client.lock("x").acquire(timeout=0.5)


class _Between(grpc.GenericRpcHandler):  # type: ignore[name-defined,misc]  # gRPC has no types
    """Passes calls on to the real server; keep-alives, when told so, get a stream that ends well and says nothing."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.swallows = False
        self.swallowed = 0

    def service(self, details: Any) -> Any:
        method = details.method
        if method == Method.LEASE_KEEP_ALIVE and self.swallows:
            return grpc.stream_stream_rpc_method_handler(self._nothing)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, _: self._channel.unary_unary(method)(request, timeout=5)
        )

    def _nothing(self, requests: Any, _: Any) -> Iterator[bytes]:
        self.swallowed += len(list(requests))
        return iter(())


@contextmanager
def between(server: EtcdServer) -> Iterator[tuple[_Between, str]]:
    channel = grpc.insecure_channel(server.address)
    handler = _Between(channel)
    proxy = grpc.server(ThreadPoolExecutor(8), handlers=[handler])
    port = proxy.add_insecure_port("127.0.0.1:0")
    proxy.start()
    try:
        yield handler, f"etcd://127.0.0.1:{port}"
    finally:
        proxy.stop(0).wait()
        channel.close()


def test_keep_alive_stream_that_ends_without_an_error_is_a_loss_at_the_deadline(etcd_server: EtcdServer) -> None:
    with between(etcd_server) as (proxy, url), leasehold.connect(url, ttl=2, namespace="silent") as client:
        lease = client.lock("x").acquire(timeout=10)
        proxy.swallows = True
        assert lease.lost.wait(30)
        assert proxy.swallowed > 1
        assert lease.loss is not None
        assert lease.loss.reason is LossReason.UNCONFIRMED
        with leasehold.connect(etcd_server.url, ttl=2, namespace="silent") as other:
            later = other.lock("x").acquire(timeout=30)
            assert later.fence > lease.fence
            later.release()


# --- back in time


def test_cluster_that_has_gone_back_is_refused_until_the_fence_is_raised() -> None:
    server = EtcdServer()
    with server, leasehold.connect(server.url, ttl=5) as client:
        for _ in range(20):
            client.lock("x").acquire().release()
        before = client.lock("x").acquire()
        before.release()
        server.stop()
        shutil.rmtree(server.folder / "data")  # restored from a backup that is older than all of this
        server.start()
        with pytest.raises(leasehold.BackendRejected, match="gone back") as refused:
            client.lock("x").acquire(timeout=30)
        assert str(before.fence)[:1] in str(refused.value)
        assert client.inspect("x") is None
        client.raise_fence("x", before.fence + 100, reason="restored from a backup")
        after = client.lock("x").acquire(timeout=30)
        assert after.fence > before.fence
        after.release()


def test_fence_floor_in_the_url_lifts_every_fence(etcd_server: EtcdServer) -> None:
    with leasehold.connect(f"{etcd_server.url}?fence_floor=2000000", namespace="moved") as client:
        lease = client.lock("x").acquire()
        assert lease.fence > 2_000_000
        lease.release()
    with leasehold.connect(etcd_server.url, namespace="moved") as client:  # the others see it, too
        later = client.lock("x").acquire()
        assert later.fence > lease.fence
        later.release()


# --- the doctor


def test_doctor_reports_members_version_and_leader(etcd_server: EtcdServer) -> None:
    with leasehold.connect(etcd_server.url) as client:
        findings = {finding.check: finding for finding in client.examine()}
    assert findings["members"].level is Level.WARNING
    assert "3.4" in findings["server version"].found
    assert findings["leader"].level is Level.OK
    assert all(finding.why for finding in findings.values())


@pytest.mark.parametrize(
    ("version", "level", "word"),
    [
        ("3.3.27", Level.PROBLEM, "3.4 or newer"),
        ("3.4.30", Level.WARNING, "3.4.31"),
        ("3.4.31", Level.OK, None),
        ("3.5.0", Level.PROBLEM, "14110"),
        ("3.5.4", Level.PROBLEM, "14110"),
        ("3.5.5", Level.WARNING, "3.5.13"),
        ("3.5.12", Level.WARNING, "3.5.13"),
        ("3.5.13", Level.OK, None),
        ("3.5.13-vendor.1", Level.OK, None),
        ("3.6.0", Level.OK, None),
    ],
)
def test_doctor_knows_the_versions_with_faults_that_matter(version: str, level: Level, word: str | None) -> None:
    facts = _Facts(statuses={0: Status(version, 0, 1, 1), 1: Status("3.6.1", 0, 1, 1)})
    finding = _version(facts)
    assert finding.level is level
    assert version in finding.found
    assert word is None or word in str(finding.advice)


def test_doctor_finds_users_without_rights(guarded: EtcdServer) -> None:
    with leasehold.connect(f"etcd://app:pass%20word@{guarded.address}") as client:
        findings = {finding.check: finding for finding in client.examine()}
    assert findings["rights"].level is Level.OK
    with leasehold.connect(f"etcd://elsewhere:secret@{guarded.address}") as client:
        findings = {finding.check: finding for finding in client.examine()}
    assert findings["rights"].level is Level.PROBLEM


# --- what etcd makes of a ttl


def test_ttl_is_what_etcd_granted_and_not_what_was_requested() -> None:
    server = EtcdServer(election_ms=1000)  # etcd raises a lease to one and a half of these, in whole seconds
    with server, leasehold.connect(server.url, ttl=0.4) as client:
        lease = client.lock("x").acquire()
        assert 1.5 < lease.remaining() < 2
        time.sleep(1.5)
        lease.check()
        lease.release()


def test_acquire_that_fails_after_its_lease_was_made_leaves_no_lease(guarded: EtcdServer) -> None:
    token = guarded.authenticate("root", "root secret")
    before = len(guarded.ask("/lease/leases", token=token).get("leases", []))
    with leasehold.connect(f"etcd://elsewhere:secret@{guarded.address}", ttl=600) as client:
        for _ in range(3):
            with pytest.raises(leasehold.BackendRejected):
                client.lock("x").acquire(timeout=5)
    token = guarded.authenticate("root", "root secret")
    assert len(guarded.ask("/lease/leases", token=token).get("leases", [])) <= before
