"""Which server a Redis store asks: what is decided from the answers, without a server."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.router import Router
from leasehold._backends.redis.topology import DISCOVERY_TIMEOUT, newest, refused_by_all, share
from leasehold._backends.redis.wire import HASTY, STEP, Node, is_hasty, stepped
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown

OLD, NEW = Node("old"), Node("new")


@pytest.mark.parametrize("answers", list(itertools.permutations([(3, OLD), (3, OLD), (4, NEW)])))
def test_newest_configuration_counts_however_many_sentinels_name_an_older_one(
    answers: tuple[tuple[int, Node], ...],
) -> None:
    """After a fail-over one that was cut off still names the old primary, and that one may believe in it too."""
    assert newest(answers) == NEW


def test_refusal_counts_only_if_all_refuse() -> None:
    refused, away = BackendRejected("no"), BackendUnavailable("away")
    assert refused_by_all([refused, refused]) is refused
    assert refused_by_all([refused, away]) is None
    assert refused_by_all([away]) is None
    assert refused_by_all([]) is None


def test_each_of_several_servers_gets_a_share_of_the_time() -> None:
    assert share(100.0, 5) == DISCOVERY_TIMEOUT
    assert share(1.0, 5) == pytest.approx(0.2)
    assert share(0.0, 5) > 0, "a server that answers at once is asked"


@pytest.mark.parametrize("left", [0.0001, 0.01, 0.2, 0.25, 0.3, 0.9, 0.99999, 1.0, 1.7, 2.0, 5.0, math.inf])
def test_timeout_of_a_socket_is_neither_longer_than_a_step_too_long_nor_nothing(left: float) -> None:
    limit = stepped(2.0, left)
    assert 0.0 < limit <= 2.0
    assert min(left, 2.0) <= limit <= min(left, 2.0) + (STEP if left >= HASTY else 0.001)


def test_timeout_of_a_socket_seldom_changes() -> None:
    assert len({stepped(2.0, 1.0 - microseconds * 1e-6) for microseconds in range(1, 1000)}) == 1


def test_short_wait_proves_nothing_about_a_connection_unless_it_is_all_that_it_is_given() -> None:
    assert is_hasty(0.1, own=2.0)
    assert not is_hasty(0.1, own=0.1)
    assert not is_hasty(1.0, own=2.0)


# --- where a call goes after an answer that is none

HERE, THERE = Node("cluster", 7000), Node("cluster", 7001)
CALL: Any = SimpleNamespace(keys=SimpleNamespace(slot_key="{x}"), short=b"short", whole=b"whole")


class Scripted:
    """A wire and a topology in one: gives these answers, and notes what was asked and learned."""

    only = None

    def __init__(self, *answers: list[Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Node, bytes]] = []
        self.learned: list[tuple[Any, ...]] = []

    async def exchange(self, node: Node, payload: bytes, *_: object, **__: object) -> list[Any]:
        self.asked.append((node, payload))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def known(self, _: str) -> Node:
        return HERE

    def lost(self, node: Node) -> None:
        self.learned.append(("lost", node))

    def moved(self, slot: int, node: Node) -> None:
        self.learned.append(("moved", slot, node))


def executed(script: Any) -> Any:
    return run(Router(script, script, ThreadRuntime(), "redis://x").execute(CALL, 1.0))


def test_slot_that_moved_to_a_server_without_a_name_is_on_the_host_that_said_so() -> None:
    script = Scripted([Exception("MOVED 5 :7001")], [7])
    assert executed(script) == 7
    assert script.asked == [(HERE, b"short"), (THERE, b"whole")]
    assert script.learned == [("moved", 5, THERE)]


def test_server_that_gets_a_slot_is_asked_with_asking_and_is_not_its_owner_yet() -> None:
    script = Scripted([Exception("ASK 5 cluster:7001")], ["OK", 7])
    assert executed(script) == 7
    assert script.asked == [(HERE, b"short"), (THERE, pack("ASKING") + b"whole")]
    assert script.learned == []


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("no answer")])
def test_server_that_does_not_answer_is_looked_for_anew(error: Exception) -> None:
    script = Scripted(error)
    with pytest.raises(type(error)):
        executed(script)
    assert script.learned == [("lost", HERE)]
