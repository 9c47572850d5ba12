"""What both wires do to open a connection: which server comes next, what it is greeted with, and TLS.

The server speaks first (INFO). Then comes TLS, if the URL wants it, then our CONNECT, the subscription of the inbox,
and a PING: its PONG confirms that the login was accepted.
"""

from __future__ import annotations

import json
import ssl
from itertools import count
from typing import TYPE_CHECKING, Any

from leasehold._backends.nats.errors import from_server
from leasehold._backends.nats.wire import PING, publish, subscribe
from leasehold.errors import BackendRejected, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold._backends.nats.options import Options
    from leasehold._backends.nats.wire import Frame, Request

__all__ = ["CONNECT_LIMIT", "Greeting", "Inbox", "Servers", "tls_context"]

CONNECT_LIMIT = 2.0  # seconds that each server gets to be connected to
INBOX_NUMBER = 1  # of the subscription; watches have higher ones


class Servers:
    """The servers of the URL, beginning with the one that worked last."""

    def __init__(self, hosts: Sequence[tuple[str, int]]) -> None:
        self._hosts = tuple(hosts)
        self._first = 0

    def __iter__(self) -> Iterator[tuple[str, int]]:
        first = self._first
        return iter(self._hosts[first:] + self._hosts[:first])

    def failed(self, host: tuple[str, int]) -> None:
        """Begin with the next one from now on."""
        if self._hosts[self._first] == host:
            self._first = (self._first + 1) % len(self._hosts)


class Inbox:
    """The subjects for answers on one connection."""

    def __init__(self, unique: str) -> None:
        self.subject = f"_INBOX.{unique}"
        self._numbers = count(1)

    def address(self, requests: Sequence[Request]) -> tuple[list[str], bytes]:
        """A subject for each answer, and the bytes to send."""
        replies = [f"{self.subject}.{next(self._numbers)}" for _ in requests]
        return replies, b"".join(map(publish, requests, replies))


class Greeting:
    """The beginning of a connection, step by step."""

    def __init__(self, options: Options, inbox: Inbox) -> None:
        self._options = options
        self._inbox = inbox
        self.info: dict[str, Any] = {}
        self.done = False

    def begin(self, line: bytes) -> None:
        """The first line of the server; refuses one that does not fit the URL."""
        label = self._options.label
        kind, _, body = line.partition(b" ")
        if kind.upper() == b"-ERR":  # too many connections, for one
            raise OutcomeUnknown(f"the server closed the connection: {body.decode(errors='replace').strip()}")
        try:
            self.info = json.loads(body) if kind.upper() == b"INFO" else {}
        except ValueError:
            self.info = {}
        if not self.info:
            raise OutcomeUnknown("what answers there is not NATS, or the connection broke")
        offers_tls = self.info.get("tls_required") or self.info.get("tls_available")
        if self._options.tls is not None and not offers_tls:
            raise BackendRejected(f"{label} offers no TLS; configure it there, or write nats://", backend=label)
        if self._options.tls is None and self.info.get("tls_required"):
            raise BackendRejected(f"{label} requires TLS; write nats+tls://", backend=label)
        if not self.info.get("headers"):
            raise BackendRejected(f"{label} is too old: it knows no headers; use nats-server 2.10 or newer",
                                  backend=label)  # fmt: skip

    def hello(self) -> bytes:
        """What to send then."""
        options = self._options
        login = {"user": options.user, "pass": options.password, "auth_token": options.token}
        connect = {
            "verbose": False,
            "pedantic": False,
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "lang": "python",
            "version": "leasehold",
            "name": "leasehold",
            "tls_required": options.tls is not None,
            **{name: value for name, value in login.items() if value is not None},
        }
        inbox = subscribe(f"{self._inbox.subject}.*", INBOX_NUMBER)
        return f"CONNECT {json.dumps(connect)}\r\n".encode() + inbox + PING

    def take(self, frame: Frame) -> None:
        """One of the frames that follow; `done` after the last one."""
        if frame.kind == "-ERR":
            text = frame.body.decode(errors="replace")
            raise from_server(text, self._options.label) or OutcomeUnknown(f"the server closed the connection: {text}")
        if frame.kind == "INFO":
            self.info.update(json.loads(frame.body))
        self.done = self.done or frame.kind == "PONG"


def tls_context(options: Options) -> ssl.SSLContext | None:
    """The settings of TLS; None without it."""
    tls = options.tls
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key, tls.key_password)
    except OSError as error:
        raise BackendRejected(
            f"{options.label}: a file for TLS cannot be used: {error}; check tls_ca, tls_cert and tls_key",
            backend=options.label,
        ) from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
