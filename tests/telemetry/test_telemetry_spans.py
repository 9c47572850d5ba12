"""Spans: one for waiting and one for holding, below the caller's, with name and fence."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import StatusCode

import leasehold
from leasehold.testing.manual import ManualStore
from tests.waiting import eventually

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from tests.telemetry.reports import OpenTelemetryReport


def named(traces: OpenTelemetryReport, name: str) -> list[ReadableSpan]:
    return [span for span in traces.spans.get_finished_spans() if span.name == name]


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_pair_is_two_spans_below_the_callers(traces: OpenTelemetryReport) -> None:
    with leasehold.connect("memory://") as client:
        traces.switch_on(client)
        with traces.tracers.get_tracer("app").start_as_current_span("request") as request:
            with client.lock("order:7", group="order:{id}").hold() as lease:
                pass
        (waiting,), (holding,) = (
            named(traces, "leasehold.acquire order:{id}"),
            named(traces, "leasehold.hold order:{id}"),
        )
        for span in (waiting, holding):
            assert span.parent is not None
            assert span.parent.span_id == request.get_span_context().span_id
            assert facts(span)["leasehold.name"] == "order:7"
            assert facts(span)["leasehold.fence"] == lease.fence
        assert facts(holding)["leasehold.end"] == "released"
        assert waiting.end_time is not None
        assert holding.start_time is not None
        assert waiting.end_time <= holding.start_time


def test_a_task_has_the_parent_of_its_own_context(traces: OpenTelemetryReport) -> None:
    async def work(client: leasehold.AsyncClient, number: int) -> int:
        with traces.tracers.get_tracer("app").start_as_current_span(f"task {number}") as span:
            async with client.lock("x", group="g").hold():
                await asyncio.sleep(0)
            return span.get_span_context().span_id

    async def main() -> list[int]:
        async with leasehold.connect_async("memory://") as client:
            traces.switch_on(client)
            return await asyncio.gather(*(work(client, number) for number in range(4)))

    parents = set(asyncio.run(main()))
    for name in ("leasehold.acquire g", "leasehold.hold g"):
        assert {span.parent.span_id for span in named(traces, name) if span.parent} == parents


def test_the_span_of_a_wait_is_as_long_as_the_wait(traces: OpenTelemetryReport) -> None:
    with leasehold.connect("memory://") as client:
        lock = client.lock("x", group="g")
        lease = lock.acquire()
        traces.switch_on(client)
        waiter = threading.Thread(target=lambda: lock.acquire(30).release())
        waiter.start()
        eventually(lambda: traces.value("leasehold.lock.waiters", "memory", "g") == 1)
        threading.Event().wait(0.05)
        lease.release()
        waiter.join()
        (span,) = named(traces, "leasehold.acquire g")
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.end_time - span.start_time >= 40_000_000


def test_a_call_that_gets_nothing_is_a_span_with_its_outcome(traces: OpenTelemetryReport) -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        traces.switch_on(other)
        with client.lock("x").hold():
            other.lock("x", group="g").try_acquire()
        store.faults.reject_next("try_acquire")
        with pytest.raises(leasehold.BackendError):
            other.lock("x", group="g").try_acquire()
        busy, failed = named(traces, "leasehold.acquire g")
        assert facts(busy)["leasehold.outcome"] == "busy"
        assert busy.status.status_code is StatusCode.UNSET
        assert facts(failed)["leasehold.outcome"] == "error"
        assert failed.status.status_code is StatusCode.ERROR


def test_a_failed_renewal_and_the_loss_are_events_of_the_span(traces: OpenTelemetryReport) -> None:
    store = ManualStore()
    with store.connect() as client:
        traces.switch_on(client)
        lease = client.lock("x", group="g").acquire()
        for _ in range(50):
            store.faults.refuse_next("renew")
        store.pass_time(60)
        assert lease.loss is not None
        eventually(lambda: named(traces, "leasehold.hold g"))
        (span,) = named(traces, "leasehold.hold g")
        assert [event.name for event in span.events] == ["renewal failed", "lost"]
        assert span.status.status_code is StatusCode.ERROR
        assert facts(span)["leasehold.end"] == "lost"
        lease.release()


def test_without_spans_there_are_metrics_only(traces: OpenTelemetryReport) -> None:
    with leasehold.connect("memory://") as client:
        traces.switch_on(client, spans=False)
        with pytest.raises(leasehold.ConfigurationError, match="counted twice"):
            traces.switch_on(client)
        with client.lock("x", group="g").hold():
            pass
        assert not traces.spans.get_finished_spans()
        assert traces.value("leasehold.lock.hold.duration", "memory", "g", "released") == 1
