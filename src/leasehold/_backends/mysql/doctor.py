"""How well a MySQL or MariaDB is set up for locks. It changes nothing; what this user may not see is left out.

Some settings exist on one of the two products only, so they are read by name, out of those that the server has.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from leasehold._backends.mysql import statements as sql
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold._backends.mysql.options import MysqlOptions
    from leasehold._backends.mysql.packets import Result
    from leasehold._backends.mysql.pool import Executor

__all__ = ["examine"]

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
CLOCK_DIFFERENCE = 1.0
ALMOST_FULL = 0.9
SHORT_IDLE = 10
KEPT = "a grant that the server acknowledged and forgot can be given to a second holder; the fences stay in order"
WRITES = "granting a lock is a write"

_NAMES = (
    "version", "version_comment", "read_only", "super_read_only", "innodb_flush_log_at_trx_commit", "sync_binlog",
    "log_bin", "binlog_format", "transaction_isolation", "tx_isolation", "time_zone", "system_time_zone", "sql_mode",
    "max_connections", "wait_timeout", "wsrep_on",
    "group_replication_single_primary_mode", "group_replication_group_name", "max_statement_time",
    "max_execution_time", "rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled",
)  # fmt: skip
_SETTINGS = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})".format(
    ", ".join(f"'{name}'" for name in _NAMES)
).encode()
_STATUS = (
    b"SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slaves_connected', "
    b"'Rpl_semi_sync_master_clients', 'wsrep_cluster_size')"
)
_TABLES = (
    b"SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() "
    b"AND TABLE_NAME LIKE 'leasehold\\_%'"
)


class Facts:
    """Settings and status by name, in lower case."""

    def __init__(self, results: Sequence[Result], sent: float, received: float) -> None:
        settings, status, tables, clock, grants = results
        self._values = {name: value for result in (settings, status) for name, value in _pairs(result)}
        self.engines = dict(_pairs(tables))
        self.difference = sql.seconds(clock.rows[0][0]) - (sent + received) / 2
        self.rights = "\n".join((line[0] or b"").decode(errors="replace") for line in grants.rows)

    def text(self, name: str) -> str:
        """As text; empty where the server has no such setting."""
        return self._values.get(name, "")

    def number(self, name: str) -> int:
        """As a number; 0 where there is none."""
        text = self.text(name).partition(".")[0]
        return int(text) if text.isdigit() else 0

    def is_on(self, name: str) -> bool:
        """As a truth."""
        return self.text(name).upper() in ("ON", "1", "YES")


def _pairs(result: Result) -> Iterator[tuple[str, str]]:
    for name, value, *_ in result.rows:
        yield (name or b"").decode().lower(), (value or b"").decode(errors="replace")


async def examine(executor: Executor, options: MysqlOptions) -> Sequence[Finding]:
    """Query the server."""
    query = b";".join((_SETTINGS, _STATUS, _TABLES, b"SELECT " + sql.NOW, b"SHOW GRANTS"))
    sent = time.time()
    results = await executor.look(query)
    facts = Facts(results, sent, time.time())
    return [
        *_server(facts),
        *_several_writers(facts),
        *_keeping(facts),
        *_clock(facts),
        *_sessions(facts),
        *_limits(facts, options),
        *_tables(facts),
    ]


def _server(facts: Facts) -> Iterator[Finding]:
    why = "the store is tested with MariaDB 10.11"
    yield Finding("server", OK, f"{facts.text('version')} {facts.text('version_comment')}".strip(), why)
    if facts.is_on("read_only") or facts.is_on("super_read_only"):
        advice = "name the primary; a replica must stay read-only"
        yield Finding("role", PROBLEM, "read-only, most likely a replica", WRITES, advice)
    else:
        yield Finding("role", OK, "takes writes", WRITES)


def _several_writers(facts: Facts) -> Iterator[Finding]:
    why = "two servers that take writes at a time each grant the same name, and user locks live in one server only"
    advice = "send all clients of leasehold to one node, by name or by a proxy that knows one writer"
    if facts.is_on("wsrep_on"):
        size = facts.text("wsrep_cluster_size") or "some"
        yield Finding("writers", WARNING, f"a Galera cluster of {size} nodes, each of which takes writes", why, advice)
    elif facts.text("group_replication_group_name") and not facts.is_on("group_replication_single_primary_mode"):
        yield Finding("writers", WARNING, "group replication with several primaries", why, advice)
    else:
        yield Finding("writers", OK, "one, as far as can be seen", why)


def _keeping(facts: Facts) -> Iterator[Finding]:
    flush = facts.text("innodb_flush_log_at_trx_commit")
    if flush not in ("", "1", "3"):
        found = f"innodb_flush_log_at_trx_commit is {flush}: a crash of the host forgets the last second"
        yield Finding("durability", WARNING, found, KEPT, "set it to 1, or accept it: it saves a wait for the disk")
    else:
        yield Finding("durability", OK, f"innodb_flush_log_at_trx_commit is {flush or 'not shown'}", KEPT)
    replicas = facts.number("slaves_connected")
    synchronous = any(facts.is_on(f"rpl_semi_sync_{role}_enabled") for role in ("master", "source"))
    found = f"{replicas} replicas seen" + (", semi-synchronous" if synchronous else "")
    if replicas and not synchronous:
        advice = "switch semi-synchronous replication on, or guard what the lock protects with the fence"
        yield Finding("failover", WARNING, f"{found}, none of them waited for", KEPT, advice)
    else:
        yield Finding("failover", OK, found, KEPT)
    why = "a server that logs statements takes no writes at READ COMMITTED; leasehold then works at REPEATABLE READ"
    if facts.is_on("log_bin") and facts.text("binlog_format") == "STATEMENT":
        advice = "set binlog_format to ROW or MIXED"
        yield Finding("binary log", WARNING, "binlog_format is STATEMENT", why, advice)
    else:
        shown = facts.text("binlog_format") if facts.is_on("log_bin") else "none is written"
        yield Finding("binary log", OK, shown or "not shown", why)


def _clock(facts: Facts) -> Iterator[Finding]:
    why = "leases are counted on the server's clock, and fences contain it; its time zone takes no part (UTC_TIMESTAMP)"
    zone = facts.text("time_zone")
    zone = facts.text("system_time_zone") if zone == "SYSTEM" else zone
    found = f"{facts.difference:+.3f} s from this host's; time zone {zone or 'not shown'}"
    if abs(facts.difference) > CLOCK_DIFFERENCE:
        yield Finding("server clock", WARNING, found, why, "run NTP on the server and on this host")
    else:
        yield Finding("server clock", OK, found, why)


def _sessions(facts: Facts) -> Iterator[Finding]:
    """What the store sets for its own sessions, whatever the default is."""
    isolation = facts.text("transaction_isolation") or facts.text("tx_isolation")
    yield Finding("isolation", OK, f"{isolation or 'not shown'} by default", "leasehold sets its own for its sessions")
    strict = "STRICT" in facts.text("sql_mode")
    found = "strict by default" if strict else "not strict by default"
    yield Finding("sql_mode", OK, found, "leasehold sets its own, so that no value is cut off in silence")


def _limits(facts: Facts, options: MysqlOptions) -> Iterator[Finding]:
    used, most = facts.number("threads_connected"), facts.number("max_connections")
    why = "a client without a connection cannot renew"
    found = f"{used} of {most} in use; a client takes {options.connections} at most, and one to listen"
    if most and used > ALMOST_FULL * most:
        yield Finding("connections", WARNING, found, why, "raise max_connections, or use fewer with ?connections=")
    else:
        yield Finding("connections", OK, found, why)
    statement = facts.text("max_statement_time") or facts.text("max_execution_time") or "0"
    is_short = 0 < float(re.sub(r"[^0-9.]", "", statement) or 0) < 1 and facts.text("max_statement_time") != ""
    why = "a statement that is cancelled was not applied; it is sent again, but a renewal may come too late"
    if is_short:
        yield Finding("timeouts", WARNING, f"max_statement_time is {statement} s", why, "allow a second at the least")
    else:
        yield Finding("timeouts", OK, f"statements: {statement}; idle: {facts.text('wait_timeout')} s", why)


def _tables(facts: Facts) -> Iterator[Finding]:
    why = "a transaction of another engine cannot be undone"
    others = sorted(name for name, engine in facts.engines.items() if engine.lower() != "innodb")
    if others:
        found = f"not InnoDB: {', '.join(others)}"
        yield Finding("tables", PROBLEM, found, why, "ALTER TABLE ... ENGINE=InnoDB")
    else:
        yield Finding("tables", OK, f"{len(facts.engines)} tables, all InnoDB", why)
    broad = re.search(r"GRANT .*\b(ALL PRIVILEGES|SUPER)\b.* ON \*\.\*", facts.rights)
    why = "locking needs SELECT, INSERT, UPDATE and DELETE on the tables of leasehold, and nothing else"
    if broad:
        advice = "use an account of its own: `leasehold schema mysql --role` prints what it needs"
        yield Finding("rights", WARNING, "this account may do everything", why, advice)
    else:
        yield Finding("rights", OK, "this account is limited", why)
