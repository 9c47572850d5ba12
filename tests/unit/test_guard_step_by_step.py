"""The guard on servers, answer by answer: who passes, who is refused with which number, and what is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, RetryTransaction, StaleFence
from leasehold.fencing.token import Token
from leasehold.sql.guards import mysql, postgresql
from leasehold.sql.wires import Answer, Transaction
from tests.unit.scripted_wire import ScriptedWire, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITER = Token(10, "res", "ns:lock", shared=False, grant="g")
READER = Token(10, "res", "ns:lock", shared=True, grant="g")
NUMBER = Token(10, "res", None, shared=False, grant=None)


class Driver:
    """A connection that can be remembered, and says what it is connected to."""

    def get_server_info(self) -> str:
        return "8.0.36"


# --- MySQL and MariaDB


class Mysql(ScriptedWire):
    """Answers each kind of statement of the guard as it was told."""

    def __init__(self, state: Transaction = Transaction.OPENS, *, objects: bool = False, **answers: Any) -> None:
        super().__init__(dialect="mysql", state=state)
        self.driver = Driver()
        self.holds_objects = objects
        self.answers: dict[str, Any] = {
            "SET @leasehold_session": Answer([], 0),
            "INSERT INTO leasehold_guard": Answer([], 1),
            "SELECT @@transaction_isolation": rows(answers.get("seen", ("REPEATABLE-READ", None))),
            "SELECT `lock`": rows(answers.get("newest", newest())),
            "SELECT passes": rows(*answers.get("again", ())),
            "SHOW CREATE TABLE": rows(("t", f"ENGINE={answers.get('engine', 'InnoDB')}")),
            "SHOW SESSION STATUS": rows(("Questions", answers.get("questions", "100"))),
        }

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        await super().query(statement, values)
        found = [answer for begin, answer in self.answers.items() if statement.strip().startswith(begin)]
        answer: Answer = found[0] if found else Answer([], 0)
        return answer

    def rule(self) -> tuple[object, ...]:
        """What the write was told about what this transaction has seen, and the grant."""
        (values,) = [values for _, values in self.asked if "seen" in values]
        return values["fresh"], values["seen"], values["grant"]


def newest(
    lock: bytes | None = b"ns:lock",
    exclusive: int = 10,
    grant: bytes | None = b"g",
    shared: int = 0,
    ours: int = 1,
    passes: int = 4,
    level: str = "REPEATABLE-READ",
) -> tuple[Any, ...]:
    return lock, exclusive, grant, shared, ours, passes, level


ENDED = ["ROLLBACK", "START TRANSACTION READ ONLY"]


def refusal(wire: ScriptedWire, token: Token, kind: type[Exception], words: str, **options: Any) -> Any:
    module: Any = mysql if wire.dialect == "mysql" else postgresql
    with pytest.raises(kind, match=words) as refused:
        run(module.raise_fence(wire, token, **options))
    return refused.value


@pytest.mark.parametrize(
    ("token", "row"),
    [
        (WRITER, newest()),
        (WRITER, newest(grant=None)),
        (WRITER, newest(lock=None)),
        (WRITER, newest(shared=9)),
        (WRITER, newest(exclusive=9, grant=b"x")),
        (NUMBER, newest(grant=b"x")),
        (NUMBER, newest(lock=b"ns:x")),
        (READER, newest(exclusive=9, shared=10, ours=0)),
        (READER, newest(exclusive=0, shared=12, grant=b"x", ours=0)),
        (READER, newest(lock=None, exclusive=9, shared=10)),
    ],
)
def test_a_holder_passes_mysql_where_none_came_later(token: Token, row: tuple[Any, ...]) -> None:
    wire = Mysql(newest=row)
    run(mysql.raise_fence(wire, token))
    assert not set(ENDED) & set(wire.statements)
    (written,) = [values for statement, values in wire.asked if statement.strip().startswith("INSERT")]
    assert written["resource"] == b"res".hex()
    assert written["fence"] == 10
    assert written["lock"] == (None if token.lock is None else b"ns:lock".hex())
    if not token.shared:
        assert wire.rule() == (1, -1, token.grant)


@pytest.mark.parametrize(
    ("token", "row", "highest"),
    [
        (WRITER, newest(exclusive=11), 11),
        (WRITER, newest(grant=b"x"), 10),
        (WRITER, newest(shared=10), 10),
        (WRITER, newest(shared=12), 12),
        (WRITER, newest(exclusive=14, shared=12), 14),
        (NUMBER, newest(exclusive=11), 11),
        (READER, newest(exclusive=10, shared=12), 10),
        (READER, newest(exclusive=11, shared=0), 11),
    ],
)
def test_a_late_holder_is_refused_by_mysql_with_the_highest_fence_and_its_transaction_is_over(
    token: Token, row: tuple[Any, ...], highest: int
) -> None:
    wire = Mysql(newest=row)
    refused = refusal(wire, token, StaleFence, "'res' has seen fence")
    assert (refused.fence, refused.highest, refused.name) == (10, highest, "lock")
    assert wire.statements[-2:] == ENDED
    assert not any(each.startswith("SHOW") for each in wire.statements)


@pytest.mark.parametrize("token", [WRITER, READER])
def test_a_resource_of_another_lock_is_no_late_writer_in_mysql(token: Token) -> None:
    wire = Mysql(newest=newest(lock=b"ns:other", exclusive=99))
    refusal(wire, token, ConfigurationError, "guarded by the lock 'ns:other', and this lease is of 'ns:lock'")
    assert wire.statements[-2:] == ENDED


@pytest.mark.parametrize(
    ("level", "kind", "words"),
    [
        ("REPEATABLE-READ", RetryTransaction, "as it was before another guarded one committed"),
        ("READ-COMMITTED", ConfigurationError, "was open before guard"),
        ("READ-UNCOMMITTED", ConfigurationError, "trust_earlier_reads=True"),
    ],
)
@pytest.mark.parametrize("token", [WRITER, READER])
def test_what_mysql_has_shown_before_the_guard_may_not_be_older_than_the_fence(
    token: Token, level: str, kind: type[Exception], words: str
) -> None:
    row = newest(ours=0, level=level) if token is WRITER else newest(exclusive=9, shared=10, level=level)
    wire = Mysql(Transaction.OPEN, seen=(level, 3), newest=row)
    refusal(wire, token, kind, words)
    assert wire.statements[-2:] == ENDED
    again = Mysql(Transaction.OPEN, seen=(level, 3), again=[(4, level)])
    if token is READER:
        refusal(again, token, kind, words)
        assert not any("exclusive_fence, shared_fence, passes) VALUES (UNHEX(%(resource)s), UNHEX" in each
                       for each in again.statements), "readers that were here do not wait for each other"  # fmt: skip
    trusting = Mysql(Transaction.OPEN, seen=(level, 3), newest=(*row[:4], 1, *row[5:]))
    run(mysql.raise_fence(trusting, token, trust_earlier_reads=True))


@pytest.mark.parametrize(("passes", "seen", "is_old"), [(0, None, False), (4, 4, False), (5, 4, True), (1, None, True)])
def test_a_reader_in_a_snapshot_of_mysql_goes_on_where_nobody_has_written_since(
    passes: int, seen: int | None, is_old: bool
) -> None:
    wire = Mysql(Transaction.OPEN, seen=("REPEATABLE-READ", seen), again=[(passes, "REPEATABLE-READ")])
    if is_old:
        refusal(wire, READER, RetryTransaction, "run the whole transaction again")
    else:
        run(mysql.raise_fence(wire, READER))
        assert wire.statements[-1] == "SHOW CREATE TABLE leasehold_guard"


@pytest.mark.parametrize(
    ("state", "level", "seen", "rule"),
    [
        (Transaction.OPENS, "REPEATABLE-READ", 7, (1, -1)),
        (Transaction.OPEN, "REPEATABLE-READ", 7, (0, 7)),
        (Transaction.OPEN, "REPEATABLE-READ", 0, (0, 0)),
        (Transaction.OPEN, "SERIALIZABLE", None, (0, -1)),
        (Transaction.OPEN, "READ-COMMITTED", 7, (0, -1)),
    ],
)
def test_the_write_of_mysql_is_told_what_its_transaction_has_seen(
    state: Transaction, level: str, seen: int | None, rule: tuple[int, int]
) -> None:
    wire = Mysql(state, seen=(level, seen), newest=newest(level=level), questions="104")
    if level == "REPEATABLE-READ":
        mysql._COUNTED[wire.driver] = 100  # what was not read there may have been committed since all the same
    run(mysql.raise_fence(wire, WRITER))
    assert wire.rule()[:2] == rule
    assert not any(each.startswith("SHOW SESSION STATUS") for each in wire.statements), "it is not known what was read"
    begins = [" ".join(each.split()[:2]) for each in wire.statements]
    looked = ["INSERT INTO", "SELECT @@transaction_isolation,"] if state is Transaction.OPEN else []
    assert begins[1:] == [*looked, "INSERT INTO", "SELECT `lock`,", "SHOW CREATE"], "locked first, and then looked at"


@pytest.mark.parametrize("state", [Transaction.OPENS, Transaction.OPEN])
def test_a_guard_of_mysql_that_trusts_earlier_reads_does_not_vouch_for_them(state: Transaction) -> None:
    wire = Mysql(state, newest=newest(level="READ-COMMITTED"))
    run(mysql.raise_fence(wire, WRITER, trust_earlier_reads=True))
    assert wire.rule()[0] == 1
    assert wire.driver not in mysql._COUNTED


@pytest.mark.parametrize(("questions", "is_fresh"), [(103, 0), (104, 1), (105, 0)])
def test_guards_of_mysql_right_after_each_other_know_that_nothing_was_read_between(
    questions: int, is_fresh: int
) -> None:
    first = Mysql(newest=newest(level="READ-COMMITTED"), questions="100")
    run(mysql.raise_fence(first, WRITER))
    assert first.statements[-1] == "SHOW SESSION STATUS LIKE 'Questions'"
    for driver, expected in ((first.driver, is_fresh), (Driver(), 0)):
        level = "READ-COMMITTED"
        then = Mysql(Transaction.OPEN, seen=(level, 3), newest=newest(level=level), questions=str(questions))
        then.driver = driver
        run(mysql.raise_fence(then, WRITER))
        assert then.rule()[0] == expected


@pytest.mark.parametrize(
    ("token", "row", "is_here"),
    [
        (WRITER, newest(), True),
        (WRITER, newest(exclusive=9), False),
        (WRITER, newest(grant=b"x"), False),
        (READER, newest(exclusive=9, shared=10), True),
        (READER, newest(exclusive=9, shared=9), False),
    ],
)
def test_objects_that_were_read_before_the_guard_of_mysql_are_good_only_if_this_grant_was_here(
    token: Token, row: tuple[Any, ...], is_here: bool
) -> None:
    wire = Mysql(objects=True, newest=row)
    if is_here:
        run(mysql.raise_fence(wire, token))
    else:
        refusal(wire, token, ConfigurationError, "objects that were read before guard")
        assert wire.statements[-2:] == ENDED
        assert not any("UNHEX(%(lock)s)" in each for each in wire.statements), "it left no mark"


def test_the_guard_of_mysql_needs_a_transaction_and_a_table_that_has_them() -> None:
    alone = Mysql(Transaction.AUTOCOMMIT)
    refusal(alone, WRITER, ConfigurationError, "outside a transaction")
    assert len(alone.asked) == 1
    wire = Mysql(engine="MyISAM")
    refusal(wire, WRITER, ConfigurationError, "not of InnoDB")
    assert wire.statements[-2:] == ENDED
    elsewhere = Mysql()
    elsewhere.answers["INSERT INTO `shop`.leasehold_guard"] = Answer([], 1)
    run(mysql.raise_fence(elsewhere, WRITER, schema="shop"))
    assert [
        each for each in elsewhere.statements if "leasehold_guard" in each and "`shop`.leasehold_guard" not in each
    ] == []


def test_an_error_of_mysql_in_the_guard_ends_the_transaction_and_says_what_to_do() -> None:
    class Failing(Mysql):
        async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
            answer = await super().query(statement, values)
            if "UNHEX(%(lock)s)" in statement:
                raise pymysql.OperationalError(1213, "deadlock")
            return answer

    wire = Failing()
    assert refusal(wire, WRITER, RetryTransaction, r"guard\(\) included").__cause__.args[0] == 1213
    assert wire.statements[-2:] == ENDED


# --- PostgreSQL


class Postgres(ScriptedWire):
    """On a connection that knows where the table is, unless told otherwise."""

    def __init__(self, *answers: Any, home: str | None = "s", objects: bool = False) -> None:
        super().__init__(*answers)
        self.driver = Driver()
        self.holds_objects = objects
        if home is not None:
            postgresql._SEEN[self.driver] = home


def passed(touched: int = 0, fences: str = "{}", was_here: bool = False) -> Answer:
    return rows((touched, fences, was_here, "set"))


@pytest.mark.parametrize(
    ("answer", "objects", "trust", "words"),
    [
        (passed(), False, False, None),
        (passed(2), False, False, "had used other tables before guard"),
        (passed(2), False, True, None),
        (passed(2, '{"": null}'), False, False, None),
        (passed(2, '{"res": 10}'), False, False, None),
        (passed(2, '{"other": 10}'), False, False, "had used other tables"),
        (passed(), True, False, "objects that were read before guard"),
        (passed(was_here=True), True, False, None),
        (passed(0, '{"res": null}'), True, False, None),
        (passed(), True, True, None),
    ],
)
def test_what_was_read_before_the_guard_of_postgresql_may_not_be_older_than_the_fence(
    answer: Answer, objects: bool, trust: bool, words: str | None
) -> None:
    wire = Postgres(answer, objects=objects)
    if words is None:
        run(postgresql.raise_fence(wire, WRITER, trust_earlier_reads=trust))
        assert len(wire.asked) == 1
    else:
        refusal(wire, WRITER, ConfigurationError, words, trust_earlier_reads=trust)
        assert "RAISE EXCEPTION" in wire.statements[-1]
    assert wire.asked[0][1] == {"resource": "res", "lock": "ns:lock", "fence": 10, "trust": trust, "grant": "g"}
    assert '"s".leasehold_guard' in wire.statements[0]


@pytest.mark.parametrize(
    ("token", "row", "highest"),
    [
        (WRITER, ("ns:lock", 11, 0), 11),
        (WRITER, ("ns:lock", 9, 12), 12),
        (READER, ("ns:lock", 10, 12), 10),
        (NUMBER, ("ns:lock", 13, 12), 13),
        (WRITER, (None, 11, 0), 11),
    ],
)
def test_a_late_holder_is_refused_by_postgresql_with_the_highest_fence_and_its_transaction_is_over(
    token: Token, row: tuple[Any, ...], highest: int
) -> None:
    nothing = [rows(), rows()] if token.shared else [rows()]
    wire = Postgres(*nothing, rows(row))
    refused = refusal(wire, token, StaleFence, "'res' has seen fence")
    assert (refused.fence, refused.highest, refused.name) == (10, highest, "lock")
    assert wire.asked[-2][1] == {"resource": "res"}
    assert "RAISE EXCEPTION" in wire.statements[-1]
    other = Postgres(*nothing, rows(("ns:other", 99, 0)))
    if token.lock is None:
        assert refusal(other, token, StaleFence, "99").name == "other"
    else:
        refusal(other, token, ConfigurationError, "guarded by the lock 'ns:other', and this lease is of 'ns:lock'")


def test_readers_of_postgresql_that_were_here_do_not_wait_for_each_other() -> None:
    again, first = Postgres(passed()), Postgres(rows(), passed())
    for wire, statements in ((again, 1), (first, 2)):
        run(postgresql.raise_fence(wire, READER))
        assert len(wire.asked) == statements
        assert "FOR SHARE" in wire.statements[0]
    assert "greatest(kept.shared_fence" in first.statements[1]
    assert first.asked[0][1] == first.asked[1][1]


def found(*schemas: str, current: str | None = "public", touched: int = 0) -> Answer:
    listed = "[" + ", ".join(f'"{each}"' for each in schemas) + "]" if schemas else None
    return rows((listed, current, touched))


def test_the_table_of_postgresql_is_looked_for_once_per_connection_and_again_for_another_schema() -> None:
    wire = Postgres(found("b"), passed(), passed(), found("a", "b"), passed(), home=None)
    for schema in (None, "b", "a"):
        run(postgresql.raise_fence(wire, WRITER, schema=schema))
    assert [("pg_class" in each, '"a".leasehold' in each, '"b".leasehold' in each) for each in wire.statements] == [
        (True, False, False), (False, False, True), (False, False, True), (True, False, False), (False, True, False),
    ]  # fmt: skip
    several = Postgres(found("a", "b"), home=None)
    refusal(several, WRITER, ConfigurationError, "in each of the schemas 'a', 'b'")


@pytest.mark.parametrize(
    ("faster", "schema", "current", "home", "is_made"),
    [
        ((), None, "public", "public", True),
        ((), "own", "public", "own", True),
        ((), "own", None, "own", True),
        (("theirs",), None, "public", "theirs", False),
        (("theirs",), "own", "public", "own", True),
    ],
)
def test_the_table_of_postgresql_is_made_by_one_transaction_and_known_only_after_it(
    faster: tuple[str, ...], schema: str | None, current: str | None, home: str, is_made: bool
) -> None:
    made = [rows()] if is_made else []
    wire = Postgres(
        found(current=current), rows(), found(*faster, current=current), *made, rows(), passed(2, '{"": null}'),
        home=None,
    )  # fmt: skip
    run(postgresql.raise_fence(wire, WRITER, schema=schema))
    assert "pg_advisory_xact_lock" in wire.statements[1]
    assert [each for each in wire.statements if each.startswith("CREATE TABLE")] == wire.statements[3 : 3 + is_made]
    assert wire.statements[-2] == """SELECT pg_catalog.set_config('leasehold.fences', '{"": null}', true)"""
    assert f'"{home}".leasehold_guard' in wire.statements[-1]
    assert wire.driver not in postgresql._SEEN, "it goes again if this transaction is rolled back"


def test_no_table_of_postgresql_is_made_after_a_read_or_where_there_is_no_place_for_it() -> None:
    late = Postgres(found(touched=1), home=None)
    refusal(late, WRITER, ConfigurationError, "had used other tables before guard")
    trusting = Postgres(found(touched=1), rows(), found(), rows(), rows(), passed(2, '{"": null}'), home=None)
    run(postgresql.raise_fence(trusting, WRITER, trust_earlier_reads=True))
    nowhere = Postgres(found(current=None), rows(), found(current=None), home=None)
    refusal(nowhere, WRITER, ConfigurationError, r"`leasehold schema guard`")
    for wire in (late, nowhere):
        assert "RAISE EXCEPTION" in wire.statements[-1]


@pytest.mark.parametrize(
    ("token", "state", "words"),
    [
        (Token(10, "a\0b", "ns:lock", shared=False, grant="g"), Transaction.OPEN, "NUL"),
        (Token(10, "res", "ns:a\0b", shared=False, grant="g"), Transaction.OPEN, "NUL"),
        (WRITER, Transaction.AUTOCOMMIT, "outside a transaction"),
    ],
)
def test_what_the_guard_of_postgresql_cannot_do_is_refused_before_anything_is_sent(
    token: Token, state: Transaction, words: str
) -> None:
    wire = Postgres()
    wire.state = state
    refusal(wire, token, ConfigurationError, words)
    assert wire.asked == []
