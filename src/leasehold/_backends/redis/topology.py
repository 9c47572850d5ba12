"""Which server has a lock: the only one, the primary that Sentinels name, or the owner of a slot in a Cluster.

What is known is kept until a server contradicts it; then it is found out anew. Nothing here decides about locks.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.errors import error_from_reply
from leasehold._backends.redis.wire import Node, load_driver
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.redis.wire import Wire

__all__ = ["Cluster", "OneServer", "SentinelGroup", "Topology"]

DISCOVERY_TIMEOUT = 1.0
LEAST_SHARE = 0.1
SLOTS = 16384


class Topology(Protocol):
    """Where the locks are."""

    sharded: bool  # whether messages stay with the server of their slot

    @property
    def only(self) -> Node | None:
        """The server for every key, if there is one for all of them and it is known."""

    def known(self, slot_key: bytes) -> Node | None:
        """The server for this key, if it is known."""

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:
        """Find it out by that instant."""

    def lost(self, node: Node) -> None:
        """This server did not answer, or is not what it was taken for."""

    def moved(self, slot: int, node: Node) -> None:
        """A server redirected us: this slot belongs to another one."""

    async def all(self, wire: Wire) -> Sequence[Node]:
        """Every server that holds locks."""


class OneServer:
    """The only one."""

    sharded = False

    def __init__(self, node: Node) -> None:
        self.only: Node = node

    def known(self, slot_key: bytes) -> Node | None:  # noqa: ARG002 - it has them all
        return self.only

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:  # noqa: ARG002 - it is known
        return self.only

    def lost(self, node: Node) -> None:
        """There is no other."""

    def moved(self, slot: int, node: Node) -> None:
        """It does not belong to a Cluster that we know of."""

    async def all(self, wire: Wire) -> Sequence[Node]:  # noqa: ARG002 - nothing to find out
        return [self.only]


class SentinelGroup:
    """A primary that Sentinels watch.

    After a failover Sentinels disagree for a while, and the old primary may come back as one. So all of them are
    queried, the newest configuration counts, and the server itself has to confirm its role.
    """

    sharded = False

    def __init__(self, sentinels: Sequence[Node], service: str, label: str) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._label = label
        self.only: Node | None = None  # the primary

    def known(self, slot_key: bytes) -> Node | None:  # noqa: ARG002 - it has them all
        return self.only

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:  # noqa: ARG002 - it has all
        """Query the Sentinels, then the server. Each has its share of the time, because one may be silent."""
        answers, errors = [], []
        for done, sentinel in enumerate(self._sentinels):
            try:
                answers.append(await self._query(wire, sentinel, len(self._sentinels) - done + 2, until))
            except BackendError as error:
                errors.append(error)
        if not answers:
            raise self._unknown(errors)
        primary = newest(answers)
        (role,) = await _exchange(wire, primary, pack("ROLE"), 2, until)
        if isinstance(role, Exception):
            role = [b"master"]  # this account may not use ROLE; a replica would answer READONLY to the call
        if role[0] != b"master":
            raise BackendUnavailable(
                f"{self._label}: {primary} is not the primary yet; a failover is under way", backend=self._label
            )
        self.only = primary
        return primary

    def _unknown(self, errors: Sequence[BackendError]) -> BackendError:
        refusal = refused_by_all(errors)
        if refusal is not None:
            return refusal
        refusals = [error for error in errors if isinstance(error, BackendRejected)]
        why = next(iter([*refusals, *errors]), "no Sentinel answered")
        return BackendUnavailable(f"{self._label}: the primary is not known: {why}", backend=self._label)

    async def _query(self, wire: Wire, sentinel: Node, parts: int, until: float) -> tuple[int, Node]:
        (reply,) = await _exchange(wire, sentinel, pack("SENTINEL", "MASTER", self._service), parts, until)
        if isinstance(reply, Exception):
            text = str(reply)
            if "No such master" in text:
                raise BackendRejected(
                    f"{self._label}: {sentinel} does not know the service {self._service!r}; "
                    "SENTINEL MASTERS lists those it knows",
                    backend=self._label,
                )
            if "unknown command" in text:
                raise BackendRejected(
                    f"{self._label}: {sentinel} is not a Sentinel; for a server itself the URL begins with redis://",
                    backend=self._label,
                )
            raise error_from_reply(text, self._label)
        facts = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        return int(facts[b"config-epoch"]), Node(facts[b"ip"].decode(), int(facts[b"port"]))

    def lost(self, node: Node) -> None:
        """Query the Sentinels again next time."""
        if node == self.only:
            self.only = None

    def moved(self, slot: int, node: Node) -> None:
        """It is not a Cluster."""

    async def all(self, wire: Wire) -> Sequence[Node]:
        return [self.only or await self.find(wire, b"")]


class Cluster:
    """Slots, each with a server of its own."""

    sharded = True
    only = None

    def __init__(self, seeds: Sequence[Node], label: str) -> None:
        self._seeds = list(seeds)
        self._label = label
        self._owners: dict[int, Node] = {}

    def known(self, slot_key: bytes) -> Node | None:
        return self._owners.get(slot_of(slot_key))

    async def find(self, wire: Wire, slot_key: bytes, until: float = math.inf) -> Node:
        """Get the whole map from any server. Each has its share of the time, because one may be silent."""
        errors: list[BackendError] = []
        nodes = list(dict.fromkeys([*self._owners.values(), *self._seeds]))
        for done, node in enumerate(nodes):
            try:
                owners = await self._query(wire, node, len(nodes) - done + 1, until)
            except BackendError as error:
                errors.append(error)
                continue
            owner = owners.get(slot_of(slot_key))
            if owner is not None:
                self._owners = owners
                return owner
            why = f"{self._label}: no server has the slot of this name now; `redis-cli --cluster check` names the gap"
            errors.append(BackendUnavailable(why, backend=self._label))
        raise refused_by_all(errors) or BackendUnavailable(str(errors[-1]), backend=self._label)

    async def _query(self, wire: Wire, node: Node, parts: int, until: float) -> dict[int, Node]:
        (reply,) = await _exchange(wire, node, pack("CLUSTER", "SLOTS"), parts, until)
        if not isinstance(reply, Exception):
            return _read_map(reply, node)
        text = str(reply)
        if "cluster support disabled" in text:
            raise BackendRejected(
                f"{self._label}: {node} does not belong to a Cluster; for one server the URL begins with redis://",
                backend=self._label,
            )
        raise error_from_reply(text, self._label)

    def lost(self, node: Node) -> None:
        """Forget its slots; they may have a new owner."""
        self._owners = {slot: owner for slot, owner in self._owners.items() if owner != node}

    def moved(self, slot: int, node: Node) -> None:
        """Remember the new owner."""
        self._owners[slot] = node

    async def all(self, wire: Wire) -> Sequence[Node]:
        await self.find(wire, b"")
        return list(dict.fromkeys(self._owners.values()))


def newest(answers: Sequence[tuple[int, Node]]) -> Node:
    """The primary of the newest configuration: a Sentinel that was cut off for a while still names the old one."""
    _, primary = max(answers, key=lambda answer: answer[0])
    return primary


def refused_by_all(errors: Sequence[BackendError]) -> BackendRejected | None:
    """One server that refuses may have been set up anew; only if all of them refuse it is for good."""
    refusals = [error for error in errors if isinstance(error, BackendRejected)]
    return refusals[0] if refusals and len(refusals) == len(errors) else None


def share(left: float, parts: int) -> float:
    """How much of the time that is left one server may use, of so many that have to be queried."""
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


def _read_map(reply: list[Any], sender: Node) -> dict[int, Node]:
    owners: dict[int, Node] = {}
    for first, last, owner, *_ in reply:
        host = owner[0].decode() if owner[0] else sender.host  # a server that does not know its own name
        node = Node(host, int(owner[1]))
        with suppress(TypeError):
            owners.update(dict.fromkeys(range(first, last + 1), node))
    return owners
