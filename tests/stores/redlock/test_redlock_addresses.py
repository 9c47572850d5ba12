"""Which nodes a URL or clients of the user's own lead to, and with which settings. Nothing is connected."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redis.wire import Node as Address
from leasehold._backends.redlock.store import adopt
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime
from leasehold._urls import find_store
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.spi import Runtime

URL = "redlock://ana:pw@n1:7001,n2,n3:7003/4?answer_timeout=80ms&max_ttl=45"


def connections(store: Any) -> list[Any]:
    """redis-py's connection to each node, as it would be opened."""
    return [dialer.connection("redis.connection", address) for dialer, address in store._servers]


def test_every_node_of_a_url_is_known_by_its_own_port_and_all_have_the_same_settings() -> None:
    made = connections(find_store(URL))
    assert [(each.host, each.port) for each in made] == [("n1", 7001), ("n2", 6379), ("n3", 7003)]
    for each in made:
        assert (type(each).__name__, each.username, each.password, each.db) == ("Connection", "ana", "pw", 4)
        assert (each.socket_connect_timeout, each.socket_timeout) == (1.0, 1.0), "less than for a single server"


def test_options_of_a_url_reach_the_connections_of_every_node() -> None:
    for each in connections(find_store("redlock://n1,n2,n3?tls=yes&socket_connect_timeout=3&socket_timeout=4&db=5")):
        assert (type(each).__name__, each.db) == ("SSLConnection", 5)
        assert (each.socket_connect_timeout, each.socket_timeout) == (3.0, 4.0)


@pytest.mark.parametrize("runtime", [ThreadRuntime, AsyncioRuntime])
def test_options_of_a_url_reach_the_store_and_every_node(runtime: Callable[[], Runtime]) -> None:
    store: Any = find_store(URL)
    assert (store.options.answer_timeout, store.options.max_ttl) == (0.08, 45.0)
    backend: Any = store.open_backend(runtime())
    assert backend._calls._settings == "45000/3", "what all clients must agree on"
    for node in backend._nodes.all:
        assert node.wire._timeout == 0.08


def test_what_a_connection_could_not_deliver_is_known_to_its_own_node() -> None:
    """A node and its blocking connections share it, and no two nodes do."""
    store: Any = find_store("redlock://n1,n2,n3")
    nodes = store.open_backend(ThreadRuntime())._nodes.all
    assert [node.wire._undelivered is node.undelivered for node in nodes] == [True] * 3
    assert len({id(node.undelivered) for node in nodes}) == 3


@pytest.mark.parametrize("module", ["redis", "redis.asyncio"])
def test_clients_of_the_user_s_own_lead_each_to_its_own_server(module: str) -> None:
    redis = importlib.import_module(module)
    clients = [
        redis.Redis(host="n1", port=7001, db=1, username="ana", password="pa"),
        redis.Redis(host="n2", ssl=True, db=2, username="ben", password="pb"),
        redis.Redis(unix_socket_path="/run/n3.sock", db=3),
    ]
    store: Any = adopt(clients, {"max_ttl": "45", "answer_timeout": "80ms"})
    assert [address for _, address in store._servers] == [
        Address("n1", 7001), Address("n2", 6379), Address("localhost", 6379, "/run/n3.sock")
    ]  # fmt: skip
    assert store.label == "redlock://n1:7001,n2:6379,/run/n3.sock"
    assert (store.options.max_ttl, store.options.answer_timeout) == (45.0, 0.08)
    made = connections(store)
    assert [type(each).__name__ for each in made] == ["Connection", "SSLConnection", "UnixDomainSocketConnection"]
    assert [(each.db, each.username, each.password) for each in made] == [
        (1, "ana", "pa"), (2, "ben", "pb"), (3, None, None)
    ]  # fmt: skip


def test_two_clients_with_different_sockets_are_two_nodes() -> None:
    redis = importlib.import_module("redis")
    paths = ["/run/n1.sock", "/run/n2.sock", "/run/n1.sock"]
    clients = [redis.Redis(unix_socket_path=path) for path in paths]
    assert len(connections(adopt(clients[:2], {}))) == 2
    with pytest.raises(ConfigurationError, match=r"/run/n1\.sock is named twice"):
        adopt(clients, {})


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (3, ""),
        (4, "4 nodes survive the loss of 1, no more than 3 nodes do"),
        (6, "6 nodes survive the loss of 2, no more than 5 nodes do"),
        (8, "8 nodes survive the loss of 3, no more than 7 nodes do"),
        (9, ""),
    ],
)
def test_warning_about_an_even_number_says_how_many_may_be_lost(
    count: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="leasehold"):
        find_store("redlock://" + ",".join(f"n{number}" for number in range(count)))
    assert bool(caplog.text) is bool(said)
    assert said in caplog.text
