"""Which cases of the contract meet which runtime, where a store has several servers or modes that share its code.

Memory and SQLite run every case on both runtimes. On a server each case runs on one of them, by turns, and another
server or mode of the same store takes the other turns. The long form (`make faults`) runs all pairs everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from tests.forms import long_form

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["by_turns"]


def by_turns(cases: Sequence[contract.Case], first: int = 0) -> pytest.MarkDecorator:
    """Each case on one runtime, threads and asyncio by turns; two servers that differ in `first` share all pairs."""
    turns = range(2) if long_form() else range(1)
    pairs = [
        pytest.param(case, driver, id=f"{case}-{driver.name}")
        for index, case in enumerate(cases)
        for driver in (contract.DRIVERS[(index + first + turn) % 2] for turn in turns)
    ]
    return pytest.mark.parametrize(("case", "driver"), pairs)
