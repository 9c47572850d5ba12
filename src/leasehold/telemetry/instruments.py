"""Names, units, labels and buckets of all metrics: one table for OpenTelemetry, Prometheus and the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["INSTRUMENTS", "Instrument"]

Kind = Literal["counter", "gauge", "histogram", "updown"]

ACQUIRE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
HOLD_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
BUILD_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric."""

    name: str  # of OpenTelemetry
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    description: str
    buckets: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The same name as Prometheus wants it; a counter's gets `_total` from the client library."""
        return self.name.replace(".", "_") + ("_seconds" if self.unit == "s" else "")

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series in Prometheus."""
        name = self.prometheus_name
        if self.kind == "histogram":
            return (f"{name}_bucket", f"{name}_sum", f"{name}_count")
        return (f"{name}_total",) if self.kind == "counter" else (name,)


INSTRUMENTS = {
    instrument.name: instrument
    for instrument in (
        Instrument(
            "leasehold.lock.acquire.duration", "histogram", "s", ("backend", "group", "mode", "outcome"),
            "How long calls took that wanted a lock; outcome: acquired, timeout, busy, error or cancelled.",
            ACQUIRE_BUCKETS,
        ),
        Instrument(
            "leasehold.lock.hold.duration", "histogram", "s", ("backend", "group", "end"),
            "How long locks were held; end: released, lost, forced, dropped or unconfirmed.",
            HOLD_BUCKETS,
        ),
        Instrument("leasehold.lock.held", "updown", "{lock}", ("backend", "group"), "Locks that this process holds."),
        Instrument(
            "leasehold.lock.waiters", "updown", "{call}", ("backend", "group"), "Calls of this process that wait."
        ),
        Instrument(
            "leasehold.lock.renewals", "counter", "{renewal}", ("backend", "outcome"),
            "Renewals of leases; outcome: ok, or failed, once until one succeeds again.",
        ),
        Instrument(
            "leasehold.lock.lost", "counter", "{lock}", ("backend", "group", "reason"),
            "Locks that ended without their holder releasing them.",
        ),
        Instrument(
            "leasehold.store.outages", "counter", "{outage}", ("backend",),
            "How often a call that wanted a lock got no answer.",
        ),
        Instrument(
            "leasehold.fence.checks", "counter", "{check}", ("outcome",),
            "Writes that guards of this process let pass (ok) or refused (stale).",
        ),
        Instrument(
            "leasehold.leader.status", "gauge", "1", ("backend", "election"),
            "1 while this process leads, 0 while it is a candidate or was one.",
        ),
        Instrument(
            "leasehold.once.runs", "counter", "{run}", ("backend", "task", "outcome"),
            "Runs of jobs; outcome: done, failed or skipped.",
        ),
        Instrument(
            "leasehold.idempotency.requests", "counter", "{request}", ("backend", "outcome"),
            "Attempts at keys; outcome: executed, replayed, in_progress, mismatch, expired, missing or unprotected.",
        ),
        Instrument(
            "leasehold.cache.requests", "counter", "{request}", ("backend", "cache", "outcome"),
            "Values asked for; outcome: hit, early, stale or miss.",
        ),
        Instrument(
            "leasehold.cache.build.duration", "histogram", "s", ("backend",), "How long builds of values took.",
            BUILD_BUCKETS,
        ),
        Instrument(
            "leasehold.cache.failures", "counter", "{build}", ("backend", "kind"),
            "Builds that came to nothing; kind: build (it raised), refused (too late) or store (not stored).",
        ),
        Instrument(
            "leasehold.partitions.owned", "updown", "{partition}", ("backend", "share"),
            "Partitions that this process owns.",
        ),
    )
}  # fmt: skip
