"""Workers that end with their test, and the two runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from tests.stores.support import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    """Starts a worker."""
    workers: list[Worker] = []

    def start_worker(*words: object) -> Worker:
        workers.append(Worker(*words))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.stop()


@pytest.fixture(params=contract.DRIVERS, ids=lambda kind: kind.name)
def driver(request: pytest.FixtureRequest) -> contract.Driver:
    """Threads, then asyncio."""
    made: contract.Driver = request.param()
    return made
