"""Slots: which run of a job an attempt is for. Pure; the time that it goes by is always the store's.

`every=` cuts the calendar of a time zone into periods, `cron=` takes the tick that an attempt was fired for, `slot=` is
the caller's own label. A slot of the first two has a start, and only a later start than the job's last may run; labels
have no order, so each is remembered by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Protocol

from leasehold._core.names import check_fact
from leasehold._durations import seconds
from leasehold._patterns.cron import parse_cron
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from leasehold._durations import Duration
    from leasehold._patterns.cron import Cron

__all__ = ["EARLY", "Labelled", "Periods", "Slot", "Slots", "Ticks", "find_zone", "slots_for"]

DAY = 86_400.0
WEEK = 7 * DAY
FIRST_MONDAY = 4 * DAY  # 1970 began on a Thursday
LEAST_KEEP = DAY
LABEL_KEEP = WEEK
EARLY = 60.0  # how much too early an attempt may be and still count for the tick to come


@dataclass(frozen=True, slots=True)
class Slot:
    """One run of a job: its label, its start in seconds since 1970 where it has one, and how long to remember it."""

    label: str
    start: float | None
    keep: float


class Slots(Protocol):
    """Finds the slot that an instant of the store's time belongs to."""

    def at(self, time: float) -> Slot:
        """The slot for an attempt that is made at this time."""


@dataclass(frozen=True, slots=True)
class Periods:
    """`every=`: periods of equal length on the local clock, counted from 1970; weeks begin on Monday.

    A period follows the calendar: a day has 23 or 25 hours when clocks change, and every hour that passes is one.
    """

    period: float
    zone: tzinfo

    def at(self, time: float) -> Slot:
        """The period that contains the time."""
        start = self._start(time)
        return Slot(_label(start, self.zone), start, max(2 * self.period, LEAST_KEEP))

    def _start(self, time: float) -> float:
        shown = datetime.fromtimestamp(time, self.zone).replace(tzinfo=UTC).timestamp()  # what local clocks show
        first = FIRST_MONDAY if self.period % WEEK == 0 else 0.0
        begun = math.floor((shown - first) / self.period) * self.period + first
        local = datetime.fromtimestamp(begun, UTC).replace(tzinfo=self.zone)
        # That local time may come twice, or not at all; the period began when it was last passed.
        return max((local.replace(fold=fold).timestamp() for fold in (0, 1)), key=lambda start: (start <= time, start))


@dataclass(frozen=True, slots=True)
class Ticks:
    """`cron=`: the tick nearest to the time.

    The next tick counts only when it is less than a minute away: a machine may fire a little early by the store's
    clock, but a run by hand in the afternoon must not use up the slot of the coming night.
    """

    cron: Cron

    def at(self, time: float) -> Slot:
        """The tick that an attempt at this time was fired for."""
        last, following = self.cron.previous(time), self.cron.next(time)
        after_that = self.cron.next(following)
        early = following - time
        tick = following if early <= EARLY and early < time - last else last
        longest = max(following - last, after_that - following)
        return Slot(_label(tick, self.cron.zone), tick, max(2 * longest, LEAST_KEEP))


@dataclass(frozen=True, slots=True)
class Labelled:
    """`slot=`: always the caller's own label."""

    label: str

    def at(self, _: float) -> Slot:
        """The label; the time does not matter."""
        return Slot(self.label, None, LABEL_KEEP)


def slots_for(*, every: Duration | None, cron: str | None, slot: str | None, tz: str) -> Slots:
    """Check the three ways to name a slot, of which exactly one must be used."""
    if sum(option is not None for option in (every, cron, slot)) != 1:
        raise ConfigurationError("give once exactly one of every='1d', cron='0 2 * * *' and slot='2026-11-15'")
    zone = find_zone(tz)
    if cron is not None:
        return Ticks(parse_cron(cron, zone))
    if every is not None:
        period = seconds(every, "every")
        if period < 1:
            raise ConfigurationError(f"every must be at least a second, not {every!r}")
        return Periods(period, zone)
    return Labelled(check_label(slot))


def check_label(slot: str | None) -> str:
    """A label of the caller's, short enough to be part of a key."""
    label = check_fact(slot, "slot")
    if not label:
        raise ConfigurationError("slot must be a label such as '2026-11-15', not an empty text")
    return label


def find_zone(tz: str) -> tzinfo:
    """The time zone of this name. UTC needs no data base of zones."""
    if tz == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - not needed as a rule

    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, OSError):
        raise ConfigurationError(
            f"there is no time zone {tz!r} on this machine; write it as in 'Europe/Berlin', or install tzdata"
        ) from None


def _label(start: float, zone: tzinfo) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(seconds=start)).astimezone(zone).isoformat()
