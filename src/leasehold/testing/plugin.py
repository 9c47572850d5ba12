"""pytest fixtures: a store with a manual clock, a function that takes leases away, and a check that none are left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease
    from leasehold.testing.manual import ManualStore

__all__ = ["leasehold_store", "lose_lease", "no_leaked_leases"]

# Only tests that ask for a fixture pay for its imports.


@pytest.fixture
def leasehold_store() -> Iterator[ManualStore]:
    """A `ManualStore`: connect() and connect_async() give clients, `clock` and `faults` make trouble."""
    from leasehold.testing.manual import ManualStore  # noqa: PLC0415

    store = ManualStore()
    yield store
    store.close()


@pytest.fixture
def lose_lease() -> Callable[[Lease | AsyncLease], None]:
    """A function that takes a lease away now, from its holder's point of view, whatever store it is from."""
    from leasehold.testing.losing import lose  # noqa: PLC0415

    return lose


@pytest.fixture
def no_leaked_leases(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if it leaves a lock held, in any client of this process or in its `leasehold_store`."""
    from leasehold.testing.leaks import held_names  # noqa: PLC0415

    stores = [request.getfixturevalue("leasehold_store")] if "leasehold_store" in request.fixturenames else []
    before = held_names(stores)
    yield
    leaked = held_names(stores) - before
    if leaked:
        names = ", ".join(map(repr, sorted({name for name, _ in leaked})))
        pytest.fail(f"the test has left {names} held; release every lease, or use `with lock.hold():`", pytrace=False)
