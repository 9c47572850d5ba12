"""The protobuf wire format, as much of it as etcd's messages need. It knows no message.

Written by hand so that nothing here depends on the protobuf package: generated code refuses to load beside another
version of it, and a lock must not decide which version its user runs. A message is a run of fields; a field is a number
with either a varint (whole numbers, booleans, enumerations) or bytes (text, nested messages).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

__all__ = ["block", "fields", "number", "unsigned", "varint", "whole"]

VARINT, FIXED64, BLOCK, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_SMALL = [bytes([value]) for value in range(128)]
_find_varint = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]").match

# --- writing


def varint(value: int) -> bytes:
    """A whole number in groups of seven bits; a negative one takes ten bytes."""
    return _SMALL[value] if 0 <= value < 128 else _long_varint(value)


@lru_cache(maxsize=4096)  # numbers of leases and lengths come again and again
def _long_varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    last = (value.bit_length() - 1) // 7 * 7
    return bytes([value >> shift & 127 | 128 for shift in range(0, last, 7)] + [value >> last])


@cache
def _tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """A field with a number; zero is not written, as in every encoder of version 3."""
    return _tag(field, VARINT) + varint(value) if value else b""


def block(field: int, content: bytes) -> bytes:
    """A field with bytes or a nested message; always written, because an empty message means something."""
    return _tag(field, BLOCK) + varint(len(content)) + content


# --- reading


def fields(message: bytes) -> list[tuple[int, bytes]]:
    """Every field in order: its number and its bytes; `whole` makes a number of those that are one."""
    found, place, end = [], 0, len(message)
    while place < end:
        tag, place = _number_at(message, place)
        kind = tag & 7
        if kind == VARINT:
            start, place = place, _end_of_varint(message, place)
        elif kind == BLOCK:
            size, start = _number_at(message, place)
            place = start + size
        elif kind in _WIDTHS:  # etcd has none, but a later version may
            start, place = place, place + _WIDTHS[kind]
        else:
            raise ValueError(f"wire type {kind} is not used by any message")
        if place > end:
            raise ValueError("a field is longer than its message")
        found.append((tag >> 3, message[start:place]))
    return found


def _number_at(message: bytes, place: int) -> tuple[int, int]:
    if place < len(message) and message[place] < 128:
        return message[place], place + 1
    end = _end_of_varint(message, place)
    return unsigned(message[place:end]), end


def _end_of_varint(message: bytes, place: int) -> int:
    found = _find_varint(message, place)
    if found is None:
        raise ValueError("the message ends in the middle of a number")
    return found.end()


def unsigned(digits: bytes) -> int:
    """The number of a varint field; none is 0."""
    if len(digits) < 2:
        return digits[0] if digits else 0
    groups = int.from_bytes(digits, "little")  # seven bits in each byte: move them together, two, four, eight at a time
    groups = (groups & 0x007F_007F_007F_007F_007F) | (groups & 0x7F00_7F00_7F00_7F00_7F00) >> 1
    groups = (groups & 0x3FFF_0000_3FFF_0000_3FFF) | (groups & 0x3FFF_0000_3FFF_0000) >> 2
    return (groups & 0xFFF_FFFF) | (groups >> 4 & 0xFF_FFFF_F000_0000) | (groups >> 8 & 0xFF00_0000_0000_0000)


def whole(digits: bytes) -> int:
    """The same, where it may be negative."""
    value = unsigned(digits)
    return value - (1 << 64) if value >> 63 else value
