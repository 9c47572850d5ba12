"""How well a PostgreSQL is set up for locks. It asks, and changes nothing; what this role may not see it says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leasehold.backends.postgres import trouble
from leasehold.backends.postgres.line import GOOD
from leasehold.backends.postgres.statements import TEXT, Statement
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg.pq.abc import PGresult

    from leasehold.backends.postgres.pool import Asking
    from leasehold.spi import Runtime

__all__ = ["examine"]

OLDEST = 130000  # the oldest PostgreSQL that is still maintained somewhere
SHORT_MS = 1000
CLOCK_DIFFERENCE = 1.0
ALMOST_FULL = 0.9
OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM

# schema -> one row of facts, by name
_FACTS = """
SELECT current_setting('server_version_num')::int AS number, current_setting('server_version') AS version,
  pg_is_in_recovery() AS standby, current_setting('transaction_read_only') AS read_only,
  current_setting('synchronous_commit') AS synchronous, current_setting('fsync') AS fsync,
  current_setting('synchronous_standby_names') AS standbys,
  (SELECT count(*) FROM pg_stat_replication) AS replicas,
  (SELECT date_part('epoch', max(replay_lag)) FROM pg_stat_replication) AS lag,
  CASE WHEN pg_is_in_recovery() THEN date_part('epoch', clock_timestamp() - pg_last_xact_replay_timestamp()) END
    AS behind,
  (SELECT setting FROM pg_settings WHERE name = 'statement_timeout') AS statement_timeout,
  (SELECT setting FROM pg_settings WHERE name = 'transaction_timeout') AS transaction_timeout,
  (SELECT setting FROM pg_settings WHERE name = 'lock_timeout') AS lock_timeout,
  (SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout') AS idle_timeout,
  (SELECT coalesce(reset_val, setting) FROM pg_settings WHERE name = 'default_transaction_isolation') AS isolation,
  (SELECT sum(numbackends) FROM pg_stat_database)::int AS connections,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,
  date_part('epoch', clock_timestamp()) AS moment, current_user AS role,
  EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
          WHERE n.nspname = $1 AND c.relname = 'lock') AS made,
  EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND has_schema_privilege(oid, 'USAGE')) AS usage,
  (SELECT bool_and(has_table_privilege(c.oid, what))
   FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace,
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS what
   WHERE n.nspname = $1 AND c.relname IN ('lock', 'claim', 'record')) AS rights,
  has_database_privilege(current_database(), 'CREATE') AS may_create
"""


class Facts:
    """The row, by name."""

    def __init__(self, row: PGresult, *, pooled: bool, sent: float, received: float) -> None:
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


async def examine(asking: Asking, schema: str, runtime: Runtime, *, hears: bool) -> Sequence[Finding]:
    """Ask the server about itself; `hears`: there is a way to be told of one's turn around a pooler."""
    statement = Statement(b"", _FACTS.encode(), (TEXT,), (0,))
    line = await asking.source.take()
    try:
        sent = time.time()
        answer = await line.ask(statement, (schema.encode(),))
        facts = Facts(answer, pooled=not line.is_direct, sent=sent, received=time.time()) if _is_good(answer) else None
    except BaseException:
        asking.source.discard(line, dead=False)
        raise
    asking.source.give(line)
    await runtime.switch()
    if facts is None:
        raise trouble.translated(answer, asking.label)
    return [*_server(facts), *_keeping(facts), *_way(facts, hears=hears), *_limits(facts), *_rights(facts, schema)]


def _is_good(answer: PGresult) -> bool:
    return answer.status in GOOD and answer.ntuples == 1


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


def _way(facts: Facts, *, hears: bool) -> Iterator[Finding]:
    why = "behind a pooler that changes servers nobody can be told of its turn, so waiters have to ask"
    if not facts.pooled:
        yield Finding("pooler", OK, "none seen", why)
    elif hears:
        yield Finding("pooler", OK, "seen, and listen_url leads around it", why)
    else:
        advice = "give ?listen_url= with the address of the server itself; without it, waiters ask 20 times a second"
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
    why = "a statement that is cancelled was not applied; it is asked again, but a renewal may come too late"
    names = ("statement_timeout", "transaction_timeout", "lock_timeout")
    short = [f"{name} {facts.text(name)} ms" for name in names if 0 < (facts.number(name) or 0) < SHORT_MS]
    if short:
        yield Finding("timeouts", WARNING, ", ".join(short), why, "allow this role a second at the least")
    else:
        idle = int(facts.number("idle_timeout") or 0)
        yield Finding("timeouts", OK, f"none is too short (idle_session_timeout {idle} ms does no harm)", why)
    why = "whoever waited for a row must then see what was committed meanwhile"
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
