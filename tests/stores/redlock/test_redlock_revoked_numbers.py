"""Which numbers of a claim must not be granted any more."""

from __future__ import annotations

from leasehold._backends.redlock.fences import RevokedNumbers


def test_numbers_are_remembered_by_claim_and_once() -> None:
    taken = RevokedNumbers()
    for number in (7, 9, 7):
        taken.note("a", number, 0.0, 10.0)
    taken.note("b", 8, 0.0, 10.0)
    assert taken.numbers("a") == (7, 9)
    assert taken.numbers("b") == (8,)
    assert taken.numbers("c") == ()


def test_what_is_over_is_forgotten_and_what_was_noted_again_is_not() -> None:
    taken = RevokedNumbers()
    taken.note("a", 7, 0.0, 10.0)
    taken.note("b", 8, 0.0, 10.0)
    taken.note("a", 9, 5.0, 15.0)
    taken.note("c", 1, 12.0, 22.0)
    assert taken.numbers("a") == (7, 9)
    assert taken.numbers("b") == ()
    taken.note("d", 1, 30.0, 40.0)
    assert len(taken) == 1
