"""Access to the locks of a ZooKeeper ensemble: accounts, rights, TLS, adopted clients; and the doctor."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import leasehold
from leasehold._backends.zookeeper.keys import node_id
from leasehold.findings import Finding, Level
from tests.stores.zookeeper.zookeeper_support import LIMIT, looking_at
from verification.lab.certificates import Certificates
from verification.lab.process import wait_until
from verification.lab.zookeeper import SecureZooKeeperServer, ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from verification.lab.zookeeper import Ensemble


def as_user(server: ZooKeeperServer, root: str, options: str = "") -> str:
    return f"zk://alice:wonder%20land@{server.address}{root}{options}"


def walk(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for child in client.get_children(path):
        yield from walk(client, f"{path}/{child}")


def test_every_node_of_a_known_user_is_closed_to_others(zookeeper_server: ZooKeeperServer, eye: KazooClient) -> None:
    with leasehold.connect(as_user(zookeeper_server, "/alice")) as client:
        client.raise_fence("x", 10**12, reason="test")
        with client.lock("x").hold():
            with looking_at(zookeeper_server, auth_data=[("digest", "alice:wonder land")]) as insider:
                paths = list(walk(insider, "/alice"))
                assert len(paths) == 5, paths
                for path in paths:
                    (rule,) = insider.get_acls(path)[0]
                    assert (rule.id.scheme, rule.perms) == ("digest", 31)
            # While it is held: nodes of idle locks are removed in the background, and of none there is nothing to see.
            with leasehold.connect(zookeeper_server.url("/alice")) as other:
                with pytest.raises(leasehold.BackendRejected, match="may not"):
                    other.lock("x").acquire(timeout=5)
                with pytest.raises(leasehold.BackendRejected, match="may not"):
                    other.inspect("x")


def test_the_rights_of_the_url_are_given_to_every_node(zookeeper_server: ZooKeeperServer, eye: KazooClient) -> None:
    mine = make_digest_acl("alice", "wonder land", all=True).id.id
    with leasehold.connect(as_user(zookeeper_server, "/both", f"?acl=digest:{mine}:cdrwa,world:anyone:r")) as client:
        with client.lock("x").hold():
            for path in walk(eye, "/both"):
                assert {(rule.id.scheme, rule.perms) for rule in eye.get_acls(path)[0]} == {
                    ("digest", 31),
                    ("world", 1),
                }
        with leasehold.connect(zookeeper_server.url("/both")) as reader:
            assert list(reader.locks()) == []
            with pytest.raises(leasehold.BackendRejected):
                reader.lock("x").acquire(timeout=5)


def test_the_least_rights_are_enough_for_everything(zookeeper_server: ZooKeeperServer) -> None:
    mine = make_digest_acl("alice", "wonder land", all=True).id.id
    url = as_user(zookeeper_server, "/least", f"?acl=digest:{mine}:cdrw")
    with leasehold.connect(url, ttl=5) as client, leasehold.connect(url, ttl=5) as operator:
        client.raise_fence("x", 10**9, reason="test")
        broken = client.lock("x").acquire()
        assert operator.break_lock("x", fence=broken.fence, reason="test", now=True) is True
        lease = client.lock("x").acquire()
        assert operator.lock("x").try_acquire() is None
        assert operator.inspect("x") is not None
        lease.renew()
        assert lease.release() is True
        assert broken.release() is False
        assert all(finding.level is not Level.PROBLEM for finding in client.examine())


def test_an_account_that_may_create_but_not_delete_does_not_block_the_lock_for_ever(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    """Its nodes end with their session, which is given up when they cannot be deleted."""
    mine = make_digest_acl("alice", "wonder land", all=True).id.id
    root = "/no-delete"
    with leasehold.connect(as_user(zookeeper_server, root, f"?acl=digest:{mine}:crwa"), ttl=1) as client:
        lease = client.lock("x").acquire()
        with pytest.raises(leasehold.BackendRejected, match="may not"):
            lease.release()
        again = client.lock("x").acquire(timeout=60)
        assert again.fence > lease.fence
        with pytest.raises(leasehold.BackendRejected, match="may not"):
            again.release()


def test_a_client_of_kazoo_lends_its_address_and_credentials(zookeeper_server: ZooKeeperServer) -> None:
    theirs = KazooClient(f"{zookeeper_server.address}/app", auth_data=[("digest", "alice:wonder land")])
    with leasehold.connect(theirs) as client, leasehold.connect(as_user(zookeeper_server, "/app/leasehold")) as same:
        with client.lock("x").hold():
            assert same.lock("x").try_acquire() is None
        assert not theirs.connected, "its session is its own"
        assert "wonder" not in client.store
    below = as_user(zookeeper_server, "/app/other")
    with leasehold.connect(theirs, options={"root": "/other"}) as client, leasehold.connect(below) as same:
        with client.lock("x").hold():
            assert same.lock("x").try_acquire() is None
    with pytest.raises(leasehold.ConfigurationError, match="no option 'acl'; it takes fence_floor, root"):
        leasehold.connect(theirs, options={"acl": "open"})


def test_the_fence_floor_of_the_url_lifts_every_fence(zookeeper_server: ZooKeeperServer) -> None:
    with leasehold.connect(zookeeper_server.url("/floor")) as plain:
        first = plain.lock("x").acquire()
        first.release()
        with leasehold.connect(zookeeper_server.url("/floor?fence_floor=1800000000000000")) as lifted:
            higher = lifted.lock("x").acquire()
            higher.release()
            assert higher.fence > 1_800_000_000_000_000 > first.fence
        later = plain.lock("x").acquire()
        assert later.fence > higher.fence, "it is stored, and applies to every client"
        later.release()


def test_no_log_shows_the_password_or_an_owner(
    zookeeper_server: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo's own debug lines would show both."""
    with caplog.at_level(logging.DEBUG):
        with leasehold.connect(as_user(zookeeper_server, "/quiet"), ttl=2) as client:
            lease = client.lock("x").acquire()
            owner = lease._twin._tenure.grant.claim.owner
            lease.renew()
            lease.release()
    assert "established" in caplog.text, "nothing was logged, so nothing was tested"
    assert "wonder" not in caplog.text
    assert owner not in caplog.text
    assert node_id(owner) not in caplog.text


def test_a_ttl_shorter_than_the_ensemble_allows_is_rounded_up() -> None:
    """A grant of a session of nine seconds is valid for six."""
    server = ZooKeeperServer(settings={"minSessionTimeout": 9000})
    with server, leasehold.connect(server.url(), ttl=1) as client:
        lease = client.lock("x").acquire()
        assert 2 < lease.remaining() < 6
        lease.release()


# --- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure_server(certificates: Certificates) -> Iterator[SecureZooKeeperServer]:
    server = SecureZooKeeperServer(certificates)
    with server:
        yield server


def test_locks_work_over_tls(secure_server: SecureZooKeeperServer, certificates: Certificates) -> None:
    with leasehold.connect(secure_server.url(f"?tls_ca={certificates.authority}"), ttl=5) as client:
        leases = [client.lock(f"n{number}").acquire() for number in range(20)]
        assert client.lock("n0").try_acquire() is None
        for lease in leases:
            lease.renew()
            assert lease.release() is True


def test_an_unknown_authority_is_refused_with_its_reason(secure_server: SecureZooKeeperServer, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    refused(secure_server.url(f"?tls_ca={other.authority}"), "certificate verify failed")
    refused(secure_server.url(), "certificate verify failed")


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "elsewhere.example")
    server = SecureZooKeeperServer(certificates)
    with server:
        refused(server.url(f"?tls_ca={certificates.authority}"), "certificate verify failed")
        with leasehold.connect(server.url(f"?tls_ca={certificates.authority}&check_hostname=no")) as careless:
            careless.lock("x").acquire(timeout=30).release()


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, expired=True)
    server = SecureZooKeeperServer(certificates)
    with server:
        refused(server.url(f"?tls_ca={certificates.authority}"), "certificate has expired")


def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    certificates, mine = Certificates(tmp_path / "server"), Certificates(tmp_path / "client")
    server = SecureZooKeeperServer(certificates, client_authority=mine.authority)
    with server:
        shown = f"?tls_ca={certificates.authority}&tls_cert={mine.certificate}&tls_key={mine.key}"
        with leasehold.connect(server.url(f"/mine{shown}")) as client, client.lock("x").hold():
            assert client.lock("x").try_acquire() is None
        with pytest.raises(leasehold.BackendUnavailable):
            leasehold.connect(server.url(f"?tls_ca={certificates.authority}")).lock("x").acquire(timeout=1)


def refused(url: str, why: str) -> None:
    """No lock is granted, and the error names the reason; a first handshake may take longer than one call."""
    with leasehold.connect(url) as client:

        def reason_is_named() -> bool:
            with pytest.raises(leasehold.BackendUnavailable) as refusal:
                client.lock("x").acquire(timeout=2)
            return why in str(refusal.value)

        wait_until(reason_is_named, f"the error never names the reason: {why}", LIMIT)


# --- the doctor


def examined(url: str) -> dict[str, Finding]:
    with leasehold.connect(url) as client:
        return {finding.check: finding for finding in client.examine()}


def test_the_doctor_sees_one_server_alone_that_is_open_to_all(zookeeper_server: ZooKeeperServer) -> None:
    found = examined(zookeeper_server.url("/examined"))
    assert found["version"].level is Level.OK
    assert "3." in found["version"].found
    assert found["ensemble"].level is Level.WARNING
    assert found["rights"].level is Level.WARNING
    assert found["session timeout"].level is Level.OK
    assert "sessions of 0.2 to 36000 s" in found["session timeout"].found
    assert "any number" in found["connections"].found
    assert found["latency"].found.endswith("ms to the leader and back")
    assert "encryption" not in found


def test_the_doctor_sees_an_ensemble_and_what_the_url_leaves_out(zookeeper_ensemble: Ensemble) -> None:
    found = examined(zookeeper_ensemble.url())
    assert found["quorum"].level is Level.OK
    assert "3 voters, 1 of which may fail" in found["quorum"].found
    assert "ensemble" not in found
    assert "hosts" not in found
    part = examined(zookeeper_ensemble.servers[0].url())
    assert part["hosts"].level is Level.WARNING


def test_the_doctor_sees_a_server_that_is_down_and_settings_that_are_too_tight() -> None:
    server = ZooKeeperServer(
        settings={"maxSessionTimeout": 4000, "maxClientCnxns": 10, "4lw.commands.whitelist": "srvr,conf"}
    )
    with server:
        url = f"zk://alice:secret@127.0.0.1:1,{server.address}/x"
        found = examined(url)
        assert found["session timeout"].level is Level.WARNING
        assert "maxSessionTimeout=45000" in found["session timeout"].advice
        assert found["connections"].level is Level.WARNING
        assert found["encryption"].level is Level.WARNING
        assert found["rights"].level is Level.OK
        with leasehold.connect(url, ttl=30) as client:
            lease = client.lock("x").acquire()
            assert 1.5 < lease.remaining() < 2.7, "the ensemble gives no more, and the lease knows it"
            lease.release()
            findings = client.examine()
        assert any("does not answer" in finding.found for finding in findings)
        assert "secret" not in "".join(map(str, findings))


@pytest.fixture
def own_server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def test_a_lock_of_kazoo_on_the_same_path_is_refused_and_seen_by_the_doctor(own_server: ZooKeeperServer) -> None:
    """Neither recipe sees the claims of the other; ours refuses, and leaves nothing in the way.

    On a server of its own: other tests take the right to create nodes at the top.
    """
    url, parent = own_server.url("/both"), "/both/locks/leasehold%3Ax"
    assert examined(url)["nodes"].level is Level.OK
    with looking_at(own_server) as other, leasehold.connect(url) as client, other.Lock(parent):
        for attempt in (client.lock("x").try_acquire, client.lock("x").acquire):
            with pytest.raises(leasehold.BackendRejected, match="only leasehold's own"):
                attempt()
        assert len(other.get_children(parent)) == 1, "a refused claim is left in the way of the others"
        client.lock("y").acquire().release()
        found = examined(url)["nodes"]
        assert found.level is Level.PROBLEM
        assert f"{parent}/{other.get_children(parent)[0]}" in found.found


def test_a_ttl_longer_than_the_ensemble_allows_is_renewed_at_its_own_pace() -> None:
    """Not in a loop: what the ensemble gives is all there is."""
    server = ZooKeeperServer(settings={"maxSessionTimeout": 3000})
    with server, leasehold.connect(server.url(), ttl=30) as client:
        renewals: list[object] = []
        client.on_event(lambda event: renewals.append(event) if type(event).__name__ == "Renewed" else None)
        with client.lock("x").hold() as lease:
            assert not lease.lost.wait(4)
            lease.check()
        assert 4 <= len(renewals) <= 15
