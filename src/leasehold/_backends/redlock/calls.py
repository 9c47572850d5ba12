"""Calls of the scripts, as the bytes that are sent to every node alike. It knows keys and formats, no connection."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.keys import glob_escaped
from leasehold._backends.redlock.scripts import script
from leasehold.kit.holder import holder_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.redis.scripts import Script
    from leasehold.values import Claim, Grant

__all__ = ["LOCK", "MARKER", "Call", "Calls", "milliseconds"]

MARKER = "leasehold:redlock:node"
LOCK = "leasehold:redlock:lock:"
GONE = "leasehold:redlock:gone:"
RENEWED_TOGETHER = 100  # grants in one call of the script, which nothing interrupts


class Call:
    """One or more calls of scripts that are sent together. The answer is that of the last one, or of `all`.

    `until`: to a node that missed it, it is sent again up to this instant of our clock; 0: never.
    """

    __slots__ = ("_parts", "all", "count", "short", "until")

    def __init__(
        self,
        *parts: tuple[Script, bytes, int],
        all: bool = False,  # noqa: A002 - the plain word
        until: float = 0.0,
    ) -> None:
        """Each part is a script, what follows its digest, and how many words that is."""
        self._parts = parts
        self.all = all
        self.until = until
        self.count = len(parts)
        self.short = b"".join(
            [b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b" % (words + 2, text.digest, rest) for text, rest, words in parts]
        )

    @property
    def whole(self) -> bytes:
        """With the texts of the scripts, for a node that has not cached them."""
        return b"".join(
            b"*%d\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n%b" % (words + 2, len(text.text), text.text, rest)
            for text, rest, words in self._parts
        )

    def after(self, other: Call) -> Call:
        """Both, the other one first."""
        return Call(*other._parts, *self._parts)


class Calls:
    """Every call that the store makes."""

    def __init__(self, max_ttl: float, nodes: int) -> None:
        self._settings = f"{milliseconds(max_ttl)}/{nodes}"
        self._vote, self._release = script("vote"), script("release")

    def greet(self) -> Call:
        """Find out which process a node is, and its time."""
        return _call("greet", [MARKER], [self._settings])

    def vote(self, claim: Claim, number: int) -> Call:
        """Ask for a vote."""
        rest = b"$1\r\n3\r\n%b%b$%d\r\n%b\r\n%b" % (
            _MARKER,
            _lock(claim.key),
            len(GONE) + len(claim.owner),
            (GONE + claim.owner).encode(),
            _words(claim.owner, str(number), milliseconds(claim.ttl), holder_to_json(claim.holder), self._settings),
        )
        return Call((self._vote, rest, 9))

    def release(self, claim: Claim, number: int, now: float) -> Call:
        """Free a node, or clean up after a failed attempt."""
        rest = b"$1\r\n1\r\n%b%b" % (_lock(claim.key), _words(claim.owner, str(number)))
        return Call((self._release, rest, 4), until=now + claim.ttl)

    def withdraw(self, claim: Claim, now: float, *, mark: bool = True) -> Call:
        """Undo a claim. With a mark its requests are refused for one ttl, and a node that is away gets it later."""
        words = [claim.owner, milliseconds(claim.ttl) if mark else "0"]
        part = _part("withdraw", [LOCK + claim.key, GONE + claim.owner], words)
        return Call(part, until=now + claim.ttl if mark else 0.0)

    def renew(self, grants: Sequence[Grant]) -> Call:
        """Extend grants."""
        parts = []
        for start in range(0, len(grants), RENEWED_TOGETHER):
            some = grants[start : start + RENEWED_TOGETHER]
            keys = [MARKER, *(LOCK + grant.claim.key for grant in some)]
            fields = [(grant.claim.owner, str(grant.fence), milliseconds(grant.claim.ttl)) for grant in some]
            parts.append(_part("renew", keys, [self._settings, *(word for words in fields for word in words)]))
        return Call(*parts, all=True)

    def repair(self, grant: Grant) -> Call:
        """Put a lock back."""
        claim = grant.claim
        words = [claim.owner, str(grant.fence), milliseconds(claim.ttl), holder_to_json(claim.holder)]
        return _call("repair", [LOCK + claim.key, GONE + claim.owner], words)

    def look(self, keys: Sequence[str]) -> Call:
        """Read the holders."""
        return _call("look", [LOCK + key for key in keys], [])

    def break_(self, key: str, number: int, reason: str, *, now: bool) -> Call:
        """End a grant."""
        return _call("break", [LOCK + key], [str(number), reason, "1" if now else "0"])

    def raise_fence(self, key: str, number: int) -> Call:
        """Let later numbers be above this one."""
        return _call("raise_fence", [LOCK + key], [str(number)])

    def scan(self, cursor: bytes, prefix: str) -> bytes:
        """The next page of keys; the prefix matches only itself."""
        return pack("SCAN", cursor, "MATCH", f"{glob_escaped(LOCK + prefix)}*", "COUNT", 1000)


def milliseconds(seconds: float) -> str:
    """At least one."""
    return str(max(1, round(seconds * 1000)))


def _call(name: str, keys: Sequence[str], arguments: Sequence[str]) -> Call:
    return Call(_part(name, keys, arguments))


def _part(name: str, keys: Sequence[str], arguments: Sequence[str]) -> tuple[Script, bytes, int]:
    words = [str(len(keys)), *keys, *arguments]
    return script(name), _words(*words), len(words)


def _words(*words: str) -> bytes:
    text = "".join([f"${len(word)}\r\n{word}\r\n" for word in words])
    packed = text.encode()
    if len(packed) == len(text):
        return packed
    return b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in (word.encode() for word in words))


@lru_cache(4096)
def _lock(key: str) -> bytes:
    return _words(LOCK + key)


_MARKER = _words(MARKER)
