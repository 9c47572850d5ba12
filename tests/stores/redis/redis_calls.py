"""The verbs of the Redis store, called one by one on a runtime of choice, and places where packets vanish."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from leasehold._urls import find_store
from leasehold.errors import BackendError
from leasehold.values import Claim, Grant, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from leasehold.spi import Runtime
    from leasehold.testing import contract

__all__ = ["VERBS", "backend_of", "claim_of", "failure_of", "no_answer_to_a_connection", "unread"]

PATIENT = "answer_timeout=30&socket_timeout=30&socket_connect_timeout=30"


def claim_of(owner: str = "o1", name: str = "name", ttl: float = 60.0, mode: Mode = Mode.EXCLUSIVE) -> Claim:
    """A claim as the core makes them."""
    return Claim(f"leasehold:{name}", owner, ttl, mode, 1, 0.0, Holder("host", 1))


@asynccontextmanager
async def backend_of(driver: contract.Driver, url: str) -> AsyncIterator[tuple[Any, Runtime]]:
    """The store itself, which is as patient as can be, and the runtime it runs on."""
    runtime = driver.runtime()
    backend: Any = find_store(f"{url}{'&' if '?' in url else '?'}{PATIENT}").open_backend(runtime)
    try:
        yield backend, runtime
    finally:
        await backend.close()


def _place(backend: Any, until: float) -> Awaitable[Any]:
    from leasehold.spi import Place

    signal = backend._runtime.signal()
    return backend.turn(Place(claim_of(), signal, 1.0, 0), until)  # type: ignore[no-any-return]


VERBS: dict[str, Callable[[Any, float], Awaitable[Any]]] = {
    "try_acquire": lambda backend, until: backend.try_acquire(claim_of(), until),
    "join": lambda backend, until: backend.join(claim_of(), until),
    "turn": _place,
    "renew": lambda backend, until: backend.renew([Grant(claim_of(), 1, 60.0)], until),
    "release": lambda backend, until: backend.release(Grant(claim_of(), 1, 60.0), until),
    "withdraw": lambda backend, until: backend.withdraw(claim_of(), until),
}


async def failure_of(answer: Awaitable[Any]) -> BaseException | None:
    """What a call raised, or what a renewal answered instead of raising it."""
    try:
        result = await answer
    except BackendError as error:
        return error
    if isinstance(result, list) and isinstance(result[0], BackendError):
        return result[0]
    return None


@contextmanager
def no_answer_to_a_connection() -> Iterator[int]:
    """A port whose host drops every packet that would open a connection: its backlog is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        try:
            yield port
        finally:
            for filler in fillers:
                filler.close()


@contextmanager
def unread() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]
