"""What stores write down and read again: holders, pauses and documents of names, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasehold.errors import BackendRejected, ModeConflict
from leasehold.kit import pauses, rules
from leasehold.kit.document_format import Name, Observations, read_name, write_name
from leasehold.kit.holder import holder_fields, holder_from_fields, holder_from_json, holder_to_json
from leasehold.kit.local_rows import LocalRows
from leasehold.kit.refusals import check_kind, fence_too_high
from leasehold.kit.rows import Crowd, Row, State
from leasehold.values import MAX_FENCE, UNLIMITED, Claim, Grant, Holder, Mode, Pause

FULL = Holder("db-3", 7, "nightly", "the report", "ana")


# --- holders


@pytest.mark.parametrize("left_out", ["label", "reason", "user", None])
def test_every_fact_of_a_holder_is_written_and_read(left_out: str | None) -> None:
    facts: dict[str, Any] = {"host": "db-3", "pid": 7, "label": "nightly", "reason": "the report", "user": "ana"}
    if left_out is not None:
        facts[left_out] = None
    holder = Holder(**facts)
    assert holder_fields(holder) == {"v": 1, **{name: fact for name, fact in facts.items() if fact is not None}}
    assert holder_from_fields(holder_fields(holder)) == holder
    assert holder_from_json(holder_to_json(holder)) == holder


def test_text_that_is_not_ascii_takes_no_more_bytes_than_characters() -> None:
    text = holder_to_json(Holder("hôst", 1, "é"))
    assert text.isascii()
    assert " " not in text


# --- pauses


@pytest.mark.parametrize(
    ("by", "left", "expected"),
    [
        (Holder("h", 1, "ana", "moving"), 60.0, Pause("moving", "ana", 60.0, 5.0)),
        (Holder("h", 1, None, "moving", "ben"), 60.0, Pause("moving", str(Holder("h", 1, user="ben")), 60.0, 5.0)),
        (Holder("h", 1, "ana"), 60.0, Pause("no reason given", "ana", 60.0, 5.0)),
        (Holder("h", 1, "ana", "x"), UNLIMITED, Pause("x", "ana", None, 5.0)),
        (Holder("h", 1, "ana", "x"), UNLIMITED / 2, Pause("x", "ana", None, 5.0)),
        (Holder("h", 1, "ana", "x"), UNLIMITED / 2 - 1e6, Pause("x", "ana", UNLIMITED / 2 - 1e6, 5.0)),
        (Holder("h", 1, "ana", "x"), None, Pause("x", "ana", None, 5.0)),
    ],
)
def test_a_pause_says_why_who_and_how_long(by: Holder, left: float | None, expected: Pause) -> None:
    found = pauses.pause_of_holder(by, left, 5.0)
    assert (found.reason, found.expires_in, found.paused_for) == (expected.reason, expected.expires_in, 5.0)
    assert found == expected or by.label is None
    text = pauses.pause_to_json(by)
    assert pauses.pause_from_json(text, left, 5.0) == pauses.pause_from_json(text.encode(), left, 5.0) == found
    assert holder_from_json(text) == by, "readers of earlier versions take it for a holder"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        b"",
        holder_to_json(FULL),
        holder_to_json(Holder("h", 1, "pause")),
        holder_to_json(Holder("h", 1, "ana", '"pause"')),
        '{"pause":1',
        '{"pause":1}',
        '{"v":1,"host":"h","pid":1,"pause":0}',
        '{"v":1,"host":"h","pid":1,"pause":2}',
        b'\xff"pause"',
        '["pause"]',
    ],
)
def test_what_is_no_pause_is_none(value: str | bytes | None) -> None:
    assert pauses.pause_from_json(value, 5.0) is None


def rows_at(now: float = 100.0) -> LocalRows:
    fences = iter(range(1, 1000))
    return LocalRows("ns:name", "the store", now, lambda _=0: next(fences))


def claim(number: int = 1, mode: Mode = Mode.EXCLUSIVE, capacity: int = 1, ttl: float = 10.0, **more: Any) -> Claim:
    return Claim("ns:name", f"owner-{number}", ttl, mode, capacity, more.get("min_hold", 0.0), Holder("h", number))


def test_a_pause_replaces_another_ends_by_itself_and_by_order() -> None:
    rows = rows_at()
    assert pauses.resume(rows) is False
    pauses.pause(rows, Holder("h", 1, "ana"), 60.0)
    pauses.pause(rows, Holder("h", 1, "ben"), 30.0)
    assert len(rows) == 1
    rows.now = 110.0
    assert pauses.pause_of(pauses.pause_row(rows), rows.now) == Pause("no reason given", "ben", 20.0, 10.0)
    assert list(pauses.holders_of(rows)) == []
    assert [rows.changed] == [False]
    assert pauses.resume(rows) is True
    assert [rows.changed] == [True]
    assert pauses.resume(rows) is False
    pauses.pause(rows, Holder("h", 1, "ana"), 5.0)
    rows.now = 115.0
    assert pauses.pause_row(rows) is None
    assert pauses.resume(rows) is False


def test_a_pause_that_runs_out_is_no_holder_that_vanished_and_cannot_be_broken() -> None:
    rows = rows_at()
    pauses.pause(rows, Holder("h", 1, "ana"), 5.0)
    assert rules.break_(rows, 0, "stuck", now=True) is False
    rows.now = 105.0
    rules.expire(rows)
    grant = rules.try_acquire(rows, claim())
    assert isinstance(grant, Grant)
    assert grant.abandoned is False


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_is_granted_while_a_name_is_paused(mode: Mode) -> None:
    rows = rows_at()
    pauses.pause(rows, Holder("h", 1, "ana", "moving"), 60.0)
    wanted = claim(1, mode, 3)
    refusal = rules.try_acquire(rows, wanted)
    queued = rules.join(rows, wanted)
    assert isinstance(queued, rules.Queued)
    assert queued.paused == getattr(refusal, "paused", None) == Pause("moving", "ana", 60.0, 0.0)
    assert queued.holder is None, "an operator is no holder"
    assert pauses.resume(rows)
    assert isinstance(rules.turn(rows, wanted), Grant)


# --- refusals


@pytest.mark.parametrize(
    ("wanted", "present", "conflict"),
    [
        ((Mode.EXCLUSIVE, 1), (Mode.EXCLUSIVE, 1), None),
        ((Mode.EXCLUSIVE, 1), (Mode.SHARED, 1), None),
        ((Mode.SHARED, 1), (Mode.EXCLUSIVE, 1), None),
        ((Mode.PERMIT, 3), (Mode.PERMIT, 3), None),
        ((Mode.PERMIT, 3), (Mode.PERMIT, 2), "in use as a semaphore of 2, and cannot be taken as a semaphore of 3"),
        ((Mode.PERMIT, 1), (Mode.EXCLUSIVE, 1), "in use as a lock, and cannot be taken as a semaphore of 1"),
        ((Mode.SHARED, 1), (Mode.PERMIT, 1), "in use as a semaphore of 1, and cannot be taken as a lock"),
    ],
)
def test_one_name_is_one_kind_of_lock(wanted: Any, present: Any, conflict: str | None) -> None:
    mode, capacity = present
    if conflict is None:
        check_kind(claim(1, *wanted), mode, capacity, "the store")
        return
    with pytest.raises(ModeConflict, match=conflict) as raised:
        check_kind(claim(1, *wanted), mode, capacity, "the store")
    assert raised.value.backend == "the store"
    assert "'ns:name'" in str(raised.value)


def test_a_fence_that_is_too_high_names_its_store() -> None:
    error = fence_too_high(MAX_FENCE + 1, "the store")
    assert (type(error), error.backend) == (BackendRejected, "the store")
    assert str(MAX_FENCE + 1) in str(error)


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (1, False)])
def test_the_last_fences_are_those_that_are_kept_exact(spare: int, fits: bool) -> None:
    rows = LocalRows("ns:name", "the store", 0.0, lambda _=0: MAX_FENCE)
    if fits:
        assert rules.grant(rows, claim(), spare).fence == MAX_FENCE
        return
    with pytest.raises(BackendRejected):
        rules.grant(rows, claim(), spare)


# --- small rules


@pytest.mark.parametrize(
    ("mode", "capacity", "held", "alone", "ahead", "ahead_alone", "admitted"),
    [
        (Mode.EXCLUSIVE, 1, 0, False, 0, False, True),
        (Mode.EXCLUSIVE, 1, 1, False, 0, False, False),
        (Mode.EXCLUSIVE, 1, 0, False, 1, False, False),
        (Mode.SHARED, 1, 5, False, 5, False, True),
        (Mode.SHARED, 1, 1, True, 0, False, False),
        (Mode.SHARED, 1, 1, False, 1, True, False),
        (Mode.PERMIT, 3, 2, False, 0, False, True),
        (Mode.PERMIT, 3, 1, False, 1, False, True),
        (Mode.PERMIT, 3, 3, False, 0, False, False),
        (Mode.PERMIT, 3, 2, False, 1, False, False),
        (Mode.PERMIT, 3, 1, True, 0, False, False),
    ],
)
def test_who_is_admitted(
    mode: Mode, capacity: int, held: int, alone: bool, ahead: int, ahead_alone: bool, admitted: bool
) -> None:
    holders, waiters = Crowd(held, alone), Crowd(ahead, ahead_alone)
    assert rules.admits(claim(1, mode, capacity), holders, waiters) is admitted


@pytest.mark.parametrize(("ttl", "lifetime"), [(0.5, 0.5), (3.0, 3.0), (60.0, 3.0)])
def test_a_place_lives_for_three_rechecks_and_no_longer_than_a_ttl(ttl: float, lifetime: float) -> None:
    assert rules.place_lifetime(claim(ttl=ttl)) == lifetime


def test_a_hand_over_is_taken_for_older_than_the_clocks_may_differ() -> None:
    assert rules.handed_over_since(100.0, 10.0) == pytest.approx(109.9)


@pytest.mark.parametrize(("fence", "has"), [(9, False), (10, True), (13, True), (14, False)])
def test_the_fences_behind_that_of_a_holder_are_its_own(fence: int, has: bool) -> None:
    row = Row(claim(), State.HOLDING, 0.0, 1.0, 10, spare=3)
    assert rules.has_fence(row, fence) is has


# --- documents of names


def name_at(now: float, lowest: int = 1) -> Name:
    return Name("ns:name", "the store", now, lowest)


def test_a_document_says_all_that_the_rules_know() -> None:
    name = name_at(100.0)
    rows = name.rows
    holding = claim(1, min_hold=4.0)
    assert isinstance(rules.join(rows, holding), Grant)
    rules.join(rows, claim(2))
    rules.join(rows, claim(3, Mode.SHARED))
    rules.withdraw(rows, claim(4), doubt=True)
    row = next(iter(rows.held()))
    row.abandoned, row.broken = True, "stuck"
    rows.abandoned_until = 500.0
    again = read_name(name_at(101.0), write_name(name, None), None)
    assert again.fence == name.fence
    assert again.rows.abandoned_until == 500.0
    before, after = list(rows), list(again.rows)
    assert [each.claim for each in after] == [each.claim for each in before]
    facts = ("state", "since", "expires", "fence", "abandoned", "broken", "number")
    assert [[getattr(each, fact) for fact in facts] for each in after] == [
        [getattr(each, fact) for fact in facts] for each in before
    ]
    late = Row(claim(9), State.WAITING, 0.0, 1.0)
    again.rows.insert(late)
    assert late.number == max(each.number for each in before) + 1


def test_a_document_of_an_idle_name_is_its_fence() -> None:
    name = name_at(100.0)
    name.raise_fence(41)
    assert json.loads(write_name(name, None)) == {"v": 1, "fence": 41}
    name.rows.abandoned_until = 100.0
    assert json.loads(write_name(name, None)) == {"v": 1, "fence": 41}, "that is over"
    assert name.raise_fence(7) == 41


@pytest.mark.parametrize(("fence", "lowest", "spare", "expected"), [(5, 1, 0, 6), (5, 9, 0, 9), (5, 6, 3, 6)])
def test_the_next_fence_is_above_all_before_and_not_below_the_clock(
    fence: int, lowest: int, spare: int, expected: int
) -> None:
    name = name_at(100.0, lowest)
    name.raise_fence(fence)
    assert name.rows.next_fence(spare) == expected
    assert name.fence == expected + spare


def test_a_holder_has_the_spare_fences_that_no_grant_came_after() -> None:
    name = name_at(100.0)
    grant = rules.grant(name.rows, claim(), 5)
    again = read_name(name_at(101.0), write_name(name, None), None)
    assert next(iter(again.rows.held())).spare == 5
    later = Grant(grant.claim, grant.fence + 5, 10.0)
    assert isinstance(rules.renew(again.rows, later), Grant)
    shared = name_at(100.0)
    rules.grant(shared.rows, claim(1, Mode.SHARED))
    rules.grant(shared.rows, claim(2, Mode.SHARED))
    assert {row.spare for row in read_name(name_at(101.0), write_name(shared, None), None).rows} == {0}


def test_a_holder_that_another_program_wrote_is_unknown() -> None:
    name = name_at(100.0)
    rules.grant(name.rows, claim())
    fields = json.loads(write_name(name, None))
    fields["rows"][0]["holder"] = "somebody"
    found = read_name(name_at(100.0), json.dumps(fields).encode(), None)
    assert next(iter(found.rows)).claim.holder == Holder("unknown", 0)


# --- without a clock


def test_without_a_clock_a_row_lasts_from_when_its_beat_was_first_seen() -> None:
    ours, theirs = Observations(), Observations()
    name = name_at(100.0)
    rules.grant(name.rows, claim(ttl=10.0))
    document = write_name(name, ours)
    fields = json.loads(document)
    assert fields["beats"] == 1
    assert (fields["rows"][0]["born"], fields["rows"][0]["beat"], fields["rows"][0]["lasts"]) == (1, 1, 10.0)
    assert "expires" not in fields["rows"][0]
    for now, expires in ((5000.0, 5010.0), (5009.0, 5010.0)):
        seen = next(iter(read_name(name_at(now), document, theirs).rows))
        assert (seen.since, seen.expires) == (5000.0, expires)
    mine = read_name(name_at(104.0), document, ours)
    own = next(iter(mine.rows))
    assert (own.since, own.expires) == (100.0, 110.0), "we know when we wrote it"
    rules.renew(mine.rows, Grant(claim(), own.fence, 10.0))
    renewed = next(iter(read_name(name_at(5010.0), write_name(mine, ours), theirs).rows))
    assert (renewed.since, renewed.expires) == (5000.0, 5020.0), "it is held since before"


def test_without_a_clock_only_a_row_that_changed_gets_a_new_beat() -> None:
    seen = Observations()
    name = name_at(100.0)
    rules.join(name.rows, claim(1))
    rules.join(name.rows, claim(2))
    document = write_name(name, seen)
    later = read_name(name_at(101.0), document, seen)
    assert write_name(later, seen) == document
    rules.turn(later.rows, claim(2))
    fields = json.loads(write_name(later, seen))
    assert [(row["born"], row["beat"]) for row in fields["rows"]] == [(1, 1), (2, 3)]
    assert fields["beats"] == 3


def test_without_a_clock_the_mark_of_a_vanished_holder_has_a_beat_of_its_own() -> None:
    ours, theirs = Observations(), Observations()
    name = name_at(100.0)
    name.rows.abandoned_until = 100.0 + rules.ABANDONED_KEPT
    document = write_name(name, ours)
    assert json.loads(document)["abandoned"] == 1
    found = read_name(name_at(5000.0), document, theirs)
    assert found.rows.abandoned_until == 5000.0 + rules.ABANDONED_KEPT
    assert write_name(found, theirs) == document, "it is not written anew"
    assert read_name(name_at(5009.0), document, theirs).rows.abandoned_until == 5000.0 + rules.ABANDONED_KEPT
    found.rows.abandoned_until += 1.0
    assert json.loads(write_name(found, theirs))["abandoned"] == 2


def test_without_a_clock_beats_that_are_gone_are_forgotten() -> None:
    seen = Observations()
    name = name_at(100.0)
    rules.grant(name.rows, claim())
    document = write_name(name, seen)
    for now in range(200, 230):
        read_name(name_at(float(now)), document, seen)
    assert seen._seen == {"ns:name": {1: 100.0}}
    read_name(name_at(300.0), write_name(name_at(300.0), None), seen)
    assert seen._seen == {"ns:name": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"state": 9},
        {"mode": "mine"},
        {"ttl": "x"},
        {"capacity": None},
        {"number": "x"},
        {"owner": ...},
        {"expires": ...},
    ],
)
def test_a_row_that_leasehold_did_not_write_is_refused(change: dict[str, Any]) -> None:
    name = name_at(100.0)
    rules.grant(name.rows, claim())
    fields = json.loads(write_name(name, None))
    for key, value in change.items():
        if value is ...:
            del fields["rows"][0][key]
        else:
            fields["rows"][0][key] = value
    with pytest.raises(BackendRejected, match="not written by leasehold") as raised:
        read_name(name_at(100.0), json.dumps(fields).encode(), None)
    assert raised.value.backend == "the store"


# --- rows in dictionaries


def test_rows_are_looked_through_when_one_may_have_run_out_and_only_then() -> None:
    rows = rows_at()
    held, noted = Row(claim(1), State.HOLDING, 100.0, 110.0), Row(claim(2), State.WITHDRAWN, 100.0, 105.0)
    rows.insert(held)
    rows.put(noted)
    assert [row.number for row in rows] == [1, 0]
    assert rows.expire() == ()
    rows.now = 105.0
    assert rows.expire() == [State.WITHDRAWN]
    held.expires = 107.0
    rows.update(held)
    rows.now = 107.0
    assert rows.expire() == [State.HOLDING]
    assert len(rows) == 0
    assert rows.soonest_end() is None


def test_a_name_is_idle_when_nothing_has_to_be_remembered() -> None:
    for state in State:
        rows = rows_at()
        found = [rows.is_idle]
        rows.insert(row := Row(claim(), state, 100.0, 110.0))
        found.append(rows.is_idle)
        rows.delete(row)
        found.append(rows.is_idle)
        rows.abandoned_until = 100.1
        found.append(rows.is_idle)
        rows.now = 100.1
        found.append(rows.is_idle)
        assert found == [True, False, True, False, True]
