"""Which numbers of a claim this client has revoked. Such a number is never granted again. Pure.

A release that revokes a vote may still be under way, or may be sent much later, when a node is back. If the same claim
were then granted that very number, because nodes still have it, that release would free a live grant.
"""

from __future__ import annotations

from collections import deque

__all__ = ["RevokedNumbers"]


class RevokedNumbers:
    """Numbers by owner, for as long as a node may have votes for them. Several threads may use it, each for a claim."""

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[float, tuple[int, ...]]] = {}
        self._ends: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, owner: str) -> tuple[int, ...]:
        """The numbers that this claim must not be granted."""
        known = self._numbers.get(owner)
        return () if known is None else known[1]

    def note(self, owner: str, number: int, now: float, until: float) -> None:
        """This number is revoked; all those of this claim are remembered until then."""
        before = self.numbers(owner)
        self._numbers[owner] = until, before if number in before else (*before, number)
        self._ends.append((until, owner))
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Drop what is over. What another thread looks up is never away, not even for a moment."""
        while self._ends:
            try:
                end, owner = self._ends.popleft()
            except IndexError:  # another thread was quicker
                return
            if end > now:
                self._ends.appendleft((end, owner))
                return
            known = self._numbers.get(owner)
            if known is not None and known[0] <= now:
                self._numbers.pop(owner, None)
