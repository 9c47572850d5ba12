"""Both libraries behind one interface, so that every promise about metrics is tested for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from leasehold import telemetry
from leasehold.telemetry.instruments import INSTRUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OpenTelemetryReport", "PrometheusReport", "Report"]


class Report:
    """Where a test's clients report to."""

    def switch_on(self, client: Any, **options: Any) -> Callable[[], None]:
        """Report this client."""
        raise NotImplementedError

    def series(self, instrument: str) -> dict[tuple[str, ...], float]:
        """The values of an instrument by labels; of a histogram, how many values it has."""
        raise NotImplementedError

    def value(self, instrument: str, *labels: str) -> float:
        """One value; 0 where there is none."""
        return self.series(instrument).get(labels, 0)

    def text(self) -> str:
        """Everything that leaves the process, for tests that look for what must not be in it."""
        raise NotImplementedError


class PrometheusReport(Report):
    """A registry of prometheus_client."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def switch_on(self, client: Any, **options: Any) -> Callable[[], None]:
        return telemetry.prometheus(client, registry=self.registry, **options)

    def series(self, instrument: str) -> dict[tuple[str, ...], float]:
        facts = INSTRUMENTS[instrument]
        suffix = {"histogram": "_count", "counter": "_total"}.get(facts.kind, "")
        return {
            tuple(sample.labels[label] for label in facts.labels): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == facts.prometheus_name + suffix
        }

    def text(self) -> str:
        return generate_latest(self.registry).decode()


class OpenTelemetryReport(Report):
    """Providers of the SDK that keep everything in memory."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        self.tracers, self.spans = TracerProvider(), InMemorySpanExporter()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))

    def switch_on(self, client: Any, **options: Any) -> Callable[[], None]:
        return telemetry.opentelemetry(client, meter_provider=self.meters, tracer_provider=self.tracers, **options)

    def series(self, instrument: str) -> dict[tuple[str, ...], float]:
        names = [f"leasehold.{label}" for label in INSTRUMENTS[instrument].labels]
        found: dict[tuple[str, ...], float] = {}
        for metric in self._metrics():
            if metric.name == instrument:
                for point in metric.data.data_points:
                    value = point.count if hasattr(point, "count") else point.value
                    found[tuple(str(point.attributes[name]) for name in names)] = value
        return found

    def text(self) -> str:
        spans = " ".join(span.to_json() for span in self.spans.get_finished_spans())
        return spans + " ".join(metric.to_json() for metric in self._metrics())

    def _metrics(self) -> list[Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
