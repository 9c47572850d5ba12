"""Words of messages."""

from __future__ import annotations

__all__ = ["kind_of", "with_article"]

_VOWELS = frozenset("aeioAEIO")  # not u: most names that begin with it are a unit, a URL, a UUID


def with_article(noun: str) -> str:
    """`a str`, `an int`, by the first letter."""
    return f"{'an' if noun[:1] in _VOWELS else 'a'} {noun}"


def kind_of(value: object) -> str:
    """What a value is, for a message that refuses it: `a str`, `an int`."""
    return with_article(type(value).__name__)
