"""What the doctors of Redis and of Redlock make of what they have read; no servers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from leasehold._backends.redis import doctor
from leasehold._backends.redis.doctor_rights import needed, rights
from leasehold._backends.redis.wire import Node as Address
from leasehold._backends.redlock import doctor as redlock
from leasehold._backends.redlock.options import Options
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.findings import Finding, Level

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
MB = 1 << 20

INFO = {
    "redis_version": "7.2.4", "redis_mode": "standalone", "role": "master", "used_memory": str(10 * MB),
    "maxmemory": "0", "connected_clients": "10", "maxclients": "100", "cluster_enabled": "0", "run_id": "abc",
}  # fmt: skip
SETTINGS = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}
LOG = "log, appendfsync everysec: a power cut forgets the last moments, a killed server nothing"


def judged(
    info: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
    **others: Any,
) -> dict[str, Finding]:
    facts = doctor._Facts(info={**INFO, **(info or {})}, settings={**SETTINGS, **(settings or {})}, **others)
    facts.info = {name: value for name, value in facts.info.items() if value}
    findings = [finding for check in (*doctor.CHECKS, doctor._refused) for finding in check(facts)]
    return {finding.check: finding for finding in findings}


REPLICA = "ip=10.0.0.2,port=6379,state=online,offset=1,lag={}"


@pytest.mark.parametrize(
    ("info", "settings", "check", "level", "words"),
    [
        ({}, {}, "server", OK, "Redis 7.2.4, standalone"),
        ({"redis_version": "6.2.0"}, {}, "server", OK, "Redis 6.2.0"),
        ({"redis_version": "6.1.9"}, {}, "server", PROBLEM, "Redis 6.1.9"),
        ({"redis_version": "10.0.1"}, {}, "server", OK, "Redis 10.0.1"),
        ({"server_name": "valkey", "valkey_version": "8.1.0"}, {}, "server", OK, "Valkey 8.1.0, standalone"),
        ({"redis_mode": "cluster"}, {}, "server", OK, "Redis 7.2.4, cluster"),
        ({"redis_mode": "sentinel"}, {}, "server", PROBLEM, "it keeps no data"),
        ({}, {}, "role", OK, "primary"),
        ({"role": "slave", "master_host": "h", "master_port": "7"}, {}, "role", PROBLEM, "replica of h:7"),
        ({}, {}, "replicas", OK, "no replica"),
        ({"slave0": REPLICA.format(10)}, {}, "replicas", OK, "1 connected, 0 of them late"),
        ({"slave0": REPLICA.format(11)}, {}, "replicas", WARNING, "1 connected, 1 of them late"),
        (
            {"slave0": REPLICA.format(0), "slave1": REPLICA.format(0).replace("online", "wait_bgsave")},
            {},
            "replicas",
            WARNING,
            "2 connected, 1 of them late",
        ),
        (
            {"slave9": REPLICA.format(99), "slave10": REPLICA.format(11), "slave11": REPLICA.format(3)},
            {},
            "replicas",
            WARNING,
            "3 connected, 2 of them late",
        ),
        ({"slave_read_only": "1", "slave0": REPLICA.format(0)}, {}, "replicas", OK, "1 connected"),
        (
            {"slave0": REPLICA.format(0)},
            {"min-replicas-to-write": "0"},
            "min-replicas-to-write",
            WARNING,
            "without any",
        ),
        (
            {"slave0": REPLICA.format(0)},
            {"min-replicas-to-write": "1", "min-replicas-max-lag": "10"},
            "min-replicas-to-write",
            OK,
            "1, seen within 10 s",
        ),
        (
            {"slave0": REPLICA.format(0)},
            {"min-replicas-to-write": "1", "min-replicas-max-lag": "0"},
            "min-replicas-to-write",
            WARNING,
            "without any replica",
        ),
        ({}, {}, "eviction", OK, "noeviction"),
        ({}, {"maxmemory-policy": "allkeys-lru"}, "eviction", WARNING, "without effect as long as maxmemory is 0"),
        ({"maxmemory": "1"}, {"maxmemory-policy": "allkeys-lru"}, "eviction", PROBLEM, "allkeys-lru"),
        ({"maxmemory_policy": "volatile-lru"}, {"maxmemory-policy": ""}, "eviction", WARNING, "volatile-lru"),
        ({}, {}, "memory", OK, "10.0 MB used, no limit set"),
        ({"maxmemory": str(20 * MB)}, {}, "memory", OK, "10.0 MB of 20.0 MB used"),
        ({"used_memory": "899", "maxmemory": "1000"}, {}, "memory", OK, "used"),
        ({"used_memory": "900", "maxmemory": "1000"}, {}, "memory", WARNING, "used"),
        ({"used_memory": "999", "maxmemory": "1000"}, {}, "memory", WARNING, "used"),
        ({"used_memory": "1000", "maxmemory": "1000"}, {}, "memory", PROBLEM, "used"),
        ({}, {}, "connections", OK, "10 of 100 in use"),
        ({"connected_clients": "89"}, {}, "connections", OK, "89 of 100 in use"),
        ({"connected_clients": "90"}, {}, "connections", WARNING, "90 of 100 in use"),
        ({}, {}, "persistence", OK, LOG),
        ({}, {"appendfsync": "no"}, "persistence", OK, "log, appendfsync no: a power cut"),
        ({}, {"appendfsync": "always"}, "persistence", OK, "every grant is on disk before it is confirmed"),
        ({}, {"appendonly": "no", "save": "60 1"}, "persistence", WARNING, "snapshots only (60 1)"),
        (
            {},
            {"appendonly": "no", "appendfsync": "always"},
            "persistence",
            WARNING,
            "none: it is empty after a restart",
        ),
        ({"loading": "1"}, {}, "loading", PROBLEM, "still reading its data"),
        ({"aof_last_write_status": "err"}, {}, "disk", PROBLEM, "its last write to disk failed"),
        ({"rdb_last_bgsave_status": "err"}, {}, "disk", PROBLEM, "its last write to disk failed"),
    ],
)
def test_the_doctor_of_redis_judges_each_fact(
    info: dict[str, str], settings: dict[str, str], check: str, level: Level, words: str
) -> None:
    finding = judged(info, settings)[check]
    assert (finding.level, words in finding.found) == (level, True), finding
    assert bool(finding.advice) is (level is not OK)


@pytest.mark.parametrize(
    ("info", "check"),
    [
        ({"redis_version": ""}, "server"),
        ({"role": ""}, "role"),
        ({"role": ""}, "replicas"),
        ({"role": "slave"}, "replicas"),
        ({"slave0": REPLICA.format(0)}, "min-replicas-to-write"),
        ({"used_memory": ""}, "memory"),
        ({"maxclients": ""}, "connections"),
        ({"loading": "0"}, "loading"),
        ({"aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok"}, "disk"),
        ({}, "cluster"),
        ({}, "round trip"),
        ({}, "server clock"),
    ],
)
def test_the_doctor_of_redis_says_nothing_of_what_was_not_reported(info: dict[str, str], check: str) -> None:
    assert check not in judged(info)


@pytest.mark.parametrize(("enabled", "level"), [("1", OK), ("0", WARNING)])
def test_a_server_that_hides_its_settings_is_judged_by_what_it_reports_of_its_log(enabled: str, level: Level) -> None:
    facts = doctor._Facts(info={"aof_enabled": enabled})
    (finding,) = doctor._persistence(facts)
    assert finding.level is level
    assert list(doctor._persistence(doctor._Facts())) == []
    assert list(doctor._eviction(doctor._Facts())) == []


@pytest.mark.parametrize(
    ("pings", "level", "words"),
    [
        ([0.001] * 4 + [0.049], OK, "1.00 ms for a PING (median of 5, worst 49.00 ms)"),
        ([0.05] + [0.001] * 4, WARNING, "1.00 ms for a PING (median of 5, worst 50.00 ms)"),
        ([0.999] * 5, WARNING, "999.00 ms"),
        ([0.001, 0.002, 1.25, 1.5, 1.0], PROBLEM, "1000.00 ms for a PING (median of 5, worst 1500.00 ms)"),
        ([0.001, 0.003, 0.002, 2.0, 2.5], WARNING, "3.00 ms for a PING (median of 5, worst 2500.00 ms)"),
        ([0.002, 0.004, 0.003], OK, "3.00 ms for a PING (median of 3, worst 4.00 ms)"),
    ],
)
def test_the_worst_round_trip_is_a_warning_and_the_usual_one_a_problem(
    pings: list[float], level: Level, words: str
) -> None:
    finding = judged(pings=pings)["round trip"]
    assert (finding.level, words in finding.found) == (level, True), finding.found


@pytest.mark.parametrize(
    ("error", "level", "words"),
    [
        (0.5, OK, "0.500 s ahead of this host"),
        (-0.999, OK, "0.999 s behind this host"),
        (1.0, WARNING, "1.000 s ahead of"),
        (-1.0, WARNING, "1.000 s behind"),
        (3599.0, WARNING, "ahead"),
        (3600.0, PROBLEM, "ahead"),
        (-3600.0, PROBLEM, "behind"),
    ],
)
def test_a_clock_that_is_off_is_judged_by_how_far(error: float, level: Level, words: str) -> None:
    finding = judged(clock_error=error)["server clock"]
    assert (finding.level, words in finding.found) == (level, True)


@pytest.mark.parametrize(
    ("cluster", "level", "found"),
    [
        ({"cluster_state": "ok", "cluster_slots_ok": "16384"}, OK, "state ok, 16384 of"),
        ({"cluster_state": "fail", "cluster_slots_ok": "16384"}, PROBLEM, "state fail, 16384 of"),
        ({"cluster_state": "ok", "cluster_slots_ok": "16383"}, PROBLEM, "state ok, 16383 of"),
        ({"cluster_state": "ok"}, PROBLEM, "state ok, ? of"),
    ],
)
def test_a_cluster_is_well_when_it_says_so_and_serves_every_slot(
    cluster: dict[str, str], level: Level, found: str
) -> None:
    finding = judged(cluster={"cluster_slots_assigned": "7", **cluster})["cluster"]
    assert (finding.level, finding.found) == (level, f"{found} 16384 slots served")


def test_a_replica_names_its_primary_in_the_url_to_use() -> None:
    finding = judged({"role": "slave", "master_host": "db-4", "master_port": "7001"})["role"]
    assert (finding.found, "use redis://db-4:7001, or" in finding.advice) == ("replica of db-4:7001", True)


@pytest.mark.parametrize(
    ("command", "level", "right"),
    [
        ("PING", PROBLEM, "+ping"),
        ("TIME", PROBLEM, "+time"),
        ("INFO", WARNING, "+info"),
        ("CONFIG", WARNING, "+config|get"),
        ("CLUSTER", WARNING, "+cluster|info"),
    ],
)
def test_a_denied_command_is_judged_by_who_needs_it(command: str, level: Level, right: str) -> None:
    finding = judged(refused={command: "NOPERM"})[f"right to use {command}"]
    assert (finding.level, right in finding.advice) == (level, True)
    assert ("the store itself uses this" in finding.why) is (level is PROBLEM)


# --- what is asked


class Server:
    """Answers in a script: a value, or an error that is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[Any, ...]] = []

    async def __call__(self, *command: Any) -> Any:
        self.asked.append(command)
        answer = self.answers.get(command[0])
        answer = answer(command) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


def lines(facts: dict[str, str]) -> bytes:
    return "".join(f"{name}:{value}\r\n" for name, value in {"# a section": "x", **facts}.items()).encode()


def healthy(**changes: Any) -> Server:
    seconds, _, part = f"{time.time():.6f}".partition(".")
    return Server(**{
        "INFO": lines(INFO),
        "CONFIG": lambda command: [command[2].encode(), SETTINGS.get(command[2], "").encode()],
        "TIME": [seconds.encode(), part.encode()],
        "PING": b"PONG",
        "ACL": lambda command: b"worker" if command[1] == "WHOAMI" else b"OK",
        "EVAL": 1,
        **changes,
    })  # fmt: skip


def examined(server: Server, prefix: str = "leasehold:") -> dict[str, Finding]:
    return {finding.check: finding for finding in run(doctor.examine(server, prefix))}


def test_the_doctor_of_redis_asks_for_all_that_it_judges() -> None:
    server = healthy()
    found = examined(server)
    assert {finding.level for finding in found.values()} == {OK}
    assert {"server", "role", "eviction", "persistence", "round trip", "server clock", "rights"} <= set(found)
    settings = [command[2] for command in server.asked if command[:2] == ("CONFIG", "GET")]
    assert settings == list(doctor.SETTINGS)
    assert not [command for command in server.asked if command[0] == "CLUSTER"], "it is no member of a Cluster"
    assert "median of 5" in found["round trip"].found


def test_the_members_of_a_cluster_are_asked_about_it() -> None:
    member = lines({**INFO, "cluster_enabled": "1"})
    server = healthy(INFO=member, CLUSTER=lines({"cluster_state": "fail"}))
    found = examined(server)
    assert found["cluster"].level is PROBLEM
    assert ("ACL", "DRYRUN", "worker", "SSUBSCRIBE", "leasehold:{doctor}:p:doctor") in server.asked


@pytest.mark.parametrize("command", ["INFO", "CONFIG", "TIME", "PING"])
def test_a_denied_command_does_not_end_the_examination(command: str) -> None:
    found = examined(healthy(**{command: BackendRejected("NOPERM no")}))
    assert found[f"right to use {command}"].found == "NOPERM no"
    assert "rights" in found


def test_the_rights_are_asked_for_the_prefix_of_the_store() -> None:
    server = healthy()
    examined(server, "app:")
    keys = {command[4] for command in server.asked if command[:2] == ("ACL", "DRYRUN") and command[3] == "GET"}
    assert keys == {"app:{doctor}"}


@pytest.mark.parametrize(
    ("acl", "level", "words"),
    [
        (b"OK", OK, "account 'worker' may use all"),
        ("OK", OK, "account 'worker' may use all"),
        (b"no permissions", PROBLEM, "account 'worker' may not use EVALSHA, EVAL"),
        (BackendRejected("ERR Command 'X' not found"), OK, "may use all"),
        (BackendRejected("NOPERM"), OK, "may not use ACL DRYRUN"),
    ],
)
def test_rights_are_judged_by_what_a_dry_run_answers(acl: Any, level: Level, words: str) -> None:
    server = healthy(ACL=lambda command: "worker" if command[1] == "WHOAMI" else acl)
    scripts, finding = run(rights(server, "leasehold:", sharded=False))
    assert scripts.level is OK
    assert (finding.level, words in finding.found) == (level, True), finding


def test_command_that_the_server_has_not_does_not_hide_the_denied_ones_after_it() -> None:
    def answer(command: tuple[str, ...]) -> str:
        if command[1] == "WHOAMI":
            return "worker"
        if command[3] == "EVALSHA":
            raise BackendRejected("ERR Command 'EVALSHA' not found")
        return "denied" if command[3] == "ZSCORE" else "OK"

    _, finding = run(rights(healthy(ACL=answer), "leasehold:", sharded=False))
    assert (finding.level, finding.found) == (PROBLEM, "account 'worker' may not use ZSCORE")


def test_only_the_denied_commands_are_named_with_the_order_that_allows_them() -> None:
    def answer(command: tuple[str, ...]) -> bytes:
        if command[1] == "WHOAMI":
            return b"worker"
        return b"denied" if command[3] in ("PUBLISH", "ZADD", "CLUSTER") else b"OK"

    (_, finding) = run(rights(healthy(ACL=answer), "leasehold:", sharded=False))
    assert finding.found == "account 'worker' may not use ZADD, PUBLISH"
    assert finding.advice.startswith("ACL SETUSER worker +zadd +publish;")
    (_, finding) = run(rights(healthy(ACL=answer), "leasehold:", sharded=True))
    assert "+cluster|slots" in finding.advice


def test_an_account_that_may_not_ask_for_its_name_is_told_of_scripts_all_the_same() -> None:
    server = healthy(ACL=BackendRejected("NOPERM"), EVAL=BackendRejected("NOPERM eval"))
    scripts, finding = run(rights(server, "leasehold:", sharded=False))
    assert scripts.level is PROBLEM
    assert "ACL SETUSER <account> +eval" in scripts.advice
    assert (finding.level, "ACL WHOAMI" in finding.found) == (OK, True)


def test_a_cluster_needs_the_rights_for_its_own_messages() -> None:
    plain = {command[0] for command in needed("a:", sharded=False)}
    sharded = {command[0] for command in needed("a:", sharded=True)}
    assert plain - sharded == {"PUBLISH", "SUBSCRIBE"}
    assert sharded - plain == {"SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE", "CLUSTER", "ASKING"}


# --- Redlock


class Node:
    """A node whose connection takes what was packed apart again."""

    def __init__(self, number: int, server: Server | None = None, host: str = "") -> None:
        self.address = Address(host or f"10.0.0.{number}", 6379)
        self.failure: Exception | None = None
        self.wire = self
        self._server = server or healthy()

    def __str__(self) -> str:
        return str(self.address)

    async def exchange(self, payload: bytes, count: int) -> list[Any]:
        assert count == 1
        try:
            return [await self._server(*[word.decode() for word in payload.split(b"\r\n")[2::2]])]
        except BackendRejected as error:
            return [error]


class Several:
    """Nodes of a store."""

    def __init__(self, *nodes: Node) -> None:
        self.all = nodes

    def __len__(self) -> int:
        return len(self.all)


@pytest.mark.parametrize(
    ("count", "level", "words"),
    [
        (1, WARNING, "1 nodes: 1 votes are needed, 0 may be down"),
        (2, WARNING, "2 votes are needed, 0 may be down"),
        (3, OK, "3 nodes: 2 votes are needed, 1 may be down"),
        (4, WARNING, "3 votes are needed, 1 may be down"),
        (5, OK, "3 votes are needed, 2 may be down"),
    ],
)
def test_a_number_of_nodes_that_brings_nothing_is_a_warning(count: int, level: Level, words: str) -> None:
    several: Any = Several(*[Node(number) for number in range(count)])
    (finding,) = redlock._number(several)
    assert (finding.level, words in finding.found) == (level, True)
    assert ("redis://" in finding.advice) is (count == 1)


@pytest.mark.parametrize(
    ("hosts", "level"),
    [
        (["127.0.0.1", "127.0.0.2", "127.0.0.3"], OK),
        (["127.0.0.1"] * 2 + ["127.0.0.2", "127.0.0.3", "127.0.0.4"], WARNING),
        (["127.0.0.1"] * 3 + ["127.0.0.3", "127.0.0.4"], PROBLEM),
        (["127.0.0.1", "127.0.0.1", "127.0.0.2"], PROBLEM),
    ],
)
def test_nodes_on_one_machine_are_a_problem_when_it_takes_a_majority_with_it(hosts: list[str], level: Level) -> None:
    several: Any = Several(*[Node(number, host=host) for number, host in enumerate(hosts)])
    (finding,) = redlock._independence(several)
    assert finding.level is level
    assert ("on one machine" in finding.found) is (level is not OK)


@pytest.mark.parametrize(
    ("apart", "level"), [(0.49, OK), (-0.49, OK), (0.5, WARNING), (-0.5, WARNING), (1.9, WARNING), (2.0, PROBLEM)]
)
def test_a_clock_is_compared_with_the_median_of_the_nodes(apart: float, level: Level) -> None:
    found = {finding.check: finding for finding in redlock._clocks({"a": 64.0, "b": 64.0 + apart, "c": 64.0})}
    assert found["clock of b"].level is level
    assert ("ahead of" if apart >= 0 else "behind") in found["clock of b"].found
    assert found["clock of a"].level is found["clock of c"].level is OK
    assert list(redlock._clocks({})) == []


@pytest.mark.parametrize(("usual", "level"), [(0.049, OK), (0.05, WARNING), (0.099, WARNING), (0.1, PROBLEM)])
def test_a_node_that_usually_answers_late_is_found_before_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch, usual: float, level: Level
) -> None:
    """It is given up after a tenth of a second here."""
    moments = iter([0.0, 9.0, 0.0, usual, 0.0, usual, 0.0, usual, 0.0, 0.0])
    monkeypatch.setattr("leasehold._backends.redlock.doctor.time.perf_counter", lambda: next(moments))
    (finding,) = run(redlock._round_trip(healthy(), Options(answer_timeout=0.1)))
    assert finding.level is level, finding
    if level is not OK:
        assert f"?answer_timeout={max(usual * 4, 0.1):.1f} to the URL" in finding.advice


@pytest.mark.parametrize(("count", "level"), [("0", OK), ("1", WARNING)])
def test_a_replica_of_a_node_is_a_warning(count: str, level: Level) -> None:
    (finding,) = run(redlock._replicas(Server(INFO=lines({"role": "master", "connected_slaves": count}))))
    assert finding.level is level


@pytest.mark.parametrize(
    ("marker", "check", "level", "words"),
    [
        ([None, None, None], "memory of grants", WARNING, "not been used since it started"),
        ([b"other", b"1000", b"30000/3"], "memory of grants", WARNING, "not been used since it started"),
        (
            [b"abc", b"1000", b"60000/3"],
            "settings",
            PROBLEM,
            "max_ttl=60 as one of 3 nodes, and this URL has max_ttl=30",
        ),
        ([b"abc", b"1000", b"30000/5"], "settings", PROBLEM, "as one of 5 nodes"),
        ([b"abc", b"1000", b"30000/3"], "memory of grants", OK, "it votes"),
        ([b"abc", b"66000", b"30000/3"], "memory of grants", OK, "it votes"),
        ([b"abc", b"66100", b"30000/3"], "memory of grants", WARNING, "it sits out for 0.1 s more"),
        ([b"abc", b"100000", b"30000/3"], "memory of grants", WARNING, "it sits out for 34.0 s more"),
    ],
)
def test_what_a_node_remembers_decides_whether_it_votes(
    marker: list[Any], check: str, level: Level, words: str
) -> None:
    server = Server(INFO=lines({"run_id": "abc"}), HMGET=marker, TIME=[b"100", b"0"])
    (finding,) = run(redlock._memory(server, Options(max_ttl=30.0), 3))
    assert (finding.check, finding.level, words in finding.found) == (check, level, True), finding
    assert bool(finding.advice) is (level is not OK)
    if level is WARNING and "used" in words:
        assert "wait 34 s" in finding.advice


def test_a_node_that_is_left_out_is_a_problem_and_the_others_are_looked_at() -> None:
    marked = healthy(HMGET=[b"abc", b"1000", b"30000/3"])
    down = Node(2, marked)
    down.failure = BackendUnavailable("n2 does not answer")
    several: Any = Several(Node(1, marked), down, Node(3, healthy(HMGET=BackendRejected("NOPERM no"))))
    names = [str(each) for each in several.all]
    found = {finding.check: finding for finding in run(redlock.examine(several, Options()))}
    assert found[f"node {names[1]}"].found == "n2 does not answer"
    assert found[f"node {names[1]}"].level is found[f"node {names[2]}"].level is PROBLEM
    assert found[f"server of {names[0]}"].level is OK
    assert found[f"round trip of {names[0]}"].level is OK
    assert found[f"memory of grants of {names[0]}"].level is OK
    assert f"clock of {names[0]}" in found
    assert f"clock of {names[1]}" not in found
    assert f"role of {names[0]}" not in found, "what means something else here is judged here"
    assert "sits out for 34 s after that" in found[f"persistence of {names[0]}"].found
    assert found[f"persistence of {names[0]}"].level is OK
