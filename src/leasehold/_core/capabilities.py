"""Refuses what a store does not promise, before anything is sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leasehold.errors import UnsupportedCapability
from leasehold.spi import Operating
from leasehold.values import Capability, Mode

if TYPE_CHECKING:
    from leasehold.spi import Backend, Inspecting, Pausing

__all__ = ["CAPABILITY_OF_MODE", "HAD_AT", "inspecting", "operating", "pausing", "require"]

CAPABILITY_OF_MODE = {
    Mode.EXCLUSIVE: Capability.EXCLUSIVE,
    Mode.SHARED: Capability.SHARED,
    Mode.PERMIT: Capability.PERMITS,
}

_WITH_RECORDS = "local:, redis://, postgresql://, mysql://, nats:// or etcd://"
_WITH_QUEUES = "any store but Redlock and those with mode=session"

# In the words of a user: what is missing, and where it is to be had; a test compares it with the contract's table.
HAD_AT = {
    Capability.SHARED: ("read/write locks", "any store but Redlock"),
    Capability.PERMITS: ("semaphores", _WITH_QUEUES),
    Capability.FIFO: ("queue of waiters", _WITH_QUEUES),
    Capability.RECORD: ("records, which jobs that run once, caches and idempotency keys need", _WITH_RECORDS),
    Capability.MIN_HOLD: ("min_hold", _WITH_RECORDS),
    Capability.RANGES: (
        "linger, as it keeps no fences free for that",
        "local:, redis://, postgresql://, mysql:// or nats://",
    ),
    Capability.PAUSE: ("way to pause a name", "local:, redis://, postgresql://, mysql:// or nats://"),
}


def require(backend: Backend, capability: Capability) -> None:
    """Raise `UnsupportedCapability` unless the store promises it."""
    if capability not in backend.capabilities:
        what, where = HAD_AT.get(capability, (f"promise of {capability}", "another store: see the table in the README"))
        raise UnsupportedCapability(f"{backend.label} has no {what} ({capability}); use {where}", backend=backend.label)


def inspecting(backend: Backend) -> Inspecting:
    """The port that shows locks."""
    require(backend, Capability.INSPECT)
    return cast("Inspecting", backend)


def operating(backend: Backend) -> Operating:
    """The port for operators, which goes with INSPECT: a lock is broken by the fence that an inspection shows."""
    require(backend, Capability.INSPECT)
    if isinstance(backend, Operating):
        return backend
    raise UnsupportedCapability(
        f"{backend.label} cannot break locks or raise fences; a lock ends there by its release or by its ttl",
        backend=backend.label,
    )


def pausing(backend: Backend) -> Pausing:
    """The port that pauses names."""
    require(backend, Capability.PAUSE)
    return cast("Pausing", backend)
