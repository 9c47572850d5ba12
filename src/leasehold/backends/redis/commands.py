"""Commands as the bytes that the protocol sends. It knows the protocol's format, and no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.redis.keys import Keys
    from leasehold.backends.redis.scripts import Script

__all__ = ["Call", "RecordCall", "pack"]


def pack(*parts: str | bytes | int) -> bytes:
    """One command."""
    encoded = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded)


class Call:
    """One call of a script for one lock: by digest, or with its text for a server that does not know it yet."""

    __slots__ = ("_rest", "_script", "_size", "keys")

    def __init__(self, script: Script, keys: Keys, marked: str | None, arguments: Sequence[str]) -> None:
        """`marked` is the owner whose mark is the seventh key. Arguments are ASCII, or packed one by one."""
        self.keys = keys
        self._script = script
        body = "".join([f"${len(argument)}\r\n{argument}\r\n" for argument in arguments])
        tail = body.encode()
        if len(tail) != len(body):
            tail = b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in (argument.encode() for argument in arguments))
        if marked is None:
            self._rest = b"$1\r\n6\r\n%b%b" % (keys.packed, tail)
            self._size = 9 + len(arguments)
        else:
            mark = keys.mark + marked.encode()
            self._rest = b"$1\r\n7\r\n%b$%d\r\n%b\r\n%b" % (keys.packed, len(mark), mark, tail)
            self._size = 10 + len(arguments)

    @property
    def short(self) -> bytes:
        """By digest."""
        return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b" % (self._size, self._script.digest, self._rest)

    @property
    def whole(self) -> bytes:
        """With the text."""
        text = self._script.text
        return b"*%d\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n%b" % (self._size, len(text), text, self._rest)


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
