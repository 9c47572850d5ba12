"""What the store needs of its connections, in either face: send bytes to a server, get replies, receive messages.

A wire repeats nothing. It raises `BackendUnavailable` when nothing was sent, `OutcomeUnknown` when something was and no
answer came. Error replies are answers, and are returned. `until` is an instant of the runtime's clock by which the call
has ended, opening a connection included.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leasehold.errors import BackendUnavailable, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from leasehold.spi import Request

__all__ = [
    "CONNECT_TIMEOUT",
    "NOTHING_YET",
    "Dialer",
    "Node",
    "Subscription",
    "Wire",
    "is_hasty",
    "load_driver",
    "new_reader",
    "no_time",
    "stepped",
]

CONNECT_TIMEOUT = 2.0
NOTHING_YET = object()  # what a reader gives while a reply is incomplete
STEP = 1 / 16
HASTY = 0.25
SHORTEST = 0.001  # a socket takes 0 for ever


class Node(NamedTuple):
    """One server: by host and port, or by the path of its socket. A Sentinel has credentials of its own."""

    host: str
    port: int = 6379
    path: str = ""
    is_sentinel: bool = False

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class Subscription(Protocol):
    """A connection that receives the messages of channels."""

    def send(self, payload: bytes) -> None:
        """Subscribe or unsubscribe; the server's confirmation arrives as a message."""

    def close(self) -> None:
        """Receive no more."""


class Wire(Protocol):
    """Connections to all servers of one store."""

    def left(self, until: float) -> float:
        """The seconds until that instant."""

    def exchange(
        self, node: Node, payload: bytes, count: int, timeout: float, until: float = math.inf, *, alone: bool = False
    ) -> Awaitable[list[Any]]:
        """Send commands and wait for so many replies. `alone`: on a connection that no other call shares."""

    def request(
        self, node: Node, commands: Sequence[bytes], timeout: float, until: float = math.inf
    ) -> Request[list[Any]]:
        """Many commands as one request; requests to several servers can be under way at once."""

    async def subscribe(
        self, node: Node, on_message: Callable[[Any], None], on_lost: Callable[[], None], until: float = math.inf
    ) -> Subscription:
        """Open a connection for messages; `on_lost` is called once when it ends, unless it was closed."""

    def drop_connections(self, node: Node) -> None:
        """The connections to this server are over, or most likely are: use none of them again."""

    async def close(self) -> None:
        """Close every connection."""


class Dialer:
    """Makes redis-py's connections, which know TLS, passwords and the greeting; and keeps them from repeating anything.

    `kind` is the name of redis-py's connection class; its blocking and its asyncio form share their parameters.
    """

    def __init__(
        self, kind: str, arguments: Mapping[str, Any], sentinel_arguments: Mapping[str, Any] | None = None
    ) -> None:
        self._kind = kind
        self._arguments = {
            "socket_timeout": CONNECT_TIMEOUT,
            "socket_connect_timeout": CONNECT_TIMEOUT,
            "protocol": 2,
            **{name: value for name, value in arguments.items() if name not in NOT_OURS},
        }
        self._sentinel_arguments = dict(sentinel_arguments or {})

    def connection(self, module: str, node: Node) -> Any:
        """A new connection object, not connected yet."""
        load_driver()
        classes = import_module(module)
        arguments = {**self._arguments, **(self._sentinel_arguments if node.is_sentinel else {})}
        if node.path:
            return classes.UnixDomainSocketConnection(path=node.path, **arguments)
        return getattr(classes, self._kind)(host=node.host, port=node.port, **arguments)


# Parameters of a client of the user's that would repeat commands, decode replies, or tie us to its own pool.
NOT_OURS = frozenset({
    "command_packer", "connection_pool", "decode_responses", "encoder_class", "event_dispatcher",
    "health_check_interval", "himport_registry", "host", "legacy_responses", "maint_notifications_config",
    "maint_notifications_pool_handler", "orig_host_address", "orig_socket_connect_timeout", "orig_socket_timeout",
    "oss_cluster_maint_notifications_handler", "parser_class", "path", "port", "redis_connect_func", "retry",
    "retry_on_error", "retry_on_timeout",
})  # fmt: skip


def load_driver() -> Any:
    """redis-py as a whole; to be called before any part of it is imported.

    Its package imports its own parts. A thread that begins with one part and another that begins with a second one hold
    the locks that the other waits for, and Python then hands out modules that are half made. The lock of the package
    itself makes one of them wait.
    """
    return import_module("redis")


def stepped(timeout: float, left: float) -> float:
    """How long to wait for an answer: at most `timeout`, and not much beyond what is left.

    In steps, because changing the timeout of a socket costs two system calls, and a call has nearly the same time left
    whenever it is made.
    """
    if left >= timeout:
        return timeout
    return max(left, SHORTEST) if left < HASTY else min(timeout, math.ceil(left / STEP) * STEP)


def is_hasty(timeout: float, own: float) -> bool:
    """Whether so short a wait without an answer proves nothing about the connection."""
    return timeout < min(own, HASTY)


def no_time(label: str) -> BackendUnavailable:
    """What to raise when the time was over before anything was sent."""
    return BackendUnavailable(
        f"{label}: there was no time left to send the request; allow a longer timeout", backend=label
    )


def new_reader() -> Any:
    """A parser of replies. It returns error replies, and keeps texts as bytes."""
    try:
        hiredis = import_module("hiredis")
    except ImportError:
        raise ConfigurationError("the redis store needs redis and hiredis: pip install 'leasehold[redis]'") from None
    return hiredis.Reader(notEnoughData=NOTHING_YET)
