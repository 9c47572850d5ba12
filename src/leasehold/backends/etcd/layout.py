"""Where things are in etcd: from a lock's key to the bytes of etcd's keys, and back. It knows no request.

Below a root that says its version (`leasehold/1/`):

    q/KEY/w/SLOT       an exclusive claim: it holds, or it waits; so do
    q/KEY/r/SLOT       a shared one, and
    q/KEY/p3/SLOT      one for a permit of three
    x/KEY/OWNER        a claim that was withdrawn: a late copy of it is refused
    b/KEY/OWNER        a grant that was broken at once: its holder is told why
    f/NAMESPACE        the floor of the fences
    r/KEY/fence, r/KEY/value    a record

KEY and OWNER are percent-encoded, so neither has a slash: `a` and `a/b` cannot meet, whatever they contain. The
encoding goes byte by byte, so the keys that begin with a prefix are still one range. The mode is in the key, where a
condition of a transaction can see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from leasehold.errors import BackendRejected
from leasehold.values import Mode

__all__ = ["Lane", "Layout", "Range", "after"]

VERSION = "1"
SAFE = ":"  # besides letters, digits and _.-~
_LETTERS = {Mode.EXCLUSIVE: "w", Mode.SHARED: "r"}
_MODES = {letter: mode for mode, letter in _LETTERS.items()}

Range = tuple[bytes, bytes]


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with the prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


@lru_cache(maxsize=1024)
def _encoded(owner: str) -> bytes:
    return quote(owner, SAFE).encode()


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """Where claims of one kind stand for one lock. Each is made once, and compared by identity."""

    prefix: bytes  # of the claims of this mode
    all: Range  # of everybody who wants this lock, of whatever kind
    ahead: Range  # where those stand who may be in the way
    strangers: tuple[Range, ...]  # where those of another kind would stand
    withdrawn: bytes
    broken: bytes
    floor: bytes

    def seat(self, slot: int) -> bytes:
        """The key of a claim."""
        return self.prefix + b"%x" % slot

    def withdrawal(self, owner: str) -> bytes:
        """The key that refuses late copies of a claim."""
        return self.withdrawn + _encoded(owner)

    def verdict(self, owner: str) -> bytes:
        """The key that tells a holder why its grant was broken."""
        return self.broken + _encoded(owner)


@dataclass(frozen=True, slots=True)
class Spot:
    """A claim's key, taken apart."""

    key: str
    mode: Mode
    capacity: int


class Layout:
    """The keys below one root."""

    def __init__(self, root: str) -> None:
        self.root = f"{root}{VERSION}/"
        self.lane = lru_cache(maxsize=4096)(self._lane)

    def _lane(self, key: str, mode: Mode, capacity: int) -> Lane:
        name = quote(key, SAFE)
        base = f"{self.root}q/{name}/".encode()
        locks, permits = (base + b"r", base + b"x"), (base + b"p", base + b"q")
        if mode is Mode.PERMIT:
            prefix = base + f"p{capacity}/".encode()
            ahead = (prefix, after(prefix))
            strangers: tuple[Range, ...] = (locks, (permits[0], prefix), (after(prefix), permits[1]))
        else:
            prefix = base + f"{_LETTERS[mode]}/".encode()
            # A shared claim cares for exclusive ones only, an exclusive one for both.
            ahead = locks if mode is Mode.EXCLUSIVE else (base + b"w", base + b"x")
            strangers = (permits,)
        return Lane(
            prefix,
            (base, after(base)),
            ahead,
            strangers,
            f"{self.root}x/{name}/".encode(),
            f"{self.root}b/{name}/".encode(),
            self.floor(key),
        )

    def floor(self, key: str) -> bytes:
        """The key of the floor under the fences of a lock's namespace."""
        return f"{self.root}f/{quote(key.partition(':')[0], SAFE)}".encode()

    def queue(self, key: str) -> Range:
        """Everybody who wants this lock."""
        base = f"{self.root}q/{quote(key, SAFE)}/".encode()
        return base, after(base)

    def queues(self, prefix: str) -> Range:
        """Everybody who wants a lock whose key begins like this."""
        base = f"{self.root}q/{quote(prefix, SAFE)}".encode()
        return base, after(base)

    def record(self, key: str) -> tuple[bytes, bytes]:
        """The keys of a record's fence and of its value."""
        base = f"{self.root}r/{quote(key, SAFE)}/".encode()
        return base + b"fence", base + b"value"

    def spot(self, key: bytes) -> Spot:
        """Take a claim's key apart."""
        try:
            name, kind, _ = key.decode()[len(self.root) + 2 :].split("/")
            mode = _MODES.get(kind, Mode.PERMIT)
            capacity = int(kind[1:]) if mode is Mode.PERMIT else 1
        except ValueError:
            raise BackendRejected(f"{key!r} is not a key of ours; choose another root for the locks") from None
        return Spot(unquote(name), mode, capacity)
