"""Short and long forms: what `make test` runs is a sample of what `make faults` runs at length."""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["long_form", "sized"]

T = TypeVar("T")


def long_form() -> bool:
    """Whether the long forms shall run."""
    return os.environ.get("LEASEHOLD_LONG_FAULTS") == "1"


def sized(short: T, long: T) -> T:
    """The size of a test: how many kills, rounds, lines."""
    return long if long_form() else short
