"""A client, for the fences of its leases; which store gives them does not matter to a guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import leasehold

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    """Of a store in memory."""
    with leasehold.connect("memory://") as client:
        yield client
