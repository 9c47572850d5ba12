from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.memory import MemoryStore
from leasehold._urls import SCHEMES, find_store
from leasehold.errors import ConfigurationError
from leasehold.store_url import StoreURL, spelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_there_is_no_silent_default_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEHOLD_URL", raising=False)
    with pytest.raises(ConfigurationError, match="LEASEHOLD_URL"):
        leasehold.connect()


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_URL", "memory://from-the-environment")
    with leasehold.connect() as client, client.lock("x").hold():
        with leasehold.connect("memory://from-the-environment") as same:
            assert same.lock("x").try_acquire() is None


def test_a_memory_store_is_private_unless_it_has_a_name() -> None:
    with leasehold.connect("memory://") as one, leasehold.connect("memory://") as two, one.lock("x").hold():
        assert two.lock("x").acquire(timeout=0).release()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://host",
        "memory://a/b",
        "memory://a?x=1",
        "memory://h:1",
        "memory://u@h",
        "memory://#f",
        "memory://a,b",
        "memory://h:0",
        "memory://h:x",
        "memory://h:99999",
        "memory://::1",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_before_any_io(url: str) -> None:
    with pytest.raises(ConfigurationError):
        leasehold.connect(url)


def test_schemes_of_every_kind_of_redis_are_named_to_who_asked_for_another() -> None:
    with pytest.raises(ConfigurationError, match=r"no store has the scheme 'rediss\+sentinal'") as caught:
        leasehold.connect("rediss+sentinal://h1/mymaster")
    for scheme in ("redis", "redis+sentinel", "redis+cluster", "redlock"):
        assert f"{scheme}," in str(caught.value)


def test_no_text_of_a_url_shows_its_password() -> None:
    url = StoreURL.parse("redis://user:hunter2@host:6379/0?password=hunter2")
    assert "hunter2" not in str(url)
    assert "hunter2" not in repr(url)
    assert str(url) == "redis://user@host:6379/0"
    with pytest.raises(ConfigurationError) as refused:
        leasehold.connect("nosuch://user:hunter2@host")
    assert "hunter2" not in str(refused.value)


def test_what_is_no_store_is_refused_by_its_type() -> None:
    with pytest.raises(ConfigurationError, match="dict"):
        leasehold.connect({})


@pytest.mark.parametrize("face", [leasehold.connect, leasehold.connect_async])
def test_options_beside_a_url_are_refused_because_the_url_says_them(face: Callable[..., object]) -> None:
    with pytest.raises(ConfigurationError, match="with a URL they are part of it"):
        face("redis://localhost", options={"acks": 1})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ack": 1}, r"no option 'ack'; did you mean acks\? it takes acks, "),
        ({"acks": [1]}, "acks must be a text, a number"),
        ({"acks": -1}, "whole number from 0 to 100"),
        ({"compat": 2}, "compat must be yes or no"),
        ({"prefix": "{a}"}, "braces"),
    ],
)
def test_wrong_options_of_a_client_of_the_users_own_are_refused_before_anything_is_sent(
    options: dict[str, object], complaint: str
) -> None:
    redis = importlib.import_module("redis")
    with pytest.raises(ConfigurationError, match=complaint):
        leasehold.connect(redis.Redis(port=1), options=options)


def test_a_url_may_name_several_hosts() -> None:
    url = StoreURL.parse("redis+cluster://u:secret@h1:7001,h2,[::1]:7003,[::2]/x")
    assert url.hosts == (("h1", 7001), ("h2", None), ("::1", 7003), ("::2", None))
    assert str(url) == "redis+cluster://u@h1:7001,h2,[::1]:7003,[::2]/x"
    with pytest.raises(ConfigurationError, match="one host"):
        url.refuse_several_hosts()


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("redis://h", ("redis", (("h", None),), "", None, None, {})),
        ("REDIS://H:65535/0", ("redis", (("H", 65535),), "/0", None, None, {})),
        ("redis://h:1/a%2Fb", ("redis", (("h", 1),), "/a/b", None, None, {})),
        ("redis://u%40x:p%3A%2F@h", ("redis", (("h", None),), "", "u@x", "p:/", {})),
        ("redis://:p@h", ("redis", (("h", None),), "", "", "p", {})),
        ("redis://u:@h", ("redis", (("h", None),), "", "u", "", {})),
        ("redis://u@h?a=&b=%26", ("redis", (("h", None),), "", "u", None, {"a": "", "b": "&"})),
        ("sqlite:/x y", ("sqlite", (("", None),), "/x y", None, None, {})),
        ("local:", ("local", (("", None),), "", None, None, {})),
        ("memory://with%20space", ("memory", (("with space", None),), "", None, None, {})),
    ],
)
def test_a_url_is_taken_apart(text: str, facts: tuple[object, ...]) -> None:
    url = StoreURL.parse(text)
    assert (url.scheme, url.hosts, url.path, url.username, url.password, url.options) == facts
    assert (url.host, url.port) == url.hosts[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("secret", "has no scheme"),
        ("redis://u:secret@h#f", "write it as %23"),
        ("redis://u:secret@h?a=1&a=2", "the same option twice"),
        ("redis://u:secret@[::1", "cannot be read"),
        ("redis://u:secret@h:0", "no number from 1 to 65535"),
        ("redis://u:secret@h:65536", "no number from 1 to 65535"),
        ("redis://u:secret@h:\u0663", "no number from 1 to 65535"),
        ("redis://u:secret@a:b:7", r"write an IPv6 address as \[::1\]"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_without_repeating_it(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        StoreURL.parse(text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:secret@h", "redis://h"),
        ("redis://u:secret@[::1]:7/0?x=secret", "redis://u@[::1]:7/0"),
        ("sqlite:////a/b", "sqlite:////a/b"),
    ],
)
def test_how_a_url_is_shown(text: str, shown: str) -> None:
    assert str(StoreURL.parse(text)) == shown


@pytest.mark.parametrize(
    ("known", "complaint"), [(("a", "c"), "redis: has no option 'b'; it takes a, c"), ((), "it takes none")]
)
def test_an_option_that_a_store_does_not_know_is_refused_by_name(known: tuple[str, ...], complaint: str) -> None:
    url = StoreURL.parse("redis://h?b=1")
    url.refuse_options("b")
    with pytest.raises(ConfigurationError, match=complaint):
        url.refuse_options(*known)


def test_options_are_spelled_as_a_url_would() -> None:
    assert spelled({"a": True, "b": False, "c": 1.5, "d": 7, "e": "text"}) == {
        "a": "1", "b": "0", "c": "1.5", "d": "7", "e": "text",
    }  # fmt: skip
    for value in (None, [1], b"x"):
        with pytest.raises(ConfigurationError, match="option acks must be a text"):
            spelled({"acks": value})


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("LEASEHOLD_URL", "LEASEHOLD_URL_FILE", "LEASEHOLD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_file_may_hold_the_url(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "url"
    environment.setenv("LEASEHOLD_URL_FILE", str(file))
    file.write_text("  memory://of-a-file\n")
    with leasehold.connect() as client:
        assert client.store == "memory://of-a-file"
    for wrong in ("", " \n", "memory://a memory://b"):
        file.write_text(wrong)
        with pytest.raises(ConfigurationError, match=r"\(LEASEHOLD_URL_FILE\) must hold one store URL"):
            leasehold.connect()
    file.write_bytes(b"redis://u:\xff@h")
    with pytest.raises(ConfigurationError, match="cannot read the store URL"):
        leasehold.connect()
    file.unlink()
    with pytest.raises(ConfigurationError, match="cannot read the store URL"):
        leasehold.connect()
    environment.setenv("LEASEHOLD_URL", "memory://x")
    with pytest.raises(ConfigurationError, match="are both set"):
        leasehold.connect()


def test_an_empty_variable_is_one_that_is_not_set(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("LEASEHOLD_URL", "memory://x")
    environment.setenv("LEASEHOLD_URL_FILE", "")
    with leasehold.connect() as client:
        assert client.store == "memory://x"
    environment.setenv("LEASEHOLD_URL", "")
    with pytest.raises(ConfigurationError, match="no store was named"):
        leasehold.connect()


@pytest.mark.parametrize("face", [leasehold.connect, leasehold.connect_async])
def test_a_url_that_is_given_but_empty_is_not_the_environments(
    face: Callable[[str], object], environment: pytest.MonkeyPatch
) -> None:
    """A variable of the program's own that was not set must not lead to another store."""
    environment.setenv("LEASEHOLD_URL", "memory://x")
    with pytest.raises(ConfigurationError):
        face("")


@pytest.mark.parametrize("face", [leasehold.connect, leasehold.connect_async])
def test_the_namespace_that_is_given_counts_and_else_that_of_the_environment(
    face: Callable[..., Any], environment: pytest.MonkeyPatch
) -> None:
    def namespace(**given: str) -> str:
        client = face("memory://", **given)
        found: str = getattr(client, "_twin", client)._namespace
        return found

    assert namespace() == "leasehold"
    environment.setenv("LEASEHOLD_NAMESPACE", "shop")
    assert (namespace(), namespace(namespace="own")) == ("shop", "own")
    with pytest.raises(ConfigurationError, match="a namespace must not be empty"):
        namespace(namespace="")
    environment.setenv("LEASEHOLD_NAMESPACE", "")
    assert namespace() == "leasehold"


def test_options_beside_a_store_are_refused_too() -> None:
    with pytest.raises(ConfigurationError, match="options= goes with a client of your own"):
        leasehold.connect(MemoryStore(), options={"acks": 1})
    leasehold.connect(MemoryStore(), options={}).close()


STORES = {
    "etcd": ("etcd", "etcds"),
    "memory": ("memory",),
    "mysql": ("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"),
    "nats": ("nats", "nats+tls"),
    "postgres": ("postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"),
    "redis": (
        "redis", "rediss", "valkey", "valkeys", "unix", "redis+cluster", "rediss+cluster", "valkey+cluster",
        "valkeys+cluster", "redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel",
    ),
    "redlock": ("redlock",),
    "sqlite": ("sqlite", "local"),
    "zookeeper": ("zk", "zks"),
}  # fmt: skip


def test_every_scheme_leads_to_its_store() -> None:
    expected = {scheme: f"leasehold._backends.{store}" for store, schemes in STORES.items() for scheme in schemes}
    assert expected | {"memory+unix": "leasehold.testing.shared"} == SCHEMES
    for module in set(SCHEMES.values()):
        assert callable(importlib.import_module(module).open_url)


@pytest.mark.parametrize(
    ("package", "store"),
    [
        ("asyncpg", "postgres"),
        ("kazoo", "zookeeper"),
        ("psycopg", "postgres"),
        ("psycopg_pool", "postgres"),
        ("redis", "redis"),
        ("sqlalchemy", "postgres"),
        ("valkey", "redis"),
    ],
)
def test_a_client_of_the_users_own_is_known_by_the_package_of_its_class_or_of_an_ancestor(
    package: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted: list[tuple[object, dict[str, str]]] = []
    module = importlib.import_module(f"leasehold._backends.{store}")

    def adopt(client: object, options: dict[str, str]) -> MemoryStore:
        adopted.append((client, options))
        return MemoryStore()

    monkeypatch.setattr(module, "adopt", adopt)
    driver = type("Client", (), {"__module__": f"{package}.client.pool"})
    own = type("Wrapped", (driver,), {"__module__": "shop.db"})()
    find_store(own, {"acks": True})
    assert adopted == [(own, {"acks": "1"})]


@pytest.mark.parametrize("several", [list, tuple])
def test_several_clients_are_the_nodes_of_redlock(
    several: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted: list[object] = []
    module = importlib.import_module("leasehold._backends.redlock")

    def adopt(nodes: object, options: dict[str, str]) -> MemoryStore:
        adopted.append((nodes, options))
        return MemoryStore()

    monkeypatch.setattr(module, "adopt", adopt)
    nodes = several([1, 2, 3])
    find_store(nodes, {"quorum": 2})
    assert adopted == [(nodes, {"quorum": "2"})]
