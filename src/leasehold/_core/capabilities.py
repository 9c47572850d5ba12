"""Refuses what a store does not promise, before anything is sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leasehold.errors import UnsupportedCapability
from leasehold.spi import Operating
from leasehold.values import Capability, Mode

if TYPE_CHECKING:
    from leasehold.spi import Backend, Inspecting, Pausing

__all__ = ["CAPABILITY_OF_MODE", "inspecting", "operating", "pausing", "require"]

CAPABILITY_OF_MODE = {
    Mode.EXCLUSIVE: Capability.EXCLUSIVE,
    Mode.SHARED: Capability.SHARED,
    Mode.PERMIT: Capability.PERMITS,
}


def require(backend: Backend, capability: Capability) -> None:
    """Raise `UnsupportedCapability` unless the store promises it."""
    if capability not in backend.capabilities:
        raise UnsupportedCapability(
            f"{backend.label} does not promise {capability}; use a store that does: see the table in the README",
            backend=backend.label,
        )


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
