"""What the doctor of MySQL makes of each fact; and that every fact is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.mysql import doctor
from leasehold._backends.mysql.options import parse
from leasehold._backends.mysql.packets import Result
from leasehold._runtimes.threads import run
from leasehold.findings import Level
from leasehold.store_url import StoreURL

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM

SETTINGS = {
    "version": "10.11.6-MariaDB", "version_comment": "Debian 12", "read_only": "OFF",
    "innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "binlog_format": "MIXED", "tx_isolation": "READ-COMMITTED",
    "time_zone": "SYSTEM", "system_time_zone": "CET", "sql_mode": "STRICT_TRANS_TABLES", "max_connections": "100",
    "wait_timeout": "28800", "max_statement_time": "0.000000",
}  # fmt: skip
STATUS = {"Threads_connected": "90", "Slaves_connected": "0"}
TABLES = {"leasehold_lock": "InnoDB", "leasehold_claim": "InnoDB"}
GRANTS = ["GRANT USAGE ON *.* TO `app`@`%`", "GRANT SELECT ON `db`.`leasehold_lock` TO `app`@`%`"]
SENT, RECEIVED = 999.0, 1001.0


def pairs(values: dict[str, str]) -> Result:
    return Result([(name.encode(), value.encode()) for name, value in values.items()])


def results(changes: dict[str, str], moment: float, grants: list[str]) -> list[Result]:
    """The answer of a server; a change is that of a setting, a status, or a table's engine."""
    parts = [{name: changes.get(name, value) for name, value in part.items()} for part in (SETTINGS, STATUS, TABLES)]
    known = {name for part in parts for name in part}
    parts[0].update({name: value for name, value in changes.items() if name not in known})
    clock = Result([(b"%d" % round(moment * 1_000_000),)])
    return [*map(pairs, parts), clock, Result([(line.encode(),) for line in grants])]


def judged(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str] | None = None,
    *,
    moment: float = 1000.2,
    grants: list[str] = GRANTS,
) -> dict[str, Any]:
    asked: list[bytes] = []
    clocks = [SENT, RECEIVED]

    async def look(text: bytes) -> list[Result]:
        asked.append(text)
        return results(changes or {}, moment, grants)

    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda: clocks.pop(0)))
    executor: Any = SimpleNamespace(look=look)
    found = run(doctor.examine(executor, parse(StoreURL.parse("mysql://h/db?connections=7"))))
    return {finding.check: finding for finding in found}


@pytest.mark.parametrize(
    ("changes", "check", "level", "words"),
    [
        ({}, "server", OK, "10.11.6-MariaDB Debian 12"),
        ({}, "role", OK, "takes writes"),
        ({"read_only": "ON"}, "role", PROBLEM, "read-only"),
        ({"read_only": "1"}, "role", PROBLEM, "read-only"),
        ({"super_read_only": "ON"}, "role", PROBLEM, "read-only"),
        ({"super_read_only": "yes"}, "role", PROBLEM, "read-only"),
        ({}, "writers", OK, "one"),
        ({"wsrep_on": "ON", "wsrep_cluster_size": "3"}, "writers", WARNING, "a Galera cluster of 3 nodes"),
        ({"wsrep_on": "ON"}, "writers", WARNING, "a Galera cluster of some nodes"),
        ({"group_replication_group_name": "g"}, "writers", WARNING, "several primaries"),
        (
            {"group_replication_group_name": "g", "group_replication_single_primary_mode": "ON"},
            "writers",
            OK,
            "one",
        ),
        ({}, "durability", OK, "innodb_flush_log_at_trx_commit is 1"),
        ({"innodb_flush_log_at_trx_commit": "3"}, "durability", OK, "is 3"),
        ({"innodb_flush_log_at_trx_commit": ""}, "durability", OK, "not shown"),
        ({"innodb_flush_log_at_trx_commit": "2"}, "durability", WARNING, "is 2: a crash"),
        ({"innodb_flush_log_at_trx_commit": "0"}, "durability", WARNING, "is 0: a crash"),
        ({}, "failover", OK, "0 replicas seen"),
        ({"Slaves_connected": "2"}, "failover", WARNING, "2 replicas seen, none of them waited for"),
        (
            {"Slaves_connected": "2", "rpl_semi_sync_master_enabled": "ON"},
            "failover",
            OK,
            "2 replicas seen, semi-synchronous",
        ),
        ({"Slaves_connected": "2", "rpl_semi_sync_source_enabled": "ON"}, "failover", OK, "semi-synchronous"),
        ({}, "binary log", OK, "none is written"),
        ({"binlog_format": "STATEMENT"}, "binary log", OK, "none is written"),
        ({"log_bin": "ON"}, "binary log", OK, "MIXED"),
        ({"log_bin": "ON", "binlog_format": "STATEMENT"}, "binary log", WARNING, "STATEMENT"),
        ({}, "server clock", OK, "+0.200 s from this host's; time zone CET"),
        ({"time_zone": "+02:00"}, "server clock", OK, "time zone +02:00"),
        ({}, "isolation", OK, "READ-COMMITTED by default"),
        ({"transaction_isolation": "SERIALIZABLE"}, "isolation", OK, "SERIALIZABLE by default"),
        ({}, "sql_mode", OK, "strict by default"),
        ({"sql_mode": ""}, "sql_mode", OK, "not strict by default"),
        ({}, "connections", OK, "90 of 100 in use; a client takes 7 at most"),
        ({"Threads_connected": "91"}, "connections", WARNING, "91 of 100 in use"),
        ({"max_connections": "0"}, "connections", OK, "90 of 0"),
        ({}, "timeouts", OK, "idle: 28800 s"),
        ({"max_statement_time": "0.500000"}, "timeouts", WARNING, "max_statement_time is 0.500000 s"),
        ({"max_statement_time": "1.000000"}, "timeouts", OK, "statements: 1.000000"),
        ({"max_statement_time": "", "max_execution_time": "700"}, "timeouts", OK, "statements: 700"),
        ({}, "tables", OK, "2 tables, all InnoDB"),
        ({"leasehold_lock": "MyISAM"}, "tables", PROBLEM, "not InnoDB: leasehold_lock"),
        ({"leasehold_lock": "INNODB"}, "tables", OK, "2 tables, all InnoDB"),
        (
            {"leasehold_lock": "MyISAM", "leasehold_claim": "Aria"},
            "tables",
            PROBLEM,
            "not InnoDB: leasehold_claim, leasehold_lock",
        ),
        ({}, "rights", OK, "limited"),
    ],
)
def test_the_doctor_of_mysql_judges_each_fact(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], check: str, level: Level, words: str
) -> None:
    finding = judged(monkeypatch, changes)[check]
    assert (finding.level, words in finding.found) == (level, True), finding
    assert bool(finding.advice) is (level is not OK)


@pytest.mark.parametrize(
    ("moment", "level", "words"),
    [(1001.0, OK, "+1.000 s"), (1001.1, WARNING, "+1.100 s"), (998.5, WARNING, "-1.500 s"), (999.0, OK, "-1.000 s")],
)
def test_the_clock_of_the_server_is_compared_with_the_middle_of_the_request(
    monkeypatch: pytest.MonkeyPatch, moment: float, level: Level, words: str
) -> None:
    finding = judged(monkeypatch, moment=moment)["server clock"]
    assert (finding.level, words in finding.found) == (level, True), finding


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION", WARNING),
        ("GRANT SELECT, SUPER, PROCESS ON *.* TO `app`@`%`", WARNING),
        ("GRANT ALL PRIVILEGES ON `db`.* TO `app`@`%`", OK),
        ("GRANT SELECT, INSERT ON *.* TO `app`@`%`", OK),
    ],
)
def test_an_account_that_may_do_everything_is_found(monkeypatch: pytest.MonkeyPatch, line: str, level: Level) -> None:
    assert judged(monkeypatch, grants=[*GRANTS, line])["rights"].level is level


def test_the_rights_of_two_grants_are_not_read_as_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    grants = ["GRANT ALL PRIVILEGES ON `db`.* TO `app`@`%`", "GRANT USAGE ON *.* TO `app`@`%`"]
    for lines in (grants, grants[::-1]):
        assert judged(monkeypatch, grants=lines)["rights"].level is OK


def test_every_setting_that_is_judged_is_asked_for() -> None:
    """One that is missing from the query reads as if the server had no such setting."""
    for name in (
        "version", "version_comment", "read_only", "super_read_only", "innodb_flush_log_at_trx_commit", "log_bin",
        "binlog_format", "transaction_isolation", "tx_isolation", "time_zone", "system_time_zone", "sql_mode",
        "max_connections", "wait_timeout", "wsrep_on", "group_replication_single_primary_mode",
        "group_replication_group_name", "max_statement_time", "max_execution_time", "rpl_semi_sync_master_enabled",
        "rpl_semi_sync_source_enabled",
    ):  # fmt: skip
        assert f"'{name}'".encode() in doctor._SETTINGS
    for name in ("Threads_connected", "Slaves_connected", "wsrep_cluster_size"):
        assert f"'{name}'".encode() in doctor._STATUS
