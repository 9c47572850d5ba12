"""Measurements as metrics of `prometheus_client`, one set for each registry, whichever clients report to it.

They are plain counters, gauges and histograms, which its mode for several processes asks for.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from leasehold.errors import ConfigurationError
from leasehold.telemetry.instruments import INSTRUMENTS, Instrument
from leasehold.telemetry.sink import ACQUIRE, CHANGING, HELD, HOLD, Pair, Sink

__all__ = ["PrometheusSink", "find"]

_SINKS: dict[CollectorRegistry, PrometheusSink] = {}


def find(registry: Any = None) -> PrometheusSink:
    """The metrics in this registry, which are made when the first client reports to it."""
    if registry is None:
        registry = REGISTRY
    if not isinstance(registry, CollectorRegistry):
        raise ConfigurationError(f"registry must be a CollectorRegistry of prometheus_client, not {registry!r}")
    if registry not in _SINKS:
        _SINKS[registry] = PrometheusSink(registry)
    return _SINKS[registry]


class PrometheusSink(Sink):
    """The metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.destination: object = registry
        self._metrics = {name: _make(instrument, registry) for name, instrument in INSTRUMENTS.items()}
        self._children: dict[tuple[str, ...], Any] = {}  # by name and labels: a look-up in the library takes a lock

    def observe(self, instrument: str, value: float, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.observe(value)

    def count(self, instrument: str, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.inc()

    def shift(self, instrument: str, by: int, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.inc(by)

    def put(self, instrument: str, value: int, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.set(value)

    def zero(self, instrument: str, *labels: str) -> None:
        self.put(instrument, 0, *labels)

    def pair(self, backend: str, group: str, mode: str) -> Pair:
        note_wait = self._child(ACQUIRE, backend, group, mode, "acquired").observe
        note_hold = self._child(HOLD, backend, group, "released").observe
        held = self._child(HELD, backend, group)
        more, less = held.inc, held.dec

        def acquired(waited: float) -> None:
            with CHANGING:
                note_wait(waited)
                more()

        def released(seconds: float) -> None:
            with CHANGING:
                note_hold(seconds)
                less()

        return Pair(group, mode, acquired, released)

    def _child(self, instrument: str, *labels: str) -> Any:
        child = self._children.get((instrument, *labels))
        if child is None:
            with CHANGING:
                child = self._children[instrument, *labels] = self._metrics[instrument].labels(*labels)
        return child


def _make(instrument: Instrument, registry: CollectorRegistry) -> Any:
    name, text, labels = instrument.prometheus_name, instrument.description, instrument.labels
    if instrument.kind == "counter":
        return Counter(name, text, labels, registry=registry)
    if instrument.kind == "histogram":
        return Histogram(name, text, labels, registry=registry, buckets=instrument.buckets)
    return Gauge(name, text, labels, registry=registry, multiprocess_mode="livesum")
