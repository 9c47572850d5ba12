"""What a store must do with a capability that it does not declare: refuse, by name, before any I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._record import replace
from leasehold.errors import UnsupportedCapability
from leasehold.testing.contract.expect import raises
from leasehold.values import Capability, Grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.testing.contract.lab import Lab

__all__ = ["check_absent"]


async def check_absent(lab: Lab, capability: Capability) -> None:
    """Check that asking for it is refused, or that there is nothing to ask."""
    client = lab.client()
    askings: dict[Capability, Callable[[], object]] = {
        Capability.SHARED: lambda: client.rwlock("x"),
        Capability.PERMITS: lambda: client.semaphore("x", 2),
        Capability.MIN_HOLD: lambda: client.lock("x", min_hold=1),
    }
    if capability in askings:
        try:
            askings[capability]()
        except UnsupportedCapability as refusal:
            assert capability in str(refusal)
        else:
            raise AssertionError(f"{capability} is not declared, and was not refused either")
    elif capability is Capability.ABANDONED:
        grant = await lab.backend().try_acquire(lab.claim())
        assert isinstance(grant, Grant)
        assert grant.abandoned is None, "a store that cannot tell must not guess"
    elif capability is Capability.RECORD:
        assert not hasattr(lab.backend(), "write"), "no method may be a stub"
    elif capability is Capability.PAUSE:
        assert not hasattr(lab.backend(), "pause"), "no method may be a stub"
        assert capability in str(await raises(UnsupportedCapability, client.pause("x", reason="r")))
    elif capability is Capability.RANGES:
        grant = await lab.backend().try_acquire(replace(lab.claim(), spare=5))
        assert isinstance(grant, Grant)
        assert grant.spare == 0, "fences that another grant may get must not be given out"
    elif capability is Capability.FIFO:
        assert not hasattr(lab.backend(), "join"), "no method may be a stub"
