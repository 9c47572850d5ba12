"""How well a PostgreSQL is set up for locks. It reads and changes nothing; what this role may not see is left out.

One query reads all facts. It takes longer than those of a lock, so a short `statement_timeout` of the role is switched
off for it alone, in its transaction. What the role's own setting is, is one of the facts (`reset_val`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.driver import GOOD
from leasehold._backends.postgres.statements import TEXT, Statement
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold._backends.postgres.driver import AnyConnection, Rows
    from leasehold._backends.postgres.executor import Executor
    from leasehold.spi import Runtime

__all__ = ["examine"]

OLDEST = 130000  # the oldest PostgreSQL that is still maintained somewhere
SHORT_MS = 1000
CLOCK_DIFFERENCE = 1.0
ALMOST_FULL = 0.9
MANY_DEAD = 10_000
LONG_OPEN = 300.0
OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
RESET = "coalesce(reset_val, setting)"  # of a setting that we changed in this session or transaction
TIMEOUTS = "a statement that is cancelled was not applied; it is sent again, but a renewal may come too late"


def _setting(name: str, value: str = "setting") -> str:
    return f"(SELECT {value} FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) '{name}')"  # noqa: S608 - ours


# schema -> one row of facts, by name; every name is qualified, as in `statements`
_FACTS = f"""
SELECT CAST({_setting("server_version_num")} AS integer) AS number, {_setting("server_version")} AS version,
  pg_catalog.pg_is_in_recovery() AS standby, pg_catalog.current_setting('transaction_read_only') AS read_only,
  {_setting("synchronous_commit")} AS synchronous, {_setting("fsync")} AS fsync,
  {_setting("synchronous_standby_names")} AS standbys,
  (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication) AS replicas,
  (SELECT pg_catalog.date_part('epoch', pg_catalog.max(replay_lag)) FROM pg_catalog.pg_stat_replication) AS lag,
  CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.date_part('epoch',
    pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.pg_last_xact_replay_timestamp()) END AS behind,
  {_setting("statement_timeout", RESET)} AS statement_timeout,
  {_setting("transaction_timeout")} AS transaction_timeout,
  {_setting("lock_timeout")} AS lock_timeout, {_setting("idle_session_timeout")} AS idle_timeout,
  {_setting("default_transaction_isolation", RESET)} AS isolation,
  (SELECT pg_catalog.sum(numbackends) FROM pg_catalog.pg_stat_database) AS connections,
  CAST({_setting("max_connections")} AS integer) OPERATOR(pg_catalog.-)
    CAST({_setting("superuser_reserved_connections")} AS integer) AS most,
  pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) AS moment, current_user AS role,
  EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname OPERATOR(pg_catalog.=) $1
          AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')) AS usage,
  tables.made, tables.rights, pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS may_create,
  (SELECT pg_catalog.sum(s.n_dead_tup) FROM pg_catalog.pg_stat_all_tables AS s
   WHERE s.schemaname OPERATOR(pg_catalog.=) $1) AS dead,
  (SELECT pg_catalog.date_part('epoch',
     pg_catalog.max(pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) a.xact_start))
   FROM pg_catalog.pg_stat_activity AS a
   WHERE a.backend_xmin IS NOT NULL AND a.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()) AS oldest
FROM (
  SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) 0 AS made, pg_catalog.bool_and(
    pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_table_privilege(c.oid, 'INSERT')
    AND pg_catalog.has_table_privilege(c.oid, 'UPDATE') AND pg_catalog.has_table_privilege(c.oid, 'DELETE')) AS rights
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  WHERE n.nspname OPERATOR(pg_catalog.=) $1
    AND c.relname OPERATOR(pg_catalog.=) ANY (ARRAY['lock', 'claim', 'record'])) AS tables
"""  # noqa: S608 - put together from constants


class Facts:
    """The row, by name."""

    def __init__(self, row: Rows, *, pooled: bool, sent: float, received: float) -> None:
        self._values = {row.fname(column): row.get_value(0, column) for column in range(row.nfields)}
        self.pooled = pooled
        self.here = (sent + received) / 2  # the wall clock of this host while the server looked at its own

    def text(self, name: str) -> str:
        """As text; empty where there is none."""
        return (self._values.get(name.encode()) or b"").decode()

    def number(self, name: str) -> float | None:
        """As a number; None where there is none."""
        text = self.text(name)
        return float(text) if text else None

    def is_true(self, name: str) -> bool:
        """As a truth."""
        return self.text(name) in ("t", "on")


async def examine(executor: Executor, schema: str, runtime: Runtime, *, has_listen_url: bool) -> Sequence[Finding]:
    """Query the server; `has_listen_url`: notifications have a way around a pooler."""
    connection = await executor.source.take()
    try:
        sent = time.time()
        answer = await _facts(connection, schema)
        received = time.time()
    except BaseException:
        executor.source.discard(connection, dead=False)
        raise
    executor.source.give(connection)
    await runtime.switch()
    if errors.sqlstate(answer) in (errors.CANCELLED, errors.LOCK_TIMEOUT):
        found = f"the query of the doctor was cancelled: {errors.message(answer)}"
        advice = "allow this role a second at the least, then run the doctor again: no other check was made"
        return [Finding("timeouts", PROBLEM, found, TIMEOUTS, advice)]
    if answer.status not in GOOD or answer.ntuples != 1:
        raise errors.translated(answer, executor.label)
    facts = Facts(answer, pooled=not connection.is_direct, sent=sent, received=received)
    return [
        *_server(facts),
        *_keeping(facts),
        *_way(facts, has_listen_url=has_listen_url),
        *_limits(facts),
        *_dead_rows(facts),
        *_rights(facts, schema),
    ]


async def _facts(connection: AnyConnection, schema: str) -> Rows:
    answer = await connection.run_script(b"BEGIN; SET LOCAL statement_timeout = 0")
    if answer.status in GOOD:
        answer = await connection.execute(Statement(b"", _FACTS.encode(), (TEXT,), (0,)), (schema.encode(),))
    await connection.run_script(b"ROLLBACK")
    return answer


def _server(facts: Facts) -> Iterator[Finding]:
    why = "the functions of the store are tested with PostgreSQL 15 and 18"
    if (facts.number("number") or 0) < OLDEST:
        yield Finding("PostgreSQL", WARNING, facts.text("version"), why, "upgrade to a version that is maintained")
    else:
        yield Finding("PostgreSQL", OK, facts.text("version"), why)
    why = "granting a lock is a write"
    if facts.is_true("standby"):
        behind = facts.number("behind")
        lag = "" if behind is None else f", {behind:.1f} s behind"
        advice = "name the primary, or several hosts: the one that takes writes is found by itself"
        yield Finding("role", PROBLEM, f"a read-only standby{lag}", why, advice)
    elif facts.is_true("read_only"):
        advice = "set default_transaction_read_only to off for this role"
        yield Finding("role", PROBLEM, "a primary, but transactions are read-only by default", why, advice)
    else:
        yield Finding("role", OK, "primary", why)


def _keeping(facts: Facts) -> Iterator[Finding]:
    why = "a grant that the server acknowledged and forgot can be given to a second holder; the fences stay in order"
    if not facts.is_true("fsync"):
        yield Finding("durability", PROBLEM, "fsync is off", why, "switch fsync on, unless this server is for tests")
    elif facts.text("synchronous") == "off":
        advice = "set synchronous_commit to on for this role, or accept it: it saves a wait for the disk"
        yield Finding("durability", WARNING, "synchronous_commit is off: a crash forgets the last moments", why, advice)
    else:
        yield Finding("durability", OK, f"synchronous_commit is {facts.text('synchronous')}", why)
    replicas, lag = int(facts.number("replicas") or 0), facts.number("lag")
    found = f"{replicas} standbys seen" + ("" if lag is None else f", at most {lag:.3f} s behind")
    if replicas and not facts.text("standbys"):
        advice = "set synchronous_standby_names, or guard what the lock protects with the fence"
        yield Finding("failover", WARNING, f"{found}, none of them synchronous", why, advice)
    else:
        yield Finding("failover", OK, found + (", synchronous" if facts.text("standbys") else ""), why)


def _way(facts: Facts, *, has_listen_url: bool) -> Iterator[Finding]:
    why = "behind a pooler that changes servers no notification arrives, so waiters have to poll"
    if not facts.pooled:
        yield Finding("pooler", OK, "none seen", why)
    elif has_listen_url:
        yield Finding("pooler", OK, "seen, and listen_url leads around it", why)
    else:
        advice = (
            "give ?listen_url= with the address of the server itself; without it, waiters poll up to 20 times a second"
        )
        yield Finding("pooler", WARNING, "another process answers than the one that was connected to", why, advice)
    difference = (facts.number("moment") or 0.0) - facts.here
    found = f"{difference:+.3f} s from this host's"
    why = (
        "leases are counted on the server's clock; fences contain it, and stay in order over a failover if it is right"
    )
    if abs(difference) > CLOCK_DIFFERENCE:
        yield Finding("server clock", WARNING, found, why, "run NTP on the server and on this host")
    else:
        yield Finding("server clock", OK, found, why)


def _limits(facts: Facts) -> Iterator[Finding]:
    names = ("statement_timeout", "transaction_timeout", "lock_timeout")
    short = [f"{name} {facts.text(name)} ms" for name in names if 0 < (facts.number(name) or 0) < SHORT_MS]
    if short:
        yield Finding("timeouts", WARNING, ", ".join(short), TIMEOUTS, "allow this role a second at the least")
    else:
        idle = int(facts.number("idle_timeout") or 0)
        yield Finding("timeouts", OK, f"none is too short (idle_session_timeout {idle} ms does no harm)", TIMEOUTS)
    why = "a request that waited for a row must see what was committed meanwhile"
    if facts.text("isolation") != "read committed":
        advice = "set default_transaction_isolation to 'read committed' for this role"
        level = WARNING if facts.pooled else OK
        yield Finding("isolation", level, facts.text("isolation"), why, advice if facts.pooled else "")
    else:
        yield Finding("isolation", OK, "read committed", why)
    why = "a client that finds no free connection cannot renew"
    used, most = facts.number("connections") or 0, facts.number("most") or 1
    found = f"{used:.0f} of {most:.0f} in use"
    if used > most * ALMOST_FULL:
        yield Finding("connections", WARNING, found, why, "raise max_connections, or put a pooler in front")
    else:
        yield Finding("connections", OK, found, why)


def _dead_rows(facts: Facts) -> Iterator[Finding]:
    why = (
        "each acquire and release leaves a dead row, which cannot be removed while a transaction is open that began "
        "before; the more there are, the longer each takes"
    )
    dead, oldest = facts.number("dead") or 0, facts.number("oldest") or 0
    found = f"{dead:.0f}; the longest transaction that this role may see is open for {oldest:.0f} s"
    if dead > MANY_DEAD or oldest > LONG_OPEN:
        advice = (
            "end long transactions (pg_stat_activity, by xact_start; also prepared ones and unused replication slots), "
            "and see that autovacuum is on"
        )
        yield Finding("dead rows", WARNING, found, why, advice)
    else:
        yield Finding("dead rows", OK, found, why)


def _rights(facts: Facts, schema: str) -> Iterator[Finding]:
    why = "the tables are made on first use if this role may; afterwards it needs to read and write them only"
    role = facts.text("role")
    if facts.is_true("made"):
        if facts.is_true("usage") and facts.is_true("rights"):
            yield Finding("rights", OK, f"{role} may use the tables in schema {schema}", why)
        else:
            advice = f"run the GRANT statements that `leasehold schema postgresql --role {role}` prints"
            yield Finding("rights", PROBLEM, f"{role} may not use the tables in schema {schema}", why, advice)
    elif facts.is_true("may_create"):
        yield Finding("rights", OK, f"no tables yet; {role} may make them", why)
    else:
        advice = f"have the owner run what `leasehold schema postgresql --role {role}` prints"
        yield Finding("rights", PROBLEM, f"no tables yet, and {role} may not make them", why, advice)
