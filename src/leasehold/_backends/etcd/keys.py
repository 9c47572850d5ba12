"""How names become keys of etcd, and back; and the small numbers that claims' keys end in.

Below a root that has its version (`leasehold/1/`):

    q/KEY/w/SUFFIX     an exclusive claim, which holds or waits
    q/KEY/r/SUFFIX     a shared one
    q/KEY/p3/SUFFIX    one for a permit of three
    x/KEY/OWNER        the mark of a claim that was withdrawn, or broken at once: a late copy of it is refused
    b/KEY/OWNER        the note of a grant that was broken at once: the reason, for its holder
    f/NAMESPACE        the floor of the fences
    r/KEY/fence, r/KEY/value    a record

KEY and OWNER are percent-encoded, so neither has a slash: `a` and `a/b` cannot meet, whatever they contain. The
encoding goes byte by byte, so the keys that begin with a prefix are still one range. The mode is in the key, where a
condition of a transaction can see it.

The suffix is not the claim's owner. etcd keeps every key that ever was in its index until it is compacted, which by
default it never is, and a range visits every key, the deleted ones included. With a new key for every claim a lock
would become slower with every use (measured: 10 µs for a hundred). So a client begins at a random one of a few numbers
and uses it again; after a collision with another client it moves to a larger range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from leasehold.errors import BackendRejected
from leasehold.values import Mode

if TYPE_CHECKING:
    from leasehold.spi import Runtime

__all__ = ["ClaimKey", "KeySpace", "KeySuffixes", "LockKeys", "Range", "after"]

VERSION = "1"
SAFE = ":"  # besides letters, digits and _.-~
_LETTERS = {Mode.EXCLUSIVE: "w", Mode.SHARED: "r"}
_MODES = {letter: mode for mode, letter in _LETTERS.items()}

Range = tuple[bytes, bytes]


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with this prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


@lru_cache(maxsize=1024)
def _encoded(owner: str) -> bytes:
    return owner.encode() if owner.isascii() and owner.isalnum() else quote(owner, SAFE).encode()


@dataclass(frozen=True, slots=True, eq=False)
class LockKeys:
    """The keys of one lock for claims of one mode. There is one instance for each, compared by identity."""

    claims: bytes  # the prefix of the claims of this mode
    queue: Range  # all claims of the lock, of whatever kind
    ahead: Range  # those that may be in the way of a claim of this mode
    other_kinds: tuple[Range, ...]  # those of a lock of another kind under the same name
    withdrawn: bytes
    broken: bytes
    floor: bytes

    def withdrawal_mark(self, owner: str) -> bytes:
        """The key that keeps late copies of a claim out."""
        return self.withdrawn + _encoded(owner)

    def break_note(self, owner: str) -> bytes:
        """The key with the reason why a grant was broken."""
        return self.broken + _encoded(owner)


class ClaimKey(NamedTuple):
    """A claim's key, taken apart."""

    key: str
    mode: Mode
    capacity: int


class KeySpace:
    """The keys below one root."""

    def __init__(self, root: str) -> None:
        self.root = f"{root}{VERSION}/"
        self.of = lru_cache(maxsize=4096)(self._of)

    def _of(self, key: str, mode: Mode, capacity: int) -> LockKeys:
        name = quote(key, SAFE)
        base = f"{self.root}q/{name}/".encode()
        locks, permits = (base + b"r", base + b"x"), (base + b"p", base + b"q")
        if mode is Mode.PERMIT:
            claims = base + f"p{capacity}/".encode()
            ahead = (claims, after(claims))
            other_kinds: tuple[Range, ...] = (locks, (permits[0], claims), (after(claims), permits[1]))
        else:
            claims = base + f"{_LETTERS[mode]}/".encode()
            # Only exclusive claims are in the way of a shared one; both kinds are in the way of an exclusive one.
            ahead = locks if mode is Mode.EXCLUSIVE else (base + b"w", base + b"x")
            other_kinds = (permits,)
        return LockKeys(
            claims,
            (base, after(base)),
            ahead,
            other_kinds,
            f"{self.root}x/{name}/".encode(),
            f"{self.root}b/{name}/".encode(),
            self.floor(key),
        )

    def floor(self, key: str) -> bytes:
        """The key of the floor under the fences of a lock's namespace."""
        return f"{self.root}f/{quote(key.partition(':')[0], SAFE)}".encode()

    def queue(self, key: str) -> Range:
        """All claims of this lock."""
        base = f"{self.root}q/{quote(key, SAFE)}/".encode()
        return base, after(base)

    def queues(self, prefix: str) -> Range:
        """All claims of the locks whose key begins with this prefix."""
        base = f"{self.root}q/{quote(prefix, SAFE)}".encode()
        return base, after(base)

    def record(self, key: str) -> tuple[bytes, bytes]:
        """The keys of a record's fence and of its value."""
        base = f"{self.root}r/{quote(key, SAFE)}/".encode()
        return base + b"fence", base + b"value"

    def parse(self, key: bytes) -> ClaimKey:
        """Take a claim's key apart."""
        try:
            name, kind, _ = key.decode()[len(self.root) + 2 :].split("/")
            mode = _MODES.get(kind, Mode.PERMIT)
            capacity = int(kind[1:]) if mode is Mode.PERMIT else 1
        except ValueError:
            raise BackendRejected(
                f"{key!r} was not written by leasehold; choose another root for the locks: etcd://host/ROOT"
            ) from None
        return ClaimKey(unquote(name), mode, capacity)


# --- suffixes

FIRST_RANGE, GROWTH, LARGEST_RANGE = 64, 64, 2**30


@dataclass(slots=True)
class _Used:
    """The suffixes of one lock: how many are in use, the next new one, and those that are free again."""

    count: int = 0
    next: int = 0
    free: list[int] = field(default_factory=list)


class KeySuffixes:
    """The suffixes that one client uses, by prefix of the claims; a prefix that is not in use is forgotten.

    A suffix under which a key may still be stored, because a response was lost, is not used again while the prefix is
    in use. A claim that gets it later finds a key there, and collides.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._range = FIRST_RANGE
        self._first = int(runtime.random() * FIRST_RANGE)
        self._used: dict[bytes, _Used] = {}

    def take(self, prefix: bytes) -> int:
        """A suffix that no other claim of this client has."""
        with self._guard:
            used = self._used.get(prefix)
            if used is None:
                used = self._used[prefix] = _Used()
            used.count += 1
            if used.free:
                return used.free.pop()
            used.next += 1
            return self._first + used.next - 1

    def give_back(self, prefix: bytes, suffix: int) -> None:
        """The claim with this suffix is over, and its key is gone."""
        with self._guard:
            used = self._used.get(prefix)
            if used is not None:
                used.free.append(suffix)
                self._leave(prefix, used)

    def abandon(self, prefix: bytes) -> None:
        """A claim is over, and its key may still be there."""
        with self._guard:
            used = self._used.get(prefix)
            if used is not None:
                self._leave(prefix, used)

    def recover(self, prefix: bytes, suffix: int) -> None:
        """The key under an abandoned suffix is known to be gone."""
        with self._guard:
            used = self._used.get(prefix)
            if used is not None:
                used.free.append(suffix)

    def collide(self, prefix: bytes) -> None:
        """Another client uses a suffix of ours: begin at another place of a larger range."""
        with self._guard:
            self._range = min(self._range * GROWTH, LARGEST_RANGE)
            self._first = int(self._runtime.random() * self._range)
            used = self._used.get(prefix)
            if used is not None:
                used.next, used.free = 0, []
                self._leave(prefix, used)

    def _leave(self, prefix: bytes, used: _Used) -> None:
        used.count -= 1
        if used.count <= 0:
            self._used.pop(prefix, None)
