"""The options of a Redis URL, what becomes of them, and the stored form of a holder."""

from __future__ import annotations

import importlib.util
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.redis.inspect import read_holder
from leasehold._backends.redis.options import Options
from leasehold._backends.redis.wire import Node
from leasehold._urls import find_store
from leasehold.kit.holder import holder_to_json
from leasehold.values import Holder

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer


def store(url: str) -> Any:
    return find_store(url)


def connection(url: str, node: Node = Node("h")) -> Any:  # noqa: B008 - a tuple
    """redis-py's connection, as it would be opened."""
    return store(url).dialer.connection("redis.connection", node)


def test_options_have_their_defaults() -> None:
    assert store("redis://h").options == Options()
    assert store("redis://h?compat=1").options == Options(compat=True, prefix="")


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        ("prefix=mine:", "prefix", "mine:"),
        ("prefix=", "prefix", ""),
        (f"prefix={'x' * 128}", "prefix", "x" * 128),
        ("compat=yes&prefix=x", "prefix", "x"),
        ("acks=2", "acks", 2),
        ("acks_timeout=50ms", "acks_timeout", 0.05),
        ("answer_timeout=0.5", "answer_timeout", 0.5),
        ("answer_timeout=1m", "answer_timeout", 60.0),
        ("fence_floor=7", "fence_floor", 7),
        ("strict=1", "strict", 30.0),
        ("strict=yes", "strict", 30.0),
        ("strict=1s", "strict", 1.0),
        ("strict=45", "strict", 45.0),
        ("strict=500ms", "strict", 0.5),
        ("strict=0", "strict", 0.0),
        ("strict=no", "strict", 0.0),
    ],
)
def test_options_are_read(query: str, name: str, value: object) -> None:
    assert getattr(store(f"redis://h?{query}").options, name) == value


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://h?command_timeout=1", "redis: has no option 'command_timeout'; it is called answer_timeout here"),
        ("rediss://h?ssl_ca_certs=x", "rediss: has no option 'ssl_ca_certs'; it is called tls_ca here"),
        ("rediss://h?ssl_certfile=x", "it is called tls_cert here"),
        ("rediss://h?ssl_keyfile=x", "it is called tls_key here"),
        ("rediss://h?ssl_password=x", "it is called tls_key_password here"),
        ("rediss://h?ssl_cert_reqs=none", "it is called tls_verify here"),
        ("redis://h?tls_ca=x", "tls_ca has no meaning without TLS; write rediss://"),
        ("valkey://h?ssl_ciphers=x", "ssl_ciphers has no meaning without TLS; write valkeys://"),
        ("redis+cluster://h?tls_ca=x", r"write rediss\+cluster:// or add tls=yes"),
        ("redis://h?tls=yes", "redis: has no option 'tls'"),
        ("redis://h?sentinel_password=x", "has no option 'sentinel_password'"),
        ("unix:///run/x.sock?tls_ca=x", "unix: has no option 'tls_ca'"),
        ("rediss://h?ssl_min_version=SSLv9", "ssl_min_version must be TLSv1_2 or TLSv1_3, not 'SSLv9'"),
        ("rediss://h?tls_cert=x", "a client certificate needs its key"),
        ("redis://h?strict=soon", "strict must look like"),
        ("redis://h?strict=2h", "strict must be from 0 s to 3600 s"),
        ("redis://h?prefix={x}", "prefix must not contain braces"),
        ("redis://h/x", "the path is the number of a database, not 'x'"),
        ("redis://h?db=x", "db must be a whole number"),
        ("redis+cluster://h/1", "a Cluster has one database, 0"),
        ("redis+sentinel://h/s/1", r"the database is an option: \?db=1"),
        ("redis://h?retry=1", "has no option 'retry'"),
        ("redis://h1,h2,h3", "redis: takes one host, and this URL names 3"),
        ("unix://h/run/x.sock", "takes the path of a socket: unix:///run/redis.sock"),
        ("unix://", "takes the path of a socket"),
        ("unix:///run/x.sock?ssl_ciphers=x", "unix: has no option 'ssl_ciphers'"),
        ("redis+sentinel://h1,h2", "needs the name of the service: redis[+]sentinel://h1,h2,h3/mymaster"),
        (f"redis://h?prefix={'x' * 129}", "prefix must be at most 128 printable characters"),
        ("redis://h?prefix=a%0Ab", "prefix must be at most 128 printable characters, not 'a.nb'"),
    ],
)
def test_bad_options_are_refused_with_what_to_write_instead(url: str, why: str) -> None:
    with pytest.raises(leasehold.ConfigurationError, match=why):
        store(url)


def test_options_of_redis_py_reach_its_connections() -> None:
    made = connection("redis://u:p@h/3?client_name=me&socket_timeout=7&socket_connect_timeout=500ms&protocol=3")
    assert (made.username, made.password, made.db, made.client_name) == ("u", "p", 3, "me")
    assert (made.socket_timeout, made.socket_connect_timeout) == (7.0, 0.5)
    assert connection("redis://h?db=4&username=x&password=y").db == 4


def test_names_for_tls_are_mapped_to_those_of_redis_py() -> None:
    made = connection("rediss://h?tls_ca=a&tls_cert=b&tls_key=c&tls_key_password=d&ssl_min_version=TLSv1_3")
    assert (made.ca_certs, made.certfile, made.keyfile, made.certificate_password) == ("a", "b", "c", "d")
    assert made.cert_reqs == ssl.CERT_REQUIRED
    assert made.check_hostname
    assert made.ssl_min_version is ssl.TLSVersion.TLSv1_3
    careless = connection("rediss://h?tls_verify=no")
    assert careless.cert_reqs == ssl.CERT_NONE
    assert not careless.check_hostname
    nameless = connection("redis+cluster://h?tls=1&ssl_check_hostname=no")
    assert nameless.cert_reqs == ssl.CERT_REQUIRED
    assert not nameless.check_hostname


@pytest.mark.parametrize(
    ("query", "hands_over"),
    [("", True), ("?prefix=a&acks_timeout=3", True), ("?compat=1", False), ("?acks=1", False), ("?strict=1s", False)],
)
def test_release_makes_the_next_waiter_the_holder_where_nothing_has_to_be_proved(query: str, hands_over: bool) -> None:
    assert store(f"redis://h{query}").options.hands_over is hands_over


@pytest.mark.parametrize("missing", [("redis",), ("hiredis",), ("redis", "hiredis")])
def test_driver_that_is_missing_is_named_with_how_to_install_it(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    with pytest.raises(leasehold.ConfigurationError) as caught:
        store("redis://h")
    assert str(caught.value).startswith(f"the redis store needs {' and '.join(missing)}, which is not installed: pip")


def test_sentinels_have_credentials_of_their_own() -> None:
    url = "redis+sentinel://u:p@h/service?sentinel_username=su&sentinel_password=sp&db=2"
    assert (connection(url).username, connection(url).db) == ("u", 2)
    sentinel = connection(url, Node("s", is_sentinel=True))
    assert (sentinel.username, sentinel.password, sentinel.db) == ("su", "sp", 0)


def test_a_client_of_the_users_own_takes_the_options_of_the_store_only() -> None:
    import redis

    with pytest.raises(leasehold.ConfigurationError, match="a Redis client has no option 'tls_ca'; it takes acks"):
        leasehold.connect(redis.Redis(), options={"tls_ca": "x"})
    with pytest.raises(leasehold.ConfigurationError, match="it is called answer_timeout here"):
        leasehold.connect(redis.Redis(), options={"command_timeout": 1})


@pytest.mark.parametrize(
    ("stored", "holder"),
    [
        (b'["db-3",4711,"nightly",null]', Holder("db-3", 4711, "nightly", None)),
        (holder_to_json(Holder("db-3", 4711, None, "why")).encode(), Holder("db-3", 4711, None, "why")),
        (b'{"v":2,"host":"h","pid":1,"colour":"red"}', Holder("h", 1)),
        (b'["db-3",4711]', None),
        (b'["db-3","x",null,null]', None),
        (b"7", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_a_stored_holder_is_read_in_its_form_and_in_that_of_earlier_clients(
    stored: bytes, holder: Holder | None
) -> None:
    assert read_holder(stored) == holder


def test_a_holder_is_stored_as_a_json_object_and_that_of_an_earlier_client_is_shown(redis_server: RedisServer) -> None:
    redis_server.flush()
    with leasehold.connect(redis_server.url, label="nightly") as client, client.lock("x").hold():
        stored = json.loads(redis_server.ask("HGET", "leasehold:{leasehold:x}:s", "d"))
        assert (stored["v"], stored["label"]) == (1, "nightly")
        redis_server.ask("HSET", "leasehold:{leasehold:x}:s", "d", '["db-3",4711,"old",null]')
        with leasehold.connect(redis_server.url) as other:
            with pytest.raises(leasehold.AcquireTimeout) as caught:
                other.lock("x").acquire(timeout=0)
            assert caught.value.holder == Holder("db-3", 4711, "old", None)
            (state,) = other.locks()
            assert state.holdings[0].holder == Holder("db-3", 4711, "old", None)
