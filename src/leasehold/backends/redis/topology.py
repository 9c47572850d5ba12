"""Which server to ask for a lock: the only one, the primary that Sentinels name, or the owner of a slot in a Cluster.

What is known is kept until a server contradicts it; then it is asked for again. It sends questions over the wire, and
decides nothing about locks.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.backends.redis.commands import pack
from leasehold.backends.redis.trouble import from_reply
from leasehold.backends.redis.wire import Node, load_driver
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.redis.wire import Wire

__all__ = ["Cluster", "OneServer", "SentinelGroup", "Topology"]

DISCOVERY_TIMEOUT = 1.0
LEAST_SHARE = 0.1
SLOTS = 16384


class Topology(Protocol):
    """Where the locks are."""

    sharded: bool  # whether messages stay with the server of their slot

    def known(self, slot_key: bytes) -> Node | None:
        """The server for this key, if it is known."""

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:
        """Find it out by that instant."""

    def lost(self, node: Node) -> None:
        """This server did not answer, or is not what it was taken for."""

    def moved(self, slot: int, node: Node) -> None:
        """A server said that this slot belongs to another."""

    async def all(self, wire: Wire) -> Sequence[Node]:
        """Every server that holds locks."""


class OneServer:
    """The only one."""

    sharded = False

    def __init__(self, node: Node) -> None:
        self._node = node

    def known(self, slot_key: bytes) -> Node | None:  # noqa: ARG002 - it has them all
        """The server."""
        return self._node

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:  # noqa: ARG002 - it is known
        """The server."""
        return self._node

    def lost(self, node: Node) -> None:
        """There is no other."""

    def moved(self, slot: int, node: Node) -> None:
        """It does not belong to a cluster that we know of."""

    async def all(self, wire: Wire) -> Sequence[Node]:  # noqa: ARG002 - nothing to find out
        """The server."""
        return [self._node]


class SentinelGroup:
    """A primary that Sentinels watch.

    After a fail-over Sentinels disagree for a while, and the old primary may come back believing that it still is one.
    So all of them are asked, the newest configuration counts, and the server itself has to agree.
    """

    sharded = False

    def __init__(self, sentinels: Sequence[Node], service: str, label: str) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._label = label
        self._primary: Node | None = None

    def known(self, slot_key: bytes) -> Node | None:  # noqa: ARG002 - it has them all
        """The primary, if it is known."""
        return self._primary

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:  # noqa: ARG002 - it has all
        """Ask the Sentinels, then the server. Each has its share of the time, because one may be silent."""
        answers, troubles = [], []
        for asked, sentinel in enumerate(self._sentinels):
            try:
                answers.append(await self._ask(wire, sentinel, len(self._sentinels) - asked + 2, until))
            except BackendError as error:
                troubles.append(error)
        if not answers:
            raise self._unknown(troubles)
        primary = newest(answers)
        (role,) = await _exchange(wire, primary, pack("ROLE"), 2, until)
        if isinstance(role, Exception):
            role = [b"master"]  # the account may not ask; READONLY would tell
        if role[0] != b"master":
            raise BackendUnavailable(f"{self._label}: {primary} is not the primary yet", backend=self._label)
        self._primary = primary
        return primary

    def _unknown(self, troubles: Sequence[BackendError]) -> BackendError:
        refusal = refused_by_all(troubles)
        if refusal is not None:
            return refusal
        refusals = [trouble for trouble in troubles if isinstance(trouble, BackendRejected)]
        said = next(iter([*refusals, *troubles]), "no Sentinel answered")
        return BackendUnavailable(f"{self._label}: the primary is not known: {said}", backend=self._label)

    async def _ask(self, wire: Wire, sentinel: Node, parts: int, until: float) -> tuple[int, Node]:
        (reply,) = await _exchange(wire, sentinel, pack("SENTINEL", "MASTER", self._service), parts, until)
        if isinstance(reply, Exception):
            text = str(reply)
            if "No such master" in text:
                raise BackendRejected(f"{self._label}: {sentinel} does not know {self._service!r}", backend=self._label)
            if "unknown command" in text:
                raise BackendRejected(
                    f"{self._label}: {sentinel} is not a Sentinel; for a server itself the URL begins with redis://",
                    backend=self._label,
                )
            raise from_reply(text, self._label)
        facts = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        return int(facts[b"config-epoch"]), Node(facts[b"ip"].decode(), int(facts[b"port"]))

    def lost(self, node: Node) -> None:
        """Ask the Sentinels again next time."""
        if node == self._primary:
            self._primary = None

    def moved(self, slot: int, node: Node) -> None:
        """It is not a cluster."""

    async def all(self, wire: Wire) -> Sequence[Node]:
        """The primary."""
        return [self._primary or await self.find(wire, b"")]


class Cluster:
    """Slots, each with a server of its own."""

    sharded = True

    def __init__(self, seeds: Sequence[Node], label: str) -> None:
        self._seeds = list(seeds)
        self._label = label
        self._owners: dict[int, Node] = {}

    def known(self, slot_key: bytes) -> Node | None:
        """The owner of the key's slot, if it is known."""
        return self._owners.get(slot_of(slot_key))

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:
        """Ask any server for the whole map. Each has its share of the time, because one may be silent."""
        troubles: list[BackendError] = []
        nodes = list(dict.fromkeys([*self._owners.values(), *self._seeds]))
        for asked, node in enumerate(nodes):
            try:
                owners = await self._ask(wire, node, len(nodes) - asked + 1, until)
            except BackendError as error:
                troubles.append(error)
                continue
            owner = owners.get(slot_of(slot_key))
            if owner is not None:
                self._owners = owners
                return owner
            said = f"{self._label}: nobody serves the slot of this name now"
            troubles.append(BackendUnavailable(said, backend=self._label))
        raise refused_by_all(troubles) or BackendUnavailable(str(troubles[-1]), backend=self._label)

    async def _ask(self, wire: Wire, node: Node, parts: int, until: float) -> dict[int, Node]:
        (reply,) = await _exchange(wire, node, pack("CLUSTER", "SLOTS"), parts, until)
        if not isinstance(reply, Exception):
            return _read_map(reply, node)
        text = str(reply)
        if "cluster support disabled" in text:
            raise BackendRejected(
                f"{self._label}: {node} does not belong to a Cluster; for one server the URL begins with redis://",
                backend=self._label,
            )
        raise from_reply(text, self._label)

    def lost(self, node: Node) -> None:
        """Forget its slots; they may have a new owner."""
        self._owners = {slot: owner for slot, owner in self._owners.items() if owner != node}

    def moved(self, slot: int, node: Node) -> None:
        """Remember the new owner."""
        self._owners[slot] = node

    async def all(self, wire: Wire) -> Sequence[Node]:
        """Every owner of a slot."""
        await self.find(wire, b"")
        return list(dict.fromkeys(self._owners.values()))


def newest(answers: Sequence[tuple[int, Node]]) -> Node:
    """The primary of the newest configuration: a Sentinel that was cut off for a while still names the old one."""
    _, primary = max(answers, key=lambda answer: answer[0])
    return primary


def refused_by_all(troubles: Sequence[BackendError]) -> BackendRejected | None:
    """One that refuses may have been set up anew; only if all of them do it is for good."""
    refusals = [trouble for trouble in troubles if isinstance(trouble, BackendRejected)]
    return refusals[0] if refusals and len(refusals) == len(troubles) else None


def share(left: float, parts: int) -> float:
    """How much of the time that is left one server may use of so many that have to be asked."""
    return min(DISCOVERY_TIMEOUT, max(left / parts, LEAST_SHARE))


async def _exchange(wire: Wire, node: Node, payload: bytes, parts: int, until: float) -> list[Any]:
    left = wire.left(until)
    if left == math.inf:
        return await wire.exchange(node, payload, 1, DISCOVERY_TIMEOUT)
    own = share(left, parts)
    return await wire.exchange(node, payload, 1, own, min(until, until - left + own))


def slot_of(key: bytes) -> int:
    """The slot of a key: of the part in the first pair of braces, if there is one."""
    load_driver()
    from redis.crc import key_slot  # noqa: PLC0415 - loaded with the store

    return int(key_slot(key))


def _read_map(reply: list[Any], asked: Node) -> dict[int, Node]:
    owners: dict[int, Node] = {}
    for first, last, owner, *_ in reply:
        host = owner[0].decode() if owner[0] else asked.host  # a server that does not know its own name
        node = Node(host, int(owner[1]))
        with suppress(TypeError):
            owners.update(dict.fromkeys(range(first, last + 1), node))
    return owners
