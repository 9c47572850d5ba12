"""The decision of `leasehold choose`: a pure function, from what is needed and what is there to pattern and store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold.cli.choose_table import NEEDS, PATTERNS, STORES

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Advice", "recommend"]

DATABASES = ("postgresql", "mysql", "host")  # what can decide in a transaction of the user's own; SQLite on one host
OF_HAVE = {"host": "sqlite", "redis-nodes": "redlock", "tests": "memory"}  # the others are called like their store

# Which store, best first. What holds for an earlier one holds for the later ones, unless stated otherwise.
WHEN_COSTLY = ("tests", "host", "etcd", "zookeeper", "postgresql", "mysql", "nats", "redis-nodes", "redis")
WHEN_CHEAP = ("tests", "host", "redis", "postgresql", "mysql", "nats", "etcd", "zookeeper", "redis-nodes")

WHY_COSTLY = {
    "tests": "It needs nothing and ends with the process.",
    "host": "Processes of one host need no server: nothing is lost on a network, and there is nothing to fail over.",
    "etcd": "A majority decides and no clock is asked: no single failure gives the lock to two, or loses it.",
    "zookeeper": "A majority decides and no clock is asked: no single failure gives the lock to two, or loses it.",
    "postgresql": "It keeps what it has committed; with a synchronous standby also over a fail-over.",
    "mysql": "It keeps what it has committed; with semi-synchronous replication also over a fail-over.",
    "nats": "A majority has every change; set sync_interval to `always`, so that a power cut loses none.",
    "redis-nodes": "A majority of independent nodes votes, so the loss of a minority costs nothing; clocks must not "
    "step.",
    "redis": "It is what you have. A fail-over can lose a grant, so let the resource check the fence, without "
    "exception.",
}
WHY_CHEAP = {
    **WHY_COSTLY,
    "redis": "The fastest of the servers, and waiters are woken in milliseconds; a rare double run after a fail-over "
    "is what you can afford by your answer.",
    "postgresql": "You run it already, it keeps what it has committed, and one server less can fail.",
    "mysql": "You run it already, it keeps what it has committed, and one server less can fail.",
    "etcd": "You run it already, and a majority decides: it is slower than Redis and loses nothing.",
    "zookeeper": "You run it already, and a majority decides: it is slower than Redis and loses nothing.",
}
WORDS_OF = {"record": "records", "shared": "read/write locks", "permits": "semaphores"}


class Advice(NamedTuple):
    """What is recommended, and why. `store` is None where no lock store is needed."""

    need: str
    pattern: str
    why_pattern: str
    store: str | None
    why_store: str
    is_missing: bool = False  # the store is none of those that are there


def recommend(need: str, have: Collection[str], *, costly: bool) -> Advice:
    """The pattern and the store for a need; `costly` if doing it twice costs money or data."""
    pattern, why = _pattern(need, have)
    if not PATTERNS[pattern].locks:
        database = next(each for each in DATABASES if each in have)
        where = "your SQLite file" if database == "host" else f"your {STORES[database].title}"
        return Advice(need, pattern, why, None, f"None is needed: {where} decides, where the data is.")
    order, reasons = (WHEN_COSTLY, WHY_COSTLY) if costly else (WHEN_CHEAP, WHY_CHEAP)
    for each in order:
        if each in have and _fits(_store_of(each), pattern):
            return Advice(need, pattern, why, _store_of(each), reasons[each])
    if "redis-nodes" in have:
        reason = f"Redlock has no {_lacking('redlock', pattern)}: one of your Redis nodes alone has."
        return Advice(need, pattern, why, "redis", reason)
    return _addition(need, pattern, why, have, costly=costly)


def _pattern(need: str, have: Collection[str]) -> tuple[str, str]:
    pattern = NEEDS[need].pattern
    has_database = any(database in have for database in DATABASES)
    if pattern == "idempotency key" and has_database:
        pattern = "idempotency table"
    if NEEDS[need].in_database and not has_database:
        better = PATTERNS[pattern].title.rpartition(": ")[2]
        return "lock", (
            f"Nothing of what you have decides this in one transaction, so it takes a lock. If the data is in a SQL "
            f"database after all, say so: {better} is better there. {PATTERNS['lock'].why}"
        )
    return pattern, PATTERNS[pattern].why


def _addition(need: str, pattern: str, why: str, have: Collection[str], *, costly: bool) -> Advice:
    """The least to add where nothing that is there will do."""
    if not have:
        reason = "The embedded file needs no server: begin with it, and take a server when a second host comes."
        return Advice(need, pattern, why, "sqlite", reason)
    store = "postgresql" if costly else "redis"
    lacking = _lacking(_store_of(next(iter(have))), pattern)
    reason = f"What you have keeps no {lacking}, which this needs; {STORES[store].title} does, and is the least to add."
    return Advice(need, pattern, why, store, reason, is_missing=True)


def _store_of(have: str) -> str:
    return OF_HAVE.get(have, have)


def _fits(store: str, pattern: str) -> bool:
    return not set(PATTERNS[pattern].wants) & set(STORES[store].lacks)


def _lacking(store: str, pattern: str) -> str:
    return WORDS_OF[next(each for each in PATTERNS[pattern].wants if each in STORES[store].lacks)]
