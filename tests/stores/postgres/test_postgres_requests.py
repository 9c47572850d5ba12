"""Requests to PostgreSQL step by step: what is sent again, what ends a connection, how a session is greeted."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.ddl import VERSION, guarded_ddl
from leasehold._backends.postgres.driver import SessionFacts, greet
from leasehold._backends.postgres.executor import Executor
from leasehold._backends.postgres.schema import Schema
from leasehold._backends.postgres.statements import Statements
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from tests.stores.scripted_pool import ScriptedPool
from tests.unit.planned_waits import PlannedWaits

LABEL = "postgresql://h/db"
SQL = Statements("leasehold")


def rows(*values: tuple[bytes | None, ...]) -> Any:
    return SimpleNamespace(
        status=2,
        ntuples=len(values),
        nfields=len(values[0]) if values else 0,
        get_value=lambda row, column: values[row][column],
        error_field=lambda _: None,
    )


def refused(code: str, severity: str = "ERROR") -> Any:
    fields = {errors.SQLSTATE: code.encode(), errors.SEVERITY: severity.encode(), errors.MESSAGE: b"why"}
    return SimpleNamespace(status=7, ntuples=0, error_field=fields.get, error_message=b"why")


FINE = rows((b"1",))


class Source(ScriptedPool):
    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.scripts: list[bytes] = []
        self.forgotten = 0
        self.facts = SessionFacts()
        self.script_answer = FINE

    async def execute(self, statement: Any, values: Any, until: float = math.inf) -> Any:
        return self.answer(statement.name)

    async def run_script(self, script: bytes, until: float = math.inf) -> Any:
        self.scripts.append(script)
        return self.script_answer

    @property
    def is_direct(self) -> bool:
        return self.facts.is_direct

    def forget_prepared(self) -> None:
        self.forgotten += 1


class MadeSchema:
    """Tables that can be made; it counts how often they are."""

    def __init__(self) -> None:
        self.made = 0
        self.until: list[float] = []

    async def make(self, _: object, until: float = math.inf) -> bool:
        self.made += 1
        self.until.append(until)
        return True


class Bench:
    def __init__(self, *answers: Any) -> None:
        self.runtime: Any = PlannedWaits()
        self.source = cast("Any", Source(*answers))
        self.schema = cast("Any", MadeSchema())
        self.executor = Executor(self.source, self.schema, LABEL, self.runtime)

    def execute(self, until: float = math.inf, **words: bool) -> Any:
        return run(self.executor.execute(SQL.release, (b"k",), until, **words))


def test_an_answer_gives_the_connection_back() -> None:
    bench = Bench(FINE)
    assert bench.execute(1234.0, first=True, extra=True) is FINE
    assert bench.source.taken == [(1234.0, True, True)]
    assert (bench.source.given, bench.source.discarded) == (1, [])


@pytest.mark.parametrize("code", ["26000", "0A000", "42P05"])
def test_a_prepared_statement_that_is_not_there_is_forgotten_and_the_request_sent_once_more(code: str) -> None:
    bench = Bench(refused(code), FINE)
    assert bench.execute(first=True, extra=True) is FINE
    assert (bench.source.forgotten, len(bench.source.sent), bench.schema.made) == (1, 2, 0)
    assert bench.source.taken == [(math.inf, True, True)] * 2, "a release stays ahead of others"
    assert bench.source.discarded == []
    with pytest.raises(BackendRejected):
        Bench(refused(code)).execute()


@pytest.mark.parametrize("code", ["3F000", "42P01", "42883"])
def test_missing_tables_are_made_and_the_request_sent_once_more(code: str) -> None:
    bench = Bench(refused(code), FINE)
    assert bench.execute() is FINE
    assert (bench.schema.made, len(bench.source.sent), bench.source.given) == (1, 2, 3)
    hurried = Bench(refused(code), FINE)
    assert hurried.execute(1234.0, first=True, extra=True) is FINE
    assert hurried.source.taken == [(1234.0, True, True), (1234.0, False, False), (1234.0, True, True)]
    assert hurried.schema.until == [1234.0], "making them takes no longer than the caller has time"
    still = Bench(refused(code))
    with pytest.raises(BackendRejected, match="leasehold schema postgresql"):
        still.execute()
    assert (still.schema.made, len(still.source.sent)) == (1, 2)


def test_tables_that_cannot_be_made_cost_the_connection_that_failed() -> None:
    bench = Bench(refused("42P01"))

    async def lost(*_: object) -> bool:
        raise OutcomeUnknown("no answer", backend=LABEL)

    bench.schema.make = lost
    with pytest.raises(OutcomeUnknown):
        bench.execute()
    assert (bench.source.given, bench.source.discarded) == (1, [True])


@pytest.mark.parametrize("code", ["57014", "40001", "55P03", "42501"])
def test_an_error_is_raised_and_its_connection_used_again(code: str) -> None:
    bench = Bench(refused(code))
    with pytest.raises((BackendUnavailable, BackendRejected)):
        bench.execute()
    assert (bench.source.given, bench.source.discarded, len(bench.source.sent)) == (1, [], 1)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused("25006"), BackendUnavailable),
        (refused("57P03"), BackendUnavailable),
        (refused("57P01", "FATAL"), OutcomeUnknown),
        (refused("", "ERROR"), OutcomeUnknown),
        (OutcomeUnknown("no answer", backend=LABEL), OutcomeUnknown),
    ],
)
def test_a_connection_that_cannot_be_used_any_more_is_discarded_with_the_idle_ones(answer: Any, kind: type) -> None:
    bench = Bench(answer)
    with pytest.raises(kind):
        bench.execute()
    assert (bench.source.given, bench.source.discarded) == (0, [True])


def test_a_call_in_a_hurry_proves_nothing_about_other_connections() -> None:
    for is_failed, dead in ((False, False), (True, True)):
        bench = Bench(OutcomeUnknown("no answer", backend=LABEL))
        bench.source.is_failed = is_failed
        with pytest.raises(OutcomeUnknown):
            bench.execute(bench.runtime.now())
        assert bench.source.discarded == [dead]


def test_an_interrupted_call_costs_its_connection_alone() -> None:
    bench = Bench(KeyboardInterrupt())
    bench.source.is_closed = True
    with pytest.raises(KeyboardInterrupt):
        bench.execute()
    assert bench.source.discarded == [False]


def test_a_call_that_fails_because_the_client_was_closed_says_so() -> None:
    bench = Bench(OutcomeUnknown("interrupted", backend=LABEL))
    bench.source.is_closed = True
    with pytest.raises(ClientClosed):
        bench.execute()


def test_a_request_that_only_looks_makes_no_tables() -> None:
    for code in ("3F000", "42P01"):
        bench = Bench(refused(code))
        assert run(bench.executor.look(SQL.states, ())) is None
        assert bench.schema.made == 0
    older = Bench(refused("42883"), FINE)  # there are some, of an earlier version
    assert run(older.executor.look(SQL.states, ())) is FINE
    with pytest.raises(BackendRejected):
        run(Bench(refused("42501")).executor.look(SQL.states, ()))


# --- tables


def made(*answers: Any, script: Any = FINE) -> Any:
    source: Any = Source(*answers)
    source.script_answer = script
    assert run(Schema(SQL, LABEL).make(source)) is True
    return source


@pytest.mark.parametrize(
    ("present", "runs"),
    [
        (rows((b"%d" % VERSION,)), False),
        (rows((b"%d" % (VERSION - 1),)), True),
        (rows((b"0",)), True),
        (rows(), True),
        (refused("3F000"), True),
        (refused("42P01"), True),
    ],
    ids=["present", "earlier", "just begun", "empty", "no schema", "no table"],
)
def test_tables_are_made_unless_they_are_there_in_this_version(present: Any, runs: bool) -> None:
    assert len(made(present).scripts) == runs


@pytest.mark.parametrize(("present", "after"), [(rows((b"4",)), 4), (rows((b"1",)), 1), (refused("42P01"), 0)])
def test_tables_of_an_earlier_version_are_brought_to_this_one_by_the_steps_that_they_lack(
    present: Any, after: int
) -> None:
    """Earlier steps would have their indexes made and dropped again, which blocks those who hold locks."""
    assert made(present).scripts == [guarded_ddl("leasehold", after).encode()]


def test_a_role_that_may_not_look_or_make_is_told() -> None:
    for answers, script in (((refused("42501"),), FINE), ((rows(),), refused("42501"))):
        with pytest.raises(BackendRejected, match="--role"):
            made(*answers, script=script)


# --- the greeting of a session


def greeted(answer: Any, *, own: bool = True) -> Any:
    source: Any = Source(answer)
    run(greet(source, SQL.greet, 41, LABEL, own=own, until=math.inf))
    return source


@pytest.mark.parametrize(
    ("process", "isolation", "own", "direct", "is_set"),
    [
        (b"41", b"read committed", True, True, False),
        (b"41", b"repeatable read", True, True, True),
        (b"41", b"repeatable read", False, True, False),
        (b"42", b"read committed", True, False, False),
        (b"42", b"serializable", True, False, False),
    ],
)
def test_only_a_session_of_our_own_is_set_to_another_level(
    process: bytes, isolation: bytes, own: bool, direct: bool, is_set: bool
) -> None:
    """That of a pooler or of the user's own pool is others' as well."""
    source = greeted(rows((process, isolation)), own=own)
    assert (source.is_direct, bool(source.scripts)) == (direct, is_set)
    assert not is_set or source.scripts[0].endswith(b"AS TRANSACTION ISOLATION LEVEL READ COMMITTED")


def test_a_greeting_that_fails_leaves_nothing_open() -> None:
    with pytest.raises(BackendUnavailable, match="no answer"):
        greeted(OutcomeUnknown("no answer", backend=LABEL))
    with pytest.raises(BackendUnavailable):
        greeted(refused("57P01", "FATAL"))
    with pytest.raises(BackendRejected):
        greeted(refused("42501"))
