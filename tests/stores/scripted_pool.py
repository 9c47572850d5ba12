"""A pool with one connection to a database that does not exist."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["ScriptedPool"]


class ScriptedPool:
    """It is its own connection, which answers from a script; the last answer comes again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[Any] = []
        self.taken: list[tuple[float, bool, bool]] = []
        self.given = 0
        self.discarded: list[bool] = []
        self.is_closed = False
        self.is_failed = False

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> Any:
        self.taken.append((until, first, extra))
        return self

    def give(self, _: object) -> None:
        self.given += 1

    def discard(self, _: object, *, dead: bool) -> None:
        self.discarded.append(dead)

    def is_broken(self) -> bool:
        return self.is_failed

    def answer(self, request: object) -> Any:
        """Note what was sent, and raise or return what the script has for it."""
        self.sent.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer
