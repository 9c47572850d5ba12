"""NATS servers: one of each kind for the session, started when the first test asks for it.

A test that stops, cuts off or reconfigures a server makes one of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.lab.nats import NatsCluster, NatsServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """One server."""
    with NatsServer() as server:
        yield server


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """A server of one test alone."""
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="session")
def nats_cluster() -> Iterator[NatsCluster]:
    """Three servers."""
    with NatsCluster() as cluster:
        yield cluster
