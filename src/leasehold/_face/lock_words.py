"""Attributes that locks of other libraries have: reading one explains what to use here.

They are attributes of the class, and not a `__getattr__`, which would make every access to a lock slower. Type checkers
do not see them, and `hasattr` says no.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["LockWords"]


class _ForeignWord:
    def __init__(self, word: str) -> None:
        self._word = word

    def __get__(self, lock: object, kind: type) -> NoReturn:
        from leasehold._face.foreign_words import not_an_attribute  # noqa: PLC0415 - loaded when it is needed

        raise AttributeError(not_an_attribute(self._word))


class LockWords:
    """A part of every lock."""


for _word in (
    "acquired", "extend", "is_acquired", "is_held", "is_locked", "locked", "owned", "reacquire", "refresh", "renew",
    "token", "unlock",
):  # fmt: skip
    setattr(LockWords, _word, _ForeignWord(_word))
