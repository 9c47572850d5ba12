"""Slots: which run of a job a moment belongs to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold._patterns.slots import Slots, slots_for
from leasehold.errors import ConfigurationError

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"]
DAY = 86_400


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def every(period: str, tz: str = "UTC") -> Slots:
    return slots_for(every=period, cron=None, slot=None, tz=tz)


def cron(text: str, tz: str = "UTC") -> Slots:
    return slots_for(every=None, cron=text, slot=None, tz=tz)


@pytest.mark.parametrize(
    ("period", "tz", "moment", "label"),
    [
        ("1d", "UTC", "2026-11-15T23:59:59+00:00", "2026-11-15T00:00:00+00:00"),
        ("1d", "Europe/Berlin", "2026-11-15T23:30:00+00:00", "2026-11-16T00:00:00+01:00"),
        ("1d", "Europe/Berlin", "2026-03-29T23:59:00+02:00", "2026-03-29T00:00:00+01:00"),  # 23 hours long
        ("1d", "Europe/Berlin", "2026-10-25T23:59:00+01:00", "2026-10-25T00:00:00+02:00"),  # 25 hours long
        ("7d", "Europe/Berlin", "2026-11-15T12:00:00+01:00", "2026-11-09T00:00:00+01:00"),  # weeks begin on Monday
        ("7d", "UTC", "2026-11-16T00:00:00+00:00", "2026-11-16T00:00:00+00:00"),
        ("14d", "UTC", "2026-11-15T12:00:00+00:00", "2026-11-09T00:00:00+00:00"),  # a Monday, too
        ("15m", "UTC", "2026-11-15T10:14:59.999+00:00", "2026-11-15T10:00:00+00:00"),
        ("6h", "Europe/Berlin", "2026-07-01T07:00:00+02:00", "2026-07-01T06:00:00+02:00"),
        ("1h", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+02:00"),
        ("1h", "Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T02:00:00+01:00"),
        ("2h", "Europe/Berlin", "2026-03-29T03:30:00+02:00", "2026-03-29T03:00:00+02:00"),  # 02:00 does not exist
        ("30m", "Asia/Kathmandu", "2026-11-15T10:50:00+05:45", "2026-11-15T10:30:00+05:45"),
    ],
)
def test_a_period_follows_the_calendar_of_its_zone(period: str, tz: str, moment: str, label: str) -> None:
    slot = every(period, tz).at(at(moment))
    assert slot.label == label
    assert slot.start == at(label)


@settings(max_examples=200, deadline=None)
@given(
    st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(["1d", "7d", "1h", "6h", "15m", "36h", "45m", "10s"]),
    st.sampled_from(ZONES),
)
def test_a_moment_lies_in_its_period_and_the_start_of_a_period_in_itself(
    moment: datetime, period: str, tz: str
) -> None:
    slots = every(period, tz)
    slot = slots.at(moment.timestamp())
    assert slot.start is not None
    assert slot.start <= moment.timestamp()
    assert slots.at(slot.start) == slot
    assert slot.keep >= DAY


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(ZONES[:4]), st.sampled_from(["15m", "1h"]), st.integers(0, 400))
def test_short_periods_neither_grow_nor_shrink_when_clocks_change(tz: str, period: str, number: int) -> None:
    length = {"15m": 900, "1h": 3600}[period]
    slots, moment = every(period, tz), at("2026-10-20T00:00:00+00:00") + number * 1777
    start = slots.at(moment).start
    assert start is not None
    assert slots.at(start + length - 1).start == start
    assert slots.at(start + length).start == start + length


def test_the_tick_is_the_nearest_and_the_next_one_only_when_it_is_less_than_a_minute_away() -> None:
    slots = cron("0 2 * * *")
    tick = at("2026-11-15T02:00:00+00:00")
    assert slots.at(tick).start == tick
    assert slots.at(tick + 3600 * 20).start == tick
    assert slots.at(tick - 30).start == tick  # a machine that fires early by the store's clock
    assert slots.at(tick - 3600).start == tick - DAY  # by hand, in the evening: not the slot of the night to come


def test_of_two_close_ticks_the_nearer_one_counts() -> None:
    slots, minute = cron("* * * * *"), at("2026-11-15T02:00:00+00:00")
    assert slots.at(minute + 29).start == minute
    assert slots.at(minute + 31).start == minute + 60


def test_a_slot_is_remembered_for_two_periods_and_at_least_a_day() -> None:
    assert every("1h").at(at("2026-11-15T02:00:00+00:00")).keep == DAY
    assert every("7d").at(at("2026-11-15T02:00:00+00:00")).keep == 14 * DAY
    monthly = cron("0 0 1 * *").at(at("2026-11-15T02:00:00+00:00"))
    assert monthly.keep == 2 * 31 * DAY


def test_a_label_is_the_same_at_every_time() -> None:
    slots = slots_for(every=None, cron=None, slot="2026-11-15", tz="UTC")
    assert slots.at(0.0) == slots.at(1e9)
    assert slots.at(0.0).start is None


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"every": "1d", "cron": "* * * * *"},
        {"every": "1d", "slot": "x"},
        {"every": 0},
        {"every": "0.5s"},
        {"every": True},
        {"cron": "never"},
        {"cron": 5},
        {"slot": ""},
        {"slot": "x" * 300},
        {"every": "1d", "tz": "Mars/Olympus"},
        {"every": "1d", "tz": "../../etc/passwd"},
        {"every": "1d", "tz": None},
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object]) -> None:
    given_options: dict[str, object] = {"every": None, "cron": None, "slot": None, "tz": "UTC", **options}
    with pytest.raises(ConfigurationError):
        slots_for(**given_options)  # type: ignore[arg-type]
