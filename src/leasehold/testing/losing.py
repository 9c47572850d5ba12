"""Take a lease away in a test, whatever store it is from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease

__all__ = ["lose"]


def lose(lease: Lease | AsyncLease) -> None:
    """Let the holder of this lease find it lost now, with the reason `taken`; the store itself is not asked.

    There the grant lasts until its ttl is over, as it is renewed no more. `ManualStore.lose` ends it there as well.
    """
    twin: Any = getattr(lease, "_twin", lease)
    twin._opened.keeper.lose(twin._tenure, Loss(LossReason.TAKEN, "a test took it away"))
