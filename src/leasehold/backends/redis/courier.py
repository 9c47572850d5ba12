"""Takes a script call to the right server and follows what the server says about it.

A script that the server does not know was not run, and neither was a call that it redirected: sending these again is
safe, and is part of the same attempt. Nothing else is ever sent twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leasehold.backends.redis.commands import pack
from leasehold.backends.redis.trouble import from_reply, prefix_of
from leasehold.backends.redis.wire import Node
from leasehold.errors import BackendError, BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.redis.keys import Keys
    from leasehold.backends.redis.topology import Topology
    from leasehold.backends.redis.wire import Wire
    from leasehold.spi import Request, Runtime

__all__ = ["Courier", "Sendable"]

MOST_DETOURS = 6


class Sendable(Protocol):
    """A script call."""

    keys: Keys

    @property
    def short(self) -> bytes:
        """By digest."""

    @property
    def whole(self) -> bytes:
        """With the text."""


class Courier:
    """Sends calls and commands for one store."""

    def __init__(self, wire: Wire, topology: Topology, runtime: Runtime, label: str) -> None:
        self.wire = wire
        self.topology = topology
        self._runtime = runtime
        self._label = label

    async def node_for(self, keys: Keys) -> Node:
        """The server of this lock."""
        return self.topology.known(keys.slot_key) or await self.topology.find(self.wire, keys.slot_key)

    async def ask(self, call: Sendable, timeout: float) -> Any:
        """One call, one reply."""
        topology, slot_key = self.topology, call.keys.slot_key
        node = topology.known(slot_key) or await topology.find(self.wire, slot_key)
        try:
            (reply,) = await self.wire.exchange(node, call.short, 1, timeout)
        except (BackendUnavailable, OutcomeUnknown):
            topology.lost(node)
            raise
        if isinstance(reply, Exception):
            (reply,) = await self._detour(node, call, reply, b"", timeout)
        return reply

    async def ask_and_wait(
        self, call: Sendable, replicas: int, patience: float, timeout: float
    ) -> tuple[Any, int | BackendError]:
        """One call, and how many replicas have acknowledged it; or why that cannot be known."""
        node = await self.node_for(call.keys)
        wait = pack("WAIT", replicas, max(1, round(patience * 1000)))
        reply, acknowledged = await self._exchange(node, call.short + wait, 2, timeout + patience, alone=True)
        if isinstance(reply, Exception):
            reply, acknowledged = await self._detour(node, call, reply, wait, timeout + patience)
        if isinstance(acknowledged, Exception):
            return reply, from_reply(str(acknowledged), self._label)
        return reply, int(acknowledged)

    async def ask_all(self, calls: Sequence[Sendable], timeout: float) -> list[Any]:
        """Many calls, each with its reply or its error; one write per server, all servers at once."""
        answers: list[Any] = [None] * len(calls)
        groups: dict[Node, list[int]] = {}
        trouble: BackendError | None = None  # nobody serves the slot of one: no reason to give up the others
        for place, call in enumerate(calls):
            node = self.topology.known(call.keys.slot_key)
            if node is None and trouble is None:
                try:
                    node = await self.topology.find(self.wire, call.keys.slot_key)
                except BackendError as error:
                    trouble = error
            if node is None:
                answers[place] = trouble
            else:
                groups.setdefault(node, []).append(place)
        requests = [
            self.wire.request(node, [calls[place].short for place in places], timeout)
            for node, places in groups.items()
        ]
        if len(requests) == 1:
            results: Sequence[Any] = [await _performed(requests[0])]
        else:
            results = await self._runtime.scatter(requests, lambda _: False, self._runtime.now() + timeout)
        for (node, places), result in zip(groups.items(), results, strict=True):
            replies = await self._replies(node, result, [calls[place] for place in places], timeout)
            for place, reply in zip(places, replies, strict=True):
                answers[place] = reply
        return answers

    async def command(self, node: Node, *parts: str | bytes | int, timeout: float = 2.0) -> Any:
        """One plain command; an error reply is raised."""
        (reply,) = await self.commands(node, parts, timeout=timeout)
        return reply

    async def commands(self, node: Node, *commands: Sequence[str | bytes | int], timeout: float = 2.0) -> list[Any]:
        """Several plain commands in one round trip; the first error reply is raised."""
        payload = b"".join(pack(*parts) for parts in commands)
        replies = await self._exchange(node, payload, len(commands), timeout)
        for reply in replies:
            if isinstance(reply, Exception):
                raise from_reply(str(reply), self._label)
        return replies

    async def _replies(self, node: Node, result: Any, calls: Sequence[Sendable], timeout: float) -> list[Any]:
        """The reply or error of each call to one server; those that were not run are sent again, one by one."""
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
                    (replies[place],) = await self._detour(node, calls[place], reply, b"", timeout)
                except BackendError as error:
                    replies[place] = error
        return replies

    async def _exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, *, alone: bool = False
    ) -> list[Any]:
        try:
            return await self.wire.exchange(node, payload, count, timeout, alone=alone)
        except (BackendUnavailable, OutcomeUnknown):
            self.topology.lost(node)
            raise

    async def _detour(self, node: Node, call: Sendable, error: Exception, after: bytes, timeout: float) -> list[Any]:
        """The call was not run: find out where and how it can be."""
        count = 2 if after else 1
        for _ in range(MOST_DETOURS):
            text = str(error)
            word = prefix_of(text)
            asking = b""
            if word == "NOSCRIPT":
                payload = call.whole
            elif word in ("MOVED", "ASK"):
                node = self.redirected(text, node)
                asking = pack("ASKING") if word == "ASK" else b""
                payload = call.whole  # the other server may not know the script, and a detour is rare
            else:
                self.topology.lost(node)
                raise from_reply(text, self._label)
            replies = await self._exchange(
                node, asking + payload + after, count + bool(asking), timeout, alone=bool(after)
            )
            replies = replies[bool(asking) :]
            if not isinstance(replies[0], Exception):
                return replies
            error = replies[0]
        raise from_reply(str(error), self._label)

    def redirected(self, text: str, asked: Node) -> Node:
        """`MOVED slot host:port`, which is remembered, or ASK; an empty host is the one that was asked."""
        word, slot, address = text.split()[:3]
        host, _, port = address.rpartition(":")
        node = Node(host or asked.host, int(port))
        if word == "MOVED":
            self.topology.moved(int(slot), node)
        return node


async def _performed(request: Request[list[Any]]) -> Any:
    try:
        return await request.perform()
    except BackendError as error:
        return error
