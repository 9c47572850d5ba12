"""Turns of many waiters in one query, step by step: who sends it, whom it answers, what a failure means for each."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.postgres.queue import LOOK_AGAIN, MOST, PATIENCE, TurnBatch, _Turn
from leasehold._backends.postgres.statements import Statements
from leasehold._runtimes.threads import run
from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.values import Claim, Holder, Mode
from tests.unit.planned_waits import PlannedWaits

LABEL = "postgresql://h/db"
TIMEOUT = 2.0


class Bench:
    """Turns whose queries are answered with the owners that were asked for, but those in `gone`."""

    def __init__(self) -> None:
        self.runtime: Any = PlannedWaits()
        self.label = LABEL
        self.sent: list[tuple[bytes, int, bytes | None, float]] = []
        self.error: BaseException | None = None
        self.gone: list[str] = []
        executor: Any = self
        self.turns: Any = TurnBatch(executor, Statements("leasehold"), self.runtime, TIMEOUT)

    async def execute(self, statement: Any, values: Any, until: float) -> Any:
        owners = values[1].decode().strip("{}").replace('"', "").split(",")
        self.sent.append((statement.name, len(owners), values[2], until))
        if self.error is not None:
            raise self.error
        found = [owner.encode() for owner in owners if owner not in self.gone]
        return SimpleNamespace(
            ntuples=len(found), get_value=lambda row, column: found[row] if column == 0 else b"%d" % column
        )

    def turn(self, channel: bytes | None = None, until: float = math.inf) -> Any:
        """One that has been asked for by another caller."""
        return _Turn(self.claim(), channel, self.runtime.signal(), until)

    def claim(self) -> Claim:
        return Claim("ns:x", self.runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))

    def query(self, channel: bytes | None = None, until: float = math.inf) -> Any:
        return run(self.turns.query(self.claim(), channel, until))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_single_waiter_asks_for_itself_at_once(bench: Bench) -> None:
    sent = bench.runtime.now()
    answer = bench.query(b"bell", sent + 9)
    assert bench.sent == [(b"leasehold_turn", 1, b"bell", sent + 9)]
    assert (answer.row, answer.first, answer.sent) == (0, 0, sent)
    assert bench.runtime.waits == []
    assert not bench.turns._open
    assert bench.turns._leader is None


def test_the_first_to_ask_asks_for_all_and_each_gets_its_own_row(bench: Bench) -> None:
    others = [bench.turn(b"old"), bench.turn(b"older")]
    bench.turns._open.extend(others)
    bench.gone = [others[1].claim.owner]
    mine = bench.query(b"new")
    assert bench.sent[0][:3] == (b"leasehold_turns", 3, b"new"), "where the client listens by now"
    assert others[0].answer.row == 0
    assert others[0].answer.value(0) == b"1", "behind the column with the owner"
    assert others[1].answer.row is None
    assert others[1].answer.value(0) is None
    assert mine.row == 1
    assert all(other.signal.is_set() for other in others)


def test_more_than_fit_into_one_query_wait_for_the_next_one(bench: Bench) -> None:
    others = [bench.turn() for _ in range(MOST + 4)]
    bench.turns._open.extend(others)
    bench.runtime.plan = []
    bench.query()
    assert [count for _, count, *_ in bench.sent] == [MOST, 5]
    assert all(other.answer is not None for other in others)


def test_whoever_is_left_is_told_to_ask_next(bench: Bench) -> None:
    late = bench.turn()

    async def execute(*_: object) -> Any:
        bench.turns._open.append(late)
        return SimpleNamespace(ntuples=1, get_value=lambda *_: b"placed")

    bench.execute = execute  # type: ignore[assignment, method-assign]
    bench.query()
    assert late.signal.is_set()
    assert late.answer is None


@pytest.mark.parametrize(
    "error", [BackendUnavailable("away", backend=LABEL), OutcomeUnknown("lost", backend=LABEL), ClientClosed()]
)
def test_a_query_that_fails_fails_for_all_who_shared_it(bench: Bench, error: Exception) -> None:
    other = bench.turn()
    bench.turns._open.append(other)
    bench.error = error
    with pytest.raises(type(error)) as caught:
        bench.query()
    assert type(other.error) is type(error)
    assert other.error is not caught.value, "each raises its own"
    assert other.signal.is_set()
    assert bench.turns._leader is None


def test_a_leader_in_a_hurry_fails_alone(bench: Bench) -> None:
    other = bench.turn()
    bench.turns._open.append(other)

    async def slow(*_: object) -> Any:
        bench.runtime.clock.advance(1.0)
        raise OutcomeUnknown("lost", backend=LABEL)

    bench.execute = slow  # type: ignore[assignment, method-assign]
    with pytest.raises(OutcomeUnknown):
        bench.query(until=bench.runtime.now() + 1.0)
    assert other.error is None
    assert list(bench.turns._open) == [other], "the next one asks for it"


def test_an_interrupted_leader_leaves_the_others_in_line(bench: Bench) -> None:
    other = bench.turn()
    bench.turns._open.append(other)
    bench.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.query()
    assert list(bench.turns._open) == [other]
    assert other.signal.is_set()
    assert bench.turns._leader is None


def test_a_waiter_waits_for_the_query_under_way_and_looks_now_and_then_whether_it_has_to_lead(bench: Bench) -> None:
    bench.turns._leader, bench.turns._busy_until = object(), math.inf
    bench.runtime.plan = [lambda: None, lambda: setattr(bench.turns, "_leader", None)]
    began = bench.runtime.now()
    assert bench.query().row == 0
    assert bench.runtime.waits == [began + LOOK_AGAIN, began + LOOK_AGAIN]


def test_a_leader_that_does_not_come_back_is_replaced(bench: Bench) -> None:
    bench.turns._leader, bench.turns._busy_until = object(), bench.runtime.now() + 2 * TIMEOUT
    began = bench.runtime.now()
    assert bench.query().row == 0
    assert bench.runtime.now() - began == 2 * TIMEOUT
    assert bench.turns._busy_until == bench.runtime.now() + 2 * TIMEOUT, "as long as two answers may take"


@pytest.mark.parametrize(("given", "expected"), [(math.inf, PATIENCE * TIMEOUT), (1.0, 1.0)])
@pytest.mark.parametrize(("taken", "kind"), [(False, BackendUnavailable), (True, OutcomeUnknown)])
def test_a_waiter_gives_up_in_time_and_knows_whether_it_was_asked_for(
    bench: Bench, given: float, expected: float, taken: bool, kind: type[Any]
) -> None:
    bench.turns._leader, bench.turns._busy_until = object(), math.inf
    if taken:
        bench.runtime.plan = [bench.turns._open.clear]
    began = bench.runtime.now()
    with pytest.raises(kind) as caught:
        bench.query(until=began + given)
    assert bench.runtime.now() - began == expected
    assert caught.value.backend == LABEL
    assert not bench.turns._open
    assert bench.sent == []


def test_a_caller_whose_time_is_over_does_not_lead(bench: Bench) -> None:
    with pytest.raises(BackendUnavailable):
        bench.query(until=bench.runtime.now())
    assert bench.sent == []


def test_a_waiter_looks_no_later_than_its_own_time_ends_and_forgets_what_woke_it(bench: Bench) -> None:
    bench.turns._leader, bench.turns._busy_until = object(), math.inf
    began = bench.runtime.now()
    rung: list[bool] = []

    def ring() -> None:
        bench.turns._open[0].signal.set()  # a leader whose query was interrupted wakes everybody

    bench.runtime.plan = [ring, lambda: rung.append(bench.turns._open[0].signal.is_set())]
    with pytest.raises(BackendUnavailable):
        bench.query(until=began + 0.75)
    assert rung == [False], "or it would not wait any more"
    assert bench.runtime.waits == [began + LOOK_AGAIN, began + LOOK_AGAIN, began + LOOK_AGAIN, began + 0.75]


def test_a_waiter_that_a_vanished_leader_had_taken_asks_for_itself(bench: Bench) -> None:
    bench.turns._leader, bench.turns._busy_until = object(), bench.runtime.now() + 2 * TIMEOUT
    bench.runtime.plan = [bench.turns._open.clear]
    assert bench.query(b"bell").row == 0
    assert [count for _, count, *_ in bench.sent] == [1]


def test_nobody_else_leads_while_a_query_is_under_way(bench: Bench) -> None:
    leads: list[bool] = []

    async def execute(*_: object) -> Any:
        leads.append(bench.turns._may_lead(bench.turn()))
        return SimpleNamespace(ntuples=1, get_value=lambda *_: b"placed")

    bench.execute = execute  # type: ignore[assignment, method-assign]
    bench.query()
    assert leads == [False]
    assert bench.turns._may_lead(bench.turn()) is True


def test_a_leader_that_is_interrupted_before_its_query_keeps_nobody_waiting(bench: Bench) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    bench.turns._take = interrupted
    with pytest.raises(KeyboardInterrupt):
        bench.query()
    assert bench.turns._leader is None
    assert not bench.turns._open


def test_an_error_that_is_shared_says_the_same_to_each(bench: Bench) -> None:
    other = bench.turn()
    bench.turns._open.append(other)
    bench.error = BackendUnavailable("the reason", backend="elsewhere")
    with pytest.raises(BackendUnavailable) as caught:
        bench.query()
    for error in (other.error, caught.value):
        assert (str(error), error.backend) == ("the reason", "elsewhere")
