"""The protobuf wire format, as much of it as etcd's messages need. It knows no message.

Written by hand so that nothing here depends on the protobuf package: generated code refuses to load beside another
version of it, and a lock must not decide which version its user runs. A message is a run of fields; a field is a number
with either a varint (whole numbers, booleans, enumerations) or bytes (text, nested messages).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["block", "fields", "number", "varint"]

VARINT, FIXED64, BLOCK, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}


def varint(value: int) -> bytes:
    """A whole number in groups of seven bits; a negative one takes ten bytes."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


_SMALL = [bytes([value]) for value in range(128)]


@cache
def _tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """A field with a number; zero is not written, as in every encoder of version 3."""
    return _tag(field, VARINT) + varint(value) if value else b""


def block(field: int, content: bytes) -> bytes:
    """A field with bytes or a nested message; always written, because an empty message means something."""
    return _tag(field, BLOCK) + varint(len(content)) + content


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Every field in order; numbers as non-negative 64-bit, `signed` makes them what they were."""
    place, end = 0, len(message)
    while place < end:
        tag, place = _read_varint(message, place)
        field, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, place = _read_varint(message, place)
            yield field, value
        elif kind == BLOCK:
            size, place = _read_varint(message, place)
            if place + size > end:
                raise ValueError("a field is longer than its message")
            yield field, message[place : place + size]
            place += size
        elif kind in _WIDTHS:  # etcd has none, but a later version may
            place += _WIDTHS[kind]
        else:
            raise ValueError(f"wire type {kind} is not used by any message")


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    try:
        byte = message[place]
        if byte < 128:
            return byte, place + 1
        value, shift = byte & 127, 7
        while True:
            place += 1
            byte = message[place]
            value |= (byte & 127) << shift
            if byte < 128:
                return value, place + 1
            shift += 7
    except IndexError:
        raise ValueError("the message ends in the middle of a number") from None
