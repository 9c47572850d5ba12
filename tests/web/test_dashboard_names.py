"""Which names the dashboard takes for jobs and for elections, and what it says where it is not installed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.values import Capability, Holder, Holding, LastRun, LockState, Mode
from leasehold.web.audit import Audit
from leasehold.web.board import Board
from leasehold.web.jobs import NOT_A_JOB, STEP, JobBook
from leasehold.web.protection import Tokens
from leasehold.web.source import Source
from tests.web.clocks import Clock, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import leasehold


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What time it is for names that were asked for."""
    return clock_of(monkeypatch, "jobs")


# --- which names are jobs


class Records:
    """A source whose store has these runs, and which names it was asked for."""

    def __init__(self, *jobs: str, can: bool = True) -> None:
        self.jobs = set(jobs)
        self.can = can
        self.asked: list[str] = []
        self.client = self

    def has(self, capability: Capability) -> bool:
        return self.can and capability is Capability.RECORD

    def last_run(self, name: str) -> LastRun | None:
        self.asked.append(name)
        return LastRun(name, "monday", Holder("h", 1), 1.0) if name in self.jobs else None

    async def shared(self, _: object, question: Callable[[], Any]) -> Any:
        return question()


def looked(book: JobBook, declared: Sequence[str], seen: Sequence[str]) -> list[str]:
    found = asyncio.run(book.look(declared, seen))
    return [f"{name}{'' if last is None else '*'}" for name, last in found.items()]


def test_declared_names_are_jobs_and_seen_ones_if_they_have_a_record(clock: Clock) -> None:
    records: Any = Records("b", "seen")
    book = JobBook(records)
    assert looked(book, ["b", "a"], ["seen", "lock"]) == ["a", "b*", "seen*"]
    assert sorted(records.asked) == ["a", "b", "lock", "seen"]
    del records.asked[:]
    clock.now += 1.0
    assert looked(book, ["b", "a"], ["seen", "lock"]) == ["a", "b*", "seen*"]
    assert records.asked == [], "they were asked for a moment ago"
    clock.now += 0.5
    records.jobs.add("a")
    assert looked(book, ["b", "a"], ["lock"]) == ["a*", "b*", "seen*"], "a job that was seen once stays"
    assert sorted(records.asked) == ["a", "b", "seen"]
    del records.asked[:]
    clock.now += NOT_A_JOB
    looked(book, [], ["lock"])
    assert "lock" in records.asked, "it may have become a job"


def test_a_store_without_records_is_not_asked() -> None:
    records: Any = Records("a", can=False)
    assert looked(JobBook(records), ["a"], ["b"]) == ["a"]
    assert records.asked == []


def test_each_look_asks_for_few_names_and_all_have_their_turn(clock: Clock) -> None:
    names = [f"{number:03}" for number in range(2 * STEP + 3)]
    records: Any = Records(*names)
    book = JobBook(records)
    for expected in (STEP, 2 * STEP, 2 * STEP + 3):
        looked(book, [], names)
        assert len(set(records.asked)) == len(records.asked) == expected
        clock.now += 0.1
    del records.asked[:]
    clock.now += 5
    looked(book, [], names)
    looked(book, [], names)
    assert len(set(records.asked)) == 2 * STEP, "those that have waited longest"


def test_few_names_are_remembered(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.web.jobs.REMEMBERED", 3)
    monkeypatch.setattr("leasehold.web.jobs.STEP", 1)
    records: Any = Records("a", "b", "c", "d")
    book = JobBook(records)
    for name in "abcad":
        clock.now += 2
        found = looked(book, [], [name])
    assert records.asked == list("abcad"), "a name that is new comes first, then what was asked longest ago"
    assert found == ["a*", "c*", "d*"], "the one that was asked longest ago is forgotten"


# --- the board


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ([], []),
        (["leader"], ["leader"]),
        (["leader:*"], ["leader:a", "leader:b"]),
        (["leader:?", "mine"], ["leader:a", "leader:b", "mine"]),
        (["leader:[b]"], ["leader:b"]),
        (["LEADER:*"], []),
        (["*"], ["leader:a", "leader:b", "x"]),
    ],
)
def test_patterns_stand_for_names_that_were_seen_and_other_names_for_themselves(
    client: leasehold.Client, patterns: list[str], chosen: list[str]
) -> None:
    source = Source(client, None)
    held = LockState("leader:b", Mode.EXCLUSIVE, 1, (Holding(Holder("h", 1), 1, 1, 1),), ())
    source.history.note_lock("leader:b", held)
    board = Board(source, Audit(None), Tokens(None), elections=(), jobs=(), title="")
    assert sorted(board.chosen(iter(patterns), ["x", "leader:a"])) == chosen


# --- without what it needs

MISSING = """
import sys
sys.modules["starlette"] = None
import leasehold
from leasehold import web
try:
    web.dashboard
except leasehold.ConfigurationError as error:
    assert "starlette" in str(error) and "pip install 'leasehold[web]'" in str(error), error
else:
    raise AssertionError
try:
    web.nonsense
except AttributeError:
    pass
else:
    raise AssertionError
"""


def test_where_it_is_not_installed_it_says_what_to_install() -> None:
    subprocess.run([sys.executable, "-c", MISSING], check=True)
