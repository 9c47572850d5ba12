from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._durations import LONGEST, optional_seconds, seconds, ttl_seconds
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1d", 86_400.0),
        (" 2M ", 120.0),
        ("1.5h", 5400.0),
        ("5", 5.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("0", 0.0),
        (timedelta(minutes=1), 60.0),
        (timedelta(days=2, milliseconds=5), 172_800.005),
        (366 * 86_400, 31_622_400.0),
    ],
)
def test_durations_are_read_as_people_write_them(value: Any, expected: float) -> None:
    assert seconds(value, "wait") == pytest.approx(expected)


@pytest.mark.parametrize(
    "value", [True, False, None, -1, math.nan, math.inf, 10**400, "", "1x", "-5s", "1 h", "s", b"5s", [], object()]
)
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="wait"):
        seconds(value, "wait")


@pytest.mark.parametrize("read", [seconds, ttl_seconds])
@pytest.mark.parametrize("value", [366 * 86_400 + 1, "367d", timedelta(days=367), 10**400, math.inf, math.nan, True])
def test_what_is_longer_than_a_year_or_no_number_is_refused_by_both(read: Callable[..., float], value: Any) -> None:
    with pytest.raises(ConfigurationError, match="keep"):
        read(value, "keep")


@pytest.mark.parametrize("value", [0.1, "100ms", 366 * 86_400.0])
def test_the_shortest_and_the_longest_ttl_are_allowed(value: Any) -> None:
    assert 0.1 <= ttl_seconds(value) <= 31_622_400.0


def test_nothing_given_is_not_zero() -> None:
    assert optional_seconds(None, "timeout") is None
    assert optional_seconds(0, "timeout") == 0.0
    with pytest.raises(ConfigurationError, match="timeout"):
        optional_seconds("soon", "timeout")


@pytest.mark.parametrize("value", [0, 0.0004, 0.099, "0s", timedelta(milliseconds=1)])
def test_a_ttl_too_short_to_be_useful_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"at least 0\.1"):
        ttl_seconds(value)


@given(st.one_of(st.floats(), st.integers(), st.text(), st.booleans(), st.none()))
def test_every_value_is_a_sane_number_or_a_configuration_error(value: Any) -> None:
    try:
        result = seconds(value, "wait")
    except ConfigurationError as error:
        assert str(error)
    else:
        assert 0 <= result <= LONGEST
