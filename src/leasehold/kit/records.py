"""Records: small values that expire, each under the highest fence that was seen at its key.

Values and decisions over them. The store brings the mutex or the transaction, and the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.kit.rules import FENCE_KEPT
from leasehold.values import Reading, Record

__all__ = ["KeptRecord", "LocalRecords"]


@dataclass(slots=True)
class KeptRecord:
    """What is stored at one key: a record, and the fence that guards it, which is remembered for longer."""

    fence: int = 0
    fence_until: float = 0.0
    value: bytes = b""
    expires: float = 0.0

    def read(self, key: str, fence: int, now: float, wall: float) -> Reading:
        """The record, if it has not run out; with a fence, refuse to write under a lower one from now on."""
        if fence:
            self._raise_fence(fence, now)
        left = self.expires - now
        record = Record(key, self.value, self.fence, left) if left > 0 else None
        return Reading(record, self.fence, wall)

    def write(self, record: Record, now: float) -> bool:
        """Store it, unless a higher fence was seen here."""
        if record.fence < self.fence:
            return False
        self._raise_fence(record.fence, now)
        self.value, self.expires = record.value, now + record.ttl
        return True

    def is_over(self, now: float) -> bool:
        """Whether neither the record nor its fence has to be remembered."""
        return max(self.expires, self.fence_until) <= now

    def _raise_fence(self, fence: int, now: float) -> None:
        if fence >= self.fence:
            self.fence, self.fence_until = fence, now + FENCE_KEPT


class LocalRecords:
    """All records of a store in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptRecord] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, key: str, fence: int, now: float, wall: float) -> Reading:
        """Read a record; a key that was never used is not kept unless a fence was given."""
        kept = self._find(key, now)
        if fence:
            self._kept[key] = kept
        return kept.read(key, fence, now, wall)

    def write(self, record: Record, now: float) -> bool:
        """Write a record."""
        kept = self._find(record.key, now)
        written = kept.write(record, now)
        if written:
            self._kept[record.key] = kept
        return written

    def sweep(self, now: float) -> None:
        """Forget what has run out."""
        self._kept = {key: kept for key, kept in self._kept.items() if not kept.is_over(now)}

    def _find(self, key: str, now: float) -> KeptRecord:
        kept = self._kept.get(key)
        return KeptRecord() if kept is None or kept.is_over(now) else kept
