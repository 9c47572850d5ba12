"""Each checker accepts a history that is in order and rejects one that is not."""

from __future__ import annotations

import random

import pytest

from tests.lab.histories import TTL, grant, history, release
from verification.lab.checkers.fence_order import fence_order
from verification.lab.checkers.late_loss import late_loss
from verification.lab.checkers.leader_overlap import leader_overlap
from verification.lab.checkers.leaks import leaks
from verification.lab.checkers.linearizable import linearizable
from verification.lab.checkers.lost_update import count_lost, lost_update
from verification.lab.checkers.once_each import once_each
from verification.lab.checkers.starvation import starvation, times_to_recover
from verification.lab.checkers.two_owners import two_owners
from verification.lab.history import Event, Kind, read_history

IN_TURN = history(
    grant(1, 0.0, 0.1, fence=1, until=1.0),
    release(1, 0.3, 0.4),
    grant(2, 0.0, 0.35, fence=2, until=1.3),  # within the call that released: it may have happened before its answer
    release(2, 0.5, 0.6),
)


def test_turns_are_in_order_for_every_check() -> None:
    assert two_owners(IN_TURN) == fence_order(IN_TURN) == linearizable(IN_TURN) == late_loss(IN_TURN, TTL) == []


# --- two owners


def test_two_beliefs_at_once_are_two_owners() -> None:
    found = two_owners(history(grant(1, 0.0, 0.1, fence=1, until=1.0), grant(2, 0.2, 0.5, fence=2, until=1.5)))
    assert [violation.processes for violation in found] == [(1, 2)]


def test_a_belief_that_renewals_extended_overlaps_too() -> None:
    renewed = [*grant(1, 0.0, 0.1, fence=1, until=1.0), Event(0.9, 1, Kind.TICK, 1, until=1.9)]
    assert len(two_owners(history(renewed, grant(2, 0.2, 1.5, fence=2, until=2.5)))) == 1


@pytest.mark.parametrize("end", [Kind.LOST, Kind.RELEASE, Kind.ENDED])
def test_a_belief_ends_with_the_news_the_release_and_the_process(end: Kind) -> None:
    first = [*grant(1, 0.0, 0.1, fence=1, until=1.0), Event(0.4, 1, end, 1)]
    assert two_owners(history(first, grant(2, 0.2, 0.5, fence=2, until=1.5))) == []


def test_a_holder_that_knows_before_it_starts_has_no_belief() -> None:
    """The call came back when the lease was over already."""
    assert two_owners(history(grant(1, 0.0, 0.1, fence=1, until=1.0), grant(2, 0.2, 0.9, fence=2, until=0.8))) == []


# --- fences


def test_a_fence_that_comes_again_is_found() -> None:
    found = fence_order(history(grant(1, 0.0, 0.1, fence=7, until=1.0), grant(2, 1.2, 1.3, fence=7, until=2.0)))
    assert "given twice" in found[0].detail


def test_a_fence_that_falls_is_found() -> None:
    found = fence_order(history(grant(1, 0.0, 0.1, fence=7, until=1.0), grant(2, 1.2, 1.3, fence=6, until=2.0)))
    assert "came after 7" in found[0].detail


def test_calls_that_were_under_way_together_may_get_fences_in_either_order() -> None:
    assert fence_order(history(grant(1, 0.0, 0.5, fence=7, until=0.6), grant(2, 0.1, 0.7, fence=6, until=0.8))) == []


# --- lost updates


def wrote(t: float, client: int, value: int, fence: int = 1, kind: Kind = Kind.WROTE) -> Event:
    return Event(t, client, kind, 1, fence=fence, value=value)


def test_the_same_number_written_twice_is_a_lost_update() -> None:
    events = history(
        wrote(0.1, 1, 1), wrote(0.2, 2, 2), wrote(0.3, 1, 2), Event(1.0, 0, Kind.FINAL, value=2, detail="wrote")
    )
    assert count_lost(events, Kind.WROTE) == 1
    assert "1 lost" in lost_update(events)[0].detail


def test_a_counter_that_lacks_updates_at_the_end_has_lost_them() -> None:
    events = history(wrote(0.1, 1, 1), wrote(0.2, 2, 2), Event(1.0, 0, Kind.FINAL, value=1, detail="wrote"))
    assert count_lost(events, Kind.WROTE) == 1
    assert len(lost_update(events)) == 1


def test_a_late_writer_loses_all_that_was_written_meanwhile() -> None:
    late = [wrote(0.1 * n, 2, n) for n in range(1, 6)] + [
        wrote(0.9, 1, 1),
        Event(1.0, 0, Kind.FINAL, value=1, detail="wrote"),
    ]
    assert count_lost(late, Kind.WROTE) == 5


def test_an_update_whose_answer_was_not_seen_hides_no_lost_one() -> None:
    """The counter is as high as the acknowledged updates are many, but one of them was overwritten."""
    events = history(wrote(0.1, 1, 1), wrote(0.2, 2, 1), Event(1.0, 0, Kind.FINAL, value=2, detail="wrote"))
    assert count_lost(events, Kind.WROTE) == 1


def test_unfenced_updates_are_counted_apart() -> None:
    events = history(wrote(0.1, 1, 1, kind=Kind.UNFENCED), wrote(0.2, 2, 1, kind=Kind.UNFENCED), wrote(0.3, 1, 1))
    assert count_lost(events, Kind.UNFENCED) == 1
    assert lost_update(events) == []


# --- late loss


def ticks(client: int, begin: float, end: float, until: float) -> list[Event]:
    count = round((end - begin) / 0.05)
    return [Event(begin + 0.05 * n, client, Kind.TICK, 1, until=until) for n in range(count)]


def test_a_loss_that_is_known_at_the_deadline_is_in_time() -> None:
    events = history(grant(1, 0.0, 0.1, fence=1, until=1.0), ticks(1, 0.2, 1.0, 1.0), Event(1.02, 1, Kind.LOST, 1))
    assert late_loss(events, TTL) == []


def test_a_loss_that_is_known_long_after_the_deadline_is_late() -> None:
    running = [Event(0.05 * n, 1, Kind.FAILED) for n in range(80)]
    events = history(grant(1, 0.0, 0.1, fence=1, until=1.0), running, Event(3.0, 1, Kind.LOST, 1))
    assert "2.000 s after" in late_loss(events, TTL)[0].detail


def test_a_process_that_did_not_run_is_not_late() -> None:
    events = history(grant(1, 0.0, 0.1, fence=1, until=1.0), ticks(1, 0.2, 0.5, 1.0), Event(3.0, 1, Kind.LOST, 1))
    assert late_loss(events, TTL) == []


def test_a_belief_that_outlives_a_cut_by_more_than_the_ttl_is_late() -> None:
    """By its own account the holder is fine: it believes in renewals that cannot have been confirmed."""
    events = history(
        grant(1, 0.0, 0.1, fence=1, until=1.0),
        Event(0.5, 0, Kind.FAULT, value=1, detail="cut off silently"),
        [Event(0.5 + 0.1 * n, 1, Kind.TICK, 1, until=1.5 + 0.1 * n) for n in range(1, 20)],
        Event(3.0, 0, Kind.CALM, value=1, detail="cut off silently"),
    )
    assert any("believed for longer than its ttl" in violation.detail for violation in late_loss(events, TTL))


# --- starvation and leaks


def test_a_client_that_gets_nothing_after_the_healing_starves() -> None:
    events = history(
        Event(1.0, 0, Kind.HEALED),
        Event(0.5, 2, Kind.ACQUIRE, 1),
        Event(1.5, 2, Kind.BUSY, 1),
        grant(1, 1.1, 1.2, fence=1, until=2.0),
        Event(9.0, 0, Kind.LEFT, value=0, detail="locks"),
    )
    assert [violation.processes for violation in starvation(events, 5.0)] == [(2,)]
    assert starvation(events, 5.0, together=True) == []


def test_a_client_that_was_killed_before_the_healing_does_not_starve() -> None:
    events = history(Event(0.5, 2, Kind.ACQUIRE, 1), Event(0.6, 2, Kind.ENDED), Event(1.0, 0, Kind.HEALED))
    assert starvation(events, 5.0) == []


def test_a_client_that_was_started_late_is_timed_from_its_first_call() -> None:
    events = history(Event(1.0, 0, Kind.HEALED), grant(2, 9.0, 9.1, fence=1, until=10.0))
    assert times_to_recover(events) == pytest.approx({2: 0.1})


def test_all_clients_that_get_nothing_starve_together() -> None:
    events = history(Event(1.0, 0, Kind.HEALED), Event(1.5, 2, Kind.BUSY, 1), Event(1.6, 1, Kind.FAILED, 1))
    assert len(starvation(events, 5.0, together=True)) == 2


def test_what_is_left_is_a_leak() -> None:
    left = [Event(9.0, 0, Kind.LEFT, value=0, detail="locks"), Event(9.0, 0, Kind.LEFT, value=2, detail="connections")]
    assert [violation.detail for violation in leaks(left)] == ["2 left: connections"]


# --- leaders and jobs


def test_a_leader_of_an_earlier_term_that_still_leads_is_found() -> None:
    events = [Event(t, client, Kind.LEADS, fence=fence) for t, client, fence in [(0, 1, 5), (1, 2, 6), (1.1, 1, 5)]]
    assert [violation.processes for violation in leader_overlap(events)] == [(1, 2)]


def test_leaders_one_after_the_other_are_in_order() -> None:
    events = [Event(t, client, Kind.LEADS, fence=fence) for t, client, fence in [(0, 1, 5), (1, 2, 6), (2, 1, 7)]]
    assert leader_overlap(events) == []


def test_a_job_that_was_recorded_twice_is_found() -> None:
    events = [
        Event(0.1, 1, Kind.DONE, detail="3"),
        Event(0.2, 2, Kind.DONE, detail="4"),
        Event(0.3, 2, Kind.DONE, detail="3"),
    ]
    assert [violation.detail for violation in once_each(events)] == ["3 was recorded 2 times"]


# --- linearizability


def test_a_grant_within_the_tenure_of_another_owner_is_not_linearizable() -> None:
    events = history(
        grant(1, 0.0, 0.1, fence=1, until=1.0), grant(2, 0.2, 0.5, fence=2, until=1.5), release(1, 0.7, 0.8)
    )
    assert linearizable(events)[0].processes == (2,)


def test_a_release_that_freed_the_lock_long_after_the_deadline_was_made_by_its_owner() -> None:
    """Its holder had given up belief, but the store says that it was still the owner: then nobody else was."""
    events = history(
        grant(1, 0.0, 0.1, fence=1, until=1.0),
        grant(2, 0.2, 1.5, fence=2, until=2.5),
        release(1, 2.0, 2.1, freed=True),
        release(2, 3.0, 3.1, freed=True),
    )
    assert len(linearizable(events)) == 1
    assert linearizable([event for event in events if not (event.process == 1 and event.t > 1.5)]) == []


def test_calls_that_overlap_are_placed_in_the_order_that_fits() -> None:
    """The answer of the first owner came last: it was held up on its way, and its lease had been given back by then."""
    events = history(
        grant(1, 0.0, 0.9, fence=1, until=0.9),  # over when it arrived
        grant(2, 0.1, 0.3, fence=2, until=1.3),
        release(2, 0.4, 0.5),
    )
    assert linearizable(events) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_one_lock_really_did_is_always_linearizable(seed: int) -> None:
    """Random clients of a lock that is simulated instant by instant; then one grant is moved into another's tenure."""
    chance = random.Random(seed)
    events, free_at = [], 0.0
    for call in range(30):
        client = chance.randrange(1, 4)
        begin = free_at + chance.uniform(0.0, 0.2)
        end = begin + chance.uniform(0.01, 0.5)
        events += grant(client, begin - chance.uniform(0, 0.3), begin + 0.001, fence=call, until=end + 9, call=call)
        events += release(client, end, end + chance.uniform(0, 0.3), call=call)
        free_at = end + 0.002
    assert linearizable(history(events)) == []
    late = next(event for event in events if event.kind is Kind.RELEASE and event.call == 10)
    inside = grant(9, late.t - 0.002, late.t - 0.001, fence=99, until=late.t + 5, call=99)
    assert len(linearizable(history(events, inside))) == 1


# --- the file


def test_a_line_that_was_cut_off_is_left_out(tmp_path) -> None:  # type: ignore[no-untyped-def] # pytest's
    events = history(grant(1, 0.0, 0.1, fence=2**53 - 1, until=1.0))
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(event.to_json() for event in events) + '\n{"t": 3, "proc')
    assert read_history(path) == events
