"""Distributed locks as leases: one interface over many stores, and a fencing token on every grant.

    import leasehold

    client = leasehold.connect("memory://demo")
    with client.lock("payment:42", ttl=30).hold(timeout=5) as lease:
        print(lease.fence)

Names are loaded when they are first used: a blocking program never loads asyncio, and no store is loaded before its URL
is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._lazy import LazyNames

if TYPE_CHECKING:
    from leasehold._backoff import Backoff
    from leasehold._blocking import Client, Hold, Lease, LeaseSet, Lock, LockSet, Lost, Mutex, RWLock, connect
    from leasehold._blocking.cache import Cache, Cached
    from leasehold._blocking.election import Election, Term
    from leasehold._blocking.idempotency import Idempotency, KeyedAttempt
    from leasehold._blocking.once import Once, Run
    from leasehold._blocking.partitions import Partition, Share
    from leasehold._face.client import AsyncClient, connect_async
    from leasehold._face.held import Held, assert_held
    from leasehold._face.hold import AsyncHold
    from leasehold._face.lease import AsyncLease, AsyncLeaseSet, AsyncLost
    from leasehold._face.lock import AsyncLock, AsyncLockSet, AsyncMutex, AsyncRWLock
    from leasehold._face.name_template import CURRENT
    from leasehold._face.signals import ReleaseOnSignals
    from leasehold._patterns.cache import AsyncCache, AsyncCached
    from leasehold._patterns.election import AsyncElection, AsyncTerm
    from leasehold._patterns.idempotency import AsyncIdempotency
    from leasehold._patterns.idempotency_asgi import IdempotencyMiddleware
    from leasehold._patterns.job_result import JobResult
    from leasehold._patterns.keyed_attempt import AsyncKeyedAttempt
    from leasehold._patterns.once import AsyncOnce, AsyncRun
    from leasehold._patterns.partition import AsyncPartition
    from leasehold._patterns.partitions import AsyncShare
    from leasehold._patterns.retry_key import RetryKey
    from leasehold._patterns.shares import partition_of
    from leasehold.errors import (
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
        StaleFence,
        UniqueConflict,
        UnsupportedCapability,
        VersionConflict,
    )
    from leasehold.values import (
        Capability,
        Holder,
        Holding,
        KeyState,
        LastRun,
        Leader,
        LockState,
        Loss,
        LossReason,
        Mode,
        Pause,
        Skipped,
    )

__version__ = "0.1.0"

_HOMES = {
    "leasehold._backoff": ["Backoff"],
    "leasehold._blocking": [
        "Client", "Hold", "Lease", "LeaseSet", "Lock", "LockSet", "Lost", "Mutex", "RWLock", "connect",
    ],
    "leasehold._blocking.cache": ["Cache", "Cached"],
    "leasehold._blocking.election": ["Election", "Term"],
    "leasehold._blocking.idempotency": ["Idempotency", "KeyedAttempt"],
    "leasehold._blocking.once": ["Once", "Run"],
    "leasehold._blocking.partitions": ["Partition", "Share"],
    "leasehold._face.client": ["AsyncClient", "connect_async"],
    "leasehold.errors": [
        "AcquireTimeout", "AlreadyRun", "AlreadyRunning", "AttemptExpired", "BackendError", "BackendRejected",
        "BackendUnavailable", "ClientClosed", "ConfigurationError", "Conflict", "FenceAhead", "InFlight", "KeyReused",
        "LeaseLost", "LeaseholdError", "ModeConflict", "OutOfStock", "OutcomeUnknown", "Paused", "PreconditionError",
        "PreconditionFailed", "PreconditionMalformed", "PreconditionRequired", "ReservationExpired",
        "ReservationRefused", "ResultNotKept", "RetryTransaction", "RowBusy", "StaleFence", "UniqueConflict",
        "UnsupportedCapability", "VersionConflict",
    ],
    "leasehold._face.held": ["Held", "assert_held"],
    "leasehold._face.hold": ["AsyncHold"],
    "leasehold._face.lease": ["AsyncLease", "AsyncLeaseSet", "AsyncLost"],
    "leasehold._face.lock": ["AsyncLock", "AsyncLockSet", "AsyncMutex", "AsyncRWLock"],
    "leasehold._face.name_template": ["CURRENT"],
    "leasehold._patterns.cache": ["AsyncCache", "AsyncCached"],
    "leasehold._patterns.election": ["AsyncElection", "AsyncTerm"],
    "leasehold._patterns.idempotency": ["AsyncIdempotency"],
    "leasehold._patterns.idempotency_asgi": ["IdempotencyMiddleware"],
    "leasehold._patterns.job_result": ["JobResult"],
    "leasehold._patterns.keyed_attempt": ["AsyncKeyedAttempt"],
    "leasehold._patterns.once": ["AsyncOnce", "AsyncRun"],
    "leasehold._patterns.partition": ["AsyncPartition"],
    "leasehold._patterns.partitions": ["AsyncShare"],
    "leasehold._patterns.retry_key": ["RetryKey"],
    "leasehold._patterns.shares": ["partition_of"],
    "leasehold._face.signals": ["ReleaseOnSignals"],
    "leasehold.values": [
        "Capability", "Holder", "Holding", "KeyState", "LastRun", "Leader", "LockState", "Loss", "LossReason", "Mode",
        "Pause", "Skipped",
    ],
}  # fmt: skip

__all__ = [
    "CURRENT",
    "AcquireTimeout",
    "AlreadyRun",
    "AlreadyRunning",
    "AsyncCache",
    "AsyncCached",
    "AsyncClient",
    "AsyncElection",
    "AsyncHold",
    "AsyncIdempotency",
    "AsyncKeyedAttempt",
    "AsyncLease",
    "AsyncLeaseSet",
    "AsyncLock",
    "AsyncLockSet",
    "AsyncLost",
    "AsyncMutex",
    "AsyncOnce",
    "AsyncPartition",
    "AsyncRWLock",
    "AsyncRun",
    "AsyncShare",
    "AsyncTerm",
    "AttemptExpired",
    "BackendError",
    "BackendRejected",
    "BackendUnavailable",
    "Backoff",
    "Cache",
    "Cached",
    "Capability",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "Conflict",
    "Election",
    "FenceAhead",
    "Held",
    "Hold",
    "Holder",
    "Holding",
    "Idempotency",
    "IdempotencyMiddleware",
    "InFlight",
    "JobResult",
    "KeyReused",
    "KeyState",
    "KeyedAttempt",
    "LastRun",
    "Leader",
    "Lease",
    "LeaseLost",
    "LeaseSet",
    "LeaseholdError",
    "Lock",
    "LockSet",
    "LockState",
    "Loss",
    "LossReason",
    "Lost",
    "Mode",
    "ModeConflict",
    "Mutex",
    "Once",
    "OutOfStock",
    "OutcomeUnknown",
    "Partition",
    "Pause",
    "Paused",
    "PreconditionError",
    "PreconditionFailed",
    "PreconditionMalformed",
    "PreconditionRequired",
    "RWLock",
    "ReleaseOnSignals",
    "ReservationExpired",
    "ReservationRefused",
    "ResultNotKept",
    "RetryKey",
    "RetryTransaction",
    "RowBusy",
    "Run",
    "Share",
    "Skipped",
    "StaleFence",
    "Term",
    "UniqueConflict",
    "UnsupportedCapability",
    "VersionConflict",
    "assert_held",
    "connect",
    "connect_async",
    "partition_of",
]


_names = LazyNames(__name__, _HOMES)

if not TYPE_CHECKING:  # so that type checkers refuse a name that is not there

    def __getattr__(name: str) -> Any:
        if name not in _names:
            from leasehold._face.foreign_words import not_in_the_package  # noqa: PLC0415 - loaded when it is needed

            raise not_in_the_package(name, __all__)
        return _names.find(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
