"""The subjects that a client watches, whichever connection serves them.

JetStream publishes every change of the bucket once more after it was stored (the bucket's `republish`), below a subject
of its own. The subject of the document itself would be too early: its subscribers receive a change before it is stored,
and also one that is refused. A message may be lost, and a connection may die: every waiter asks again within its
re-check in any case, so that costs time, never the lock.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from leasehold._backends.nats.connection import INBOX_NUMBER
from leasehold._backends.nats.wire import subscribe

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Watches"]


class Watches:
    """What is called for the messages of which subscription. Several threads use it; no step of it can be torn."""

    def __init__(self) -> None:
        self._numbers = count(INBOX_NUMBER + 1)
        self._watches: dict[int, tuple[str, Callable[[], None]]] = {}  # by the number of the subscription

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, subject: str, changed: Callable[[], None]) -> int:
        """A new one; returns the number of its subscription."""
        number = next(self._numbers)
        self._watches[number] = (subject, changed)
        return number

    def remove(self, number: int) -> bool:
        """End one; whether it was there."""
        return self._watches.pop(number, None) is not None

    def subscriptions(self) -> bytes:
        """What a new connection has to send."""
        return b"".join(subscribe(subject, number) for number, (subject, _) in list(self._watches.items()))

    def deliver(self, number: str) -> None:
        """A message arrived."""
        watch = self._watches.get(int(number))
        if watch is not None:
            watch[1]()

    def notify_all(self) -> None:
        """Messages may have been missed."""
        for _, changed in list(self._watches.values()):
            changed()
