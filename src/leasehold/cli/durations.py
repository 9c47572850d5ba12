"""Durations on the command line: `30`, `0.5`, `30s`, `1h30m`. A bare number is seconds, as in sleep(1)."""

from __future__ import annotations

import re

from leasehold._shown import show_duration

__all__ = ["duration", "show_duration"]

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
LONGEST = 366 * 86_400.0


def duration(text: str) -> float:
    """Read a duration; the error is a sentence for the user."""
    compact = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?|\.\d+", compact):
        total = float(compact)
    elif re.fullmatch(rf"({_PART.pattern})+", compact):
        total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(compact))
    else:
        raise ValueError(f"a time looks like 30s, 1h30m, 500ms or a number of seconds, not {text!r}")
    if total > LONGEST:
        raise ValueError(f"{text!r} is more than a year")
    return total
