"""The errors, for type checkers: what each carries, and who is a kind of whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import leasehold
from leasehold import (
    AcquireTimeout,
    AlreadyRun,
    AlreadyRunning,
    AttemptExpired,
    BackendError,
    BackendRejected,
    BackendUnavailable,
    ClientClosed,
    ConfigurationError,
    Conflict,
    FenceAhead,
    InFlight,
    JobResult,
    KeyReused,
    LeaseholdError,
    LeaseLost,
    ModeConflict,
    OutcomeUnknown,
    OutOfStock,
    Paused,
    PreconditionError,
    PreconditionFailed,
    PreconditionMalformed,
    PreconditionRequired,
    ReservationExpired,
    ReservationRefused,
    ResultNotKept,
    RetryTransaction,
    RowBusy,
    Run,
    Skipped,
    StaleFence,
    UniqueConflict,
    UnsupportedCapability,
    VersionConflict,
)

EVERY: list[type[LeaseholdError]] = [
    AlreadyRun,
    AlreadyRunning,
    AttemptExpired,
    BackendError,
    BackendRejected,
    ClientClosed,
    Conflict,
    FenceAhead,
    InFlight,
    KeyReused,
    ModeConflict,
    OutOfStock,
    PreconditionError,
    PreconditionFailed,
    PreconditionMalformed,
    PreconditionRequired,
    ReservationExpired,
    ReservationRefused,
    ResultNotKept,
    RetryTransaction,
    RowBusy,
    UniqueConflict,
    UnsupportedCapability,
    VersionConflict,
]


def handled(work: Callable[[], None]) -> float | int | str | None:
    try:
        work()
    except Paused as paused:
        return paused.retry_after
    except AcquireTimeout as busy:
        assert_type(busy.holder, leasehold.Holder | None)
        return busy.waited
    except LeaseLost as lost:
        assert_type(lost.reason, leasehold.LossReason | None)
        return lost.completed
    except StaleFence as stale:
        return stale.highest
    except (OutcomeUnknown, BackendUnavailable) as trouble:
        return trouble.backend
    except ConfigurationError as mistake:
        return mistake.name
    return None


def narrowed(run: Run | Skipped, result: JobResult[int]) -> int:
    """Truth tells the two apart."""
    if run:
        assert_type(run, Run)
        return run.fence
    assert_type(run, Skipped)
    return result.value if result else 0


async def narrowed_async(run: leasehold.AsyncRun | Skipped) -> int:
    if not run:
        assert_type(run, Skipped)
        return 0
    assert_type(run, leasehold.AsyncRun)
    return run.fence


leasehold.conect("memory://idioms")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
leasehold.Client("redis://localhost")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
