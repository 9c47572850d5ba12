"""Two clients, called first and second, on one store whose clock is turned by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing.manual import ManualStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._blocking import Client


@pytest.fixture
def store() -> ManualStore:
    return ManualStore()


@pytest.fixture
def client(store: ManualStore) -> Iterator[Client]:
    with store.connect(label="first") as client:
        yield client


@pytest.fixture
def other(store: ManualStore) -> Iterator[Client]:
    with store.connect(label="second") as client:
        yield client
