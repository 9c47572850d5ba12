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
    from leasehold.blocking.once import Once, Run
    from leasehold.client import AsyncClient, connect_async
    from leasehold.errors import (
        AcquireTimeout,
        AlreadyRun,
        AlreadyRunning,
        BackendError,
        BackendRejected,
        BackendUnavailable,
        ClientClosed,
        ConfigurationError,
        Conflict,
        FenceAhead,
        LeaseholdError,
        LeaseLost,
        ModeConflict,
        OutcomeUnknown,
        RetryTransaction,
        StaleFence,
        UnsupportedCapability,
    )
    from leasehold.hold import AsyncHold
    from leasehold.lease import AsyncLease, AsyncLeaseSet, AsyncLost
    from leasehold.lock import AsyncLock, AsyncLockSet, AsyncMutex, AsyncRWLock
    from leasehold.patterns.once import AsyncOnce, AsyncRun
    from leasehold.signals import ReleaseOnSignals
    from leasehold.values import Capability, Holder, Holding, LockState, Loss, LossReason, Mode, Skipped

__version__ = "0.1.0"

_HOMES = {
    "leasehold.backoff": ["Backoff"],
    "leasehold.blocking": [
        "Client", "Hold", "Lease", "LeaseSet", "Lock", "LockSet", "Lost", "Mutex", "RWLock", "connect",
    ],
    "leasehold.blocking.once": ["Once", "Run"],
    "leasehold.client": ["AsyncClient", "connect_async"],
    "leasehold.errors": [
        "AcquireTimeout", "AlreadyRun", "AlreadyRunning", "BackendError", "BackendRejected", "BackendUnavailable",
        "ClientClosed", "ConfigurationError", "Conflict", "FenceAhead", "LeaseLost", "LeaseholdError", "ModeConflict",
        "OutcomeUnknown", "RetryTransaction", "StaleFence", "UnsupportedCapability",
    ],
    "leasehold.hold": ["AsyncHold"],
    "leasehold.lease": ["AsyncLease", "AsyncLeaseSet", "AsyncLost"],
    "leasehold.lock": ["AsyncLock", "AsyncLockSet", "AsyncMutex", "AsyncRWLock"],
    "leasehold.patterns.once": ["AsyncOnce", "AsyncRun"],
    "leasehold.signals": ["ReleaseOnSignals"],
    "leasehold.values": ["Capability", "Holder", "Holding", "LockState", "Loss", "LossReason", "Mode", "Skipped"],
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AcquireTimeout",
    "AlreadyRun",
    "AlreadyRunning",
    "AsyncClient",
    "AsyncHold",
    "AsyncLease",
    "AsyncLeaseSet",
    "AsyncLock",
    "AsyncLockSet",
    "AsyncLost",
    "AsyncMutex",
    "AsyncOnce",
    "AsyncRWLock",
    "AsyncRun",
    "BackendError",
    "BackendRejected",
    "BackendUnavailable",
    "Backoff",
    "Capability",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "Conflict",
    "FenceAhead",
    "Hold",
    "Holder",
    "Holding",
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
    "OutcomeUnknown",
    "RWLock",
    "ReleaseOnSignals",
    "RetryTransaction",
    "Run",
    "Skipped",
    "StaleFence",
    "UnsupportedCapability",
    "connect",
    "connect_async",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
