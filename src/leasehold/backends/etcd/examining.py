"""How well an etcd cluster is set up for locks: members, leader, version, space, speed, clocks, rights.

It changes nothing. What this account may not ask is a finding, too.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from leasehold.backends.etcd import answers, messages
from leasehold.backends.etcd.messages import Method
from leasehold.errors import BackendError, BackendRejected
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import Status
    from leasehold.backends.etcd.options import Options
    from leasehold.backends.etcd.toolbox import Toolbox

__all__ = ["Examiner"]

ASKED = 5
SLOW, TOO_SLOW = 0.05, 1.0
OLDEST = (3, 4)
REVOKES_LIVE_LEASES = {(3, 4): 31, (3, 5): 13}  # the first patch in which a leader that stood still does not
PANICS = ((3, 5), 5)  # the series, and the first patch in which a cancelled read does not end the member
DEFAULT_QUOTA = 2 * 1024**3
NEARLY_FULL = 0.8
CLOCK_OFF = 2.0


@dataclass
class _Facts:
    """What was learned."""

    statuses: dict[int, Status] = field(default_factory=dict)  # by place in the URL
    silent: dict[int, str] = field(default_factory=dict)
    voters: int = 0
    learners: int = 0
    alarms: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)  # seconds that each member is ahead of us
    refused: dict[str, str] = field(default_factory=dict)


class Examiner:
    """Looks at a cluster."""

    def __init__(self, tools: Toolbox, options: Options) -> None:
        self._tools = tools
        self._options = options

    async def examine(self) -> list[Finding]:
        """Every finding, the good ones included."""
        facts = _Facts()
        await self._ask_members(facts)
        await self._ask_cluster(facts)
        findings = [_members(facts, len(self._options.targets)), _leader(facts), _version(facts), _space(facts)]
        findings += [_speed(facts), _clock(facts), self._access(), await self._rights()]
        return findings

    async def _ask_members(self, facts: _Facts) -> None:
        connection = self._tools.connection
        for place in range(connection.members):
            try:
                answer = await connection.call_member(place, Method.STATUS, b"")
                facts.statuses[place] = answers.read_status(answer)
                ahead = await connection.clock_of(place)
            except BackendRejected as refused:
                facts.refused["status"] = str(refused)
            except BackendError as error:
                facts.silent[place] = str(error)
            else:
                facts.clocks += [] if ahead is None else [ahead]

    async def _ask_cluster(self, facts: _Facts) -> None:
        connection, now = self._tools.connection, self._tools.runtime.now
        try:
            facts.voters, facts.learners = answers.read_members(
                await connection.call(Method.MEMBER_LIST, b"", reads=True)
            )
            facts.alarms = answers.read_alarms(await connection.call(Method.ALARM, b"", reads=True))
        except BackendError as refused:
            facts.refused["members"] = str(refused)
        for _ in range(ASKED):
            started = now()
            try:
                await connection.range(messages.read(self._tools.layout.floor("leasehold:")))
            except BackendError as refused:
                facts.refused["read"] = str(refused)
                return
            facts.times.append(now() - started)

    def _access(self) -> Finding:
        why = "whoever reaches etcd's port can take and delete every lock, unless etcd asks who it is"
        options = self._options
        secure = options.targets[0].security is not None
        found = f"{'TLS' if secure else 'no TLS'}, {'as user ' + repr(options.user) if options.user else 'no user'}"
        if secure or options.user or all(_is_loopback(target.host) for target in options.targets):
            return Finding("access", Level.OK, found, why)
        return Finding("access", Level.WARNING, found, why, "use etcds:// and a user, or keep others off the network")

    async def _rights(self) -> Finding:
        """A transaction that does nothing is checked like one that does."""
        why = "claims, fences and records are read and written below one root"
        root = self._tools.layout.root
        key = f"{root}doctor".encode()
        harmless = messages.condition(messages.created_at(key, 1)) + messages.then(
            messages.op_put(messages.put(key, b""))
        )
        try:
            await self._tools.connection.txn(harmless)
        except BackendRejected as refused:
            return Finding(
                "rights", Level.PROBLEM, str(refused), why, f"grant this user READWRITE on the prefix {root!r}"
            )
        except BackendError as error:
            return Finding("rights", Level.PROBLEM, str(error), why, "see the message; then run doctor again")
        return Finding("rights", Level.OK, f"may read and write below {root!r}", why)


def _members(facts: _Facts, named: int) -> Finding:
    why = "a majority must be there for any lock to be granted or kept; three members survive the loss of one"
    if "members" in facts.refused:
        return Finding("members", Level.WARNING, facts.refused["members"], why, "let this user ask, or ask an operator")
    found = f"{facts.voters} voting" + (f", {facts.learners} learning" if facts.learners else "")
    if facts.silent:
        found += f"; {len(facts.silent)} of {named} in the URL did not answer"
        return Finding("members", Level.PROBLEM, found, why, "start them, or take them out of the URL")
    if facts.voters < 3:
        return Finding("members", Level.WARNING, found, why, "run three, on three hosts, for locks that matter")
    if facts.voters % 2 == 0:
        return Finding("members", Level.WARNING, found, why, "an even number survives no more than one less: add one")
    if named < min(3, facts.voters):
        return Finding("members", Level.WARNING, f"{found}, {named} in the URL", why, "name them all in the URL")
    return Finding("members", Level.OK, found, why)


def _leader(facts: _Facts) -> Finding:
    why = "without a leader that all agree on nothing is granted, and nothing is renewed"
    leaders = {(status.leader, status.term) for status in facts.statuses.values()}
    if not facts.statuses:
        return Finding("leader", Level.WARNING, facts.refused.get("status", "nobody said"), why, "ask an operator")
    if len(leaders) == 1 and all(leader for leader, _ in leaders):
        return Finding("leader", Level.OK, f"there is one, in term {next(iter(leaders))[1]}", why)
    return Finding("leader", Level.PROBLEM, "members do not agree on one", why, "look at etcd's logs and its network")


def _version(facts: _Facts) -> Finding:
    why = "leases must end when their time is over, and not before"
    found = ", ".join(sorted({status.version for status in facts.statuses.values()})) or "nobody said"
    for status in facts.statuses.values():
        series, patch = _parse(status.version)
        if series < OLDEST:
            return Finding("server version", Level.PROBLEM, found, why, "use etcd 3.4 or newer")
        if series == PANICS[0] and patch < PANICS[1]:
            advice = "a member panics when a client that waits dies at the wrong moment (etcd issue 14110); use 3.5.13"
            return Finding("server version", Level.PROBLEM, found, why, f"{advice} or newer")
        if patch < REVOKES_LIVE_LEASES.get(series, 0):
            first = f"{series[0]}.{series[1]}.{REVOKES_LIVE_LEASES[series]}"
            advice = f"a leader that stood still may end live leases when it wakes; use {first} or newer"
            return Finding("server version", Level.WARNING, found, why, advice)
    return Finding("server version", Level.OK, found, why)


def _space(facts: _Facts) -> Finding:
    why = "a full etcd refuses to grant; locks leave their history behind until it is compacted"
    size = max((status.size for status in facts.statuses.values()), default=0)
    found = f"{size / 1024**2:.0f} MiB" + "".join(f", alarm {alarm}" for alarm in facts.alarms)
    if facts.alarms:
        return Finding("space", Level.PROBLEM, found, why, "compact, defragment, and disarm the alarm")
    if size > NEARLY_FULL * DEFAULT_QUOTA:
        advice = "compact and defragment, or raise --quota-backend-bytes; set --auto-compaction-retention"
        return Finding("space", Level.WARNING, found, why, advice)
    return Finding("space", Level.OK, found, why)


def _speed(facts: _Facts) -> Finding:
    why = "a renewal must get through within the ttl, also on a bad day"
    if not facts.times:
        return Finding("read", Level.PROBLEM, facts.refused.get("read", "no answer"), why, "see the message")
    took = median(facts.times)
    found = f"{took * 1000:.1f} ms for a read that needs a majority (median of {len(facts.times)})"
    if took < SLOW:
        return Finding("read", Level.OK, found, why)
    level = Level.PROBLEM if took >= TOO_SLOW else Level.WARNING
    return Finding("read", level, found, why, "look for slow disks and far members; meanwhile use a longer ttl")


def _clock(facts: _Facts) -> Finding:
    why = "locks and fences need no clock of etcd's; the slots of `once` go by the time of day of its members"
    if not facts.clocks:
        advice = "for `once`, name the port of --listen-client-http-urls: ?http_port=N"
        return Finding("server clock", Level.WARNING, "no member tells the time over HTTP", why, advice)
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
