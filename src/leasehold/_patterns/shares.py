"""How partitions are shared out among members: decisions only, without a store, a clock or a lock.

A member is the fence of its membership, so members are ordered by age. With `count` partitions and M members each has
`count // M`, and the oldest `count % M` have one more. Every member finds the same quotas from the same list. Because
the oldest come first, no quota shrinks when a member leaves, and none grows when one joins as the youngest: only what
the newcomer is due changes its owner, and what the leaver had.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold._face.lock_spec import is_whole
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["MAX_COUNT", "MEMBERS_PER_PARTITION", "Plan", "partition_of", "plan", "quota"]

MAX_COUNT = 10_000
MEMBERS_PER_PARTITION = 100  # so that the permits of the members' semaphore say for how many partitions they are


@dataclass(frozen=True, slots=True)
class Plan:
    """What a member has to do: which partitions to let go of, how many to take, and in which order to try them."""

    let_go: tuple[int, ...] = ()
    wanted: int = 0
    candidates: tuple[int, ...] = ()


def quota(count: int, members: int, rank: int) -> int:
    """How many partitions the member with this rank is due; rank 0 is the oldest."""
    share, rest = divmod(count, members)
    return share + (rank < rest)


def plan(count: int, members: Collection[int], me: int, staying: Sequence[int], leaving: Collection[int]) -> Plan:
    """What member `me` has to do, which owns `staying` (oldest first) and has begun to let go of `leaving`.

    A surplus is taken from the partitions that it got last. Who wants some begins to try at a place of its own, so that
    members that look for free ones at the same time seldom meet.
    """
    ordered = sorted(members)
    if me not in ordered:
        return Plan()  # no member counts us: neither take a partition, nor give up one that no other is due
    rank = ordered.index(me)
    due = quota(count, len(ordered), rank)
    if len(staying) >= due:
        return Plan(let_go=tuple(staying[due:]))
    start = rank * count // len(ordered)
    mine = {*staying, *leaving}
    around = (*range(start, count), *range(start))
    return Plan(wanted=due - len(staying), candidates=tuple(index for index in around if index not in mine))


def partition_of(key: str | bytes, count: int) -> int:
    """The partition that a key belongs to: CRC-32 of its UTF-8 modulo `count`, the same in every process and language.

    What has to stay in order, such as the events of one order, gets one key.
    """
    if not is_whole(count) or count < 1:
        raise ConfigurationError(f"count must be a whole number above 0, not {count!r}")
    return zlib.crc32(key.encode() if isinstance(key, str) else key) % count
