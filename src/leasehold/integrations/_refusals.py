"""What a web application answers to the errors of its locks: one table for all frameworks.

The text never has the message of the error itself, which names locks, hosts and processes: that is for logs, not for
callers. What means a mistake in the program (`ConfigurationError`, `BackendRejected`, ...) is not answered here: it is
the framework's 500, with its traceback in the log.
"""

from __future__ import annotations

from typing import NamedTuple

from leasehold._patterns.idempotency_http import Answer, problem
from leasehold.errors import (
    AcquireTimeout,
    BackendUnavailable,
    ClientClosed,
    Conflict,
    FenceAhead,
    InFlight,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    Paused,
    PreconditionError,
    RetryTransaction,
    RowBusy,
    StaleFence,
)

__all__ = ["ANSWERED", "answer_to"]

SOON = 1.0
PAUSED = 30.0


class _Refusal(NamedTuple):
    kind: type[Exception]
    status: int
    title: str
    detail: str
    retry_after: float | None = None  # unless the error has its own


# The first that fits counts, so what is special comes before what it is a kind of.
_TABLE = (
    _Refusal(Paused, 423, "Paused", "an operator has paused work on this resource; come back later", PAUSED),
    _Refusal(AcquireTimeout, 409, "Busy", "another request works on this resource; try again", SOON),
    _Refusal(
        LeaseLost,
        503,
        "Lock lost",
        "this request lost its lock before it was done, and may be half done; look before you repeat it",
    ),
    _Refusal(StaleFence, 412, "Too late", "a later request has worked on this resource; nothing was written"),
    _Refusal(InFlight, 409, "Request in flight", "the first request with this key is still running", SOON),
    _Refusal(KeyReused, 422, "Idempotency key reused", "use a new key for a new request"),
    _Refusal(RowBusy, 409, "Busy", "another request works on this resource; try again", SOON),
    _Refusal(RetryTransaction, 503, "Try again", "two requests met in the database; nothing was written", SOON),
    _Refusal(Conflict, 409, "Conflict", "another request was first, or the resource is not as this one expects it"),
    _Refusal(BackendUnavailable, 503, "Locks not available", "the lock of this resource cannot be taken now", SOON),
    _Refusal(ClientClosed, 503, "Shutting down", "this server is about to stop; try again", SOON),
    _Refusal(OutcomeUnknown, 503, "Outcome unknown", "the store of locks did not answer; look before you repeat it"),
)

ANSWERED: tuple[type[Exception], ...] = (PreconditionError, *(refusal.kind for refusal in _TABLE))


def answer_to(error: Exception) -> Answer | None:
    """The answer as `application/problem+json`; None for an error that is no answer to a caller."""
    if isinstance(error, PreconditionError):
        etag = [] if error.etag is None else [(b"etag", error.etag.encode("latin-1"))]
        return problem(error.status, "the resource is not what the request says", title="Precondition", headers=etag)
    if isinstance(error, FenceAhead):
        return None  # the store has lost its state: an operator has to see that
    for refusal in _TABLE:
        if isinstance(error, refusal.kind):
            own = getattr(error, "retry_after", None)
            after = refusal.retry_after if own is None else own
            return problem(refusal.status, refusal.detail, title=refusal.title, retry_after=after)
    return None
