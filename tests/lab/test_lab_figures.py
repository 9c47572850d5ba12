"""The figures of the fault lab: what is counted, and what the table of goals says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab.histories import grant, history, release
from verification.lab.figures import counts, times
from verification.lab.history import Event, Kind
from verification.lab.matrix import Plan
from verification.lab.report.goals import bound, goal_table
from verification.lab.report.results import Cell
from verification.lab.report.table import span

KILLED = [
    *grant(1, 0.0, 0.1, fence=1, until=1.1),
    Event(0.5, 0, Kind.FAULT, value=1, detail="killed"),
    Event(0.5, 1, Kind.ENDED),
]


def test_a_killed_holder_is_timed_from_its_end_to_the_next_grant() -> None:
    events = history(KILLED, grant(2, 0.2, 1.25, fence=2, until=2.2), release(2, 1.3, 1.3))
    assert times(events, 1.0)["next grant after a kill"] == pytest.approx(0.75)
    assert (counts(events, 1.0)["killed holders"], counts(events, 1.0)["killed holders, late"]) == (1, 0)


def test_a_lock_that_is_granted_later_than_a_second_after_the_ttl_is_counted() -> None:
    events = history(KILLED, grant(2, 0.2, 2.6, fence=2, until=3.6))
    assert (counts(events, 1.0)["killed holders"], counts(events, 1.0)["killed holders, late"]) == (1, 1)


def test_a_lock_whose_next_waiters_are_killed_too_is_timed_from_the_last_of_them() -> None:
    more = [Event(at, 0, Kind.FAULT, value=client, detail="killed") for at, client in ((1.0, 3), (1.8, 4))]
    ends = [Event(1.0, 3, Kind.ENDED), Event(1.8, 4, Kind.ENDED), Event(5.0, 2, Kind.ENDED)]
    events = history(KILLED, more, ends, grant(2, 0.2, 2.6, fence=2, until=3.6))
    assert times(events, 1.0)["next grant after a kill"] == pytest.approx(0.8)


def test_a_kill_with_a_server_away_before_the_next_grant_tells_nothing() -> None:
    away = [Event(0.9, 0, Kind.FAULT, detail="killed redis"), Event(2.5, 0, Kind.CALM, detail="killed redis")]
    events = history(KILLED, away, grant(2, 0.2, 2.6, fence=2, until=3.6))
    assert counts(events, 1.0)["killed holders"] == 0
    assert times(events, 1.0)["next grant after a kill"] is None


@pytest.mark.parametrize("end", [Event(0.3, 1, Kind.LOST, 1), Event(0.3, 1, Kind.RELEASE, 1)])
def test_a_client_that_did_not_hold_any_more_is_no_killed_holder(end: Event) -> None:
    events = history(KILLED, end, grant(2, 0.4, 0.6, fence=2, until=1.6))
    assert counts(events, 1.0)["killed holders"] == 0


def test_the_time_until_a_loss_is_known_counts_from_the_cut() -> None:
    first = [Event(0.5, 0, Kind.FAULT, value=1, detail="cut off"), Event(0.9, 1, Kind.LOST, 1)]
    second = [Event(3.5, 0, Kind.FAULT, value=1, detail="cut off silently"), Event(4.1, 1, Kind.LOST, 2)]
    events = history(grant(1, 0.0, 0.1, fence=1, until=1.1), first)
    events += history(grant(1, 3.0, 3.1, fence=2, until=4.1, call=2), second)
    assert counts(events, 1.0)["cut holders"] == 2
    measured = times(events, 1.0)
    assert measured["notice loss, least"] == pytest.approx(0.4)
    assert measured["notice loss"] == pytest.approx(0.6)


def test_a_span_shows_the_least_and_the_most() -> None:
    assert span(None, None) == "-"
    assert span(0.101, 0.102) == "0.10\N{NO-BREAK SPACE}s"
    assert span(0.1, 0.25) == "0.10 to 0.25\N{NO-BREAK SPACE}s"


# --- goals


GOOD = {
    "grants": 20,
    "fenced updates": 200_000,
    "unfenced updates": 300,
    "lost without fence": 2,
    "losses": 4,
    "cut holders": 2,
    "killed holders": 3,
    "jobs": 5,
}
TIMES: dict[str, float | None] = {
    "notice loss": 0.9,
    "next grant after a kill": 1.4,
    "last client after healing": 0.3,
}
CELL = Cell(Plan("redis", "pause clients"), "passed", "", "", "", 1.0, GOOD, TIMES, [], [], None)


def _marks(cell: Cell) -> list[str]:
    return [row[-1] for row in goal_table([cell]).rows]


def test_goals_are_kept_by_a_run_in_which_all_is_well() -> None:
    assert set(_marks(CELL)) == {"✓"}
    seen = " ".join(row[2] for row in goal_table([CELL]).rows)
    assert "fewer than one in 66,761" in seen
    assert "the last 0.40\N{NO-BREAK SPACE}s after the ttl was over" in seen
    assert "the last after 0.90 ttl" in seen


def test_updates_that_are_too_few_keep_no_goal() -> None:
    assert _marks(replace(CELL, counts={**GOOD, "fenced updates": 99_999}))[0] == "too few"


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [(0, "lost with fence", 1), (1, "lost without fence", 0), (5, "killed holders, late", 1)],
)
def test_a_figure_that_is_wrong_breaks_its_goal(place: int, name: str, value: int) -> None:
    marks = _marks(replace(CELL, counts={**GOOD, name: value}))
    assert [number for number, mark in enumerate(marks) if mark == "✗"] == [place]


@pytest.mark.parametrize(
    ("place", "check"),
    [
        (2, "fence order"),
        (3, "two owners"),
        (3, "leader overlap"),
        (3, "not linearizable"),
        (4, "late loss"),
        (6, "starvation"),
        (7, "done twice"),
        (8, "leak"),
    ],
)
def test_a_violation_breaks_the_goal_that_it_belongs_to(place: int, check: str) -> None:
    marks = _marks(replace(CELL, violations=[{"check": check, "count": 1, "detail": ""}]))
    assert [number for number, mark in enumerate(marks) if mark == "✗"] == [place]


def test_the_bound_is_that_of_the_rule_of_three() -> None:
    assert bound(100_000) == 33_380
    assert bound(0) == 0
