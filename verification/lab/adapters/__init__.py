"""One shape for ours and for other people's locks, so that the same client runs all of them through the same faults.

An adapter is for one thread. It uses its library as that library's documents advise, and says how in `settings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PEERS", "Adapter", "Grant", "Peer", "open_adapter"]

OURS = "leasehold"
FOR_EVER = 1e9  # the belief of a holder whose library has no deadline to ask for


class Grant(Protocol):
    """A lock that is held."""

    fence: int | None
    lease: Any  # what the guard takes; None where there are no fences

    def remaining(self) -> float:
        """For how many seconds the holder may believe in it, by its own clock; 0 when it is over."""

    def tick(self) -> None:
        """Called every few hundredths of a second by the holder: a library without a renewal of its own renews here."""

    def release(self) -> bool:
        """Whether that surely freed it."""


class Adapter(Protocol):
    """A lock of one name, on one store."""

    def acquire(self, timeout: float) -> Grant | None:
        """Wait for it; None if it stays taken."""

    def close(self) -> None:
        """Connections and threads."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another library: where its adapter is, on which stores it can run, and how it is used."""

    name: str
    package: str
    module: str
    stores: Sequence[str]
    settings: str
    tells: str  # how its holder learns of a loss
    renews: bool = True  # or has to be done within one ttl

    def version(self) -> str:
        """The installed one."""
        return version(self.package)


_SINGLE = ("redis",)
PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "redis-py",
            "redis",
            "redis_py",
            _SINGLE,
            "Lock(timeout=ttl, sleep=0.02), extend(ttl, replace_ttl=True) every ttl/3, retries off",
            "extend and release raise LockNotOwnedError",
        ),
        Peer(
            "python-redis-lock",
            "python-redis-lock",
            "python_redis_lock",
            _SINGLE,
            "Lock(expire=ttl, auto_renewal=True)",
            "release raises NotAcquired",
        ),
        Peer(
            "redlock-py",
            "redlock-py",
            "redlock_py",
            ("redis", "redlock"),
            "Redlock(nodes, retry_count=1) in a loop until the timeout; validity of its answer kept",
            "validity of the grant, by the caller's clock; no renewal, so that its sections are short",
            renews=False,
        ),
        Peer(
            "pottery",
            "pottery",
            "pottery",
            ("redis", "redlock"),
            "Redlock(auto_release_time=ttl, num_extensions=1000), extend() every ttl/3",
            "locked() asks the nodes; extend and release raise",
        ),
        Peer(
            "kazoo",
            "kazoo",
            "kazoo",
            ("zookeeper",),
            "Lock, session of one ttl, listener for SUSPENDED and LOST",
            "the connection's listener",
        ),
        Peer(
            "tooz",
            "tooz",
            "tooz",
            ("redis", "zookeeper"),
            "get_coordinator(timeout=ttl), start(start_heart=True)",
            "`acquired`, and is_still_owner where the driver has it",
        ),
        Peer(
            "etcd3gw",
            "etcd3gw",
            "etcd3gw",
            ("etcd",),
            "Lock(ttl), refresh() every ttl/3; the first member only, for it takes one address",
            "is_acquired() asks the server",
        ),
        Peer(
            "filelock",
            "filelock",
            "filelock",
            ("sqlite",),
            "FileLock beside the database: a lock of the operating system, one host",
            "it cannot be lost while its process lives",
        ),
    )
}


def open_adapter(library: str, store: str, url: str, name: str, ttl: float) -> Adapter:
    """The adapter of ours or of a peer, connected."""
    module = "leasehold" if library == OURS else PEERS[library].module
    adapter: Adapter = import_module(f"verification.lab.adapters.{module}").connect(store, url, name, ttl)
    return adapter
