"""The decisions about a stored value, without a store."""

from __future__ import annotations

import json
import random

import pytest

from leasehold._patterns.cache_entry import (
    FORGOTTEN,
    Entry,
    Freshness,
    Policy,
    freshness,
    is_due,
    lifetime,
    pack,
    readable,
)
from leasehold.values import Record

POLICY = Policy(
    ttl=60, stale=30, stale_if_error=300, beta=1.0, jitter=0.2, max_size=100, encode=lambda _: b"", decode=json.loads
)


def entry(expires: float, took: float = 2.0) -> Entry:
    return Entry(b"1", 1, expires, took)


def test_a_draw_of_one_is_due_exactly_at_the_expiry() -> None:
    assert not is_due(99.999, 100.0, 2.0, 1.0, 1.0)
    assert is_due(100.0, 100.0, 2.0, 1.0, 1.0)


def test_the_smaller_the_draw_the_earlier_it_is_due() -> None:
    assert is_due(98.0, 100.0, 2.0, 1.0, 0.36)  # -ln(0.36) is a little more than 1: one build before the expiry
    assert not is_due(98.0, 100.0, 2.0, 1.0, 0.38)
    assert is_due(98.0, 100.0, 2.0, 2.0, 0.38), "a larger beta is earlier"
    assert not is_due(98.0, 100.0, 1.0, 1.0, 0.36), "a shorter build is later"


def test_beta_zero_is_never_early() -> None:
    assert not is_due(99.999, 100.0, 50.0, 0.0, 1e-300)


def test_of_many_readers_one_begins_early_as_a_rule_and_few_do() -> None:
    draws = random.Random(14)
    early = []
    for _ in range(200):  # 200 cycles of 200 reads a second over the last ten seconds
        moments = [now / 200 for now in range(2000)]
        early.append(next((10 - now for now in moments if is_due(now, 10.0, 0.1, 1.0, 1 - draws.random())), 0.0))
    assert sum(1 for lead in early if lead > 0) >= 199
    assert 0.1 < sum(early) / 200 < 1.0, "a few times the 0.1 s that a build takes"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (0.0, Freshness.FRESH),
        (99.9, Freshness.FRESH),
        (100.0, Freshness.DUE),
        (129.9, Freshness.DUE),
        (130.0, Freshness.GONE),
    ],
)
def test_what_a_reader_may_do(now: float, expected: Freshness) -> None:
    assert freshness(entry(100.0), now, POLICY, 1.0) is expected
    assert freshness(None, now, POLICY, 1.0) is Freshness.GONE


def test_no_value_is_built_again_in_the_first_half_of_its_life() -> None:
    assert freshness(entry(100.0, took=1000.0), 69.9, POLICY, 0.01) is Freshness.FRESH
    assert freshness(entry(100.0, took=1000.0), 70.0, POLICY, 0.01) is Freshness.DUE


def test_jitter_only_shortens() -> None:
    assert lifetime(POLICY, 0.0) == 60
    assert lifetime(POLICY, 1.0) == pytest.approx(48)


def test_the_stored_form_is_read_back_and_two_builds_of_the_same_value_differ() -> None:
    value = pack(b'"a\\nb"\n', expires=12.5, took=0.25, fence=7)
    read = readable(Record("k", value, 7, 1.0), POLICY)
    assert read == Entry(b'"a\\nb"\n', "a\nb", 12.5, 0.25)
    assert value != pack(b'"a\\nb"\n', expires=12.5, took=0.25, fence=8)


@pytest.mark.parametrize(
    "value",
    [
        FORGOTTEN,
        b"",
        b"\n",
        b"not json\n1",
        b'{"form":2,"expires":1,"took":1}\n1',
        b'{"form":1,"expires":1}\n1',
        b'{"form":1,"expires":1,"took":1}\nnot json',
        b"[]\n1",
    ],
)
def test_what_cannot_be_read_counts_as_absent(value: bytes) -> None:
    assert readable(Record("k", value, 1, 1.0), POLICY) is None


def test_no_record_is_absent() -> None:
    assert readable(None, POLICY) is None
