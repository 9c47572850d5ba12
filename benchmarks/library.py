"""What every table of locks on one store is made of: the same verbs over ours and over other people's locks.

A store's own module (`redis_locks`, `etcd_locks` and so on) lists the libraries for it, how to reach them,
and what the smallest program is that does the same; scenarios then run over all stores alike. A peer is imported when
it is used; one that is not installed is reported, never left out.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.harness import Candidate, Role, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from benchmarks.harness import Settings

__all__ = [
    "PATIENCE",
    "TTL",
    "Address",
    "AsyncLock",
    "Connections",
    "Kind",
    "Library",
    "Lock",
    "Ours",
    "OursAsync",
    "Peer",
]

TTL = 30  # seconds after which a lock that is not renewed is free, for every library
PATIENCE = 60.0
Address = tuple[str, int]


class Lock:
    """Something to take and to give back, for one thread."""

    def take(self) -> object:
        """Wait for it."""
        raise NotImplementedError

    def give(self) -> object:
        """Give it back."""
        raise NotImplementedError

    def pairs(self, count: int) -> None:
        """Take it and give it back, so many times."""
        take, give = self.take, self.give
        for _ in range(count):
            take()
            give()

    def close(self) -> object:
        """Let go of what this lock alone uses."""


class Ours(Lock):
    """leasehold."""

    def __init__(self, client: leasehold.Client, name: str, close: Callable[[], object] | None = None) -> None:
        self._lock = client.lock(name)
        self._lease: leasehold.Lease | None = None
        self._close = close

    def take(self) -> None:
        self._lease = self._lock.acquire(timeout=PATIENCE)

    def give(self) -> None:
        if self._lease is not None:
            self._lease.release()

    def close(self) -> None:
        if self._close is not None:
            self._close()


class Peer(Lock):
    """A lock of another library, with the two methods that most of them have; made anew for each use if need be."""

    def __init__(self, make: Callable[[], Any], close: Callable[[], object] | None = None) -> None:
        self._make = make
        self._close = close
        self._lock: Any = None

    def take(self) -> None:
        self._lock = self._make()
        if self._lock.acquire() is False:
            raise RuntimeError(f"{type(self._lock).__name__} was not granted")

    def give(self) -> None:
        self._lock.release()

    def close(self) -> None:
        if self._close is not None:
            self._close()


class AsyncLock(Lock):
    """A lock on an event loop of its own, taken and given by one task."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    async def pair(self) -> None:
        """Take it and give it back."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Let go of connections."""

    def pairs(self, count: int) -> None:
        self.runner.run(self._pairs(count))

    async def _pairs(self, count: int) -> None:
        for _ in range(count):
            await self.pair()

    def close(self) -> None:
        self.runner.run(self.leave())
        self.runner.close()


class OursAsync(AsyncLock):
    """leasehold on asyncio."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__()
        self._client = leasehold.connect_async(url, ttl=TTL)
        self._lock = self._client.lock(name)

    async def pair(self) -> None:
        await (await self._lock.acquire(timeout=PATIENCE)).release()

    async def leave(self) -> None:
        await self._client.close()


class Connections:
    """What the locks of one process share, for as long as they are used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stack = ExitStack()

    @cached_property
    def ours(self) -> leasehold.Client:
        """Our client."""
        client = leasehold.connect(self.url, ttl=TTL)
        self.stack.callback(client.close)
        return client

    def close(self) -> None:
        """Close all that was opened."""
        self.stack.close()


@dataclass(frozen=True, slots=True)
class Kind:
    """One library's lock, or one way to use it; `packages` have to be installed."""

    make: Callable[[Any, str], Lock]
    packages: tuple[str, ...] = ()
    role: Role = Role.PEER


@dataclass(frozen=True, slots=True)
class Library:
    """All that can lock on one store; our own kind is the first."""

    store: str
    kinds: Mapping[str, Kind]
    why_no_server: Callable[[], str]  # empty if there can be one
    serve: Callable[[], AbstractContextManager[Any]]
    connect: Callable[[Any, Sequence[Address]], Connections]  # to this server, reached at these addresses
    round_trip: Callable[[Any, Sequence[Address]], tuple[str, Callable[[], object], Callable[[], object]]]
    addresses: Callable[[Any], Sequence[Address]] = lambda server: [("127.0.0.1", server.port)]

    @property
    def ours(self) -> str:
        """The name of our own kind."""
        return next(iter(self.kinds))

    def make(self, kind: str, connections: Connections, name: str) -> Lock:
        """A lock of this kind and name."""
        return self.kinds[kind].make(connections, name)

    def why_missing(self, kind: str) -> str:
        """Why this kind cannot run here; empty if it can."""
        return "" if all(find_spec(package) for package in self.kinds[kind].packages) else "not installed"

    def candidate(
        self, kind: str, connections: Connections, make: Callable[[Callable[[str], Lock], Role], Candidate]
    ) -> Candidate:
        """What `make` makes of the maker of such locks and their role; a row with the reason, if it cannot run."""
        role = self.kinds[kind].role
        if missing := self.why_missing(kind):
            return Candidate(kind, role, None, missing)
        return make(lambda name: self.make(kind, connections, f"{name}-{list(self.kinds).index(kind)}"), role)

    def pairs(
        self,
        settings: Settings,
        kind: str,
        connections: Connections,
        around: Callable[[Callable[[int], None]], Callable[[int], None]] = lambda run: run,
    ) -> Candidate:
        """How long an uncontended pair takes; `around` may change where it runs."""

        def timed_pairs(make: Callable[[str], Lock], role: Role) -> Candidate:
            lock = make("pair")
            return timed(kind, role, around(lock.pairs), settings, close=lock.close)

        return self.candidate(kind, connections, timed_pairs)
