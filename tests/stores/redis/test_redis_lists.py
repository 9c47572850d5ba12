"""How the locks of a Redis store are listed and examined: page by page, server by server. Without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redis.backend import RedisBackend
from leasehold._backends.redis.inspect import STATES_AT_ONCE, read_states
from leasehold._backends.redis.keys import Names
from leasehold._backends.redis.options import Options
from leasehold._backends.redis.wire import Node
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.kit.holder import holder_to_json
from leasehold.values import Holder

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE, TWO = Node("h1", 7001), Node("h2", 7002)


def stored(name: str) -> bytes:
    return f"app:{{ns:{name}}}".encode()


class Servers:
    """A router over servers whose keys come in pages; `inspect` of a name shows the name as its holder's label."""

    sharded = True
    only = None

    def __init__(self, pages: dict[Node, list[list[bytes]]], gone: Sequence[str] = (), failing: str = "") -> None:
        self.topology = self.wire = self
        self._pages = pages
        self._gone = gone
        self._failing = failing
        self.asked: list[tuple[Node, Any]] = []
        self.batches: list[tuple[int, float]] = []
        self.commands: list[tuple[Node, tuple[Any, ...]]] = []

    async def all(self, wire: Any) -> list[Node]:
        assert wire is self
        return list(self._pages)

    async def command(self, node: Node, *parts: Any) -> Any:
        self.commands.append((node, parts))
        if parts[0] != "SCAN":
            raise BackendRejected(f"{node} refused {parts[0]}")
        cursor = int(parts[1])
        page = self._pages[node][cursor]
        following = cursor + 1 if cursor + 1 < len(self._pages[node]) else 0
        return [b"%d" % following, page]

    async def execute_all(self, calls: Sequence[Any], timeout: float) -> list[Any]:
        self.batches.append((len(calls), timeout))
        return [self._inspect(call.keys.base.partition("{")[2][:-1]) for call in calls]

    def _inspect(self, key: str) -> Any:
        name = key.removeprefix("ns:")
        if name in self._gone:
            return [b"0", [], []]
        if name == self._failing:
            return BackendUnavailable(f"{name} is away")
        holder = holder_to_json(Holder("db", 7, name)).encode()
        return [b"0", [b"o", b"x", b"4", b"3500000", b"26500", b"", b"0", holder], []]


def listed(servers: Any, timeout: float = 0.75) -> list[tuple[str, str | None]]:
    states = run(read_states(servers, Names("app:", compat=False), "ns:", timeout))
    return [(state.name, state.holdings[0].holder.label) for state in states]


def test_list_has_the_names_of_every_page_of_every_server_once_and_in_order() -> None:
    servers = Servers({
        ONE: [[stored("d")], [], [stored("a"), stored("d") + b":q", stored("e") + b":s"]],
        TWO: [[stored("c")], [stored("b")]],
    })  # fmt: skip
    assert listed(servers) == [("ns:a", "a"), ("ns:b", "b"), ("ns:c", "c"), ("ns:d", "d")]
    cursors = [(node, parts[1]) for node, parts in servers.commands]
    assert cursors == [(ONE, b"0"), (ONE, b"1"), (ONE, b"2"), (TWO, b"0"), (TWO, b"1")]
    assert {parts[2:] for _, parts in servers.commands} == {("MATCH", "app:{ns:*", "COUNT", 1000)}
    assert servers.batches == [(4, 0.75)]


def test_many_names_are_read_in_several_round_trips_and_each_has_its_own_state() -> None:
    names = [f"{number:04}" for number in range(2 * STATES_AT_ONCE + 1)]
    servers = Servers({ONE: [[stored(name) for name in reversed(names)]]}, gone=names[3:5])
    assert listed(servers) == [(f"ns:{name}", name) for name in names if name not in names[3:5]]
    assert servers.batches == [(STATES_AT_ONCE, 0.75), (STATES_AT_ONCE, 0.75), (1, 0.75)]


def test_list_that_misses_a_name_is_an_error_and_not_a_shorter_list() -> None:
    servers = Servers({ONE: [[stored("a"), stored("b"), stored("c")]]}, failing="b")
    with pytest.raises(BackendUnavailable, match="b is away"):
        listed(servers)


def backend(servers: Any, **options: Any) -> RedisBackend:
    chosen = Options(**options)
    return RedisBackend(servers, Names(chosen.prefix, compat=False), chosen, ThreadRuntime(), "redis://x")


def test_list_of_the_store_takes_the_time_that_an_answer_may_take() -> None:
    servers = Servers({ONE: [[stored("a")]]})
    assert [state.name for state in run(backend(servers, prefix="app:", answer_timeout=0.5).list("ns:"))] == ["ns:a"]
    assert servers.batches == [(1, 0.5)]


def test_every_server_is_examined_and_the_rights_are_those_for_the_prefix() -> None:
    servers = Servers({ONE: [[]], TWO: [[]]})
    findings = run(backend(servers, prefix="app:").examine())
    for node in (ONE, TWO):
        assert any(finding.found == f"{node} refused INFO" for finding in findings), node
        assert [parts for asked, parts in servers.commands if asked == node].count(("PING",)) == 5


def test_rights_are_examined_for_the_prefix_of_the_store() -> None:
    servers = Servers({ONE: [[]]})
    dry: list[tuple[Any, ...]] = []

    async def command(node: Node, *parts: Any) -> Any:
        if parts[:2] == ("ACL", "WHOAMI"):
            return b"ana"
        if parts[:2] == ("ACL", "DRYRUN"):
            dry.append(parts[2:])
            return b"OK"
        raise BackendRejected(f"{node} refused {parts[0]}")

    scripted: Any = SimpleNamespace(topology=servers, wire=servers, command=command)
    run(backend(scripted, prefix="app:").examine())
    assert ("ana", "GET", "app:{doctor}") in dry
    assert ("ana", "SUBSCRIBE", "app:push:doctor") in dry
