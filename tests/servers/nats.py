"""NATS servers: one of each kind for a file of tests; idle ones would be busy with each other.

A test that stops, cuts off or reconfigures a server makes one of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.lab.nats import NatsCluster, NatsServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    """One server."""
    with NatsServer() as server:
        yield server


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """A server of one test alone."""
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="module")
def nats_cluster() -> Iterator[NatsCluster]:
    """Three servers."""
    with NatsCluster() as cluster:
        yield cluster
