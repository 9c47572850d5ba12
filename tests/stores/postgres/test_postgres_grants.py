"""What is left in PostgreSQL when a grant or a claim is over: withdrawn, broken, kept for a min_hold, upgraded."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import leasehold
from leasehold._backends.postgres.ddl import VERSION
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Refusal
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ["rows", "session"]
EARLIER_TABLES = Path(__file__).parents[2] / "servers"
RUNTIME = ThreadRuntime()


@pytest.fixture(params=MODES)
def backend(request: pytest.FixtureRequest, database: str) -> Iterator[Any]:
    """A backend whose tables are new."""
    backend: Any = find_store(f"{database}?mode={request.param}").open_backend(RUNTIME)
    yield backend
    run(backend.close())


@pytest.fixture
def rows(database: str) -> Iterator[Any]:
    """A backend that can queue."""
    backend: Any = find_store(database).open_backend(RUNTIME)
    yield backend
    run(backend.close())


@pytest.fixture
def table(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A look at the tables."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def claim_of(name: str = "job", **changes: Any) -> Claim:
    facts: dict[str, Any] = {"ttl": 60.0, "mode": Mode.EXCLUSIVE, "capacity": 1, "min_hold": 0.0, **changes}
    return Claim(key=f"leasehold:{name}", owner=RUNTIME.owner(), holder=Holder("host", 1), **facts)


def count(table: psycopg.Connection[Any], what: str) -> int:
    row = table.execute(f"SELECT count(*) FROM leasehold.{what}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_withdrawal_without_doubt_leaves_nothing_behind(backend: Any, table: psycopg.Connection[Any]) -> None:
    never = claim_of("never seen")
    run(backend.withdraw(never, doubt=False))
    assert count(table, "lock") == 0, "not even the row of its name"
    granted, refused = claim_of(), claim_of()
    assert isinstance(run(backend.try_acquire(granted)), Grant)
    assert isinstance(run(backend.try_acquire(refused)), Refusal)
    run(backend.withdraw(refused, doubt=False))
    run(backend.withdraw(granted, doubt=False))
    assert count(table, "claim") == 0
    assert count(table, "lock WHERE shape <> 0") == 0
    assert isinstance(run(backend.try_acquire(claim_of())), Grant)


def test_withdrawal_with_doubt_refuses_a_late_copy_and_without_it_does_not(backend: Any) -> None:
    late = claim_of()
    run(backend.withdraw(late))
    assert isinstance(run(backend.try_acquire(late)), Refusal)
    answered = claim_of()
    run(backend.withdraw(answered, doubt=False))
    assert isinstance(run(backend.try_acquire(answered)), Grant)


def test_place_that_is_withdrawn_without_doubt_is_gone_and_the_next_in_line_is_let_in(
    rows: Any, table: psycopg.Connection[Any]
) -> None:
    grant = run(rows.try_acquire(claim_of()))
    first, second = claim_of(), claim_of()
    run(rows.join(first))
    place = run(rows.join(second))
    run(rows.withdraw(first, doubt=False))
    assert count(table, "claim WHERE state = 4") == 0
    assert run(rows.release(grant)) is True
    assert isinstance(run(rows.turn(place)), Grant)


def test_place_lives_for_three_seconds_however_long_the_ttl_is(rows: Any, table: psycopg.Connection[Any]) -> None:
    run(rows.try_acquire(claim_of()))
    waiting = claim_of()
    long = "claim WHERE state = 3 AND expires > clock_timestamp() + interval '4 seconds'"
    place: Any = None
    for verb in ("join", "join", "turn"):
        place = run(rows.turn(place) if verb == "turn" else rows.join(waiting))
        assert isinstance(place, Place)
        assert (count(table, "claim WHERE state = 3"), count(table, long)) == (1, 0)


def test_withdrawal_of_a_grant_that_knew_of_an_abandoned_one_passes_that_on(rows: Any) -> None:
    run(rows.try_acquire(claim_of(ttl=0.05)))
    run(RUNTIME.sleep(0.1))
    told = claim_of()
    assert run(rows.try_acquire(told)).abandoned is True
    run(rows.withdraw(told, doubt=False))
    assert run(rows.try_acquire(claim_of())).abandoned is True


def test_marks_of_withdrawn_claims_do_not_make_a_name_slow(rows: Any, table: psycopg.Connection[Any]) -> None:
    """What counts is how many rows a call looks at, however many marks there are; nothing was analysed before."""
    run(rows.try_acquire(claim_of()))
    table.execute("ALTER TABLE leasehold.claim SET (autovacuum_enabled = off)")
    for _ in range(8):  # so that plans are made and kept while the table is small
        run(rows.withdraw(claim_of()))
        run(rows.try_acquire(claim_of()))
    table.execute(
        "INSERT INTO leasehold.claim (key, owner, state, mode, capacity, ttl, min_hold, holder, since, expires) "
        "SELECT 'leasehold:job', md5(n::text), 4, 'exclusive', 1, 60, 0, '{}', now(), "
        "now() + (CASE WHEN n > 1000 THEN 1 ELSE -1 END) * interval '1 hour' FROM generate_series(1, 20000) AS n"
    )
    table.execute("UPDATE leasehold.lock SET look = '-infinity'")
    before = seen_rows(table)
    for _ in range(50):
        assert isinstance(run(rows.try_acquire(claim_of())), Refusal)
        run(rows.withdraw(claim_of()))
    looked = seen_rows(table) - before
    assert looked < 50 * 500, f"100 calls looked at {looked} rows"
    assert count(table, "claim WHERE state = 4 AND expires < now()") == 0, "those that ran out are gone"


def seen_rows(table: psycopg.Connection[Any]) -> int:
    """How many rows of `claim` were looked at, by all sessions that have ended a transaction since."""
    run(RUNTIME.sleep(1.2))  # sessions tell their counts once a second
    row = table.execute(
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables "
        "WHERE schemaname = 'leasehold' AND relname = 'claim'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_release_of_a_broken_grant_answers_with_the_reason_and_keeps_it_for_its_min_hold(backend: Any) -> None:
    grant = run(backend.try_acquire(claim_of(min_hold=30.0)))
    assert run(backend.break_(grant.claim.key, grant.fence, "it \"hangs\" 'ä'", now=False)) is True
    (renewal,) = run(backend.renew([grant]))
    assert run(backend.release(grant)) == renewal == Loss(LossReason.BROKEN, "it \"hangs\" 'ä'")
    refusal = run(backend.try_acquire(claim_of()))
    assert isinstance(refusal, Refusal)
    assert refusal.retry_after is not None
    assert 20 < refusal.retry_after <= 30
    (holding,) = run(backend.inspect(grant.claim.key)).holdings
    assert (holding.cooling, holding.broken) == (True, "it \"hangs\" 'ä'")
    assert run(backend.renew([grant])) == [renewal]
    assert run(backend.release(grant)) == renewal, "the answer to the first release may be lost"


def test_reason_of_a_break_at_once_outlives_a_release_and_a_withdrawal(
    backend: Any, table: psycopg.Connection[Any]
) -> None:
    """The answer to the first release may be lost; the second one must not say that the lock was free all the time."""
    grant = run(backend.try_acquire(claim_of(min_hold=30.0)))
    broken = Loss(LossReason.BROKEN, "stuck")
    assert run(backend.break_(grant.claim.key, grant.fence, "stuck", now=True)) is True
    assert run(backend.renew([grant])) == [broken]
    assert isinstance(run(backend.try_acquire(claim_of())), Grant), "its place is free at once"
    assert run(backend.release(grant)) == broken
    run(backend.withdraw(grant.claim))
    assert run(backend.release(grant)) == broken
    table.execute("UPDATE leasehold.claim SET expires = now() - interval '1 s' WHERE state = 5")
    table.execute("UPDATE leasehold.lock SET look = '-infinity'")
    assert run(backend.release(grant)) is False, "the note ends with the ttl"
    assert count(table, "claim WHERE state = 5") == 0


def test_note_of_a_break_at_once_stays_for_a_withdrawal_with_doubt_and_not_without(
    backend: Any, table: psycopg.Connection[Any]
) -> None:
    grant = run(backend.try_acquire(claim_of(ttl=60.0)))
    assert run(backend.break_(grant.claim.key, grant.fence, "stuck", now=True)) is True
    table.execute("UPDATE leasehold.claim SET expires = now() + interval '5 s' WHERE state = 5")
    run(backend.withdraw(grant.claim))
    assert count(table, "claim WHERE state = 5 AND expires > now() + interval '50 s'") == 1, "it refuses for a ttl"
    assert isinstance(run(backend.try_acquire(grant.claim)), Refusal)
    run(backend.withdraw(grant.claim, doubt=False))
    assert count(table, "claim") == 0


def test_release_of_a_broken_grant_lets_the_next_in_line_in(rows: Any) -> None:
    grant = run(rows.try_acquire(claim_of()))
    place = run(rows.join(claim_of()))
    run(rows.break_(grant.claim.key, grant.fence, "gone wrong", now=False))
    assert isinstance(run(rows.release(grant)), Loss)
    assert isinstance(run(rows.turn(place)), Grant)


def test_clock_that_fell_back_does_not_keep_a_lock_that_is_released(
    backend: Any, table: psycopg.Connection[Any]
) -> None:
    for min_hold in (0.0, 0.05):
        claim = claim_of(min_hold=min_hold)
        grant = run(backend.try_acquire(claim))
        run(backend.try_acquire(claim_of()))  # so that it has a row of its own
        table.execute(
            "UPDATE leasehold.claim SET since = since + interval '1 hour', expires = expires + interval '1 h'"
        )
        assert run(backend.release(grant)) is True
        if min_hold:
            run(RUNTIME.sleep(2 * min_hold))
        again = run(backend.try_acquire(claim_of()))
        assert isinstance(again, Grant), "nobody may be kept out for as long as the clock fell back"
        assert run(backend.release(again)) is True


def test_claim_that_does_not_wait_is_refused_without_a_lock_on_the_row_of_its_name(
    backend: Any, table: psycopg.Connection[Any]
) -> None:
    """Clients that poll kept the row locked in turn; a release waited for each of them, and missed its time."""
    grant = run(backend.try_acquire(claim_of()))
    with table.transaction():
        table.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
        refusal = run(backend.try_acquire(claim_of(), RUNTIME.now() + 10))
        shared = run(backend.try_acquire(claim_of(mode=Mode.SHARED), RUNTIME.now() + 10))
    assert isinstance(refusal, Refusal)
    assert isinstance(shared, Refusal)
    assert refusal.holder == grant.claim.holder
    assert refusal.retry_after is not None
    assert 50 < refusal.retry_after <= 60
    assert run(backend.release(grant)) is True
    assert isinstance(run(backend.try_acquire(claim_of())), Grant)


def test_claims_that_raced_for_a_free_name_leave_its_holder_in_the_row_of_the_name(
    database: str, backend: Any, table: psycopg.Connection[Any]
) -> None:
    """Each loser gave the holder a row of its own: one more write under the lock that the release waits for."""
    run(backend.release(run(backend.try_acquire(claim_of()))))
    others: list[Any] = [find_store(f"{database}?mode=session").open_backend(RUNTIME) for _ in range(4)]
    answers: list[Any] = []
    with table.transaction():
        table.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
        threads = [
            threading.Thread(target=lambda other=other: answers.append(run(other.try_acquire(claim_of()))))
            for other in others
        ]
        for thread in threads:
            thread.start()
        waiting = "pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')"
        eventually(lambda: table.execute(f"SELECT count(*) FROM {waiting}".encode()).fetchone() == (4,))
    for thread in threads:
        thread.join()
    assert sorted(type(answer).__name__ for answer in answers) == ["Grant", *["Refusal"] * 3]
    assert count(table, "claim") == 0
    for other in others:
        run(other.close())


def test_release_finds_one_of_many_claims_before_it_at_the_row_of_its_name(
    database: str, table: psycopg.Connection[Any]
) -> None:
    """All waited for the row, each commit let all compete anew, and a release among forty could lose for long."""
    backend: Any = find_store(f"{database}?connections=20&answer_timeout=60").open_backend(RUNTIME)
    grant = run(backend.try_acquire(claim_of()))
    order: list[str] = []

    def note(name: str, call: Any) -> None:
        run(call)
        order.append(name)

    def waiting(kinds: str) -> int:
        row = table.execute(f"SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ({kinds})".encode())
        return int((row.fetchone() or [0])[0])

    with table.transaction():
        table.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
        joins = [threading.Thread(target=note, args=("join", backend.join(claim_of()))) for _ in range(10)]
        for thread in joins:
            thread.start()
        eventually(lambda: waiting("'advisory'") == 9, "they do not pass the gate one after the other")
        assert waiting("'tuple', 'transactionid'") == 1
        release = threading.Thread(target=note, args=("release", backend.release(grant)))
        release.start()
        eventually(lambda: waiting("'tuple', 'transactionid'") == 2)
    for thread in (*joins, release):
        thread.join()
    assert order.index("release") <= 3, order
    run(backend.close())


def test_min_hold_is_kept_after_a_release(backend: Any) -> None:
    grant = run(backend.try_acquire(claim_of(min_hold=30.0)))
    assert run(backend.release(grant)) is True
    refusal = run(backend.try_acquire(claim_of()))
    assert isinstance(refusal, Refusal)
    assert refusal.retry_after is not None
    assert 20 < refusal.retry_after <= 30


@pytest.mark.parametrize(("earlier", "freed"), [(1, True), (2, "freed"), (4, "freed")])
def test_tables_of_an_earlier_version_are_upgraded_and_what_is_held_stays_held(
    database: str, table: psycopg.Connection[Any], earlier: int, freed: bool | str
) -> None:
    table.execute((EARLIER_TABLES / f"postgres_tables_{earlier}.sql").read_bytes())
    assert table.execute("SELECT version FROM leasehold.about").fetchone() == (earlier,)
    verbs = min(earlier, 3)  # version 4 kept their names
    table.execute(
        f"SELECT leasehold.acquire_{verbs}('leasehold:job', 'other', 60, 'exclusive', 1, 0, '{{}}', 0, false, NULL, "
        "false)".encode()
    )
    with leasehold.connect(database, ttl=20) as client:
        client.lock("other").acquire(timeout=60).release()  # upgrades, which may take longer than a try
        assert client.lock("job").try_acquire() is None
        rows = table.execute(
            "SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'leasehold'::regnamespace "
            "AND p.proname LIKE '%\\_1' "
            "AND (p.proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = ANY (proconfig))"
        ).fetchall()
        assert rows == [], "older clients call these still"
        fence = client.inspect("job").holdings[0].fence  # type: ignore[union-attr]
        release = f"SELECT leasehold.release_{verbs}('leasehold:job', 'other', %s)".encode()
        row = table.execute(release, [fence]).fetchone()
        assert row == (freed,), "an older client works beside a newer one"
        client.lock("job").acquire(timeout=20).release()
        assert table.execute("SELECT version FROM leasehold.about").fetchone() == (VERSION,)


def test_the_first_pause_upgrades_tables_of_version_3_and_clients_of_that_version_keep_to_it(
    database: str, table: psycopg.Connection[Any]
) -> None:
    table.execute((EARLIER_TABLES / "postgres_tables_3.sql").read_bytes())
    acquire = b"SELECT verdict FROM leasehold.acquire_3(%s, %s, 60, %s, %s, 0, '{}', 0, false, NULL, false)"
    assert table.execute(acquire, [b"leasehold:held", "older", "exclusive", 1]).fetchone() == ("granted",)
    with leasehold.connect(database) as client:
        client.pause("job", reason="moving")
        assert table.execute("SELECT version FROM leasehold.about").fetchone() == (VERSION,)
        assert client.inspect("held") is not None
        for mode, capacity in (("exclusive", 1), ("shared", 1), ("permit", 2)):
            row = table.execute(acquire, [b"leasehold:job", f"older {mode}", mode, capacity]).fetchone()
            assert row == ("refused",), mode
        assert client.resume("job")
    assert table.execute(acquire, [b"leasehold:job", "older", "permit", 2]).fetchone() == ("granted",)


@pytest.mark.parametrize("contended", [False, True])
def test_grant_whose_time_is_over_is_neither_renewed_nor_released(
    backend: Any,
    table: psycopg.Connection[Any],
    contended: bool,
) -> None:
    """Nobody has come for it yet, so that it is still there: alone in the row of its name, or with one of its own."""
    permits: dict[str, Any] = {"mode": Mode.PERMIT, "capacity": 2} if contended else {}
    grant = run(backend.try_acquire(claim_of(**permits)))
    if contended:
        run(backend.try_acquire(claim_of(**permits)))
        assert count(table, "claim") == 2
    for kind in ("lock", "claim"):
        table.execute(f"UPDATE leasehold.{kind} SET expires = now() - interval '1 s'".encode())
    table.execute("UPDATE leasehold.lock SET look = '-infinity'")
    (answer,) = run(backend.renew([grant]))
    assert isinstance(answer, Loss)
    assert run(backend.release(grant)) is False


@pytest.mark.parametrize("end", ["a release", "a break"])
def test_lock_that_is_handed_to_a_waiter_that_is_gone_is_soon_free_again(rows: Any, end: str) -> None:
    """It lasts for three re-checks, not for the ttl, until its new holder has shown that it lives."""
    grant = run(rows.try_acquire(claim_of()))
    run(rows.join(claim_of(ttl=600.0)))
    if end == "a release":
        assert run(rows.release(grant)) is True
    else:
        assert run(rows.break_(grant.claim.key, grant.fence, "stuck", now=True)) is True
    state = run(rows.inspect(grant.claim.key))
    assert state is not None
    assert state.holdings[0].expires_in <= 3


def test_only_a_holder_that_did_not_release_is_reported_as_abandoned(rows: Any, table: psycopg.Connection[Any]) -> None:
    grant = run(rows.try_acquire(claim_of()))
    run(rows.join(claim_of()))
    table.execute(
        "UPDATE leasehold.claim SET expires = now() - interval '1 s' WHERE state = 3"
    )  # a waiter that is gone
    table.execute("UPDATE leasehold.lock SET look = '-infinity'")
    assert run(rows.release(grant)) is True
    second = run(rows.try_acquire(claim_of()))
    assert second.abandoned is False
    run(rows.break_(second.claim.key, second.fence, "stuck", now=True))
    assert run(rows.try_acquire(claim_of())).abandoned is True
