"""Locks as plain data: what the JSON interface answers and what the pages are drawn from."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold.values import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.fleet import FleetState
    from leasehold.values import Holder, Holding, LockState, Pause
    from leasehold.web.history import GrantSeen, History

__all__ = ["PAGE_SIZE", "SORTS", "TableQuery", "holder_facts", "lock_facts", "lock_table", "pause_facts"]

PAGE_SIZE = 100
LONG_HOLD = 60.0
SHOWN_WAITERS = 200
SORTS = ("name", "held", "left", "fence", "waiters")


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Which locks are wanted, in which order."""

    search: str = ""
    long_held: bool = False
    has_waiters: bool = False
    sort: str = "name"
    descending: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> TableQuery:
        """Read from a query; what makes no sense is the default."""
        page = query.get("page", "")
        sort = query.get("sort", "")
        return cls(
            search=query.get("q", "").strip(),
            long_held=bool(query.get("long")),
            has_waiters=bool(query.get("waiters")),
            sort=sort if sort in SORTS else "name",
            descending=query.get("order") == "desc",
            page=int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 6 and int(page) else 1,
        )


def lock_table(state: FleetState, history: History, query: TableQuery) -> dict[str, Any]:
    """One page of the locks that are wanted, and the figures of all."""
    age = 0.0 if state.error else time.monotonic() - state.read_at
    chosen = [lock for lock in state.locks if _is_wanted(lock, query, age)]
    chosen.sort(key=_sort_key(query.sort), reverse=query.descending)
    pages = max(1, -(-len(chosen) // PAGE_SIZE))
    page = min(query.page, pages)
    rows = chosen[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    return {
        "totals": _totals(state.locks, age),
        "found": len(chosen),
        "page": page,
        "pages": pages,
        "locks": [{**lock_facts(lock, history, age), "stalled": state.stalled.get(lock.name)} for lock in rows],
    }


def _is_wanted(lock: LockState, query: TableQuery, age: float) -> bool:
    if query.has_waiters and not lock.waiting:
        return False
    if query.long_held and _longest(lock) + age < LONG_HOLD:
        return False
    return not query.search or _contains(lock, query.search.casefold())


def _contains(lock: LockState, search: str) -> bool:
    people = (*(holding.holder for holding in lock.holdings), *lock.waiting)
    return search in lock.name.casefold() or any(
        search in f"{person} {person.reason or ''}".casefold() for person in people
    )


def _longest(lock: LockState) -> float:
    return max((holding.held_for for holding in lock.holdings), default=0.0)


def _sort_key(sort: str) -> Any:
    keys = {
        "name": lambda lock: lock.name,
        "held": _longest,
        "left": lambda lock: min((holding.expires_in for holding in lock.holdings), default=0.0),
        "fence": lambda lock: max((holding.fence for holding in lock.holdings), default=0),
        "waiters": lambda lock: len(lock.waiting),
    }
    return keys[sort]


def _totals(locks: Sequence[LockState], age: float) -> dict[str, Any]:
    longest = max((_longest(lock) for lock in locks), default=0.0)
    return {
        "names": len(locks),
        "held": sum(len(lock.holdings) for lock in locks),
        "waiters": sum(len(lock.waiting) for lock in locks),
        "paused": sum(lock.paused is not None for lock in locks),
        "longest": longest + age if longest else 0.0,
    }


def lock_facts(lock: LockState, history: History, age: float = 0.0) -> dict[str, Any]:
    """One lock; `age` is how old the answer of the store is."""
    return {
        "name": lock.name,
        "state": _state(lock),
        "mode": str(lock.mode),
        "capacity": lock.capacity if lock.mode is Mode.PERMIT else None,
        "holdings": [
            _holding_facts(holding, history.grant(lock.name, holding.fence), age) for holding in lock.holdings
        ],
        "waiters": len(lock.waiting),
        "waiting": [holder_facts(waiter) for waiter in lock.waiting[:SHOWN_WAITERS]],
        "paused": None if lock.paused is None else pause_facts(lock.paused),
    }


def _state(lock: LockState) -> str:
    if lock.paused is not None:
        return "paused"
    if not lock.holdings:
        return "free"
    if all(holding.broken is not None for holding in lock.holdings):
        return "broken"
    return "cooling" if all(holding.cooling for holding in lock.holdings) else "held"


def _holding_facts(holding: Holding, grant: GrantSeen | None, age: float) -> dict[str, Any]:
    left = max(0.0, holding.expires_in - age)
    renewed = None if grant is None or grant.renewed is None else max(0.0, time.time() - grant.renewed)
    return {
        "holder": holder_facts(holding.holder),
        "fence": holding.fence,
        "held_for": round(holding.held_for + age, 3),
        "expires_in": round(left, 3),
        "ttl_seen": round(max(left, grant.ttl if grant else left), 3),
        "renewed_ago": None if renewed is None else round(renewed, 3),
        "broken": holding.broken,
        "cooling": holding.cooling,
    }


def holder_facts(holder: Holder) -> dict[str, Any]:
    """A process."""
    return {"host": holder.host, "pid": holder.pid, "label": holder.label, "reason": holder.reason}


def pause_facts(pause: Pause) -> dict[str, Any]:
    """An operator's pause."""
    return {"reason": pause.reason, "by": pause.by, "expires_in": pause.expires_in, "paused_for": pause.paused_for}
