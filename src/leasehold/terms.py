"""What a lock is made with: the options that all kinds share, checked before any I/O."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from leasehold._core.names import check_fact, check_name, key_for
from leasehold.durations import Duration, seconds, ttl_seconds
from leasehold.errors import ConfigurationError, UnsupportedCapability
from leasehold.spi import Operating
from leasehold.values import Capability, Mode

if TYPE_CHECKING:
    from leasehold.spi import Backend

__all__ = [
    "CAPABILITY_OF_MODE",
    "LockOptions",
    "Terms",
    "Timeout",
    "checked_terms",
    "explain_misplaced",
    "is_whole",
    "operating",
    "require",
    "with_group",
]

Timeout: TypeAlias = Duration | EllipsisType | None  # `...`: what the client was made with


class LockOptions(TypedDict, total=False):
    """The options that every kind of lock takes."""

    ttl: Duration | None
    renew: bool
    max_hold: Duration | None
    min_hold: Duration
    group: str | None
    reason: str | None
    reentrant: bool


class Terms:
    """The checked options of one lock."""

    __slots__ = (
        "capacity",
        "group",
        "key",
        "max_hold",
        "min_hold",
        "mode",
        "name",
        "reason",
        "reentrant",
        "renew",
        "ttl",
    )

    def __init__(
        self,
        *,
        name: str,
        key: str,
        mode: Mode,
        capacity: int,
        ttl: float,
        renew: bool,
        max_hold: float | None,
        min_hold: float,
        group: str | None,
        reason: str | None,
        reentrant: bool,
    ) -> None:
        self.name = name
        self.key = key
        self.mode = mode
        self.capacity = capacity
        self.ttl = ttl
        self.renew = renew
        self.max_hold = max_hold
        self.min_hold = min_hold
        self.group = group
        self.reason = reason
        self.reentrant = reentrant


def checked_terms(
    name: str,
    namespace: str,
    mode: Mode,
    capacity: int,
    default_ttl: float,
    *,
    ttl: Duration | None = None,
    renew: bool = True,
    max_hold: Duration | None = None,
    min_hold: Duration = 0,
    group: str | None = None,
    reason: str | None = None,
    reentrant: bool = False,
) -> Terms:
    """The terms of a lock, or a `ConfigurationError` that says which option cannot be meant."""
    terms = Terms(
        name=check_name(name),
        key=key_for(namespace, name),
        mode=mode,
        capacity=capacity,
        ttl=default_ttl if ttl is None else ttl_seconds(ttl),
        renew=_flag(renew, "renew"),
        max_hold=None if max_hold is None else ttl_seconds(max_hold, "max_hold"),
        min_hold=seconds(min_hold, "min_hold"),
        group=check_fact(group, "group"),
        reason=check_fact(reason, "reason"),
        reentrant=_flag(reentrant, "reentrant"),
    )
    if terms.max_hold is not None and terms.min_hold > terms.max_hold:
        raise ConfigurationError(f"min_hold ({terms.min_hold:g} s) is longer than max_hold ({terms.max_hold:g} s)")
    return terms


CAPABILITY_OF_MODE = {
    Mode.EXCLUSIVE: Capability.EXCLUSIVE,
    Mode.SHARED: Capability.SHARED,
    Mode.PERMIT: Capability.PERMITS,
}

_THEIR_WORDS = {
    "timeout": "the time after which a lock frees itself is called ttl here (redis-py calls it timeout); how long to "
    "wait is given to acquire(timeout=...) or hold(timeout=...)",
    "blocking_timeout": "how long to wait is given to acquire(timeout=...) or hold(timeout=...)",
    "blocking": "use try_acquire() to ask without waiting",
    "expire": "the time after which a lock frees itself is called ttl here",
    "lease_time": "the time after which a lock frees itself is called ttl here",
    "auto_renewal": "renewal is on unless you say renew=False",
    "thread_local": "every acquire gives a lease of its own, so nothing is kept per thread",
}


def explain_misplaced(word: str) -> str:
    """What to say to somebody who used a word of another library."""
    return f"lock() has no option {word!r}; {_THEIR_WORDS.get(word, 'see help(client.lock)')}"


def is_whole(value: object) -> bool:
    """Whether it is a number that can be counted with; True is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what} must be True or False, not {value!r}")
    return value


def require(backend: Backend, capability: Capability) -> None:
    """Refuse what the store never promised."""
    if capability not in backend.capabilities:
        raise UnsupportedCapability(
            f"{backend.label} does not promise {capability}; the table of stores in the README says which ones do",
            backend=backend.label,
        )


def operating(backend: Backend) -> Operating:
    """The port for operators, which goes with INSPECT: a lock is broken by the fence that an inspection shows."""
    require(backend, Capability.INSPECT)
    if isinstance(backend, Operating):
        return backend
    raise UnsupportedCapability(
        f"{backend.label} cannot break locks or raise fences; a lock ends there by its release or by its ttl",
        backend=backend.label,
    )


def with_group(options: LockOptions, template: str) -> LockOptions:
    """Count a decorated function's locks under its template, unless told otherwise."""
    return options if options.get("group") else LockOptions(**{**options, "group": template[:256]})
