"""The port to gRPC: calls to one member, blocking or asyncio. It knows bytes, not messages."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.backends.etcd.forking import CALLS
from leasehold.errors import BackendRejected, ConfigurationError

if TYPE_CHECKING:
    from leasehold.spi import Runtime

__all__ = ["Security", "Stream", "Target", "Wire", "load_grpc", "open_wires"]

# Each client has connections of its own, asks nobody how to behave, and never repeats a request by itself.
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

NO_ANSWER = "DEADLINE_EXCEEDED"  # gRPC's code for a call that took too long

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Security:
    """Files for TLS; `ca` None means those that the system trusts."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def credentials(self, grpc: Any) -> Any:
        """For a channel. Read now: a missing file is told at once."""
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.certificate))

    def context(self) -> Any:
        """For the one question that is not asked over gRPC."""
        import ssl  # noqa: PLC0415 - only for TLS

        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True, slots=True)
class Target:
    """One member's address for clients."""

    host: str
    port: int
    http_port: int
    security: Security | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """As gRPC wants it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Stream(Protocol):
    """A call that goes on: requests out, answers in."""

    def send(self, request: bytes) -> None:
        """Send when the call is ready; does not wait."""

    async def receive(self) -> bytes | None:
        """The next answer; None at the end of the stream. Raises `CallFailed`."""

    def close(self) -> None:
        """End it; whoever receives gets the end."""


class Wire(Protocol):
    """One member. Its channel is opened with the first call, and another one when it seems to be dead."""

    async def call(
        self, method: str, request: bytes, timeout: float, metadata: Metadata, *, to_its_end: bool = False
    ) -> bytes:
        """One request, one answer, within `timeout` seconds. Raises `CallFailed`.

        `to_its_end`: if it can be helped, a caller that is cancelled, or has no more time, does not cancel the request.
        """

    def stream(self, method: str, metadata: Metadata) -> Stream:
        """Begin a call that goes on."""

    async def date(self, timeout: float) -> str:
        """The head of the answer to an HTTP request, which has the member's time of day. Raises OSError."""

    async def close(self) -> None:
        """Hang up."""


def open_wires(targets: tuple[Target, ...], runtime: Runtime) -> list[Wire]:
    """A wire to each member; asyncio is loaded only where it is used."""
    CALLS.check()
    with CALLS:  # a child that is forked in the middle of an import could never finish it
        if not runtime.blocking:
            from leasehold.backends.etcd.asyncio_wire import AsyncioWire  # noqa: PLC0415

            return [AsyncioWire(target, runtime) for target in targets]
        from leasehold.backends.etcd.blocking_wire import BlockingWire  # noqa: PLC0415

        return [BlockingWire(target, runtime) for target in targets]


def load_grpc() -> Any:
    """Import gRPC so that a forked child can use it: it looks at this variable once, when it is loaded."""
    if "grpc" not in sys.modules:
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")
    try:
        import grpc  # noqa: PLC0415 - a fifth of a second, paid by those who use etcd
    except ImportError:
        raise ConfigurationError("etcd needs the grpcio package: pip install 'leasehold[etcd]'") from None
    _befriend_gevent()
    return grpc


@cache
def _befriend_gevent() -> None:
    """Where gevent has replaced the threads, gRPC must wait by gevent's loop: it would stop all greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and (monkey.is_module_patched("threading") or monkey.is_module_patched("socket")):
        from grpc.experimental import gevent  # noqa: PLC0415 - only there

        gevent.init_gevent()


def http_request(target: Target) -> bytes:
    """The smallest question that a member answers over HTTP on its client port, whoever asks."""
    return f"GET /version HTTP/1.1\r\nHost: {target.host}\r\nConnection: close\r\n\r\n".encode()


def time_in(head: str) -> float | None:
    """The time of day in the head of an HTTP answer."""
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "date":
            try:
                return parsedate_to_datetime(value.strip()).timestamp()
            except ValueError:
                return None
    return None


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - one read of one file
            return file.read()
    except OSError as error:
        raise BackendRejected(f"cannot read {path} for TLS: {error.strerror}") from None
