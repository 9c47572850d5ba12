"""The ports: what a store must offer (`Backend` and its extensions) and what the core runs on (`Runtime`).

The core is written once, as coroutines over these two. A store author implements `Backend` and runs the contract suite.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from leasehold._homes import Homes
from leasehold._record import field, record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Sequence
    from contextlib import AbstractContextManager

    from leasehold.errors import BackendError
    from leasehold.findings import Finding
    from leasehold.values import Capability, Claim, Grant, Holder, LockState, Loss, Pause, Reading, Record, Refusal

__all__ = [
    "DRIFT",
    "Alerting",
    "Backend",
    "Conditioning",
    "Embedded",
    "Examining",
    "Inspecting",
    "Operating",
    "Pausing",
    "Place",
    "Pollable",
    "Queueing",
    "Recording",
    "Request",
    "Runtime",
    "Scope",
    "Signal",
    "Startable",
    "Store",
    "Task",
]

DRIFT = 0.01  # by so much a second of one clock may be shorter than a second of another: holder, store, host

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


# --- the store's side ------------------------------------------------------------------------------------------------


class Backend(Protocol):
    """A connection to a store that grants claims.

    Promises: the same claim sent twice gives the same grant (a repeated claim refreshes its expiry); a release names
    its grant and never touches another's; no clock of the caller's is trusted. A call that fails raises
    `BackendUnavailable` only when it surely was not applied, and `OutcomeUnknown` otherwise. A call never repeats a
    request behind the caller's back.

    `until` is the instant, on the runtime's clock, after which the caller has no use for an answer. A call ends by
    then, with an error if need be, however long the store itself would be given: connecting, authenticating and looking
    for the right server included. It also ends by itself within a bounded time when there is no such instant.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this store promises."""

    @property
    def label(self) -> str:
        """Which store this is, for messages; without password."""

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        """Grant the claim now or not at all; never overtakes a waiter."""

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        """Extend each grant by its claim's ttl, all in one round trip; an answer for each, in order.

        A store of several servers may know about some and not about others: an error can be one grant's answer.
        """

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        """Free what this grant holds; False if it was no longer ours.

        A `Loss`: an operator had broken it; what was kept for the rest of its ttl is free now. The answer may get lost:
        while the store still has the reason (until the ttl of a grant that was broken at once, or the min_hold of one
        that was broken and released, is over), a release or renewal that is sent again gets the same `Loss`.
        """

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        """Undo a claim whatever became of it: queued, granted or still under way.

        With `doubt`, a request of this claim that arrives later is refused for one ttl. Without it every request of the
        claim was answered, none can arrive any more, and nothing of it stays in the store.

        Refused means a `Refusal`, also while the name is in use as another kind of lock. With `doubt` the reason of a
        break at once stays.
        """

    async def close(self) -> None:
        """Let go of connections. Grants are left to their ttl."""


@record(frozen=True, slots=True)
class Place:
    """A place in a store's queue.

    The store sets `signal` when it may be our turn; without a signal the waiter calls `turn` after `recheck` seconds,
    which also keeps the place from being given up as dead.
    """

    claim: Claim
    signal: Signal
    recheck: float
    ahead: int
    holder: Holder | None = None
    retry_after: float | None = field(default=None, kw_only=True)
    why: str | None = field(default=None, kw_only=True)  # the reason to wait, where it is not another holder
    paused: Pause | None = field(default=None, kw_only=True)


@runtime_checkable
class Queueing(Protocol):
    """Capability FIFO: first come, first served."""

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        """Take a place at the end of the queue, or the lock at once if it is free and has no waiters.

        A Refusal: this claim was withdrawn before.
        """

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        """Take the lock if it is our turn, and keep the place alive. A Refusal: the place is gone, join again.

        A grant that was handed over earlier than this call was sent carries `since`. `withdraw` leaves the queue.
        """


@runtime_checkable
class Inspecting(Protocol):
    """Capability INSPECT: what an operator needs to see at three in the morning."""

    async def inspect(self, key: str) -> LockState | None:
        """The holders and waiters of a key; None when there are none. The state's name is the key."""

    async def list(self, prefix: str) -> Sequence[LockState]:
        """All locks in use whose key starts with `prefix`, in order of key."""


@runtime_checkable
class Operating(Protocol):
    """What an operator may change. A store with capability INSPECT has it as well: a break needs the fence shown."""

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence. The next holder still waits for its ttl to pass, unless `now`."""

    async def raise_fence(self, key: str, fence: int) -> int:
        """Make every later grant of this key higher than `fence`; returns what they are higher than now."""


@runtime_checkable
class Pausing(Protocol):
    """Capability PAUSE: nothing is granted at a paused name. Waiters keep their places; no process has to live."""

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        """Pause for so long, instead of a pause that is there; `by` has who in its label, why in its reason."""

    async def resume(self, key: str) -> bool:
        """End the pause; False if the name was not paused."""


@runtime_checkable
class Recording(Protocol):
    """Capability RECORD: small values that expire, written under a fence.

    Reading under a fence and writing under it are one holder's first and last act at a key. Together they promise: a
    write that returned True is seen by every later holder that reads under its fence. Both may be repeated after an
    unknown outcome.
    """

    async def read(self, key: str, fence: int = 0) -> Reading:
        """The record, the highest fence seen at its key, and the store's wall-clock time.

        With a fence, in the same step: from now on refuse to write under a lower one, also while there is no record.
        """

    async def write(self, record: Record) -> bool:
        """Store it for its ttl; False if a higher fence was seen at its key.

        A fence is remembered at least as long as its record, and at least a day.
        """


@runtime_checkable
class Examining(Protocol):
    """A store that can examine how well it is set up for locks; every server store should."""

    async def examine(self) -> Sequence[Finding]:
        """Look at settings, roles, rights, versions: each finding has why it matters and what to set.

        Changes nothing. What this account has no right to see is a finding too, not an error.
        """


@runtime_checkable
class Embedded(Protocol):
    """A store without a server, which ends at the border of this host or of this process."""

    @property
    def is_private(self) -> bool:
        """Whether it ends at the border of this process: another process with the same URL has a store of its own."""

    def exists(self) -> bool:
        """Whether it has been created. A file is, by the first grant; until then nothing can be held in it."""


@runtime_checkable
class Conditioning(Protocol):
    """A store with transactions of its own, in which "this grant still exists" can be a condition (etcd)."""

    def grant_condition(self, grant: Grant) -> tuple[bytes, int, bytes] | None:
        """The key of a grant, the revision that created it, and the store's own form of the condition.

        None for a grant that this client does not hold. No I/O: the transaction decides.
        """


@runtime_checkable
class Alerting(Protocol):
    """A store that may learn by itself that grants are in doubt: the session that they live in has ended."""

    def on_alert(self, alert: Callable[[], None]) -> None:
        """Call `alert` then, from any thread: every grant of this backend is renewed at once, to find out."""


class Store(Protocol):
    """Anything `connect` accepts in place of a URL."""

    def open_backend(self, runtime: Runtime) -> Backend:
        """Make a backend; does no I/O."""


# --- the core's side -------------------------------------------------------------------------------------------------


class Signal(Protocol):
    """A flag that can be waited for. `set` may be called from any thread."""

    def set(self) -> None:
        """Raise the flag and wake all waiters."""

    def clear(self) -> None:
        """Lower the flag; do this before looking at what it announces."""

    def is_set(self) -> bool:
        """Whether the flag is up."""


class Task(Protocol):
    """Work that was spawned."""

    async def join(self, deadline: float | None = None) -> bool:
        """Wait for the end of the task; False if the deadline came first."""


class Scope(Protocol):
    """The body of a `hold` block, which a loss of its lease may interrupt."""

    def cancel(self) -> None:
        """Interrupt the body if the runtime can; called by the keeper."""

    def loss_is_raised(self) -> None:
        """The body's own call is about to raise the loss, so it must not be cancelled as well."""

    async def leave(self, error: BaseException | None) -> bool:
        """End the scope; True if `error` is the interruption that `cancel` caused."""


class Runtime(Homes, Protocol):
    """Time, waiting, spawning, shielding, randomness: all that differs between threads, asyncio and simulation."""

    blocking: bool
    """Whether a wait blocks the calling thread.

    A store picks its driver by this: a blocking one where it is True, one for the event loop where it is False. A
    driver that can only block goes through `offload`.
    """

    switches: bool
    """Whether `switch` does anything."""

    def now(self) -> float:
        """Seconds on a clock that never steps and also runs while the host is suspended."""

    def random(self) -> float:
        """A number in [0, 1) for jitter."""

    def owner(self) -> str:
        """A fresh owner value of at least 128 random bits."""

    def current(self) -> Hashable:
        """The running thread or task, for re-entrant locks and messages; None, or something to refer to weakly."""

    def guard(self) -> AbstractContextManager[Any]:
        """A mutex for state that workers touch too; the same thread may enter twice.

        Nothing awaits inside, and nothing loops: from 3.12 on the jump that closes a loop or an inlined comprehension
        is not always covered by the `with` around it, and a signal handler that raises there leaves the mutex taken.
        """

    def signal(self) -> Signal:
        """A new flag, lowered."""

    def scope(self) -> Scope:
        """A scope around the code that runs now."""

    async def wait(self, signal: Signal, deadline: float | None) -> bool:
        """Wait until the flag is up (True) or the deadline is reached (False)."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""

    async def switch(self) -> None:
        """A point where another thread could run; the simulator makes it so. Left out unless `switches`."""

    async def offload(self, call: Callable[[], T]) -> T:
        """Run a call that blocks, without blocking anything but the caller: on a thread where there is an event loop.

        The call runs to its end even when the caller is cancelled, and the cancellation is raised after that: what the
        call uses (a connection, a transaction) is never in use by two at a time. So it must end within a bounded time.
        """

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run it beside the caller. It must handle its own errors."""

    async def shielded(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an idempotent operation to its end even when the caller is interrupted; then pass the interruption on.

        It runs in the caller's own task and is started again from the beginning if interrupted: that costs nothing in
        the common case, and needs operations that may run twice.
        """

    # --- for Redlock alone

    async def scatter(
        self,
        requests: Sequence[Request[T]],
        enough: Callable[[Sequence[T | Exception | None]], bool],
        deadline: float,
    ) -> Sequence[T | Exception | None]:
        """Send all requests at once; return as soon as `enough` is true, all have answers, or the deadline is reached.

        The result has a place for each request: its answer, its error, or None while it is open. Open requests are left
        to end by themselves.
        """


# --- for Redlock alone -----------------------------------------------------------------------------------------------
#
# Redlock is the one store that sends the same call to several independent servers and needs a majority of answers:
# `Runtime.scatter` and the three kinds of request below serve it and no other. A store with one server, or with a
# cluster behind one address, has no use for them.


class Request(Protocol[T_co]):
    """One request to one node of several."""

    async def perform(self) -> T_co:
        """Send it and wait for the answer."""


@runtime_checkable
class Pollable(Protocol[T_co]):
    """A request that a blocking runtime can send now and collect later, so that many share one thread."""

    async def perform(self) -> T_co:
        """Send it and wait for the answer."""

    def send(self) -> None:
        """Send it without waiting."""

    def fileno(self) -> int:
        """The descriptor that becomes readable when an answer comes."""

    def receive(self) -> tuple[T_co] | None:
        """Read what is there; the answer in a tuple, or None when more has to come."""


class Startable(Protocol[T_co]):
    """A request that an event loop can start without a task of its own, so that many cost little."""

    async def perform(self) -> T_co:
        """Send it and wait for the answer."""

    def start(self, done: Callable[[Any], None]) -> None:
        """Send it; `done` is called once, later, with the answer or with the exception in its place."""
