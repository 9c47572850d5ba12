"""Idempotency keys mean the same over every kind of connection and every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold.errors import ConfigurationError, InFlight, KeyReused
from leasehold.sql import IdempotencyKeys, idempotency_schema
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import EVERY_DESK, fresh_schema, make_desk, make_mysql_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold.sql import TransactionAttempt
    from tests.sql.desks import Desk
    from verification.lab.mariadb import MariadbServer
    from verification.lab.postgres import PostgresServer

PLAIN = {"postgresql": "psycopg", "mysql": "pymysql", "sqlite": "sqlite3"}  # without a framework
HOSTILE = ["a'b", 'a"b', "a;DROP TABLE effect", "a\\", "%s %(key)s :key ? $1", "a\nb", "é\u2028😀", "--", "{}", " a "]


class Pair:
    """One connection of the kind that is tested, and a plain one to the same database."""

    def __init__(self, kind: str, database: str, url: str) -> None:
        self.database = database
        self.desk = make_desk(kind, url)
        self.other = make_desk(PLAIN[database], url)
        self.url = url


@pytest.fixture(scope="module")
def on_server(postgres: PostgresServer) -> str:
    """One database for all tests of this file: to make one takes longer than any of them."""
    return fresh_schema(postgres)


@pytest.fixture(scope="module")
def on_mariadb(mariadb: MariadbServer) -> str:
    """The same there."""
    return fresh_mariadb(mariadb)


@pytest.fixture(params=EVERY_DESK)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    database, _, kind = request.param.partition(" ")
    url = f"sqlite:///{tmp_path}/a.db"
    if database != "sqlite":
        url = request.getfixturevalue("on_server" if database == "postgresql" else "on_mariadb")
    pair = Pair(kind, database, url)
    for table in ("effect", "leasehold_idempotency"):
        with pair.other.begin() as tx:
            pair.other.run(tx, f"DROP TABLE IF EXISTS {table}")
    with pair.other.begin() as tx:
        pair.other.run(tx, "CREATE TABLE effect (n INTEGER)")
    if database == "mysql":  # no table is made inside a transaction
        make_mysql_tables(url)
    yield pair
    pair.desk.close()
    pair.other.close()


@pytest.fixture
def desk(pair: Pair) -> Desk:
    return pair.desk


@pytest.fixture
def keys() -> IdempotencyKeys:
    return IdempotencyKeys("charges", keep="1h", wait=0)


def count(desk: Desk, table: str = "effect") -> int:
    with desk.begin() as tx:
        ((n,),) = desk.run(tx, f"SELECT count(*) FROM {table}")
    return int(n)


def end_records(desk: Desk, condition: str = "1 = 1") -> None:
    """Let the records that fit be over."""
    with desk.begin() as tx:
        desk.run(tx, f"UPDATE leasehold_idempotency SET expires_at = completed_at WHERE {condition}")


def charge(
    desk: Desk, keys: IdempotencyKeys, key: str, body: object = "10 EUR", result: object = None, **words: Any
) -> TransactionAttempt:
    """The way a program is meant to do it."""
    with desk.begin() as tx, keys.attempt(tx, key, fingerprint=body, **words) as attempt:
        if not attempt.replayed:
            desk.run(tx, "INSERT INTO effect VALUES (1)")
            attempt.complete(result)
    return attempt


def test_work_is_done_once_and_its_result_is_replayed_as_it_was(pair: Pair, keys: IdempotencyKeys) -> None:
    result = {"id": 7, "parts": (1, 2.5, None, "é\0\ud800")}
    first = charge(pair.desk, keys, "k", {"a": 1, "b": 2}, result)
    again = charge(pair.desk, keys, "k", {"b": 2, "a": 1}, "not this")
    elsewhere = charge(pair.other, keys, "k", {"a": 1, "b": 2}, "nor this")
    assert [each.replayed for each in (first, again, elsewhere)] == [False, True, True]
    expected = {"id": 7, "parts": [1, 2.5, None, "é\0\ud800"]}
    assert first.result == again.result == elsewhere.result == expected
    assert count(pair.desk) == 1


def test_complete_gives_what_replays_will_give(desk: Desk, keys: IdempotencyKeys) -> None:
    with desk.begin() as tx, keys.attempt(tx, "k", fingerprint=None) as attempt:
        assert attempt.complete((1, 2)) == [1, 2]
    assert charge(desk, keys, "nothing").result is None


def test_key_with_another_payload_is_refused_and_nothing_is_done(desk: Desk, keys: IdempotencyKeys) -> None:
    charge(desk, keys, "k", b"10 EUR", 1)
    with pytest.raises(KeyReused, match="another payload") as caught:
        charge(desk, keys, "k", b"99 EUR", 2)
    assert (caught.value.key, caught.value.name) == ("k", "charges")
    assert charge(desk, keys, "k", b"10 EUR").result == 1
    assert charge(desk, keys, "k", None).result == 1, "no fingerprint: not compared, on purpose"
    assert count(desk) == 1


def test_keys_of_other_principals_and_other_names_are_other_keys(desk: Desk, keys: IdempotencyKeys) -> None:
    other = IdempotencyKeys("refunds", wait=0)
    assert not charge(desk, keys, "k", "a", 1).replayed
    assert not charge(desk, keys, "k", "b", 2, principal="ann").replayed
    assert not charge(desk, keys, "k", "c", 3, principal="bob").replayed
    assert not charge(desk, other, "k", "d", 4).replayed
    results = [charge(desk, keys, "k", None, principal=who).result for who in (None, "ann", "bob")]
    assert results == [1, 2, 3]
    assert count(desk) == 4


def test_hostile_texts_are_only_texts(desk: Desk, keys: IdempotencyKeys) -> None:
    for place, text in enumerate(HOSTILE):
        assert not charge(desk, keys, text, text, [text, place], principal=text).replayed
    for place, text in enumerate(HOSTILE):
        assert charge(desk, keys, text, text, principal=text).result == [text, place]
    assert count(desk) == len(HOSTILE)


def test_work_that_is_rolled_back_leaves_the_key_free(desk: Desk, keys: IdempotencyKeys) -> None:
    with pytest.raises(KeyError), desk.begin() as tx, keys.attempt(tx, "k", fingerprint="x") as attempt:
        desk.run(tx, "INSERT INTO effect VALUES (1)")
        attempt.complete(1)
        raise KeyError
    assert count(desk) == 0
    assert not charge(desk, keys, "k", "another payload", 2).replayed
    assert count(desk) == 1


def test_block_without_complete_records_nothing(desk: Desk, keys: IdempotencyKeys) -> None:
    with desk.begin() as tx, keys.attempt(tx, "k", fingerprint="x") as attempt:
        pass
    with pytest.raises(ConfigurationError, match="no result"):
        _ = attempt.result
    assert not charge(desk, keys, "k", "y").replayed


def test_attempt_is_in_flight_until_its_transaction_ends(pair: Pair, keys: IdempotencyKeys) -> None:
    charge(pair.other, keys, "done before", "x", 5)
    with pair.desk.begin() as tx, keys.attempt(tx, "k", fingerprint="x") as attempt:
        pair.desk.run(tx, "INSERT INTO effect VALUES (1)")
        attempt.complete(1)
        for _ in range(2):
            with pytest.raises(InFlight) as caught:
                charge(pair.other, keys, "k", "x")
        assert (caught.value.key, caught.value.retry_after) == ("k", 1.0)
        assert charge(pair.other, keys, "done before", "x").result == 5, "what is completed is replayed all the same"
    assert charge(pair.other, keys, "k", "x").result == 1
    assert count(pair.desk) == 2


def test_rollback_ends_being_in_flight(pair: Pair, keys: IdempotencyKeys) -> None:
    charge(pair.other, keys, "first", "x")
    with pytest.raises(KeyError), pair.desk.begin() as tx, keys.attempt(tx, "k", fingerprint="x"):
        raise KeyError
    assert not charge(pair.other, keys, "k", "x").replayed


def test_one_transaction_may_use_several_keys_and_complete_them_in_any_order(pair: Pair, keys: IdempotencyKeys) -> None:
    desk = pair.desk
    with (
        desk.begin() as tx,
        keys.attempt(tx, "a", fingerprint="x") as one,
        keys.attempt(tx, "b", fingerprint="x") as two,
        keys.attempt(tx, "c", fingerprint="x") as three,
    ):
        two.complete(2)
        one.complete(1)
        three.complete(3)
    with desk.begin() as tx, keys.attempt(tx, "d", fingerprint="x") as four:
        four.complete(4)
        with keys.attempt(tx, "d", fingerprint="x") as again:
            assert again.result == 4
    assert [charge(pair.other, keys, key, "x").result for key in "abcd"] == [1, 2, 3, 4]


def test_key_is_completed_once_also_inside_one_transaction(desk: Desk, keys: IdempotencyKeys) -> None:
    with (
        pytest.raises(ConfigurationError, match="same transaction"),
        desk.begin() as tx,
        keys.attempt(tx, "k", fingerprint="x") as outer,
        keys.attempt(tx, "k", fingerprint="x") as inner,
    ):
        inner.complete(1)
        outer.complete(2)
    assert not charge(desk, keys, "k", "x").replayed, "nothing of it was committed"


def test_attempt_may_be_completed_inside_a_savepoint_and_goes_with_it(pair: Pair, keys: IdempotencyKeys) -> None:
    desk = pair.desk
    with desk.begin() as tx, keys.attempt(tx, "k", fingerprint="x") as attempt:
        desk.run(tx, "SAVEPOINT mine")
        desk.run(tx, "INSERT INTO effect VALUES (1)")
        attempt.complete(1)
        desk.run(tx, "RELEASE SAVEPOINT mine")
    assert charge(pair.other, keys, "k", "x").result == 1
    with desk.begin() as tx:
        desk.run(tx, "INSERT INTO effect VALUES (2)")
        desk.run(tx, "SAVEPOINT mine")
        with keys.attempt(tx, "taken back", fingerprint="x") as attempt:
            attempt.complete(1)
        desk.run(tx, "ROLLBACK TO SAVEPOINT mine")
    assert not charge(pair.other, keys, "taken back", "x").replayed


def test_rollback_to_before_the_attempt_is_noticed(desk: Desk, keys: IdempotencyKeys) -> None:
    charge(desk, keys, "first", "x")
    with pytest.raises(ConfigurationError, match="inside the attempt's block"), desk.begin() as tx:
        desk.run(tx, "UPDATE effect SET n = 2")
        desk.run(tx, "SAVEPOINT mine")
        with keys.attempt(tx, "k", fingerprint="x") as attempt:
            desk.run(tx, "INSERT INTO effect VALUES (1)")
            desk.run(tx, "ROLLBACK TO SAVEPOINT mine")
            attempt.complete(1)
    assert not charge(desk, keys, "k", "x").replayed
    assert count(desk) == 2


def test_record_that_is_over_is_as_if_it_had_never_been(desk: Desk, keys: IdempotencyKeys) -> None:
    charge(desk, keys, "k", "x", 1)
    charge(desk, keys, "other", "x", 1)
    end_records(desk, "leasehold_idempotency.key = 'k'")
    second = charge(desk, keys, "k", "another payload", 2)
    assert (second.replayed, second.result) == (False, 2)
    assert charge(desk, keys, "k", "another payload").result == 2
    assert charge(desk, keys, "other", "x").replayed


def test_records_are_kept_as_long_as_was_said(desk: Desk) -> None:
    for keep in (60, 3600):
        charge(desk, IdempotencyKeys("charges", keep=keep), f"{keep}", "x")
    with desk.begin() as tx:
        rows = desk.run(tx, "SELECT r.key, r.expires_at, r.completed_at FROM leasehold_idempotency AS r")
    for key, end, begin in rows:
        kept = end - begin if isinstance(end, float) else (end - begin).total_seconds()
        assert abs(kept - int(key)) < 0.01


def test_sweep_removes_what_is_over_and_not_more_than_it_may(desk: Desk, keys: IdempotencyKeys) -> None:
    plain = IdempotencyKeys("charges", sweep_every=0)
    for number in range(5):
        charge(desk, plain, f"old {number}", "x")
    charge(desk, plain, "new", "x")
    end_records(desk, "leasehold_idempotency.key <> 'new'")
    with desk.begin() as tx:
        assert keys.sweep(tx, limit=2) == 2
    assert count(desk, "leasehold_idempotency") == 4
    with desk.begin() as tx:
        assert keys.sweep(tx) == 3
        assert keys.sweep(tx) == 0
    assert charge(desk, keys, "new", "x").replayed


def test_some_of_what_is_over_is_removed_with_new_keys(desk: Desk) -> None:
    plain = IdempotencyKeys("charges", sweep_every=0)
    sweeping = IdempotencyKeys("charges", sweep_every=2)  # with the first, the third, ...: at most four each time
    for number in range(10):
        charge(desk, plain, f"old {number}", "x")
    end_records(desk)
    seen = []
    for number in range(6):
        charge(desk, sweeping, f"new {number}", "x")
        seen.append(count(desk, "leasehold_idempotency"))
    assert seen == [7, 8, 5, 6, 5, 6]
    charge(desk, sweeping, "new 0", "x")
    assert count(desk, "leasehold_idempotency") == 6, "a replay removes nothing"


def test_attempts_that_are_used_wrongly_are_refused(desk: Desk, keys: IdempotencyKeys) -> None:
    attempt = charge(desk, keys, "k", "x", 1)
    replay = charge(desk, keys, "k", "x", 1)
    with pytest.raises(ConfigurationError, match="completed before"):
        replay.complete(2)
    with pytest.raises(ConfigurationError, match="once"):
        attempt.complete(2)
    with desk.begin() as tx:
        with pytest.raises(ConfigurationError, match="one block only"), attempt:
            pass
        fresh = keys.attempt(tx, "late", fingerprint="x")
        with pytest.raises(ConfigurationError, match="begins with its block"):
            _ = fresh.replayed
        with fresh:
            pass
        with pytest.raises(ConfigurationError, match="inside its block"):
            fresh.complete(1)


@pytest.mark.parametrize(
    ("result", "reason"),
    [(object(), "JSON"), (float("nan"), "JSON"), ({(): 1}, "JSON"), ("x" * 99, "max_result is 100")],
)
def test_results_that_cannot_be_kept_are_refused_and_the_work_is_not_committed(
    desk: Desk, result: object, reason: str
) -> None:
    keys = IdempotencyKeys("charges", max_result=100)
    with pytest.raises(ConfigurationError, match=reason):
        charge(desk, keys, "k", "x", result)
    assert count(desk) == 0
    assert charge(desk, keys, "k", "x", "x" * 98).result == "x" * 98


def test_table_that_the_owner_made_is_used(pair: Pair, keys: IdempotencyKeys) -> None:
    dialect = pair.database
    for _ in range(2):
        for statement in keys.schema(dialect).split(";\n")[:-1]:
            with pair.other.begin() as tx:
                pair.other.run(tx, statement)
    assert keys.schema(dialect) == idempotency_schema(dialect)
    charge(pair.desk, keys, "k", "x", 1)
    assert charge(pair.other, keys, "k", "x").result == 1
