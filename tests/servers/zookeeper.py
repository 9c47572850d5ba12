"""ZooKeeper servers for tests: one alone and an ensemble of three, each for one file of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.lab.zookeeper import Ensemble, ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """A server that many tests share; each uses a root or names of its own."""
    server = ZooKeeperServer(properties={"znode.container.checkIntervalMs": 500})
    with server:
        yield server


@pytest.fixture(scope="module")
def zookeeper_ensemble() -> Iterator[Ensemble]:
    """Three servers that many tests share."""
    with Ensemble() as ensemble:
        yield ensemble
