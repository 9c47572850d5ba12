"""Randomness from the operating system, for both runtimes.

Not `random` and `secrets`: loading them costs a cron job several milliseconds, and a forked child would have to be kept
from drawing the same numbers as its parent.
"""

from __future__ import annotations

from os import urandom

__all__ = ["fresh_owner", "jitter"]


def fresh_owner() -> str:
    """128 random bits: knowledge of them is the right to release."""
    return urandom(16).hex()


def jitter() -> float:
    """A number in [0, 1), with all the digits that a float has."""
    return (int.from_bytes(urandom(7), "big") >> 3) / 2**53
