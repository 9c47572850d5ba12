"""Durations as people write them: a number of seconds, a timedelta, or text such as `1h30m`.

Everything that cannot be a sensible duration is refused here, before any I/O. Zero never means "for ever".
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

from leasehold.errors import ConfigurationError

__all__ = ["Duration", "optional_seconds", "seconds", "ttl_seconds"]

Duration: TypeAlias = float | int | str | timedelta

MIN_TTL = 0.1  # below this the safety margin and the scheduler's own delays eat the lease
LONGEST = 366 * 86_400.0  # a year; more is a typing error, or milliseconds given as seconds

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})(ms|d|h|m|s)")
_TEXT = re.compile(rf"(?:{_PART.pattern})+")


def seconds(value: Duration, what: str) -> float:
    """Read a duration of zero or more; `what` names it in the error."""
    number = value if type(value) is float else _number(value, what)  # the usual case first: it is in every acquire
    if not 0 <= number <= LONGEST:
        raise ConfigurationError(f"{what} must be between 0 and {LONGEST:.0f} seconds, not {value!r}")
    return number


def optional_seconds(value: Duration | None, what: str) -> float | None:
    """Read a duration where None has a meaning of its own."""
    return None if value is None else seconds(value, what)


def ttl_seconds(value: Duration, what: str = "ttl") -> float:
    """Read a time to live, which has a smallest useful value."""
    number = _number(value, what)
    if not MIN_TTL <= number <= LONGEST:
        raise ConfigurationError(f"{what} must be at least {MIN_TTL} seconds, and at most {LONGEST:.0f}, not {value!r}")
    return number


def _number(value: Duration, what: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        return _parse(value, what)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(
            f"{what} must be seconds as a number, a timedelta, or text such as '1h30m', not {value!r}"
        )
    try:
        return float(value)
    except OverflowError:  # an int too large for a float is certainly too long
        return math.inf


def _parse(text: str, what: str) -> float:
    compact = text.strip().lower()
    if re.fullmatch(_NUMBER, compact):
        return float(compact)
    if not _TEXT.fullmatch(compact):
        raise ConfigurationError(f"{what} must look like '30s', '1h30m', '500ms' or '30', not {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(compact))
