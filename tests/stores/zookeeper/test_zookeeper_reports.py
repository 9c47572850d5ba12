"""What operators are told of locks at ZooKeeper: states of several locks and claims, and the report of the doctor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from leasehold._backends.zookeeper import doctor, inspect
from leasehold._backends.zookeeper.calls import Calls
from leasehold._backends.zookeeper.doctor import Doctor, Facts, Server, findings
from leasehold._backends.zookeeper.inspect import READ_TTL
from leasehold._backends.zookeeper.keys import NodeData
from leasehold._backends.zookeeper.options import Options
from leasehold._backends.zookeeper.session import Session
from leasehold._runtimes.threads import run
from leasehold.errors import BackendError
from leasehold.findings import Level
from leasehold.store_url import StoreURL
from leasehold.values import Holder, Holding, LockState, Mode
from tests.stores.zookeeper.zookeeper_scripted import PARENT, Bench, Script, Store, stat

if TYPE_CHECKING:
    from collections.abc import Iterator

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
NOW = 2000.5


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(inspect, "time", SimpleNamespace(time=lambda: NOW))
    made = Store()
    yield made
    made.check()


def claim_of(
    number: int,
    *,
    timeout: float = 30.0,
    floor: int = 0,
    granted: bool = False,
    broken: str | None = None,
    **facts: Any,
) -> Any:
    """The node of one claim, whose facts are all its own: made at second 1000 + number, written 500 later."""
    data = NodeData(Holder(f"host-{number}", number), timeout, floor, granted=granted, broken=broken).encode()
    times = {"ctime": 1000_000 + 1000 * number, "mtime": 1500_000 + 1000 * number}
    return data, stat(**{"czxid": 50 + number, **times, **facts})


# --- states


def test_the_state_of_a_lock_has_every_fact_of_each_holder_and_the_waiters_in_line(store: Store) -> None:
    script = store.play(
        ("Sync", PARENT),
        ("GetChildren", ["p2-d-0000000004", "b-z-0000000009", "p2-b-0000000002", "p2-c-0000000003", "p2-a-0000000001"]),
        ("GetData", claim_of(1, timeout=45.0, floor=1000)),
        ("GetData", claim_of(2, granted=True)),
        ("GetData", claim_of(3)),
        ("GetData", claim_of(4)),
    )
    first = Holding(Holder("host-1", 1), 1051, NOW - 1001, 45.0, None)
    second = Holding(Holder("host-2", 2), 52, NOW - 1502, 30.0, None)
    waiting = (Holder("host-3", 3), Holder("host-4", 4))
    assert run(store.backend.inspect("ns:x")) == LockState("ns:x", Mode.PERMIT, 2, (first, second), waiting)
    assert [request.path[-1] for request in script.requests[2:]] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("facts", "since"),
    [
        ({}, 1001.0),  # granted when it was made
        ({"granted": True}, 1501.0),  # when that was written
        ({"granted": True, "broken": "stuck"}, 1001.0),  # the break was written last
        ({"broken": "stuck"}, 1001.0),
        ({"ctime": 9_000_000}, NOW),  # by a server whose clock is ahead
    ],
)
def test_how_long_a_grant_is_held_counts_from_the_write_that_granted_it(
    store: Store, facts: dict[str, Any], since: float
) -> None:
    store.play(("Sync", PARENT), ("GetChildren", ["x-a-0000000001"]), ("GetData", claim_of(1, **facts)))
    state = run(store.backend.inspect("ns:x"))
    assert state is not None
    (holding,) = state.holdings
    assert (holding.held_for, holding.broken) == (NOW - since, facts.get("broken"))


def test_each_lock_of_a_list_has_the_claims_of_its_own(store: Store) -> None:
    store.play(
        ("Sync", "/tree/locks"),
        ("GetChildren", ["ns%3Ab", "ns%3Aa"]),
        ("GetChildren", ["s-a-0000000001", "s-b-0000000002"]),
        ("GetChildren", ["p3-c-0000000003"]),
        ("GetData", claim_of(1)),
        ("GetData", claim_of(2)),
        ("GetData", claim_of(3)),
    )
    states = run(store.backend.list("ns:"))
    assert [(state.name, state.mode, state.capacity) for state in states] == [
        ("ns:a", Mode.SHARED, 1),
        ("ns:b", Mode.PERMIT, 3),
    ]
    assert [[holding.fence for holding in state.holdings] for state in states] == [[51, 52], [53]]


@pytest.mark.parametrize("now", [False, True])
def test_of_several_holders_the_one_with_the_fence_is_broken_and_keeps_its_facts(store: Store, now: bool) -> None:
    note = f"{PARENT}/b-b-0000000003"
    written: list[tuple[str, object]] = (
        [("Create2", (note, stat())), ("Delete", True)] if now else [("SetData", stat())]
    )
    script = store.play(
        ("Sync", PARENT),
        ("GetChildren", ["p2-a-0000000001", "p2-b-0000000002"]),
        ("GetData", claim_of(1)),
        ("GetData", claim_of(2, granted=True, version=6)),
        *written,
    )
    assert run(store.backend.break_("ns:x", 52, "stuck", now=now)) is True
    assert script.requests[-1].path == f"{PARENT}/p2-b-0000000002"
    write = script.requests[4]
    assert write.path == (f"{PARENT}/b-b-" if now else f"{PARENT}/p2-b-0000000002")
    assert NodeData.decode(write.data) == NodeData(Holder("host-2", 2), 30.0, 0, granted=True, broken="stuck")
    assert now or write.version == 6


def test_a_note_lies_in_a_session_as_long_as_that_of_the_holder_it_is_for(store: Store) -> None:
    """And a node of an older version, which does not say, gets that of a session for reading."""
    for timeout, ttl in ((45.0, 30.0), (0.0, READ_TTL)):
        other = store.connected(ttl)
        note = f"{PARENT}/b-a-0000000003"
        store.play(("Sync", PARENT), ("GetChildren", ["x-a-0000000001"]), ("GetData", claim_of(1, timeout=timeout)))
        store.wire.answer = Script(("Create2", (note, stat())), ("Delete", True))
        assert run(store.backend.break_("ns:x", 51, "stuck", now=True)) is True
        assert other.validity.ttl == ttl
        assert other.break_notes == {note: store.runtime.now() + other.validity.timeout}
        store.check()
        store.wires[0].answer = store.wire.answer


# --- the doctor


def options(url: str = "zk://u:p@h1,h2:7,h3/tree") -> Options:
    return Options.from_url(StoreURL.parse(url))


def test_each_server_and_each_version_has_a_finding_of_its_own() -> None:
    servers = [
        Server("h1:2181", "Zookeeper version: 3.5.2-x\nMode: follower", "maxClientCnxns=60\n"),
        Server("h2:7", failure="refused"),
        Server("h3:2181", "Zookeeper version: 3.9.1-x\nMode: leader", "maxClientCnxns=15\n"),
        Server("h4:2181", "Zookeeper version: 3.9.1-x\nMode: observer", "maxClientCnxns=0\n"),
        Server("h5:2181", failure="timed out"),
    ]
    found = [(finding.check, finding.level, finding.found) for finding in findings(Facts(options(), servers))]
    assert found[:7] == [
        ("version", PROBLEM, "ZooKeeper 3.5.2"),
        ("version", OK, "ZooKeeper 3.9.1"),
        ("server", OK, "h1:2181 is follower"),
        ("server", WARNING, "h2:7 does not answer: refused"),
        ("server", OK, "h3:2181 is leader"),
        ("server", OK, "h4:2181 is observer"),
        ("server", WARNING, "h5:2181 does not answer: timed out"),
    ]
    assert ("connections", WARNING, "at most 15 from one host") in found, "the fewest of those that are bounded"
    assert "ensemble" not in [check for check, *_ in found]


def test_everything_that_may_not_be_read_is_named() -> None:
    refused = {"the rights of the root": "NoAuthError", "the members of the ensemble": "APIError"}
    found = [
        finding.found for finding in findings(Facts(options(), refused=refused)) if "may not read" in finding.found
    ]
    assert found == [
        "this account may not read the rights of the root (NoAuthError)",
        "this account may not read the members of the ensemble (APIError)",
    ]


@pytest.mark.parametrize(
    ("acl", "level"),
    [
        ([*READ_ACL_UNSAFE, *OPEN_ACL_UNSAFE], WARNING),
        ([*OPEN_ACL_UNSAFE, *READ_ACL_UNSAFE], WARNING),
        (READ_ACL_UNSAFE, OK),
    ],
)
def test_one_rule_of_several_is_enough_to_open_a_tree(acl: list[Any], level: Level) -> None:
    (rights,) = [finding for finding in findings(Facts(options(), acl=(acl, None))) if finding.check == "rights"]
    assert rights.level is level


@pytest.fixture
def bench() -> Bench:
    return Bench("zk://u:p@h1,h2:7,h3/tree")


def doctor_of(bench: Bench, session: Session | None = None) -> Doctor:
    pool: Any = SimpleNamespace(any_session=lambda ttl: session if ttl == READ_TTL else None)
    calls = Calls(bench.runtime, bench.options.label)
    return Doctor(bench.options, bench.paths, runtime=bench.runtime, calls=calls, pool=pool)


def test_the_doctor_puts_every_fact_where_it_belongs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    instants = [0.0, 0.001, 1.0, 1.9, 2.0, 2.003, 3.0, 3.004, 4.0, 4.002]  # five pings, one of which was slow
    monkeypatch.setattr(doctor, "time", SimpleNamespace(perf_counter=lambda: instants.pop(0)))
    monkeypatch.setattr(doctor, "_query", lambda host, _: Server(f"{host[0]}:{host[1]}", "Mode: follower"))
    config = b"server.1=h1:1:1:participant\nserver.2=h2:1:1:participant\nserver.3=h3:1:1:observer\nserver.4=h4:1:1\n"
    session = bench.session()
    script = bench.wire.answer = Script(
        *[("Sync", "/tree")] * 5,
        ("GetACL", (READ_ACL_UNSAFE, stat())),
        ("GetData", (config, stat())),
        ("GetChildren", ["ns%3Ax"]),
        ("GetChildren", ["other", "x-a-0000000001"]),
    )
    examining = doctor_of(bench, session)

    async def negotiated(timeout: float) -> float:
        return 4.0 if timeout < 1 else 60.0

    monkeypatch.setattr(examining, "_negotiated", negotiated)
    found = [(finding.check, finding.level, finding.found) for finding in run(examining.examine())]
    assert found == [
        ("version", OK, "not known: srvr is not in 4lw.commands.whitelist of the servers"),
        ("server", OK, "h1:2181 is follower"),
        ("server", OK, "h2:7 is follower"),
        ("server", OK, "h3:2181 is follower"),
        ("quorum", OK, "3 voters, 1 of which may fail"),
        ("session timeout", OK, "sessions of 4 to 60 s: a ttl of 2.67 to 40 s"),
        ("connections", OK, "not known: conf is not in 4lw.commands.whitelist of the servers"),
        ("latency", OK, "3.0 ms to the leader and back"),
        ("rights", OK, "/tree is not open to every client"),
        ("nodes", PROBLEM, "/tree/locks/ns%3Ax/other: not made by leasehold"),
        ("encryption", WARNING, "the password is sent in plain text"),
    ]
    assert [request.path for request in script.requests[5:8]] == ["/tree", "/zookeeper/config", "/tree/locks"]


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_session_that_was_opened_to_learn_its_timeout_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_reached: bool
) -> None:
    def open_wire(*given: Any) -> Any:
        wire = bench.open_wire(*given)
        if is_reached:
            wire.start = lambda: wire.on_ready(7.5)
        return wire

    def opened(*given: Any, **more: Any) -> Session:
        return Session(*given, **more, open_wire=open_wire)

    monkeypatch.setattr(doctor, "Session", opened)
    monkeypatch.setattr(doctor, "start_new_thread", lambda call, given: call(*given))
    for requested in (doctor.SHORTEST, 12.0):
        assert run(doctor_of(bench)._negotiated(requested)) == (7.5 if is_reached else None)
        assert bench.wire.timeout == requested
        assert bench.wire.told[-1] == f"close, notify={is_reached}"


def test_a_doctor_who_is_not_let_in_says_so(bench: Bench) -> None:
    session = bench.session()
    bench.wire.answer = Script(("Sync", NoAuthError()))
    with pytest.raises(BackendError, match="may not do that"):
        run(doctor_of(bench, session).examine())
