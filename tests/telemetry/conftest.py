"""A place to report to, of each library."""

from __future__ import annotations

import pytest

from tests.telemetry.reports import OpenTelemetryReport, PrometheusReport, Report


@pytest.fixture(params=[PrometheusReport, OpenTelemetryReport], ids=["prometheus", "opentelemetry"])
def report(request: pytest.FixtureRequest) -> Report:
    made: Report = request.param()
    return made


@pytest.fixture
def traces() -> OpenTelemetryReport:
    return OpenTelemetryReport()
