"""Documents in a dictionary, with the failures that a network has, and a clock that is turned by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DictDocuments", "HandClock", "NotifyingDocuments"]


class HandClock:
    granularity = 0.001

    def __init__(self, instant: float = 1_700_000_000.0) -> None:
        self.instant = instant

    def now(self) -> float:
        return self.instant


class DictDocuments:
    """What several clients share; each failure happens once for each time it is asked for."""

    def __init__(self, now: Callable[[], float | None]) -> None:
        self.stored: dict[str, tuple[int, bytes]] = {}
        self.changes = 0
        self.swaps = 0
        self.conflicts = 0  # other clients are faster so many times
        self.lost_answers = 0  # applied, and no answer
        self.lost_requests = 0  # not applied, and no answer
        self.refused = 0  # surely not applied
        self.closed = False
        self._now = now

    async def load(self, key: str, _until: float, /) -> tuple[bytes | None, Any]:
        version, value = self.stored.get(key, (0, None))
        return value, version

    async def swap(self, key: str, value: bytes | None, seen: Any, _until: float, /) -> bool:
        self.swaps += 1
        if self.refused:
            self.refused -= 1
            raise BackendUnavailable("refused")
        if self.lost_requests:
            self.lost_requests -= 1
            raise OutcomeUnknown("no answer")
        if self.conflicts:
            self.conflicts -= 1
            self.changes += 1
            present = self.stored.get(key, (0, b""))[1]
            if present:
                self.stored[key] = (self.changes, present)
            return False
        if self.stored.get(key, (0, b""))[0] != seen:
            return False
        self.changes += 1
        if value is None:
            self.stored.pop(key, None)
        else:
            self.stored[key] = (self.changes, value)
        self.announce(key)
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("no answer")
        return True

    async def keys(self, prefix: str, /) -> Sequence[str]:
        return [key for key in self.stored if key.startswith(prefix)]

    async def now(self) -> float | None:
        return self._now()

    async def close(self) -> None:
        self.closed = True

    def announce(self, key: str) -> None:
        """Nothing, without watches."""


class NotifyingDocuments(DictDocuments):
    def __init__(self, now: Callable[[], float | None]) -> None:
        super().__init__(now)
        self.watches: dict[str, list[Callable[[], None]]] = {}

    async def watch(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        self.watches.setdefault(key, []).append(changed)
        return lambda: self.watches[key].remove(changed)

    def announce(self, key: str) -> None:
        for changed in list(self.watches.get(key, ())):
            changed()
