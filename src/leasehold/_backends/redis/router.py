"""Sends each script call to the server of its lock, and follows redirections.

A script that the server has not cached was not run, and neither was a call that it redirected or put off because a slot
is being moved: sending these again is safe, and is part of the same attempt. Nothing else is ever sent twice.

`until` is the instant by which a call has ended.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.errors import error_code, error_from_reply, is_not_logged_in
from leasehold._backends.redis.wire import Node
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.redis.keys import Keys
    from leasehold._backends.redis.topology import Topology
    from leasehold._backends.redis.wire import Wire
    from leasehold.spi import Request, Runtime

__all__ = ["Router", "Sendable"]

MOST_DETOURS = 6
SLOT_PAUSE = 0.05  # before a call is sent again that was put off because its slot is being moved


class Sendable(Protocol):
    """A script call."""

    keys: Keys

    @property
    def short(self) -> bytes:
        """By digest."""

    @property
    def whole(self) -> bytes:
        """With the text."""


class Router:
    """Sends calls and commands for one store."""

    def __init__(self, wire: Wire, topology: Topology, runtime: Runtime, label: str) -> None:
        self.wire = wire
        self.topology = topology
        self._runtime = runtime
        self._label = label

    async def node_for(self, keys: Keys, until: float = math.inf) -> Node:
        """The server of this lock."""
        return self.topology.known(keys.slot_key) or await self.topology.find(self.wire, keys.slot_key, until)

    async def execute(self, call: Sendable, timeout: float, until: float = math.inf) -> Any:
        """One call, one reply. While its slot is being moved it waits, at most as long as for an answer."""
        topology = self.topology
        node = topology.only
        if node is None:
            slot_key = call.keys.slot_key
            node = topology.known(slot_key) or await topology.find(self.wire, slot_key, until)
        try:
            (reply,) = await self.wire.exchange(node, call.short, 1, timeout, until)
        except (BackendUnavailable, OutcomeUnknown):
            topology.lost(node)
            raise
        if isinstance(reply, Exception):
            moved_by = min(until, self._runtime.now() + timeout)
            (reply,) = await self._detour(node, call, reply, None, timeout, until=until, moved_by=moved_by)
        return reply

    async def execute_replicated(
        self, call: Sendable, replicas: int, patience: float, timeout: float, until: float = math.inf
    ) -> tuple[Any, int | BackendError]:
        """One call, and how many replicas have acknowledged it; or why that cannot be known."""
        node = await self.node_for(call.keys, until)
        wait = partial(self._wait, replicas, patience, until)
        longest = timeout + patience
        reply, acknowledged = await self._exchange(node, call.short + wait(), 2, longest, until, alone=True)
        if isinstance(reply, Exception):
            moved_by = min(until, self._runtime.now() + timeout)
            reply, acknowledged = await self._detour(node, call, reply, wait, longest, until=until, moved_by=moved_by)
        if isinstance(acknowledged, Exception):
            return reply, error_from_reply(str(acknowledged), self._label)
        return reply, int(acknowledged)

    def _wait(self, replicas: int, patience: float, until: float) -> bytes:
        """Half of the time is kept back, because what is not acknowledged has to be undone."""
        patience = min(patience, max(0.0, self.wire.left(until)) / 2)
        return pack("WAIT", replicas, max(1, round(patience * 1000)))

    async def execute_all(self, calls: Sequence[Sendable], timeout: float, until: float = math.inf) -> list[Any]:
        """Many calls, each with its reply or its error; one write per server, all servers at once."""
        answers: list[Any] = [None] * len(calls)
        groups: dict[Node, list[int]] = {}
        error: BackendError | None = None  # the slot of one call has no server: no reason to give up the others
        for place, call in enumerate(calls):
            node = self.topology.known(call.keys.slot_key)
            if node is None and error is None:
                try:
                    node = await self.topology.find(self.wire, call.keys.slot_key, until)
                except BackendError as problem:
                    error = problem
            if node is None:
                answers[place] = error
            else:
                groups.setdefault(node, []).append(place)
        requests = [
            self.wire.request(node, [calls[place].short for place in places], timeout, until)
            for node, places in groups.items()
        ]
        if len(requests) == 1:
            results: Sequence[Any] = [await _performed(requests[0])]
        else:
            deadline = min(until, self._runtime.now() + timeout)
            results = await self._runtime.scatter(requests, lambda _: False, deadline)
        for (node, places), result in zip(groups.items(), results, strict=True):
            replies = await self._replies(node, result, [calls[place] for place in places], timeout, until)
            for place, reply in zip(places, replies, strict=True):
                answers[place] = reply
        return answers

    async def command(self, node: Node, *parts: str | bytes | int, timeout: float = 2.0) -> Any:
        """One plain command; an error reply is raised."""
        (reply,) = await self.commands(node, parts, timeout=timeout)
        return reply

    async def commands(
        self, node: Node, *commands: Sequence[str | bytes | int], timeout: float = 2.0, until: float = math.inf
    ) -> list[Any]:
        """Several plain commands in one round trip; the first error reply is raised."""
        payload = b"".join(pack(*parts) for parts in commands)
        replies = await self._exchange(node, payload, len(commands), timeout, until)
        for reply in replies:
            if isinstance(reply, Exception):
                raise error_from_reply(str(reply), self._label)
        return replies

    async def _replies(
        self, node: Node, result: Any, calls: Sequence[Sendable], timeout: float, until: float
    ) -> list[Any]:
        """The reply or error of each call to one server; those that were not run are sent again, one by one."""
        if isinstance(result, ClientClosed):
            raise result
        if result is None:
            result = OutcomeUnknown(f"{self._label}: {node} did not answer in time", backend=self._label)
        if isinstance(result, Exception):
            self.topology.lost(node)
            return [result] * len(calls)
        replies = list(result)
        for place, reply in enumerate(replies):
            if isinstance(reply, BackendError):  # the connection broke in the middle
                self.topology.lost(node)
            elif isinstance(reply, Exception):
                try:
                    (replies[place],) = await self._detour(node, calls[place], reply, None, timeout, until=until)
                except BackendError as error:
                    replies[place] = error
        return replies

    async def _exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float, *, alone: bool = False
    ) -> list[Any]:
        try:
            return await self.wire.exchange(node, payload, count, timeout, until, alone=alone)
        except (BackendUnavailable, OutcomeUnknown):
            self.topology.lost(node)
            raise

    async def _detour(
        self,
        node: Node,
        call: Sendable,
        error: Exception,
        after: Callable[[], bytes] | None,
        timeout: float,
        *,
        until: float,
        moved_by: float = 0.0,
    ) -> list[Any]:
        """The call was not run: find out where and how it can be. `moved_by`: until when to wait for a moving slot.

        `after` is asked anew for what follows the call each time it is sent: there is less time left then.
        """
        count, detours, owner = 2 if after else 1, 0, node
        put_off = ""  # the reply of a server that moves the slot
        while detours < MOST_DETOURS:
            text = str(error)
            code = error_code(text)
            asking = b""
            if code in ("MOVED", "ASK"):
                node = self.redirected(text, node)
                owner = node if code == "MOVED" else owner
                asking = pack("ASKING") if code == "ASK" else b""
            elif code == "TRYAGAIN" and self._runtime.now() + SLOT_PAUSE < moved_by:
                put_off = text
                await self._runtime.sleep(SLOT_PAUSE)
                node, detours = owner, 0
            elif code != "NOSCRIPT":
                self._refused(node, text)
                raise error_from_reply(text, self._label)
            try:
                payload = asking + call.whole  # the other server may not have cached the script; a detour is rare
                payload += after() if after else b""
                replies = await self._exchange(
                    node, payload, count + bool(asking), timeout, until, alone=after is not None
                )
            except BackendUnavailable:
                if put_off and self.wire.left(until) <= 0:  # the time went by with waiting for the slot
                    raise error_from_reply(put_off, self._label) from None
                raise
            replies = replies[bool(asking) :]
            if not isinstance(replies[0], Exception):
                return replies
            error = replies[0]
            detours += 1
        raise error_from_reply(str(error), self._label)

    def _refused(self, node: Node, text: str) -> None:
        self.topology.lost(node)
        if is_not_logged_in(text):
            self.wire.drop_connections(node)  # after this answer the server closes the connection

    def redirected(self, text: str, sender: Node) -> Node:
        """`MOVED slot host:port`, which is remembered, or ASK; an empty host is that of the sender."""
        code, slot, address = text.split()[:3]
        host, _, port = address.rpartition(":")
        node = Node(host or sender.host, int(port))
        if code == "MOVED":
            self.topology.moved(int(slot), node)
        return node


async def _performed(request: Request[list[Any]]) -> Any:
    try:
        return await request.perform()
    except BackendError as error:
        return error
