"""What the store makes of answers of PostgreSQL: grants, places, refusals, and hand-overs told by notification."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leasehold._backends.postgres.backend import SHORTEST_RECHECK, RowsBackend
from leasehold._backends.postgres.notifications import Handover
from leasehold._backends.postgres.options import PostgresOptions
from leasehold._backends.postgres.session import SessionBackend
from leasehold._backends.postgres.statements import Statements
from leasehold._record import replace
from leasehold._runtimes.threads import run
from leasehold.errors import ModeConflict
from leasehold.kit.holder import holder_to_json
from leasehold.kit.pauses import pause_to_json
from leasehold.spi import DRIFT, Place
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Reading, Record, Refusal
from tests.unit.planned_waits import PlannedWaits

HOLDER = Holder("db-3", 7, "nightly", "the report")
STORED = holder_to_json(HOLDER).encode()
PAUSE = pause_to_json(Holder("h", 1, "ana", "moving")).encode()
FLOOR = 11


def reply(verdict: str, **facts: Any) -> tuple[bytes | None, ...]:
    """A row as `verbs.sql` describes it."""
    columns = ("fence", "abandoned", "moment", "ahead", "ends", "facts", "spare", "mode", "capacity")
    values = [facts.get(name) for name in columns]
    return (
        verdict.encode(),
        *(value if value is None or isinstance(value, bytes) else str(value).encode() for value in values),
    )


class Bench:
    """A backend whose requests are answered from a script."""

    def __init__(self, kind: type[Any] = RowsBackend) -> None:
        self.runtime = cast("Any", PlannedWaits())
        self.runtime.spawn = lambda *_: None
        self.answers: list[list[tuple[bytes | None, ...]]] = []
        self.sent: list[tuple[bytes, Any, float, bool, bool]] = []
        self.label = "postgresql://h/db"
        executor: Any = self
        options = PostgresOptions(self.label, fence_floor=FLOOR)
        if kind is SessionBackend:
            self.held: list[str] = []
            self.renewed: list[Any] = []
            source: Any = SimpleNamespace(
                hold=lambda claim: self.held.append(claim.owner),
                drop=lambda claim: self.held.remove(claim.owner),
                renewed=self.note_renewed,
            )
            self.backend: Any = kind(options, Statements("leasehold"), executor, self.runtime, source)
        else:
            self.backend = kind(options, Statements("leasehold"), executor, self.runtime, listen=self.nowhere)

    def note_renewed(self, answers: Any) -> Any:
        self.renewed.append(list(answers))
        return answers

    async def nowhere(self) -> None:
        return None

    async def execute(
        self, statement: Any, values: Any, until: float = math.inf, *, first: bool = False, extra: bool = False
    ) -> Any:
        self.sent.append((statement.name, list(values), until, first, extra))
        rows = self.answers.pop(0)
        return SimpleNamespace(ntuples=len(rows), get_value=lambda row, column: rows[row][column])

    def claim(self, **changes: Any) -> Claim:
        return replace(Claim("ns:x", self.runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, HOLDER), **changes)

    def ask(self, verb: str, claim: Any, *answers: tuple[bytes | None, ...], until: float = math.inf) -> Any:
        self.answers = [list(answers)]
        return run(getattr(self.backend, verb)(claim, until))

    def place(self, claim: Claim | None = None, **facts: Any) -> Any:
        """The place that this answer gives."""
        given = {"moment": 100.0, "ahead": 0, "ends": 30.0, "facts": STORED, **facts}
        return self.ask("join", claim or self.claim(), reply("placed", **given))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("verb", ["try_acquire", "join"])
def test_a_grant_is_what_the_row_says(bench: Bench, verb: str) -> None:
    claim = bench.claim()
    for told, abandoned in (("t", True), ("f", False)):
        grant = bench.ask(verb, claim, reply("granted", fence=7, abandoned=told, spare=3), until=9.0)
        assert grant == Grant(claim, 7, 60.0, None, abandoned, 3)
        assert bench.sent[-1][2] == 9.0
    assert bench.ask(verb, claim, reply("granted", fence=7, abandoned="f")).spare == 0


def test_a_claim_that_waits_says_so_and_where_it_is_called(bench: Bench) -> None:
    bench.backend._listener.channel = b"bell"
    bench.backend._listener.ensure = lambda: b"bell"
    place = bench.place()
    waits = bench.sent[-1][1]
    assert (waits[7], waits[8], waits[9], waits[10]) == (b"%d" % FLOOR, b"t", b"bell", b"f")
    assert not place.signal.is_set()
    bench.ask("try_acquire", bench.claim(), reply("refused"))
    assert bench.sent[-1][1][7:11] == [b"%d" % FLOOR, b"f", None, b"f"]


@pytest.mark.parametrize("verb", ["try_acquire", "join"])
def test_a_refusal_says_who_holds_and_how_many_wait(bench: Bench, verb: str) -> None:
    refusal = bench.ask(verb, bench.claim(), reply("refused", ahead=4, ends=12.5, facts=STORED))
    assert refusal == Refusal("ns:x", HOLDER, 12.5, 4)
    assert bench.ask(verb, bench.claim(), reply("refused")) == Refusal("ns:x", None, None, 0)
    paused = bench.ask(verb, bench.claim(), reply("refused", ahead=4, ends=12.5, facts=PAUSE))
    assert (paused.holder, paused.retry_after, paused.queue) == (None, 12.5, 4)
    assert (paused.paused.reason, paused.paused.by, paused.paused.expires_in) == ("moving", "ana", 12.5)


def test_a_name_in_use_as_another_kind_of_lock_is_an_error(bench: Bench) -> None:
    with pytest.raises(ModeConflict):
        bench.ask("try_acquire", bench.claim(), reply("conflict", mode="permit", capacity=3))


# --- places


@pytest.mark.parametrize(
    ("ttl", "facts", "recheck"),
    [
        (60.0, {}, 1.0),
        (1.5, {}, 0.5),
        (60.0, {"ends": 0.25}, 0.25),
        (60.0, {"ends": 0.25, "ahead": 1}, 1.0),
        (60.0, {"ends": -3.0}, SHORTEST_RECHECK),
        (60.0, {"ends": None}, 1.0),
    ],
)
def test_the_first_in_line_looks_again_when_the_holder_may_be_dead(
    bench: Bench, ttl: float, facts: dict[str, Any], recheck: float
) -> None:
    place = bench.place(bench.claim(ttl=ttl), **facts)
    assert place.recheck == pytest.approx(recheck)


def test_a_place_knows_who_is_in_the_way(bench: Bench) -> None:
    place = bench.place(ahead=3)
    assert (place.ahead, place.holder, place.paused, place.waiter.ahead) == (3, HOLDER, None, 3)
    paused = bench.place(facts=PAUSE, ends=12.5)
    assert (paused.holder, paused.paused.reason, paused.paused.expires_in) == (None, "moving", 12.5)
    assert paused.retry_after == 12.5


@pytest.mark.parametrize(("ends", "after"), [(12.5, 12.5), (0.0, None), (-3.0, None), (None, None)])
def test_a_place_says_when_the_grant_in_its_way_ends(bench: Bench, ends: float | None, after: float | None) -> None:
    assert bench.place(ends=ends).retry_after == after


def test_a_place_whose_row_has_another_channel_asks_for_its_turn_at_once(bench: Bench) -> None:
    bench.backend._listener.ensure = lambda: b"new"
    assert bench.place().signal.is_set()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(reply("placed", ahead=2), Place), (reply("refused"), Refusal), (reply("granted", fence=7, abandoned="t"), Grant)],
)
def test_a_turn_is_what_the_row_says(bench: Bench, answer: tuple[bytes | None, ...], kind: type) -> None:
    place = bench.place()
    found = bench.ask("turn", place, answer, until=bench.runtime.now() + 9)
    assert isinstance(found, kind)
    assert bench.sent[-1][0] == b"leasehold_turn"
    assert bench.sent[-1][2] == bench.runtime.now() + 9
    if isinstance(found, Grant):
        assert (found.claim, found.fence, found.abandoned) == (place.claim, 7, True)
    if isinstance(found, Place):
        assert (found.signal, found.ahead) == (place.signal, 2)


def test_a_waiter_that_asks_for_its_turn_starts_the_listener_and_says_where_it_is_called(bench: Bench) -> None:
    place = bench.place()
    bench.backend._listener.ensure = lambda: b"leasehold_new"
    bench.ask("turn", place, reply("placed", ahead=2))
    assert bench.sent[-1][1] == [b"ns:x", place.claim.owner.encode(), b"leasehold_new"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((b"76", b"7", b"2.5", b"1000.25"), Reading(Record("k", b"v", 7, 2.5), 7, 1000.25)),
        ((b"", b"7", b"2.5", b"1000.25"), Reading(Record("k", b"", 7, 2.5), 7, 1000.25)),  # empty, but there
        ((None, b"7", None, b"1000.25"), Reading(None, 7, 1000.25)),
        ((None, b"0", None, b"1000.25"), Reading(None, 0, 1000.25)),
    ],
)
def test_a_record_is_read_with_its_fence_and_the_time_of_the_database(
    bench: Bench, row: tuple[bytes | None, ...], expected: Reading
) -> None:
    bench.answers = [[row]]
    assert run(bench.backend.read("k", 4)) == expected
    assert bench.sent[0][:2] == (b"leasehold_read", [b"k", b"4"])


# --- hand-overs by notification


def test_a_hand_over_by_notification_needs_no_request_and_lasts_for_three_rechecks(bench: Bench) -> None:
    place = bench.place(moment=100.0)
    sent = bench.runtime.now()
    bench.runtime.clock.advance(1.0)
    place.waiter.handover = Handover(7, 100.5, True, 64)
    bench.sent.clear()
    grant = run(bench.backend.turn(place))
    assert bench.sent == []
    assert (grant.fence, grant.ttl, grant.abandoned, grant.spare) == (7, 3.0, True, 64)
    assert grant.since == pytest.approx(sent + 0.5 * (1 - DRIFT))
    assert place.waiter.handover is None
    assert isinstance(bench.ask("turn", place, reply("placed")), Place), "it is believed once"


@pytest.mark.parametrize(
    ("passed_here", "passed_there", "believed"),
    [
        (1.0, 0.5, True),
        (1.0, 0.0, True),
        (0.0, 0.0, True),
        (1.0, -0.1, False),  # the clock of the database was set back
        (0.5, 0.7, False),  # or forward: more has passed there than here
        (1.5, 1.0, True),
        (1.6, 1.0, False),  # our last request was answered long ago
    ],
)
def test_a_hand_over_is_believed_only_if_both_clocks_agree(
    bench: Bench, passed_here: float, passed_there: float, believed: bool
) -> None:
    place = bench.place(moment=100.0)
    bench.runtime.clock.advance(passed_here)
    place.waiter.handover = Handover(7, 100.0 + passed_there, False, 0)
    bench.sent.clear()
    bench.answers = [[reply("granted", fence=7, abandoned="f")]]
    grant = run(bench.backend.turn(place))
    assert (grant.fence, bool(bench.sent)) == (7, not believed)
    assert (grant.since is None) is not believed


def test_a_hand_over_before_the_first_answer_is_not_believed(bench: Bench) -> None:
    waiter = bench.backend._listener.expect(bench.claim())
    assert bench.backend._believed_since(waiter, 100.0) is None


def test_a_short_ttl_makes_a_short_hand_over(bench: Bench) -> None:
    place = bench.place(bench.claim(ttl=0.8))
    place.waiter.handover = Handover(7, 100.0, False, 0)
    assert run(bench.backend.turn(place)).ttl == 0.8


# --- what both modes share


@pytest.mark.parametrize(
    ("kind", "reason"), [(RowsBackend, LossReason.TAKEN), (SessionBackend, LossReason.SESSION_ENDED)]
)
def test_renewals_are_answered_each_at_its_place(kind: type[Any], reason: LossReason) -> None:
    bench = Bench(kind)
    grants = [Grant(bench.claim(ttl=5.0 + number), number, 1.0, 3.0, True, 2) for number in range(4)]
    bench.answers = [[(b"2", None), (b"4", json.dumps("stück").encode())]]
    answers = run(bench.backend.renew(grants, 9.0))
    assert answers[0] == Grant(grants[0].claim, 0, 5.0, None, True, 2)
    assert answers[2].ttl == 7.0
    assert answers[1].reason is reason
    assert answers[3] == Loss(LossReason.BROKEN, "stück")
    name, values, until, first, extra = bench.sent[0]
    assert (name, until, first, extra) == (b"leasehold_renew", 9.0, True, True)
    assert values[2:] == [b'{"0","1","2","3"}', b'{"5.0","6.0","7.0","8.0"}', b"t" if kind is SessionBackend else b"f"]
    assert run(bench.backend.renew([])) == []
    assert len(bench.sent) == 1


@pytest.mark.parametrize(
    ("told", "answer"),
    [(b"freed", True), (b"gone", False), (b'"st\\u00fcck"', Loss(LossReason.BROKEN, "stück"))],
)
def test_a_release_is_answered_with_what_became_of_the_grant(bench: Bench, told: bytes, answer: bool | Loss) -> None:
    grant = Grant(bench.claim(), 7, 60.0)
    bench.answers = [[(told,)]]
    assert run(bench.backend.release(grant, 9.0)) == answer
    assert bench.sent == [(b"leasehold_release", [b"ns:x", grant.claim.owner.encode(), b"7"], 9.0, True, False)]


@pytest.mark.parametrize("doubt", [True, False])
def test_a_withdrawal_goes_ahead_of_others_and_says_whether_copies_may_come(bench: Bench, doubt: bool) -> None:
    claim = bench.claim(ttl=4.5)
    bench.answers = [[(b"",)]]
    run(bench.backend.withdraw(claim, 9.0, doubt=doubt))
    values = [b"ns:x", claim.owner.encode(), b"4.5", b"t" if doubt else b"f"]
    assert bench.sent == [(b"leasehold_withdraw", values, 9.0, True, False)]


def test_a_session_knows_what_is_held_in_it() -> None:
    bench = Bench(SessionBackend)
    claim = bench.claim()
    grant = bench.ask("try_acquire", claim, reply("granted", fence=7, abandoned="t", spare=0))
    assert grant == Grant(claim, 7, 60.0, None, None, 0)
    assert bench.held == [claim.owner]
    assert bench.sent[0][1][7:11] == [b"%d" % FLOOR, b"f", None, b"t"]
    assert isinstance(bench.ask("try_acquire", bench.claim(), reply("refused")), Refusal)
    assert bench.held == [claim.owner], "nothing is held for a claim that was refused"
    assert bench.ask("renew", [grant]) == [Grant(claim, 7, 60.0, None, None, 0)]
    assert bench.renewed == [[grant]], "what is held longer needs its session for longer"
    assert bench.sent[-1][1][4] == b"t", "and lives in it from now on"
    bench.answers = [[(b"freed",)]]
    assert run(bench.backend.release(grant)) is True
    assert bench.held == []
    bench.ask("try_acquire", claim, reply("granted", fence=8))
    bench.answers = [[(b"",)]]
    run(bench.backend.withdraw(claim))
    assert bench.held == []
