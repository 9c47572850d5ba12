"""All nodes together: connecting, polling all at once, leaving out those that are down, and probing them meanwhile.

A node that is down costs nothing: it gets no requests, and a worker finds out when it answers again. That worker ends
when all nodes are up, or the client has not been used for a while.
"""

from __future__ import annotations

import math
import time
import weakref
from typing import TYPE_CHECKING, Any

from leasehold._core.quorum import duplicates, first_number, majority
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.redlock.calls import Call, Calls
    from leasehold._backends.redlock.node import Node
    from leasehold._backends.redlock.wire import NodeRequest
    from leasehold.spi import Runtime, Signal

__all__ = ["Nodes", "Poll"]

SOFT = 0.1  # how long the first use waits for every node; a majority is waited for longer
HARD = 5.0  # the limit of the store itself, for a machine that is busy; a caller may have less time
LOOK_AGAIN = 0.02  # several callers may wait for the same change
PROBE_EVERY = (0.005, 0.05, 0.1, 0.2, 0.5, 1.0)
IDLE = 10.0  # for a client that was not used for so long, no node is probed


class Poll:
    """The requests of one round and their answers, in the order of the nodes."""

    __slots__ = ("_look_after", "answers", "call", "requests", "sent")

    def __init__(
        self,
        call: Call,
        requests: Sequence[NodeRequest],
        answers: Sequence[Any],
        sent: float,
        look_after: Callable[[], None] = lambda: None,
    ) -> None:
        self.call = call
        self.requests = requests
        self.answers = answers
        self.sent = sent
        self._look_after = look_after

    def finish(self) -> None:
        """Let go of the connections. A node that was left out, or lost, gets the call later, if it still matters."""
        failed = False
        for request, answer in zip(self.requests, self.answers, strict=True):
            if isinstance(answer, Exception):
                request.node.deliver_later(self.call)
                failed = True
            request.finish()
        if failed:
            self._look_after()


class Nodes:
    """The nodes of one store, for one client."""

    def __init__(self, nodes: Sequence[Node], calls: Calls, runtime: Runtime, label: str) -> None:
        self.all = list(nodes)
        self.majority = majority(len(nodes))
        self.label = label
        self._calls = calls
        self._runtime = runtime
        self._changed = runtime.signal()  # a node came up, or turned out to be down
        self._end = runtime.signal()
        self._probing = False
        self._duplicates: str | None = None
        self._used = 0.0
        self.is_closed = False

    def __len__(self) -> int:
        return len(self.all)

    async def poll(
        self, call: Call, enough: Callable[[Sequence[Any]], bool], timeout: float, until: float = math.inf
    ) -> Poll:
        """Send one call to all nodes at once, until the answers are `enough`. The caller made ready, and finishes."""
        sent = self._runtime.now()
        if sent >= until:
            raise BackendUnavailable(
                f"{self.label}: there was no time left to send the request; allow a longer timeout", backend=self.label
            )
        connect_by = time.monotonic() + until - sent
        requests = [node.wire.request(node, call, connect_by) for node in self.all]
        try:
            answers = await self._runtime.scatter(requests, enough, min(sent + timeout, until))
        except BaseException:
            for request in requests:
                request.abort()
            raise
        return Poll(call, requests, answers, sent, self._look_after)

    def number(self) -> int:
        """What to propose: the median of the nodes' clocks, now."""
        offsets = [node.offset for node in self.all if node.offset is not None and node.is_up]
        return first_number(offsets, self._runtime.now())

    async def ready(self, until: float = math.inf) -> None:
        """Have a connection to every node that is up, and a majority of them; not waiting beyond `until`."""
        if self.is_closed:
            raise ClientClosed(backend=self.label)
        self._used = self._runtime.now()
        for node in self.all:
            if node.failure is not None or node.run_id is None or not node.wire.is_ready or node.undelivered:
                await self._make_ready(until)
                break
        if self._duplicates is not None:
            raise BackendRejected(
                f"{self.label}: {self._duplicates} are one and the same server; name each server once",
                backend=self.label,
            )

    async def _make_ready(self, until: float) -> None:
        wanting = [node for node in self.all if not node.opening and (_wants_connection(node) or self._is_old(node))]
        if wanting or not self._is_settled():
            await self._open(wanting, until)
        self._look_after()
        if self._count_up() < self.majority:
            raise self._too_few()

    def _is_old(self, node: Node) -> bool:
        """Whether its failure may be outdated, because no probe runs, and its vote may be needed."""
        return node.failure is not None and not self._probing and self._count_up() < self.majority

    def _count_up(self) -> int:
        return sum(node.is_up for node in self.all)

    async def close(self) -> None:
        """Close every connection and end the probing. Calls that wait for a node end with it."""
        self.is_closed = True
        self._end.set()
        self._changed.set()
        await self._runtime.sleep(0)  # on asyncio, clean-ups of the last call leave in the next turn of the loop
        limit = self._runtime.now() + HARD
        while any(node.opening for node in self.all) and self._runtime.now() < limit:
            await self._runtime.sleep(LOOK_AGAIN / 10)
        for node in self.all:
            node.wire.close()
        await self._runtime.sleep(0)  # transports of asyncio close in the next turn of the loop

    # --- connecting

    async def _open(self, wanting: list[Node], until: float) -> None:
        """Connect to all of them at once. Nodes that are slow may come later, unless a majority needs them."""
        now = self._runtime.now()
        openings = [_Opening(self, node) for node in wanting]
        await self._runtime.scatter(openings, _all_answered, min(now + SOFT, until))
        limit = min(now + HARD, until)
        while not self._is_settled() and not self.is_closed and self._runtime.now() < limit:
            await self._runtime.wait(self._changed, min(self._runtime.now() + LOOK_AGAIN, limit))
            self._changed.clear()

    def _is_settled(self) -> bool:
        return self._count_up() >= self.majority or not any(node.opening for node in self.all)

    async def connect(self, node: Node) -> None:
        """Connect to one node, and introduce it if it is new or was down."""
        if node.opening:  # another task connects to it in the same turn; a second connection would end the first
            return
        node.opening = True
        try:
            if not node.is_up:
                await node.introduce(self._calls.greet(), self._runtime.now)
                self._find_duplicates()
            elif not node.wire.is_ready:
                await node.wire.open()
            await node.deliver_missed(self._runtime.now())
        except Exception as error:
            node.failed(error)
            raise
        finally:
            node.opening = False
            self._changed.set()

    def _find_duplicates(self) -> None:
        """One server under two names would have two votes."""
        groups = duplicates({str(node): node.run_id if node.failure is None else None for node in self.all})
        self._duplicates = " and ".join(groups[0]) if groups else None

    def _too_few(self) -> BackendError:
        """Why there is no majority; refused for good if so many nodes refuse that there cannot be one."""
        late = BackendUnavailable(f"{self.label} does not answer", backend=self.label)
        failures = [node.failure or late for node in self.all if not node.is_up]
        refused = [failure for failure in failures if isinstance(failure, BackendRejected)]
        kind = BackendRejected if len(self.all) - len(refused) < self.majority else BackendUnavailable
        why = "; ".join(dict.fromkeys(str(failure) for failure in (refused or failures)))
        return kind(
            f"{self.label}: {len(failures)} of {len(self.all)} nodes are not there, and {self.majority} are needed: "
            f"{why}",
            backend=self.label,
        )

    # --- probing

    def _look_after(self) -> None:
        """Have a worker for nodes that are down or missed something: this may have been the last call for long."""
        if not self._probing and not self.is_closed and any(_wants_probe(node) for node in self.all):
            self._probing = True
            self._runtime.spawn(_probe(weakref.ref(self), self._runtime, self._end), "leasehold redlock probe")

    async def probe_once(self) -> bool:
        """Try the nodes that are down, and send the others what they missed; False when there is nothing left to do."""
        down = [node for node in self.all if _wants_probe(node) and not node.opening]
        idle = self._runtime.now() - self._used > IDLE
        if self.is_closed or idle or not down:
            self._probing = False
            return False
        await self._runtime.scatter([_Opening(self, node) for node in down], _all_answered, self._runtime.now() + HARD)
        return True


class _Opening:
    """A connection that is being made, beside others."""

    def __init__(self, nodes: Nodes, node: Node) -> None:
        self._nodes = nodes
        self._node = node

    async def perform(self) -> bool:
        await self._nodes.connect(self._node)
        return True


async def _probe(nodes: weakref.ref[Nodes], runtime: Runtime, end: Signal) -> None:
    """Until all are up. It holds the nodes only while it tries them, so that a dropped client ends it."""
    attempt = 0
    while not await runtime.wait(end, runtime.now() + PROBE_EVERY[min(attempt, len(PROBE_EVERY) - 1)]):
        attempt += 1
        present = nodes()
        if present is None or not await present.probe_once():
            return
        del present


def _wants_connection(node: Node) -> bool:
    return node.failure is None and (node.run_id is None or not node.wire.is_ready)


def _wants_probe(node: Node) -> bool:
    """Whether it is down, or has not got all that it missed: no caller waits for that."""
    return node.failure is not None or bool(node.undelivered)


def _all_answered(answers: Sequence[Any]) -> bool:
    return all(answer is not None for answer in answers)
