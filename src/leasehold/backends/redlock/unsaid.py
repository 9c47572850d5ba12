"""What one node may not have heard, and must still be told. Its connections and the node itself share it."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.backends.redlock.calls import Call

__all__ = ["Unsaid"]

MOST_UNSAID = 200  # releases that a node which is away will be told


class Unsaid:
    """Calls in the order in which they got lost, each once. When there are too many, the oldest is left to its ttl."""

    def __init__(self) -> None:
        self._calls: OrderedDict[Call, None] = OrderedDict()  # its methods are atomic; threads share it

    def __len__(self) -> int:
        return len(self._calls)

    def keep(self, call: Call) -> None:
        """The node may not have got this; if that matters, it is told."""
        if call.until:
            self._calls[call] = None
            if len(self._calls) > MOST_UNSAID:
                with suppress(KeyError):
                    self._calls.popitem(last=False)

    def take(self, now: float) -> list[Call]:
        """All that still matters; the ttl was quicker for the rest."""
        calls = []
        with suppress(KeyError):  # nothing is left
            while True:
                calls.append(self._calls.popitem(last=False)[0])
        return [call for call in calls if call.until > now]
