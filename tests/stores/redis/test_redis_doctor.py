"""What the doctor finds on real Redis and Valkey servers, good and bad ones."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from leasehold._backends.redis import doctor
from leasehold._backends.redis.doctor_rights import needed
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected
from leasehold.findings import Finding, Level
from verification.lab.process import wait_until
from verification.lab.proxy import FaultProxy
from verification.lab.redis import RedisServer
from verification.lab.redis_cluster import RedisCluster
from verification.lab.resp import Connection, ErrorReply
from verification.lab.sentinel import Sentinel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Ask = Callable[..., Awaitable[Any]]

ROOT = Path(__file__).parents[3]
GOOD = ("appendonly yes", "appendfsync always")


def raw(connection: Connection) -> Ask:
    """Answers as they come from the wire."""

    async def ask(*command: str) -> Any:
        try:
            return connection.ask(*command)
        except ErrorReply as error:
            raise BackendRejected(str(error)) from error

    return ask


def parsed(client: Any) -> Ask:
    """Answers as redis-py makes them."""

    async def ask(*command: str) -> Any:
        try:
            return client.execute_command(*command)
        except redis.ResponseError as error:
            raise BackendRejected(str(error)) from error

    return ask


def examine(server: RedisServer, login: tuple[str, str] | None = None) -> dict[str, Finding]:
    with server.connect(login) as connection:
        return by_check(run(doctor.examine(raw(connection))))


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    found = {finding.check: finding for finding in findings}
    assert len(found) == len(findings)
    for finding in findings:
        assert finding.found, finding
        assert finding.why, finding
        assert finding.level is Level.OK or finding.advice, f"{finding.check} names a problem without advice"
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer(settings=GOOD)
    with server:
        yield server


@pytest.fixture
def setting(server: RedisServer) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting of the server for one test."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, server.ask("CONFIG", "GET", name)[1].decode())
        server.configure(name, value)

    yield change
    for name, value in before.items():
        server.configure(name, value)


def test_a_server_that_is_set_up_for_locks_has_nothing_to_be_done(server: RedisServer) -> None:
    found = examine(server)
    assert [finding for finding in found.values() if finding.level is not Level.OK or finding.advice] == []
    assert set(found) == {
        "server", "role", "replicas", "eviction", "memory", "connections", "persistence", "round trip", "server clock",
        "scripts", "rights",
    }  # fmt: skip
    assert "Redis 7" in found["server"].found


def test_valkey_is_called_valkey(valkey_server: RedisServer) -> None:
    assert "Valkey 9" in examine(valkey_server)["server"].found


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
def test_findings_do_not_depend_on_the_shape_of_answers(server: RedisServer, protocol: int, decode: bool) -> None:
    with redis.Redis(port=server.port, protocol=protocol, decode_responses=decode) as client:
        ours = by_check(run(doctor.examine(parsed(client))))
    with server.connect() as connection:
        if protocol == 3:
            connection.ask("HELLO", 3)
        theirs = by_check(run(doctor.examine(raw(connection))))
    changing = {"round trip", "server clock", "memory", "connections"}
    assert {check: finding for check, finding in ours.items() if check not in changing} == {
        check: finding for check, finding in theirs.items() if check not in changing
    }
    assert set(ours) == set(theirs)


def test_a_server_that_evicts_is_a_problem_once_it_has_a_limit(
    server: RedisServer, setting: Callable[[str, str], None]
) -> None:
    setting("maxmemory-policy", "volatile-ttl")
    assert examine(server)["eviction"].level is Level.WARNING
    setting("maxmemory", "100mb")
    found = examine(server)["eviction"]
    assert found.level is Level.PROBLEM
    follow(server, found)
    assert examine(server)["eviction"].level is Level.OK


def test_a_server_that_is_full_or_nearly_so_is_a_finding(
    server: RedisServer, setting: Callable[[str, str], None]
) -> None:
    used = int(server.info("memory")["used_memory"])
    setting("maxmemory", str(round(used * 1.05)))
    assert examine(server)["memory"].level is Level.WARNING
    setting("maxmemory", str(used // 2))
    assert examine(server)["memory"].level is Level.PROBLEM


def test_a_server_with_hardly_a_free_connection_is_a_finding(
    server: RedisServer, setting: Callable[[str, str], None]
) -> None:
    setting("maxclients", "3")
    with server.connect() as one, server.connect() as another:
        assert one.ask("PING") == another.ask("PING")
        assert examine(server)["connections"].level is Level.WARNING


def test_what_a_server_keeps_over_a_restart_is_a_finding(redis_server: RedisServer) -> None:
    found = examine(redis_server)["persistence"]
    assert found.level is Level.WARNING
    assert found.found == "none: it is empty after a restart"
    redis_server.configure("save", "3600 1")
    try:
        assert examine(redis_server)["persistence"].found == "snapshots only (3600 1)"
        follow(redis_server, found)
        assert examine(redis_server)["persistence"].level is Level.OK
    finally:
        redis_server.configure("save", "")
        redis_server.configure("appendonly", "no")


def test_a_disk_that_refuses_is_a_problem() -> None:
    server = RedisServer()
    with server:
        shutil.rmtree(server.folder)
        server.ask("BGSAVE")
        wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot did not fail")
        assert examine(server)["disk"].level is Level.PROBLEM


def follow(server: RedisServer, finding: Finding) -> None:
    """Carry out the advice, word for word."""
    orders = re.findall(r"CONFIG SET (\S+) ([\w.-]+)", finding.advice)
    assert orders, finding.advice
    for name, value in orders:
        server.configure(name, value)


def test_roles_replicas_and_split_brain(monkeypatch: pytest.MonkeyPatch) -> None:
    primary = RedisServer("primary")
    with primary, RedisServer("replica", replica_of=primary) as replica:
        assert isinstance(replica, RedisServer)
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica does not follow")
        wait_until(lambda: "online" in primary.info("replication").get("slave0", ""), "the replica is not in sync")
        role = examine(replica)["role"]
        assert role.level is Level.PROBLEM
        assert f"redis://127.0.0.1:{primary.port}" in role.advice
        found = examine(primary)
        assert found["role"].level is found["replicas"].level is Level.OK
        assert found["min-replicas-to-write"].level is Level.WARNING
        follow(primary, found["min-replicas-to-write"])
        assert examine(primary)["min-replicas-to-write"].level is Level.OK
        monkeypatch.setattr(doctor, "LAGGING", 1)
        replica.pause()
        try:
            wait_until(lambda: examine(primary)["replicas"].level is Level.WARNING, "the pause is not seen")
        finally:
            replica.resume()


def test_a_cluster_is_fine_until_a_part_of_it_is_gone() -> None:
    with RedisCluster() as cluster:
        first, second, _ = cluster.masters
        found = examine(first)
        assert found["cluster"].level is Level.OK
        assert "cluster" in found["server"].found
        second.kill()
        wait_until(lambda: examine(first)["cluster"].level is Level.PROBLEM, "the missing node is not seen")


def test_a_sentinel_is_not_a_store(redis_server: RedisServer) -> None:
    sentinel = Sentinel(redis_server)
    with sentinel:
        found = examine(sentinel)["server"]
        assert found.level is Level.PROBLEM
        assert "redis+sentinel://" in found.advice


def test_a_slow_server_is_a_finding(server: RedisServer) -> None:
    with FaultProxy(server.address) as proxy, Connection(proxy.address) as connection:
        proxy.delay(to_client=0.06)
        found = by_check(run(doctor.examine(raw(connection))))
        assert found["round trip"].level is Level.WARNING


@pytest.mark.parametrize(("shift", "level"), [(2.5, Level.WARNING), (-2.5, Level.WARNING), (7200, Level.PROBLEM)])
def test_a_clock_that_differs_is_a_finding(server: RedisServer, shift: float, level: Level) -> None:
    with server.connect() as connection:
        plain = raw(connection)

        async def ask(*command: str) -> Any:
            answer = await plain(*command)
            return [str(round(time.time() + shift)), answer[1]] if command == ("TIME",) else answer

        found = by_check(run(doctor.examine(ask)))
    assert found["server clock"].level is level
    assert ("ahead of" in found["server clock"].found) == (shift > 0)


def test_an_old_server_is_a_problem(server: RedisServer) -> None:
    with server.connect() as connection:
        plain = raw(connection)

        async def ask(*command: str) -> Any:
            answer = await plain(*command)
            return re.sub(rb"redis_version:\S+", b"redis_version:6.0.16", answer) if command == ("INFO",) else answer

        found = by_check(run(doctor.examine(ask)))
    assert found["server"].level is Level.PROBLEM


# --- rights


def test_what_an_account_may_not_ask_is_a_finding_and_not_an_error(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "poor", "on", ">word", "~*", "+ping")
    found = examine(server, ("poor", "word"))
    for command, right in (("INFO", "+info"), ("CONFIG", "+config|get"), ("TIME", "+time")):
        finding = found[f"right to use {command}"]
        assert "NOPERM" in finding.found or "permission" in finding.found
        assert right in finding.advice
        server.ask("ACL", "SETUSER", "poor", right)
    assert found["right to use TIME"].level is Level.PROBLEM
    assert found["right to use CONFIG"].level is Level.WARNING
    again = examine(server, ("poor", "word"))
    assert [check for check in again if check.startswith("right to use")] == []


def test_an_account_without_scripts_is_a_problem(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "silent", "on", ">word", "~*", "+@all", "-@scripting")
    found = examine(server, ("silent", "word"))
    assert found["scripts"].level is Level.PROBLEM
    assert "ACL SETUSER silent +eval +evalsha" in found["scripts"].advice
    assert found["rights"].level is Level.PROBLEM
    assert "EVALSHA" in found["rights"].found


def test_an_account_without_the_right_to_check_rights_is_a_finding_without_alarm(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "modest", "on", ">word", "~*", "&*", "+@all", "-acl")
    assert examine(server, ("modest", "word"))["rights"].level is Level.OK
    server.ask("ACL", "SETUSER", "modest", "+acl|whoami")
    assert examine(server, ("modest", "word"))["rights"].level is Level.OK


def test_the_doctor_checks_the_documented_rights_and_all_that_the_scripts_call() -> None:
    asked = {command.lower() for command, *_ in needed("leasehold:", sharded=False)}
    page = (ROOT / "docs/how-to/redis-acl.md").read_text()
    documented = set(re.findall(r"\+(\w+)", page.split("```")[1]))
    assert asked == documented
    scripts = (ROOT / "src/leasehold/_backends/redis/scripts").glob("*.lua")
    called = {name.lower() for script in scripts for name in re.findall(r"redis\.p?call\('(\w+)'", script.read_text())}
    assert len(called) > 10
    assert called - asked == {"info"}  # in strict mode, as the page says below its first example


def test_the_doctor_changes_nothing(server: RedisServer) -> None:
    before = server.ask("CONFIG", "GET", "*"), server.ask("DBSIZE")
    examine(server)
    assert (server.ask("CONFIG", "GET", "*"), server.ask("DBSIZE")) == before
