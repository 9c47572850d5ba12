"""Distributed locks as leases: one interface over many stores, and a fencing token on every grant.

    import leasehold

    client = leasehold.connect("memory://demo")
    with client.lock("payment:42", ttl=30).hold(timeout=5) as lease:
        print(lease.fence)

Names are loaded when they are first used: a blocking program never loads asyncio, and no store is loaded before its URL
is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasehold.backoff import Backoff
    from leasehold.blocking import Client, Hold, Lease, LeaseSet, Lock, LockSet, Lost, Mutex, RWLock, connect
    from leasehold.blocking.cache import Cache, Cached
    from leasehold.blocking.election import Election, Term
    from leasehold.blocking.idempotency import Idempotency, KeyedAttempt
    from leasehold.blocking.once import Once, Run
    from leasehold.blocking.partitions import Partition, Share
    from leasehold.client import AsyncClient, connect_async
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
    from leasehold.hold import AsyncHold
    from leasehold.lease import AsyncLease, AsyncLeaseSet, AsyncLost
    from leasehold.lock import AsyncLock, AsyncLockSet, AsyncMutex, AsyncRWLock
    from leasehold.name_template import CURRENT
    from leasehold.patterns.cache import AsyncCache, AsyncCached
    from leasehold.patterns.election import AsyncElection, AsyncTerm
    from leasehold.patterns.idempotency import AsyncIdempotency
    from leasehold.patterns.idempotency_asgi import IdempotencyMiddleware
    from leasehold.patterns.job_result import JobResult
    from leasehold.patterns.keyed_attempt import AsyncKeyedAttempt
    from leasehold.patterns.once import AsyncOnce, AsyncRun
    from leasehold.patterns.partition import AsyncPartition
    from leasehold.patterns.partitions import AsyncShare
    from leasehold.patterns.retry_key import RetryKey
    from leasehold.patterns.shares import partition_of
    from leasehold.signals import ReleaseOnSignals
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
    "leasehold.backoff": ["Backoff"],
    "leasehold.blocking": [
        "Client", "Hold", "Lease", "LeaseSet", "Lock", "LockSet", "Lost", "Mutex", "RWLock", "connect",
    ],
    "leasehold.blocking.cache": ["Cache", "Cached"],
    "leasehold.blocking.election": ["Election", "Term"],
    "leasehold.blocking.idempotency": ["Idempotency", "KeyedAttempt"],
    "leasehold.blocking.once": ["Once", "Run"],
    "leasehold.blocking.partitions": ["Partition", "Share"],
    "leasehold.client": ["AsyncClient", "connect_async"],
    "leasehold.errors": [
        "AcquireTimeout", "AlreadyRun", "AlreadyRunning", "AttemptExpired", "BackendError", "BackendRejected",
        "BackendUnavailable", "ClientClosed", "ConfigurationError", "Conflict", "FenceAhead", "InFlight", "KeyReused",
        "LeaseLost", "LeaseholdError", "ModeConflict", "OutOfStock", "OutcomeUnknown", "Paused", "PreconditionError",
        "PreconditionFailed", "PreconditionMalformed", "PreconditionRequired", "ReservationExpired",
        "ReservationRefused", "ResultNotKept", "RetryTransaction", "RowBusy", "StaleFence", "UniqueConflict",
        "UnsupportedCapability", "VersionConflict",
    ],
    "leasehold.hold": ["AsyncHold"],
    "leasehold.lease": ["AsyncLease", "AsyncLeaseSet", "AsyncLost"],
    "leasehold.lock": ["AsyncLock", "AsyncLockSet", "AsyncMutex", "AsyncRWLock"],
    "leasehold.name_template": ["CURRENT"],
    "leasehold.patterns.cache": ["AsyncCache", "AsyncCached"],
    "leasehold.patterns.election": ["AsyncElection", "AsyncTerm"],
    "leasehold.patterns.idempotency": ["AsyncIdempotency"],
    "leasehold.patterns.idempotency_asgi": ["IdempotencyMiddleware"],
    "leasehold.patterns.job_result": ["JobResult"],
    "leasehold.patterns.keyed_attempt": ["AsyncKeyedAttempt"],
    "leasehold.patterns.once": ["AsyncOnce", "AsyncRun"],
    "leasehold.patterns.partition": ["AsyncPartition"],
    "leasehold.patterns.partitions": ["AsyncShare"],
    "leasehold.patterns.retry_key": ["RetryKey"],
    "leasehold.patterns.shares": ["partition_of"],
    "leasehold.signals": ["ReleaseOnSignals"],
    "leasehold.values": [
        "Capability", "Holder", "Holding", "KeyState", "LastRun", "Leader", "LockState", "Loss", "LossReason", "Mode", "Pause",
        "Skipped",
    ],
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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
    "Hold",
    "Holder",
    "Holding",
    "Idempotency",
    "IdempotencyMiddleware",
    "InFlight",
    "JobResult",
    "KeyReused",
    "KeyedAttempt",
    "KeyState",
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
    "connect",
    "connect_async",
    "partition_of",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
