"""Where clocks change at midnight or a whole day is left out: all ticks, compared with walking minute by minute."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from leasehold._patterns.cron import Cron, parse_cron

DAYS = 4
MINUTE = 60.0

CHANGES = [
    ("Africa/Cairo", "2024-04-26"),  # 00:00 becomes 01:00: midnight is skipped
    ("Africa/Cairo", "2024-11-01"),  # 24:00 becomes 23:00 of the day before
    ("America/Havana", "2024-03-10"),  # 00:00 becomes 01:00
    ("America/Havana", "2024-11-03"),  # 01:00 becomes 00:00: midnight comes twice
    ("America/St_Johns", "2010-03-14"),  # 00:01 becomes 01:01
    ("America/St_Johns", "2010-11-07"),  # 00:01 becomes 23:01 of the day before: the date goes back
    ("America/Toronto", "1919-03-31"),  # 23:30 becomes 00:30 of the next day
    ("Pacific/Apia", "2011-12-30"),  # the whole day is left out
    ("Europe/Berlin", "2026-10-25"),
]
JOBS = [
    "0 0 * * *",
    "30 0 * * *",
    "45 23 * * *",
    "0,40 0,23 * * *",
    "0 12 * * *",
    "0 * * * *",
    "*/20 * * * *",
    "15 */6 * * *",
    "0 0 30,31 12 *",
    "0 0 * * fri",
]


@lru_cache
def clock_of(zone: ZoneInfo, start: datetime) -> list[tuple[datetime, float]]:
    """What the clocks show at each minute, from some days before the start to some days after it."""
    minutes = [start.timestamp() + MINUTE * number for number in range(-DAYS * 1440, DAYS * 1440)]
    return [(datetime.fromtimestamp(minute, zone).replace(tzinfo=None), minute) for minute in minutes]


def walked(cron: Cron, zone: ZoneInfo, start: datetime) -> list[float]:
    """All ticks, without arithmetic on offsets."""
    comings: dict[datetime, list[float]] = defaultdict(list)
    for local, minute in clock_of(zone, start):
        comings[local].append(minute)
    ticks: set[float] = set()
    for (before, _), (local, minute) in pairwise(clock_of(zone, start)):
        if wanted(cron, local):
            ticks.update(comings[local] if cron.every_hour else comings[local][:1])
        skipped = before + timedelta(minutes=1)
        while skipped < local:  # these never come
            if wanted(cron, skipped) and not cron.every_hour:
                ticks.add(minute)
            skipped += timedelta(minutes=1)
    return sorted(ticks)


def wanted(cron: Cron, local: datetime) -> bool:
    return local.minute in cron.minutes and local.hour in cron.hours and cron.fits(local.date())


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(("name", "day"), CHANGES)
def test_no_tick_is_left_out_or_found_late_where_clocks_change_at_midnight(name: str, day: str, job: str) -> None:
    zone = ZoneInfo(name)
    cron = parse_cron(job, zone)
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    ticks = walked(cron, zone, start)
    for step in range(-144, 144):  # two days before and after, every ten minutes, on ticks and beside them
        for beside in (0.0, 630.0):
            instant = start.timestamp() + 1200 * step + beside
            place = bisect_right(ticks, instant)
            if 0 < place < len(ticks):
                assert cron.previous(instant) == ticks[place - 1], datetime.fromtimestamp(instant, zone)
                assert cron.next(instant) == ticks[place], datetime.fromtimestamp(instant, zone)
