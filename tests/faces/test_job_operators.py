"""What operators do with jobs, on a memory store whose clocks are turned by hand."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import events
from leasehold._blocking.once import Run
from leasehold.errors import BackendError, ConfigurationError, UnsupportedCapability
from leasehold.testing.manual import ManualStore
from leasehold.values import Capability, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._blocking import Client

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def store() -> ManualStore:
    store = ManualStore()
    store.set_wall(NOON)
    return store


@pytest.fixture
def client(store: ManualStore) -> Iterator[Client]:
    with store.connect(label="worker") as client:
        yield client


def ran(client: Client, again: str | None = None, **options: Any) -> bool:
    with client.once("job", **{"every": "1d", **options}).attempt(again=again) as run:
        return bool(run)


def test_begin_and_end_are_told_by_the_store_s_clock(store: ManualStore, client: Client) -> None:
    with client.once("job", every="1d").attempt() as run:
        assert run
        store.clock.advance(7)
    last = client.last_run("job")
    assert last is not None
    assert last.began == NOON.timestamp()
    assert last.finished == NOON.timestamp() + 7
    assert (last.slot, last.runner.label, last.outcome) == ("2026-11-15T00:00:00+00:00", "worker", "done")


def test_a_record_of_an_earlier_version_is_shown_as_far_as_it_goes(store: ManualStore, client: Client) -> None:
    facts = {"slot": "x", "start": 1.0, "runner": ["h", 1, None, None], "finished": 2.0, "failed": True}
    store.memory.write(Record("leasehold:once:3:job", json.dumps(facts).encode(), 1, 3600.0))
    last = client.last_run("job")
    assert last is not None
    assert (last.slot, last.began, last.fence, last.outcome, last.closed) == ("x", None, None, "failed", True)


def test_a_run_that_failed_is_remembered_longer_than_its_slot_and_a_later_one_replaces_it(
    store: ManualStore, client: Client
) -> None:
    with pytest.raises(ZeroDivisionError), client.once("job", every="1d").attempt():
        _ = 1 / 0
    last = client.last_run("job")
    assert last is not None
    assert (last.outcome, last.closed) == ("failed", False)
    store.clock.advance(1)
    assert ran(client)
    last = client.last_run("job")
    assert last is not None
    assert last.outcome == "done"


@pytest.mark.parametrize("slots", [{"every": "1d"}, {"slot": "monday"}], ids=["period", "label"])
@pytest.mark.parametrize(
    ("end", "on_failure", "outcome", "closed"),
    [
        ("returns", "open", "done", True),
        ("returns", "close", "done", True),
        ("raises", "open", "failed", False),
        ("raises", "close", "failed", True),
        ("calls fail", "open", "failed", False),
        ("calls fail", "close", "failed", True),
    ],
)
def test_what_is_shown_of_a_slot_is_whether_it_runs_again(
    client: Client, slots: Any, end: str, on_failure: Any, outcome: str, closed: bool
) -> None:
    with suppress(ZeroDivisionError), client.once("job", **slots, on_failure=on_failure).attempt() as run:
        assert isinstance(run, Run)
        if end == "calls fail":
            run.fail()
        elif end == "raises":
            raise ZeroDivisionError
    last = client.last_run("job")
    assert last is not None
    assert (last.outcome, last.closed) == (outcome, closed)
    assert last == client.last_run("job", slot=last.slot)
    assert ran(client, **{"every": None, **slots}) is not closed


def test_trouble_with_what_is_only_shown_hides_nothing(store: ManualStore, client: Client) -> None:
    store.faults.reject_next("write")
    with pytest.raises(ZeroDivisionError) as caught, client.once("job", every="1d").attempt():
        _ = 1 / 0
    assert not hasattr(caught.value, "__notes__")
    assert client.inspect("job") is None


def test_an_interrupted_run_writes_nothing(store: ManualStore, client: Client) -> None:
    with pytest.raises(KeyboardInterrupt), client.once("job", every="1d").attempt():
        raise KeyboardInterrupt
    assert store.faults.calls.count("write") == 0
    assert client.last_run("job") is None


def test_running_again_is_an_event_a_warning_and_part_of_the_record(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[events.Event] = []
    client.on_event(seen.append)
    assert ran(client)
    with (
        caplog.at_level(logging.WARNING, "leasehold"),
        client.once("job", every="1d").attempt(again="the report was empty", by="ana") as run,
    ):
        assert run
    (order,) = [event for event in seen if isinstance(event, events.RunAgain)]
    assert (order.by, order.reason, order.slot) == ("ana", "the report was empty", "2026-11-15T00:00:00+00:00")
    assert "ana runs 'job' again" in caplog.text
    last = client.last_run("job")
    assert last is not None
    assert last.again == "the report was empty (by ana)"


def test_running_again_does_not_open_a_later_slot(store: ManualStore, client: Client) -> None:
    """The store's clock was ahead when the last slot ran; an order now is for another slot, which is not open."""
    store.set_wall(NOON.replace(day=16))
    assert ran(client)
    store.set_wall(NOON)
    assert not ran(client, again="r")
    store.set_wall(NOON.replace(day=16))
    assert not ran(client)


def test_a_run_again_that_fails_leaves_the_slot_as_it_was(client: Client) -> None:
    assert ran(client)
    with pytest.raises(ZeroDivisionError), client.once("job", every="1d").attempt(again="r"):
        _ = 1 / 0
    assert not ran(client)
    assert ran(client, again="once more")


def test_forgetting_is_an_event_and_is_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[events.Event] = []
    client.on_event(seen.append)
    assert ran(client, every=None, slot="x")
    with caplog.at_level(logging.WARNING, "leasehold"):
        assert client.forget("job", slot="x", reason="bad", by="ana")
        assert not client.forget("job", slot="x", reason="bad", by="ana")
    assert [(event.slot, event.by) for event in seen if isinstance(event, events.RunForgotten)] == [("x", "ana")]
    assert "ana made 'job' forget its run for slot x: bad" in caplog.text


def test_an_earlier_slot_does_not_run_again_because_a_later_one_was_forgotten(
    store: ManualStore, client: Client
) -> None:
    assert ran(client)
    store.set_wall(NOON.replace(day=16))
    assert ran(client)
    assert not client.forget("job", slot="2026-11-15T00:00:00+00:00", reason="it is not the last")
    assert client.forget("job", slot="2026-11-16T00:00:00+00:00", reason="r")
    assert ran(client)


def test_forgetting_beside_a_pause_does_not_take_a_fence_that_a_later_run_gets(
    store: ManualStore, client: Client
) -> None:
    assert ran(client, every=None, slot="x")
    client.pause("job", reason="r")
    assert client.forget("job", slot="x", reason="r")
    fence = store.memory.read("leasehold:once:3:job:x").fence
    client.resume("job")
    with client.once("job", slot="x").attempt() as run:
        assert run
        assert run.fence > fence


def test_a_paused_job_that_still_runs_is_not_made_to_forget(store: ManualStore, client: Client) -> None:
    assert ran(client, every=None, slot="x")
    with store.connect() as other, client.once("job", slot="y").attempt() as run:
        assert run
        other.pause("job", reason="r")
        with pytest.raises(leasehold.AlreadyRunning, match="worker"):
            other.forget("job", slot="x", reason="r")
    assert client.last_run("job", slot="y") is not None


def test_pausing_and_resuming_are_events(client: Client) -> None:
    seen: list[events.Event] = []
    client.on_event(seen.append)
    client.pause("job", reason="moving", by="ana", duration="1h")
    client.resume("job", by="bo")
    client.resume("job")
    orders = [event for event in seen if isinstance(event, events.NamePaused | events.NameResumed)]
    assert list(map(str, orders)) == ["ana paused 'job' for 3600 s: moving", "bo resumed 'job'"]


def test_a_long_wait_for_a_paused_name_is_logged_with_the_pause(store: ManualStore, client: Client) -> None:
    seen: list[events.Event] = []
    client.pause("x", reason="moving", by="ana")
    with leasehold.connect(store.memory) as other:
        other.on_event(seen.append)
        with pytest.raises(leasehold.Paused, match="paused by ana: moving"):
            other.lock("x").acquire(timeout=1.2)
    (waiting,) = [event for event in seen if isinstance(event, events.Waiting)]
    assert "paused by ana: moving" in str(waiting)


@pytest.mark.parametrize("verb", ["last_run", "forget"])
def test_jobs_need_a_store_with_records(store: ManualStore, verb: str) -> None:
    class NoRecords:
        def open_backend(self, runtime: Any) -> Any:
            backend: Any = store.memory.open_backend(runtime)
            backend.capabilities -= {Capability.RECORD}
            return backend

    options = {} if verb == "last_run" else {"slot": "x", "reason": "r"}
    with leasehold.connect(NoRecords()) as client, pytest.raises(UnsupportedCapability, match="record"):
        getattr(client, verb)("job", **options)


@pytest.mark.parametrize("options", [{"reason": ""}, {"slot": ""}, {"reason": "r" * 257}, {"by": "b" * 257}])
def test_bad_orders_are_refused_before_any_question(store: ManualStore, client: Client, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        client.forget("job", **{"slot": "x", "reason": "r", **options})
    with pytest.raises(ConfigurationError):
        client.once("job", every="1d").attempt(again="")
    assert store.faults.calls == []


def test_a_record_that_cannot_be_rewritten_is_not_forgotten(store: ManualStore, client: Client) -> None:
    assert ran(client, every=None, slot="x")
    store.faults.reject_next("write")
    with pytest.raises(BackendError):
        client.forget("job", slot="x", reason="r")
    assert client.inspect("job") is None
    assert not ran(client, every=None, slot="x")
