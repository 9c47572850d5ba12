"""No password of a URL is in a metric, a span or a log line, whichever store it is for and however it fails."""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress

import pytest

import leasehold
from leasehold.cli.exporter import metrics_page
from leasehold.fleet import FleetReader, Groups
from tests.telemetry.reports import OpenTelemetryReport, PrometheusReport
from tests.waiting import eventually
from verification.lab.process import free_port
from verification.lab.redis import RedisServer

SECRET = "s3cr3t-Passw0rd"
URLS = {
    "redis": "redis://user:{secret}@127.0.0.1:{port}/0?connect_timeout=0.2",
    "redlock": "redlock://user:{secret}@127.0.0.1:{port},user:{secret}@127.0.0.1:{port}9/0",
    "postgres": "postgresql://user:{secret}@127.0.0.1:{port}/db",
    "etcd": "etcd://user:{secret}@127.0.0.1:{port}",
    "zookeeper": "zookeeper://user:{secret}@127.0.0.1:{port}/locks",
    "nats": "nats://user:{secret}@127.0.0.1:{port}",
}


@pytest.mark.parametrize("kind", URLS)
def test_no_secret_of_a_url_gets_out(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    url = URLS[kind].format(secret=SECRET, port=free_port())
    prometheus, traces = PrometheusReport(), OpenTelemetryReport()
    try:
        client = leasehold.connect(url)
    except leasehold.ConfigurationError as error:
        assert SECRET not in str(error)
        return
    with caplog.at_level(logging.DEBUG), client:
        prometheus.switch_on(client)
        traces.switch_on(client)
        for call in (lambda: client.lock("x", group="g").acquire(0.2), client.lock("x", group="g").try_acquire):
            with suppress(leasehold.LeaseholdError):
                call()
        state = FleetReader(client, patience=3).read()
        page = metrics_page(state, Groups(), 0.0)
    assert state.error
    assert "leasehold_up 0.0" in page
    assert "leasehold_lock_acquire_duration" in prometheus.text()
    assert "leasehold.acquire g" in traces.text()
    for place in (prometheus.text(), traces.text(), page, state.error, caplog.text):
        assert SECRET not in place


def test_a_store_that_dies_under_a_lock_brings_no_secret_into_spans_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    prometheus, traces = PrometheusReport(), OpenTelemetryReport()
    with caplog.at_level(logging.DEBUG), RedisServer(password=SECRET) as server:
        assert SECRET in server.url
        with warnings.catch_warnings(), leasehold.connect(server.url, ttl=1.5) as client:
            warnings.simplefilter("ignore", ResourceWarning)
            prometheus.switch_on(client)
            traces.switch_on(client)
            kept, released = (client.lock(name, group="g").acquire(5) for name in ("kept", "released"))
            server.kill()
            with pytest.raises(leasehold.LeaseholdError) as raised:
                released.release()
            eventually(lambda: prometheus.value("leasehold.lock.lost", "redis", "g", "unconfirmed") == 1)
            del kept
    for words in ("renewal failed", "lost", "leasehold.hold g"):
        assert words in traces.text()
    for words in ("could not renew", "could not release"):
        assert words in caplog.text
    records = " ".join(f"{record.__dict__} {record.args}" for record in caplog.records)
    for place in (prometheus.text(), traces.text(), caplog.text, records, str(raised.value), repr(raised.value)):
        assert SECRET not in place
