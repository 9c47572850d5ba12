"""A job of a queue, what is kept of it, and what a late answer to it means: without a database."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from leasehold.errors import ConfigurationError, KeyReused, StaleFence
from leasehold.sql.json_text import json_text

__all__ = [
    "GiveUp",
    "Job",
    "JobInfo",
    "JobState",
    "QueueCounts",
    "Rules",
    "check_whole",
    "error_text",
    "read_payload",
    "refused_answer",
    "require_same_payload",
    "vanished",
    "write_payload",
]

JobState: TypeAlias = Literal["ready", "claimed", "done", "dead"]

MAX_ERROR = 1000  # characters


class GiveUp(Exception):
    """Raised by a handler: do not try this job again; it is dead at once, with this as its error."""


@dataclass(slots=True)
class Job:
    """One claim of a job. `fence` grows with every claim of it, and `attempt` counts from 1.

    `lost` becomes true when a worker learns, while the handler runs, that the job was claimed by another.
    """

    id: int
    queue: str
    key: str | None
    payload: Any
    fence: int
    attempt: int
    last_error: str | None
    age: float  # seconds since it was enqueued
    lost: bool = field(default=False, compare=False)

    @property
    def resource(self) -> str:
        """What the fence belongs to: `guard(tx, job.fence, resource=job.resource)`."""
        return f"queue:{self.queue}:{self.id}"


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What the table has about a job. Times are seconds, by the clock of the database."""

    id: int
    queue: str
    key: str | None
    payload: Any
    state: JobState
    fence: int  # how often it was claimed
    attempts: int  # the same since it was enqueued or retried, without claims that were given back
    worker: str | None  # of the last claim
    last_error: str | None
    due_in: float | None  # ready: until it may be claimed; claimed: until the claim runs out
    age: float  # since it was enqueued
    changed: float  # since its state changed


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many jobs a queue has in each state; `delayed` ones are ready later, `lag` is how long the oldest waits."""

    queue: str
    ready: int = 0
    delayed: int = 0
    claimed: int = 0
    done: int = 0
    dead: int = 0
    lag: float = 0.0


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of a `Queue`, in seconds."""

    queue: str
    visibility: float
    max_attempts: int | None
    max_payload: int
    schema: str | None

    def is_last(self, attempt: int) -> bool:
        """Whether there is no other attempt after the one with this number, counted from 1."""
        return self.max_attempts is not None and attempt >= self.max_attempts


def write_payload(payload: object, limit: int) -> str:
    """A payload as JSON."""
    parts = "enqueue what names the work, such as ids"
    return json_text(payload, "payload", limit, parts=parts, reference="enqueue its id")


def read_payload(text: str) -> Any:
    """What was enqueued."""
    return json.loads(text)


def require_same_payload(rules: Rules, key: str, ours: str, stored: str) -> None:
    """A key that comes again with other work is a mistake: the second one would be dropped without a word."""
    if ours != stored and read_payload(ours) != read_payload(stored):
        raise KeyReused(
            f"the key {key!r} of the queue {rules.queue!r} belongs to a job with another payload; nothing was "
            "enqueued. Other work needs a key of its own",
            name=rules.queue,
            key=key,
        )


def error_text(error: BaseException | str) -> str:
    """What is kept of an error: its type and sentence, bounded; nothing of the traceback, whose lines show values."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    storable = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return storable if len(storable) <= MAX_ERROR else f"{storable[: MAX_ERROR - 3]}..."


def vanished(attempts: int, last_error: str | None) -> str:
    """The error of a job whose last worker neither finished nor extended it within the visibility timeout."""
    before = "" if last_error is None else f"; before that: {last_error}"
    return error_text(
        f"the worker of attempt {attempts} vanished, or needed longer than the visibility timeout{before}"
    )


def refused_answer(job: Job, state: str | None, fence: int | None, wanted: str) -> StaleFence | None:
    """What it means that a job could not be changed under this claim; None if the very same was done before.

    A completion whose reply was lost is sent again, and must not look like a refusal.
    """
    if fence == job.fence and state == wanted:
        return None
    if fence is None:
        what = "it is not in the table any more"
    elif fence == job.fence:
        what = f"this claim of it is over: the job is {state}"
    else:
        what = f"it was claimed again, with fence {fence}"
    return StaleFence(
        f"job {job.id} of the queue {job.queue!r} cannot be changed by the claim with fence {job.fence}: {what}. Take "
        "back what was done under this claim, and do not repeat it",
        name=job.queue,
        fence=job.fence,
        highest=fence,
    )


def check_whole(value: object, what: str, lowest: int) -> int:
    """A whole number that makes sense."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ConfigurationError(f"{what} must be a whole number of at least {lowest}, not {value!r}")
    return value
