"""What the facts about an ensemble mean for a lock: plain functions from facts to findings. It asks nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold.backends.zookeeper.belief import BELIEVED
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.backends.zookeeper.settings import Settings

__all__ = ["Facts", "Server", "findings"]

OLDEST = (3, 5, 3)
SLOW, TOO_SLOW = 0.05, 1.0
USUAL_TTL = 30.0
FEW_CONNECTIONS = 20
READ = 1


@dataclass(frozen=True)
class Server:
    """What one server says about itself: its answers to `srvr` and `conf`, or why there are none."""

    address: str
    srvr: str = ""
    conf: str = ""
    trouble: str = ""

    @property
    def mode(self) -> str:
        """leader, follower, observer, standalone; empty where it does not say."""
        return _value(self.srvr, "Mode: ")

    @property
    def version(self) -> str:
        """As it is printed, like 3.8.0."""
        return _value(self.srvr, "Zookeeper version: ").partition("-")[0]

    @property
    def connections(self) -> int | None:
        """How many connections it allows to one host; 0 is any number, None not known."""
        text = _value(self.conf, "maxClientCnxns=")
        return int(text) if text.isdigit() else None


@dataclass
class Facts:
    """Everything that was learned; what could not be is empty."""

    settings: Settings
    servers: list[Server] = field(default_factory=list)
    pings: list[float] = field(default_factory=list)
    latency: float | None = None
    shortest: float | None = None  # session timeouts that the ensemble gives
    longest: float | None = None
    acl: Any = None
    configuration: Any = None
    foreign: list[str] = field(default_factory=list)  # paths of nodes that other programs made where claims stand
    refused: dict[str, str] = field(default_factory=dict)


def findings(facts: Facts) -> list[Finding]:
    """All of them."""
    checks = (_version, _ensemble, _quorum, _timeouts, _connections, _latency, _rights, _nodes, _secrecy, _refused)
    return [finding for check in checks for finding in check(facts)]


def _version(facts: Facts) -> Iterator[Finding]:
    why = "idle locks are kept in container nodes, which came with 3.5.3"
    for version in sorted({server.version for server in facts.servers if server.version}):
        numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
        level, advice = (Level.PROBLEM, "use ZooKeeper 3.5.3 or newer") if numbers < OLDEST else (Level.OK, "")
        yield Finding("version", level, f"ZooKeeper {version}", why, advice)
    if not any(server.version for server in facts.servers):
        yield Finding("version", Level.OK, "not told: the word srvr is not allowed here", why)


def _ensemble(facts: Facts) -> Iterator[Finding]:
    why = "a lock is granted as long as a majority of the ensemble works"
    for server in facts.servers:
        if server.trouble:
            advice = "start it, or take it out of the URL"
            yield Finding("server", Level.WARNING, f"{server.address} does not answer: {server.trouble}", why, advice)
        elif server.mode:
            yield Finding("server", Level.OK, f"{server.address} is {server.mode}", why)
    if any(server.mode == "standalone" for server in facts.servers):
        yield Finding(
            "ensemble",
            Level.WARNING,
            "one server alone",
            "while it is down nothing is granted or renewed; when its disk is lost, so are the fences",
            "use three servers, or five",
        )


def _quorum(facts: Facts) -> Iterator[Finding]:
    why = "an even number of voters fails as early as one less, and costs one server more"
    voters = _voters(facts.configuration)
    if not voters:
        return
    if voters % 2 == 0:
        yield Finding("quorum", Level.WARNING, f"{voters} voters", why, f"use {voters - 1} or {voters + 1}")
    else:
        yield Finding("quorum", Level.OK, f"{voters} voters, {voters // 2} of which may fail", why)
    named = len(facts.settings.hosts)
    if named < voters:
        yield Finding(
            "hosts",
            Level.WARNING,
            f"the URL names {named} of {voters} servers",
            "when those are down, this client is too, although the ensemble works",
            "name them all",
        )


def _timeouts(facts: Facts) -> Iterator[Finding]:
    why = "a ttl is two thirds of a session timeout, and the ensemble bounds that"
    if facts.shortest is None or facts.longest is None:
        yield Finding("session timeout", Level.WARNING, "could not be learned", why)
        return
    least, most = facts.shortest * BELIEVED, facts.longest * BELIEVED
    found = f"sessions of {facts.shortest:g} to {facts.longest:g} s: a ttl of {least:.3g} to {most:.3g} s"
    if most < USUAL_TTL:
        advice = f"use a ttl of at most {most:.3g} s, or set maxSessionTimeout={int(USUAL_TTL / BELIEVED * 1000)}"
        yield Finding("session timeout", Level.WARNING, found, f"{why}; a longer ttl is cut down to that", advice)
    else:
        yield Finding("session timeout", Level.OK, found, why)


def _connections(facts: Facts) -> Iterator[Finding]:
    why = "each client uses one connection for each different ttl, and all clients of a host count together"
    known = [server.connections for server in facts.servers if server.connections is not None]
    if not known:
        yield Finding("connections", Level.OK, "not told: the word conf is not allowed here", why)
        return
    fewest = min((number for number in known if number), default=0)
    if 0 < fewest < FEW_CONNECTIONS:
        advice = "raise maxClientCnxns"
        yield Finding("connections", Level.WARNING, f"at most {fewest} from one host", why, advice)
    else:
        yield Finding("connections", Level.OK, f"at most {fewest or 'any number'} from one host", why)


def _latency(facts: Facts) -> Iterator[Finding]:
    why = "every grant waits for an answer that passed the leader"
    if facts.latency is None:
        return
    found = f"{facts.latency * 1000:.1f} ms to the leader and back"
    if facts.latency >= TOO_SLOW:
        yield Finding("latency", Level.PROBLEM, found, why, "use long ttls, or an ensemble that is nearer")
    elif facts.latency >= SLOW:
        yield Finding("latency", Level.WARNING, found, why, "use ttls of many times that")
    else:
        yield Finding("latency", Level.OK, found, why)


def _rights(facts: Facts) -> Iterator[Finding]:
    why = "who may delete nodes can take every lock away, and who may write can block it"
    rules = facts.acl[0] if facts.acl else facts.settings.acl
    where = f"{facts.settings.root}" if facts.acl else f"{facts.settings.root}, which is not made yet,"
    if any(rule.id.scheme == "world" and rule.perms & ~READ for rule in rules):
        advice = "give a user and password in the URL (zk://user:password@…), or acl=…"
        yield Finding("rights", Level.WARNING, f"{where} is open to everybody", why, advice)
    else:
        yield Finding("rights", Level.OK, f"{where} is not open to everybody", why)


def _nodes(facts: Facts) -> Iterator[Finding]:
    why = "another recipe on the path of a lock, such as kazoo's Lock, does not see our claims: both may be granted"
    if not facts.foreign:
        yield Finding("nodes", Level.OK, f"only leasehold's own below {facts.settings.root}/locks", why)
        return
    more = f" and {len(facts.foreign) - 1} more" if len(facts.foreign) > 1 else ""
    advice = "end the program that made it, or give one of the two a path of its own; until then this lock is refused"
    found = f"{facts.foreign[0]}{more}: not made by leasehold"
    yield Finding("nodes", Level.PROBLEM, found, why, advice)


def _secrecy(facts: Facts) -> Iterator[Finding]:
    why = "a password, and everything else, can be read on the way"
    if facts.settings.uses_tls:
        yield Finding("encryption", Level.OK, "connections are encrypted", why)
    elif facts.settings.auth:
        yield Finding("encryption", Level.WARNING, "the password is sent in the clear", why, "use zks:// and TLS")


def _refused(facts: Facts) -> Iterator[Finding]:
    for what, error in facts.refused.items():
        yield Finding("questions", Level.OK, f"this account may not ask for {what} ({error})", "it is not judged here")


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
