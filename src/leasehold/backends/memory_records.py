"""The records of the memory store. It knows values and fences; the store brings the mutex and the time."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.backends.rules import FENCE_KEPT
from leasehold.values import Reading, Record

__all__ = ["Records"]


@dataclass(slots=True)
class _Kept:
    """A record, and the fence that guards its key, which is remembered for longer."""

    fence: int = 0
    fence_until: float = 0.0
    value: bytes = b""
    expires: float = 0.0

    def raise_fence(self, fence: int, now: float) -> None:
        if fence >= self.fence:
            self.fence, self.fence_until = fence, now + FENCE_KEPT

    def is_over(self, now: float) -> bool:
        return max(self.expires, self.fence_until) <= now


class Records:
    """Small values that expire, each under the highest fence that was seen at its key."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, key: str, fence: int, now: float, wall: float) -> Reading:
        """The record, if it has not run out; and let no lower fence write from now on."""
        kept = self._find(key, now)
        if fence:
            kept.raise_fence(fence, now)
            self._kept[key] = kept
        left = kept.expires - now
        record = Record(key, kept.value, kept.fence, left) if left > 0 else None
        return Reading(record, kept.fence, wall)

    def write(self, record: Record, now: float) -> bool:
        """Store it unless a higher fence was here."""
        kept = self._find(record.key, now)
        if record.fence < kept.fence:
            return False
        kept.raise_fence(record.fence, now)
        kept.value, kept.expires = record.value, now + record.ttl
        self._kept[record.key] = kept
        return True

    def sweep(self, now: float) -> None:
        """Forget what has run out."""
        self._kept = {key: kept for key, kept in self._kept.items() if not kept.is_over(now)}

    def _find(self, key: str, now: float) -> _Kept:
        kept = self._kept.get(key)
        return _Kept() if kept is None or kept.is_over(now) else kept
