"""What the doctors of PostgreSQL and ZooKeeper make of what they have read; no servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from leasehold._backends.postgres import doctor as postgres
from leasehold._backends.zookeeper import doctor as zookeeper
from leasehold._backends.zookeeper.doctor import Server
from leasehold._backends.zookeeper.options import Options
from leasehold.findings import Level
from leasehold.store_url import StoreURL

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM

GOOD = {
    "number": "150004", "version": "15.4", "standby": "f", "read_only": "off", "synchronous": "on", "fsync": "on",
    "standbys": "", "replicas": "0", "lag": "", "behind": "", "statement_timeout": "0", "transaction_timeout": "",
    "lock_timeout": "0", "idle_timeout": "0", "isolation": "read committed", "connections": "9", "most": "97",
    "moment": "1000.2", "role": "app", "usage": "t", "made": "t", "rights": "t", "may_create": "f", "dead": "5",
    "oldest": "1",
}  # fmt: skip


def facts(changes: dict[str, str] | None = None, *, pooled: bool = False) -> postgres.Facts:
    row = {**GOOD, **(changes or {})}
    names, values = list(row), [value.encode() for value in row.values()]
    result: Any = SimpleNamespace(
        nfields=len(row), fname=lambda column: names[column].encode(), get_value=lambda _, column: values[column]
    )
    return postgres.Facts(result, pooled=pooled, sent=999.0, received=1001.0)


def judged(found: postgres.Facts, *, has_listen_url: bool = False) -> dict[str, Any]:
    parts = [
        *postgres._server(found), *postgres._keeping(found), *postgres._way(found, has_listen_url=has_listen_url),
        *postgres._limits(found), *postgres._dead_rows(found), *postgres._rights(found, "leasehold"),
    ]  # fmt: skip
    return {finding.check: finding for finding in parts}


@pytest.mark.parametrize(
    ("changes", "check", "level", "words"),
    [
        ({}, "PostgreSQL", OK, "15.4"),
        ({"number": "130000"}, "PostgreSQL", OK, ""),
        ({"number": "120017", "version": "12.17"}, "PostgreSQL", WARNING, "12.17"),
        ({}, "role", OK, "primary"),
        ({"standby": "t", "behind": "2.04"}, "role", PROBLEM, "a read-only standby, 2.0 s behind"),
        ({"read_only": "on"}, "role", PROBLEM, "read-only by default"),
        ({"fsync": "off"}, "durability", PROBLEM, "fsync is off"),
        ({"synchronous": "off"}, "durability", WARNING, "synchronous_commit is off"),
        ({"synchronous": "local"}, "durability", OK, "synchronous_commit is local"),
        ({"replicas": "2", "lag": "0.5"}, "failover", WARNING, "2 standbys seen, at most 0.500 s behind, none"),
        ({"replicas": "1", "lag": "0.25"}, "failover", WARNING, "1 standbys seen, at most 0.250 s behind, none"),
        ({"replicas": "1", "standbys": "*"}, "failover", OK, "1 standbys seen, synchronous"),
        ({"replicas": "2", "standbys": "*"}, "failover", OK, "2 standbys seen, synchronous"),
        ({}, "failover", OK, "0 standbys seen"),
        ({}, "pooler", OK, "none seen"),
        ({"moment": "1001.0"}, "server clock", OK, "+1.000 s"),
        ({"moment": "998.5"}, "server clock", WARNING, "-1.500 s"),
        ({"moment": "1001.5"}, "server clock", WARNING, "+1.500 s"),
        ({"lock_timeout": "999"}, "timeouts", WARNING, "lock_timeout 999 ms"),
        (
            {"statement_timeout": "5", "lock_timeout": "7"},
            "timeouts",
            WARNING,
            "statement_timeout 5 ms, lock_timeout 7 ms",
        ),
        ({"transaction_timeout": "5"}, "timeouts", WARNING, "transaction_timeout 5 ms"),
        ({"statement_timeout": "1000"}, "timeouts", OK, "none is too short"),
        ({"isolation": "serializable"}, "isolation", OK, "serializable"),
        ({"connections": "88"}, "connections", WARNING, "88 of 97 in use"),
        ({"connections": "87"}, "connections", OK, "87 of 97 in use"),
        ({"dead": "10000"}, "dead rows", OK, "10000; "),
        ({"dead": "10001"}, "dead rows", WARNING, ""),
        ({"oldest": "301"}, "dead rows", WARNING, "open for 301 s"),
        ({}, "rights", OK, "app may use the tables in schema leasehold"),
        ({"usage": "f"}, "rights", PROBLEM, "may not use"),
        ({"rights": "f"}, "rights", PROBLEM, "may not use"),
        ({"made": "f", "may_create": "t"}, "rights", OK, "app may make them"),
        ({"made": "f"}, "rights", PROBLEM, "may not make them"),
    ],
)
def test_the_doctor_of_postgresql_judges_each_fact(
    changes: dict[str, str], check: str, level: Level, words: str
) -> None:
    finding = judged(facts(changes))[check]
    assert (finding.level, words in finding.found) == (level, True), finding
    assert bool(finding.advice) is (level is not OK)


def test_behind_a_pooler_notifications_and_isolation_need_attention() -> None:
    found = judged(facts({"isolation": "serializable"}, pooled=True))
    assert (found["pooler"].level, found["isolation"].level) == (WARNING, WARNING)
    assert "listen_url" in found["pooler"].advice
    assert judged(facts(pooled=True), has_listen_url=True)["pooler"].level is OK


# --- ZooKeeper

FAST = Server("h:2181", "Zookeeper version: 3.8.0-5a02a05\nMode: follower\n", "maxClientCnxns=60\n")


def zookeeper_facts(url: str = "zk://u:p@h1,h2,h3", **changes: Any) -> dict[str, Any]:
    options = Options.from_url(StoreURL.parse(url))
    usual: dict[str, Any] = {"servers": [FAST], "latency": 0.001, "shortest": 4.0, "longest": 60.0, "acl": None}
    found = zookeeper.findings(zookeeper.Facts(options, **{**usual, **changes}))
    return {finding.check: finding for finding in found}


def config(voters: int, observers: int = 0) -> tuple[bytes, None]:
    lines = [f"server.{number}=h{number}:2888:3888:participant;2181" for number in range(voters)]
    lines += [f"server.9{number}=o{number}:2888:3888:observer;2181" for number in range(observers)]
    return "\n".join([*lines, "version=0"]).encode(), None


@pytest.mark.parametrize(
    ("changes", "check", "level", "words"),
    [
        ({}, "version", OK, "ZooKeeper 3.8.0"),
        ({"servers": [Server("h", "Zookeeper version: 3.5.2-1\nMode: leader")]}, "version", PROBLEM, "3.5.2"),
        ({"servers": [Server("h", "Zookeeper version: 3.5.3-1\nMode: leader")]}, "version", OK, "3.5.3"),
        ({"servers": [Server("h")]}, "version", OK, "not known"),
        ({}, "server", OK, "h:2181 is follower"),
        ({"servers": [Server("h", failure="refused")]}, "server", WARNING, "h does not answer: refused"),
        ({"servers": [Server("h", "Mode: standalone")]}, "ensemble", WARNING, "one server alone"),
        ({"configuration": config(3)}, "quorum", OK, "3 voters, 1 of which may fail"),
        ({"configuration": config(3, 2)}, "quorum", OK, "3 voters"),
        ({"configuration": config(4)}, "quorum", WARNING, "4 voters"),
        ({"configuration": config(5)}, "hosts", WARNING, "names 3 of 5"),
        ({"longest": 45.0}, "session timeout", OK, "a ttl of 2.67 to 30 s"),
        ({"longest": 40.0}, "session timeout", WARNING, "a ttl of 2.67 to 26.7 s"),
        ({"longest": None}, "session timeout", WARNING, "could not be read"),
        ({}, "connections", OK, "at most 60"),
        ({"servers": [Server("h", "", "maxClientCnxns=19"), FAST]}, "connections", WARNING, "at most 19"),
        ({"servers": [Server("h", "", "maxClientCnxns=20")]}, "connections", OK, "at most 20"),
        ({"servers": [Server("h", "", "maxClientCnxns=0")]}, "connections", OK, "any number"),
        ({"servers": [Server("h")]}, "connections", OK, "not known"),
        ({"latency": 0.049}, "latency", OK, "49.0 ms"),
        ({"latency": 0.05}, "latency", WARNING, "50.0 ms"),
        ({"latency": 1.0}, "latency", PROBLEM, "1000.0 ms"),
        ({}, "rights", OK, "does not exist yet"),
        ({"acl": (OPEN_ACL_UNSAFE, None)}, "rights", WARNING, "/leasehold is open to every client"),
        ({"acl": (READ_ACL_UNSAFE, None)}, "rights", OK, "/leasehold is not open"),
        ({"foreign": ["/a", "/b"]}, "nodes", PROBLEM, "/a and 1 more"),
        ({}, "encryption", WARNING, "plain text"),
        ({"refused": {"the members": "NoAuthError"}}, "rights to read", OK, "the members (NoAuthError)"),
    ],
)
def test_the_doctor_of_zookeeper_judges_each_fact(
    changes: dict[str, Any], check: str, level: Level, words: str
) -> None:
    finding = zookeeper_facts(**changes)[check]
    assert (finding.level, words in finding.found) == (level, True), finding


def test_the_doctor_of_zookeeper_looks_at_the_url_too() -> None:
    assert zookeeper_facts("zks://u:p@h1")["encryption"].level is OK
    assert "encryption" not in zookeeper_facts("zk://h1"), "there is nothing to be read"
    assert zookeeper_facts("zk://h1")["rights"].level is WARNING
    assert "hosts" not in zookeeper_facts(configuration=config(3))
