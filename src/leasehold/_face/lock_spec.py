"""What a lock is made with: `LockSpec`, the one description that the faces, the core and the claims are made from.

It is checked before any I/O and never changes. `LockOptions` is the same list as a user writes it, for type checkers.
"""

from __future__ import annotations

import math
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from leasehold._backoff import QUEUE_OR_POLL, Backoff, HowToWait
from leasehold._core.names import check_fact, check_name, key_for
from leasehold._durations import Duration, optional_seconds, seconds, ttl_seconds
from leasehold._lazy import lazy
from leasehold._log import CRITICAL, DEBUG, ERROR, INFO, WARNING
from leasehold._record import record
from leasehold.errors import ConfigurationError
from leasehold.values import Mode

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Mapping

    from leasehold._core.tenure import Tenure
    from leasehold.errors import AcquireTimeout
    from leasehold.values import Grant, Holder
else:
    inspect = lazy("inspect")

__all__ = [
    "SLOW_WAIT", "Fair", "LockOptions", "LockSpec", "OnBusy", "OnWait", "SlowWait", "Timeout", "WaitOptions",
    "how_to_wait", "is_whole", "log_level", "make_spec", "refuse_unknown", "takes_the_call", "with_group",
]  # fmt: skip

Timeout: TypeAlias = Duration | EllipsisType | None  # `...`: the timeout that the client was made with
Fair: TypeAlias = Literal["batches", "strict"]  # in which order waiters of several processes are served
OnBusy: TypeAlias = "Callable[[AcquireTimeout], Any] | None"
OnWait: TypeAlias = "Callable[[int | None, Holder | None, float], object] | None"

LEVELS = {"DEBUG": DEBUG, "INFO": INFO, "WARNING": WARNING, "ERROR": ERROR, "CRITICAL": CRITICAL}
LONGEST_LINGER = 1.0
SLOW_WAIT = 1.0  # a wait of more than this is worth one warning


class LockOptions(TypedDict, total=False):
    """The options that every kind of lock takes; `AsyncClient.lock` explains them."""

    ttl: Duration | None
    renew: bool
    max_hold: Duration | None
    min_hold: Duration
    group: str | None
    reason: str | None
    reentrant: bool
    slow_wait: Duration | None
    slow_wait_level: int | str
    fair: Fair
    linger: Duration | None


class WaitOptions(TypedDict, total=False):
    """How one call waits; `AsyncLock.acquire` explains them."""

    backoff: Backoff | None
    on_wait: OnWait


@record(frozen=True, slots=True)
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
    slow_wait: float = SLOW_WAIT  # infinite: no warning
    slow_wait_level: int = WARNING
    make_tenure: Callable[[str, Grant, float], Tenure] | None = None  # of a pattern whose leases end in its own way
    fair: Fair = "batches"
    linger: float = 0.0  # how long its client keeps it after a release

    @property
    def in_batches(self) -> bool:
        """Whether it may be passed on between the calls of one client before others have it."""
        is_plain = self.renew and not self.min_hold and not self.reentrant and self.make_tenure is None
        return is_plain and self.mode is Mode.EXCLUSIVE and self.fair == "batches"


class SlowWait:
    """When a wait of a client's locks is slow, and at which level that is logged, unless a lock has its own."""

    def __init__(self, after: Duration | None, level: int | str) -> None:
        self.after = _slow_wait(after)
        self.level = log_level(level)


def make_spec(
    name: str,
    options: LockOptions,
    *,
    namespace: str,
    mode: Mode,
    capacity: int,
    default_ttl: float,
    slow_wait: SlowWait,
    holder: Callable[[str | None], Holder],
) -> LockSpec:
    """Check the options; a `ConfigurationError` names the one that cannot be used, and why."""
    if not options.keys() <= LockOptions.__optional_keys__:
        refuse_unknown("a lock", options, LockOptions, "client.lock")
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
        fair=_fair(options.get("fair", "batches")),
        linger=optional_seconds(options.get("linger"), "linger") or 0.0,
        slow_wait=_slow_wait(options["slow_wait"]) if "slow_wait" in options else slow_wait.after,
        slow_wait_level=log_level(options["slow_wait_level"]) if "slow_wait_level" in options else slow_wait.level,
    )
    if spec.linger:
        _check_linger(spec)
    if spec.max_hold is not None and spec.min_hold > spec.max_hold:
        raise ConfigurationError(
            f"min_hold ({spec.min_hold:g} s) is longer than max_hold ({spec.max_hold:g} s); make it shorter"
        )
    return spec


def refuse_unknown(where: str, options: Mapping[str, object], known: type, help_on: str) -> None:
    """Refuse a keyword that is not an option; for a word of another library the error says what it is called here."""
    unknown = options.keys() - known.__optional_keys__  # type: ignore[attr-defined]  # of a TypedDict
    if unknown:
        from leasehold._face.foreign_words import not_an_option  # noqa: PLC0415 - loaded when it is needed

        raise not_an_option(where, min(unknown), known.__annotations__, help_on)


def is_whole(value: object) -> bool:
    """Whether it is an integer; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def how_to_wait(options: WaitOptions) -> HowToWait:
    """Check how a call shall wait."""
    if not options:
        return QUEUE_OR_POLL
    if not options.keys() <= WaitOptions.__optional_keys__:
        refuse_unknown("acquire()", options, WaitOptions, "lock.acquire")
    backoff, on_wait = options.get("backoff"), options.get("on_wait")
    if backoff is not None and not isinstance(backoff, Backoff):
        raise ConfigurationError(f"backoff must be a leasehold.Backoff, not {backoff!r}")
    if on_wait is not None and not _is_plain_function(on_wait):
        raise ConfigurationError(f"on_wait must be a function that is not async, not {on_wait!r}")
    return HowToWait(backoff, on_wait)


def _is_plain_function(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)


def takes_the_call(on_busy: Callable[..., Any]) -> bool:
    """Whether a function for `locked(on_busy=)` takes two arguments: the error, and the call to repeat later."""
    try:
        parameters = inspect.signature(on_busy).parameters.values()
    except ValueError:  # it is written in C
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) > 1


def log_level(value: object) -> int:
    """A level of `logging`, given as its number or its name."""
    if is_whole(value):
        return int(value)  # type: ignore[call-overload, no-any-return]
    name = value.upper() if isinstance(value, str) else ""
    known = LEVELS
    if name not in LEVELS:
        from logging import getLevelNamesMapping  # noqa: PLC0415 - only for levels of the user's own

        known = getLevelNamesMapping()
    if name not in known:
        raise ConfigurationError(f"slow_wait_level must be a level of logging, such as 'INFO' or 20, not {value!r}")
    return known[name]


def _slow_wait(value: Duration | None) -> float:
    return math.inf if value is None else seconds(value, "slow_wait")


def _fair(value: object) -> Fair:
    if value == "batches":
        return "batches"
    if value == "strict":
        return "strict"
    raise ConfigurationError(f"fair must be 'batches' or 'strict', not {value!r}")


def _check_linger(spec: LockSpec) -> None:
    """Refuse it where it has no meaning, or would keep others waiting for longer than it is worth."""
    if spec.mode is not Mode.EXCLUSIVE:
        raise ConfigurationError(
            f"linger is for locks that one holder has alone, and {spec.name!r} is shared; leave it out"
        )
    for option, is_given, why in (
        ("renew=False", not spec.renew, "a lock that lingers is renewed until it is given back"),
        ("min_hold", spec.min_hold > 0, "min_hold keeps a lock closed after a release, linger keeps it ready"),
        ("reentrant=True", spec.reentrant, "a reentrant lock belongs to one thread or task, and lingers for none"),
        ('fair="strict"', spec.fair == "strict", "a lock that lingers is taken again before those who wait elsewhere"),
    ):
        if is_given:
            raise ConfigurationError(f"linger cannot be combined with {option}: {why}; leave one of them out")
    most = min(LONGEST_LINGER, spec.ttl / 2)
    if spec.linger > most:
        raise ConfigurationError(
            f"linger ({spec.linger:g} s) must be at most {most:g} s ({LONGEST_LINGER:g} s, or half of a short "
            "ttl): others wait that much longer for the lock"
        )


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what} must be True or False, not {value!r}")
    return value


def with_group(options: LockOptions, template: str) -> LockOptions:
    """Count a decorated function's locks under its template, unless they have a group."""
    return options if options.get("group") else LockOptions(**{**options, "group": template[:256]})
