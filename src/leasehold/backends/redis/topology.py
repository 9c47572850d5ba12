"""Which server to ask for a lock: the only one, the primary that Sentinels name, or the owner of a slot in a Cluster.

What is known is kept until a server contradicts it; then it is asked for again. It sends questions over the wire, and
decides nothing about locks.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.backends.redis.commands import pack
from leasehold.backends.redis.wire import Node
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.redis.wire import Wire

__all__ = ["Cluster", "OneServer", "SentinelGroup", "Topology"]

DISCOVERY_TIMEOUT = 1.0
SLOTS = 16384


class Topology(Protocol):
    """Where the locks are."""

    sharded: bool  # whether messages stay with the server of their slot

    def known(self, slot_key: bytes) -> Node | None:
        """The server for this key, if it is known."""

    async def find(self, wire: Wire, slot_key: bytes) -> Node:
        """Find it out."""

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

    async def find(self, wire: Wire, slot_key: bytes) -> Node:  # noqa: ARG002 - nothing to find out
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

    async def find(self, wire: Wire, slot_key: bytes) -> Node:  # noqa: ARG002 - it has them all
        """Ask the Sentinels, then the server."""
        answers, troubles = [], []
        for sentinel in self._sentinels:
            try:
                answers.append(await self._ask(wire, sentinel))
            except BackendError as error:
                troubles.append(error)
        if not answers:
            raise self._unknown(troubles)
        _, primary = max(answers, key=lambda answer: answer[0])
        (role,) = await wire.exchange(primary, pack("ROLE"), 1, DISCOVERY_TIMEOUT)
        if isinstance(role, Exception):
            role = [b"master"]  # the account may not ask; READONLY would tell
        if role[0] != b"master":
            raise BackendUnavailable(f"{self._label}: {primary} is not the primary yet", backend=self._label)
        self._primary = primary
        return primary

    def _unknown(self, troubles: Sequence[BackendError]) -> BackendError:
        """One that refuses may have been set up anew; only if all of them do it is for good."""
        refusals = [trouble for trouble in troubles if isinstance(trouble, BackendRejected)]
        if refusals and len(refusals) == len(troubles):
            return refusals[0]
        said = next(iter([*refusals, *troubles]), "no Sentinel answered")
        return BackendUnavailable(f"{self._label}: the primary is not known: {said}", backend=self._label)

    async def _ask(self, wire: Wire, sentinel: Node) -> tuple[int, Node]:
        (reply,) = await wire.exchange(sentinel, pack("SENTINEL", "MASTER", self._service), 1, DISCOVERY_TIMEOUT)
        if isinstance(reply, Exception):
            if "No such master" in str(reply):
                raise BackendRejected(f"{self._label}: {sentinel} does not know {self._service!r}", backend=self._label)
            raise BackendUnavailable(f"{self._label}: {sentinel} said {reply}", backend=self._label)
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

    async def find(self, wire: Wire, slot_key: bytes) -> Node:
        """Ask any server for the whole map."""
        trouble: object = "no server answered"
        for node in [*dict.fromkeys(self._owners.values()), *self._seeds]:
            try:
                (reply,) = await wire.exchange(node, pack("CLUSTER", "SLOTS"), 1, DISCOVERY_TIMEOUT)
            except BackendRejected:
                raise
            except BackendError as error:
                trouble = error
                continue
            if isinstance(reply, Exception):
                trouble = reply
                continue
            owners = _read_map(reply, node)
            owner = owners.get(slot_of(slot_key))
            if owner is not None:
                self._owners = owners
                return owner
            trouble = "nobody serves the slot of this name now"
        raise BackendUnavailable(f"{self._label}: {trouble}", backend=self._label)

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


def slot_of(key: bytes) -> int:
    """The slot of a key: of the part in the first pair of braces, if there is one."""
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
