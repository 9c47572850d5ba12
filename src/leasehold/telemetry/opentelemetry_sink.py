"""Measurements as instruments of the OpenTelemetry API, and spans for waiting and holding.

A span of a hold is below the span that was current when the lock was taken, and ends wherever the lock is given back.
It is never made the current span: what runs under a lock belongs to the caller's span, whatever else it holds.

The API has no way to record several values of a histogram at once, and one costs the SDK several microseconds, more
between two requests, when the caches are cold. Values are recorded a batch at a time, each with the context that it was
measured in, which is where the SDK finds the trace of an exemplar.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Status, StatusCode

from leasehold import __version__
from leasehold import events as happened
from leasehold.telemetry.batch import Batch
from leasehold.telemetry.instruments import INSTRUMENTS
from leasehold.telemetry.sink import ACQUIRE, HELD, HOLD, CollectingSink, Pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.events import Event
    from leasehold.telemetry.instruments import Instrument
    from leasehold.telemetry.sink import Hold

__all__ = ["OpenTelemetrySink", "find"]

_Measured = tuple[float, Any]  # a value, and the context that it was measured in
BATCH = 16  # values: enough to share what is loaded into the caches, few enough to be no pause
_SINKS: dict[tuple[int, int, bool], OpenTelemetrySink] = {}


def find(meter_provider: Any = None, tracer_provider: Any = None, *, spans: bool = True) -> OpenTelemetrySink:
    """The instruments of these providers; None is the one that the program has set up globally."""
    meter_provider = meter_provider or metrics.get_meter_provider()
    tracer_provider = tracer_provider or trace.get_tracer_provider()
    key = (id(meter_provider), id(tracer_provider), spans)
    if key not in _SINKS:  # which keeps the providers, so that their ids stay theirs
        _SINKS[key] = OpenTelemetrySink(meter_provider, tracer_provider, spans=spans)
    return _SINKS[key]


class OpenTelemetrySink(CollectingSink):
    """The instruments of one pair of providers."""

    def __init__(self, meter_provider: Any, tracer_provider: Any, *, spans: bool) -> None:
        super().__init__()
        self.destination: object = meter_provider
        self._tracer_provider = tracer_provider
        self.traces: bool = spans
        meter = meter_provider.get_meter("leasehold", __version__)
        self._lock = threading.Lock()
        self._values: dict[str, dict[tuple[str, ...], int]] = {}
        self._histograms: dict[str, Any] = {}
        self._batches: dict[tuple[str, ...], Batch[_Measured]] = {}
        for instrument in INSTRUMENTS.values():
            self._make(instrument, meter)
        self._tracer = tracer_provider.get_tracer("leasehold", __version__) if spans else None
        self._attributes: dict[tuple[str, ...], dict[str, str]] = {}

    def observe(self, instrument: str, value: float, *labels: str) -> None:
        self._batch(instrument, *labels).add((value, context.get_current()))

    def count(self, instrument: str, *labels: str) -> None:
        self.shift_now(instrument, 1, *labels)

    def shift_now(self, instrument: str, by: int, *labels: str) -> None:
        values = self._values[instrument]
        with self._lock:
            values[labels] = values.get(labels, 0) + by

    def put(self, instrument: str, value: int, *labels: str) -> None:
        self._values[instrument][labels] = value

    def zero(self, instrument: str, *labels: str) -> None:
        if instrument != HELD:  # which no recorder has any more
            self._values[instrument][labels] = 0  # without the lock, which a thread of the parent may have

    def pair(self, backend: str, group: str, mode: str) -> Pair:
        self.shift(HELD, 0, backend, group)
        add_wait = self._batch(ACQUIRE, backend, group, mode, "acquired").add
        add_hold = self._batch(HOLD, backend, group, "released").add
        current = context.get_current
        return Pair(group, mode, lambda waited: add_wait((waited, current())), lambda held: add_hold((held, current())))

    def begin(self, hold: Hold, pair: Pair, name: str, fence: int, waited: float) -> None:
        if self._tracer is None:
            return
        now, attributes = time.time_ns(), _attributes(name, pair.group, pair.mode, fence)
        waiting = self._tracer.start_span(
            f"leasehold.acquire {pair.group}", attributes=attributes, start_time=now - int(waited * 1e9)
        )
        waiting.end(now)
        hold.span = self._tracer.start_span(f"leasehold.hold {pair.group}", attributes=attributes, start_time=now)

    def not_acquired(self, event: Event, outcome: str, group: str) -> None:
        if self._tracer is None:
            return
        now, waited = time.time_ns(), getattr(event, "waited", 0.0)
        attributes = _attributes(event.name, group, getattr(event, "mode", ""), None)
        attributes["leasehold.outcome"] = outcome
        span = self._tracer.start_span(
            f"leasehold.acquire {group}", attributes=attributes, start_time=now - int(waited * 1e9)
        )
        if isinstance(event, happened.AcquireFailed) and not event.cancelled:
            span.set_status(Status(StatusCode.ERROR, event.error))
        span.end(now)

    def end(self, hold: Hold, end: str) -> None:
        if hold.span is not None:
            hold.span.set_attribute("leasehold.end", end)
            hold.span.end()

    def during(self, hold: Hold, event: Event) -> None:
        if hold.span is None:
            return
        if isinstance(event, happened.Lost):
            facts = {"leasehold.loss.reason": str(event.loss.reason), "leasehold.loss.detail": event.loss.detail}
            hold.span.add_event("lost", facts)
            hold.span.set_status(Status(StatusCode.ERROR, f"lost: {event.loss.reason}"))
        elif isinstance(event, happened.RenewalFailed):
            hold.span.add_event("renewal failed", {"leasehold.remaining": event.remaining, "error": event.error})

    def _make(self, instrument: Instrument, meter: Any) -> None:
        """A histogram is given each value. Of the others the library asks for the present value when it collects."""
        facts: dict[str, Any] = {"unit": instrument.unit, "description": instrument.description}
        if instrument.kind == "histogram":
            facts["explicit_bucket_boundaries_advisory"] = list(instrument.buckets)
            self._histograms[instrument.name] = meter.create_histogram(instrument.name, **facts)
            return
        self._values[instrument.name] = {}
        make = {
            "counter": meter.create_observable_counter,
            "updown": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }[instrument.kind]
        make(instrument.name, callbacks=[lambda _: self._present(instrument.name)], **facts)

    def _present(self, instrument: str) -> list[metrics.Observation]:
        if instrument == HELD:  # once in a collection, before the SDK reads the histograms
            self._flush()
            self._values[HELD].update(self.held())
        values = list(self._values[instrument].items())
        return [metrics.Observation(value, self._of(instrument, *labels)) for labels, value in values]

    def _flush(self) -> None:
        for batch in list(self._batches.values()):
            batch.flush()

    def _batch(self, instrument: str, *labels: str) -> Batch[_Measured]:
        batch = self._batches.get((instrument, *labels))
        if batch is None:
            count = _recorder_of(self._histograms[instrument].record, self._of(instrument, *labels))
            batch = self._batches.setdefault((instrument, *labels), Batch(count, BATCH))
        return batch

    def _of(self, instrument: str, *labels: str) -> dict[str, str]:
        """The attributes; made once for each combination, of which there are few."""
        found = self._attributes.get((instrument, *labels))
        if found is None:
            names = (f"leasehold.{name}" for name in INSTRUMENTS[instrument].labels)
            found = self._attributes[instrument, *labels] = dict(zip(names, labels, strict=True))
        return found


def _recorder_of(record: Callable[..., None], attributes: dict[str, str]) -> Callable[[list[_Measured]], None]:
    def count(values: list[_Measured]) -> None:
        for _ in range(len(values)):
            value, where = values.pop(0)
            record(value, attributes, where)

    return count


def _attributes(name: str, group: str, mode: str, fence: int | None) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"leasehold.name": name, "leasehold.group": group, "leasehold.mode": mode}
    if fence is not None:
        facts["leasehold.fence"] = fence
    return facts
