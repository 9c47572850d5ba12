"""How well several servers are set up for Redlock: each by itself, and all of them together.

Each node is looked at as a single Redis is; what means something else here (a replica, a restart, the clock) is judged
here. It changes nothing.
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.doctor import examine as examine_one
from leasehold._backends.redlock.acquire import agreed_on
from leasehold._backends.redlock.calls import MARKER, milliseconds
from leasehold._backends.redlock.wire import checked
from leasehold._core.quorum import WINDOW, majority, median, sits_out
from leasehold.errors import BackendError
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._backends.redlock.node import Node
    from leasehold._backends.redlock.nodes import Nodes
    from leasehold._backends.redlock.options import Options

__all__ = ["examine"]

# Findings about a single server that mean something else for a node, and are judged below.
JUDGED_HERE = frozenset({"role", "replicas", "min-replicas-to-write", "persistence", "server clock", "round trip"})
PINGS = 5


async def examine(nodes: Nodes, options: Options) -> list[Finding]:
    """Look at every node, and at all of them together."""
    findings = [*_number(nodes), *_independence(nodes)]
    clocks: dict[str, float] = {}
    for node in nodes.all:
        findings.extend(await _node(node, options, len(nodes), clocks))
    findings.extend(_clocks(clocks))
    return findings


async def _node(node: Node, options: Options, count: int, clocks: dict[str, float]) -> list[Finding]:
    async def send(*parts: str | bytes | int) -> Any:
        (reply,) = await node.wire.exchange(pack(*parts), 1)
        return checked(reply, str(node))

    try:
        if node.failure is not None:
            raise node.failure
        own = [*await _round_trip(send, options), *await _replicas(send), *await _memory(send, options, count)]
        started = time.monotonic()
        seconds, microseconds = await send("TIME")
        clocks[str(node)] = int(seconds) + int(microseconds) / 1e6 - (started + time.monotonic()) / 2
        alone = await examine_one(send)
        own.extend(_persistence(alone, options))
        general = [finding for finding in alone if finding.check not in JUDGED_HERE]
    except BackendError as error:
        why = "a node that is down has no vote; the others must make the majority without it"
        return [Finding(f"node {node}", Level.PROBLEM, str(error), why, "start it, or take it out of the URL")]
    return [replace(finding, check=f"{finding.check} of {node}") for finding in [*own, *general]]


# --- all together ----------------------------------------------------------------------------------------------------


def _number(nodes: Nodes) -> Iterator[Finding]:
    count = len(nodes)
    why = "a lock needs the votes of a majority; an even number of nodes survives no more failures than one less"
    found = f"{count} nodes: {majority(count)} votes are needed, {count - majority(count)} may be down"
    if count == 1:
        yield Finding("number of nodes", Level.WARNING, found, why, "use redis:// for one server, or name 3 or 5 nodes")
    elif count % 2 == 0:
        yield Finding("number of nodes", Level.WARNING, found, why, "add a node, or take one out")
    else:
        yield Finding("number of nodes", Level.OK, found, why)


def _independence(nodes: Nodes) -> Iterator[Finding]:
    """Nodes on one machine fail together."""
    places: dict[str, list[str]] = {}
    for node in nodes.all:
        places.setdefault(_machine(node.address.host or node.address.path), []).append(str(node))
    shared = {machine: group for machine, group in places.items() if len(group) > 1}
    why = "nodes must fail independently of each other: one machine that goes down must not take a majority with it"
    if not shared:
        yield Finding("independence", Level.OK, f"{len(places)} different machines", why)
    for machine, group in shared.items():
        level = Level.PROBLEM if len(group) >= majority(len(nodes)) else Level.WARNING
        yield Finding("independence", level, f"{', '.join(group)} are on one machine ({machine})", why,
                      "put every node on a machine of its own, and better in a rack or zone of its own")  # fmt: skip


def _machine(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return host


def _clocks(clocks: dict[str, float]) -> Iterator[Finding]:
    if not clocks:
        return
    middle = median(list(clocks.values()))
    why = f"a node votes only for numbers within {WINDOW:g} s of its own clock, and the median of all clocks proposes"
    for name, clock in clocks.items():
        apart = clock - middle
        found = f"{abs(apart):.3f} s {'ahead of' if apart >= 0 else 'behind'} the median of the nodes"
        if abs(apart) < WINDOW / 4:
            yield Finding(f"clock of {name}", Level.OK, found, why)
        else:
            level = Level.PROBLEM if abs(apart) >= WINDOW else Level.WARNING
            yield Finding(f"clock of {name}", level, found, why, "run NTP on every node")


# --- one node --------------------------------------------------------------------------------------------------------


async def _round_trip(send: Any, options: Options) -> list[Finding]:
    times: list[float] = []
    for _ in range(PINGS):
        started = time.perf_counter()
        await send("PING")
        times.append(time.perf_counter() - started)
    usual, limit = median(times), options.answer_timeout
    found = f"{usual * 1000:.2f} ms for a PING (median of {PINGS}, worst {max(times) * 1000:.2f} ms)"
    why = f"a node that does not answer within answer_timeout={limit:g} s is not waited for"
    if usual < limit / 2:
        return [Finding("round trip", Level.OK, found, why)]
    level = Level.PROBLEM if usual >= limit else Level.WARNING
    return [Finding("round trip", level, found, why, f"add ?answer_timeout={max(usual * 4, 0.1):.1f} to the URL")]


async def _replicas(send: Any) -> list[Finding]:
    lines = (await send("INFO", "replication")).decode(errors="replace").splitlines()
    count = next((line.partition(":")[2] for line in lines if line.startswith("connected_slaves:")), "0")
    why = "a replica that is promoted has not seen the last votes; it would sit out, and the node is gone meanwhile"
    if count == "0":
        return [Finding("replicas", Level.OK, "none", why)]
    advice = "nodes of Redlock need no replicas; remove them, or set replica-priority 0 so that none is promoted"
    return [Finding("replicas", Level.WARNING, f"{count} connected", why, advice)]


def _persistence(alone: list[Finding], options: Options) -> Iterator[Finding]:
    """What the node writes to disk matters less than for a single server: every restart is noticed by the run id."""
    why = (
        "a node that restarts, empty, from an old snapshot or from a whole log, has no vote until every grant from "
        "before is over: that is safe whatever it kept, but it is not available. Data on disk keeps fences that were "
        "raised ahead of the clock; appendfsync always makes every vote wait for the disk, and brings no more"
    )
    for finding in alone:
        if finding.check == "persistence":
            found = f"{finding.found}; with or without data it sits out for {sits_out(options.max_ttl):g} s after that"
            yield Finding("persistence", Level.OK, found, why)


async def _memory(send: Any, options: Options, count: int) -> list[Finding]:
    """How long the node has known what it granted."""
    run_id = _field((await send("INFO", "server")).decode(errors="replace"), "run_id")
    known, since, settings = await send("HMGET", MARKER, "r", "s", "x")
    why = "a node that lost what it knew must not vote until every grant from before is over"
    whole = sits_out(options.max_ttl)
    advice = f"wait {whole:g} s after the first client has reached it"
    if known is None or known.decode() != run_id:
        return [Finding("memory of grants", Level.WARNING, "it has not been used since it started", why, advice)]
    if settings.decode() != f"{milliseconds(options.max_ttl)}/{count}":
        found = f"it {agreed_on(settings)}, and this URL has max_ttl={options.max_ttl:g} and {count} nodes"
        advice = f"give all clients the same URL; to change it, stop them and delete the key {MARKER} on every node"
        return [
            Finding("settings", Level.PROBLEM, found, "nodes sit out, and majorities meet, according to them", advice)
        ]
    seconds, microseconds = await send("TIME")
    age = int(seconds) + int(microseconds) / 1e6 - int(since) / 1000
    if age < whole:
        found = f"it sits out for {whole - age:.1f} s more"
        return [Finding("memory of grants", Level.WARNING, found, why, "wait, or look why it lost its data")]
    return [Finding("memory of grants", Level.OK, "it votes", why)]


def _field(text: str, name: str) -> str:
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:")), "")
