"""Workers that end with their test, and the two runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from leasehold.testing.contract.lab import Child
from tests.stores.session_stories import LONG
from tests.stores.support import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def kind_of_worker() -> type[Worker]:
    """Which program a worker runs; a file with a program of its own overrides it."""
    return Worker


@pytest.fixture
def start(kind_of_worker: type[Worker]) -> Iterator[Callable[..., Worker]]:
    """Starts a worker."""
    workers: list[Worker] = []

    def start_worker(*words: object) -> Worker:
        workers.append(kind_of_worker(*words))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.stop()


@pytest.fixture
def child(url: str) -> Iterator[Child]:
    """Another process that holds `job` at the url of its file, with a very long ttl."""
    child = Child(url, "leasehold", "job", str(LONG))
    assert child.line().startswith("held")
    yield child
    child.stop()


@pytest.fixture(params=contract.DRIVERS, ids=lambda kind: kind.name)
def driver(request: pytest.FixtureRequest) -> contract.Driver:
    """Threads, then asyncio."""
    made: contract.Driver = request.param()
    return made
