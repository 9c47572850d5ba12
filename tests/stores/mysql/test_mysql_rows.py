"""Rows of MariaDB as claims and back: which form is stored, what a place says, what a hand-over did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.packets import Result
from leasehold._backends.mysql.queue import HandOver, PlaceRow
from leasehold._backends.mysql.rows import Change, NameRows, names_of
from leasehold._record import replace
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.kit import rules
from leasehold.kit.holder import holder_to_json
from leasehold.kit.rows import Row, State
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.mariadb import MariadbServer

KEY = "leasehold:job"
NOW = 1_700_000_000_000_000
HOLDER = Holder("db-3", 7, "nightly", "the report")
STORED = holder_to_json(HOLDER).encode()


def claim(**changes: Any) -> Claim:
    return replace(Claim(KEY, ThreadRuntime().owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, HOLDER), **changes)


# --- the form of a name with one holder


def named(
    fence: int = 9, shape: bytes = b"2", abandoned_until: int = 0, *, ended: bytes | None = b"0"
) -> list[bytes | None]:
    """The part of a line about the name; folded, if its shape is 1."""
    own: list[bytes | None] = [None] * 6
    if shape == b"1":
        own = [b"own", b"60000000", b"%d" % (NOW - 5_000_000), b"%d" % (NOW + 55_000_000), STORED, b"session"]
    return [b"%d" % NOW, KEY.encode(), b"4", b"%d" % fence, shape, b"%d" % abandoned_until, *own, ended]


def claimed(**changes: bytes | None) -> list[bytes | None]:
    """The part about a claim."""
    columns: dict[str, bytes | None] = {
        "number": b"3", "owner": b"own", "state": b"1", "mode": b"exclusive", "capacity": b"1", "ttl": b"60000000",
        "min_hold": b"0", "holder": STORED, "fence": b"9", "since": b"%d" % (NOW - 5_000_000),
        "expires": b"%d" % (NOW + 55_000_000), "abandoned": b"0", "broken": None, "listener": None, "session": None,
        "ended": b"0",
    }  # fmt: skip
    return list({**columns, **changes}.values())


def rows_of(name: list[bytes | None], *claims: list[bytes | None]) -> NameRows:
    lines = [tuple(name + each) for each in claims] or [(*name, *[None] * 16)]
    return NameRows(KEY, "mysql://h/db", lines)


def is_folded(rows: NameRows) -> bool:
    change = rows.change()
    return change is not None and b"shape = 1" in change.text


@pytest.mark.parametrize(
    ("changes", "folded"),
    [
        ({}, True),
        ({"state": b"2"}, False),
        ({"state": b"3", "fence": b"0"}, False),
        ({"state": b"4", "fence": b"0"}, False),
        ({"mode": b"shared"}, False),
        ({"mode": b"permit", "capacity": b"2"}, False),
        ({"min_hold": b"90000000"}, False),
        ({"fence": b"8"}, False),  # behind it are fences that are kept free, or an operator has raised them
        ({"abandoned": b"1"}, False),
        ({"broken": b'"stuck"'}, False),
    ],
)
def test_only_a_plain_holder_is_folded_into_the_row_of_its_name(changes: dict[str, bytes], folded: bool) -> None:
    """Whatever the row of the name has no column for would be forgotten."""
    assert is_folded(rows_of(named(), claimed(**changes))) is folded


def test_a_holder_after_one_that_vanished_is_not_folded_before_the_next_one_has_learnt_of_it() -> None:
    assert not is_folded(rows_of(named(abandoned_until=NOW + 1), claimed()))
    assert is_folded(rows_of(named(abandoned_until=NOW), claimed())), "that was long ago"


def test_two_holders_are_not_folded() -> None:
    assert not is_folded(rows_of(named(), claimed(), claimed(number=b"4", owner=b"other", fence=b"9")))


def test_what_was_read_and_not_changed_is_not_written() -> None:
    assert rows_of(named(shape=b"1")).change() is None
    assert rows_of(named(), claimed(), claimed(number=b"4", owner=b"o", state=b"3", fence=b"0")).change() is None
    assert rows_of(named(shape=b"0")).change() is None


def test_a_folded_holder_is_read_with_all_that_it_has() -> None:
    (row,) = rows_of(named(shape=b"1"))
    assert row.claim == Claim(KEY, "own", 60.0, Mode.EXCLUSIVE, 1, 0.0, HOLDER)
    assert (row.state, row.fence, row.abandoned, row.broken, row.spare) == (State.HOLDING, 9, False, None, 0)
    assert (row.since, row.expires) == (NOW / 1e6 - 5, NOW / 1e6 + 55)


@pytest.mark.parametrize("shape", [b"1", b"2"])
def test_a_holder_whose_session_has_ended_is_over_now(shape: bytes) -> None:
    name = named(shape=shape, ended=b"1")
    rows = rows_of(name) if shape == b"1" else rows_of(name, claimed(session=b"s", ended=b"1"))
    rules.expire(rows)
    assert len(rows) == 0
    assert rows.abandoned_until > rows.now, "the next one learns of it"


def test_fences_behind_a_holder_are_its_own_and_those_of_readers_are_not() -> None:
    spares = {
        mode: [row.spare for row in rows_of(named(fence=12), claimed(mode=mode))]
        for mode in (b"exclusive", b"shared", b"permit")
    }
    assert spares == {b"exclusive": [3], b"shared": [0], b"permit": [0]}


def test_fences_follow_the_clock_and_the_floor_and_never_fall() -> None:
    def following(fence: int, first: int = 1, spare: int = 0) -> tuple[int, int]:
        rows = NameRows(KEY, "", [(*named(fence=fence), *[None] * 16)], first)
        return rows.next_fence(spare), rows.next_fence()

    assert following(9) == (NOW, NOW + 1)
    assert following(NOW + 7) == (NOW + 8, NOW + 9)
    assert following(9, first=NOW + 50) == (NOW + 50, NOW + 51)
    assert following(9, spare=64) == (NOW, NOW + 65)


def test_a_raised_fence_is_never_lowered() -> None:
    rows = rows_of(named(fence=50))
    assert rows.raise_fence(40) == 50
    assert rows.raise_fence(60) == 60


def test_only_waiters_whose_client_listens_are_woken_and_only_after_a_change() -> None:
    waits = {"state": b"3", "fence": b"0", "mode": b"shared"}
    rows = rows_of(
        named(), claimed(**waits, listener=b"7:ab"), claimed(**waits, number=b"4", owner=b"silent", listener=None)
    )
    assert rows.notify() == []
    rows.changed = True
    assert [row.claim.owner for row in rows.notify()] == ["own"]


def test_a_list_of_names_is_taken_apart_by_name() -> None:
    other = named()
    other[1] = b"leasehold:zebra"
    lines = [
        tuple(named() + claimed()),
        tuple(named() + claimed(number=b"4", owner=b"second")),
        tuple(other + claimed()),
    ]
    assert [(rows.key, len(rows)) for rows in names_of(lines, "")] == [(KEY, 2), ("leasehold:zebra", 1)]


@pytest.mark.parametrize(("affected", "applied"), [(0, False), (1, True), (2, False)])
def test_a_change_is_applied_if_its_own_statement_changed_one_row(affected: int, applied: bool) -> None:
    """An INSERT that met another one reports two rows, or none."""
    results = [Result([], 1 - applied), Result([], affected), Result([], 7)]
    assert Change(b"", 1).is_applied(results) is applied


# --- written and read again


@pytest.fixture
def backend(mariadb_database: str) -> Iterator[Any]:
    opened = find_store(mariadb_database).open_backend(ThreadRuntime())
    yield opened
    run(opened.close())


def facts(row: Row) -> tuple[object, ...]:
    return (
        row.claim,
        row.state,
        round(row.since * 1e6),
        round(row.expires * 1e6),
        row.fence,
        row.abandoned,
        row.broken,
        row.number,
        row.listener,
    )


def test_every_fact_of_a_row_is_stored_and_every_change_of_it(backend: Any) -> None:
    until = backend._runtime.now() + 60

    async def story() -> None:
        rows = await backend._read(KEY, until)
        kept = claim(mode=Mode.SHARED, min_hold=4.5, ttl=70.25)
        made = [
            Row(kept, State.HOLDING, rows.now - 1, rows.now + 59.5, 7, abandoned=True),
            Row(claim(mode=Mode.PERMIT, capacity=5), State.COOLING, rows.now, rows.now + 30, 8, broken='"ä\x00'),
            Row(claim(holder=Holder("h", 1)), State.WAITING, rows.now, rows.now + 31, listener=b"7:ab"),
            Row(claim(), State.WITHDRAWN, rows.now, rows.now + 32),
        ]
        for row in made:
            rows.insert(row)
        rows.raise_fence(9)
        assert await backend._is_written(rows, until)
        again = await backend._read(KEY, until)
        assert [facts(row) for row in again] == [facts(row) for row in made]
        held, cooling, waiting, withdrawn = again
        held.broken, held.fence = "stuck", 9
        cooling.expires += 5
        waiting.listener, waiting.expires = None, waiting.expires + 6
        again.delete(withdrawn)
        again.abandoned_until = again.now + 100
        expected = [facts(row) for row in (held, cooling, waiting)]
        assert await backend._is_written(again, until)
        last = await backend._read(KEY, until)
        assert [facts(row) for row in last] == expected
        assert last.abandoned_until == pytest.approx(again.abandoned_until)
        assert await backend._is_written(last, until), "there is nothing to write"

    run(story())


def test_a_grant_of_a_session_keeps_its_session_through_changes_of_other_clients(mariadb_database: str) -> None:
    """Exclusive ones are folded into the row of the name, and unfolded when others come; shared ones never are."""
    runtime = ThreadRuntime()
    held: Any = find_store(f"{mariadb_database}?mode=session").open_backend(runtime)
    other: Any = find_store(mariadb_database).open_backend(runtime)

    async def story() -> None:
        for mode in (Mode.EXCLUSIVE, Mode.SHARED):
            key = f"leasehold:{mode.value}"
            await held.try_acquire(claim(key=key, mode=mode))
            waiting = claim(key=key, mode=Mode.EXCLUSIVE)
            await other.join(waiting)
            rows = await other._read(key, runtime.now() + 60)
            sessions = {row.state: rows._session_for(row) for row in rows}
            assert sessions[State.HOLDING] != sql.NO_SESSION
            assert sessions[State.WAITING] == sql.NO_SESSION
            await other.withdraw(waiting, doubt=False)
            rows = await other._read(key, runtime.now() + 60)
            assert [rows._session_for(row) for row in rows] == [sessions[State.HOLDING]]
        await held.close()
        deadline = runtime.now() + 30  # half of the ttl; the server notices the end of a connection by itself
        for mode in (Mode.EXCLUSIVE, Mode.SHARED):
            following = claim(key=f"leasehold:{mode.value}")
            while not isinstance(granted := await other.try_acquire(following), Grant) and runtime.now() < deadline:
                await runtime.sleep(0.01)
            assert granted.abandoned is True, "the end of the session has freed it"
        await other.close()

    run(story())


def test_a_grant_of_rows_gets_no_session_from_a_client_that_has_one(mariadb_database: str) -> None:
    """Or it would end with a session that is somebody else's."""
    runtime = ThreadRuntime()
    plain: Any = find_store(mariadb_database).open_backend(runtime)
    other: Any = find_store(f"{mariadb_database}?mode=session").open_backend(runtime)

    async def story() -> None:
        held = await plain.try_acquire(claim())
        await other.withdraw(claim())  # with a mark, so that the holder gets a row of its own
        rows = await plain._read(KEY, runtime.now() + 60)
        assert [rows._session_for(row) for row in rows] == [sql.NO_SESSION] * 2
        await other.close()
        assert isinstance((await plain.renew([held]))[0], Grant)
        await plain.close()

    run(story())


def test_a_new_listener_alone_is_a_change_that_is_written(backend: Any) -> None:
    until = backend._runtime.now() + 60

    async def story() -> None:
        rows = await backend._read(KEY, until)
        rows.insert(Row(claim(), State.WAITING, rows.now, rows.now + 31, listener=b"7:ab"))
        assert await backend._is_written(rows, until)
        again = await backend._read(KEY, until)
        next(iter(again)).listener = b"8:cd"
        assert await backend._is_written(again, until)
        assert [row.listener for row in await backend._read(KEY, until)] == [b"8:cd"]

    run(story())


def test_a_name_that_was_used_before_has_the_session_of_its_present_holder(
    mariadb: MariadbServer, mariadb_database: str
) -> None:
    """One that is missing blocks for a ttl after a crash; one that is left over frees what is held."""
    runtime = ThreadRuntime()
    held: Any = find_store(f"{mariadb_database}?mode=session").open_backend(runtime)
    plain: Any = find_store(mariadb_database).open_backend(runtime)

    def session() -> object:
        query = "SELECT CAST(session AS CHAR) FROM leasehold_lock"
        return mariadb.run(query, mariadb_database.rpartition("/")[2])[0][0]

    async def story() -> None:
        await plain.release(await plain.try_acquire(claim()))
        first = await held.try_acquire(claim())
        name = session()
        assert str(name).startswith("leasehold:")
        await held.release(first)
        assert session() is None
        mine = await plain.try_acquire(claim())
        assert session() is None
        await plain.release(mine)
        await held.try_acquire(claim())
        assert session() == name
        await held.close()
        eventually(lambda: isinstance(run(plain.try_acquire(claim())), Grant), "a session that has ended still holds")
        await plain.close()

    run(story())


# --- a place, and a hand-over


def place(**changes: bytes | None) -> PlaceRow:
    columns: dict[str, bytes | None] = {
        "now": b"%d" % NOW, "number": b"5", "state": b"3", "fence": b"0", "since": b"%d" % (NOW - 1_000_000),
        "expires": b"%d" % (NOW + 2_000_000), "abandoned": b"0", "broken": b"0", "ahead": b"2", "kept": b"0",
        "ends": b"%d" % (NOW + 30_000_000), "holder": STORED, "spare": b"0",
    }  # fmt: skip
    return PlaceRow.from_values(claim(ttl=60.0), tuple({**columns, **changes}.values()))


def test_a_place_says_who_holds_and_when_to_look_again() -> None:
    queued = place().queued()
    assert queued is not None
    assert (queued.ahead, queued.holder, queued.ends, queued.recheck) == (2, HOLDER, 30.0, 1.0)
    assert (queued.row.number, queued.row.state, queued.row.expires) == (5, State.WAITING, NOW / 1e6 + 2)
    assert queued.retry_after == 30.0
    first = place(ahead=b"0", ends=b"%d" % (NOW + 400_000)).queued()
    assert first is not None
    assert first.early_recheck == pytest.approx(0.4)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": b"1"},
        {"state": b"4"},
        {"expires": b"%d" % NOW},
        {"kept": b"1"},
        {"ahead": b"0", "ends": None, "holder": None},
        {"ahead": b"0", "ends": b"%d" % NOW},
    ],
    ids=["holds", "withdrawn", "over", "kept", "nobody in the way", "holder is over"],
)
def test_where_more_is_to_be_decided_than_a_place_the_rules_do(changes: dict[str, bytes | None]) -> None:
    assert place(**changes).queued() is None


def test_a_waiter_behind_others_stays_when_nobody_holds() -> None:
    queued = place(ahead=b"1", ends=None, holder=None).queued()
    assert queued is not None
    assert (queued.ahead, queued.holder, queued.ends) == (1, None, None)
    dead = place(ahead=b"1", ends=b"%d" % (NOW - 1_000_000)).queued()
    assert dead is not None
    assert dead.retry_after is None, "a grant that is over ends at no later time"


def test_what_was_handed_over_lasts_for_what_is_left_of_it() -> None:
    grant = place(state=b"1", fence=b"8", abandoned=b"1", spare=b"5", ahead=b"0").grant()
    assert grant is not None
    assert (grant.fence, grant.ttl, grant.abandoned, grant.spare) == (8, 2.0, True, 5)
    wide = place(state=b"1", fence=b"8", spare=b"1000").grant()
    assert wide is not None
    assert wide.spare == rules.SPARE, "an operator has raised the fence since"
    for changes in ({"state": b"3"}, {"state": b"2"}, {"broken": b"1"}, {"expires": b"%d" % NOW}):
        assert place(**{"state": b"1", **changes}).grant() is None, changes


@pytest.mark.parametrize(
    ("listener", "expected"),
    [(None, HandOver(False, None)), (b"", HandOver(True, None)), (b"7:ab", HandOver(True, b"7:ab"))],
)
def test_what_a_hand_over_did_is_told_by_its_last_result(listener: bytes | None, expected: HandOver) -> None:
    assert HandOver.from_results([Result([], 1), Result([(listener,)])]) == expected


# --- values


def test_values_become_columns_and_back() -> None:
    assert [sql.micros(value) for value in (0.0, 1.5, 0.0000015, 2.9999999)] == [0, 1_500_000, 2, 3_000_000]
    assert [sql.seconds(value) for value in (None, b"0", b"1500000")] == [0.0, 0.0, 1.5]
    assert sql.key_range("ns:") == (b"ns:", b"ns;")
    assert sql.key_range("\u00e9") == (b"\xc3\xa9", b"\xc3\xaa")
    assert sql.holder_from(STORED) == HOLDER
    assert sql.holder_from(b"of another \xff program") == Holder("of another \ufffd program", 0)
    assert sql.holder_from(None) == Holder("", 0)
