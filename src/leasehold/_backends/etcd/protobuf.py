"""The protobuf wire format, as much of it as etcd's messages need.

Written by hand so that the store does not depend on the protobuf package: generated code refuses to load beside another
version of it, and a lock must not decide which version its user runs.

A message is a run of fields. A field is a tag (its number and its wire type), then either a varint (whole numbers,
booleans, enumerations) or a length with so many bytes (text, nested messages). The same tags, lengths and identifiers
come again with every request, so their encoding and decoding is cached.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

__all__ = ["block", "fields", "number", "signed", "unsigned", "varint"]

VARINT, FIXED64, BLOCK, FIXED32 = 0, 1, 2, 5
_VARINTS = (VARINT, BLOCK)
_WIDTHS = {FIXED64: 8, FIXED32: 4}  # etcd has no such fields, but a later version may
_find_varint = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]").match

# --- writing


@lru_cache(maxsize=4096)
def varint(value: int) -> bytes:
    """A whole number in groups of seven bits; a negative one takes ten bytes."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    last = max(0, value.bit_length() - 1) // 7 * 7
    return bytes([value >> shift & 127 | 128 for shift in range(0, last, 7)] + [value >> last])


@lru_cache(maxsize=4096)
def number(field: int, value: int) -> bytes:
    """A field with a number; zero is not written, as in every encoder of version 3."""
    return varint(field << 3 | VARINT) + varint(value) if value else b""


@lru_cache(maxsize=4096)
def _head(field: int, length: int) -> bytes:
    return varint(field << 3 | BLOCK) + varint(length)


def block(field: int, content: bytes) -> bytes:
    """A field with bytes or a nested message; always written, because an empty message has a meaning."""
    return _head(field, len(content)) + content


# --- reading


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Every field in order: its number, and its value as a number without sign or as bytes, by its wire type."""
    found: list[tuple[int, Any]] = []
    place, end = 0, len(message)
    try:
        while place < end:
            tag, place = message[place], place + 1
            if tag > 127:
                tag, place = _long_varint(message, place - 1)
            kind = tag & 7
            value: Any
            if kind in _WIDTHS:
                value = message[place : (place := place + _WIDTHS[kind])]
            elif kind not in _VARINTS:
                raise ValueError(f"wire type {kind} is not used by any message")
            else:
                value, place = message[place], place + 1  # one byte, nearly always
                if value > 127:
                    value, place = _long_varint(message, place - 1)
                if kind == BLOCK:
                    value = message[place : (place := place + value)]
            found.append((tag >> 3, value))
    except IndexError:
        raise ValueError("the message ends in the middle of a field") from None
    if place > end:
        raise ValueError("a field is longer than its message")
    return found


def _long_varint(message: bytes, place: int) -> tuple[int, int]:
    """A varint of several bytes, and the place behind it."""
    match = _find_varint(message, place)
    if match is None:
        raise ValueError("the message ends in the middle of a number")
    return unsigned(match[0]), match.end()


@lru_cache(maxsize=4096)
def unsigned(digits: bytes) -> int:
    """The number that a varint stands for."""
    value = 0
    for digit in reversed(digits):
        value = value << 7 | digit & 127
    return value & 0xFFFF_FFFF_FFFF_FFFF


def signed(value: int) -> int:
    """The same number where its field may be negative."""
    return value - (1 << 64) if value >> 63 else value
