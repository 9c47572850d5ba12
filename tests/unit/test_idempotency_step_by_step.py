"""Idempotency keys on servers, statement by statement: what is kept, who is waited for, what ends the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, InFlight, KeyReused, RetryTransaction
from leasehold.sql.idempotency import mysql, postgresql
from leasehold.sql.idempotency.record import Kept, Opened, Rules, make_claim, replayable
from leasehold.sql.wires import Answer, Transaction
from tests.unit.scripted_wire import ScriptedWire, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

CLAIM = make_claim("charges", "ann", "k", "body")
THEIRS = "another payload"  # the fingerprint of the record that is found
RULES = Rules(keep=70.0, wait=None, retry_after=2.5, schema=None)
PATIENT = Rules(keep=70.0, wait=9.0, retry_after=2.5, schema=None)

# --- PostgreSQL

HOME = rows(('["s"]', "s", ""))
NOTHING = (None, None)
MINE = rows((*NOTHING, True, "read committed"))
TAKEN = rows((*NOTHING, False, "read committed"))


def begin(*answers: Any, rules: Rules = RULES) -> tuple[Any, ScriptedWire]:
    wire = ScriptedWire(HOME, *answers)
    return run(postgresql.begin(wire, CLAIM, rules)), wire


def test_what_postgresql_keeps_is_compared_with_the_payload_whenever_it_is_found() -> None:
    at_once, _ = begin(rows((THEIRS, "1", None, "read committed")))
    after_the_lock, _ = begin(MINE, rows((THEIRS, "2", "token")))
    after_a_pause, _ = begin(TAKEN, rows(), rows((THEIRS, "3", None, "read committed")), rules=PATIENT)
    assert [at_once, after_the_lock, after_a_pause] == [Kept(THEIRS, result) for result in "123"]
    for kept in (at_once, after_the_lock, after_a_pause):
        with pytest.raises(KeyReused):
            replayable(CLAIM, kept)


@pytest.mark.parametrize(
    ("level", "may_sweep"),
    [("read committed", True), ("read uncommitted", True), ("repeatable read", False), ("serializable", False)],
)
def test_an_attempt_of_postgresql_knows_its_table_and_whether_it_may_sweep(level: str, may_sweep: bool) -> None:
    opened, wire = begin(rows((*NOTHING, True, level)), rows((*NOTHING, "token")))
    assert opened == Opened(opened.token, "s", may_sweep=may_sweep)
    assert wire.asked[-1][1] == {"name": "charges", "principal": "ann", "key": "k", "token": opened.token}
    assert wire.asked[-2][1]["number"] == CLAIM.number()
    assert all('"s".leasehold_idempotency' in statement for statement in wire.statements[1:])


def test_an_attempt_of_postgresql_that_has_waited_goes_on_only_where_it_sees_what_was_committed() -> None:
    opened, _ = begin(TAKEN, rows(), MINE, rows((*NOTHING, "token")), rules=PATIENT)
    assert isinstance(opened, Opened)
    with pytest.raises(RetryTransaction, match="sees the database as it was before that"):
        begin(TAKEN, rows(), rows((*NOTHING, True, "repeatable read")), rules=PATIENT)
    with pytest.raises(InFlight, match="the attempt that came first is not over") as caught:
        begin(TAKEN)
    assert (caught.value.name, caught.value.key, caught.value.retry_after) == ("charges", "k", 2.5)


def test_a_table_of_postgresql_that_another_transaction_makes_is_in_flight_like_its_keys() -> None:
    nowhere, not_alone = rows((None, "public", "")), rows((False,))
    wire = ScriptedWire(nowhere, not_alone)
    with pytest.raises(InFlight, match="the table of keys is made by a transaction") as caught:
        run(postgresql.begin(wire, CLAIM, RULES))
    assert caught.value.retry_after == 2.5
    again = ScriptedWire(nowhere, not_alone, rows(), HOME, MINE, rows((*NOTHING, "token")))
    assert isinstance(run(postgresql.begin(again, CLAIM, PATIENT)), Opened)
    assert run(postgresql.sweep(ScriptedWire(nowhere, not_alone), 5, None)) == 0


OPENED = Opened("token", "s")


@pytest.mark.parametrize(
    ("here", "words"), [(True, "another attempt of this same transaction"), (False, "inside the attempt's block")]
)
def test_a_completion_that_postgresql_does_not_take_says_why_and_ends_the_transaction(here: bool, words: str) -> None:
    wire = ScriptedWire(rows(), rows((here,)))
    with pytest.raises(ConfigurationError, match=words):
        run(postgresql.complete(wire, CLAIM, OPENED, "7", RULES))
    assert "RAISE EXCEPTION" in wire.statements[-1]
    assert wire.asked[0][1] == {
        "name": "charges", "principal": "ann", "key": "k", "fingerprint": CLAIM.fingerprint,
        "result": "7", "keep": 70.0, "token": "token",
    }  # fmt: skip


def test_a_sweep_of_postgresql_tells_how_many_it_has_removed_of_as_many_as_it_may() -> None:
    wire = ScriptedWire(HOME, Answer([], 3))
    assert run(postgresql.sweep(wire, 8, "s")) == 3
    assert wire.asked[-1][1] == {"limit": 8}


# --- MySQL and MariaDB


class Server:
    """A driver that says what it is connected to."""

    def get_server_info(self) -> str:
        return "10.11.6-MariaDB"


class Mysql(ScriptedWire):
    """Says after the statements in `states` that the server is in another state."""

    def __init__(self, *answers: Any, states: Mapping[str, Transaction] | None = None) -> None:
        super().__init__(*answers, dialect="mysql")
        self.driver = Server()
        self._states = states or {}

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        self.state = self._states.get(statement, self.state)
        return await super().query(statement, values)


def locked(number: int = 1205) -> Exception:
    error: Exception = pymysql.OperationalError(number, "locked")
    return error


def hexadecimal(*words: str) -> list[str]:
    return [word.encode().hex() for word in words]


INNODB = rows(("leasehold_idempotency", "CREATE TABLE ... ENGINE=InnoDB"))
TOOK = Answer([], 1)


def newest(fingerprint: bytes | None, result: str | None, over: int, level: str = "REPEATABLE-READ") -> Answer:
    return rows((fingerprint, result, over, level))


@pytest.mark.parametrize("number", [1205, 3572])
def test_what_mysql_keeps_is_compared_with_the_payload_whenever_it_is_found(number: int) -> None:
    has_the_row = Mysql(TOOK, INNODB, newest(THEIRS.encode(), "1", 0))
    beside_another = Mysql(locked(number), rows(), rows((THEIRS.encode(), "2")))
    found = [run(mysql.begin(wire, CLAIM, RULES)) for wire in (has_the_row, beside_another)]
    assert found == [Kept(THEIRS, "1"), Kept(THEIRS, "2")]
    assert [list(wire.asked[-1][1].values())[:3] for wire in (has_the_row, beside_another)] == [
        hexadecimal("charges", "ann", "k")
    ] * 2
    assert has_the_row.asked[0][1]["keep"] == 70.0


@pytest.mark.parametrize(
    ("row", "may_sweep"),
    [
        (newest(None, None, 0), True),
        (newest(b"x", "1", 1), True),
        (newest(None, None, 0, "READ-COMMITTED"), True),
        (newest(None, None, 0, "SERIALIZABLE"), False),
    ],
)
def test_an_attempt_of_mysql_begins_where_nothing_is_kept_any_more(row: Answer, may_sweep: bool) -> None:
    wire = Mysql(TOOK, INNODB, row)
    rules = Rules(keep=70.0, wait=None, retry_after=1.0, schema="shop")
    opened = run(mysql.begin(wire, CLAIM, rules))
    assert isinstance(opened, Opened)
    assert opened == Opened(opened.token, "shop", may_sweep=may_sweep)
    assert wire.statements[-1] == f"SAVEPOINT leasehold_{opened.token}"
    assert all("`shop`.leasehold_idempotency" in statement for statement in wire.statements[:-1])


def test_an_attempt_of_mysql_that_meets_another_is_told_or_waits() -> None:
    wire = Mysql(locked(), rows(), rows())
    with pytest.raises(InFlight) as caught:
        run(mysql.begin(wire, CLAIM, RULES))
    assert (caught.value.name, caught.value.key, caught.value.retry_after) == ("charges", "k", 2.5)
    patient = Mysql(locked(), rows(), rows(), rows(), TOOK, INNODB, newest(None, None, 0))
    assert isinstance(run(mysql.begin(patient, CLAIM, PATIENT)), Opened)
    assert patient.statements[3] == "DO SLEEP(%(pause)s)"


def test_a_server_that_has_rolled_back_at_a_lock_is_noticed_only_where_something_was_open() -> None:
    ended = {"DO 0": Transaction.OPENS}
    with pytest.raises(RetryTransaction, match="set to roll back a transaction that meets a lock"):
        run(mysql.begin(Mysql(locked(), states=ended), CLAIM, RULES))
    first = Mysql(locked(), rows((None, "1")))
    first.state = Transaction.OPENS
    assert run(mysql.begin(first, CLAIM, RULES)) == Kept(None, "1"), "there was nothing to lose"


@pytest.mark.parametrize(
    ("kept", "words"),
    [(rows(("x", "1")), "another attempt of this same transaction"), (rows(), "inside the attempt's block")],
)
def test_a_completion_that_mysql_does_not_take_says_why_and_ends_the_transaction(kept: Answer, words: str) -> None:
    wire = Mysql(Answer([], 0), kept)
    with pytest.raises(ConfigurationError, match=words):
        run(mysql.complete(wire, CLAIM, Opened("token", "shop"), "7", RULES))
    assert wire.statements[-2:] == ["ROLLBACK", "START TRANSACTION READ ONLY"]
    name, principal, key = hexadecimal("charges", "ann", "k")
    assert wire.asked[0][1] == {
        "name": name, "principal": principal, "key": key, "fingerprint": CLAIM.fingerprint, "result": "7", "keep": 70.0,
    }  # fmt: skip
    assert all("`shop`.leasehold_idempotency" in statement for statement in wire.statements[:2])


def test_a_savepoint_of_mysql_that_is_gone_ends_the_transaction_and_another_error_is_the_drivers() -> None:
    for number, kind in ((1305, ConfigurationError), (2013, pymysql.OperationalError)):
        wire = Mysql(locked(number))
        with pytest.raises(kind):
            run(mysql.leave(wire, Opened("token")))
        assert wire.statements == ["RELEASE SAVEPOINT leasehold_token"] + (
            ["ROLLBACK", "START TRANSACTION READ ONLY"] if number == 1305 else []
        )
    committed = Mysql()
    committed.state = Transaction.OPENS
    run(mysql.leave(committed, Opened("token")))
    assert committed.asked == []


def test_a_sweep_of_mysql_counts_what_it_has_removed_and_passes_over_what_others_have() -> None:
    over = rows(("0a", "0b", "0c"), ("1a", "1b", "1c"), ("2a", "2b", "2c"), ("3a", "3b", "3c"))
    wire = Mysql(over, Answer([], 1), locked(), Answer([], 0), Answer([], 1))
    assert run(mysql.sweep(wire, 8, "shop")) == 2
    assert wire.asked[0][1] == {"limit": 8}
    assert [tuple(values.values()) for _, values in wire.asked[1:]] == [(f"{n}a", f"{n}b", f"{n}c") for n in range(4)]
    assert all("`shop`.leasehold_idempotency" in statement for statement in wire.statements)
