"""Which cases of the contract meet which runtime, where a store has several servers or modes that share its code.

Memory and SQLite run every case on both runtimes. On a server each case runs on one of them, by turns, and another
server or mode of the same store takes the other turns. Where a further server runs the same code of ours (another
version, another topology, a pooler), it samples the cases. The long form (`make faults`) runs all pairs everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from tests.forms import long_form

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["by_turns"]


def by_turns(cases: Sequence[contract.Case], first: int = 0, *, every: int = 1) -> pytest.MarkDecorator:
    """Each case on one runtime, threads and asyncio by turns; two servers that differ in `first` share all pairs.

    With `every`, one case in so many; an odd number, so that both runtimes take part.
    """
    turns, every = (range(2), 1) if long_form() else (range(1), every)
    pairs = [
        pytest.param(case, driver, id=f"{case}-{driver.name}")
        for index, case in enumerate(cases)
        if index % every == first % every
        for driver in (contract.DRIVERS[(index + first + turn) % 2] for turn in turns)
    ]
    return pytest.mark.parametrize(("case", "driver"), pairs)
