"""Script calls and plain commands as the bytes of Redis' protocol. It knows the format, and no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.redis.keys import Keys
    from leasehold._backends.redis.scripts import Script

__all__ = ["Call", "CallTemplate", "RecordCall", "pack"]

KEYS = 6  # of every lock, see queue.lua


def pack(*parts: str | bytes | int) -> bytes:
    """One command."""
    encoded = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded)


class CallTemplate:
    """A script call for one lock, packed as far as it is the same each time; only owner and number are filled in.

    The arguments of the script are `before`, the owner, `between`, the number (a fence), `after`. A marked call has a
    seventh key, which ends with the owner.
    """

    __slots__ = ("_between", "_end", "_start", "_to_second_owner", "keys", "script", "size", "timeout")

    def __init__(
        self,
        script: Script,
        keys: Keys,
        owner_size: int,
        timeout: float,
        *,
        marked: bool,
        before: Sequence[str] = (),
        between: Sequence[str] = (),
        after: Sequence[str] = (),
    ) -> None:
        self.script = script
        self.keys = keys
        self.timeout = timeout
        self.size = 3 + KEYS + marked + len(before) + len(between) + len(after) + 2
        head = _head(script, self.size, KEYS + marked, keys)
        to_owner = b"%b$%d\r\n" % (_packed(before), owner_size)
        if marked:
            self._start = b"%b$%d\r\n%b" % (head, len(keys.mark) + owner_size, keys.mark)
            self._to_second_owner: bytes | None = b"\r\n" + to_owner
        else:
            self._start = head + to_owner
            self._to_second_owner = None
        self._between = b"\r\n" + _packed(between)
        self._end = _packed(after)

    def call(self, owner: bytes, number: int) -> Call:
        """The whole call."""
        text = b"%d" % number
        start, second = self._start, self._to_second_owner
        if second is not None:
            start = b"%b%b%b" % (start, owner, second)
        short = b"%b%b%b$%d\r\n%b\r\n%b" % (start, owner, self._between, len(text), text, self._end)
        return Call(self.script, self.keys, self.size, short)


class Call:
    """One call of a script for one lock: by digest, or with its text for a server that has not cached it."""

    __slots__ = ("_script", "_size", "keys", "short")

    def __init__(self, script: Script, keys: Keys, size: int, short: bytes) -> None:
        """`short` is the call by digest; `size` counts its parts."""
        self._script = script
        self._size = size
        self.keys = keys
        self.short = short

    @classmethod
    def of(cls, script: Script, keys: Keys, marked: str | None, *arguments: str) -> Call:
        """A call that is rare enough to be packed anew; `marked` is the owner whose mark is the seventh key."""
        size = 3 + KEYS + len(arguments)
        if marked is None:
            return cls(script, keys, size, _head(script, size, KEYS, keys) + _packed(arguments))
        mark = keys.mark + marked.encode()
        head = b"%b$%d\r\n%b\r\n" % (_head(script, size + 1, KEYS + 1, keys), len(mark), mark)
        return cls(script, keys, size + 1, head + _packed(arguments))

    @property
    def whole(self) -> bytes:
        """With the text."""
        text = self._script.text
        rest = self.short[self.short.index(self._script.digest) + len(self._script.digest) + 2 :]
        return b"*%d\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n%b" % (self._size, len(text), text, rest)


class RecordCall:
    """One call of a script for one record."""

    __slots__ = ("_arguments", "_script", "keys")

    def __init__(self, script: Script, keys: Keys, arguments: Sequence[str | bytes | int]) -> None:
        self.keys = keys
        self._script = script
        self._arguments = arguments

    @property
    def short(self) -> bytes:
        """By digest."""
        return pack(b"EVALSHA", self._script.digest, 1, self.keys.record, *self._arguments)

    @property
    def whole(self) -> bytes:
        """With the text."""
        return pack(b"EVAL", self._script.text, 1, self.keys.record, *self._arguments)


def _head(script: Script, size: int, key_count: int, keys: Keys) -> bytes:
    """Everything up to the sixth key."""
    return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n%d\r\n%b" % (size, script.digest, key_count, keys.packed)


def _packed(arguments: Sequence[str]) -> bytes:
    encoded = [argument.encode() for argument in arguments]
    return b"".join([b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in encoded])
