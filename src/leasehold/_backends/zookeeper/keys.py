"""The tree: paths, names of nodes and the data in them. No connection here.

    <root>/fence                          the floor of all fences; see `fences`
    <root>/locks/<key>                    one lock in use; a container, which the ensemble removes when it is empty
    <root>/locks/<key>/x-<id>-0000000042  one claim, holding or waiting: ephemeral, numbered by the ensemble
    <root>/locks/<key>/b-<id>-0000000043  a break note: the reason why an operator deleted the node of a claim

The key is percent-encoded, so that no name leaves its place in the tree and two names never share a node. A claim's
node begins with its kind (x exclusive, s shared, p3 one of three permits) and the hash of its owner: the node can be
found again after a lost answer, and the owner value itself never leaves the process.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from leasehold.errors import BackendRejected
from leasehold.kit.holder import holder_fields, holder_from_fields
from leasehold.values import Holder, Mode

if TYPE_CHECKING:
    from leasehold.values import Claim

__all__ = [
    "BREAK_NOTE",
    "NodeData",
    "Paths",
    "Sibling",
    "is_foreign",
    "key_of",
    "node_id",
    "node_prefix",
    "parse_node",
]

BREAK_NOTE = "b"
_LETTERS = {Mode.EXCLUSIVE: "x", Mode.SHARED: "s"}
_MODES = {letter: mode for mode, letter in _LETTERS.items()}
LAST_SEQUENCE = 2**31 - 2**16  # beyond it the ensemble would soon give the same number twice


class Paths:
    """The paths of one root."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.fence = f"{root}/fence"  # the node with the floor of all fences
        self.locks = f"{root}/locks"  # the parent of all locks
        self.lock = functools.lru_cache(4096)(functools.partial(_lock_path, self.locks))  # of one key: its claims


def _lock_path(locks: str, key: str) -> str:
    return f"{locks}/{quote(key, safe='')}"


def key_of(child: str) -> str:
    """The key of a lock, from the name of its node."""
    return unquote(child)


def node_id(owner: str) -> str:
    """The part of an owner that others may see."""
    return hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()


def node_prefix(claim: Claim) -> str:
    """How the name of a claim's node begins; the ensemble appends its number."""
    letter = _LETTERS.get(claim.mode) or f"p{claim.capacity}"
    return f"{letter}-{node_id(claim.owner)}-"


@dataclass(frozen=True, slots=True)
class Sibling:
    """One node below a lock, as its name describes it."""

    name: str
    letter: str
    id: str
    sequence: int
    mode: Mode
    capacity: int

    @property
    def is_exclusive(self) -> bool:
        """Whether no other claim may hold beside it."""
        return self.mode is Mode.EXCLUSIVE

    @property
    def is_used_up(self) -> bool:
        """Whether the ensemble will soon run out of numbers for this lock: the order of claims would be lost then."""
        return not 0 <= self.sequence <= LAST_SEQUENCE


@functools.lru_cache(maxsize=16_384)
def parse_node(name: str) -> Sibling:
    """Take the name of a node apart. A node of another program is refused, never ignored: it may be another lock."""
    try:
        letter, identity, sequence = name.split("-", 2)
        number = int(sequence)
        if letter[0] == "p":
            return Sibling(name, letter, identity, number, Mode.PERMIT, int(letter[1:]))
        if letter == BREAK_NOTE:
            return Sibling(name, letter, identity, number, Mode.EXCLUSIVE, 0)
        return Sibling(name, letter, identity, number, _MODES[letter], 1)
    except (ValueError, KeyError, IndexError):
        raise BackendRejected(
            f"there is a node {name!r} where only leasehold's own may be; choose another root for the store"
        ) from None


def is_foreign(name: str) -> bool:
    """Whether a node among the claims of a lock was made by another program."""
    try:
        parse_node(name)
    except BackendRejected:
        return True
    return False


@dataclass(frozen=True, slots=True)
class NodeData:
    """The data of a claim's node: the kit's form of a holder, and some fields more.

    The holder is for people; `floor` and `granted` are read by the waiters behind this node.
    """

    holder: Holder
    timeout: float  # of its session: how long the node stays after its holder has vanished
    floor: int  # the floor that its fence is counted from
    granted: bool = False  # it has waited, and was granted then
    broken: str | None = None  # the reason an operator gave

    def encode(self) -> bytes:
        """As JSON; fields with no value are left out."""
        return encode_node(self.holder, self.timeout, self.floor, self.granted, self.broken)

    @classmethod
    def decode(cls, data: bytes) -> NodeData:
        """From JSON of this version or of the one before, which had no `v`; raises if it is not leasehold's own."""
        try:
            fields = json.loads(data)
            holder = holder_from_fields({"host": "", "pid": 0, **fields})
            timeout, floor = float(fields.get("timeout", 0.0)), int(fields.get("floor", 0))
            return cls(holder or Holder("", 0), timeout, floor, bool(fields.get("granted")), fields.get("broken"))
        except (ValueError, AttributeError, TypeError):
            raise BackendRejected(
                "there is a node whose data is not leasehold's own; choose another root for the store"
            ) from None


_to_json = json.JSONEncoder(separators=(",", ":")).encode


@functools.lru_cache(1024)
def encode_node(
    holder: Holder,
    timeout: float,
    floor: int,
    granted: bool = False,  # noqa: FBT001, FBT002 - the cache takes plain arguments
    broken: str | None = None,
) -> bytes:
    """The data of a node; cached, because a process writes the same for every claim of a ttl."""
    fields = {"timeout": round(timeout, 3), "floor": floor, "granted": granted, "broken": broken}
    written = {name: value for name, value in fields.items() if value}
    return _to_json(holder_fields(holder) | written).encode()
