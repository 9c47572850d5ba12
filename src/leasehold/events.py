"""The events that `client.on_event` passes on; each is also logged to the logger `leasehold`."""

from leasehold._core.events import (
    Acquired,
    Broken,
    Dropped,
    Event,
    FenceRaised,
    KeeperLate,
    Lost,
    Released,
    ReleaseFailed,
    RenewalFailed,
    Renewed,
    RunSkipped,
    StoreReached,
    StoreUnreachable,
    TimedOut,
    Waiting,
)

__all__ = [
    "Acquired",
    "Broken",
    "Dropped",
    "Event",
    "FenceRaised",
    "KeeperLate",
    "Lost",
    "ReleaseFailed",
    "Released",
    "RenewalFailed",
    "Renewed",
    "RunSkipped",
    "StoreReached",
    "StoreUnreachable",
    "TimedOut",
    "Waiting",
]
