"""How well a Redis or Valkey server is set up for locks: settings, role, rights, version, memory, clock.

It knows what a server reports about itself and what that means for a lease. It must not change anything, and knows
neither connections nor our scripts: it is given a way to send commands. A command that is denied is a finding, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.doctor_rights import rights
from leasehold.errors import BackendRejected
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

__all__ = ["examine"]

OLDEST = (6, 2)
PINGS = 5
SLOW, TOO_SLOW = 0.05, 1.0
CLOCK_WRONG, CLOCK_FAR_OFF = 1.0, 3600.0
LAGGING = 10
NEARLY_FULL = 0.9
SETTINGS = ("maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag")


async def examine(send: Callable[..., Awaitable[Any]], prefix: str = "leasehold:") -> list[Finding]:
    """Look at one server through `send(*command)`, which raises `BackendRejected` for an error reply.

    `prefix` is what the keys of locks begin with. Changes nothing. Errors of a server that cannot be reached are the
    caller's.
    """
    facts = await _look(send)
    findings = [finding for check in CHECKS for finding in check(facts)]
    findings.extend(await rights(send, prefix, sharded=facts.info.get("cluster_enabled") == "1"))
    findings.extend(_refused(facts))
    return findings


# --- collecting ------------------------------------------------------------------------------------------------------


@dataclass
class _Facts:
    """What was reported; where nothing was, a field is empty and `refused` has the reason."""

    info: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, str] = field(default_factory=dict)
    clock_error: float | None = None
    pings: list[float] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """A number out of INFO; 0 where there is none."""
        text = self.info.get(name, "")
        return int(text) if text.isdigit() else 0


async def _look(send: Callable[..., Awaitable[Any]]) -> _Facts:
    facts = _Facts()

    async def attempt(*command: str) -> Any:
        try:
            return await send(*command)
        except BackendRejected as error:
            facts.refused.setdefault(command[0], str(error))
            return None

    facts.info = _lines(await attempt("INFO"))
    for name in SETTINGS:
        facts.settings.update(_pairs(await attempt("CONFIG", "GET", name)))
    if facts.info.get("cluster_enabled") == "1":
        facts.cluster = _lines(await attempt("CLUSTER", "INFO"))
    before = time.time()
    answer = await attempt("TIME")
    if answer is not None:
        seconds, microseconds = answer
        facts.clock_error = int(seconds) + int(microseconds) / 1e6 - (before + time.time()) / 2
    for _ in range(PINGS):
        started = time.perf_counter()
        if await attempt("PING") is not None:
            facts.pings.append(time.perf_counter() - started)
    return facts


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _lines(reply: Any) -> dict[str, str]:
    """`name:value` lines; a client that parsed them already gives a dictionary."""
    if reply is None:
        return {}
    if isinstance(reply, dict):
        return {_text(name): _joined(value) for name, value in reply.items()}
    return dict(line.split(":", 1) for line in _text(reply).splitlines() if ":" in line and not line.startswith("#"))


def _joined(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{_text(name)}={_text(inner)}" for name, inner in value.items())
    return _text(value)


def _pairs(reply: Any) -> dict[str, str]:
    """A map, as RESP3 gives it or as the flat list of RESP2."""
    if reply is None:
        return {}
    items = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): _text(value) for name, value in items}


# --- judging ---------------------------------------------------------------------------------------------------------


def _version(facts: _Facts) -> Iterator[Finding]:
    why = "the scripts need what Redis 6.2 brought; Valkey counts as the Redis it is compatible with"
    text = facts.info.get("redis_version", "")
    if not text:
        return
    product = facts.info.get("server_name", "redis")
    shown = f"Valkey {facts.info.get('valkey_version', text)}" if product == "valkey" else f"Redis {text}"
    found = f"{shown}, {facts.info.get('redis_mode', 'standalone')}"
    if tuple(int(part) for part in text.split(".")[:2] if part.isdigit()) < OLDEST:
        yield Finding("server", Level.PROBLEM, found, why, "upgrade to Redis 6.2 or newer, or to Valkey")
    elif facts.info.get("redis_mode") == "sentinel":
        advice = "write redis+sentinel://h1,h2,h3/SERVICE, with all Sentinels and the name of the service"
        yield Finding("server", Level.PROBLEM, f"{found}: it keeps no data", "a Sentinel grants nothing", advice)
    else:
        yield Finding("server", Level.OK, found, why)


def _role(facts: _Facts) -> Iterator[Finding]:
    why = "only a primary grants and renews; a replica answers READONLY"
    role = facts.info.get("role")
    if role == "master":
        yield Finding("role", Level.OK, "primary", why)
    elif role is not None:
        primary = f"{facts.info.get('master_host', '?')}:{facts.info.get('master_port', '?')}"
        advice = f"use redis://{primary}, or redis+sentinel:// so that the primary is found by itself"
        yield Finding("role", Level.PROBLEM, f"replica of {primary}", why, advice)


def _replication(facts: _Facts) -> Iterator[Finding]:
    if facts.info.get("role") != "master":
        return
    replicas = [
        dict(pair.split("=", 1) for pair in value.split(","))
        for name, value in facts.info.items()
        if name.startswith("slave") and name[5:].isdigit()
    ]
    why = "a grant reaches the replicas after it was confirmed; a failover before that forgets it (fences still rise)"
    if not replicas:
        found = "no replica: when this server is down, no lock can be had or kept"
        yield Finding("replicas", Level.OK, found, why)
        return
    late = [replica for replica in replicas if _lags(replica)]
    found = f"{len(replicas)} connected, {len(late)} of them late or not in sync"
    advice = "look at the network and the load of that replica (INFO replication); it must not be promoted"
    yield Finding("replicas", Level.WARNING if late else Level.OK, found, why, advice if late else "")
    yield from _split_brain(facts)


def _lags(replica: dict[str, str]) -> bool:
    return replica.get("state") != "online" or int(replica.get("lag", "0")) > LAGGING


def _split_brain(facts: _Facts) -> Iterator[Finding]:
    needed = facts.settings.get("min-replicas-to-write")
    if needed is None:
        return
    why = "a primary that is cut off goes on granting while its replica is promoted: two holders of one lock"
    if needed == "0" or facts.settings.get("min-replicas-max-lag") == "0":
        advice = "CONFIG SET min-replicas-to-write 1, CONFIG SET min-replicas-max-lag 10, then CONFIG REWRITE"
        yield Finding("min-replicas-to-write", Level.WARNING, "0: it grants without any replica", why, advice)
        return
    found = f"{needed}, seen within {facts.settings.get('min-replicas-max-lag', '?')} s"
    yield Finding("min-replicas-to-write", Level.OK, found, why)


def _eviction(facts: _Facts) -> Iterator[Finding]:
    policy = facts.settings.get("maxmemory-policy") or facts.info.get("maxmemory_policy")
    if policy is None:
        return
    why = "a server that makes room by removing keys frees locks that are held; lock keys have a ttl, so they go first"
    if policy == "noeviction":
        yield Finding("eviction", Level.OK, policy, why)
        return
    limited = facts.number("maxmemory") > 0
    found = policy if limited else f"{policy}, without effect as long as maxmemory is 0"
    advice = "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE; or keep the cache on another server"
    yield Finding("eviction", Level.PROBLEM if limited else Level.WARNING, found, why, advice)


def _memory(facts: _Facts) -> Iterator[Finding]:
    if "used_memory" not in facts.info:
        return
    used, limit = facts.number("used_memory"), facts.number("maxmemory")
    why = "a server that is full answers OOM: no lock and no renewal is granted"
    if limit == 0:
        yield Finding("memory", Level.OK, f"{_megabytes(used)} used, no limit set", why)
        return
    found = f"{_megabytes(used)} of {_megabytes(limit)} used"
    if used < limit * NEARLY_FULL:
        yield Finding("memory", Level.OK, found, why)
        return
    level = Level.PROBLEM if used >= limit else Level.WARNING
    yield Finding("memory", level, found, why, "CONFIG SET maxmemory to more, or remove what else is stored here")


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MB"


def _connections(facts: _Facts) -> Iterator[Finding]:
    used, limit = facts.number("connected_clients"), facts.number("maxclients")
    if not limit:
        return
    why = "a server without a free connection refuses new ones, and with them every renewal after a reconnect"
    found = f"{used} of {limit} in use"
    if used < limit * NEARLY_FULL:
        yield Finding("connections", Level.OK, found, why)
    else:
        yield Finding("connections", Level.WARNING, found, why, "CONFIG SET maxclients to more, or close idle clients")


def _persistence(facts: _Facts) -> Iterator[Finding]:
    logs = facts.settings.get("appendonly", {"0": "no", "1": "yes"}.get(facts.info.get("aof_enabled", "")))
    if logs is None:
        return
    why = "after a restart the server knows only what it wrote: forgotten locks are granted again (fences still rise)"
    if facts.info.get("loading") == "1":
        yield Finding("loading", Level.PROBLEM, "it is still reading its data", "it answers LOADING", "wait for it")
    if "err" in (facts.info.get("aof_last_write_status"), facts.info.get("rdb_last_bgsave_status")):
        advice = "look at its log and at the disk; CONFIG GET dir is the folder it writes to"
        yield Finding("disk", Level.PROBLEM, "its last write to disk failed", "it may answer MISCONF to writes", advice)
    fsync, snapshots = facts.settings.get("appendfsync", "everysec"), facts.settings.get("save", "")
    if logs == "yes" and fsync == "always":
        yield Finding("persistence", Level.OK, "every grant is on disk before it is confirmed", why)
    elif logs == "yes":
        found = f"log, appendfsync {fsync}: a power cut forgets the last moments, a killed server nothing"
        yield Finding("persistence", Level.OK, found, why)
    else:
        found = f"snapshots only ({snapshots})" if snapshots else "none: it is empty after a restart"
        advice = "CONFIG SET appendonly yes, then CONFIG REWRITE (appendfsync everysec is the default; always is safer)"
        yield Finding("persistence", Level.WARNING, found, why, advice)


def _cluster(facts: _Facts) -> Iterator[Finding]:
    if not facts.cluster:
        return
    why = "a lock lives in one slot; while that slot is not served, the lock cannot be had or kept"
    state, served = facts.cluster.get("cluster_state"), facts.cluster.get("cluster_slots_ok", "?")
    found = f"state {state}, {served} of 16384 slots served"
    if state == "ok" and served == "16384":
        yield Finding("cluster", Level.OK, found, why)
    else:
        advice = "redis-cli --cluster check HOST:PORT names the node or slot that is missing, --cluster fix mends it"
        yield Finding("cluster", Level.PROBLEM, found, why, advice)


def _latency(facts: _Facts) -> Iterator[Finding]:
    if not facts.pings:
        return
    usual, worst = median(facts.pings), max(facts.pings)
    found = f"{usual * 1000:.2f} ms for a PING (median of {len(facts.pings)}, worst {worst * 1000:.2f} ms)"
    why = "a renewal must get through well within the ttl, also on a bad day"
    if worst < SLOW:
        yield Finding("round trip", Level.OK, found, why)
        return
    level = Level.PROBLEM if usual >= TOO_SLOW else Level.WARNING
    advice = "SLOWLOG GET 10 and LATENCY LATEST show what holds it up; meanwhile use a longer ttl"
    yield Finding("round trip", level, found, why, advice)


def _clock(facts: _Facts) -> Iterator[Finding]:
    error = facts.clock_error
    if error is None:
        return
    why = "fences contain the server's time: a successor whose clock is behind could give out lower ones"
    found = f"{abs(error):.3f} s {'ahead of' if error > 0 else 'behind'} this host"
    if abs(error) < CLOCK_WRONG:
        yield Finding("server clock", Level.OK, found, why)
        return
    level = Level.PROBLEM if abs(error) >= CLOCK_FAR_OFF else Level.WARNING
    yield Finding("server clock", level, found, why, "run NTP on the servers, and look which of the clocks is wrong")


def _refused(facts: _Facts) -> Iterator[Finding]:
    """One finding for each command that the account may not use to look around."""
    why = "what cannot be seen cannot be judged; locking itself does not need this command"
    for command, error in facts.refused.items():
        level = Level.PROBLEM if command in ("PING", "TIME") else Level.WARNING
        right = {"CONFIG": "+config|get", "CLUSTER": "+cluster|info"}.get(command, f"+{command.lower()}")
        advice = f"to let doctor look: ACL SETUSER <account> {right}"
        if level is Level.PROBLEM:
            why = "the store itself uses this command"
        yield Finding(f"right to use {command}", level, error, why, advice)


CHECKS: tuple[Callable[[_Facts], Iterator[Finding]], ...] = (
    _version,
    _role,
    _replication,
    _eviction,
    _memory,
    _connections,
    _persistence,
    _cluster,
    _latency,
    _clock,
)
