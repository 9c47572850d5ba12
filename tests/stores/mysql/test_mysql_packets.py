"""The text protocol of MySQL as bytes, whole and in pieces; no server."""

from __future__ import annotations

import pytest

from leasehold._backends.mysql.packets import (
    LONGEST,
    Answer,
    AnswerReader,
    Result,
    ServerError,
    binary,
    optional_binary,
    query_packet,
)

MORE, LAST = b"\x0a\x00", b"\x02\x00"
END_OF_DEFINITIONS = b"\xfe\x00\x00\x02\x00"


def packed(*packets: bytes) -> bytes:
    """Each with its length, and a number that counts on."""
    return b"".join(
        len(packet).to_bytes(3, "little") + bytes([number & 255]) + packet for number, packet in enumerate(packets)
    )


def text(value: bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 0xFB:
        return bytes([size]) + value
    for mark, width in ((0xFC, 2), (0xFD, 3)):
        if size < 256**width:
            return bytes([mark]) + size.to_bytes(width, "little") + value
    return b"\xfe" + size.to_bytes(8, "little") + value


def rows_of(*rows: tuple[bytes | None, ...], status: bytes = LAST) -> list[bytes]:
    columns = len(rows[0]) if rows else 1
    definitions = [b"\x03def" for _ in range(columns)]
    lines = [b"".join(text(value) for value in row) for row in rows]
    return [bytes([columns]), *definitions, END_OF_DEFINITIONS, *lines, b"\xfe\x00\x00" + status]


def done(affected: bytes = b"\x00", number: bytes = b"\x00", status: bytes = LAST) -> bytes:
    return b"\x00" + affected + number + status + b"\x00\x00"


def failed(code: int, state: bytes, message: bytes) -> bytes:
    return b"\xff" + code.to_bytes(2, "little") + state + message


LONG = [b"x" * 250, b"x" * 251, b"x" * 65_535, b"x" * 65_536]
ANSWERS: dict[str, tuple[bytes, Answer]] = {
    "changed": (packed(done(b"\x02", b"\x07")), Answer([Result([], 2, 7)])),
    "long numbers": (
        packed(done(b"\xfc\x00\x01", b"\xfe" + (1 << 52).to_bytes(8, "little"))),
        Answer([Result([], 256, 1 << 52)]),
    ),
    "middle numbers": (packed(done(b"\xfa", b"\xfd\x01\x02\x03")), Answer([Result([], 250, 0x030201)])),
    "no rows": (packed(*rows_of()), Answer([Result([])])),
    "rows": (
        packed(*rows_of((b"a", None, b""), (None, b"\xfe", b"\xff"))),
        Answer([Result([(b"a", None, b""), (None, b"\xfe", b"\xff")])]),
    ),
    "long values": (packed(*rows_of(*((value,) for value in LONG))), Answer([Result([(value,) for value in LONG])])),
    "several": (
        packed(done(b"\x01", status=MORE), *rows_of((b"a",), status=MORE), done(b"\x03")),
        Answer([Result([], 1), Result([(b"a",)]), Result([], 3)]),
    ),
    "error": (
        packed(failed(1146, b"#42S02", b"no table")),
        Answer([], ServerError(1146, "42S02", "no table")),
    ),
    "error without a state": (packed(failed(1040, b"", b"too many")), Answer([], ServerError(1040, "", "too many"))),
    "error after a result": (
        packed(done(b"\x01", status=MORE), failed(1213, b"#40001", b"deadlock")),
        Answer([Result([], 1)], ServerError(1213, "40001", "deadlock")),
    ),
    "error among rows": (
        packed(*rows_of((b"a",))[:-1], failed(1317, b"#70100", b"interrupted")),
        Answer([], ServerError(1317, "70100", "interrupted")),
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_an_answer_is_the_same_however_its_bytes_come(name: str, size: int) -> None:
    data, expected = ANSWERS[name]
    if len(data) > 1000 and size == 1:
        size = 1000
    reader, pieces = AnswerReader(), [data[start : start + size] for start in range(0, len(data), size)]
    answers = [reader.feed(piece) for piece in pieces]
    assert answers[:-1] == [None] * (len(pieces) - 1)
    assert answers[-1] == expected
    assert reader.rest() == b""


def test_the_first_byte_of_a_row_that_marks_an_end_is_a_long_value() -> None:
    """A value of more than 16 million bytes begins with the byte of an end, which is a short packet."""
    value = b"x" * 9
    line = b"\xfe" + len(value).to_bytes(8, "little") + value
    data = packed(b"\x01", b"\x03def", END_OF_DEFINITIONS, line, b"\xfe\x00\x00" + LAST)
    assert AnswerReader().feed(data) == Answer([Result([(value,)])])


def test_what_comes_behind_an_answer_begins_the_next_one() -> None:
    first, second = ANSWERS["changed"][0], ANSWERS["rows"][0]
    reader = AnswerReader()
    assert reader.feed(first + second[:5]) == ANSWERS["changed"][1]
    assert reader.rest() == second[:5]
    assert AnswerReader(reader.rest()).feed(second[5:]) == ANSWERS["rows"][1]
    whole = AnswerReader(first)
    assert whole.feed(b"") == ANSWERS["changed"][1], "it was there already"


def test_values_become_literals_that_no_text_can_leave() -> None:
    assert binary(b"a'\\\x00") == b"x'61275c00'"
    assert binary(b"") == b"x''"
    assert optional_binary(None) == b"NULL"
    assert optional_binary(b"a") == b"x'61'"


def test_a_query_is_one_packet() -> None:
    assert query_packet(b"SELECT 1") == b"\x09\x00\x00\x00\x03SELECT 1"
    assert len(query_packet(b"x" * (LONGEST - 1))) == LONGEST + 4
    with pytest.raises(ValueError, match="does not fit"):
        query_packet(b"x" * LONGEST)
