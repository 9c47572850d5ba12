"""The rules of a name: whatever is asked, memory, rows in SQLite and documents give the same answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.memory import MemoryStore
from leasehold._backends.sqlite import SqliteBackend
from leasehold._backends.sqlite import rows as sqlite_rows
from leasehold._backends.sqlite.options import Location
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import ModeConflict
from leasehold.kit import ClocklessBackend, DocumentBackend, pauses, rules
from leasehold.kit.local_rows import LocalRows
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, LockState, Loss, LossReason, Mode, Refusal
from tests.unit.kit_support import DictDocuments, HandClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STEPS = 60


class Door:
    """One store, and what it has given out so far: places and grants by the number of their claim."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.places: dict[int, Place] = {}
        self.grants: dict[int, Grant] = {}
        self.fences: list[int] = []

    def do(self, verb: str, number: int, claim: Claim, options: dict[str, Any]) -> object:
        backend = self.backend
        if verb in ("try_acquire", "join"):
            return self.noted(number, getattr(backend, verb)(claim))
        if verb == "turn":
            return self.noted(number, backend.turn(self.places[number])) if number in self.places else None
        if verb in ("renew", "release") and number not in self.grants:
            return None
        if verb == "renew":
            return self.plain(run(backend.renew([self.grants[number]]))[0])
        if verb == "release":
            return self.plain(run(backend.release(self.grants[number])))
        if verb == "withdraw":
            return run(backend.withdraw(claim, **options))
        if verb == "break_":
            fence = self.grants[number].fence if number in self.grants else 2**52
            return run(backend.break_(claim.key, fence, "by hand", **options))
        return self.plain(run(backend.inspect(claim.key)))

    def noted(self, number: int, call: Any) -> object:
        try:
            answer = run(call)
        except ModeConflict:
            return "another kind"
        if isinstance(answer, Place):
            self.places[number] = answer
        elif isinstance(answer, Grant):
            self.grants[number] = answer
            if answer.fence not in self.fences:
                assert all(answer.fence > fence for fence in self.fences), "fences rise"
                self.fences.append(answer.fence)
        return self.plain(answer)

    def plain(self, answer: object) -> object:
        """The answer without what may differ: fences are counted, times rounded."""
        if isinstance(answer, Grant):
            return ("grant", self.fences.index(answer.fence), answer.ttl, answer.abandoned)
        if isinstance(answer, Place):
            return ("place", answer.ahead, answer.holder, answer.retry_after and round(answer.retry_after, 3))
        if isinstance(answer, Refusal):
            after = answer.retry_after
            return ("refusal", answer.holder, None if after is None else round(after, 3), answer.queue)
        if isinstance(answer, LockState):
            holdings = [
                (each.holder, self.fences.index(each.fence), round(each.held_for, 3), round(each.expires_in, 3),
                 each.broken, each.cooling)
                for each in answer.holdings
            ]  # fmt: skip
            return (answer.mode, answer.capacity, holdings, answer.waiting)
        return answer


class Host:
    boot = "one"

    def __init__(self, clock: HandClock) -> None:
        self.now = self.wall = clock.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def doors(tmp_path: Path, clock: HandClock) -> Iterator[dict[str, Door]]:
    runtime = ThreadRuntime(clock)
    sqlite = SqliteBackend(Location(str(tmp_path / "locks.db"), private=False, label="rows"), Host(clock), runtime)
    memory = MemoryStore(clock.now, wall=clock.now).open_backend(runtime)
    documents = DocumentBackend(DictDocuments(clock.now), runtime, "documents", pause=0)
    clockless = ClocklessBackend(DictDocuments(lambda: None), runtime, "clockless", pause=0)
    backends = {"memory": memory, "rows": sqlite, "documents": documents, "clockless": clockless}
    yield {name: Door(backend) for name, backend in backends.items()}
    for backend in backends.values():
        run(backend.close())


KINDS = [[(Mode.EXCLUSIVE, 1)], [(Mode.SHARED, 1), (Mode.SHARED, 1), (Mode.EXCLUSIVE, 1)], [(Mode.PERMIT, 3)],
         [(Mode.PERMIT, 2), (Mode.EXCLUSIVE, 1)]]  # fmt: skip
VERBS = ["try_acquire"] * 3 + ["join"] * 6 + ["turn"] * 8 + ["renew"] * 3 + ["release"] * 5 + ["withdraw"] * 2
VERBS += ["break_", "inspect", "inspect"]


@pytest.mark.parametrize("seed", range(40))
def test_all_doors_give_the_same_answers_to_random_verbs(seed: int, doors: dict[str, Door], clock: HandClock) -> None:
    ask_all(seed, doors, clock)


@pytest.mark.parametrize("seed", range(100, 120))
def test_rows_that_are_too_many_to_be_read_at_once_give_the_same_answers(
    seed: int, doors: dict[str, Door], clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the tables are asked for each fact."""
    monkeypatch.setattr(sqlite_rows, "FEW", 0)
    ask_all(seed, {name: doors[name] for name in ("memory", "rows")}, clock)


def ask_all(seed: int, doors: dict[str, Door], clock: HandClock) -> None:
    chance = random.Random(seed)
    kinds = chance.choice(KINDS)
    claims = [make_claim(number, *chance.choice(kinds), chance.choice([0.5, 2.0, 30.0]), chance.choice([0.0, 0.0, 3.0]))
              for number in range(8)]  # fmt: skip
    told = []
    for _ in range(STEPS):
        verb, number = chance.choice(VERBS), chance.randrange(len(claims))
        options: dict[str, Any] = {}
        if verb == "withdraw":
            options = {"doubt": chance.random() < 0.5}
        elif verb == "break_":
            options = {"now": chance.random() < 0.5}
        answers = {name: door.do(verb, number, claims[number], options) for name, door in doors.items()}
        told.append((round(clock.instant % 1000, 3), verb, number, options, answers["memory"]))
        expected = answers["memory"]
        assert all(answer == expected for answer in answers.values()), (answers, told)
        if verb == "withdraw":
            claims[number] = make_claim(
                number + len(told) * 100, claims[number].mode, claims[number].capacity, claims[number].ttl, 0.0
            ) if chance.random() < 0.5 else claims[number]  # fmt: skip
        if chance.random() < 0.3:
            clock.instant += chance.choice([0.001, 0.1, 0.4, 1.1, 5.0])


def make_claim(number: int, mode: Mode, capacity: int, ttl: float, min_hold: float) -> Claim:
    return Claim("ns:name", f"owner-{number}", ttl, mode, capacity, min_hold, Holder("host", number))


# --- one rule each


def local_rows(now: float = 100.0) -> tuple[LocalRows, Callable[[], int]]:
    fences = iter(range(1, 1000))
    rows = LocalRows("ns:name", "test", now, lambda _=0: next(fences))
    return rows, rows.next_fence


def exclusive(number: int, ttl: float = 10.0, min_hold: float = 0.0) -> Claim:
    return make_claim(number, Mode.EXCLUSIVE, 1, ttl, min_hold)


def advance(rows: LocalRows, seconds: float) -> None:
    rows.now += seconds
    rules.expire(rows)


@pytest.mark.parametrize("name", ["memory", "rows", "documents", "clockless"])
def test_late_copy_of_a_broken_claim_is_refused(name: str, doors: dict[str, Door], clock: HandClock) -> None:
    door, claim = doors[name], exclusive(1)
    door.do("try_acquire", 1, claim, {})
    assert door.do("break_", 1, claim, {"now": True}) is True
    for verb in ("try_acquire", "join"):
        assert door.do(verb, 1, claim, {}) == ("refusal", None, None, 0)
    assert door.do("renew", 1, claim, {}) == Loss(LossReason.BROKEN, "by hand")
    assert door.do("release", 1, claim, {}) == Loss(LossReason.BROKEN, "by hand")
    assert door.do("release", 1, claim, {}) == Loss(LossReason.BROKEN, "by hand")  # the answer may have been lost
    clock.instant += 10.0
    assert isinstance(door.do("try_acquire", 1, claim, {}), tuple)
    assert len(door.fences) == 2


@pytest.mark.parametrize("verb", [rules.try_acquire, rules.join])
def test_late_copy_of_a_withdrawn_claim_is_refused_whatever_the_name_is_used_for(verb: Any) -> None:
    rows, _ = local_rows()
    withdrawn = make_claim(1, Mode.PERMIT, 3, 10.0, 0.0)
    rules.withdraw(rows, withdrawn, doubt=True)
    assert isinstance(rules.try_acquire(rows, exclusive(2)), Grant)
    assert isinstance(verb(rows, withdrawn), Refusal)
    with pytest.raises(ModeConflict):
        verb(rows, make_claim(3, Mode.PERMIT, 3, 10.0, 0.0))


def test_a_broken_grant_that_is_released_early_keeps_its_min_hold() -> None:
    rows, _ = local_rows()
    grant = rules.try_acquire(rows, exclusive(1, ttl=30.0, min_hold=10.0))
    assert isinstance(grant, Grant)
    assert rules.break_(rows, grant.fence, "stuck", now=False)
    advance(rows, 4.0)
    broken = Loss(LossReason.BROKEN, "stuck")
    assert rules.release(rows, grant) == broken
    assert rules.renew(rows, grant) == rules.release(rows, grant) == broken, "a call that is sent again"
    refusal = rules.try_acquire(rows, exclusive(2))
    assert isinstance(refusal, Refusal)
    assert refusal.retry_after == pytest.approx(6.0)
    advance(rows, 6.0)
    assert rules.renew(rows, grant) == rules.TAKEN
    assert rules.release(rows, grant) is False
    assert isinstance(rules.try_acquire(rows, exclusive(2)), Grant)


@pytest.mark.parametrize(("min_hold", "kept"), [(0.0, None), (10.0, 10.0)])
def test_a_clock_that_was_set_back_keeps_a_released_lock_for_its_min_hold_at_most(
    min_hold: float, kept: float | None
) -> None:
    """It was kept for as long as the clock had fallen back, also without a min_hold."""
    rows, _ = local_rows()
    grant = rules.try_acquire(rows, exclusive(1, ttl=30.0, min_hold=min_hold))
    assert isinstance(grant, Grant)
    rows.now -= 3600.0
    assert rules.release(rows, grant) is True
    following = rules.try_acquire(rows, exclusive(2))
    assert (following.retry_after if isinstance(following, Refusal) else None) == kept


def test_a_grant_that_was_released_early_is_no_longer_its_holder_s() -> None:
    rows, _ = local_rows()
    grant = rules.try_acquire(rows, exclusive(1, ttl=30.0, min_hold=10.0))
    assert isinstance(grant, Grant)
    assert rules.release(rows, grant) is True
    assert rules.renew(rows, grant) == rules.TAKEN
    assert rules.release(rows, grant) is False
    assert isinstance(rules.join(rows, grant.claim), Refusal)


def test_the_note_of_a_break_outlives_a_withdrawal() -> None:
    rows, _ = local_rows()
    claim = exclusive(1)
    grant = rules.try_acquire(rows, claim)
    assert isinstance(grant, Grant)
    rules.break_(rows, grant.fence, "stuck", now=True)
    advance(rows, 9.0)
    rules.withdraw(rows, claim, doubt=True)
    advance(rows, 9.0)
    assert rules.renew(rows, grant) == Loss(LossReason.BROKEN, "stuck")
    assert isinstance(rules.join(rows, claim), Refusal)


def test_nothing_is_left_of_a_broken_claim_that_is_withdrawn_without_doubt() -> None:
    rows, _ = local_rows()
    claim = exclusive(1)
    grant = rules.try_acquire(rows, claim)
    assert isinstance(grant, Grant)
    rules.break_(rows, grant.fence, "stuck", now=True)
    rules.withdraw(rows, claim, doubt=False)
    assert len(rows) == 0
    assert rules.release(rows, grant) is False


def test_a_withdrawn_holder_passes_on_that_the_one_before_vanished() -> None:
    rows, _ = local_rows()
    rules.try_acquire(rows, exclusive(1))
    advance(rows, 10.0)
    second = exclusive(2)
    first_heir = rules.try_acquire(rows, second)
    rules.withdraw(rows, second, doubt=True)
    second_heir = rules.try_acquire(rows, exclusive(3))
    assert isinstance(first_heir, Grant)
    assert isinstance(second_heir, Grant)
    assert first_heir.abandoned
    assert second_heir.abandoned


def test_only_waiters_whose_turn_it_may_be_are_notified() -> None:
    rows, _ = local_rows()
    grant = rules.join(rows, make_claim(0, Mode.EXCLUSIVE, 1, 30.0, 0.0))
    assert isinstance(grant, Grant)
    for number, mode in enumerate([Mode.SHARED, Mode.SHARED, Mode.EXCLUSIVE, Mode.SHARED], 1):
        assert isinstance(rules.join(rows, make_claim(number, mode, 1, 30.0, 0.0), number), rules.Queued)
    assert list(rules.admissible(rows)) == []
    rules.release(rows, grant)
    assert rows.changed
    assert [row.listener for row in rules.admissible(rows)] == [1, 2]


def test_the_first_in_line_looks_when_the_holder_s_time_is_over_and_the_others_at_their_leisure() -> None:
    rows, _ = local_rows()
    rules.try_acquire(rows, exclusive(1, ttl=10.0))
    first, second = rules.join(rows, exclusive(2, ttl=30.0)), rules.join(rows, exclusive(3, ttl=30.0))
    assert isinstance(first, rules.Queued)
    assert isinstance(second, rules.Queued)
    assert (first.early_recheck, second.early_recheck) == (1.0, 1.0)
    for _ in range(4):
        advance(rows, 2.4)
        first, second = rules.turn(rows, first.row.claim), rules.turn(rows, second.row.claim)
        assert isinstance(first, rules.Queued)
        assert isinstance(second, rules.Queued)
    assert first.early_recheck == pytest.approx(0.4)
    assert second.early_recheck == 1.0
    assert first._replace(ends=0.0).early_recheck == rules.SHORTEST_RECHECK


def test_the_holder_after_one_that_was_broken_at_once_learns_that_its_work_may_be_half_done() -> None:
    rows, _ = local_rows()
    grant = rules.try_acquire(rows, exclusive(1))
    assert isinstance(grant, Grant)
    rules.break_(rows, grant.fence, "stuck", now=True)
    heir = rules.try_acquire(rows, exclusive(2))
    assert isinstance(heir, Grant)
    assert heir.abandoned


def test_a_refusal_of_a_paused_name_says_when_the_pause_is_over_and_not_when_the_holder_is() -> None:
    rows, _ = local_rows()
    rules.try_acquire(rows, exclusive(1, ttl=10.0))
    pauses.pause(rows, Holder("h", 1, "ana", "moving"), 90.0)
    advance(rows, 5.0)
    refusal = rules.try_acquire(rows, exclusive(2))
    assert isinstance(refusal, Refusal)
    assert refusal.retry_after == pytest.approx(85.0)
    queued = rules.join(rows, exclusive(2))
    assert isinstance(queued, rules.Queued)
    assert queued.retry_after == pytest.approx(85.0), "a place says the same"


def test_those_who_wait_decide_what_kind_of_lock_a_name_is_when_its_holder_is_gone() -> None:
    rows, _ = local_rows()
    rules.try_acquire(rows, make_claim(1, Mode.PERMIT, 1, 2.0, 0.0))
    assert isinstance(rules.join(rows, make_claim(2, Mode.PERMIT, 1, 10.0, 0.0)), rules.Queued)
    advance(rows, 2.0)
    with pytest.raises(ModeConflict):
        rules.try_acquire(rows, exclusive(3))


def test_who_waits_behind_a_writer_is_not_notified_with_it() -> None:
    rows, _ = local_rows()
    grant = rules.try_acquire(rows, exclusive(1))
    assert isinstance(grant, Grant)
    rules.join(rows, exclusive(2))
    rules.join(rows, make_claim(3, Mode.SHARED, 1, 10.0, 0.0))
    assert rules.release(rows, grant) is True
    assert [row.claim for row in rules.admissible(rows)] == [exclusive(2)]


def test_when_a_waiter_dies_those_behind_it_are_looked_at() -> None:
    rows, _ = local_rows()
    rules.try_acquire(rows, make_claim(1, Mode.SHARED, 1, 60.0, 0.0))
    rules.join(rows, exclusive(2))
    reader = make_claim(3, Mode.SHARED, 1, 10.0, 0.0)
    rules.join(rows, reader)
    advance(rows, 2.0)
    assert isinstance(rules.turn(rows, reader), rules.Queued)
    rows.changed = False
    advance(rows, 1.0)
    assert rows.changed
    assert [row.claim for row in rules.admissible(rows)] == [reader]


# --- one verb at a time


def name_at(now: float, *rows: rules.Row) -> LocalRows:
    """The rows of a name, whose next fence is 70."""
    name = LocalRows("ns:name", "a store", now, lambda spare=0: 70)
    for row in rows:
        name.put(row)
    return name


def of(number: int, state: rules.State, **facts: Any) -> rules.Row:
    claim = Claim("ns:name", f"owner-{number}", 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", number))
    return rules.Row(claim, state, 100.0, **{"expires": 160.0, "number": number, **facts})


def test_the_news_of_a_holder_that_vanished_is_told_to_the_next_one_alone() -> None:
    name = name_at(100.0)
    name.abandoned_until = 500.0
    first, second = of(1, rules.State.HOLDING).claim, of(2, rules.State.HOLDING).claim
    granted = rules.try_acquire(name, first)
    assert isinstance(granted, Grant)
    assert granted.abandoned is True
    assert rules.release(name, granted) is True
    granted = rules.try_acquire(name, second)
    assert isinstance(granted, Grant)
    assert granted.abandoned is False


@pytest.mark.parametrize(("expires", "expected"), [(160.0, 160.0), (101.0, 110.0)])
def test_the_note_of_a_break_lasts_for_its_own_time_and_for_that_of_a_doubt(expires: float, expected: float) -> None:
    row = of(1, rules.State.BROKEN, expires=expires, broken="stuck")
    name = name_at(100.0, row)
    rules.withdraw(name, row.claim, doubt=True)
    assert [(each.state, each.expires, each.broken) for each in name] == [(rules.State.BROKEN, expected, "stuck")]
    rules.withdraw(name, row.claim, doubt=False)
    assert not len(name)


def test_a_grant_that_was_passed_on_has_so_many_fences_less_behind_it() -> None:
    row = of(1, rules.State.HOLDING, fence=40, spare=5)
    name = name_at(100.0, row)
    renewed = rules.renew(name, Grant(row.claim, 43, 10.0))
    assert renewed == Grant(row.claim, 43, 10.0, None, False, 2)
    assert [rules.has_fence(row, fence) for fence in (42, 43, 45, 46)] == [False, True, True, False]
    assert rules.renew(name, Grant(row.claim, 46, 10.0)) == rules.TAKEN
    assert rules.release(name, Grant(row.claim, 42, 10.0)) is False
    assert rules.release(name, Grant(row.claim, 45, 10.0)) is True


def test_a_name_is_shown_as_the_kind_of_lock_that_its_holders_have_and_what_cools_as_such(
    doors: dict[str, Door], clock: HandClock
) -> None:
    def claim(number: int, mode: Mode, min_hold: float = 0.0) -> Claim:
        return Claim("ns:x", f"owner {number}", 30.0, mode, 1, min_hold, Holder("h", number))

    for door in doors.values():
        read, write = (
            run(door.backend.join(claim(1, Mode.SHARED, 9.0))),
            run(door.backend.join(claim(2, Mode.EXCLUSIVE))),
        )
        assert isinstance(read, Grant)
        assert isinstance(write, Place)
        state = run(door.backend.inspect("ns:x"))
        assert (state.mode, [each.cooling for each in state.holdings]) == (Mode.SHARED, [False])
        run(door.backend.release(read))
        state = run(door.backend.inspect("ns:x"))
        assert [(each.cooling, each.holder, round(each.expires_in, 3)) for each in state.holdings] == [
            (True, Holder("h", 1), 9.0)
        ]
    clock.instant += 10
    for door in doors.values():
        state = run(door.backend.inspect("ns:x"))
        assert state is None or (state.mode, state.holdings) == (Mode.EXCLUSIVE, ()), "only the waiter is left"


def test_a_second_pause_takes_the_row_of_the_first_away_before_it_puts_its_own() -> None:
    """Where rows are in a table, two of one owner would both be found, and one order would end only one of them."""
    rows, _ = local_rows()
    notes: list[Any] = []

    class Noted:
        key, now, changed = rows.key, rows.now, False

        def __init__(self) -> None:
            self.kept: list[Any] = []

        def of_owner(self, owner: str) -> list[Any]:
            return [row for row in self.kept if row.claim.owner == owner]

        def insert(self, row: Any) -> None:
            notes.append(("insert", row.claim.holder.reason, row.expires - self.now))
            self.kept.append(row)

        def delete(self, row: Any) -> None:
            notes.append(("delete", row.claim.holder.reason))
            self.kept.remove(row)

    table: Any = Noted()
    assert not pauses.resume(table)
    assert not table.changed
    pauses.pause(table, Holder("h", 1, "ana", "moving"), 90.0)
    pauses.pause(table, Holder("h", 2, "ben", "still moving"), 40.0)
    assert notes == [
        ("insert", "moving", pytest.approx(90)), ("delete", "moving"), ("insert", "still moving", pytest.approx(40)),
    ]  # fmt: skip
    assert pauses.resume(table)
    assert (table.kept, table.changed) == ([], True)
