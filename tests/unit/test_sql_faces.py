"""Functions on rows and transactions of the user's own: each face passes every option on, and gives back the answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, StaleFence, VersionConflict
from leasehold.sql import (
    cas_update,
    cas_update_async,
    fenced_update,
    fenced_update_async,
    guard,
    guard_async,
    insert_once,
    insert_once_async,
    lock_free_rows,
    lock_free_rows_async,
    lock_row,
    lock_row_async,
    lock_rows,
    lock_rows_async,
    transaction_lock,
    transaction_lock_async,
)
from leasehold.sql.guards import columns
from leasehold.sql.guards import guard as guards
from leasehold.sql.guards import transaction_lock as transaction_locks
from leasehold.sql.inserts import insert_once as inserts
from leasehold.sql.optimistic import cas
from leasehold.sql.row_locks import locks
from leasehold.sql.row_locks.lock_request import Free, LockRequest
from leasehold.sql.tables.rows import Rows
from leasehold.sql.wires import Answer, Transaction
from tests.unit.scripted_wire import ScriptedWire, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

TX: Any = object()
KEY = {"id": 7}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a function was called by, and the work that it wants done; each is answered with two rows."""
    given: list[Any] = []

    def call(tx: Any, name: str, work: Any) -> Any:
        assert tx is TX
        given.append((name, work.__self__))
        return ["first", "second"]

    async def call_async(tx: Any, name: str, work: Any) -> Any:
        return call(tx, name, work)

    for module in (locks, cas, inserts):
        monkeypatch.setattr(module, "call", call)
        monkeypatch.setattr(module, "call_async", call_async)
    return given


def answer_of(function: Callable[..., Any], *words: Any, **options: Any) -> Any:
    given = function(TX, *words, **options)
    return asyncio.run(given) if function.__name__.endswith("_async") else given


@pytest.mark.parametrize("face", [lock_row, lock_row_async], ids=["def", "async def"])
def test_a_row_is_locked_as_was_said(asked: list[Any], face: Any) -> None:
    assert answer_of(face, "stock", KEY, share=True, wait="3s") == "first"
    assert answer_of(face, "stock", KEY, wait=0) == "first"
    assert answer_of(face, "stock", KEY) == "first"
    assert [(name, work.table, work.keys) for name, work in asked] == [("lock_row", "stock", [KEY])] * 3
    requests = [(work.request.share, work.request.wait, work.request.skip_locked) for _, work in asked]
    assert requests == [(True, 3.0, False), (False, 0.0, False), (False, None, False)]


@pytest.mark.parametrize("face", [lock_rows, lock_rows_async], ids=["def", "async def"])
def test_rows_are_locked_as_was_said(asked: list[Any], face: Any) -> None:
    keys = [{"id": 3}, {"id": 1}]
    assert answer_of(face, ("shop", "stock"), iter(keys), share=True, wait="3s") == ["first", "second"]
    answer_of(face, "stock", keys, share=True, skip_locked=True)
    answer_of(face, "stock", keys)
    assert [(name, work.table, work.keys) for name, work in asked] == [
        ("lock_rows", ("shop", "stock"), keys), ("lock_rows", "stock", keys), ("lock_rows", "stock", keys),
    ]  # fmt: skip
    requests = [(work.request.share, work.request.wait, work.request.skip_locked) for _, work in asked]
    assert requests == [(True, 3.0, False), (True, None, True), (False, None, False)]


@pytest.mark.parametrize("face", [lock_free_rows, lock_free_rows_async], ids=["def", "async def"])
def test_free_rows_are_locked_as_was_said(asked: list[Any], face: Any) -> None:
    assert answer_of(face, "jobs", {"state": "new"}, limit=5, order_by=("due", "id"), share=True) == ["first", "second"]
    answer_of(face, "jobs", {}, order_by="id")
    assert [(name, work.table, work.free) for name, work in asked] == [
        ("lock_free_rows", "jobs", Free({"state": "new"}, 5, ("due", "id"))),
        ("lock_free_rows", "jobs", Free({}, 1, ("id",))),
    ]
    requests = [(work.request.share, work.request.wait, work.request.skip_locked) for _, work in asked]
    assert requests == [(True, None, True), (False, None, True)]


@pytest.mark.parametrize("face", [cas_update, cas_update_async], ids=["def", "async def"])
def test_a_row_is_written_at_its_version_as_was_said(asked: list[Any], face: Any) -> None:
    assert answer_of(face, ("shop", "t"), {"n": 1}, where=KEY, version=5, column="rev") == ["first", "second"]
    answer_of(face, "t", {}, where=KEY, version=0)
    assert asked == [
        ("cas_update", cas._Swap(("shop", "t"), {"n": 1}, KEY, 5, "rev")),
        ("cas_update", cas._Swap("t", {}, KEY, 0, "version")),
    ]


@pytest.mark.parametrize("face", [insert_once, insert_once_async], ids=["def", "async def"])
def test_a_row_is_inserted_once_as_was_said(asked: list[Any], face: Any) -> None:
    values = {"room": 7, "day": "monday"}
    assert answer_of(face, ("shop", "t"), values, key=["room", "day"]) == ["first", "second"]
    answer_of(face, "t", values, key="room")
    assert asked == [
        ("insert_once", inserts._Insert(("shop", "t"), values, ("room", "day"))),
        ("insert_once", inserts._Insert("t", values, ("room",))),
    ]


# --- over a wire: a connection that blocks, one that is awaited, and SQLAlchemy's, which runs the blocking form


class Twin:
    """What stands between an event loop and a connection that blocks."""

    async def run_sync(self, work: Callable[[Any], Any]) -> Any:
        return work(TX)


FACES = ["def", "async def", "run_sync"]


def wired(patch: pytest.MonkeyPatch, module: ModuleType, wire: Any, face: str) -> None:
    """Let the module find this wire behind whatever it is given."""
    wire.is_async = face == "async def"
    patch.setattr(module, "wire_of", lambda _: wire)
    patch.setattr(module, "async_twin", lambda tx: tx if isinstance(tx, Twin) else None)


def through(face: str, blocking: Callable[..., Any], awaited: Callable[..., Any], *words: Any, **options: Any) -> Any:
    if face == "def":
        return blocking(TX, *words, **options)
    return asyncio.run(awaited(Twin() if face == "run_sync" else TX, *words, **options))


@pytest.mark.parametrize("face", FACES)
def test_the_guard_passes_on_its_options_on_every_face(monkeypatch: pytest.MonkeyPatch, face: str) -> None:
    given: list[Any] = []

    class Dialect:
        async def raise_fence(self, wire: Any, token: Any, *, trust_earlier_reads: bool, schema: str | None) -> None:
            given.append((token.fence, token.resource, trust_earlier_reads, schema))
            if token.fence == 4:
                raise StaleFence("late", fence=4, highest=9)

    wired(monkeypatch, guards, ScriptedWire(), face)
    monkeypatch.setattr(guards, "_load", lambda _: Dialect())
    through(face, guard, guard_async, 5, resource="r")
    through(face, guard, guard_async, 6, resource="s", trust_earlier_reads=True, schema="x")
    with pytest.raises(StaleFence) as caught:
        through(face, guard, guard_async, 4, resource="r")
    assert (caught.value.fence, caught.value.highest) == (4, 9)
    assert given == [(5, "r", False, None), (6, "s", True, "x"), (4, "r", False, None)]


@pytest.mark.parametrize("face", FACES)
def test_a_lock_of_a_transaction_is_asked_for_as_was_said(monkeypatch: pytest.MonkeyPatch, face: str) -> None:
    numbers: list[object] = []
    names = [("a", "leasehold"), ("b", "leasehold"), ("a", "n")]
    for shared, wait, answer, had, function in (
        (False, True, "", True, "pg_advisory_xact_lock"),
        (False, False, True, True, "pg_try_advisory_xact_lock"),
        (False, False, False, False, "pg_try_advisory_xact_lock"),
        (True, True, "", True, "pg_advisory_xact_lock_shared"),
        (True, False, False, False, "pg_try_advisory_xact_lock_shared"),
    ):
        for name, namespace in names:
            wire = ScriptedWire(rows((answer,)))
            wired(monkeypatch, transaction_locks, wire, face)
            options = {"shared": shared, "wait": wait, "namespace": namespace}
            assert through(face, transaction_lock, transaction_lock_async, name, **options) is had
            assert wire.statements == [f"SELECT pg_catalog.{function}(CAST(%(number)s AS bigint))"]
            numbers.append(wire.asked[0][1]["number"])
    assert len(set(numbers)) == len(names)
    assert numbers == numbers[:3] * 5
    wire = ScriptedWire(state=Transaction.AUTOCOMMIT)
    wired(monkeypatch, transaction_locks, wire, face)
    with pytest.raises(ConfigurationError, match="outside a transaction"):
        through(face, transaction_lock, transaction_lock_async, "a")
    assert wire.asked == []


@pytest.mark.parametrize("face", FACES)
def test_a_row_with_a_fence_is_written_as_was_said(monkeypatch: pytest.MonkeyPatch, face: str) -> None:
    def written(*answers: Answer, dialect: str = "postgresql") -> tuple[Any, ScriptedWire]:
        wire = ScriptedWire(*answers, dialect=dialect)
        wired(monkeypatch, columns, wire, face)
        options: dict[str, Any] = {"where": {"id": 1, "day": "x"}, "column": "seen"}
        try:
            done = through(face, fenced_update, fenced_update_async, 7, ("shop", "t"), {"n": 2, "m": 3}, **options)
        except StaleFence as refusal:
            return (refusal.fence, refusal.highest, "'shop.t'" in str(refusal)), wire
        return done, wire

    done, wire = written(Answer([], 1))
    assert done is True
    assert wire.asked == [
        (
            (
                'UPDATE "shop"."t" SET "n" = %(value_0)s, "m" = %(value_1)s, "seen" = %(fence)s '
                'WHERE "t"."id" = %(key_0)s AND "t"."day" = %(key_1)s AND "t"."seen" <= %(fence)s'
            ),
            {"key_0": 1, "key_1": "x", "value_0": 2, "value_1": 3, "fence": 7},
        )
    ]
    nothing = Answer([], 0)
    found = [
        written(nothing)[0],
        written(nothing, rows((9,)))[0],
        written(nothing, rows((8,), (9,), (8,)))[0],
        written(nothing, rows((7,)), dialect="mysql")[0],
        written(nothing, rows((9,)), dialect="mysql")[0],
    ]
    assert found == [False, (7, 9, True), (7, 9, True), True, (7, 9, True)]
    assert written(nothing, dialect="mysql")[1].statements[1].endswith("FOR UPDATE")


# --- what becomes of the rows


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the objects of a session are told."""
    told: list[Any] = []
    monkeypatch.setattr(Rows, "refresh", lambda _, row: told.append(("refresh", row)))
    monkeypatch.setattr(Rows, "forget", lambda _, where, names: told.append(("forget", where, list(names))))
    return told


class Locking:
    """A dialect that knows these rows by their numbers, and has locked all of them but the second."""

    def __init__(self) -> None:
        self.keys: list[Any] = []

    async def lock_these(self, _wire: Any, _state: Any, _rows: Any, keys: Sequence[Any], _request: Any) -> list[Any]:
        self.keys.extend(keys)
        return [None if key["id"] == 2 else {**key, "n": 10 * key["id"]} for key in keys]

    async def lock_free(self, *_: Any) -> list[Any]:
        return [{"id": 5, "n": 50}, {"id": 4, "n": 40}]


def test_locked_rows_are_given_in_the_order_in_which_they_were_named_and_the_session_is_told_of_each(
    monkeypatch: pytest.MonkeyPatch, objects: list[Any]
) -> None:
    dialect = Locking()
    monkeypatch.setattr(locks, "_ready", lambda *_: (dialect, Transaction.OPEN))
    keys: list[Any] = [{"id": number} for number in (3, 2, 1, 3)]
    one, three = {"id": 1, "n": 10}, {"id": 3, "n": 30}
    found = run(locks._These("stock", keys, LockRequest(share=False)).lock(ScriptedWire()))
    assert found == [three, None, one, three]
    assert dialect.keys == [{"id": 1}, {"id": 2}, {"id": 3}], "each once, in the order of all"
    assert objects == [("refresh", one), ("refresh", three)]
    objects.clear()
    free = run(locks._Free("stock", Free({}, 2, ("id",)), LockRequest(share=False)).lock(ScriptedWire()))
    assert free == [{"id": 5, "n": 50}, {"id": 4, "n": 40}]
    assert objects == [("refresh", row) for row in free]


def test_a_written_row_is_read_again_by_the_session_with_its_version_and_a_loser_is_told_everything(
    objects: list[Any],
) -> None:
    swap = cas._Swap("t", {"n": 1, "m": 2}, {"id": 7, "day": "x"}, 5, "rev")
    wire = ScriptedWire(Answer([], 1))
    assert run(swap.carry_out(wire)) == 6
    assert objects == [("forget", {"id": 7, "day": "x"}, ["n", "m", "rev"])]
    assert wire.asked[0][1] == {
        "key_0": 7, "key_1": "x", "value_0": 1, "value_1": 2, "version": 5, "raised": 6,
    }  # fmt: skip
    objects.clear()
    present = rows((7, "x", 9, 8), columns=("id", "day", "n", "rev"))
    with pytest.raises(VersionConflict, match="has version 8 by now, and not 5") as caught:
        run(swap.carry_out(ScriptedWire(Answer([], 0), present)))
    conflict = caught.value
    assert (conflict.table, conflict.key, conflict.expected, conflict.version, conflict.gone) == (
        "t", {"id": 7, "day": "x"}, 5, 8, False,
    )  # fmt: skip
    assert conflict.current == {"id": 7, "day": "x", "n": 9, "rev": 8}
    with pytest.raises(VersionConflict, match="is gone, or never was") as caught:
        run(swap.carry_out(ScriptedWire(Answer([], 0), Answer([], 0))))
    conflict = caught.value
    assert (conflict.expected, conflict.version, conflict.current, conflict.gone) == (5, None, None, True)
    assert objects == [], "what was not written is not read again"


def test_a_row_that_was_not_written_at_its_own_version_is_told_apart_from_a_lost_race() -> None:
    swap = cas._Swap("t", {"n": 1}, {"id": 7}, 5, "rev")
    unchanged = rows((7, 9, 5), columns=("id", "n", "rev"))
    with pytest.raises(VersionConflict, match="has version 5, as was expected, and yet was not written") as caught:
        run(swap.carry_out(ScriptedWire(Answer([], 0), unchanged)))
    conflict = caught.value
    assert "another writer was first" not in str(conflict)
    assert (conflict.expected, conflict.version, conflict.gone) == (5, 5, False)
    assert conflict.current == {"id": 7, "n": 9, "rev": 5}


@pytest.mark.parametrize(
    ("dialect", "ending"),
    [("mysql", "WHERE `t`.`id` = %(key_0)s LOCK IN SHARE MODE"), ("postgresql", '"t"."id" = %(key_0)s')],
)
def test_the_row_of_a_lost_race_is_read_as_it_is_now_and_not_as_a_snapshot_has_it(dialect: str, ending: str) -> None:
    wire = ScriptedWire(Answer([], 0), dialect=dialect)
    with pytest.raises(VersionConflict):
        run(cas._Swap("t", {}, {"id": 7}, 5, "version").carry_out(wire))
    assert wire.statements[1].endswith(ending)
    assert wire.asked[1][1] == {"key_0": 7}


@pytest.mark.parametrize(
    ("error", "is_conflict"),
    [
        (pymysql.OperationalError(1020, "Record has changed since last read"), True),
        (pymysql.OperationalError(1021, "Disk full"), False),
        (psycopg.errors.lookup("40001")("could not serialize"), True),
        (psycopg.errors.lookup("40P01")("deadlock"), False),
    ],
)
def test_a_row_that_changed_after_the_moment_of_the_transaction_is_a_conflict_without_the_row(
    error: Exception, is_conflict: bool
) -> None:
    wire = ScriptedWire(error)
    with pytest.raises(VersionConflict if is_conflict else type(error)) as caught:
        run(cas._Swap(("s", "t"), {"n": 1}, {"id": 7}, 5, "rev").carry_out(wire))
    assert len(wire.asked) == 1, "nothing else is sent in a transaction that has to be rolled back"
    if is_conflict:
        conflict: Any = caught.value
        assert "the row {'id': 7} of s.t was changed after the moment that this transaction sees" in str(conflict)
        assert (conflict.table, conflict.key, conflict.expected) == ("s.t", {"id": 7}, 5)
        assert (conflict.version, conflict.current, conflict.gone) == (None, None, False)
        assert conflict.__cause__ is error
    else:
        assert caught.value is error


@pytest.mark.parametrize("found", ["UPDATE", "SELECT"])
def test_a_condition_that_fits_several_rows_is_no_key_whether_they_were_written_or_read(found: str) -> None:
    two = rows((7, 5), (7, 6), columns=("id", "rev"))
    answers = [Answer([], 2)] if found == "UPDATE" else [Answer([], 0), two]
    with pytest.raises(ConfigurationError, match=r"where=\{'id': 7\} fits 2 rows of t; roll back"):
        run(cas._Swap("t", {"n": 1}, {"id": 7}, 5, "rev").carry_out(ScriptedWire(*answers)))
