"""How well an ensemble is set up for locks: servers, versions, quorum, session timeouts, latency, rights.

First the facts are collected, then plain functions turn them into findings. Nothing is changed. The bounds of the
session timeout are found by requesting a very short and a very long session; the servers themselves are queried with
their four-letter words, where those are allowed.
"""

from __future__ import annotations

import math
import time
from _thread import start_new_thread
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetACL, GetChildren, GetData, Sync

from leasehold._backends.zookeeper.claim_node import Registry
from leasehold._backends.zookeeper.connection import open_socket
from leasehold._backends.zookeeper.inspect import READ_TTL
from leasehold._backends.zookeeper.keys import is_foreign
from leasehold._backends.zookeeper.session import Session
from leasehold._backends.zookeeper.validity import VALID_PART
from leasehold.errors import BackendError
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold._backends.zookeeper.calls import Calls
    from leasehold._backends.zookeeper.keys import Paths
    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.pool import Pool
    from leasehold.spi import Runtime

__all__ = ["Doctor", "Facts", "Server", "findings"]

WORD_TIMEOUT = 2.0
PINGS = 5
SHORTEST, LONGEST = 0.001, 1_000_000.0
CONFIGURATION = "/zookeeper/config"
MOST_LOCKS = 1000  # that are searched for nodes of other programs
OLDEST = (3, 5, 3)
SLOW, TOO_SLOW = 0.05, 1.0
USUAL_TTL = 30.0
FEW_CONNECTIONS = 20
READ = 1


@dataclass(frozen=True)
class Server:
    """One server's answers to `srvr` and `conf`, or why there are none."""

    address: str
    srvr: str = ""
    conf: str = ""
    failure: str = ""

    @property
    def mode(self) -> str:
        """leader, follower, observer, standalone; empty if not known."""
        return _value(self.srvr, "Mode: ")

    @property
    def version(self) -> str:
        """As it is printed, like 3.8.0."""
        return _value(self.srvr, "Zookeeper version: ").partition("-")[0]

    @property
    def connections(self) -> int | None:
        """How many connections it allows from one host; 0 is any number, None not known."""
        text = _value(self.conf, "maxClientCnxns=")
        return int(text) if text.isdigit() else None


@dataclass
class Facts:
    """What was found; a fact that could not be read is empty."""

    options: Options
    servers: list[Server] = field(default_factory=list)
    pings: list[float] = field(default_factory=list)
    latency: float | None = None
    shortest: float | None = None  # session timeouts that the ensemble gives
    longest: float | None = None
    acl: Any = None
    configuration: Any = None
    foreign: list[str] = field(default_factory=list)  # paths of nodes of other programs among claims
    refused: dict[str, str] = field(default_factory=dict)


# --- collecting the facts


class Doctor:
    """Examines one ensemble."""

    def __init__(self, options: Options, paths: Paths, *, runtime: Runtime, calls: Calls, pool: Pool) -> None:
        self._options = options
        self._paths = paths
        self._runtime = runtime
        self._calls = calls
        self._pool = pool

    async def examine(self) -> Sequence[Finding]:
        """All findings, the good ones included."""
        facts = Facts(self._options)
        session = self._pool.any_session(READ_TTL)
        await self._calls.connect(session, math.inf)
        for _ in range(PINGS):
            started = time.perf_counter()
            reply = session.send(Sync(self._paths.root), signal=self._runtime.signal())
            await self._calls.answer(session, reply, math.inf)
            facts.pings.append(time.perf_counter() - started)
        facts.latency = median(facts.pings)
        facts.acl = await self._read(session, GetACL(self._paths.root), facts, "the rights of the root")
        facts.configuration = await self._read(
            session, GetData(CONFIGURATION, None), facts, "the members of the ensemble"
        )
        facts.foreign = await self._foreign(session)
        facts.shortest, facts.longest = await self._negotiated(SHORTEST), await self._negotiated(LONGEST)
        facts.servers = await self._runtime.offload(self._query_servers)
        return findings(facts)

    async def _read(self, session: Session, request: Any, facts: Facts, what: str) -> Any:
        reply = session.send(request, signal=self._runtime.signal())
        await self._calls.finished(session, reply, math.inf)
        if reply.error is not None and not isinstance(reply.error, NoNodeError):
            facts.refused[what] = type(reply.error).__name__
        return reply.value

    async def _foreign(self, session: Session) -> list[str]:
        """Nodes of other programs among claims, in the first locks."""
        locks = await self._children(session, [self._paths.locks])
        parents = [f"{self._paths.locks}/{lock}" for lock in sorted(locks.get(self._paths.locks, ()))[:MOST_LOCKS]]
        found = await self._children(session, parents)
        return [f"{parent}/{name}" for parent, names in found.items() for name in names if is_foreign(name)]

    async def _children(self, session: Session, parents: Sequence[str]) -> dict[str, Sequence[str]]:
        """The children of each, in one round trip; none where this account may not read."""
        replies = [session.send(GetChildren(parent, None), signal=self._runtime.signal()) for parent in parents]
        for reply in replies:
            await self._calls.finished(session, reply, math.inf)
        return {parent: reply.value or () for parent, reply in zip(parents, replies, strict=True)}

    async def _negotiated(self, timeout: float) -> float | None:
        """The session timeout that the ensemble grants when this one is requested."""
        session = Session(
            timeout * VALID_PART,
            lambda: None,
            options=self._options,
            paths=self._paths,
            registry=Registry(),
            runtime=self._runtime,
        )
        session.start()
        try:
            await self._calls.connected(session, math.inf)
        except BackendError:
            return None
        else:
            return session.validity.timeout
        finally:
            start_new_thread(session.close, ())

    def _query_servers(self) -> list[Server]:
        """Every server of the URL."""
        return [_query(host, self._options) for host in self._options.hosts]


def _query(host: tuple[str, int], options: Options) -> Server:
    address = f"{host[0]}:{host[1]}"
    try:
        return Server(address, _answer_to("srvr", host, options), _answer_to("conf", host, options))
    except OSError as error:
        return Server(address, failure=str(error))


def _answer_to(word: str, host: tuple[str, int], options: Options) -> str:
    """The answer to a four-letter word, after which the server closes the connection."""
    with closing(open_socket(host, timeout=WORD_TIMEOUT, **options.socket_options)) as connection:
        connection.settimeout(WORD_TIMEOUT)
        connection.sendall(word.encode())
        return b"".join(iter(partial(connection.recv, 65536), b"")).decode(errors="replace")


# --- what the facts mean for a lock


def findings(facts: Facts) -> list[Finding]:
    """One or more for each check that the facts allow."""
    checks = (_version, _ensemble, _quorum, _timeouts, _connections, _latency, _rights, _nodes, _secrecy, _refused)
    return [finding for check in checks for finding in check(facts)]


def _version(facts: Facts) -> Iterator[Finding]:
    why = "idle locks are kept in container nodes, which came with 3.5.3"
    for version in sorted({server.version for server in facts.servers if server.version}):
        numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
        level, advice = (Level.PROBLEM, "use ZooKeeper 3.5.3 or newer") if numbers < OLDEST else (Level.OK, "")
        yield Finding("version", level, f"ZooKeeper {version}", why, advice)
    if not any(server.version for server in facts.servers):
        yield Finding("version", Level.OK, "not known: srvr is not in 4lw.commands.whitelist of the servers", why)


def _ensemble(facts: Facts) -> Iterator[Finding]:
    why = "a lock is granted as long as a majority of the ensemble works"
    for server in facts.servers:
        if server.failure:
            advice = "start it, or remove it from the URL"
            yield Finding("server", Level.WARNING, f"{server.address} does not answer: {server.failure}", why, advice)
        elif server.mode:
            yield Finding("server", Level.OK, f"{server.address} is {server.mode}", why)
    if any(server.mode == "standalone" for server in facts.servers):
        yield Finding(
            "ensemble",
            Level.WARNING,
            "one server alone",
            "while it is down no lock is granted or renewed; when its disk is lost, so are the fences",
            "use three servers, or five",
        )


def _quorum(facts: Facts) -> Iterator[Finding]:
    why = "an even number of voters tolerates no more failures than one voter less"
    voters = _voters(facts.configuration)
    if not voters:
        return
    if voters % 2 == 0:
        yield Finding("quorum", Level.WARNING, f"{voters} voters", why, f"use {voters - 1} or {voters + 1}")
    else:
        yield Finding("quorum", Level.OK, f"{voters} voters, {voters // 2} of which may fail", why)
    named = len(facts.options.hosts)
    if named < voters:
        yield Finding(
            "hosts",
            Level.WARNING,
            f"the URL names {named} of {voters} servers",
            "when those are down, this client has no store, although the ensemble works",
            "name all servers in the URL",
        )


def _timeouts(facts: Facts) -> Iterator[Finding]:
    why = "a ttl is two thirds of a session timeout, and the ensemble bounds that"
    if facts.shortest is None or facts.longest is None:
        yield Finding("session timeout", Level.WARNING, "the bounds could not be read", why, "run the doctor again")
        return
    least, most = facts.shortest * VALID_PART, facts.longest * VALID_PART
    found = f"sessions of {facts.shortest:g} to {facts.longest:g} s: a ttl of {least:.3g} to {most:.3g} s"
    if most < USUAL_TTL:
        advice = f"use a ttl of at most {most:.3g} s, or set maxSessionTimeout={int(USUAL_TTL / VALID_PART * 1000)}"
        yield Finding("session timeout", Level.WARNING, found, f"{why}; a longer ttl is shortened to that", advice)
    else:
        yield Finding("session timeout", Level.OK, found, why)


def _connections(facts: Facts) -> Iterator[Finding]:
    why = "each client uses one connection for each different ttl, and all clients of a host count together"
    known = [server.connections for server in facts.servers if server.connections is not None]
    if not known:
        yield Finding("connections", Level.OK, "not known: conf is not in 4lw.commands.whitelist of the servers", why)
        return
    fewest = min((number for number in known if number), default=0)
    if 0 < fewest < FEW_CONNECTIONS:
        advice = "raise maxClientCnxns on every server"
        yield Finding("connections", Level.WARNING, f"at most {fewest} from one host", why, advice)
    else:
        yield Finding("connections", Level.OK, f"at most {fewest or 'any number'} from one host", why)


def _latency(facts: Facts) -> Iterator[Finding]:
    why = "every grant waits for an answer that passed the leader"
    if facts.latency is None:
        return
    found = f"{facts.latency * 1000:.1f} ms to the leader and back"
    if facts.latency >= TOO_SLOW:
        yield Finding("latency", Level.PROBLEM, found, why, "use a long ttl, or an ensemble that is nearer")
    elif facts.latency >= SLOW:
        yield Finding("latency", Level.WARNING, found, why, "use a ttl of many times that")
    else:
        yield Finding("latency", Level.OK, found, why)


def _rights(facts: Facts) -> Iterator[Finding]:
    why = "an account that may delete nodes can take every lock away, and one that may create can block it"
    root = facts.options.root
    rules = facts.acl[0] if facts.acl else facts.options.acl
    where = root if facts.acl else f"{root}, which does not exist yet,"
    if any(rule.id.scheme == "world" and rule.perms & ~READ for rule in rules):
        advice = "give a user and password in the URL (zk://user:password@…), or acl=…"
        yield Finding("rights", Level.WARNING, f"{where} is open to every client", why, advice)
    else:
        yield Finding("rights", Level.OK, f"{where} is not open to every client", why)


def _nodes(facts: Facts) -> Iterator[Finding]:
    why = "another recipe on the path of a lock, such as kazoo's Lock, does not see our claims: both may be granted"
    if not facts.foreign:
        yield Finding("nodes", Level.OK, f"only leasehold's own below {facts.options.root}/locks", why)
        return
    more = f" and {len(facts.foreign) - 1} more" if len(facts.foreign) > 1 else ""
    advice = "end the program that made it, or give one of the two another root; until then this lock is refused"
    found = f"{facts.foreign[0]}{more}: not made by leasehold"
    yield Finding("nodes", Level.PROBLEM, found, why, advice)


def _secrecy(facts: Facts) -> Iterator[Finding]:
    why = "without encryption a password, and everything else, can be read on the way"
    if facts.options.uses_tls:
        yield Finding("encryption", Level.OK, "connections are encrypted", why)
    elif facts.options.auth:
        yield Finding("encryption", Level.WARNING, "the password is sent in plain text", why, "use zks:// and TLS")


def _refused(facts: Facts) -> Iterator[Finding]:
    for what, error in facts.refused.items():
        found = f"this account may not read {what} ({error})"
        yield Finding("rights to read", Level.OK, found, "without it this part cannot be examined")


def _voters(configuration: Any) -> int:
    if not configuration:
        return 0
    lines = configuration[0].decode(errors="replace").splitlines()
    return sum(line.startswith("server.") and ":observer" not in line for line in lines)


def _value(text: str, start: str) -> str:
    for line in text.splitlines():
        if line.startswith(start):
            return line.removeprefix(start).strip()
    return ""
