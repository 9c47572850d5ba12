"""What a client knows of its nodes, without connections."""

from __future__ import annotations

from contextlib import suppress
from traceback import walk_tb
from typing import Any

import pytest

from leasehold._backends.redis.wire import Node as Address
from leasehold._backends.redlock.asyncio_wire import AsyncioNodeRequest
from leasehold._backends.redlock.blocking_wire import BlockingNodeRequest
from leasehold._backends.redlock.calls import Calls
from leasehold._backends.redlock.node import Node
from leasehold._backends.redlock.nodes import Nodes
from leasehold._backends.redlock.wire import SILENCE_LIMIT
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendUnavailable
from leasehold.values import Claim, Holder, Mode

CALLS = Calls(30, 3)
CLAIM = Claim("leasehold:x", "f" * 32, 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


class Connections:
    """They answer nothing."""

    is_ready = True
    has_pending = False

    async def exchange(self, *_: Any, **__: Any) -> list[Any]:
        raise BackendUnavailable("the connection broke")


def node(port: int, offset: float = 0.0) -> Node:
    lines: Any = Connections()
    return Node(Address("h", port), lines, run_id=str(port), offset=offset)


def test_clocks_of_nodes_that_are_down_propose_nothing() -> None:
    """They may have been wrong for long."""
    runtime = ThreadRuntime()
    nodes = Nodes([node(1, 1000.0), node(2, 5000.0), node(3, 9000.0)], CALLS, runtime, "redlock://x")
    assert nodes.number() == pytest.approx((runtime.now() + 5000) * 1e6, abs=60e6)
    nodes.all[1].failed(BackendUnavailable("down"))
    nodes.all[2].failed(BackendUnavailable("down"))
    assert nodes.number() == pytest.approx((runtime.now() + 1000) * 1e6, abs=60e6)


def test_undelivered_calls_are_sent_again_later() -> None:
    one = node(1)
    call = CALLS.release(CLAIM, 1, 0.0)
    one.deliver_later(call)
    with pytest.raises(BackendUnavailable):
        run(one.deliver_missed(1.0))
    assert one.undelivered.take(1.0) == [call]


def test_request_may_arrive_late_at_a_node_that_owes_answers_or_was_lost_within_the_ttl() -> None:
    one = node(1)
    assert not one.may_receive_late(10.0)
    one.wire.has_pending = True  # type: ignore[misc]  # of the stand-in above
    assert one.may_receive_late(10.0)
    one.wire.has_pending = False  # type: ignore[misc]
    one.failed(BackendUnavailable("down"))
    assert one.may_receive_late(10.0)
    one.lost_at -= 10.0 + SILENCE_LIMIT
    assert not one.may_receive_late(10.0)


def test_calls_that_leave_a_node_out_are_not_kept_in_its_failure() -> None:
    """Each of them raises the same exception, and Python would add the frames of each call to it."""
    wire: Any = None
    down, call = node(1), CALLS.look(["leasehold:x"])
    down.failure = BackendUnavailable("it is down")
    for _ in range(10):
        with suppress(BackendUnavailable):
            BlockingNodeRequest(wire, down, call, 0.0).send()
        with suppress(BackendUnavailable):
            AsyncioNodeRequest(wire, down, call).start(print)
    assert len(list(walk_tb(down.failure.__traceback__))) <= 2
