"""The doctor: how well an etcd cluster is set up for locks. Members, leader, version, space, speed, clocks, rights.

It changes nothing. What this user may not read is a finding, too.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.rpc import Method
from leasehold.errors import BackendError, BackendRejected
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from leasehold._backends.etcd.claims import Claims
    from leasehold._backends.etcd.options import Options
    from leasehold._backends.etcd.rpc import Status

__all__ = ["Doctor"]

READS = 5
SLOW, TOO_SLOW = 0.05, 1.0
OLDEST = (3, 4)
REVOKES_LIVE_LEASES = {(3, 4): 31, (3, 5): 13}  # the first patch in which a leader that stood still does not
PANICS = ((3, 5), 5)  # the series, and the first patch in which a cancelled read does not end the member
DEFAULT_QUOTA = 2 * 1024**3
NEARLY_FULL = 0.8
CLOCK_OFF = 2.0


@dataclass
class _Facts:
    """What was read from the cluster."""

    statuses: dict[int, Status] = field(default_factory=dict)  # by place in the URL
    silent: dict[int, str] = field(default_factory=dict)
    voters: int = 0
    learners: int = 0
    alarms: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)  # seconds that each member is ahead of this host
    refused: dict[str, str] = field(default_factory=dict)


class Doctor:
    """Examines a cluster."""

    def __init__(self, claims: Claims, options: Options) -> None:
        self._connection = claims.connection
        self._keys = claims.keys
        self._now = claims.runtime.now
        self._options = options

    async def examine(self) -> list[Finding]:
        """Every finding, the good ones included."""
        facts = _Facts()
        await self._read_members(facts)
        await self._read_cluster(facts)
        findings = [_members(facts, len(self._options.targets)), _leader(facts), _version(facts), _space(facts)]
        findings += [_speed(facts), _clock(facts), self._access(), await self._rights()]
        return findings

    async def _read_members(self, facts: _Facts) -> None:
        connection = self._connection
        for place in range(connection.members):
            try:
                response = await connection.call_member(place, Method.STATUS, b"")
                facts.statuses[place] = rpc.read_status(response)
                ahead = await connection.clock_of(place)
            except BackendRejected as refused:
                facts.refused["status"] = str(refused)
            except BackendError as error:
                facts.silent[place] = str(error)
            else:
                facts.clocks += [] if ahead is None else [ahead]

    async def _read_cluster(self, facts: _Facts) -> None:
        connection = self._connection
        try:
            facts.voters, facts.learners = rpc.read_members(await connection.call(Method.MEMBER_LIST, b"", reads=True))
            facts.alarms = rpc.read_alarms(await connection.call(Method.ALARM, b"", reads=True))
        except BackendError as refused:
            facts.refused["members"] = str(refused)
        for _ in range(READS):
            started = self._now()
            try:
                await connection.range(rpc.read(self._keys.floor("leasehold:")))
            except BackendError as refused:
                facts.refused["read"] = str(refused)
                return
            facts.times.append(self._now() - started)

    def _access(self) -> Finding:
        why = "without users, every program that reaches etcd's port can take and delete every lock"
        options = self._options
        secure = options.targets[0].tls is not None
        found = f"{'TLS' if secure else 'no TLS'}, {'as user ' + repr(options.user) if options.user else 'no user'}"
        if secure or options.user or all(_is_loopback(target.host) for target in options.targets):
            return Finding("access", Level.OK, found, why)
        return Finding("access", Level.WARNING, found, why, "use etcds:// and a user, or a network without strangers")

    async def _rights(self) -> Finding:
        """A transaction whose condition never holds needs the same rights as one that writes."""
        why = "claims, fences and records are read and written below one root"
        root = self._keys.root
        key = f"{root}doctor".encode()
        never = rpc.condition(rpc.created_at(key, 1))
        harmless = never + rpc.then(rpc.op_put(rpc.put(key, b"")))
        try:
            await self._connection.txn(harmless)
        except BackendRejected as refused:
            return Finding(
                "rights", Level.PROBLEM, str(refused), why, f"grant this user READWRITE on the prefix {root!r}"
            )
        except BackendError as error:
            return Finding(
                "rights", Level.PROBLEM, str(error), why, "remove the cause in the message, then run doctor again"
            )
        return Finding("rights", Level.OK, f"may read and write below {root!r}", why)


def _members(facts: _Facts, named: int) -> Finding:
    why = "a majority must be there for any lock to be granted or kept; three members survive the loss of one"
    if "members" in facts.refused:
        return Finding(
            "members", Level.WARNING, facts.refused["members"], why, "run the doctor as a user with the root role"
        )
    found = f"{facts.voters} voting" + (f", {facts.learners} learning" if facts.learners else "")
    if facts.silent:
        found += f"; {len(facts.silent)} of {named} in the URL did not answer"
        return Finding("members", Level.PROBLEM, found, why, "start these members, or remove them from the URL")
    if facts.voters < 3:
        return Finding("members", Level.WARNING, found, why, "run three members on three hosts for locks that matter")
    if facts.voters % 2 == 0:
        return Finding(
            "members", Level.WARNING, found, why, "an even number survives no more failures than one less: add a member"
        )
    if named < min(3, facts.voters):
        return Finding("members", Level.WARNING, f"{found}, {named} in the URL", why, "name all members in the URL")
    return Finding("members", Level.OK, found, why)


def _leader(facts: _Facts) -> Finding:
    why = "without a leader that all members agree on, nothing is granted and nothing is renewed"
    leaders = {(status.leader, status.term) for status in facts.statuses.values()}
    if not facts.statuses:
        return Finding(
            "leader",
            Level.WARNING,
            facts.refused.get("status", "no member answered"),
            why,
            "run the doctor as a user with the root role",
        )
    if len(leaders) == 1 and all(leader for leader, _ in leaders):
        return Finding("leader", Level.OK, f"one leader, in term {next(iter(leaders))[1]}", why)
    return Finding("leader", Level.PROBLEM, "members do not agree on one", why, "check etcd's logs and its network")


def _version(facts: _Facts) -> Finding:
    why = "some versions end leases before their time is over, or panic"
    found = ", ".join(sorted({status.version for status in facts.statuses.values()})) or "no member answered"
    for status in facts.statuses.values():
        series, patch = _parse(status.version)
        if series < OLDEST:
            return Finding("server version", Level.PROBLEM, found, why, "use etcd 3.4 or newer")
        if series == PANICS[0] and patch < PANICS[1]:
            advice = "a member panics when a waiting client dies at the wrong moment (etcd issue 14110); use 3.5.13"
            return Finding("server version", Level.PROBLEM, found, why, f"{advice} or newer")
        if patch < REVOKES_LIVE_LEASES.get(series, 0):
            first = f"{series[0]}.{series[1]}.{REVOKES_LIVE_LEASES[series]}"
            advice = f"a leader that was stopped may end live leases when it goes on; use {first} or newer"
            return Finding("server version", Level.WARNING, found, why, advice)
    return Finding("server version", Level.OK, found, why)


def _space(facts: _Facts) -> Finding:
    why = "a full etcd grants nothing; every acquire and release adds to its history until that is compacted"
    size = max((status.size for status in facts.statuses.values()), default=0)
    found = f"{size / 1024**2:.0f} MiB" + "".join(f", alarm {alarm}" for alarm in facts.alarms)
    if facts.alarms:
        return Finding("space", Level.PROBLEM, found, why, "compact and defragment etcd, then disarm the alarm")
    if size > NEARLY_FULL * DEFAULT_QUOTA:
        advice = "compact and defragment, or raise --quota-backend-bytes; set --auto-compaction-retention"
        return Finding("space", Level.WARNING, found, why, advice)
    return Finding("space", Level.OK, found, why)


def _speed(facts: _Facts) -> Finding:
    why = "a renewal must be answered within the ttl, also under load"
    if not facts.times:
        return Finding(
            "read",
            Level.PROBLEM,
            facts.refused.get("read", "no answer"),
            why,
            "remove the cause in the message, then run doctor again",
        )
    took = median(facts.times)
    found = f"{took * 1000:.1f} ms for a read that needs a majority (median of {len(facts.times)})"
    if took < SLOW:
        return Finding("read", Level.OK, found, why)
    level = Level.PROBLEM if took >= TOO_SLOW else Level.WARNING
    return Finding("read", level, found, why, "check for slow disks and distant members; meanwhile use a longer ttl")


def _clock(facts: _Facts) -> Finding:
    why = "the slots of `once` go by the time of day of etcd's members; locks and fences do not"
    if not facts.clocks:
        advice = "for `once`, name the port of --listen-client-http-urls: ?http_port=N"
        return Finding("server clock", Level.WARNING, "no member gives the time of day over HTTP", why, advice)
    worst = max(map(abs, facts.clocks))
    found = f"members differ from this host by up to {worst:.0f} s"
    if worst <= CLOCK_OFF:
        return Finding("server clock", Level.OK, found, why)
    return Finding("server clock", Level.WARNING, found, why, "run NTP on all hosts")


def _parse(version: str) -> tuple[tuple[int, int], int]:
    parts = [int(part) if part.isdigit() else 0 for part in version.partition("-")[0].split(".")]
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return (major, minor), patch


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
