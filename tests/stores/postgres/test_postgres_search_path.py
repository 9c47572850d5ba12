"""A role that may create things in a schema of the search path: its code never runs as the roles that lock or guard.

The traps: for every function, operator, type and table of PostgreSQL that our statements name, one of the same name and
signature in `public`, which comes first in the search path of the victim. Any name that is not qualified finds a trap.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import leasehold
from leasehold import sql as ours
from leasehold._backends.postgres import ddl, doctor, statements
from leasehold._record import replace
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.sql import fence_schema, guard, guard_schema, store_schema, transaction_lock
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer

OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "||", "~", "!~", "->>", "->"]
TYPES = ["text", "bytea", "jsonb", "regclass", "timestamptz", "name", "oid", "regprocedure"]
# Functions of PostgreSQL that take anything: a trap for them needs the types that a call of ours would have.
ANYTHING = {
    "jsonb_build_object": ("text, bigint", "text, text", "text, unknown"),
    "concat_ws": ("text, text, bigint, double precision, integer",),
    "format": ("text, name, name, text", "text, regprocedure", "text, text, text, text"),
}
FIRST = "public, pg_catalog"  # the worst that a role can have
RUNTIME = ThreadRuntime()


def words() -> list[str]:
    """Every word that stands in one of our statements."""
    files = [*ddl.FOLDER.glob("*.sql"), *Path(str(ours.__file__)).parent.glob("*.*")]
    files += [Path(str(module.__file__)) for module in (doctor, statements)]
    text = " ".join(file.read_text() for file in files if file.suffix in (".sql", ".py"))
    return sorted(set(re.findall(r"[a-z_][a-z_0-9]+", text)))


def plant_traps(connection: psycopg.Connection[Any]) -> int:
    """Make them, as mallory; how many functions and operators."""
    connection.execute("SET search_path = pg_catalog")
    functions = connection.execute(
        "SELECT p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid), p.prokind "
        "FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (%s) "
        "AND p.prokind IN ('f', 'a') AND p.prorettype NOT IN ('internal'::regtype, 'trigger'::regtype)",
        [words()],
    ).fetchall()
    operators = connection.execute(
        "SELECT o.oprname, o.oprleft::regtype::text, o.oprright::regtype::text, o.oprresult::regtype::text "
        "FROM pg_operator AS o WHERE o.oprname = ANY (%s) AND o.oprkind = 'b'",
        [OPERATORS],
    ).fetchall()
    scripts = [_function(name, arguments, result) for name, arguments, result, _ in functions]
    for number, (name, left, right, result) in enumerate(operators):
        scripts.append(_function(f"trap_{number}", f"{left}, {right}", result))
        scripts.append(
            f"CREATE OPERATOR public.{name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.trap_{number})"
        )
    for name, signatures in ANYTHING.items():
        scripts += [_function(name, signature, "text") for signature in signatures]
    scripts += [f"CREATE TABLE public.{name} (trap integer)" for name in ("pg_locks", "pg_class", "pg_proc", "lock")]
    scripts += [f"CREATE TYPE public.{name} AS (trap integer)" for name in TYPES]
    made = 0
    for script in scripts:
        try:
            connection.execute(script.encode())
            made += 1
        except psycopg.Error as error:  # a signature that cannot be written down, or not by a plain role
            assert error.sqlstate in (
                "42P13",
                "42601",
                "42704",
                "0A000",
                "42501",
                "42725",
                "42P07",
                "42883",
                "42723",
            ), error
    return made


def _function(name: str, arguments: str, result: str) -> str:
    plain = re.sub(r" ORDER BY .*", "", arguments)
    return (
        f'CREATE FUNCTION public."{name}"({plain}) RETURNS {result} LANGUAGE plpgsql AS '
        "$trap$ BEGIN RAISE EXCEPTION 'trap: ran as %', current_user USING ERRCODE = 'TRAP1'; END $trap$"
    )


@pytest.fixture
def trapped(postgres: PostgresServer, database: str) -> str:
    """The url of a superuser whose search path begins with a schema that is full of traps."""
    name = database.rpartition("/")[2]
    role = f"mallory_{name}"
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN".encode())
        owner.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {role}".encode())
    with psycopg.connect(postgres.url(name, role), autocommit=True) as mallory:
        assert plant_traps(mallory) > 500
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {name} SET search_path = {FIRST}".encode())
    with (
        psycopg.connect(database, autocommit=True) as victim,
        pytest.raises(psycopg.Error, match="trap: ran as postgres"),
    ):
        victim.execute("SELECT 1 = 1")
    return database


@pytest.mark.parametrize("mode", ["rows", "session"])
def test_no_foreign_code_runs_as_the_role_that_locks(trapped: str, mode: str) -> None:
    with leasehold.connect(f"{trapped}?mode={mode}", ttl=20) as client:
        for _ in range(5):
            client.lock("job").acquire().release()
        with client.lock("job").hold() as lease:
            lease.renew()
            assert client.lock("job").try_acquire() is None
            assert len(client.locks()) == 1
        with (
            pytest.raises(leasehold.LeaseLost) as lost,  # by the release: the keeper has not asked yet
            client.lock("short").hold() as lease,
        ):
            assert client.break_lock("short", fence=lease.fence, reason="test") is True
        assert lost.value.reason is leasehold.LossReason.BROKEN
        client.raise_fence("job", 5, reason="test")
        assert client.examine()
        with client.rwlock("doc").read.hold():
            assert client.rwlock("doc").write.try_acquire() is None


def test_no_foreign_code_runs_as_the_role_that_waits_records_and_cleans(trapped: str) -> None:
    backend: Any = find_store(trapped).open_backend(RUNTIME)

    def claim(**facts: Any) -> Claim:
        told: dict[str, Any] = {"ttl": 20.0, "mode": Mode.EXCLUSIVE, "capacity": 1, "min_hold": 0.0, **facts}
        return Claim(key="leasehold:job", owner=RUNTIME.owner(), holder=Holder("host", 1), **told)

    grant = run(backend.try_acquire(claim()))
    seats = [run(backend.join(claim())) for _ in range(3)]
    for seat in seats:
        run(backend.turn(seat))
    keys = statements.array((b"leasehold:job" for _ in seats), binary=True)
    owners = statements.array(seat.claim.owner.encode() for seat in seats)
    assert run(backend._execute(backend._sql.turns, (keys, owners, None))).ntuples == 3
    assert run(backend._execute(backend._sql.handovers, (keys, owners))).ntuples == 0
    assert run(backend.release(grant)) is True
    assert run(backend._execute(backend._sql.handovers, (keys, owners))).ntuples == 1
    handed = run(backend.turn(seats[0]))
    (renewed,) = run(backend.renew([replace(handed, fence=handed.fence + 1)]))
    assert run(backend.break_(handed.claim.key, renewed.fence + 1, "stuck", now=False)) is True
    run(backend.withdraw(seats[1].claim, doubt=False))
    run(backend.withdraw(seats[2].claim))
    assert run(backend.read("leasehold:once", 5)).fence == 5
    run(backend._execute(backend._sql.clean, (b"100", b"0")))
    run(backend.close())


def test_no_foreign_code_runs_when_the_owner_makes_the_tables(trapped: str) -> None:
    with psycopg.connect(trapped, autocommit=True) as owner:
        for script in (store_schema(role="postgres"), guard_schema("postgresql")):
            for _ in range(2):
                owner.execute(script.encode())
        owner.execute("CREATE TABLE public.account (id integer, balance integer)")
        owner.execute(fence_schema("account", "id").encode())


def test_no_foreign_code_runs_as_the_role_that_guards(trapped: str) -> None:
    with leasehold.connect("memory:", ttl=20) as client, psycopg.connect(trapped) as database:
        database.execute("CREATE TABLE public.account (id integer, balance integer)")
        database.execute(fence_schema("account", "id").encode())
        database.commit()
        for _ in range(2):
            with client.lock("account:1").hold() as lease, database.transaction():
                guard(database, lease)
                guard(database, lease)
                database.execute("INSERT INTO public.account VALUES (1, 1)")
        with client.lock("account:1").hold() as newer, database.transaction():
            guard(database, newer)
        with pytest.raises(leasehold.StaleFence), database.transaction():
            guard(database, lease)
        for _ in range(2):
            with client.rwlock("doc").read.hold() as reader, database.transaction():
                guard(database, reader)
                guard(database, reader)
        with database.transaction():
            for wait in (True, False):
                for shared in (True, False):
                    assert transaction_lock(database, "job", wait=wait, shared=shared)
