"""What a lock is made with: `LockSpec`, the one description that the faces, the core and the claims are made from.

It is checked before any I/O and never changes. `LockOptions` is the same list as a user writes it, for type checkers.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from leasehold._core.names import check_fact, check_name, key_for
from leasehold.durations import Duration, seconds, ttl_seconds
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._core.tenure import Tenure
    from leasehold.values import Grant, Holder, Mode

__all__ = ["LockOptions", "LockSpec", "Timeout", "is_whole", "make_spec", "with_group"]

Timeout: TypeAlias = Duration | EllipsisType | None  # `...`: the timeout that the client was made with


class LockOptions(TypedDict, total=False):
    """The options that every kind of lock takes; `AsyncClient.lock` explains them."""

    ttl: Duration | None
    renew: bool
    max_hold: Duration | None
    min_hold: Duration
    group: str | None
    reason: str | None
    reentrant: bool


@dataclass(frozen=True, slots=True)
class LockSpec:
    """A lock as every attempt claims it: a claim without its owner, and how its lease is kept."""

    name: str
    key: str
    mode: Mode
    capacity: int
    holder: Holder  # this process; its `reason` is an option
    ttl: float
    renew: bool = True
    max_hold: float | None = None
    min_hold: float = 0.0
    group: str | None = None
    reentrant: bool = False
    make_tenure: Callable[[str, Grant, float], Tenure] | None = None  # of a pattern whose leases end in its own way


def make_spec(
    name: str,
    options: LockOptions,
    *,
    namespace: str,
    mode: Mode,
    capacity: int,
    default_ttl: float,
    holder: Callable[[str | None], Holder],
) -> LockSpec:
    """Check the options; a `ConfigurationError` names the one that cannot be used, and why."""
    if not options.keys() <= LockOptions.__optional_keys__:
        raise TypeError(_explain(min(options.keys() - LockOptions.__optional_keys__)))
    ttl, max_hold = options.get("ttl"), options.get("max_hold")
    spec = LockSpec(
        name=check_name(name),
        key=key_for(namespace, name),
        mode=mode,
        capacity=capacity,
        holder=holder(check_fact(options.get("reason"), "reason")),
        ttl=default_ttl if ttl is None else ttl_seconds(ttl),
        renew=_flag(options.get("renew", True), "renew"),
        max_hold=None if max_hold is None else ttl_seconds(max_hold, "max_hold"),
        min_hold=seconds(options.get("min_hold", 0), "min_hold"),
        group=check_fact(options.get("group"), "group"),
        reentrant=_flag(options.get("reentrant", False), "reentrant"),
    )
    if spec.max_hold is not None and spec.min_hold > spec.max_hold:
        raise ConfigurationError(
            f"min_hold ({spec.min_hold:g} s) is longer than max_hold ({spec.max_hold:g} s); make it shorter"
        )
    return spec


_WORDS_OF_OTHERS = {
    "timeout": "the time after which a lock frees itself is called ttl here (redis-py calls it timeout); how long to "
    "wait is given to acquire(timeout=...) or hold(timeout=...)",
    "blocking_timeout": "how long to wait is given to acquire(timeout=...) or hold(timeout=...)",
    "blocking": "use try_acquire() to try without waiting",
    "expire": "the time after which a lock frees itself is called ttl here",
    "lease_time": "the time after which a lock frees itself is called ttl here",
    "auto_renewal": "renewal is on unless renew=False is given",
    "thread_local": "every acquire gives a lease of its own, so nothing is kept per thread",
}


def _explain(word: str) -> str:
    """Why a keyword is not an option; for a word of another library, what it is called here."""
    return f"a lock has no option {word!r}; {_WORDS_OF_OTHERS.get(word, 'see help(client.lock)')}"


def is_whole(value: object) -> bool:
    """Whether it is an integer; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what} must be True or False, not {value!r}")
    return value


def with_group(options: LockOptions, template: str) -> LockOptions:
    """Count a decorated function's locks under its template, unless they have a group."""
    return options if options.get("group") else LockOptions(**{**options, "group": template[:256]})
