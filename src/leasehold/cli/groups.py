"""Whether anything of a process group still runs. A dead member that nobody has buried yet does not count."""

from __future__ import annotations

import os
from contextlib import suppress

from leasehold.cli.guardian import signal_group

__all__ = ["runs_on"]


def runs_on(group: int) -> bool:
    """Whether a live process is left in the group."""
    if not signal_group(group, 0):
        return False
    try:
        numbers = [entry for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 - no pathlib: start-up cost
    except OSError:
        return True  # no /proc here: dead members count until they are buried
    return any(_is_live_member(number, group) for number in numbers)


def _is_live_member(number: str, group: int) -> bool:
    with suppress(OSError, ValueError), open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123
        # the name in parentheses may contain anything, so read from its end: state, parent, group
        state, _, member_of = file.read().rpartition(b")")[2].split()[:3]
        return int(member_of) == group and state not in (b"Z", b"X")
    return False
