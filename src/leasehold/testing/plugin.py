"""pytest fixtures: `leasehold_store` is a store with a hand-turned clock, fresh for every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leasehold.testing.manual import ManualStore

__all__ = ["leasehold_store"]


@pytest.fixture
def leasehold_store() -> ManualStore:
    """A `ManualStore`: connect() and connect_async() give clients, `clock` and `faults` make trouble."""
    from leasehold.testing.manual import ManualStore  # noqa: PLC0415 - only tests that ask for it pay for the import

    return ManualStore()
