"""A caller who is as careful as a library without a deadline allows: counts validity itself, and renews in time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CarefulGrant", "addresses", "until_granted"]

RENEWALS = 3  # in a ttl
PAUSE = 0.02


def addresses(url: str) -> list[tuple[str, int]]:
    """Hosts and ports of a store's URL."""
    places = urlsplit(url).netloc.split(",")
    return [(host, int(port)) for host, _, port in (place.rpartition(":") for place in places)]


def until_granted(attempt: Callable[[], Any], timeout: float) -> Any:
    """What an attempt gives, made again and again; None if it stays without success."""
    deadline = time.monotonic() + timeout
    while not (got := attempt()):
        if time.monotonic() > deadline:
            return None
        time.sleep(PAUSE)
    return got


class CarefulGrant:
    """Valid for a ttl from before the request that got or renewed it; `renew` None: the library cannot."""

    fence: int | None = None
    lease: Any = None

    def __init__(
        self, ttl: float, asked: float, release: Callable[[], object], renew: Callable[[], object] | None = None
    ) -> None:
        self._ttl = ttl
        self._deadline = asked + ttl
        self._next = asked + ttl / RENEWALS
        self._release = release
        self._renew = renew
        self._guard = threading.Lock()  # the holder and its watch share a connection

    def remaining(self) -> float:
        """By the caller's clock."""
        return max(0.0, self._deadline - time.monotonic())

    def tick(self) -> None:
        """Renew when a third of the ttl is over; a refusal ends the belief, an error leaves it to the deadline."""
        before = time.monotonic()
        if self._renew is None or before < self._next or before > self._deadline:
            return
        self._next = before + self._ttl / RENEWALS
        with self._guard:
            renewed = self._renew()
        self._deadline = before + self._ttl if renewed else 0.0

    def release(self) -> bool:
        """What the library raises because the lock is gone means no."""
        with self._guard:
            return bool(self._release())
