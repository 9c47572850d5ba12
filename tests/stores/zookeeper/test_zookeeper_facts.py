"""What the doctor of ZooKeeper collects, and what a URL says, as far as no server is needed."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.serialization import GetACL
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from leasehold._backends.zookeeper import doctor
from leasehold._backends.zookeeper.calls import Calls
from leasehold._backends.zookeeper.doctor import Doctor, Facts, Server
from leasehold._backends.zookeeper.options import CLIENT_OPTIONS, Options
from leasehold._backends.zookeeper.store import ZooKeeperStore, adopt, open_url
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.store_url import StoreURL
from tests.stores.zookeeper.zookeeper_scripted import Bench, Script
from tests.waiting import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator


def options(url: str) -> Options:
    return Options.from_url(StoreURL.parse(url))


# --- the doctor


@pytest.fixture
def bench() -> Bench:
    return Bench()


def doctor_of(bench: Bench) -> Doctor:
    pool: Any = None
    calls = Calls(bench.runtime, "the store")
    return Doctor(bench.options, bench.paths, runtime=bench.runtime, calls=calls, pool=pool)


def test_nodes_of_other_programs_are_found_among_the_claims_of_every_lock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = bench.session()
    lines: list[tuple[str, object]] = [
        ("GetChildren", ["b", "a", "c"]),
        ("GetChildren", ["x-a-0000000001", "__lock__-0000000002"]),
        ("GetChildren", NoAuthError()),
        ("GetChildren", ["mine", "b-a-0000000003"]),
    ]
    script = bench.wire.answer = Script(*lines)
    expected = ["/tree/locks/a/__lock__-0000000002", "/tree/locks/c/mine"]
    assert run(doctor_of(bench)._foreign(session)) == expected
    assert [request.path for request in script.requests] == [
        "/tree/locks", "/tree/locks/a", "/tree/locks/b", "/tree/locks/c",
    ]  # fmt: skip
    monkeypatch.setattr(doctor, "MOST_LOCKS", 1)
    bench.wire.answer = Script(*lines[:2])
    assert run(doctor_of(bench)._foreign(session)) == expected[:1]
    bench.wire.answer = Script(("GetChildren", NoNodeError()))
    assert run(doctor_of(bench)._foreign(session)) == []


@pytest.mark.parametrize(
    ("answer", "value", "refused"),
    [("rights", "rights", {}), (NoNodeError(), None, {}), (NoAuthError(), None, {"the rights": "NoAuthError"})],
)
def test_what_an_account_may_not_read_is_noted_and_what_does_not_exist_is_not(
    bench: Bench, answer: object, value: object, refused: dict[str, str]
) -> None:
    session, facts = bench.session(), Facts(bench.options)
    bench.wire.answer = Script(("GetACL", answer))
    assert run(doctor_of(bench)._read(session, GetACL("/tree"), facts, "the rights")) == value
    assert facts.refused == refused


@pytest.fixture
def talking() -> Iterator[tuple[str, int]]:
    """A server that answers each word and closes the connection."""
    answers = {b"srvr": b"Zookeeper version: 3.9.1-x\nMode: leader\n" + b"#" * 70_000, b"conf": b"maxClientCnxns=60\n"}
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in answers:
                accepted, _address = server.accept()
                with accepted:
                    accepted.sendall(answers[accepted.recv(4)])

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield server.getsockname()
        serving.join(LIMIT)


def test_a_server_is_asked_for_its_state_and_its_settings(talking: tuple[str, int]) -> None:
    server = doctor._query(talking, options("zk://h"))
    assert (server.address, server.failure) == (f"127.0.0.1:{talking[1]}", "")
    assert (server.version, server.mode, server.connections) == ("3.9.1", "leader", 60)
    assert len(server.srvr) > 70_000, "an answer is read to its end"


def test_a_server_that_cannot_be_asked_says_why() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = doctor._query(unused.getsockname(), options("zk://h"))
    assert "refused" in server.failure
    assert (server.version, server.mode, server.connections) == ("", "", None)


@pytest.mark.parametrize(
    ("text", "number"), [("maxClientCnxns=60", 60), ("maxClientCnxns=0", 0), ("maxClientCnxns=x", None), ("", None)]
)
def test_a_limit_of_connections_is_read(text: str, number: int | None) -> None:
    assert Server("h", "", f"clientPort=2181\n{text}\n").connections == number


# --- the URL


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("zk://h", "/leasehold"),
        ("zk://h/", "/leasehold"),
        ("zk://h/a//b/", "/a/b"),
        ("zk://h/zookeepers", "/zookeepers"),
    ],
)
def test_the_root_is_a_plain_path(url: str, root: str) -> None:
    assert options(url).root == root


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("zk://h", OPEN_ACL_UNSAFE),
        ("zk://h?acl=open", OPEN_ACL_UNSAFE),
        ("zk://u:p@h", CREATOR_ALL_ACL),
        ("zk://u:p@h?acl=open", OPEN_ACL_UNSAFE),
        ("zk://u:p@h?acl=creator", CREATOR_ALL_ACL),
        ("zks://h?tls_cert=/c&tls_key=/k", CREATOR_ALL_ACL),
        ("zks://h?tls_cert=/c&tls_key=/k&acl=creator", CREATOR_ALL_ACL),
        ("zks://h", OPEN_ACL_UNSAFE),
    ],
)
def test_who_may_use_the_nodes(url: str, expected: list[Any]) -> None:
    assert list(options(url).acl) == expected


@pytest.mark.parametrize(("letters", "number"), [("r", 1), ("w", 2), ("c", 4), ("d", 8), ("a", 16), ("rwrw", 3)])
def test_each_letter_is_a_right(letters: str, number: int) -> None:
    (rule,) = options(f"zk://h?acl=world:anyone:{letters}").acl
    assert (rule.perms, rule.id.scheme, rule.id.id) == (number, "world", "anyone")


def test_an_address_has_its_port_and_brackets_where_they_belong() -> None:
    found = options("zk://[::1],h2:7,h3")
    assert found.hosts == (("::1", 2181), ("h2", 7), ("h3", 2181))
    assert found.address == "[::1]:2181,h2:7,h3:2181"
    assert options("zks://[::1],h2:7").address == "[::1]:2281,h2:7"
    assert found.identity == "[::1]:2181,h2:7,h3:2181/leasehold"
    assert options("zk://h1:7,h2,h3:9/x").address == "h1:7,h2:2181,h3:9", "each has its own"


def test_what_the_url_says_is_used() -> None:
    found = options("zk://h?randomize_hosts=no&fence_floor=7")
    assert found.kazoo_options == {"randomize_hosts": False, "use_ssl": False}
    assert found.fence_floor == 7

    assert options("zk://h").kazoo_options["randomize_hosts"] is True


def test_a_user_without_a_password_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match="a ZooKeeper user needs a password"):
        options("zk://user@h")


def test_a_store_is_opened_from_a_url_and_from_a_client(bench: Bench) -> None:

    for store in (open_url(StoreURL.parse("zk://h/x")), adopt(KazooClient("h:2181"), {"root": "/x"})):
        assert isinstance(store, ZooKeeperStore)
        backend = store.open_backend(bench.runtime)
        assert backend.label in ("zk://h/x", "zk://h:2181/x")
    assert {option.name for option in CLIENT_OPTIONS} == {"fence_floor", "root"}
