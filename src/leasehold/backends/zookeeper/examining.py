"""How well an ensemble is set up for locks: servers, versions, quorum, session timeouts, latency, rights.

It changes nothing. The bounds of the session timeout are learned by asking for a very short and a very long session;
the servers themselves are asked with their four-letter words, where those are allowed.
"""

from __future__ import annotations

import math
import time
from _thread import start_new_thread
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetACL, GetChildren, GetData, Sync

from leasehold.backends.zookeeper.belief import BELIEVED
from leasehold.backends.zookeeper.diagnosis import Facts, Server, findings
from leasehold.backends.zookeeper.nodes import is_foreign
from leasehold.backends.zookeeper.session import Session
from leasehold.backends.zookeeper.sockets import open_socket
from leasehold.backends.zookeeper.standing import Registry
from leasehold.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.backends.zookeeper.asking import Asker
    from leasehold.backends.zookeeper.nodes import Paths
    from leasehold.backends.zookeeper.pool import Pool
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.findings import Finding
    from leasehold.spi import Runtime, Signal

__all__ = ["Examiner"]

QUESTION_TTL = 10.0
WORD_TIMEOUT = 2.0
PINGS = 5
SHORTEST, LONGEST = 0.001, 1_000_000.0
CONFIGURATION = "/zookeeper/config"
MOST_LOCKS = 1000  # that are looked into


class Examiner:
    """Looks at one ensemble."""

    def __init__(self, settings: Settings, pool: Pool, *, paths: Paths, asker: Asker, runtime: Runtime) -> None:
        self._settings = settings
        self._pool = pool
        self._paths = paths
        self._asker = asker
        self._runtime = runtime

    async def examine(self) -> Sequence[Finding]:
        """What was found, the worst things among it."""
        facts = Facts(self._settings)
        session = self._pool.any_session(QUESTION_TTL)
        await self._asker.connected(session, math.inf)
        for _ in range(PINGS):
            started = time.perf_counter()
            reply = session.send(Sync(self._paths.root), signal=self._runtime.signal())
            await self._asker.answer(session, reply, math.inf)
            facts.pings.append(time.perf_counter() - started)
        facts.latency = median(facts.pings)
        facts.acl = await self._read(session, GetACL(self._paths.root), facts, "the rights of the root")
        facts.configuration = await self._read(
            session, GetData(CONFIGURATION, None), facts, "who belongs to the ensemble"
        )
        facts.foreign = await self._foreign(session)
        facts.shortest, facts.longest = await self._negotiated(SHORTEST), await self._negotiated(LONGEST)
        facts.servers = await self._ask_servers()
        return findings(facts)

    async def _read(self, session: Session, request: Any, facts: Facts, what: str) -> Any:
        reply = session.send(request, signal=self._runtime.signal())
        await self._asker.finished(session, reply, math.inf)
        if reply.error is not None and not isinstance(reply.error, NoNodeError):
            facts.refused[what] = type(reply.error).__name__
        return reply.value

    async def _foreign(self, session: Session) -> list[str]:
        """Nodes of other programs where claims stand, in the first locks."""
        locks = await self._children(session, [self._paths.locks])
        parents = [f"{self._paths.locks}/{lock}" for lock in sorted(locks.get(self._paths.locks, ()))[:MOST_LOCKS]]
        found = await self._children(session, parents)
        return [f"{parent}/{name}" for parent, names in found.items() for name in names if is_foreign(name)]

    async def _children(self, session: Session, parents: Sequence[str]) -> dict[str, Sequence[str]]:
        """The children of each, all asked at once; none where this account may not look."""
        replies = [session.send(GetChildren(parent, None), signal=self._runtime.signal()) for parent in parents]
        for reply in replies:
            await self._asker.finished(session, reply, math.inf)
        return {parent: reply.value or () for parent, reply in zip(parents, replies, strict=True)}

    async def _negotiated(self, ttl: float) -> float | None:
        """What the ensemble makes of a wish for this ttl."""
        session = Session(
            ttl * BELIEVED,
            lambda: None,
            settings=self._settings,
            paths=self._paths,
            registry=Registry(),
            runtime=self._runtime,
        )
        session.start()
        try:
            await self._asker.connected(session, math.inf)
        except BackendError:
            return None
        else:
            return session.belief.timeout
        finally:
            start_new_thread(session.close, ())

    async def _ask_servers(self) -> list[Server]:
        """Ask every server of the URL, on a thread of its own, because sockets block."""
        question = _Question(self._settings, self._runtime.signal())
        start_new_thread(question.ask_all, ())
        limit = 2 * WORD_TIMEOUT * len(self._settings.hosts) + 1.0
        await self._runtime.wait(question.done, self._runtime.now() + limit)
        return list(question.servers)


@dataclass
class _Question:
    """`srvr` and `conf` to every server."""

    settings: Settings
    done: Signal
    servers: list[Server] = field(default_factory=list)

    def ask_all(self) -> None:
        for host, port in self.settings.hosts:
            self.servers.append(self._ask(host, port))
        self.done.set()

    def _ask(self, host: str, port: int) -> Server:
        try:
            return Server(f"{host}:{port}", self._word(host, port, "srvr"), self._word(host, port, "conf"))
        except OSError as error:
            return Server(f"{host}:{port}", trouble=str(error))

    def _word(self, host: str, port: int, word: str) -> str:
        options = {name: value for name, value in self.settings.kazoo_options.items() if name != "randomize_hosts"}
        connection = open_socket((host, port), timeout=WORD_TIMEOUT, **options)
        with closing(connection):
            connection.settimeout(WORD_TIMEOUT)
            connection.sendall(word.encode())
            return b"".join(iter(_receiver(connection), b"")).decode(errors="replace")


def _receiver(connection: Any) -> Callable[[], bytes]:
    return lambda: connection.recv(65536)
