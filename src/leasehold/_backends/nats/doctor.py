"""The doctor: how well a NATS server or cluster is set up for locks. It changes nothing, and makes no bucket."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leasehold._backends.nats.documents import instant
from leasehold.errors import BackendError
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from leasehold._backends.nats.documents import NatsDocuments
    from leasehold._backends.nats.options import Options
    from leasehold._backends.nats.wire import Wire

__all__ = ["Doctor"]

OLDEST = (2, 10)
CLOCK_OFF = 2.0
MAJORITY = 3


class Doctor:
    """Examines the server that answers, and the bucket."""

    def __init__(self, options: Options, wire: Wire, documents: NatsDocuments) -> None:
        self._options = options
        self._wire = wire
        self._documents = documents

    async def examine(self) -> list[Finding]:
        """Every finding, the good ones included."""
        try:
            bucket = await self._documents.info({})
        except BackendError as error:
            why = "the locks are kept in a bucket of JetStream"
            advice = "remove the cause in the message, then run doctor again"
            found = [Finding("jetstream", Level.PROBLEM, str(error), why, advice)]
            return [*found, *([self._version()] if self._wire.info else [])]
        findings = [Finding("jetstream", Level.OK, "it answers", "the locks are kept in a bucket of JetStream")]
        findings += [self._version(), self._bucket(bucket)]
        if bucket:
            findings += [_replicas(bucket), _storage(bucket), _clock(bucket)]
        return [*findings, _sync(), self._access()]

    def _version(self) -> Finding:
        why = "older servers give no time with an answer, and lack the rights of a bucket that leasehold uses"
        found = str(self._wire.info.get("version", "unknown"))
        parts = tuple(int(part) for part in found.partition("-")[0].split(".")[:2] if part.isdigit())
        if len(parts) == len(OLDEST) and parts >= OLDEST:
            return Finding("server version", Level.OK, found, why)
        return Finding("server version", Level.PROBLEM, found, why, "use nats-server 2.10 or newer")

    def _bucket(self, bucket: dict[str, Any]) -> Finding:
        why = "messages that expire or are discarded would take locks with them"
        name = self._options.bucket
        if not bucket:
            return Finding("bucket", Level.OK, f"{name!r} is not there yet; the first request makes it", why)
        unfit = self._documents.unfit(bucket.get("config", {}))
        if unfit is None:
            return Finding("bucket", Level.OK, f"{name!r} is fit for locks", why)
        return Finding("bucket", Level.PROBLEM, f"{name!r}: {unfit}", why, "name another bucket with ?bucket=")

    def _access(self) -> Finding:
        why = "without a login, every program that reaches the server's port can take and delete every lock"
        options = self._options
        login = bool(options.user or options.token)
        found = f"{'TLS' if options.tls else 'no TLS'}, {'with' if login else 'without'} a login"
        local = all(host in ("localhost", "127.0.0.1", "::1") for host, _ in options.hosts)
        if local or (login and options.tls is not None):
            return Finding("access", Level.OK, found, why)
        return Finding(
            "access", Level.WARNING, found, why, "use nats+tls:// and a user, or a network without strangers"
        )


def _replicas(bucket: dict[str, Any]) -> Finding:
    why = "with one replica, the locks are gone while its server is down, and for good with its disk"
    wanted = int(bucket.get("config", {}).get("num_replicas", 1))
    peers = bucket.get("cluster", {}).get("replicas") or []
    behind = [peer.get("name", "?") for peer in peers if peer.get("offline") or not peer.get("current")]
    found = f"{wanted} replica{'s' if wanted > 1 else ''}"
    if behind:
        return Finding("replicas", Level.PROBLEM, f"{found}; not in step: {', '.join(behind)}", why,
                       "start these servers, and check their logs")  # fmt: skip
    if wanted < MAJORITY:
        return Finding("replicas", Level.WARNING, found, why,
                       "for locks that matter: three servers, and ?replicas=3 before the bucket is made")  # fmt: skip
    return Finding("replicas", Level.OK, found, why)


def _storage(bucket: dict[str, Any]) -> Finding:
    why = "in memory, locks and fences are gone when the server restarts"
    storage = str(bucket.get("config", {}).get("storage"))
    if storage == "file":
        return Finding("storage", Level.OK, storage, why)
    return Finding("storage", Level.PROBLEM, storage, why, "make the bucket with file storage")


def _sync() -> Finding:
    return Finding(
        "disk",
        Level.WARNING,
        "whether every change is on disk before it is confirmed cannot be read from here",
        "by default JetStream writes to disk every two minutes: after a power cut, a lock that was granted may be free",
        "set `sync_interval: always` in the block jetstream {} of every server; let guards refuse late writers",
    )


def _clock(bucket: dict[str, Any]) -> Finding:
    why = "grants end by the clock of the server that leads the bucket; after a change of leader, by that of another"
    if "ts" not in bucket:
        return Finding("server clock", Level.PROBLEM, "no time given", why, "use nats-server 2.10 or newer")
    off = instant(bucket["ts"]) - time.time()
    found = f"differs from this host by {abs(off):.1f} s"
    if abs(off) <= CLOCK_OFF:
        return Finding("server clock", Level.OK, found, why)
    return Finding("server clock", Level.WARNING, found, why, "run NTP on all hosts")
