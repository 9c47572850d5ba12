"""What happens to locks, as typed events, and how each is logged.

Levels: normal life is DEBUG; a slow wait is one WARNING that names holder and queue, or has the level that its lock was
made with; a failed renewal and a lock that was broken or dropped are WARNINGs; a lost lease is an ERROR. An event is
only built when there is a listener or the logger is enabled for its level. A recorder gets the fields of the two events
of every pair, because building them costs more than counting them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from leasehold._log import DEBUG, ERROR, INFO, WARNING, is_logged, logger
from leasehold._record import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.values import Holder, Loss, Pause

__all__ = [
    "Acquired",
    "Dropped",
    "Event",
    "Events",
    "FenceRaised",
    "KeeperLate",
    "Lost",
    "Recorder",
    "ReleaseFailed",
    "Released",
    "RenewalFailed",
    "Renewed",
    "StoreReached",
    "StoreUnreachable",
    "TimedOut",
    "TtlDiffers",
    "Waiting",
]


@record(frozen=True, slots=True)
class Event:
    """Something happened to the lock `name`."""

    level: ClassVar[int] = DEBUG

    name: str


@record(frozen=True, slots=True)
class Acquired(Event):
    """A lock was granted. `call` pairs it with the `WaitBegan` of the same call; 0 if it did not wait."""

    fence: int
    waited: float
    group: str | None = None
    mode: str = "exclusive"
    call: int = 0

    def __str__(self) -> str:
        return f"acquired {self.name!r} with fence {self.fence} after {self.waited:.3f} s"


@record(frozen=True, slots=True)
class Waiting(Event):
    """A call has been waiting for `slow_wait`, or would for ever: its own thread or task holds the lock.

    `own` is set where the holder is this process, with what to do about it.
    """

    level: ClassVar[int] = WARNING

    waited: float
    holder: Holder | None
    ahead: int | None
    own: str | None = None
    paused: Pause | None = None

    def __str__(self) -> str:
        own = f" ({self.own})" if self.own else ""
        queue = "" if self.ahead is None else f", {self.ahead} ahead in the queue"
        why = f"held by {self.holder or 'another holder'}{own}" if self.paused is None else str(self.paused)
        return f"waiting for {self.name!r} ({self.waited:.1f} s so far), {why}{queue}"


@record(frozen=True, slots=True)
class StoreUnreachable(Event):
    """A call that wants a lock got no answer; it tries again for `remaining` seconds. Once per outage.

    `back_in`: in how many seconds the store can answer, where it says so; None where that is not known.
    """

    level: ClassVar[int] = WARNING

    remaining: float
    error: str
    back_in: float | None = None

    def __str__(self) -> str:
        return f"the store did not answer for {self.name!r}; trying for {self.remaining:.1f} s more: {self.error}"


@record(frozen=True, slots=True)
class StoreReached(Event):
    """The store answers again, to a call that wants a lock."""

    level: ClassVar[int] = INFO

    failures: int

    def __str__(self) -> str:
        return f"the store answers again for {self.name!r}, after {self.failures} failed tries"


@record(frozen=True, slots=True)
class TimedOut(Event):
    """A call gave up waiting; `at_once`: it had no time to wait at all."""

    waited: float
    group: str | None = None
    mode: str = "exclusive"
    call: int = 0
    at_once: bool = False

    def __str__(self) -> str:
        return f"gave up waiting for {self.name!r} after {self.waited:.3f} s"


@record(frozen=True, slots=True)
class Renewed(Event):
    """A lease was extended."""

    fence: int

    def __str__(self) -> str:
        return f"renewed {self.name!r} with fence {self.fence}"


@record(frozen=True, slots=True)
class RenewalFailed(Event):
    """A renewal got no answer; it is tried again until the deadline."""

    level: ClassVar[int] = WARNING

    remaining: float
    error: str
    fence: int = 0

    def __str__(self) -> str:
        left = max(self.remaining, 0.0)
        return f"could not renew {self.name!r}; trying for {left:.1f} s more before it is lost: {self.error}"


@record(frozen=True, slots=True)
class KeeperLate(Event):
    """Renewals were late because the process was paused or its event loop was blocked."""

    level: ClassVar[int] = WARNING

    late: float

    def __str__(self) -> str:
        return (
            f"the keeper of {self.name!r} woke up {self.late:.1f} s late: the process was paused, the host suspended, "
            "or the event loop blocked by a call that should run in a thread"
        )


@record(frozen=True, slots=True)
class Lost(Event):
    """A lease ended without its holder releasing it."""

    level: ClassVar[int] = ERROR

    fence: int
    loss: Loss

    def __str__(self) -> str:
        return f"lost {self.name!r} with fence {self.fence} ({self.loss.reason}): {self.loss.detail}"


@record(frozen=True, slots=True)
class TtlDiffers(Event):
    """The store gives another ttl than the lock was made with; once for each name of a client."""

    level: ClassVar[int] = WARNING

    asked: float
    given: float

    def __str__(self) -> str:
        return (
            f"{self.name!r} was made with a ttl of {self.asked:g} s, and its store gives {self.given:.3g} s; "
            "lease.ttl is what counts"
        )


@record(frozen=True, slots=True)
class Released(Event):
    """A lease was given back; `freed` is False when it was already gone."""

    fence: int
    freed: bool

    def __str__(self) -> str:
        return f"released {self.name!r} with fence {self.fence}" + ("" if self.freed else ", which was already gone")


@record(frozen=True, slots=True)
class ReleaseFailed(Event):
    """A release got no answer; it is tried again in the background until the ttl frees the lock.

    `is_final`: the client is being closed, and it is not tried again.
    """

    level: ClassVar[int] = WARNING

    error: str
    is_final: bool = False
    fence: int = 0

    def __str__(self) -> str:
        if self.is_final:
            return f"could not release {self.name!r} before the client was closed; its ttl will free it: {self.error}"
        return f"could not release {self.name!r} yet; it is tried again until its ttl is over: {self.error}"


@record(frozen=True, slots=True)
class Dropped(Event):
    """A lease was garbage collected without release; it is not renewed any more."""

    level: ClassVar[int] = WARNING

    fence: int

    def __str__(self) -> str:
        return (
            f"the lease of {self.name!r} with fence {self.fence} was dropped without release; its ttl will free it. "
            "Keep a reference to the lease while you need the lock, and release it"
        )


@record(frozen=True, slots=True)
class FenceRaised(Event):
    """An operator raised the fence of a name."""

    level: ClassVar[int] = WARNING

    fence: int
    reason: str
    by: str

    def __str__(self) -> str:
        return f"{self.by} raised the fence of {self.name!r} to {self.fence}: {self.reason}"


class Recorder(Protocol):
    """Counts what happens; never blocks. Gets every event, those of a pair as fields, without an object."""

    def acquired(  # noqa: PLR0917 - the fields of the event
        self, name: str, fence: int, waited: float, group: str | None, mode: str, call: int
    ) -> None:
        """What `Acquired` says."""

    def released(self, name: str, fence: int) -> None:
        """What `Released` says."""

    def record(self, event: Event) -> None:
        """Any other event."""


class Events:
    """Passes events to the logger, the recorders and the listeners. A listener that raises is logged and kept."""

    def __init__(self) -> None:
        self.listeners: tuple[Callable[[Event], object], ...] = ()  # all of them; empty while nothing is wanted
        self._recorders: tuple[Recorder, ...] = ()
        self._callbacks: tuple[Callable[[Event], object], ...] = ()  # those that are no recorder's

    def subscribe(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Call `listener` with every event from now on; the result ends that."""
        self._change(self._recorders, (*self._callbacks, listener))
        # Equality, not identity: a bound method is a new object each time it is looked up.
        return lambda: self._change(self._recorders, tuple(other for other in self._callbacks if other != listener))

    def attach(self, recorder: Recorder) -> Callable[[], None]:
        """Let `recorder` count every event from now on; the result ends that."""
        self._change((*self._recorders, recorder), self._callbacks)
        return lambda: self._change(tuple(each for each in self._recorders if each is not recorder), self._callbacks)

    def _change(self, recorders: tuple[Recorder, ...], callbacks: tuple[Callable[[Event], object], ...]) -> None:
        self._recorders, self._callbacks = recorders, callbacks
        self.listeners = (*(recorder.record for recorder in recorders), *callbacks)

    def wanted(self, kind: type[Event]) -> bool:
        """Whether it is worth building an event of this kind."""
        return bool(self.listeners) or is_logged(kind.level)

    def acquired(  # noqa: PLR0917 - the fields of the event
        self, name: str, fence: int, waited: float, group: str | None, mode: str, call: int
    ) -> None:
        """Pass `Acquired` on, and build it only for those that want the object."""
        for recorder in self._recorders:
            try:
                recorder.acquired(name, fence, waited, group, mode, call)
            except Exception:  # noqa: BLE001 - it must never break a lock, and is logged
                _report_failure(Acquired)
        if self._callbacks or is_logged(DEBUG):
            _deliver(Acquired(name, fence, waited, group, mode, call), DEBUG, self._callbacks)

    def released(self, name: str, fence: int, freed: bool) -> None:  # noqa: FBT001 - the fields of the event
        """Pass `Released` on, in the same way."""
        for recorder in self._recorders:
            try:
                recorder.released(name, fence)
            except Exception:  # noqa: BLE001 - it must never break a lock, and is logged
                _report_failure(Released)
        if self._callbacks or is_logged(DEBUG):
            _deliver(Released(name, fence, freed), DEBUG, self._callbacks)

    def emit(self, event: Event, level: int | None = None) -> None:
        """Log the event, at its own level unless another is given, and pass it on."""
        _deliver(event, event.level if level is None else level, self.listeners)


def _deliver(event: Event, level: int, listeners: tuple[Callable[[Event], object], ...]) -> None:
    if is_logged(level):
        logger.log(level, "%s", event)
    for listener in listeners:
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - a listener must never break a lock, and is logged
            _report_failure(type(event))


def _report_failure(kind: type[Event]) -> None:
    logger.exception("a listener of on_event failed on %s; the lock is not affected", kind.__name__)
