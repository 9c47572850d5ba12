"""What the tests of the ZooKeeper store share: a second client that sees the tree, and a proxy before the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.zookeeper.zookeeper_support import OneWayProxy, looking_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

    from verification.lab.zookeeper import ZooKeeperServer


@pytest.fixture
def eye(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A plain kazoo client, which sees the nodes as they are."""
    with looking_at(zookeeper_server) as client:
        yield client


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[OneWayProxy]:
    """Stands before the server; a test makes it lose or delay what passes."""
    between = OneWayProxy((zookeeper_server.host, zookeeper_server.port))
    with between:
        yield between
