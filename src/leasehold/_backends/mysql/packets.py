"""The text protocol of MySQL and MariaDB, as bytes and back: one query, with the answers of all its statements.

Values are written into the text as hexadecimal literals and decimal numbers, so that nothing depends on a character
set or on quoting. It knows no socket.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Answer", "AnswerReader", "Result", "ServerError", "binary", "optional_binary", "query_packet"]

QUERY = b"\x03"
MORE_RESULTS = 0x0008
LONGEST = 0xFFFFFF - 1  # bytes in one packet; a longer message is split, and nothing of ours is that long
OK, NULL, END, ERROR = 0x00, 0xFB, 0xFE, 0xFF
SHORT_END = 9  # an end-of-rows packet is shorter than this; a row that starts with the same byte is not

Values = tuple[bytes | None, ...]


class ServerError(NamedTuple):
    """A statement failed; those after it in the same query were not executed."""

    code: int
    state: str
    message: str


class Result(NamedTuple):
    """What one statement gave."""

    rows: list[Values]
    affected: int = 0
    insert_id: int = 0


class Answer(NamedTuple):
    """The results of the statements of one query, in order; `error` ended it before its last statement."""

    results: list[Result]
    error: ServerError | None = None


def binary(value: bytes) -> bytes:
    """A literal of these bytes."""
    return b"x'%b'" % value.hex().encode()


def optional_binary(value: bytes | None) -> bytes:
    """The same, or NULL."""
    return b"NULL" if value is None else binary(value)


def query_packet(text: bytes) -> bytes:
    """One query. Longer than a packet is a mistake of the caller."""
    size = len(text) + 1
    if size > LONGEST:
        raise ValueError(f"a query of {size} bytes does not fit into one packet")
    return size.to_bytes(3, "little") + b"\x00" + QUERY + text


class AnswerReader:
    """Puts the answer to one query together, from bytes as they come."""

    def __init__(self, first: bytes = b"") -> None:
        self._buffer = bytearray(first)
        self._results: list[Result] = []
        self._rows: list[Values] | None = None  # while rows of a result come
        self._columns = 0
        self._definitions = 0  # that are still to come, with the packet that ends them

    def feed(self, data: bytes) -> Answer | None:
        """Add bytes; the answer, once it is whole."""
        buffer = self._buffer
        buffer += data
        start, answer = 0, None
        while answer is None and len(buffer) - start >= 4:
            size = int.from_bytes(buffer[start : start + 3], "little")
            end = start + 4 + size
            if len(buffer) < end:
                break
            answer = self._take(bytes(buffer[start + 4 : end]))
            start = end
        del buffer[:start]
        return answer

    def rest(self) -> bytes:
        """What has come after the end of the answer: the beginning of the next one."""
        return bytes(self._buffer)

    def _take(self, packet: bytes) -> Answer | None:
        if packet[0] == ERROR and not self._definitions:
            return Answer(self._results, _error(packet))
        if self._definitions:
            self._definitions -= 1
            return None
        if self._rows is not None:
            return self._take_row(packet, self._rows)
        if packet[0] == OK:
            affected, at = _number(packet, 1)
            insert_id, at = _number(packet, at)
            return self._end_result(Result([], affected, insert_id), packet[at : at + 2])
        self._columns, _ = _number(packet, 0)
        self._definitions, self._rows = self._columns + 1, []
        return None

    def _take_row(self, packet: bytes, rows: list[Values]) -> Answer | None:
        if packet[0] == END and len(packet) < SHORT_END:
            self._rows = None
            return self._end_result(Result(rows), packet[3:5])
        rows.append(_row(packet, self._columns))
        return None

    def _end_result(self, result: Result, status: bytes) -> Answer | None:
        self._results.append(result)
        if int.from_bytes(status, "little") & MORE_RESULTS:
            return None
        return Answer(self._results)


def _row(packet: bytes, columns: int) -> Values:
    values: list[bytes | None] = []
    at = 0
    for _ in range(columns):
        first = packet[at]
        if first == NULL:
            values.append(None)
            at += 1
            continue
        if first < NULL:
            size, at = first, at + 1
        else:
            size, at = _number(packet, at)
        values.append(packet[at : at + size])
        at += size
    return tuple(values)


def _number(packet: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    first = packet[at]
    if first < NULL:
        return first, at + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(packet[at + 1 : at + 1 + width], "little"), at + 1 + width


def _error(packet: bytes) -> ServerError:
    code, rest = int.from_bytes(packet[1:3], "little"), packet[3:]
    state = ""
    if rest[:1] == b"#":
        state, rest = rest[1:6].decode(errors="replace"), rest[6:]
    return ServerError(code, state, rest.decode(errors="replace"))
