"""What the store makes of answers of MySQL: when a waiter asks again and how, and what is left to the rules."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from leasehold._backends.mysql import queue
from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.backend import RECHECK_WITHOUT_LISTENER, RowsBackend
from leasehold._backends.mysql.options import parse
from leasehold._backends.mysql.packets import Result
from leasehold._backends.mysql.rows import NameRows
from leasehold._record import replace
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.kit import rules
from leasehold.kit.holder import holder_to_json
from leasehold.kit.rows import Row, State
from leasehold.kit.rules import Queued, place_lifetime
from leasehold.spi import Place
from leasehold.store_url import StoreURL
from leasehold.values import Claim, Grant, Holder, Mode, Pause, Reading, Record, Refusal
from tests.unit.planned_waits import PlannedWaits

HOLDER = Holder("db-3", 7)
NAMES = (b"7:ab", b"8:cd", b"7:ab")


class Bench:
    """A backend whose queries are answered from a script, and whose rules answer what the test says."""

    def __init__(self, query: str = "") -> None:
        self.runtime = cast("Any", PlannedWaits())
        self.runtime.spawn = lambda *_: None
        self.sent: list[tuple[bytes, float, bool]] = []
        self.answers: list[list[Result]] = []
        self.label = "mysql://h/db"
        executor: Any = self
        self.backend = cast(
            "Any", RowsBackend(parse(StoreURL.parse(self.label + query)), executor, self.runtime, listen=self.nowhere)
        )
        self.by_rules: list[Any] = []
        self.visits: list[tuple[str, float, Any]] = []
        self.backend._visit = self.visit
        self.name: bytes | None = None
        self.backend._listener.ensure = lambda: self.name

    async def nowhere(self) -> Any:
        raise AssertionError("nobody listens here")

    async def execute(
        self, text: bytes, until: float = math.inf, *, first: bool = False, extra: bool = False
    ) -> list[Result]:
        self.sent.append((text, until, first))
        return self.answers.pop(0)

    async def look(self, text: bytes) -> list[Result]:
        return await self.execute(text)

    async def visit(self, key: str, until: float, verb: Any, *, first: bool = False) -> Any:
        self.visits.append((key, until, verb))
        return self.by_rules.pop(0)

    def listen(self, name: bytes) -> None:
        self.name = self.backend._listener.name = name

    def claim(self, **changes: Any) -> Claim:
        return replace(Claim("ns:x", self.runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, HOLDER), **changes)

    def queued(self, claim: Claim, *, ahead: int = 0, ends: float | None = 30.0) -> Queued:
        return Queued(Row(claim, State.WAITING, 1.0, 4.0, number=5), ahead, 1.0, HOLDER, ends)

    def joined(self, claim: Claim | None = None, **facts: Any) -> Any:
        """A place that the rules gave."""
        claim = claim or self.claim(mode=Mode.SHARED)
        self.by_rules = [self.queued(claim, **facts)]
        return run(self.backend.join(claim))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_waiter_without_a_listener_looks_twice_a_second(bench: Bench) -> None:
    assert bench.joined().recheck == RECHECK_WITHOUT_LISTENER
    assert bench.joined(ends=0.2).recheck == pytest.approx(0.2), "or when the holder may be dead"
    bench.listen(b"7:ab")
    place = bench.joined()
    assert (place.recheck, place.ahead, place.holder) == (1.0, 0, HOLDER)
    assert (place.waiter.number, place.waiter.listener) == (5, b"7:ab")
    assert bench.joined(ahead=3, ends=0.2).recheck == 1.0


def test_a_place_whose_row_has_another_name_asks_for_its_turn_at_once(bench: Bench) -> None:
    bench.name = b"7:new"
    assert bench.joined().signal.is_set()
    bench.listen(b"7:new")
    assert not bench.joined().signal.is_set()


def test_a_plain_claim_on_a_free_name_is_one_query_and_others_go_by_the_rules(bench: Bench) -> None:
    claim = bench.claim()
    bench.answers = [[Result([], 1, 9)]]
    assert run(bench.backend.join(claim, 4.0)) == Grant(claim, 9, 60.0, None, abandoned=False)
    assert bench.sent[0][1] == 4.0
    for other in (
        bench.claim(mode=Mode.SHARED), bench.claim(mode=Mode.PERMIT), bench.claim(min_hold=1.0), bench.claim(spare=2),
    ):  # fmt: skip
        bench.by_rules = ["by the rules"]
        assert run(bench.backend.join(other)) == "by the rules"
    assert len(bench.sent) == 1
    bench.answers = [[Result([], 0, 0)]]
    bench.by_rules = ["it is in use"]
    assert run(bench.backend.join(bench.claim())) == "it is in use"


def test_a_turn_with_the_name_in_its_row_is_a_look_and_with_a_new_one_a_change(bench: Bench) -> None:
    """Or a release that is under way would wake nobody."""
    bench.listen(b"7:ab")
    place = bench.joined(bench.claim(mode=Mode.SHARED))
    looked: list[bytes | None] = []

    async def look(claim: Claim, waiter: Any, name: bytes | None, until: float) -> Any:
        looked.append(name)
        return bench.queued(claim)

    bench.backend._looked = look
    assert isinstance(run(bench.backend.turn(place)), Place)
    assert looked == [b"7:ab"]
    bench.listen(b"7:cd")
    bench.by_rules = [bench.queued(place.claim)]
    place = run(bench.backend.turn(place))
    assert (looked, place.waiter.listener) == ([b"7:ab"], b"7:cd")


@pytest.mark.parametrize("answer", [Refusal("ns:x"), "grant"])
def test_who_waits_no_more_gets_no_wake_up(bench: Bench, answer: Any) -> None:
    place = bench.joined()
    waiters = bench.backend._listener._waiters
    assert list(waiters) == [place.claim.owner]
    bench.name = b"7:new"
    bench.by_rules = [Grant(place.claim, 9, 60.0) if answer == "grant" else answer]
    run(bench.backend.turn(place))
    assert list(waiters) == []


def test_the_first_in_a_crowd_is_asked_for_in_one_query_and_without_an_answer_by_the_rules(bench: Bench) -> None:
    claim = bench.claim()
    bench.backend._crowded.add("ns:x")
    bench.answers = [[Result([]), Result([])]]
    bench.by_rules = [bench.queued(claim)]
    assert isinstance(run(bench.backend.join(claim, 4.0)), Place)
    assert len(bench.sent) == 1
    assert bench.sent[0][0].startswith(b"BEGIN;")
    assert bench.sent[0][1] == 4.0


def place_row(claim: Claim, **changes: bytes | None) -> Result:
    """What is read of a waiter: third in line, behind a holder that has 30 seconds left."""
    columns: dict[str, bytes | None] = {
        "now": b"9000000", "number": b"5", "state": b"3", "fence": b"0", "since": b"8000000", "expires": b"12000000",
        "abandoned": b"0", "broken": b"0", "ahead": b"2", "kept": b"0", "ends": b"39000000",
        "holder": holder_to_json(HOLDER).encode(), "spare": b"0",
    }  # fmt: skip
    return Result([tuple({**columns, **changes}.values())])


def test_a_place_in_a_crowd_is_taken_under_the_name_of_our_listener_and_says_what_was_read(bench: Bench) -> None:
    claim = bench.claim(ttl=70.0)
    bench.backend._crowded.add("ns:x")
    bench.listen(b"7:ab")
    bench.answers = [[Result([]), place_row(claim)]]
    place = run(bench.backend.join(claim, 4.0))
    assert bench.sent == [(queue.join_queue(claim, b"7:ab"), 4.0, False)]
    assert (place.ahead, place.holder, place.retry_after) == (2, HOLDER, 30.0)
    assert (place.waiter.number, place.waiter.listener, place.signal.is_set()) == (5, b"7:ab", False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": b"1", "fence": b"42", "abandoned": b"1", "spare": b"0"}, (42, 3.0, True)),
        ({"state": b"1", "fence": b"43", "ahead": b"0"}, (43, 3.0, False)),
    ],
)
def test_a_look_of_a_waiter_keeps_its_place_alive_and_finds_what_was_handed_over(
    bench: Bench, changes: dict[str, bytes], expected: tuple[int, float, bool]
) -> None:
    claim = bench.claim(ttl=70.0)
    bench.backend._crowded.add("ns:x")
    bench.listen(b"7:ab")
    bench.answers = [[Result([]), place_row(claim)], [Result([], 1), place_row(claim, **changes)]]
    place = run(bench.backend.join(claim))
    grant = run(bench.backend.turn(place, 6.0))
    assert (grant.claim, grant.fence, grant.ttl, grant.abandoned) == (claim, *expected)
    kept = sql.keep_place(b"ns:x", 5, claim.owner.encode(), place_lifetime(claim), b"7:ab")
    assert bench.sent[1] == (kept + b";" + queue.read_place(claim, 5), 6.0, False)
    assert list(bench.backend._listener._waiters) == [], "it is woken no more"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spare": b"5"}, (3.0, 5)),
        ({"spare": b"64"}, (3.0, 64)),
        ({"spare": b"500"}, (3.0, 64)),  # an operator has raised the fence: they are not all its own
        ({"expires": b"9500000"}, (0.5, 0)),
        ({"expires": b"9000000"}, None),
        ({"expires": b"8000000"}, None),
        ({"broken": b"1"}, None),
        ({"state": b"2"}, None),
        ({"state": b"5"}, None),
    ],
)
def test_what_was_handed_over_is_a_grant_for_as_long_as_it_lasts(
    bench: Bench, changes: dict[str, bytes], expected: tuple[float, int] | None
) -> None:
    claim = bench.claim(ttl=70.0)
    (values,) = place_row(claim, **{"state": b"1", "fence": b"42", **changes}).rows
    grant = queue.PlaceRow.from_values(claim, values).grant()
    assert grant == (None if expected is None else Grant(claim, 42, expected[0], None, False, expected[1]))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (2, HOLDER, 30.0)),
        ({"ahead": b"0"}, (0, HOLDER, 30.0)),
        ({"ends": b"9000000"}, (2, HOLDER, None)),  # it has run out, and was not cleared away: others are ahead still
        ({"ends": None, "holder": None}, (2, None, None)),
        ({"ends": b"9000000", "ahead": b"0"}, None),
        ({"ends": None, "holder": None, "ahead": b"0"}, None),
        ({"expires": b"9000000"}, None),  # its place is over
        ({"kept": b"1"}, None),
        ({"state": b"4"}, None),
    ],
)
def test_a_place_is_what_was_read_unless_the_rules_have_to_decide(
    bench: Bench, changes: dict[str, bytes | None], expected: tuple[int, Holder | None, float | None] | None
) -> None:
    claim = bench.claim(ttl=70.0)
    (values,) = place_row(claim, **changes).rows
    queued = queue.PlaceRow.from_values(claim, values).queued()
    if expected is None:
        assert queued is None
        return
    assert queued is not None
    assert (queued.ahead, queued.holder, queued.retry_after) == expected
    assert (queued.row.number, queued.row.since, queued.row.expires) == (5, 8.0, 12.0)


@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.PERMIT])
def test_only_a_claim_that_wants_the_name_alone_joins_a_crowd_as_one(bench: Bench, mode: Mode) -> None:
    claim = bench.claim(mode=mode)
    bench.backend._crowded.add("ns:x")
    bench.by_rules = [bench.queued(claim)]
    assert isinstance(run(bench.backend.join(claim, 4.0)), Place)
    assert bench.sent == []
    assert [(key, until) for key, until, _ in bench.visits] == [("ns:x", 4.0)]


def test_a_waiter_whose_place_is_gone_goes_by_the_rules(bench: Bench) -> None:
    claim = bench.claim()
    bench.backend._crowded.add("ns:x")
    bench.listen(b"7:ab")
    bench.answers = [[Result([]), place_row(claim)], [Result([], 0), Result([])]]
    place = run(bench.backend.join(claim))
    bench.by_rules = [Refusal("ns:x")]
    assert run(bench.backend.turn(place, 6.0)) == Refusal("ns:x")
    assert [(key, until) for key, until, _ in bench.visits] == [("ns:x", 6.0)]


def test_a_place_in_a_paused_name_says_by_whom_and_for_how_long(bench: Bench) -> None:
    claim = bench.claim(mode=Mode.SHARED)
    pause = Pause("a migration", "the night shift", 40.0, 20.0)
    bench.by_rules = [bench.queued(claim, ahead=1, ends=40.0)._replace(holder=None, paused=pause)]
    place = run(bench.backend.join(claim))
    assert (place.paused, place.retry_after, place.holder, place.ahead) == (pause, 40.0, None, 1)


def test_the_fence_floor_of_the_url_is_that_of_every_way_to_a_grant() -> None:
    bench = Bench("?fence_floor=41")
    claim = bench.claim()
    bench.answers = [[Result([], 1, 42)], [Result([(None,)])]]
    run(bench.backend.join(claim))
    assert bench.sent[0][0] == sql.grant_plain(claim, 42, sql.NO_SESSION)
    grant = Grant(claim, 50, 60.0)
    bench.backend._crowded.add("ns:x")
    bench.by_rules = [True]
    run(bench.backend.release(grant, 4.0))
    assert bench.sent[1][0] == queue.hand_over(grant, 42)
    bench.answers = [[Result([(b"1000000", *[None] * 28)])]]
    rows = run(bench.backend._read("ns:x", 4.0))
    assert rows._fence.mint() == 1_000_000, "the clock of the server is ahead of it"
    bench.answers = [[Result([(b"1", *[None] * 28)])]]
    assert run(bench.backend._read("ns:x", 4.0))._fence.mint() == 42


# --- releases


@pytest.mark.parametrize(
    ("changes", "crowded", "answers", "queries"),
    [
        ({}, False, [[Result([], 1)]], 1),
        ({}, False, [[Result([], 0)], [Result([(b"",)])]], 2),
        ({}, True, [[Result([(b"",)])]], 1),
        ({}, True, [[Result([(None,)])]], 1),
        ({"min_hold": 1.0}, False, [], 0),
        ({"mode": Mode.SHARED}, False, [], 0),
    ],
)
def test_a_release_is_as_few_queries_as_its_kind_allows(
    bench: Bench, changes: dict[str, Any], crowded: bool, answers: list[list[Result]], queries: int
) -> None:
    if crowded:
        bench.backend._crowded.add("ns:x")
    bench.answers = answers
    bench.by_rules = [True]
    assert run(bench.backend.release(Grant(bench.claim(**changes), 9, 60.0), 4.0)) is True
    assert [(until, first) for _, until, first in bench.sent] == [(4.0, True)] * queries


def test_a_hand_over_wakes_the_client_of_the_next_holder(bench: Bench) -> None:
    rung: list[Any] = []
    bench.backend._listener.wake = rung.extend
    bench.backend._crowded.add("ns:x")
    for listener in (b"7:ab", b""):
        bench.answers = [[Result([(listener,)])]]
        assert run(bench.backend.release(Grant(bench.claim(), 9, 60.0))) is True
    assert rung == [b"7:ab"]


def test_every_listener_is_woken_once_however_many_waiters_it_has(bench: Bench) -> None:
    rung: list[Any] = []
    bench.backend._listener.wake = rung.append
    rows = [Row(bench.claim(), State.WAITING, 1.0, 4.0, number=n, listener=name) for n, name in enumerate(NAMES)]
    bench.backend._notify(rows)
    assert rung == [{b"7:ab", b"8:cd"}]


# --- pauses


def test_a_pause_lasts_for_as_long_as_it_was_asked_for_and_names_who_asked(bench: Bench) -> None:
    by = Holder("db-3", 7, "the night shift", "a migration")
    bench.by_rules = [None, True]
    run(bench.backend.pause("ns:x", by, 7.5))
    run(bench.backend.resume("ns:x"))
    (key, until, pause), (_, _, resume) = bench.visits
    assert (key, until) == ("ns:x", math.inf)
    rows = NameRows("ns:x", "mysql://h/db", [(b"9000000", *[None] * 28)])
    pause(rows)
    state = rules.inspect(rows)
    assert state is not None
    assert state.paused == Pause("a migration", "the night shift", 7.5, 0.0)
    assert resume(rows) is True
    assert rules.inspect(rows) is None
    assert resume(rows) is False


# --- records


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((b"v", b"7", b"5000000", b"3000000"), Reading(Record("k", b"v", 7, 2.0), 7, 3.0)),
        ((b"", b"7", b"5000000", b"3000000"), Reading(Record("k", b"", 7, 2.0), 7, 3.0)),
        ((b"v", b"7", b"3000000", b"3000000"), Reading(None, 7, 3.0)),
        ((b"v", b"7", b"0", b"3000000"), Reading(None, 7, 3.0)),
        ((None, None, None, b"3000000"), Reading(None, 0, 3.0)),
    ],
)
@pytest.mark.parametrize("fence", [0, 4])
def test_a_record_is_read_with_its_fence_and_the_time(
    bench: Bench, row: tuple[bytes | None, ...], expected: Reading, fence: int
) -> None:
    bench.answers = [[Result([], 1), Result([row])] if fence else [Result([row])]]
    assert run(bench.backend.read("k", fence)) == expected
    assert bench.sent[0][0].startswith(b"INSERT") is bool(fence)


def test_a_record_under_a_name_that_the_column_does_not_take_is_refused_before_it_is_sent(bench: Bench) -> None:
    name = "x" * 2401
    for verb in (
        bench.backend.read(name),
        bench.backend.read(name, 4),
        bench.backend.write(Record(name, b"v", 7, 2.0)),
    ):
        with pytest.raises(ConfigurationError, match="2401 bytes"):
            run(verb)
    assert bench.sent == []


def test_without_tables_there_is_no_record_and_the_time_is_the_servers(bench: Bench) -> None:
    bench.answers = [[], [Result([(b"3000000",)])]]
    assert run(bench.backend.read("k")) == Reading(None, 0, 3.0)


@pytest.mark.parametrize(("affected", "written"), [(0, False), (1, True), (2, True)])
def test_a_record_is_written_unless_a_higher_fence_was_seen(bench: Bench, affected: int, written: bool) -> None:
    bench.answers = [[Result([], affected)]]
    assert run(bench.backend.write(Record("k", b"v", 7, 2.0))) is written
