"""Ours on one NATS server with JetStream, and the smallest program that does the same there.

No other library for Python has locks on NATS. The floor reads a document with the server's clock and swaps it, twice,
over the connection that leasehold uses: what every lock with a queue and a ttl in one document has to do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Role
from benchmarks.library import Connections, Kind, Library, Lock, Ours, OursAsync
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.store_url import StoreURL
from verification.lab.nats import NatsServer, program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library import Address

__all__ = ["FLOOR", "NATS", "OURS", "Bare"]

OURS = "leasehold"
FLOOR = "two reads with the clock, two swaps"


def why_no_server() -> str:
    """Why there can be no server here; empty if there can."""
    try:
        program()
    except RuntimeError as error:
        return str(error)
    return ""


def _documents(host: str, port: int) -> Any:
    package = "leasehold._backends.nats"
    options = import_module(f"{package}.options").read_url(StoreURL.parse(f"nats://{host}:{port}?bucket=floor"))
    wire = import_module(f"{package}.blocking_wire").BlockingWire(options, ThreadRuntime())
    return import_module(f"{package}.documents").NatsDocuments(options, wire)


class Bare(Lock):
    """The floor."""

    def __init__(self, host: str, port: int) -> None:
        self._documents = _documents(host, port)
        self._now = ThreadRuntime().now

    def pairs(self, count: int) -> None:
        documents, now = self._documents, self._now
        for _ in range(2 * count):
            _, version, _ = run(documents.load_with_time("lock:floor", now() + 5))
            run(documents.swap("lock:floor", b"{}", version, now() + 5))

    def close(self) -> None:
        run(self._documents.close())


def _read(_: Any, addresses: Sequence[Address]) -> tuple[str, Callable[[], object], Callable[[], object]]:
    documents = _documents(*addresses[0])
    now = ThreadRuntime().now
    return "a read", lambda: run(documents.load("lock:far", now() + 5)), lambda: run(documents.close())


NATS = Library(
    "NATS",
    {
        OURS: Kind(lambda connections, name: Ours(connections.ours, name), (), Role.OURS),
        f"{OURS}, asyncio": Kind(lambda connections, name: OursAsync(connections.url, name), (), Role.OURS),
    },
    why_no_server,
    serve=NatsServer,
    connect=lambda _, addresses: Connections(f"nats://{addresses[0][0]}:{addresses[0][1]}"),
    round_trip=_read,
)
