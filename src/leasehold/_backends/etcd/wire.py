"""The port to gRPC: calls to one member, as bytes, blocking or with asyncio; and forks.

A fork while gRPC is at work leaves a child in which gRPC hangs. gRPC prepares itself for a fork, but not while another
thread is inside a call: then it does nothing, and what that thread had locked stays locked in the child. So a fork
ends the streams, waits for a moment until no blocking call is under way, and holds new ones back meanwhile. Where that
does not help (a call that gets no answer; asyncio, whose gRPC has a thread that is always inside; a gRPC that was
loaded unprepared), the child refuses to use etcd, with the reason, instead of hanging.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.errors import BackendRejected, ConfigurationError

if TYPE_CHECKING:
    from leasehold.kit.options import TLSFiles
    from leasehold.spi import Runtime

__all__ = ["CALLS", "Calls", "Stream", "Target", "Wire", "come_before_grpc", "load_grpc", "open_wires"]

# Each client has connections of its own, reads no configuration from DNS, and never repeats a request by itself.
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd ends connections that ping more often than every 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.dns_enable_srv_queries", 0),
)

FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"  # a variable of the environment
NO_ANSWER = "DEADLINE_EXCEEDED"  # gRPC's code for a call that took too long

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Target:
    """One member's address for clients."""

    host: str
    port: int
    http_port: int
    tls: TLSFiles | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """As gRPC wants it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Stream(Protocol):
    """A call with any number of requests and responses."""

    def send(self, request: bytes) -> None:
        """Send as soon as the call is ready; returns at once."""

    async def receive(self) -> bytes | None:
        """The next response; None at the end of the stream. Raises `CallFailed`."""

    def close(self) -> None:
        """End it; a pending `receive` returns None."""


class Wire(Protocol):
    """One member. Its channel is opened by the first call, and replaced when it seems to be dead."""

    async def call(
        self, method: str, request: bytes, timeout: float, metadata: Metadata, *, uncancelled: bool = False
    ) -> bytes:
        """One request, one response, within `timeout` seconds. Raises `CallFailed`.

        `uncancelled`: where possible, the request goes on when its caller is cancelled or has no more time.
        """

    def stream(self, method: str, metadata: Metadata) -> Stream:
        """Begin a stream."""

    async def date(self, timeout: float) -> str:
        """The head of an HTTP response, which has the member's time of day. Raises OSError."""

    async def close(self) -> None:
        """Close all channels."""


def open_wires(targets: tuple[Target, ...], runtime: Runtime, longest_call: float) -> list[Wire]:
    """A wire to each member; asyncio is loaded only where it is used."""
    CALLS.check()
    with CALLS:  # a child that is forked in the middle of an import could never finish it
        if runtime.blocking:
            from leasehold._backends.etcd.blocking_wire import BlockingWire  # noqa: PLC0415

            return [BlockingWire(target, runtime, longest_call) for target in targets]
        from leasehold._backends.etcd.asyncio_wire import AsyncioWire  # noqa: PLC0415

        return [AsyncioWire(target, runtime, longest_call) for target in targets]


def load_grpc(*, prepared: bool = True) -> Any:
    """Import gRPC. It reads once, when it is loaded, whether it is to prepare itself for forks.

    For asyncio it is not: no child could use it, and some were killed by what gRPC does there to set itself up again.
    """
    if CALLS.is_prepared is None:
        CALLS.has_set_variable = prepared and "grpc" not in sys.modules and FORK_SUPPORT not in os.environ
        if CALLS.has_set_variable:
            os.environ[FORK_SUPPORT] = "1"
        CALLS.is_prepared = os.environ.get(FORK_SUPPORT, "").lower() in {"1", "true", "yes"}
    try:
        import grpc  # noqa: PLC0415 - a fifth of a second, only for users of etcd
    except ImportError:
        raise ConfigurationError("etcd needs the grpcio package: pip install 'leasehold[etcd]'") from None
    _use_gevent()
    return grpc


@cache
def _use_gevent() -> None:
    """Where gevent has replaced the threads, let gRPC wait by gevent's loop: it would stop all greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and (monkey.is_module_patched("threading") or monkey.is_module_patched("socket")):
        from grpc.experimental import gevent  # noqa: PLC0415 - only there

        gevent.init_gevent()


def http_request(target: Target) -> bytes:
    """The smallest request that a member answers over HTTP on its client port, without authentication."""
    return f"GET /version HTTP/1.1\r\nHost: {target.host}\r\nConnection: close\r\n\r\n".encode()


def time_in(head: str) -> float | None:
    """The time of day in the head of an HTTP response."""
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "date":
            try:
                return parsedate_to_datetime(value.strip()).timestamp()
            except ValueError:
                return None
    return None


def channel_credentials(tls: TLSFiles, grpc: Any) -> Any:
    """For a channel. The files are read now, so that a missing one is reported at once."""
    return grpc.ssl_channel_credentials(_read(tls.ca), _read(tls.key), _read(tls.cert))


def ssl_context(tls: TLSFiles) -> Any:
    """For the one request that does not go over gRPC."""
    import ssl  # noqa: PLC0415 - only for TLS

    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - one read of one file
            return file.read()
    except OSError as error:
        raise BackendRejected(f"cannot read {path} for TLS: {error.strerror}; check the path and its rights") from None


# --- forks

PATIENCE = 1.0  # seconds that a fork waits for the calls that are under way
PAUSE = 0.001


class Interruptible(Protocol):
    """A blocking stream."""

    def close(self) -> None:
        """End it; a pending `receive` returns None."""


class Calls:
    """The blocking calls of this process that are under way; `with` it around each.

    It takes no locks: a fork would leave them locked in the child.
    """

    def __init__(self) -> None:
        self.streams: set[Interruptible] = set()
        self.inside: set[int] = set()  # threads; an entry that an interruption has left goes with the next call
        self.is_forking = False
        self.is_idle = True  # when the last fork was prepared; who came since then has waited
        self.uses_asyncio = False
        self.is_prepared: bool | None = None  # whether gRPC prepares itself for forks; None until it is loaded
        self.has_set_variable = False
        self.is_broken = False  # this process was forked in the middle of a call

    def __enter__(self) -> None:
        thread = threading.get_ident()
        self.inside.add(thread)
        while self.is_forking:
            self.inside.discard(thread)
            self._wait_for_the_fork()
            self.inside.add(thread)

    def _wait_for_the_fork(self) -> None:
        while self.is_forking:
            time.sleep(PAUSE)

    def __exit__(self, *_: object) -> None:
        self.inside.discard(threading.get_ident())

    def check(self) -> None:
        """Refuse to use gRPC where it would hang."""
        if self.is_broken:
            raise ConfigurationError(
                "this process was forked while its parent used etcd, and gRPC cannot work in it; start it with "
                "multiprocessing's 'spawn' or 'forkserver', or fork before the first use of etcd"
            )

    # --- around a fork

    def before(self) -> None:
        """End the streams, wait until no call is under way, and let none begin."""
        self.is_forking = True
        deadline = time.monotonic() + PATIENCE
        while True:
            self.is_idle = not self.inside  # a stream is begun inside, so that none is overlooked
            for stream in tuple(self.streams):
                stream.close()
            if self.is_idle or time.monotonic() >= deadline:
                return
            time.sleep(PAUSE)

    def after_in_parent(self) -> None:
        """Let calls begin again."""
        self.is_forking = False

    def after_in_child(self) -> None:
        """Note whether gRPC can be used here."""
        is_unfit = self.uses_asyncio or self.is_prepared is False or not self.is_idle
        self.is_broken = self.is_broken or is_unfit
        self.inside, self.streams = set(), set()
        self.is_forking = False


CALLS = Calls()


def _before_grpc_is_used() -> None:
    if come_before_grpc.cache_info().currsize == 0:
        CALLS.before()


@cache
def come_before_grpc() -> None:
    """To be called when there is a channel.

    Who registers last comes first before a fork, and gRPC registers with its first channel. What it does before a fork
    stops its threads, perhaps while they hold the lock of a stream, which could not be ended any more.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=CALLS.before)
    if CALLS.has_set_variable:  # gRPC has read it; programs that are started from here decide for themselves
        os.environ.pop(FORK_SUPPORT, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_grpc_is_used, after_in_parent=CALLS.after_in_parent, after_in_child=CALLS.after_in_child
    )
