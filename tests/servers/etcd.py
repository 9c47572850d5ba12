"""etcd servers: one of each kind for a file of tests. Members that nobody uses any more are busy with each other.

A test that stops, cuts off or reconfigures a server makes one of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.lab.etcd import EtcdCluster, EtcdServer

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENESS = 0.8  # etcd looks for expired leases twice a second, and then its members have to agree on their end


@pytest.fixture(scope="module")
def etcd_server() -> Iterator[EtcdServer]:
    """The system's etcd, alone."""
    server = EtcdServer()
    with server:
        yield server


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """A server of one test alone, so that what is left over can be counted."""
    server = EtcdServer()
    with server:
        yield server


@pytest.fixture(scope="module")
def etcd_cluster() -> Iterator[EtcdCluster]:
    """Three members of the newer version."""
    with EtcdCluster(version="3.5") as cluster:
        yield cluster


@pytest.fixture
def crowded_suffixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients begin at the same suffix, and so collide, which else happens once in 64 times."""
    monkeypatch.setattr("leasehold._backends.etcd.keys.FIRST_RANGE", 1)
