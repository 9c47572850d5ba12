"""Partitions as the locks of a store show them: a semaphore of members, and a lock for each partition."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from leasehold.values import Mode
from leasehold.web.facts import holder_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.values import Holding, LockState

__all__ = ["partition_groups"]

MEMBERS = "/members"
MEMBERS_PER_PARTITION = 100  # of `client.partitions`: the permits say for how many partitions they are
SHOWN = 1_024


def partition_groups(locks: Sequence[LockState]) -> list[dict[str, Any]]:
    """Every group of partitions that has members now, by name."""
    by_name = {lock.name: lock for lock in locks}
    groups = [lock for lock in locks if lock.name.endswith(MEMBERS) and _count(lock)]
    return [_group(lock, by_name) for lock in sorted(groups, key=lambda lock: lock.name)]


def _count(members: LockState) -> int:
    """How many partitions there are; 0 if this is another semaphore."""
    if members.mode is not Mode.PERMIT or members.capacity % MEMBERS_PER_PARTITION:
        return 0
    return members.capacity // MEMBERS_PER_PARTITION


def _group(members: LockState, by_name: dict[str, LockState]) -> dict[str, Any]:
    name, count = members.name.removesuffix(MEMBERS), _count(members)
    owners = [_owner(by_name.get(f"{name}/{index}")) for index in range(count)]
    people = sorted(members.holdings, key=lambda holding: holding.fence)
    places = {_process(member): place for place, member in enumerate(people)}
    owned = Counter(_process(owner) for owner in owners if owner is not None)
    return {
        "name": name,
        "count": count,
        "free": owners.count(None),
        "members": [
            {
                "holder": holder_facts(member.holder),
                "member_for": round(member.held_for, 3),
                "fence": member.fence,
                "owned": owned[_process(member)],
            }
            for member in people
        ],
        "partitions": [
            {
                "index": index,
                "member": None if owner is None else places.get(_process(owner)),
                "fence": None if owner is None else owner.fence,
                "owned": owner is not None,
            }
            for index, owner in enumerate(owners[:SHOWN])
        ],
    }


def _owner(lock: LockState | None) -> Holding | None:
    return lock.holdings[0] if lock is not None and lock.holdings else None


def _process(holding: Holding) -> tuple[str, int, str | None]:
    """Members of one process with the same label look alike."""
    holder = holding.holder
    return holder.host, holder.pid, holder.label
