"""Which server a call goes to, by what Sentinels, nodes and redirections answered; without servers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.router import MOST_DETOURS, SLOT_PAUSE, Router
from leasehold._backends.redis.topology import (
    DISCOVERY_TIMEOUT,
    LEAST_SHARE,
    Cluster,
    OneServer,
    SentinelGroup,
    slot_of,
)
from leasehold._backends.redis.wire import Node
from leasehold._runtimes.threads import run
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ONE, TWO, THREE = Node("h1", 7000), Node("h2", 7001), Node("h3", 7002)
AWAY, SILENT, REFUSED = BackendUnavailable("away"), OutcomeUnknown("no answer"), BackendRejected("no")
KEY = b"leasehold:{x}"
SLOT = slot_of(KEY)


class Wire:
    """Gives each server's answers in turn, and notes what was sent and how long it may take. Also the runtime."""

    def __init__(self, **answers: Sequence[Any]) -> None:
        self.answers = {node: list(answers.get(node.host, ())) for node in (ONE, TWO, THREE)}
        self.sent: list[tuple[Node, bytes]] = []
        self.limits: list[tuple[float, float]] = []
        self.alone: list[bool] = []
        self.dropped: list[Node] = []
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def left(self, until: float) -> float:
        return until - self.time

    async def exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float = math.inf, *, alone: bool = False
    ) -> list[Any]:
        self.sent.append((node, payload))
        self.limits.append((timeout, until))
        self.alone.append(alone)
        answer = self.answers[node].pop(0)
        if isinstance(answer, Exception):
            raise answer
        replies = answer() if callable(answer) else answer
        assert len(replies) == count
        return list(replies)

    def request(self, node: Node, commands: Sequence[bytes], timeout: float, until: float) -> Any:
        async def perform() -> list[Any]:
            return await self.exchange(node, b"".join(commands), len(commands), timeout, until)

        return SimpleNamespace(perform=perform)

    async def scatter(self, requests: Sequence[Any], _: Callable[[object], bool], deadline: float) -> list[Any]:
        self.limits.append((deadline, deadline))
        answers: list[Any] = []
        for request in requests:
            try:
                answers.append(await request.perform())
            except Exception as error:
                answers.append(None if error is SILENT else error)
        return answers

    def drop_connections(self, node: Node) -> None:
        self.dropped.append(node)


def call_of(name: str = "1", slot_key: bytes = KEY) -> Any:
    return SimpleNamespace(
        keys=SimpleNamespace(slot_key=slot_key), short=b"short" + name.encode(), whole=b"whole" + name.encode()
    )


CALL = call_of()


def router(wire: Any, topology: Any = None) -> Router:
    return Router(wire, topology or Cluster([ONE, TWO, THREE], "redis://x"), wire, "redis://x")


# --- Sentinels


def master(node: Node, epoch: int) -> list[Any]:
    """The only reply."""
    facts = [b"name", b"s", b"ip", node.host.encode(), b"port", b"%d" % node.port, b"config-epoch", b"%d" % epoch]
    return [facts]


ROLE = [[b"master", 0, []]]


def group(*sentinels: Node) -> SentinelGroup:
    return SentinelGroup(sentinels or (ONE, TWO), "service", "redis+sentinel://x")


def test_primary_of_the_newest_configuration_is_asked_for_its_role_and_kept() -> None:
    wire: Any = Wire(h1=[master(ONE, 3)], h2=[master(THREE, 4)], h3=[ROLE])
    sentinels = group()
    assert run(sentinels.find(wire, b"")) == THREE
    assert sentinels.only == sentinels.known(b"") == THREE
    assert wire.sent == [
        (ONE, pack("SENTINEL", "MASTER", "service")),
        (TWO, pack("SENTINEL", "MASTER", "service")),
        (THREE, pack("ROLE")),
    ]
    sentinels.lost(ONE)
    assert sentinels.only == THREE, "another server was lost"
    sentinels.lost(THREE)
    assert sentinels.only is None


def test_replies_of_sentinels_as_a_map_are_read_too() -> None:
    ((*facts,),) = master(THREE, 4)
    wire: Any = Wire(h1=[[dict(zip(facts[::2], facts[1::2], strict=True))]], h3=[ROLE])
    assert run(group(ONE).find(wire, b"")) == THREE


@pytest.mark.parametrize("failing", [AWAY, SILENT, REFUSED])
def test_one_sentinel_that_answers_is_enough(failing: Exception) -> None:
    wire: Any = Wire(h1=[failing], h2=[master(THREE, 4)], h3=[ROLE])
    assert run(group().find(wire, b"")) == THREE


def test_server_that_is_not_the_primary_yet_is_not_kept() -> None:
    wire: Any = Wire(h1=[master(THREE, 4)], h3=[[[b"slave", b"h", 1, b"sync", 0]]])
    sentinels = group(ONE)
    with pytest.raises(BackendUnavailable, match="h3:7002 is not the primary yet"):
        run(sentinels.find(wire, b""))
    assert sentinels.only is None


def test_account_without_the_right_to_ask_for_the_role_is_served() -> None:
    wire: Any = Wire(h1=[master(THREE, 4)], h3=[[Exception("NOPERM role")]])
    assert run(group(ONE).find(wire, b"")) == THREE


@pytest.mark.parametrize(
    ("first", "second", "kind", "words"),
    [
        (AWAY, SILENT, BackendUnavailable, "the primary is not known: away"),
        (AWAY, REFUSED, BackendUnavailable, "the primary is not known: no"),
        (REFUSED, REFUSED, BackendRejected, "no"),
        (
            [Exception("ERR No such master with that name")],
            [Exception("ERR No such master with that name")],
            BackendRejected,
            "does not know the service 'service'",
        ),
        (
            [Exception("ERR unknown command 'SENTINEL'")],
            [Exception("ERR unknown command 'SENTINEL'")],
            BackendRejected,
            "is not a Sentinel",
        ),
        ([Exception("LOADING")], [Exception("LOADING")], BackendUnavailable, "still loading"),
    ],
)
def test_sentinels_that_name_no_primary_say_why(first: Any, second: Any, kind: type[BackendError], words: str) -> None:
    wire: Any = Wire(h1=[first], h2=[second])
    with pytest.raises(kind, match=words):
        run(group().find(wire, b""))


def test_each_sentinel_and_the_server_get_a_share_of_the_time() -> None:
    wire: Any = Wire(h1=[AWAY], h2=[master(THREE, 4)], h3=[ROLE])
    run(group().find(wire, b"", 1.2))
    assert [timeout for timeout, _ in wire.limits] == pytest.approx([0.3, 0.4, 0.6])
    assert [until for _, until in wire.limits] == pytest.approx([0.3, 0.4, 0.6])
    wire = Wire(h1=[master(THREE, 4)], h3=[ROLE])
    run(group(ONE).find(wire, b""))
    assert wire.limits == [(DISCOVERY_TIMEOUT, math.inf)] * 2
    wire = Wire(h1=[AWAY], h2=[AWAY])
    with pytest.raises(BackendUnavailable):
        run(group().find(wire, b"", 0.01))
    assert wire.limits == [(LEAST_SHARE, 0.01)] * 2, "but none has more than there is"


def test_primary_that_is_known_is_the_one_server_of_a_sentinel_group() -> None:
    wire: Any = Wire(h1=[master(THREE, 4)], h3=[ROLE])
    sentinels = group(ONE)
    assert run(sentinels.all(wire)) == [THREE]
    assert run(sentinels.all(wire)) == [THREE]
    assert len(wire.sent) == 2, "it was found out once"


# --- a Cluster


def slots(*ranges: tuple[int, int, Node]) -> list[Any]:
    return [[[first, last, [node.host.encode(), node.port, b"id"], []] for first, last, node in ranges]]


def test_map_of_a_cluster_has_the_owner_of_every_slot_of_each_range() -> None:
    cluster = Cluster([ONE], "x")
    wire: Any = Wire(h1=[slots((0, SLOT - 1, ONE), (SLOT, SLOT, TWO), (SLOT + 1, 16383, THREE))])
    assert run(cluster.find(wire, KEY)) == TWO
    assert cluster._owners[0] == cluster._owners[SLOT - 1] == ONE
    assert cluster._owners[SLOT + 1] == cluster._owners[16383] == THREE
    assert cluster.known(KEY) == TWO
    assert wire.sent == [(ONE, pack("CLUSTER", "SLOTS"))]


def test_node_without_a_name_is_the_one_that_answered() -> None:
    cluster = Cluster([TWO], "x")
    wire: Any = Wire(h2=[[[[0, 16383, [b"", 7000, b"id"]]]]])
    assert run(cluster.find(wire, KEY)) == Node("h2", 7000)


def test_servers_that_are_known_are_asked_before_the_seeds_and_each_once() -> None:
    cluster = Cluster([ONE, TWO], "x")
    cluster.moved(SLOT, TWO)
    cluster.moved(5, THREE)
    wire: Any = Wire(h1=[AWAY], h2=[AWAY], h3=[AWAY])
    with pytest.raises(BackendUnavailable):
        run(cluster.find(wire, KEY))
    assert [node for node, _ in wire.sent] == [TWO, THREE, ONE]


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        ({"h1": [AWAY], "h2": [SILENT]}, BackendUnavailable, "no answer"),
        ({"h1": [REFUSED], "h2": [AWAY]}, BackendUnavailable, "away"),
        ({"h1": [REFUSED], "h2": [REFUSED]}, BackendRejected, "no"),
        ({"h1": [slots((0, 1, ONE))], "h2": [AWAY]}, BackendUnavailable, "away"),
        ({"h1": [AWAY], "h2": [slots((0, 1, ONE))]}, BackendUnavailable, "no server has the slot of this name now"),
        (
            {"h1": [[Exception("ERR This instance has cluster support disabled")]] * 1, "h2": [REFUSED]},
            BackendRejected,
            "does not belong to a Cluster",
        ),
    ],
)
def test_cluster_without_a_server_for_the_name_says_why(
    answers: dict[str, Any], kind: type[BackendError], words: str
) -> None:
    wire: Any = Wire(**answers)
    with pytest.raises(kind, match=words) as caught:
        run(Cluster([ONE, TWO], "x").find(wire, KEY))
    assert type(caught.value) is kind


def test_next_server_is_asked_when_the_first_does_not_know_the_slot_and_has_its_share_of_the_time() -> None:
    wire: Any = Wire(h1=[slots((0, 1, ONE))], h2=[slots((0, 16383, THREE))])
    assert run(Cluster([ONE, TWO], "x").find(wire, KEY, 0.9)) == THREE
    assert [timeout for timeout, _ in wire.limits] == pytest.approx([0.3, 0.45])


def test_server_that_was_lost_has_no_slots_any_more_and_the_others_keep_theirs() -> None:
    cluster = Cluster([ONE], "x")
    cluster.moved(SLOT, TWO)
    cluster.moved(5, THREE)
    cluster.lost(TWO)
    assert cluster.known(KEY) is None
    assert cluster._owners == {5: THREE}


def test_all_servers_of_a_cluster_are_those_with_slots_each_once() -> None:
    cluster = Cluster([ONE], "x")
    other = slot_of(b"")
    wire: Any = Wire(h1=[slots((0, other, ONE), (other + 1, 9000, TWO), (9001, 16383, ONE))])
    assert run(cluster.all(wire)) == [ONE, TWO]


# --- detours


def known(*owners: Node) -> Cluster:
    cluster = Cluster([ONE, TWO, THREE], "redis://x")
    for owner in owners:
        cluster.moved(SLOT, owner)
    return cluster


def executed(wire: Any, topology: Any = None, *, timeout: float = 1.0, until: float = math.inf) -> Any:
    return run(router(wire, topology or known(ONE)).execute(CALL, timeout, until))


def test_server_without_the_script_gets_its_text() -> None:
    wire = Wire(h1=[[Exception("NOSCRIPT No matching script")], [7]])
    assert executed(wire) == 7
    assert wire.sent == [(ONE, b"short1"), (ONE, b"whole1")]


def test_redirections_are_followed_one_after_the_other_and_not_for_ever() -> None:
    there, back = Exception(f"MOVED {SLOT} h2:7001"), Exception(f"MOVED {SLOT} h1:7000")
    wire = Wire(h1=[[there]] * 9, h2=[[back]] * 9)
    with pytest.raises(BackendUnavailable, match="is being moved"):
        executed(wire)
    assert len(wire.sent) == 1 + MOST_DETOURS


def test_call_that_moved_and_then_lacks_its_script_there_is_answered() -> None:
    wire = Wire(h1=[[Exception(f"MOVED {SLOT} h2:7001")]], h2=[[Exception("NOSCRIPT")], [7]])
    topology = known(ONE)
    assert executed(wire, topology) == 7
    assert topology.known(KEY) == TWO


def test_slot_that_is_handed_on_is_asked_for_at_its_owner_again_after_a_pause() -> None:
    """The server that gets the slot has only a part of the keys: it puts the call off."""
    wire = Wire(
        h1=[[Exception(f"ASK {SLOT} h2:7001")], [7]],
        h2=[["OK", Exception("TRYAGAIN Multiple keys request during rehashing of slot")]],
    )
    assert executed(wire) == 7
    assert [node for node, _ in wire.sent] == [ONE, TWO, ONE]
    assert wire.time == pytest.approx(SLOT_PAUSE)


def test_slot_that_moved_and_is_handed_on_is_asked_for_at_its_new_owner() -> None:
    wire = Wire(
        h1=[[Exception(f"MOVED {SLOT} h2:7001")]],
        h2=[[Exception(f"ASK {SLOT} h3:7002")], [7]],
        h3=[["OK", Exception("TRYAGAIN")]],
    )
    assert executed(wire) == 7
    assert [node for node, _ in wire.sent] == [ONE, TWO, THREE, TWO]


@pytest.mark.parametrize(("timeout", "until"), [(1.0, math.inf), (9.0, 1.0)])
def test_slot_on_the_move_is_waited_for_as_long_as_for_an_answer_and_no_longer(timeout: float, until: float) -> None:
    wire = Wire(h1=[[Exception("TRYAGAIN")]] * 100)
    with pytest.raises(BackendUnavailable, match="is being moved"):
        executed(wire, timeout=timeout, until=until)
    assert 1.0 - 2 * SLOT_PAUSE <= wire.time <= 1.0


def test_call_whose_time_ran_out_at_a_moving_slot_names_the_slot_and_not_the_connection() -> None:
    def late() -> list[Any]:
        wire.time += 1.0
        raise AWAY

    wire = Wire(h1=[[Exception("TRYAGAIN")], late])
    with pytest.raises(BackendUnavailable, match="is being moved"):
        executed(wire, until=1.0)
    wire = Wire(h1=[[Exception("TRYAGAIN")], late])
    with pytest.raises(BackendUnavailable, match="away"):
        executed(wire, until=5.0)


@pytest.mark.parametrize(
    ("reply", "kind", "drops"),
    [
        ("READONLY You can't write", BackendUnavailable, False),
        ("NOPERM no", BackendRejected, False),
        ("ERR Protocol error: unauthenticated bulk length", BackendRejected, True),
        ("CLUSTERDOWN", BackendUnavailable, False),
    ],
)
def test_server_that_refuses_is_looked_for_anew(reply: str, kind: type[BackendError], drops: bool) -> None:
    wire = Wire(h1=[[Exception(reply)]])
    topology = known(ONE)
    with pytest.raises(kind):
        executed(wire, topology)
    assert topology.known(KEY) is None
    assert wire.dropped == ([ONE] if drops else []), "after some answers the server closes the connection"


@pytest.mark.parametrize("error", [AWAY, SILENT])
def test_server_that_is_lost_on_a_detour_is_looked_for_anew(error: Exception) -> None:
    wire = Wire(h1=[[Exception(f"MOVED {SLOT} h2:7001")]], h2=[error])
    topology = known(ONE)
    with pytest.raises(type(error)):
        executed(wire, topology)
    assert topology.known(KEY) is None


def test_redirection_within_a_host_keeps_the_sender_s_host() -> None:
    assert router(Wire()).redirected(f"MOVED {SLOT} :7005", TWO) == Node("h2", 7005)
    assert router(Wire()).redirected(f"MOVED {SLOT} ::1:7005", TWO) == Node("::1", 7005)


# --- plain commands, acknowledgements


def test_first_error_reply_of_several_commands_is_raised() -> None:
    wire = Wire(h1=[[b"a", Exception("NOPERM no"), b"b"], [b"a", b"b"]])
    with pytest.raises(BackendRejected):
        run(router(wire).commands(ONE, ("A",), ("B",), ("C",)))
    assert run(router(wire).commands(ONE, ("A",), ("B",), timeout=3.0, until=9.0)) == [b"a", b"b"]
    assert wire.sent[1] == (ONE, pack("A") + pack("B"))
    assert wire.limits[1] == (3.0, 9.0)


def test_grant_is_followed_by_the_wait_for_replicas_on_a_connection_of_its_own() -> None:
    wire = Wire(h1=[[7, 2]])
    assert run(router(wire, known(ONE)).execute_replicated(CALL, 3, 0.5, 1.0)) == (7, 2)
    assert wire.sent == [(ONE, b"short1" + pack("WAIT", 3, 500))]
    assert wire.alone == [True]
    assert wire.limits == [(1.5, math.inf)], "for its answer and for the replicas"


def test_wait_for_replicas_leaves_time_to_undo_the_grant_and_is_never_for_ever() -> None:
    wire = Wire(h1=[[7, 2], [7, 0]])
    run(router(wire, known(ONE)).execute_replicated(CALL, 1, 0.5, 1.0, 0.4))
    run(router(wire, known(ONE)).execute_replicated(CALL, 1, 0.5, 1.0, -3.0))
    assert [payload for _, payload in wire.sent] == [b"short1" + pack("WAIT", 1, 200), b"short1" + pack("WAIT", 1, 1)]


def test_wait_for_replicas_goes_with_a_grant_that_made_a_detour() -> None:
    wire = Wire(h1=[[Exception("NOSCRIPT"), 0], [7, 2]])
    assert run(router(wire, known(ONE)).execute_replicated(CALL, 2, 0.5, 1.0)) == (7, 2)
    assert wire.sent[1] == (ONE, b"whole1" + pack("WAIT", 2, 500))
    assert wire.alone == [True, True]


@pytest.mark.parametrize("until", [math.inf, 2.0])
def test_slot_on_the_move_is_waited_for_with_a_wait_for_replicas_as_without(until: float) -> None:
    """The acquire failed at once. What the replicas get of the time that is left is reckoned anew for each try."""
    moving = [Exception("TRYAGAIN Multiple keys request during rehashing of slot"), 0]
    wire = Wire(h1=[moving, moving, [7, 2]])
    assert run(router(wire, known(ONE)).execute_replicated(CALL, 2, 1.0, 1.0, until)) == (7, 2)
    patience = [1000] * 3 if until == math.inf else [1000, 975, 950]
    assert [payload for _, payload in wire.sent] == [
        text + pack("WAIT", 2, milliseconds)
        for text, milliseconds in zip([b"short1", b"whole1", b"whole1"], patience, strict=True)
    ]
    assert wire.alone == [True] * 3
    wire = Wire(h1=[moving] * 100)
    with pytest.raises(BackendUnavailable, match="is being moved"):
        run(router(wire, known(ONE)).execute_replicated(CALL, 2, 0.5, 1.0, until))
    assert 1.0 - 2 * SLOT_PAUSE <= wire.time <= 1.0, "as long as for an answer"


def test_server_that_refuses_to_wait_is_an_answer_beside_the_grant() -> None:
    wire = Wire(h1=[[7, Exception("NOPERM wait")]])
    reply, acknowledged = run(router(wire, known(ONE)).execute_replicated(CALL, 2, 0.5, 1.0))
    assert reply == 7
    assert isinstance(acknowledged, BackendRejected)


# --- many calls

ELSEWHERE = b"leasehold:{y}"
CALLS = [call_of("1"), call_of("2", ELSEWHERE), call_of("3")]


def two_servers() -> Cluster:
    cluster = known(ONE)
    cluster.moved(slot_of(ELSEWHERE), TWO)
    return cluster


def test_many_calls_go_to_each_server_in_one_piece_and_are_answered_in_their_order() -> None:
    wire = Wire(h1=[[10, 30]], h2=[[20]])
    assert run(router(wire, two_servers()).execute_all(CALLS, 1.0)) == [10, 20, 30]
    assert wire.sent == [(ONE, b"short1short3"), (TWO, b"short2")]
    assert wire.limits[0] == (1.0, 1.0), "all together have the time for an answer"
    wire = Wire(h1=[[10, 30]], h2=[[20]])
    run(router(wire, two_servers()).execute_all(CALLS, 1.0, 0.25))
    assert wire.limits[0] == (0.25, 0.25)


@pytest.mark.parametrize("error", [AWAY, SILENT])
def test_server_that_does_not_answer_costs_its_own_calls_only(error: Exception) -> None:
    topology = two_servers()
    wire = Wire(h1=[error], h2=[[20]])
    first, second, third = run(router(wire, topology).execute_all(CALLS, 1.0))
    assert second == 20
    assert isinstance(first, type(error))
    assert isinstance(third, type(error))
    assert topology.known(KEY) is None
    assert topology.known(ELSEWHERE) == TWO


def test_name_without_a_server_costs_its_own_calls_only() -> None:
    cluster = Cluster([TWO, THREE], "redis://x")
    cluster.moved(SLOT, ONE)
    gap = slots((SLOT, SLOT, ONE))
    wire = Wire(h1=[gap, [10, 30]], h2=[gap], h3=[gap])
    first, *missing, third = run(router(wire, cluster).execute_all([CALLS[0], CALLS[1], CALLS[1], CALLS[2]], 1.0))
    assert (first, third) == (10, 30)
    assert [type(answer) for answer in missing] == [BackendUnavailable] * 2
    assert "no server has the slot" in str(missing[0])
    assert len(wire.sent) == 4, "every server was asked for it once"


def test_calls_that_were_not_run_are_sent_again_one_by_one_and_an_error_stays_with_its_call() -> None:
    wire = Wire(h1=[[Exception("NOSCRIPT"), Exception("NOPERM no"), 30], [10]])
    answers = run(router(wire, known(ONE)).execute_all([call_of("1"), call_of("2"), call_of("3")], 1.0))
    assert answers[0] == 10
    assert isinstance(answers[1], BackendRejected)
    assert answers[2] == 30
    assert wire.sent[1:] == [(ONE, b"whole1")]


def test_connection_that_broke_between_the_answers_is_an_answer_to_the_later_ones() -> None:
    topology = known(ONE)
    wire = Wire(h1=[[10, SILENT]])
    assert run(router(wire, topology).execute_all([call_of("1"), call_of("2")], 1.0)) == [10, SILENT]
    assert topology.known(KEY) is None
    assert len(wire.sent) == 1


def test_closed_client_is_no_answer_to_one_of_many_calls() -> None:
    for topology, calls in ((known(ONE), [CALL]), (two_servers(), CALLS)):
        wire = Wire(h1=[ClientClosed(backend="x")], h2=[[20]])
        with pytest.raises(ClientClosed):
            run(router(wire, topology).execute_all(calls, 1.0))


# --- what is remembered, and what is sent again


@pytest.mark.parametrize("error", [AWAY, SILENT])
def test_server_of_a_slot_that_does_not_answer_one_call_is_not_kept(error: Exception) -> None:
    topology = Cluster([ONE], "redis://x")
    topology.moved(SLOT, TWO)
    with pytest.raises(type(error)):
        run(router(Wire(h2=[error]), topology).execute(CALL, 1.0))
    assert topology.known(KEY) is None


def test_only_the_call_whose_script_is_missing_is_sent_again_with_its_text() -> None:
    wire: Any = Wire(h1=[[1, Exception("NOSCRIPT No matching script"), 3], [7]])
    calls = [call_of("1"), call_of("2"), call_of("3")]
    assert run(router(wire, OneServer(ONE)).execute_all(calls, 1.0)) == [1, 7, 3]
    assert wire.sent[1:] == [(ONE, b"whole2")]


def test_server_that_is_asked_for_once_is_not_remembered_and_one_that_owns_the_slot_is() -> None:
    topology = Cluster([ONE], "redis://x")
    topology.moved(SLOT, ONE)
    asked = router(Wire(), topology)
    assert asked.redirected(f"ASK {SLOT} h2:7001", ONE) == TWO
    assert topology.known(KEY) == ONE
    assert asked.redirected(f"MOVED {SLOT} h3:7002", ONE) == THREE
    assert topology.known(KEY) == THREE


def test_new_map_of_the_slots_replaces_the_old_one() -> None:
    other = b"leasehold:{elsewhere}"
    topology = Cluster([ONE], "redis://x")
    topology.moved(slot_of(other), ONE)
    wire: Any = Wire(h1=[[[[SLOT, SLOT, [b"h2", 7001]]]]])
    run(topology.find(wire, KEY))
    assert (topology.known(KEY), topology.known(other)) == (TWO, None)
