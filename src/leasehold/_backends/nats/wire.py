"""The protocol of NATS, without I/O: lines of text, each of which may announce a payload of so many bytes.

    INFO {…}  CONNECT {…}  SUB subject id  UNSUB id  PING  PONG  -ERR 'reason'
    PUB subject reply size                  HPUB subject reply size-of-headers size
    MSG subject id [reply] size             HMSG subject id [reply] size-of-headers size

A request is a message with the subject for its answer: one below the inbox of the connection, to which it subscribed
when it was opened. Each request has a number of its own there, so an answer that comes late is never taken for another.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leasehold.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Frame", "Parser", "Request", "Wire", "publish", "subscribe", "unsubscribe"]

PING, PONG = b"PING\r\n", b"PONG\r\n"
_HEADERS_BEGIN = b"NATS/1.0"


class Request(NamedTuple):
    """A message that is to be answered."""

    subject: str
    body: bytes = b""
    headers: str = ""  # lines, each with its end


class Frame(NamedTuple):
    """What the server sent: `kind` is INFO, MSG, PING, PONG or -ERR. `status` 503: nothing receives that subject."""

    kind: str
    subject: str = ""
    number: str = ""  # of the subscription
    body: bytes = b""
    status: int = 0


class Wire(Protocol):
    """Connections to the servers; blocking or with asyncio."""

    info: dict[str, Any]
    """The description that the last server sent of itself."""

    async def request(self, requests: Sequence[Request], until: float) -> list[Frame]:
        """Send all at once, on one connection, and wait for the answer to each; in order.

        Raises `BackendUnavailable` if nothing was sent, `OutcomeUnknown` if an answer is missing, and `BackendRejected`
        if this user has no right to send one of them.
        """

    async def watch(self, subject: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` for every message of this subject; returns what ends that."""

    async def close(self) -> None:
        """Close every connection; calls that are under way raise `ClientClosed`."""


class Parser:
    """Makes frames of the bytes that arrive."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with these bytes."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        line, end, rest = self._buffer.partition(b"\r\n")
        if not end:
            return None
        kind, _, words = line.decode().partition(" ")
        kind = kind.upper()
        if kind not in ("MSG", "HMSG"):
            self._buffer = rest
            return Frame(kind, body=words.strip().encode())
        fields = words.split()
        try:
            size = int(fields[-1])
            head = int(fields[-2]) if kind == "HMSG" else 0
        except (ValueError, IndexError):
            raise OutcomeUnknown("the server does not speak the protocol of NATS; check host and port") from None
        if len(rest) < size + 2:
            return None
        self._buffer = rest[size + 2 :]
        return Frame("MSG", fields[0], fields[1], rest[head:size], _status(rest[:head]))


def _status(headers: bytes) -> int:
    """The status that the server itself sets, such as 503; 0 in messages of clients."""
    first = headers.partition(b"\r\n")[0].removeprefix(_HEADERS_BEGIN).split()
    return int(first[0]) if first and first[0].isdigit() else 0


def publish(request: Request, reply: str) -> bytes:
    """A message."""
    body = request.body
    if not request.headers:
        return f"PUB {request.subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n"
    head = f"NATS/1.0\r\n{request.headers}\r\n".encode()
    return f"HPUB {request.subject} {reply} {len(head)} {len(head) + len(body)}\r\n".encode() + head + body + b"\r\n"


def subscribe(subject: str, number: int) -> bytes:
    """Receive the messages of a subject; `number` is ours to choose."""
    return f"SUB {subject} {number}\r\n".encode()


def unsubscribe(number: int) -> bytes:
    """The opposite."""
    return f"UNSUB {number}\r\n".encode()


def as_object(body: bytes) -> dict[str, Any]:
    """The JSON object of an answer; empty if it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
