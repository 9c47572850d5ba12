"""A histogram for `prometheus_client` that counts whole batches of values; it shows what the library's own would."""

from __future__ import annotations

import time
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Counter
from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from leasehold.telemetry.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.telemetry.instruments import Instrument

__all__ = ["Durations"]

BATCH = 512  # values; counting so many takes less than a request to a store


class Durations:
    """All series of one histogram: a collector of `prometheus_client`."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._series: dict[tuple[str, ...], _Series] = {}

    def of(self, labels: tuple[str, ...]) -> Batch[float]:
        """Where the values of this series are added."""
        series = self._series.get(labels)
        if series is None:
            series = self._series.setdefault(labels, _Series(self._instrument.buckets))
        return series.batch

    def describe(self) -> Iterable[Metric]:
        """Which names it takes in a registry."""
        return [Metric(self._instrument.prometheus_name, self._instrument.description, "histogram")]

    def collect(self) -> Iterable[Metric]:
        """The present values."""
        (metric,), with_created = self.describe(), _shows_created()
        for values, series in list(self._series.items()):
            series.batch.flush()
            series.add_to(metric, dict(zip(self._instrument.labels, values, strict=True)), with_created=with_created)
        return [metric]


class _Series:
    """The values of one combination of labels."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.batch: Batch[float] = Batch(partial(self._count, bounds), BATCH)
        self._bounds = (*map(floatToGoString, bounds), "+Inf")
        self._state = ((0,) * (len(bounds) + 1), 0.0)  # how many in each bucket, and the sum: set together
        self._created = time.time()

    def _count(self, bounds: tuple[float, ...], values: list[float]) -> None:
        taken = sorted(values[: len(values)])  # others may be added meanwhile
        number, before, (counts, total) = len(taken), 0, self._state
        now = list(counts)
        for place, bound in enumerate(bounds):
            upto = bisect_right(taken, bound, before)
            now[place] += upto - before
            before = upto
        now[-1] += number - before
        state = tuple(now), total + sum(taken)
        # Together, without a call between them: an interruption finds a value added or counted, and not both.
        self._state = state
        del values[:number]

    def add_to(self, metric: Metric, labels: dict[str, str], *, with_created: bool) -> None:
        """The samples, as `prometheus_client.Histogram` has them."""
        (counts, total), name, upto = self._state, metric.name, 0
        for bound, count in zip(self._bounds, counts, strict=True):
            upto += count
            metric.add_sample(f"{name}_bucket", {**labels, "le": bound}, upto)
        metric.add_sample(f"{name}_count", labels, upto)
        metric.add_sample(f"{name}_sum", labels, total)
        if with_created:
            metric.add_sample(f"{name}_created", labels, self._created)


def _shows_created() -> bool:
    """Whether the program wants series of when a metric was made; the library tells only by what it shows itself."""
    (metric,) = Counter("leasehold_probe", "", registry=None).collect()
    return any(sample.name.endswith("_created") for sample in metric.samples)
