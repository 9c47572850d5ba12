"""A role that may create things in a schema of the search path: its code never runs as the roles that lock or guard.

The traps: for every function, operator, type and table of PostgreSQL that our statements name, one of the same name and
signature in `public`, which comes first in the search path of the victim. Any name that is not qualified finds a trap.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import leasehold
from leasehold import sql as ours
from leasehold._backends import postgres
from leasehold._backends.postgres import statements
from leasehold._record import replace
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.sql import (
    GiveUp,
    IdempotencyKeys,
    Queue,
    Stock,
    cas_update,
    fence_schema,
    fenced_update,
    guard,
    guard_schema,
    idempotency_schema,
    insert_once,
    list_queues,
    lock_free_rows,
    lock_row,
    queue_schema,
    reservations_schema,
    store_schema,
    transaction_lock,
)
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.lab.postgres import PostgresServer

# Functions of PostgreSQL that take anything: a trap for them needs the types that a call of ours would have.
ANYTHING = {
    "jsonb_build_object": ("text, bigint", "text, text", "text, unknown"),
    "concat": ("text, text, text", "text, unknown, text"),
    "concat_ws": ("text, text, bigint, double precision, integer",),
    "format": ("text, name, name, text", "text, regprocedure", "text, text, text, text"),
}
NO_TRAP = ("42P13", "42601", "42704", "0A000", "42501", "42725", "42P07", "42883", "42723")
FIRST = "public, pg_catalog"  # the worst that a role can have
RUNTIME = ThreadRuntime()


def statements_of_ours() -> str:
    """All that we send to PostgreSQL, with the programs around it."""
    folders = [Path(str(package.__file__)).parent for package in (ours, postgres)]
    files = [file for folder in folders for file in sorted(folder.rglob("*.*")) if file.suffix in (".sql", ".py")]
    return " ".join(file.read_text() for file in files)


def traps(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """What makes them, for each name of PostgreSQL's that is somewhere in our statements."""
    text = statements_of_ours()
    words = sorted(set(re.findall(r"[a-z_][a-z_0-9]+", text)))
    for name, arguments, result in connection.execute(
        "SELECT p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid) FROM pg_proc AS p "
        "WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (%s) "
        "AND p.prokind IN ('f', 'a') AND p.prorettype NOT IN ('internal'::regtype, 'trigger'::regtype)",
        [words],
    ):
        yield _function(name, arguments, result)
    operators = connection.execute(
        "SELECT o.oprname, o.oprleft::regtype::text, o.oprright::regtype::text, o.oprresult::regtype::text "
        "FROM pg_operator AS o WHERE strpos(%s, o.oprname) > 0 AND o.oprkind = 'b'",
        [text],
    )
    for number, (name, left, right, result) in enumerate(operators):
        yield _function(f"trap_{number}", f"{left}, {right}", result)
        yield f"CREATE OPERATOR public.{name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.trap_{number})"
    for name, signatures in ANYTHING.items():
        yield from (_function(name, signature, "text") for signature in signatures)
    of_ours = "WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') AND relname = ANY (%s)"
    for (name,) in connection.execute(f"SELECT relname FROM pg_class {of_ours} UNION SELECT 'lock'", [words]):
        yield f'CREATE TABLE public."{name}" (trap integer)'
    of_ours = "WHERE typnamespace = 'pg_catalog'::regnamespace AND typname = ANY (%s) AND typrelid = 0"
    for (name,) in connection.execute(f"SELECT typname FROM pg_type {of_ours}", [words]):
        yield f'CREATE TYPE public."{name}" AS (trap integer)'


def plant_traps(connection: psycopg.Connection[Any]) -> int:
    """Make them, as mallory; how many."""
    connection.execute("SET search_path = pg_catalog")
    made = 0
    for script in list(traps(connection)):
        try:
            connection.execute(script.encode())
            made += 1
        except psycopg.Error as error:  # a signature that cannot be written down, or not by a plain role
            assert error.sqlstate in NO_TRAP, (script, error)
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
        owner.execute("CREATE TABLE public.heir () INHERITS (public.account)")
        owner.execute(fence_schema("account", "id").encode())


def test_no_foreign_code_runs_as_the_role_that_guards(trapped: str) -> None:
    with leasehold.connect("memory:", ttl=20) as client, psycopg.connect(trapped) as database:
        with client.lock("account:1").hold() as lease, database.transaction(force_rollback=True):
            guard(database, lease)  # which makes its table
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


def test_no_foreign_code_runs_as_the_role_that_works_through_a_queue(trapped: str) -> None:
    with psycopg.connect(trapped) as database:
        for _ in range(2):
            database.execute(queue_schema("postgresql").encode())
        mails = Queue("mails")
        first, *_ = [mails.enqueue(database, each, key=f"mail {each}") for each in range(5)]
        assert mails.enqueue(database, 0, key="mail 0") == first
        done, late, back, failed, slow = mails.claim(database, limit=5)
        mails.complete(database, done)
        mails.fail(database, late, "busy", delay=0)
        mails.fail(database, failed, GiveUp("wrong"))
        mails.release(database, back)
        mails.extend(database, slow, "1h")
        with pytest.raises(leasehold.StaleFence):
            mails.complete(database, dataclasses.replace(back, fence=back.fence + 1))
        once = Queue("mails", max_attempts=1)
        assert len(once.claim(database, limit=5)) == 1, "the other one had its only attempt, and is dead now"
        assert mails.retry_dead(database) == 2
        assert len(mails.jobs(database, state="ready")) == 2
        assert mails.job(database, first) is not None
        assert len(list_queues(database)) == 1
        assert mails.purge(database, older_than=0) == 1


def test_no_foreign_code_runs_as_the_role_that_reserves(trapped: str) -> None:
    with psycopg.connect(trapped) as database:
        shop = Stock("shop")
        for _ in range(2):
            database.execute(reservations_schema("postgresql").encode())
            shop.restock(database, {"tea": 5, "cup": 5})
        for key in ("sold", "sold", "given back", "over", "late"):
            shop.reserve(database, {"tea": 1, "cup": 2}, key=key)
        shop.confirm(database, "sold")
        shop.cancel(database, "given back")
        database.execute("UPDATE leasehold_reservation SET expires_at = '2020-01-01'")
        shop.confirm(database, "late")
        assert shop.sweep(database) >= 1
        with pytest.raises(leasehold.OutOfStock):
            shop.reserve(database, {"tea": 100})
        assert shop.available(database, "tea") == 8
        assert len(shop.levels(database)) == 2
        assert shop.find(database, "over") is None or shop.reservations(database, state="held") == []


def test_no_foreign_code_runs_as_the_role_that_uses_idempotency_keys(trapped: str) -> None:
    keys = IdempotencyKeys("charges", sweep_every=1)
    with psycopg.connect(trapped) as database:
        for _ in range(2):
            database.execute(idempotency_schema("postgresql").encode())
            for replayed in (False, True):
                with database.transaction(), keys.attempt(database, "k", fingerprint="10 EUR") as attempt:
                    assert attempt.replayed is replayed
                    if not replayed:
                        attempt.complete(7)
            database.execute("UPDATE leasehold_idempotency SET expires_at = '-infinity'")
        assert keys.sweep(database) == 1


ACCOUNT = ("own", "account")
# What is known of the row: its name, in a type that has operators of its own, and numbers.
ON_TABLES_OF_THE_USERS: dict[str, Callable[[Any, Any], Any]] = {
    "lock_row": lambda tx, _: lock_row(tx, ACCOUNT, {"name": "ANN"}, wait="1s"),
    "lock_free_rows": lambda tx, _: lock_free_rows(tx, ACCOUNT, {"name": "ANN"}, order_by="name"),
    "cas_update": lambda tx, _: cas_update(tx, ACCOUNT, {"balance": 7}, where={"name": "ANN"}, version=1),
    "fenced_update": lambda tx, lease: fenced_update(tx, lease, ACCOUNT, {"balance": 7}, where={"name": "ANN"}),
    "Stock(table=)": lambda tx, _: Stock("s", table=ACCOUNT, item="name", available="balance").reserve(tx, {"ANN": 1}),
    "insert_once": lambda tx, _: not insert_once(tx, ACCOUNT, {"name": "ANN"}, key=["name"]).inserted,
}
SETS_ONLY = ("lock_row", "lock_free_rows", "insert_once")  # whose other statements and words are ours alone


@pytest.mark.parametrize("call", ON_TABLES_OF_THE_USERS)
def test_values_in_tables_of_the_users_own_are_compared_by_the_operators_of_their_search_path(
    trapped: str, call: str
) -> None:
    """A type of an extension is compared as it is in the program's own statements: here without regard to case.

    So it is for the program to have no schema in its path that others may write to: the traps for numbers are met.
    """
    with psycopg.connect(trapped) as database, leasehold.connect("memory:") as client:
        database.execute("CREATE SCHEMA own")
        database.execute("SET search_path = pg_catalog")
        database.execute("CREATE EXTENSION citext SCHEMA own")
        database.execute(
            "CREATE TABLE own.account "
            "(name own.citext PRIMARY KEY, balance bigint DEFAULT 5, version bigint DEFAULT 1, fence bigint DEFAULT 0)"
        )
        database.execute("INSERT INTO own.account VALUES ('ann')")
        database.commit()
        with client.lock("account").hold() as lease:
            for path, is_safe in (("own, public, pg_catalog", False), ("own, pg_catalog", True)):
                database.execute(f"SET search_path = {path}".encode())
                if is_safe or call in SETS_ONLY:
                    assert ON_TABLES_OF_THE_USERS[call](database, lease)
                else:
                    with pytest.raises(psycopg.Error, match="trap: ran as postgres"):
                        ON_TABLES_OF_THE_USERS[call](database, lease)
                database.rollback()
