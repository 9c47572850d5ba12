"""What stands in the tree: paths, names of nodes and what is written in them. It knows no connection.

    <root>/fence                          what all fences are counted from; see `raise_fence`
    <root>/locks/<key>                    one lock in use; a container, which the ensemble removes when it is empty
    <root>/locks/<key>/x-<id>-0000000042  one claim, holding or waiting: ephemeral, numbered by the ensemble
    <root>/locks/<key>/b-<id>-0000000043  a claim that an operator has broken at once, and why

The key is percent-encoded, so that no name can leave its place, and two names never meet. A claim's node begins with
its kind (x exclusive, s shared, p3 one of three permits) and the hash of its owner: after a lost answer it can be found
again, and the owner value itself never leaves the process.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from leasehold.errors import BackendRejected
from leasehold.values import Holder, Mode

if TYPE_CHECKING:
    from leasehold.values import Claim

__all__ = ["BROKEN", "Facts", "Paths", "Sibling", "is_foreign", "node_id", "node_prefix", "parse_node"]

BROKEN = "b"
_LETTERS = {Mode.EXCLUSIVE: "x", Mode.SHARED: "s"}
_MODES = {letter: mode for mode, letter in _LETTERS.items()}
LAST_SEQUENCE = 2**31 - 2**16  # then the ensemble would give the same number twice


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things are."""

    root: str

    @property
    def fence(self) -> str:
        """The node that all fences are counted from."""
        return f"{self.root}/fence"

    @property
    def locks(self) -> str:
        """The parent of all locks."""
        return f"{self.root}/locks"

    def lock(self, key: str) -> str:
        """The parent of all claims of one key."""
        return _lock_path(self.root, key)


@functools.lru_cache(maxsize=4096)
def _lock_path(root: str, key: str) -> str:
    return f"{root}/locks/{quote(key, safe='')}"


def key_of(child: str) -> str:
    """The key of a lock, from the name of its node."""
    return unquote(child)


def node_id(owner: str) -> str:
    """What others may see of an owner."""
    return hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()


def node_prefix(claim: Claim) -> str:
    """How the node of a claim begins; the ensemble appends its number."""
    letter = _LETTERS.get(claim.mode) or f"p{claim.capacity}"
    return f"{letter}-{node_id(claim.owner)}-"


@dataclass(frozen=True, slots=True)
class Sibling:
    """A claim's node, as its name tells."""

    name: str
    letter: str
    id: str
    sequence: int
    mode: Mode
    capacity: int

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody may hold beside it."""
        return self.mode is Mode.EXCLUSIVE

    @property
    def is_used_up(self) -> bool:
        """Whether the ensemble will soon run out of numbers for this lock: then order could not be told any more."""
        return not 0 <= self.sequence <= LAST_SEQUENCE


@functools.lru_cache(maxsize=16_384)
def parse_node(name: str) -> Sibling:
    """Take the name of a node apart. Something that is none of ours is never ignored: it could be in the way."""
    try:
        letter, identity, sequence = name.split("-", 2)
        number = int(sequence)
        if letter[0] == "p":
            return Sibling(name, letter, identity, number, Mode.PERMIT, int(letter[1:]))
        if letter == BROKEN:
            return Sibling(name, letter, identity, number, Mode.EXCLUSIVE, 0)
        return Sibling(name, letter, identity, number, _MODES[letter], 1)
    except (ValueError, KeyError, IndexError):
        raise BackendRejected(
            f"there is a node {name!r} where only leasehold's own may be; choose another root for the store"
        ) from None


def is_foreign(name: str) -> bool:
    """Whether a node between claims was made by another program."""
    try:
        parse_node(name)
    except BackendRejected:
        return True
    return False


@dataclass(frozen=True, slots=True)
class Facts:
    """What is written in a node: for people, and `floor` and `granted` for those who wait behind it."""

    holder: Holder
    timeout: float  # of its session: how long it stays when its holder vanishes
    floor: int  # what its fence is counted from
    granted: bool = False  # it has waited, and was granted then
    broken: str | None = None  # the reason an operator gave

    def encode(self) -> bytes:
        """As bytes; what is not there is not written."""
        holder = self.holder
        facts = {
            "host": holder.host,
            "pid": holder.pid,
            "label": holder.label,
            "reason": holder.reason,
            "timeout": round(self.timeout, 3),
            "floor": self.floor,
            "granted": self.granted,
            "broken": self.broken,
        }
        return json.dumps({name: fact for name, fact in facts.items() if fact}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Facts:
        """From bytes; raises if they are none of ours."""
        try:
            facts = json.loads(data)
            holder = Holder(facts.get("host", ""), facts.get("pid", 0), facts.get("label"), facts.get("reason"))
            timeout, floor = float(facts.get("timeout", 0.0)), int(facts.get("floor", 0))
            return cls(holder, timeout, floor, bool(facts.get("granted")), facts.get("broken"))
        except (ValueError, AttributeError, TypeError):
            raise BackendRejected("there is a node whose content is not leasehold's own") from None
