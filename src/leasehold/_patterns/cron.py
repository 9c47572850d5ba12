"""Cron expressions: five fields, and which instants they name in a time zone. Pure; knows no clock.

Fields: minute, hour, day of month, month, day of week. Each is `*`, a number, a range, a step (`*/5`, `10-40/10`,
`7/20`) or a list of those; months and days of the week also by name, and 7 is Sunday too. `@hourly`, `@daily`,
`@weekly`, `@monthly` and `@yearly` stand for the usual five fields. Days follow the old rule: when both day fields are
restricted, one of them is enough; a field that begins with `*` does not restrict for that rule.

When clocks change. A job with a fixed hour runs once on every day it is due: a local time that does not exist is moved
to the end of the gap, and one that comes twice is its first coming. A job whose hour field begins with `*` follows the
hours as they pass: it has no ticks inside a gap, and ticks in both comings of a repeated hour.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

__all__ = ["Cron", "parse_cron"]

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY = timedelta(days=1)
_FURTHEST = 366 * 41  # days to look ahead or back: a 29th of February on a given weekday can be 40 years away


@dataclass(frozen=True)
class Cron:
    """A parsed expression in a time zone. Ticks are instants in seconds since 1970."""

    text: str
    zone: tzinfo
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    both_days: bool  # both day fields must fit; otherwise one is enough
    every_hour: bool  # follows the hours as they pass

    def previous(self, instant: float) -> float:
        """The latest tick at or before the instant."""
        day = self._local_date(instant) + _DAY  # a gap or a change of date may move a tick to the next day
        for _ in range(_FURTHEST):
            if (found := self._until(day, instant)) is not None:
                return max(found, self._until(day - _DAY, instant) or found)  # the date itself may have gone back
            day -= _DAY
        raise self._never()

    def next(self, instant: float) -> float:
        """The earliest tick after the instant."""
        day = self._local_date(instant) - _DAY
        for _ in range(_FURTHEST):
            if (found := self._after(day, instant)) is not None:
                return min(found, self._after(day + _DAY, instant) or found)
            day += _DAY
        raise self._never()

    def fits(self, day: date) -> bool:
        """Whether there are ticks on this day of the calendar."""
        if day.month not in self.months:
            return False
        by_number, by_name = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_number and by_name) if self.both_days else (by_number or by_name)

    def _until(self, day: date, instant: float) -> float | None:
        """The latest tick of this day at or before the instant."""
        place = bisect_right(ticks := self._ticks(day), instant)
        return ticks[place - 1] if place > 0 else None

    def _after(self, day: date, instant: float) -> float | None:
        """The earliest tick of this day after the instant."""
        place = bisect_right(ticks := self._ticks(day), instant)
        return ticks[place] if place < len(ticks) else None

    def _ticks(self, day: date) -> Sequence[float]:
        return _ticks_of_day(self, day) if self.fits(day) else ()

    def _local_date(self, instant: float) -> date:
        return datetime.fromtimestamp(instant, self.zone).date()

    def _never(self) -> ConfigurationError:
        return ConfigurationError(f"the cron expression {self.text!r} names no day within {_FURTHEST // 366} years")


def parse_cron(text: str, zone: tzinfo) -> Cron:
    """Read an expression; everything that cannot be meant is refused with its reason."""
    if not isinstance(text, str):
        raise ConfigurationError(f"cron must be text such as '0 2 * * *', not {text!r}")
    compact = text.strip().lower()
    fields = _MACROS.get(compact, compact).split()
    if len(fields) != 5:
        raise ConfigurationError(
            f"cron must have five fields (minute, hour, day of month, month, day of week), not {text!r}"
        )
    minute, hour, day, month, weekday = fields
    cron = Cron(
        text,
        zone,
        tuple(sorted(_field(minute, "minute", 0, 59))),
        tuple(sorted(_field(hour, "hour", 0, 23))),
        frozenset(_field(day, "day of month", 1, 31)),
        frozenset(_field(month, "month", 1, 12, _MONTHS)),
        frozenset(number % 7 for number in _field(weekday, "day of week", 0, 7, _DAYS)),
        both_days=day.startswith("*") or weekday.startswith("*"),
        every_hour=hour.startswith("*"),
    )
    if cron.both_days and min(cron.days) > max(_LONGEST_MONTHS[number - 1] for number in cron.months):
        raise ConfigurationError(f"the cron expression {text!r} names a day that its months do not have")
    return cron


def _field(text: str, what: str, lowest: int, highest: int, names: Sequence[str] = ()) -> set[int]:
    """All numbers that one field stands for."""
    numbers: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and int(step) > 0):
            raise ConfigurationError(f"the {what} {part!r} needs a whole number after its slash")
        first, last = _span(span, what, lowest, highest, names, open_ended=bool(slash))
        numbers.update(range(first, last + 1, int(step) if slash else 1))
    return numbers


def _span(
    text: str, what: str, lowest: int, highest: int, names: Sequence[str], *, open_ended: bool
) -> tuple[int, int]:
    end = 6 if what == "day of week" else highest  # 7 is Sunday by its other number
    if text == "*":
        return lowest, end
    low, dash, high = text.partition("-")
    first = _number(low, what, lowest, highest, names)
    if not dash:
        return first, max(first, end) if open_ended else first
    last = _number(high, what, lowest, highest, names)
    if what == "day of week" and last == 0 and first > 0:
        last = 7  # as in fri-sun
    if last < first:
        raise ConfigurationError(f"the {what} range {text!r} runs backwards")
    return first, last


def _number(text: str, what: str, lowest: int, highest: int, names: Sequence[str]) -> int:
    if text in names:
        return names.index(text) + (1 if what == "month" else 0)
    if not (text.isascii() and text.isdigit()) or not lowest <= int(text) <= highest:
        raise ConfigurationError(f"the {what} must be from {lowest} to {highest}, not {text!r}")
    return int(text)


@functools.lru_cache(maxsize=64)
def _ticks_of_day(cron: Cron, day: date) -> tuple[float, ...]:
    """The instants of all ticks whose local date is this day, in order; no instant twice."""
    ticks: set[float] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            ticks.update(_instants(datetime(day.year, day.month, day.day, hour, minute), cron))
    return tuple(sorted(ticks))


def _instants(local: datetime, cron: Cron) -> tuple[float, ...]:
    """When the clocks of the zone show this local time: once as a rule, twice or never when they change."""
    first = local.replace(tzinfo=cron.zone).timestamp()
    second = local.replace(tzinfo=cron.zone, fold=1).timestamp()
    if first == second:
        return (first,)
    if first < second:
        return (first, second) if cron.every_hour else (first,)
    return () if cron.every_hour else (_end_of_gap(second, first, cron.zone),)


def _end_of_gap(before: float, after: float, zone: tzinfo) -> float:
    """The instant between the two at which the zone's offset changes."""
    offset = _offset(after, zone)
    low, high = int(before), int(after)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(middle, zone) == offset:
            high = middle
        else:
            low = middle
    return float(high)


def _offset(instant: float, zone: tzinfo) -> timedelta | None:
    return datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset()
