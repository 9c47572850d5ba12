"""Words of other libraries, and what they are called here: one place for all messages about words that we do not have.

It is loaded when such a word was used.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["not_an_attribute", "not_an_option", "not_in_the_package"]

_WAITING = "how long to wait is given to acquire(timeout=...) or hold(timeout=...)"
_LIFETIME = "the time after which a lock frees itself is called ttl here"
_TRY = "use try_acquire() to try without waiting, or timeout=0"

_LOCK_OPTIONS = {
    "timeout": f"{_LIFETIME} (redis-py calls it timeout); {_WAITING}",
    "blocking_timeout": _WAITING,
    "blocking": _TRY,
    "expire": _LIFETIME,
    "expires": _LIFETIME,
    "lease_time": _LIFETIME,
    "lock_timeout": _LIFETIME,
    "auto_renewal": "renewal is on unless renew=False is given",
    "thread_local": "every acquire gives a lease of its own, so nothing is kept per thread",
    "sleep": "waiters are woken by the store; acquire(backoff=leasehold.Backoff(...)) polls instead",
    "retry_count": "acquire(backoff=leasehold.Backoff(...)) limits the tries",
    "retry_delay": "acquire(backoff=leasehold.Backoff(...)) sets the pauses",
    "token": "every attempt has an owner value of its own, and every grant a fence: lease.fence",
}
_WAIT_OPTIONS = {
    "blocking": _TRY,
    "blocking_timeout": "how long to wait is called timeout here",
    "poll_interval": "backoff=leasehold.Backoff(...) sets the pauses",
    "poll_intervall": "backoff=leasehold.Backoff(...) sets the pauses",
    "sleep": "backoff=leasehold.Backoff(...) sets the pauses",
    "token": "every attempt has an owner value of its own, and every grant a fence: lease.fence",
    "ttl": "a ttl is given to client.lock(name, ttl=...)",
}
_PATTERN_OPTIONS = {
    "expire": "how long something lasts is called ttl or keep here",
    "interval": "a period is called every here, as in every='1d'",
    "period": "a period is called every here, as in every='1d'",
    "schedule": "a schedule is called cron here, as in cron='0 2 * * *'",
    "lock_at_most_for": "that is the ttl, which is renewed while the job runs; max_hold ends a run that hangs",
    "lock_at_least_for": "not needed: a slot that was run stays closed, see keep",
    "timezone": "a time zone is called tz here",
}
_IN_PLACES = {"a lock": _LOCK_OPTIONS, "acquire()": _WAIT_OPTIONS}

_STATELESS = (
    "a lock carries no state: ask the lease that acquire() returned, lease.remaining() > 0, or client.inspect(name) "
    "for the holder"
)
_RENEWED = "a lease is renewed by itself while it is held; lease.renew() does it now"
_LOCK_ATTRIBUTES = {
    **dict.fromkeys(("extend", "reacquire", "refresh", "renew"), _RENEWED),
    "unlock": "call release() on the lease that acquire() returned",
    "token": "every grant has a fence: lease.fence",
}

_CONNECT = "connect first: client = leasehold.connect(url), then client.{}"
_PACKAGE = {
    "lock": _CONNECT.format("lock(name)"),
    "locked": _CONNECT.format("locked(template)"),
    "once": _CONNECT.format("once(name, every=...)"),
    "semaphore": _CONNECT.format("semaphore(name, permits)"),
    "Semaphore": _CONNECT.format("semaphore(name, permits)"),
    "rwlock": _CONNECT.format("rwlock(name)"),
    "election": _CONNECT.format("election(name)"),
    "cache": _CONNECT.format("cache(name)"),
    "RLock": _CONNECT.format("lock(name, reentrant=True)"),
    "Redlock": "connect to the nodes: leasehold.connect('redlock://a,b,c').lock(name)",
    "Redis": "connect to it: leasehold.connect('redis://host').lock(name)",
}


def not_an_option(where: str, word: str, known: Iterable[str], help_on: str) -> TypeError:
    """The error for a keyword that `where` does not take."""
    explained = _IN_PLACES.get(where, _PATTERN_OPTIONS).get(word)
    return TypeError(f"{where} has no option {word!r}; {explained or _nearest(word, known) or f'see help({help_on})'}")


def not_an_attribute(word: str) -> str:
    """What to use instead of an attribute that locks of other libraries have."""
    return f"a lock has no attribute {word!r}; {_LOCK_ATTRIBUTES.get(word, _STATELESS)}"


def not_in_the_package(word: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that the package does not have."""
    explained = _PACKAGE.get(word) or (None if word.startswith("_") else _nearest(word, known))
    return AttributeError(f"module 'leasehold' has no attribute {word!r}{f'; {explained}' if explained else ''}")


def _nearest(word: str, known: Iterable[str]) -> str | None:
    near = get_close_matches(word, known, 1)
    return f"did you mean {near[0]!r}?" if near else None
