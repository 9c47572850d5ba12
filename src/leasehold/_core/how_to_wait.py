"""How one call waits for a lock: in the queue or by trying again, and whom it tells meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.backoff import Backoff
    from leasehold.values import Holder

__all__ = ["QUEUE_OR_POLL", "HowToWait"]


class HowToWait(NamedTuple):
    """The checked form of the options of `acquire` and `hold`."""

    backoff: Backoff | None = None  # try again after its pauses; None: in the store's queue, where it has one
    on_wait: Callable[[int | None, Holder | None, float], object] | None = None


QUEUE_OR_POLL = HowToWait()
