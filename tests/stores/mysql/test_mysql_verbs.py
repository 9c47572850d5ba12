"""Verbs of MySQL over rows that the test says: what has run out, what is renewed, what is broken. No server."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from leasehold._backends.mysql import maintenance
from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.backend import RowsBackend
from leasehold._backends.mysql.maintenance import Cleaning
from leasehold._backends.mysql.options import parse
from leasehold._backends.mysql.packets import Answer, Result, ServerError
from leasehold._record import replace
from leasehold._runtimes.threads import run
from leasehold.errors import BackendUnavailable
from leasehold.kit.holder import holder_to_json
from leasehold.kit.rows import State
from leasehold.kit.rules import TAKEN
from leasehold.spi import Place
from leasehold.store_url import StoreURL
from leasehold.values import Claim, Grant, Holder, Holding, LockState, Loss, LossReason, Mode, Refusal
from tests.unit.planned_waits import PlannedWaits

KEY = "ns:x"
NOW = 1_700_000_000_000_000
SECOND = 1_000_000
FIRST, SECOND_HOLDER, WAITS = Holder("db-1", 1, "nightly"), Holder("db-2", 2), Holder("db-3", 3, None, "the report")


def line(key: str = KEY, last: int = 20, **changes: Any) -> tuple[bytes | None, ...]:
    """A claim of a name, as it is read: a holder of one of two permits, since 5 seconds, for 55 more."""
    columns: dict[str, Any] = {
        "number": 3, "owner": "own", "state": 1, "mode": "permit", "capacity": 2, "ttl": 60 * SECOND, "min_hold": 0,
        "holder": holder_to_json(FIRST), "fence": 9, "since": NOW - 5 * SECOND, "expires": NOW + 55 * SECOND,
        "abandoned": 0, "broken": None, "listener": None, "session": None, "ended": 0,
    }  # fmt: skip
    written = [None if value is None else str(value).encode() for value in {**columns, **changes}.values()]
    name: list[bytes | None] = [b"%d" % NOW, key.encode(), b"4", b"%d" % last, b"2", b"0", *[None] * 6, b"0"]
    return (*name, *written)


def nothing(key: str = KEY) -> tuple[bytes | None, ...]:
    """A name that was never used."""
    return (b"%d" % NOW, *[None] * 28)


class Source:
    """Remembers what was done to it, in order."""

    is_closed = False

    def __init__(self, done: list[str]) -> None:
        self.done = done

    async def close(self) -> None:
        self.done.append("connections")


class Bench:
    """A backend whose queries are answered from a script, in order."""

    def __init__(self, query: str = "") -> None:
        self.runtime = cast("Any", PlannedWaits())
        self.runtime.spawn = lambda *_: None
        self.label = "mysql://h/db"
        self.sent: list[tuple[bytes, float, bool, bool]] = []
        self.answers: list[list[Result]] = []
        self.done: list[str] = []
        self.source = Source(self.done)
        executor: Any = self
        self.backend = cast(
            "Any",
            RowsBackend(parse(StoreURL.parse(self.label + query)), executor, self.runtime, listen=self.nowhere),
        )
        self.backend._listener.ensure = lambda: None

    async def nowhere(self) -> Any:
        raise AssertionError("nobody listens here")

    async def execute(
        self, text: bytes, until: float = math.inf, *, first: bool = False, extra: bool = False
    ) -> list[Result]:
        self.sent.append((text, until, first, extra))
        return self.answers.pop(0)

    async def look(self, text: bytes) -> list[Result]:
        return await self.execute(text)

    def claim(self, **changes: Any) -> Claim:
        return replace(Claim(KEY, "own", 60.0, Mode.PERMIT, 2, 0.0, FIRST), **changes)


@pytest.fixture
def bench() -> Bench:
    return Bench()


WRITTEN = [Result([]), Result([], 1), *[Result([])] * 4]
REFUSED = [Result([]), Result([], 0), *[Result([])] * 4]


# --- what is seen


def test_a_state_is_that_of_the_rows_that_have_not_run_out(bench: Bench) -> None:
    bench.answers = [
        [
            Result([
                line(number=3),
                line(number=4, owner="gone", expires=NOW),
                line(number=5, owner="two", holder=holder_to_json(SECOND_HOLDER), fence=12, broken='"stuck"'),
                line(number=6, owner="late", state=3, fence=0, expires=NOW - 1),
                line(number=7, owner="wait", state=3, fence=0, holder=holder_to_json(WAITS)),
            ])
        ]
    ]  # fmt: skip
    holdings = (Holding(FIRST, 9, 5.0, 55.0, None), Holding(SECOND_HOLDER, 12, 5.0, 55.0, "stuck"))
    assert run(bench.backend.inspect(KEY)) == LockState(KEY, Mode.PERMIT, 2, holdings, (WAITS,))
    assert bench.sent[0][0] == sql.read_name(KEY.encode())


def test_a_list_has_the_locks_that_are_in_use_each_with_its_own_rows(bench: Bench) -> None:
    bench.answers = [
        [
            Result([
                line("ns:a", number=1, expires=NOW - 1),
                line("ns:b", number=1, mode="shared", capacity=1, fence=7),
                line("ns:b", number=2, mode="shared", capacity=1, fence=8, owner="two"),
                line("ns:c", number=1, capacity=3),
            ])
        ]
    ]  # fmt: skip
    states = run(bench.backend.list("ns:"))
    assert [(state.name, state.mode, state.capacity) for state in states] == [
        ("ns:b", Mode.SHARED, 1),
        ("ns:c", Mode.PERMIT, 3),
    ]
    assert [[holding.fence for holding in state.holdings] for state in states] == [[7, 8], [9]]
    assert bench.sent[0][0] == sql.read_names(b"ns:", b"ns;")


# --- renewal


def test_plain_renewals_keep_all_that_a_grant_says(bench: Bench) -> None:
    ttls = (60.0, 30.0)
    grants = [
        Grant(bench.claim(mode=Mode.EXCLUSIVE, owner=f"own-{ttl}", ttl=ttl), 9, 1.0, 4.0, ttl == 30.0, 3)
        for ttl in ttls
    ]
    bench.answers = [[Result([], 1), Result([], 1)]]
    expected = [replace(grant, ttl=grant.claim.ttl, since=None) for grant in grants]
    assert run(bench.backend.renew(grants, 8.0)) == expected
    assert [answer.abandoned for answer in expected] == [False, True]
    assert bench.sent == [(sql.renew_plain(grants, sql.NO_SESSION), 8.0, True, True)]


def test_a_grant_that_was_not_renewed_is_looked_at_by_itself(bench: Bench) -> None:
    """Each at its place: one that is there, one that was broken, one that was broken under another fence, one gone."""
    owners = ("there", "broken", "older", "gone")
    grants = [Grant(bench.claim(key=f"ns:{owner}", owner=owner), 9, 60.0, spare=2) for owner in owners]
    broken: dict[str, Any] = {"state": 5, "broken": '"stuck \\u00e9"'}
    bench.answers = [
        [Result([]), Result([(b"there",)]), Result([])],
        [Result([line("ns:broken", owner="broken", **broken), line("ns:broken", number=4, owner="other")])],
        [Result([line("ns:older", owner="older", **{**broken, "fence": 8})])],
        [Result([nothing("ns:gone")])],
    ]
    lost = Loss(LossReason.BROKEN, "stuck \u00e9")
    assert run(bench.backend.renew(grants, 8.0)) == [grants[0], lost, TAKEN, TAKEN]
    assert bench.sent[0] == (sql.renew_all(grants, sql.NO_SESSION), 8.0, True, True)
    assert [text for text, *_ in bench.sent[1:]] == [sql.read_name(f"ns:{owner}".encode()) for owner in owners[1:]]
    assert {until for _, until, *_ in bench.sent} == {8.0}


@pytest.mark.parametrize(
    ("row", "fence"),
    [
        ({"broken": '"stuck"', "expires": NOW}, 9),  # it has run out: the break is over as well
        ({"expires": NOW}, 9),
        ({"state": 2}, 9),  # released already, and kept for its min_hold
        ({"state": 3}, 9),
        ({}, 8),  # an older grant of the same owner
        ({}, 21),
    ],
)
def test_a_grant_whose_row_says_otherwise_is_lost_without_a_change(
    bench: Bench, row: dict[str, Any], fence: int
) -> None:
    bench.answers = [
        [Result([], 0)],
        [Result([]), Result([]), Result([])],
        [Result([line(mode="exclusive", **row)])],
    ]
    assert run(bench.backend.renew([Grant(bench.claim(mode=Mode.EXCLUSIVE), fence, 60.0)], 8.0)) == [TAKEN]
    assert len(bench.sent) == 3


def test_a_grant_that_was_passed_on_is_renewed_under_its_earlier_fence_ahead_of_others(bench: Bench) -> None:
    holds = line(mode="exclusive")
    bench.answers = [
        [Result([], 0)],
        [Result([]), Result([]), Result([])],
        [Result([holds])],
        [Result([holds])],
        WRITTEN,
    ]
    grant = Grant(bench.claim(mode=Mode.EXCLUSIVE), 12, 60.0)
    (answer,) = run(bench.backend.renew([grant], 8.0))
    assert isinstance(answer, Grant)
    assert answer.claim.owner == "own"
    assert [(until, first) for _, until, first, _ in bench.sent] == [
        (8.0, True), (8.0, True), (8.0, False), (8.0, True), (8.0, True),
    ]  # fmt: skip


def test_a_plain_claim_that_changed_no_row_is_no_grant(bench: Bench) -> None:
    """The server tells the last number that it made, whatever the statement did."""
    bench.answers = [[Result([], 0, 77)], [Result([line(mode="exclusive", owner="other")])]]
    answer = run(bench.backend.try_acquire(bench.claim(mode=Mode.EXCLUSIVE), 8.0))
    assert isinstance(answer, Refusal)
    assert answer.holder == FIRST


def test_all_readers_that_a_release_lets_in_are_woken(bench: Bench) -> None:
    woken: list[set[bytes]] = []
    bench.backend._listener.wake = lambda listeners: woken.append(set(listeners))
    bench.backend._crowded.add(KEY)
    readers = [
        line(number=number, owner=f"reader-{number}", state=3, mode="shared", fence=0, listener=f"bell-{number}")
        for number in (4, 5, 6)
    ]
    bench.answers = [[Result([(None,)])], [Result([line(mode="exclusive", last=9), *readers])], WRITTEN]
    assert run(bench.backend.release(Grant(bench.claim(mode=Mode.EXCLUSIVE), 9, 60.0), 8.0)) is True
    assert woken == [{b"bell-4", b"bell-5", b"bell-6"}]


# --- changes


def rows_after(bench: Bench, *lines: tuple[bytes | None, ...]) -> list[Any]:
    """Have the next verb change these rows; the list gets them."""
    seen: list[Any] = []
    decided = bench.backend._decided

    def note(rows: Any, verb: Any) -> Any:
        seen.append(rows)
        return decided(rows, verb)

    bench.backend._decided = note
    bench.answers = [[Result(list(lines))], WRITTEN]
    return seen


@pytest.mark.parametrize(("now", "state"), [(True, State.BROKEN), (False, State.HOLDING)])
def test_a_break_ends_a_grant_now_or_with_its_ttl(bench: Bench, now: bool, state: State) -> None:
    seen = rows_after(bench, line(number=3), line(number=4, owner="two", fence=12))
    assert run(bench.backend.break_(KEY, 12, "stuck", now=now)) is True
    (rows,) = seen
    assert [(row.state, row.broken) for row in rows] == [(State.HOLDING, None), (state, "stuck")]
    bench.answers = [[Result([line(number=3)])]]
    assert run(bench.backend.break_(KEY, 12, "stuck", now=now)) is False


@pytest.mark.parametrize("doubt", [True, False])
def test_a_withdrawal_goes_first_and_leaves_a_mark_only_in_doubt(bench: Bench, doubt: bool) -> None:
    seen = rows_after(bench, line(number=3, owner="two"), line(number=4, state=3, fence=0))
    run(bench.backend.withdraw(bench.claim(), 8.0, doubt=doubt))
    (rows,) = seen
    assert [(row.claim.owner, row.state) for row in rows] == [
        ("two", State.HOLDING),
        *([("own", State.WITHDRAWN)] if doubt else []),
    ]
    assert [(until, first) for _, until, first, _ in bench.sent] == [(8.0, True)] * 2


def test_a_grant_by_the_rules_has_a_fence_above_the_floor() -> None:
    """Also where the clock of the server is far behind it."""
    bench = Bench(f"?fence_floor={NOW * 2}")
    bench.answers = [[Result([nothing()])], [Result([], 1)] * 6]
    grant = run(bench.backend.try_acquire(bench.claim(), 8.0))
    assert isinstance(grant, Grant)
    assert grant.fence == NOW * 2 + 1


def test_what_a_waiter_found_by_looking_is_granted_only_if_that_was_written(bench: Bench) -> None:
    claim = bench.claim(mode=Mode.SHARED, capacity=1)
    waits = line(number=3, state=3, mode="shared", capacity=1, fence=0)
    ahead = line(number=2, owner="two", mode="exclusive", capacity=1)
    bench.answers = [[Result([ahead])], WRITTEN]
    place = run(bench.backend.join(claim))
    assert isinstance(place, Place)
    place_taken = [Result([waits])]
    for outcome, later in (
        (WRITTEN, []),
        (REFUSED, [[Result([ahead, waits])], WRITTEN]),  # another was faster, and holds: the rules say so
    ):
        bench.answers = [[Result([], 1), *place_taken], outcome, *later]
        answer = run(bench.backend.turn(place, 8.0))
        assert isinstance(answer, Place if later else Grant), outcome
        assert bench.answers in ([], [WRITTEN])


def test_a_client_stops_listening_before_its_connections_are_closed(bench: Bench) -> None:
    async def closed() -> None:
        bench.done.append("listener")

    bench.backend._listener.close = closed
    run(bench.backend.close())
    assert bench.done == ["listener", "connections"]


def test_a_try_that_finds_the_name_in_use_says_who_holds_for_how_long_and_how_many_wait(bench: Bench) -> None:
    lines = [
        line(number=1, owner="one", holder=holder_to_json(SECOND_HOLDER), expires=NOW + 7 * SECOND),
        line(number=2, owner="two", fence=12, expires=NOW + 9 * SECOND),
        line(number=3, owner="three", state=3, fence=0),
    ]
    bench.answers = [[Result(lines)]]
    assert run(bench.backend.try_acquire(bench.claim(), 8.0)) == Refusal(KEY, SECOND_HOLDER, 7.0, 1)


# --- cleaning


class Cleaned:
    """A connection whose queries are answered from a script."""

    def __init__(self, *answers: Answer) -> None:
        self.sent: list[bytes] = []
        self.answers = list(answers)

    async def query(self, text: bytes) -> Answer:
        self.sent.append(text)
        return self.answers.pop(0)


def slice_of(count: int, last: bytes | None) -> Answer:
    return Answer([Result([(b"%d" % count, last)])])


def test_a_slice_of_names_is_cleaned_from_behind_the_last_one_to_its_end_and_then_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "SLICE", 2)
    runtime: Any = PlannedWaits()
    cleaning = Cleaning("mysql://h/db", runtime)
    one, two, three = b"x'6e73313a'", b"x'6e73323a'", b"x'6e73333a'"
    done, lasts = Answer([Result([])]), Answer([Result([line(owner="over", expires=NOW)])])
    connection: Any = Cleaned(
        slice_of(2, b"ns1:"), lasts, Answer(WRITTEN), done, slice_of(2, b"ns2:"), done,  # a whole slice of each
        slice_of(1, b"ns3:"), done, done, slice_of(1, b"ns3:"), done,  # the rest
        slice_of(0, None), slice_of(0, None),  # and again from the first
    )  # fmt: skip
    for _ in range(3):
        run(cleaning.run(connection))
    assert connection.answers == []
    sent = connection.sent
    names, records = b"FROM leasehold_lock WHERE name > ", b"FROM leasehold_record WHERE name > "
    looked = [text.partition(b" WHERE name > ")[2].partition(b" ORDER")[0] for text in sent if b"MAX(name)" in text]
    assert looked == [b"x''", b"x''", one, two, b"x''", b"x''"]
    assert b"l.name >= x'00' AND l.name < x'6e73313a00'" in sent[1]
    assert b"DELETE FROM leasehold_claim" in sent[2], "what had run out"
    spare = b"AND fence < " + sql.NOW + b" - 86400000000"
    assert sent[3] == b"DELETE " + names + b"x'' AND name <= " + one + b" AND shape = 0 " + spare
    expired = b" AND expires <= " + sql.NOW + b" "
    assert sent[5] == b"DELETE " + records + b"x'' AND name <= " + two + expired + spare
    assert b"l.name >= x'6e73313a00' AND l.name < x'6e73333a00'" in sent[7]
    assert sent[8] == b"DELETE " + names + one + b" AND name <= " + three + b" AND shape = 0 " + spare
    assert sent[10] == b"DELETE " + records + two + b" AND name <= " + three + expired + spare


@pytest.mark.parametrize(("results", "ends"), [([], []), ([Result([])], [b"ROLLBACK"])])
def test_a_cleaning_that_is_refused_leaves_no_transaction_open(results: list[Result], ends: list[bytes]) -> None:
    refused = Answer(results, ServerError(1205, "HY000", "lock wait timeout"))
    connection: Any = Cleaned(refused, Answer([Result([])]))
    with pytest.raises(BackendUnavailable) as caught:
        run(Cleaning("mysql://h/db", cast("Any", PlannedWaits())).run(connection))
    assert caught.value.backend == "mysql://h/db"
    assert connection.sent[1:] == ends
