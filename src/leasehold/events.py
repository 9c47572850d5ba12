"""The events that `client.on_event` passes on; each is also logged to the logger `leasehold`.

They are loaded when they are first used, as all names of `leasehold` are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._lazy import LazyNames

if TYPE_CHECKING:
    from leasehold._core.events import (
        Acquired,
        Dropped,
        Event,
        FenceRaised,
        KeeperLate,
        Lost,
        Released,
        ReleaseFailed,
        RenewalFailed,
        Renewed,
        StoreReached,
        StoreUnreachable,
        TimedOut,
        TtlDiffers,
        Waiting,
    )
    from leasehold._core.wait_events import AcquireFailed, Refused, WaitBegan
    from leasehold._face.operator_events import Broken, NamePaused, NameResumed, RunAgain, RunForgotten
    from leasehold._patterns.cache_events import BuildFailed, Built, CacheRead, FillFailed, FillRefused
    from leasehold._patterns.idempotency_events import Completed, KeyRefused, NotRecorded, Replayed, Unprotected
    from leasehold._patterns.pattern_events import Campaigning, Elected, PartitionTaken, RunEnded, RunSkipped

__all__ = [
    "AcquireFailed",
    "Acquired",
    "Broken",
    "BuildFailed",
    "Built",
    "CacheRead",
    "Campaigning",
    "Completed",
    "Dropped",
    "Elected",
    "Event",
    "FenceRaised",
    "FillFailed",
    "FillRefused",
    "KeeperLate",
    "KeyRefused",
    "Lost",
    "NamePaused",
    "NameResumed",
    "NotRecorded",
    "PartitionTaken",
    "Refused",
    "ReleaseFailed",
    "Released",
    "RenewalFailed",
    "Renewed",
    "Replayed",
    "RunAgain",
    "RunEnded",
    "RunForgotten",
    "RunSkipped",
    "StoreReached",
    "StoreUnreachable",
    "TimedOut",
    "TtlDiffers",
    "Unprotected",
    "WaitBegan",
    "Waiting",
]

_HOMES = {
    "leasehold._core.events": (
        "Acquired", "Dropped", "Event", "FenceRaised", "KeeperLate", "Lost", "Released",
        "ReleaseFailed", "RenewalFailed", "Renewed", "StoreReached", "StoreUnreachable",
        "TimedOut", "TtlDiffers", "Waiting",
    ),
    "leasehold._core.wait_events": ("AcquireFailed", "Refused", "WaitBegan"),
    "leasehold._face.operator_events": ("Broken", "NamePaused", "NameResumed", "RunAgain", "RunForgotten"),
    "leasehold._patterns.cache_events": ("BuildFailed", "Built", "CacheRead", "FillFailed", "FillRefused"),
    "leasehold._patterns.idempotency_events": ("Completed", "KeyRefused", "NotRecorded", "Replayed", "Unprotected"),
    "leasehold._patterns.pattern_events": ("Campaigning", "Elected", "PartitionTaken", "RunEnded", "RunSkipped"),
}  # fmt: skip

if not TYPE_CHECKING:  # so that type checkers refuse a name that is not there
    __getattr__ = LazyNames(__name__, _HOMES).find


def __dir__() -> list[str]:
    return list(__all__)
