"""Cron expressions: what they accept, and which instants they name, compared with counting minute by minute."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold._patterns.cron import Cron, parse_cron
from leasehold.errors import ConfigurationError

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)


def at(text: str, zone: object = UTC) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()  # type: ignore[arg-type]


def shown(instant: float, zone: ZoneInfo = BERLIN) -> str:
    return datetime.fromtimestamp(instant, zone).isoformat()


def field_fits(text: str, value: int, lowest: int, highest: int) -> bool:
    """A second reading of one field, written as a question about a single value."""
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = lowest, highest
        elif "-" in span:
            first, last = map(int, span.split("-"))
        else:
            first = int(span)
            last = highest if step else first
        if first <= value <= last and (value - first) % int(step or 1) == 0:
            return True
    return False


def fits(text: str, moment: datetime) -> bool:
    minute, hour, day, month, weekday = text.split()
    by_number = field_fits(day, moment.day, 1, 31)
    by_name = field_fits(weekday, moment.isoweekday() % 7, 0, 6)
    days = by_number and by_name if "*" in (day[0], weekday[0]) else by_number or by_name
    return (
        days
        and field_fits(minute, moment.minute, 0, 59)
        and field_fits(hour, moment.hour, 0, 23)
        and field_fits(month, moment.month, 1, 12)
    )


def a_field(lowest: int, highest: int) -> st.SearchStrategy[str]:
    number = st.integers(lowest, highest)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, highest)
    part = st.one_of(
        st.just("*"),
        number.map(str),
        span,
        st.builds("{}/{}".format, st.one_of(st.just("*"), span, number.map(str)), step),
    )
    return st.lists(part, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.tuples(
    a_field(0, 59), a_field(0, 23), a_field(1, 28), st.sampled_from(["*", "*/2", "1-6", "3,10"]), a_field(0, 6)
).map(" ".join)
MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))


@settings(max_examples=80, deadline=None)
@given(EXPRESSIONS, MOMENTS)
def test_the_next_and_previous_tick_are_those_that_counting_minutes_finds(text: str, moment: datetime) -> None:
    cron = parse_cron(text, UTC)
    next_tick = datetime.fromtimestamp(cron.next(moment.timestamp()), UTC)
    previous = datetime.fromtimestamp(cron.previous(moment.timestamp()), UTC)
    assert previous <= moment < next_tick
    for tick in (previous, next_tick):
        assert tick.second == 0
        assert fits(text, tick), f"{text} does not name {tick}"
    # Nothing in between fits; a year of minutes is too many, so look at the days near both ends.
    start = previous.replace(second=0, microsecond=0) + MINUTE
    for candidate in (start + MINUTE * number for number in range(1440)):
        if candidate >= next_tick:
            break
        assert not fits(text, candidate), f"{text} has {candidate} between {previous} and {next_tick}"


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.datetimes(datetime(2026, 3, 27), datetime(2026, 3, 31), timezones=st.just(UTC)))
def test_ticks_form_one_rising_line_also_when_clocks_change(text: str, moment: datetime) -> None:
    cron = parse_cron(text, BERLIN)
    instant = moment.timestamp()
    for _ in range(5):
        following = cron.next(instant)
        assert following > instant
        assert cron.previous(following) == following
        assert cron.previous(following - 1) <= instant
        instant = following


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("0 2 * * *", "2026-11-15T02:00", "2026-11-16T02:00"),
        ("*/15 * * * *", "2026-11-15T23:50", "2026-11-16T00:00"),
        ("0 9 * * mon-fri", "2026-11-13T10:00", "2026-11-16T09:00"),
        ("0 0 1 JAN,jul *", "2026-11-15T00:00", "2027-01-01T00:00"),
        ("0 0 29 2 *", "2026-11-15T00:00", "2028-02-29T00:00"),
        ("0 0 13 * 5", "2026-11-15T00:00", "2026-11-20T00:00"),
        ("0 0 * * 7", "2026-11-14T12:00", "2026-11-15T00:00"),
        ("0 0 * * fri-sun", "2026-11-14T12:00", "2026-11-15T00:00"),
        ("5/20 0 * * *", "2026-11-15T00:25", "2026-11-15T00:45"),
        ("@hourly", "2026-11-15T00:00", "2026-11-15T01:00"),
        ("@weekly", "2026-11-14T00:00", "2026-11-15T00:00"),
    ],
)
def test_well_known_expressions(text: str, after: str, expected: str) -> None:
    assert parse_cron(text, UTC).next(at(after)) == at(expected)


@pytest.mark.parametrize(
    "text",
    [
        "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
        "5-1 * * * *", "a * * * *", "* * * foo *", "1,,2 * * * *", "*/x * * * *", "-1 * * * *", "0 0 30 2 *",
        "0 0 31 4,6 *", "@never", "² * * * *", "1- * * * *",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_cron(text, UTC)


def local_ticks(cron: Cron, first: str, last: str) -> list[str]:
    instant, ticks = at(first) - 1, []
    while (instant := cron.next(instant)) < at(last):
        ticks.append(shown(instant))
    return ticks


def test_a_fixed_time_inside_the_gap_moves_to_its_end() -> None:
    cron = parse_cron("30 2 * * *", BERLIN)
    assert local_ticks(cron, "2026-03-28T00:00+01:00", "2026-03-31T00:00+02:00") == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_fixed_time_that_comes_twice_is_its_first_coming() -> None:
    cron = parse_cron("30 2 * * *", BERLIN)
    assert local_ticks(cron, "2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00") == ["2026-10-25T02:30:00+02:00"]


def test_a_job_of_every_hour_follows_the_hours_as_they_pass() -> None:
    cron = parse_cron("30 * * * *", BERLIN)
    assert local_ticks(cron, "2026-10-25T01:00+02:00", "2026-10-25T04:00+01:00") == [
        "2026-10-25T01:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:30:00+01:00",
    ]
    assert local_ticks(cron, "2026-03-29T01:00+01:00", "2026-03-29T04:00+02:00") == [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:30:00+02:00",
    ]


@pytest.mark.parametrize(
    ("macro", "same"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        (" @DAILY ", "0 0 * * *"),
    ],
)
def test_a_macro_stands_for_five_fields(macro: str, same: str) -> None:
    assert replace(parse_cron(macro, UTC), text=same) == parse_cron(same, UTC)


def test_months_and_days_have_names() -> None:
    months = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
    days = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
    assert [set(parse_cron(f"0 0 * {name} *", UTC).months) for name in months] == [{n} for n in range(1, 13)]
    assert [set(parse_cron(f"0 0 * * {name}", UTC).weekdays) for name in days] == [{n} for n in range(7)]


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("7", {0}), ("0", {0}), ("0-7", set(range(7))), ("6-7", {6, 0}), ("fri-sun", {5, 6, 0}), ("sat-7", {6, 0}),
        ("sun-tue", {0, 1, 2}), ("*/2", {0, 2, 4, 6}), ("1/2", {1, 3, 5}), ("5/1", {5, 6}), ("mon,7", {1, 0}),
        ("1-5/2", {1, 3, 5}), ("7/3", {0}),
    ],
)  # fmt: skip
def test_which_days_of_the_week_a_field_stands_for(field: str, days: set[int]) -> None:
    assert parse_cron(f"0 0 * * {field}", UTC).weekdays == days


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("60 * * * *", "the minute must be from 0 to 59, not '60'"),
        ("* 24 * * *", "the hour must be from 0 to 23, not '24'"),
        ("* * 32 * *", "the day of month must be from 1 to 31, not '32'"),
        ("* * 0 * *", "the day of month must be from 1 to 31, not '0'"),
        ("* * * 13 *", "the month must be from 1 to 12, not '13'"),
        ("* * * * 8", "the day of week must be from 0 to 7, not '8'"),
        ("* * * * jan", "the day of week must be from 0 to 7, not 'jan'"),
        ("mon * * * *", "the minute must be from 0 to 59, not 'mon'"),
        ("* 9-5 * * *", "the hour range '9-5' runs backwards"),
        ("* * * * sun-7", None),
        ("* */0 * * *", "the hour '*/0' needs a whole number after its slash"),
        ("* * * */ *", "the month '*/' needs a whole number after its slash"),
        ("* * * *", "five fields"),
        ("0 0 30 2 *", "a day that its months do not have"),
        ("0 0 31 2,4,6,9,11 *", "a day that its months do not have"),
        ("0 0 29 2 *", None),
        ("0 0 31 4,5 *", None),
        ("0 0 30 2 mon", None),  # a Monday is enough
        ("0 0 30 2 */2", "a day that its months do not have"),
    ],
)
def test_what_is_wrong_with_an_expression_is_said_of_its_field(text: str, sentence: str | None) -> None:
    if sentence is None:
        parse_cron(text, UTC)
        return
    with pytest.raises(ConfigurationError) as refused:
        parse_cron(text, UTC)
    assert sentence in str(refused.value)


def test_a_leap_day_is_found_over_the_year_that_has_none() -> None:
    cron = parse_cron("0 0 29 2 *", UTC)
    assert cron.next(at("2096-03-01T00:00")) == at("2104-02-29T00:00")
    assert cron.previous(at("2103-12-31T00:00")) == at("2096-02-29T00:00")
    both = parse_cron("0 0 */28 2 1", UTC)  # the 1st and the 29th, where they are Mondays
    assert both.next(at("2027-01-01T00:00")) == at("2027-02-01T00:00")
