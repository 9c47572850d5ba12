"""The cases of the contract for a further server of a store whose backend passes them on both runtimes elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["by_turns"]


def by_turns(cases: Sequence[contract.Case], first: int = 0) -> pytest.MarkDecorator:
    """Each case on one runtime, threads and asyncio by turns; two servers that differ in `first` share all pairs."""
    drivers = [contract.DRIVERS[(index + first) % 2] for index in range(len(cases))]
    pairs = [
        pytest.param(case, driver, id=f"{case}-{driver.name}") for case, driver in zip(cases, drivers, strict=True)
    ]
    return pytest.mark.parametrize(("case", "driver"), pairs)
