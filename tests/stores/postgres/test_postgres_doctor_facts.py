"""The query of the doctor reads what is set for this role and this server, each fact under its own name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from leasehold._backends.postgres import doctor
from leasehold._backends.postgres.doctor import Facts
from leasehold._backends.postgres.driver import GOOD
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.sql import store_schema
from tests.stores.support import eventually

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer


def facts_of(url: str, schema: str = "leasehold") -> Facts:
    backend: Any = find_store(url).open_backend(ThreadRuntime())

    async def ask() -> Facts:
        connection = await backend._executor.source.take()
        row = await doctor._facts(connection, schema)
        assert row.status in GOOD
        assert connection.is_usable(), "its transaction is over"
        backend._executor.source.give(connection)
        await backend.close()
        return Facts(row, pooled=False, sent=0.0, received=0.0)

    return run(ask())


def test_every_fact_is_that_of_the_server_and_of_this_role(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    role = f"doctor_{name}"
    postgres.run(f"CREATE ROLE {role} LOGIN")
    for setting in (
        "synchronous_commit = 'local'", "statement_timeout = '1234ms'", "lock_timeout = '2345ms'",
        "idle_session_timeout = '3456ms'", "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
    ):  # fmt: skip
        postgres.run(f"ALTER ROLE {role} SET {setting}")
    facts = facts_of(postgres.url(name, role))
    assert {
        key: facts.text(key)
        for key in ("standby", "read_only", "synchronous", "statement_timeout", "lock_timeout", "idle_timeout",
                    "isolation", "role", "usage", "made", "may_create", "standbys", "behind", "lag")
    } == {
        "standby": "f", "read_only": "on", "synchronous": "local", "statement_timeout": "1234", "lock_timeout": "2345",
        "idle_timeout": "3456", "isolation": "serializable", "role": role, "usage": "f", "made": "f",
        "may_create": "f", "standbys": "", "behind": "", "lag": "",
    }  # fmt: skip
    ((number, version, fsync, most, reserved),) = postgres.run(
        "SELECT current_setting('server_version_num'), current_setting('server_version'), current_setting('fsync'), "
        "current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int"
    )
    assert (facts.text("number"), facts.text("version"), facts.text("fsync")) == (number, version, fsync)
    assert facts.number("most") == int(str(most)) - int(str(reserved))
    assert facts.number("replicas") == 0
    assert (facts.number("connections") or 0) >= 1
    assert abs((facts.number("moment") or 0) - float(str(postgres.run("SELECT date_part('epoch', now())")[0][0]))) < 600
    postgres.run(f"DROP ROLE {role}")


def test_rights_are_those_to_all_tables_of_the_schema(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    role = f"rights_{name}"
    postgres.run(f"CREATE ROLE {role} LOGIN")
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(store_schema(role=role).encode())

        def seen() -> tuple[str, ...]:
            facts = facts_of(postgres.url(name, role))
            return tuple(facts.text(key) for key in ("made", "usage", "rights"))

        assert seen() == ("t", "t", "t")
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            for table in ("lock", "claim", "record"):
                owner.execute(f"REVOKE {right} ON leasehold.{table} FROM {role}".encode())
                assert seen() == ("t", "t", "f"), (right, table)
                owner.execute(f"GRANT {right} ON leasehold.{table} TO {role}".encode())
        owner.execute(f"REVOKE USAGE ON SCHEMA leasehold FROM {role}".encode())
        assert seen()[:2] == ("t", "f")
        owner.execute(f"GRANT CREATE ON DATABASE {name} TO {role}".encode())
        assert facts_of(postgres.url(name, role), "elsewhere").is_true("may_create")
        assert facts_of(postgres.url(name, role), "elsewhere").text("made") == "f"


def test_an_open_transaction_of_another_session_is_seen(postgres: PostgresServer, database: str) -> None:
    with postgres.connect(database.rpartition("/")[2]) as other, other.transaction():
        other.execute("CREATE TEMPORARY TABLE held (n int)")
        other.execute("SELECT txid_current()")

        def oldest() -> bool:
            other.execute("DECLARE looks CURSOR FOR SELECT 1")
            found = facts_of(database).number("oldest")
            other.execute("CLOSE looks")
            return found is not None and found > 0

        eventually(oldest)
