"""Which servers a URL or a client of the user's own leads to, and with which settings. Nothing is connected."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import pytest

from leasehold._backends.redis.store import adopt
from leasehold._backends.redis.topology import OneServer
from leasehold._backends.redis.wire import Node
from leasehold._urls import find_store
from leasehold.errors import ConfigurationError

OWN = pytest.mark.parametrize("module", ["redis", "redis.asyncio"])


def servers(store: Any) -> list[Node]:
    """Those that are asked first."""
    topology: Any = store._topology()
    if isinstance(topology, OneServer):
        return [topology.only]
    return list(getattr(topology, "_sentinels", None) or topology._seeds)


def connection(store: Any, node: Node | None = None) -> Any:
    """redis-py's connection, as it would be opened."""
    return store.dialer.connection("redis.connection", node or servers(store)[0])


# --- from a URL


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("redis://db-3:7001", [Node("db-3", 7001)]),
        ("valkey://db-3", [Node("db-3", 6379)]),
        ("unix:///run/r.sock", [Node("", 0, "/run/r.sock")]),
        (
            "redis+sentinel://s1,s2:7002,s3/main",
            [Node("s1", 26379, "", True), Node("s2", 7002, "", True), Node("s3", 26379, "", True)],
        ),
        ("redis+cluster://c1:7001,c2,c3:7003", [Node("c1", 7001), Node("c2", 6379), Node("c3", 7003)]),
    ],
)
def test_every_server_of_a_url_is_known_by_its_own_port(url: str, nodes: list[Node]) -> None:
    assert servers(find_store(url)) == nodes


@pytest.mark.parametrize(
    ("url", "kind", "db"),
    [
        ("redis://h/3?db=4", "Connection", 3),
        ("redis://h/0?db=4", "Connection", 0),
        ("redis://h?db=4", "Connection", 4),
        ("rediss://h/3", "SSLConnection", 3),
        ("valkeys://h", "SSLConnection", 0),
        ("unix:///run/r.sock?db=5", "UnixDomainSocketConnection", 5),
        ("redis+cluster://h?tls=yes", "SSLConnection", 0),
        ("redis+cluster://h?tls=no", "Connection", 0),
        ("redis+sentinel://h/main?tls=yes", "SSLConnection", 0),
    ],
)
def test_url_says_whether_there_is_tls_and_which_database(url: str, kind: str, db: int) -> None:
    made = connection(find_store(url))
    assert (type(made).__name__, made.db) == (kind, db)


@pytest.mark.parametrize("url", ["redis://h", "rediss://h", "unix:///run/r.sock", "redis+cluster://h"])
def test_greeting_has_two_seconds_and_speaks_the_older_protocol_where_the_url_says_nothing(url: str) -> None:
    made = connection(find_store(url))
    assert (made.socket_timeout, made.socket_connect_timeout) == (2.0, 2.0)
    assert int(made.protocol) == 2


def test_credentials_in_front_of_the_host_and_as_options_are_the_same() -> None:
    for url in ("redis://ana:pw@h", "redis://h?username=ana&password=pw", "unix:///r.sock?username=ana&password=pw"):
        made = connection(find_store(url))
        assert (made.username, made.password) == ("ana", "pw"), url
    made = connection(find_store("redis://:pw@h"))
    assert (made.username, made.password) == (None, "pw")


def test_service_of_the_sentinels_is_the_one_in_the_path() -> None:
    store: Any = find_store("redis+sentinel://s1/orders?acks=2")
    assert store._topology()._service == "orders"
    assert store.options.acks == 2


# --- from a client of the user's own


@OWN
@pytest.mark.parametrize(
    ("given", "node", "kind", "label"),
    [
        ({"host": "db-3", "port": 7001}, Node("db-3", 7001), "Connection", "redis://db-3:7001"),
        ({"host": "db-3", "ssl": True}, Node("db-3", 6379), "SSLConnection", "rediss://db-3:6379"),
        ({"unix_socket_path": "/run/r.sock"}, None, "UnixDomainSocketConnection", "unix:///run/r.sock"),
    ],
)
def test_client_of_the_user_s_own_leads_to_its_server_with_its_settings(
    module: str, given: dict[str, Any], node: Node | None, kind: str, label: str
) -> None:
    own = importlib.import_module(module).Redis(**given, db=4, username="ana", password="pw", client_name="me")
    store: Any = adopt(own, {"prefix": "app:", "answer_timeout": "750ms"})
    made = connection(store)
    assert (type(made).__name__, store.label) == (kind, label)
    assert (made.db, made.username, made.password, made.client_name) == (4, "ana", "pw", "me")
    assert (store.options.prefix, store.options.answer_timeout) == ("app:", 0.75)
    if node is None:
        assert made.path == "/run/r.sock"
    else:
        assert servers(store) == [node]
        assert (made.host, made.port) == node[:2]


@OWN
@pytest.mark.parametrize(("secure", "kind"), [(False, "Connection"), (True, "SSLConnection")])
def test_sentinels_of_a_client_are_all_asked_with_their_own_credentials(module: str, secure: bool, kind: str) -> None:
    sentinel = {"username": "watch", "password": "wpw", "db": 7}
    manager = importlib.import_module(module).Sentinel([("s1", 7001), ("s2", 7002)], sentinel_kwargs=sentinel)
    own = manager.master_for("orders", username="ana", password="pw", db=4, ssl=secure)
    store: Any = adopt(own, {"strict": "9s"})
    assert servers(store) == [Node("s1", 7001, "", True), Node("s2", 7002, "", True)]
    assert store._topology()._service == "orders"
    assert store.label == "redis+sentinel://s1:7001,s2:7002/orders"
    assert store.options.strict == 9.0
    at_sentinel, at_primary = connection(store), connection(store, Node("p", 7003))
    assert (at_sentinel.username, at_sentinel.password, at_sentinel.db) == ("watch", "wpw", 0)
    assert (at_primary.username, at_primary.password, at_primary.db) == ("ana", "pw", 4)
    assert type(at_primary).__name__ == kind


@pytest.mark.parametrize(("secure", "kind"), [(False, "Connection"), (True, "SSLConnection")])
def test_client_of_a_cluster_gives_its_servers_and_what_a_connection_takes(secure: bool, kind: str) -> None:
    cluster = importlib.import_module("redis.asyncio.cluster")
    nodes = [cluster.ClusterNode("c1", 7001), cluster.ClusterNode("c2", 7002)]
    tls = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "c.pem", "ssl_keyfile": "k.pem"} if secure else {}
    own = cluster.RedisCluster(
        startup_nodes=nodes, username="ana", password="pw", client_name="me", ssl=secure, socket_timeout=7.0, **tls
    )  # fmt: skip
    store: Any = adopt(own, {"fence_floor": "9"})
    assert servers(store) == [Node("c1", 7001), Node("c2", 7002)]
    assert store.label == "redis+cluster://c1:7001,c2:7002"
    assert store.options.fence_floor == 9
    made = connection(store)
    assert type(made).__name__ == kind
    assert (made.username, made.password, made.client_name, made.socket_timeout) == ("ana", "pw", "me", 7.0)
    if secure:
        assert (made.ca_certs, made.certfile, made.keyfile) == ("ca.pem", "c.pem", "k.pem")


class Pool:
    """Of a client whose connections are of another make."""

    class connection_class:
        """Not one of redis-py's."""

    connection_kwargs: ClassVar[dict[str, Any]] = {}


class Strange:
    """A client with such a pool."""

    connection_pool = Pool()


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (object(), "pass a redis-py client or a URL"),
        (Strange(), "cannot lock over a connection_class: pass a URL, or a client with redis-py's own connections"),
    ],
)
def test_client_of_another_make_is_refused_with_what_to_pass_instead(client: object, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        adopt(client, {})
