"""Releases and withdrawals that one node may have missed; sent again when it answers again."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold._backends.redlock.calls import Call

__all__ = ["Undelivered"]

MOST_UNDELIVERED = 200  # calls kept for a node that is away


class Undelivered:
    """Calls in the order in which they got lost, each once. When there are too many, the oldest is left to its ttl.

    A node and its connections share it, and so do threads.
    """

    def __init__(self) -> None:
        self._calls: OrderedDict[Call, None] = OrderedDict()  # its methods are atomic

    def __len__(self) -> int:
        return len(self._calls)

    def keep(self, call: Call) -> None:
        """The node may have missed this call. One without an end need not be sent again."""
        if call.until:
            self._calls[call] = None
            if len(self._calls) > MOST_UNDELIVERED:
                with suppress(KeyError):
                    self._calls.popitem(last=False)

    def take(self, now: float) -> list[Call]:
        """All that still matter; for the rest the ttl is over."""
        calls = []
        with suppress(KeyError):  # nothing is left
            while True:
                calls.append(self._calls.popitem(last=False)[0])
        return [call for call in calls if call.until > now]
