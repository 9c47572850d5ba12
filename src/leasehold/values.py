"""Frozen facts that travel between the core and the stores.

Nothing here decides or waits. Times are seconds; the comment of an instant names the clock that it is on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal

from leasehold._record import field, record

__all__ = [
    "Capability",
    "Claim",
    "Grant",
    "Holder",
    "Holding",
    "KeyState",
    "LastRun",
    "Leader",
    "LockState",
    "Loss",
    "LossReason",
    "Mode",
    "Pause",
    "Reading",
    "Record",
    "Refusal",
    "Skipped",
]

UNLIMITED = 100 * 365 * 86_400.0  # seconds: how long a pause lasts that has no end
MAX_FENCE = 2**53 - 1  # the largest integer that Lua and JSON keep exact


class Mode(StrEnum):
    """How many may hold a name together."""

    EXCLUSIVE = "exclusive"  # one alone; also the writer of a read/write lock
    SHARED = "shared"  # any number, but none beside an exclusive one
    PERMIT = "permit"  # up to `capacity`


class Capability(StrEnum):
    """What a store can promise. A declared capability passes its contract group; another one raises."""

    EXCLUSIVE = "exclusive"
    FENCING = "fencing"
    INSPECT = "inspect"
    SHARED = "shared"
    PERMITS = "permits"
    FIFO = "fifo"
    PUSH = "push"
    RECORD = "record"
    MIN_HOLD = "min_hold"
    ABANDONED = "abandoned"
    SESSION = "session"
    PAUSE = "pause"
    RANGES = "ranges"


class LossReason(StrEnum):
    """How a lease ended without being released by its holder."""

    EXPIRED = "expired"  # the deadline passed: the process was paused, or renewal was off
    UNCONFIRMED = "unconfirmed"  # the deadline passed while the store did not confirm a renewal
    TAKEN = "taken"  # the store no longer knows this grant
    SESSION_ENDED = "session ended"  # the store ended the session that the grant lived in
    BROKEN = "broken"  # an operator broke the lock
    MAX_HOLD = "max_hold"  # it was held as long as `max_hold` allows
    FORKED = "forked"  # this is a child process; the lease belongs to its parent
    CLOSED = "closed"  # the client was closed while the lease was held
    GIVEN_BACK = "given back"  # the client was closed with release=True: the lock is free for the next holder
    RELEASED = "released"  # the holder itself had released it


@record(frozen=True, slots=True)
class Holder:
    """The process that holds or wants a lock: facts for people, never used for a decision."""

    host: str
    pid: int
    label: str | None = None
    reason: str | None = None
    user: str | None = None

    def __str__(self) -> str:
        """In a few words: `nightly-report on db-3, pid 4711`."""
        who = f"{self.label} on {self.host}" if self.label else self.host
        return f"{who}, pid {self.pid}"


@record(frozen=True, slots=True)
class Pause:
    """An operator's order not to grant a name for now; its holder keeps it.

    `expires_in` is how many seconds are left on the store's clock; None: until it is resumed. `paused_for` is how long
    it has been paused; None where the store did not say.
    """

    reason: str
    by: str
    expires_in: float | None = None
    paused_for: float | None = None

    def __str__(self) -> str:
        """In a few words: `paused by ana@ops-1 for another 540 s: the database is being moved`."""
        left = "" if self.expires_in is None else f" for another {self.expires_in:.0f} s"
        return f"paused by {self.by}{left}: {self.reason}"


# The two that are made for every acquire are frozen by their types only: the other way costs a microsecond each time.


@record(slots=True, unsafe_hash=True)
class Claim:
    """One attempt to get a lock. Sent twice, the same claim gives the same grant."""

    key: Final[str]
    owner: Final[str] = field(repr=False)  # random, new for every attempt; knowledge of it is the right to release
    ttl: Final[float]
    mode: Final[Mode]
    capacity: Final[int]
    min_hold: Final[float]
    holder: Final[Holder]
    spare: Final[int] = 0  # fences to keep free behind that of a grant that is made at once


@record(slots=True, unsafe_hash=True)
class Grant:
    """The store granted a claim.

    `ttl` is what the store granted, which may be more than was claimed (it rounds up) or less (a claim window after a
    hand-over, to be renewed soon). `since` is the instant on the *caller's* clock from which `ttl` counts; None
    means: from before the request was sent that brought this grant. `abandoned`: whether the previous holder left
    without releasing; None where the store does not know. `spare`: how many fences behind this one no other grant gets;
    the holder may use them, one after the other, to pass the lock on inside its process (capability RANGES).
    """

    claim: Final[Claim]
    fence: Final[int]
    ttl: Final[float]
    since: Final[float | None] = None
    abandoned: Final[bool | None] = None
    spare: Final[int] = 0


@record(frozen=True, slots=True)
class Refusal:
    """The store refused a claim, and keeps nothing of it. `why`: the reason, where it is not another holder."""

    key: str
    holder: Holder | None = None
    retry_after: float | None = None
    queue: int = 0
    why: str | None = None
    paused: Pause | None = None  # an operator keeps the name from being granted


@record(frozen=True, slots=True)
class Loss:
    """A grant is over, and why; `detail` is a sentence for people."""

    reason: LossReason
    detail: str = ""


@record(frozen=True, slots=True)
class Holding:
    """One grant as the store sees it now; durations are on the store's clock."""

    holder: Holder
    fence: int
    held_for: float
    expires_in: float
    broken: str | None = None  # the reason an operator gave; the slot is kept until `expires_in` is over
    cooling: bool = False  # released, but kept until its `min_hold` is over


@record(frozen=True, slots=True)
class LockState:
    """What the store knows about one lock; `name` is the user's name for it."""

    name: str
    mode: Mode
    capacity: int
    holdings: tuple[Holding, ...]
    waiting: tuple[Holder, ...]
    paused: Pause | None = None


@record(frozen=True, slots=True)
class Record:
    """A value kept beside the locks and written under a fence (once, idempotency, cache).

    As an answer of the store, `fence` is the highest that was seen at this key and `ttl` the time that is left.
    """

    key: str
    value: bytes
    fence: int
    ttl: float


@record(frozen=True, slots=True)
class Reading:
    """What a store knows about the key of a record: the record, the highest fence seen there, and the time it is.

    `time` is the store's own wall clock, in seconds since 1970: the one clock that all clients share. `fence` outlives
    the record; it is 0 where none was seen.
    """

    record: Record | None
    fence: int
    time: float


@record(frozen=True, slots=True)
class Leader:
    """The leader of an election as the store has it: its process, and the fence of its term."""

    name: str
    holder: Holder
    fence: int

    def __str__(self) -> str:
        """In a few words."""
        return f"{self.name!r} is led by {self.holder} (fence {self.fence})"


@record(frozen=True, slots=True)
class Skipped:
    """A `once` job was not run, because its slot is another's. It is false, so that `if run:` reads well.

    `runner` is the process that ran it, or that is running it while `finished` is None; None where it is unknown.
    `finished` is in seconds since 1970 on the store's clock. `failed`: it failed, and closed its slot all the same.
    `paused`: the slot is free, and an operator has paused the job.
    """

    name: str
    slot: str
    runner: Holder | None = None
    finished: float | None = None
    failed: bool = False
    paused: Pause | None = None

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        """Who had it, in one sentence."""
        who = self.runner or "another holder"
        if self.paused is not None:
            return f"{self.name!r} was skipped for slot {self.slot}: it is {self.paused}"
        if self.finished is None:
            return f"{self.name!r} was skipped for slot {self.slot}: it is being run by {who}"
        when = datetime.fromtimestamp(self.finished, UTC).isoformat(timespec="seconds")
        how = ", and failed" if self.failed else ""
        return f"{self.name!r} was skipped for slot {self.slot}: it was run by {who}, finished at {when}{how}"


@record(frozen=True, slots=True)
class LastRun:
    """The last run of a `once` job that ended, as its record tells. Times are seconds since 1970 on the store's clock.

    `closed`: the slot counts as run, and is not run again; a run that failed leaves its slot open, unless the job
    closes it. `again` is why an operator had the slot run once more; `forgotten` who dropped its record, and why, so
    that the slot is open again. `began` and `fence` are None in a record of an earlier version.
    """

    name: str
    slot: str
    runner: Holder
    finished: float
    began: float | None = None
    fence: int | None = None
    failed: bool = False
    closed: bool = True
    again: str | None = None
    forgotten: str | None = None

    @property
    def outcome(self) -> Literal["done", "failed", "forgotten"]:
        """What became of it, in a word."""
        if self.forgotten is not None:
            return "forgotten"
        return "failed" if self.failed else "done"


@record(frozen=True, slots=True)
class KeyState:
    """What is stored about an idempotency key, without the result. Durations are on the store's clock.

    `since` is how long ago the record was written. A record in progress whose attempt has vanished looks the same as
    one whose attempt runs: the lock of the key tells them apart.
    """

    scope: str
    key: str
    state: Literal["in progress", "completed"]
    since: float
    expires_in: float
