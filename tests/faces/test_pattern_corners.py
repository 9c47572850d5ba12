"""Corners of the patterns: orders about jobs, ends of terms and shares, files of keys."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    AlreadyRun,
    AlreadyRunning,
    BackendUnavailable,
    ConfigurationError,
    LeaseLost,
    RetryKey,
    Skipped,
    events,
)
from leasehold._patterns import retry_key
from leasehold._patterns.job_records import LAST_KEPT
from leasehold._patterns.slots import LABEL_KEEP, slots_for
from leasehold.errors import Conflict
from leasehold.values import Holder
from tests.unit.test_core_time import Script, fails
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leasehold._blocking import Client
    from leasehold._blocking.election import Election
    from leasehold.testing.manual import ManualStore

DAY = 86_400.0


def run(client: Client, slot: str, **options: Any) -> bool:
    return bool(client.once("job", slot=slot, **options).run(lambda: None))


# --- jobs


def test_the_last_run_is_that_of_any_slot_or_that_of_the_one_that_was_asked_for(
    store: ManualStore, client: Client
) -> None:
    for slot in ("b", "a"):
        assert run(client, slot)
        store.clock.advance(1)
    found = {slot: client.last_run("job", slot=slot) for slot in ("a", "b", "other")}
    assert {slot: last and last.slot for slot, last in found.items()} == {"a": "a", "b": "b", "other": None}
    last = client.last_run("job")
    assert last is not None
    assert (last.slot, last.closed, last.again) == ("a", True, None)
    assert client.last_run("other") is None
    with pytest.raises(ConfigurationError):
        client.last_run("job", slot="")


def test_the_last_run_of_a_job_with_labels_outlives_its_slot(store: ManualStore, client: Client) -> None:
    assert (LABEL_KEEP, LAST_KEPT) == (7 * DAY, 30 * DAY)
    assert run(client, "a")
    store.clock.advance(8 * DAY)
    last = client.last_run("job")
    assert last is not None
    assert last.slot == "a"
    assert run(client, "a"), "the slot itself is remembered for a week"
    store.clock.advance(31 * DAY)
    assert client.last_run("job") is None


def test_what_was_forgotten_is_remembered_as_such_for_as_long_as_it_was_there(
    store: ManualStore, client: Client
) -> None:
    assert run(client, "a", keep="10d")
    store.clock.advance(DAY)
    assert client.forget("job", slot="a", reason="empty")
    assert not client.forget("job", slot="a", reason="empty"), "it is forgotten already"
    record = store.memory.read("leasehold:once:3:job:a").record
    assert record is not None
    assert record.ttl == pytest.approx(9 * DAY)
    last = client.last_run("job", slot="a")
    assert last is not None
    assert (last.outcome, last.forgotten) == ("forgotten", f"empty (by {client._twin._holder(None)})")
    shown = client.last_run("job")
    assert shown is not None
    assert shown.outcome == "forgotten", "also what is for people only"
    assert client.inspect("job") is None
    assert run(client, "a")


def test_a_job_that_runs_is_not_made_to_forget_and_its_runner_is_named(client: Client, other: Client) -> None:
    assert run(client, "a")
    with client.once("job", slot="b").attempt(), pytest.raises(AlreadyRunning, match="nothing was forgotten") as caught:
        other.forget("job", slot="a", reason="empty")
    error = caught.value
    assert error.skipped is not None
    assert error.skipped.runner is not None
    assert (error.name, error.skipped.slot, error.skipped.runner.label) == ("job", "a", "first")
    assert not run(client, "a")


def test_an_order_to_run_again_without_a_name_is_that_of_the_process(client: Client) -> None:
    seen: list[Any] = []
    client.on_event(lambda event: seen.append(event) if isinstance(event, events.RunAgain) else None)
    assert run(client, "a")
    with client.once("job", slot="a").attempt(again="empty") as again:
        assert again
    assert [(event.by, event.reason) for event in seen] == [(str(client._twin._holder(None)), "empty")]
    for words in ({"again": ""}, {"again": "r" * 257}, {"again": "r", "by": "b" * 257}):
        with pytest.raises(ConfigurationError):
            client.once("job", slot="a").attempt(**words)


def test_of_two_orders_to_run_again_one_runs(client: Client, other: Client) -> None:
    assert run(client, "a")
    ran: list[bool] = []

    def late(_: object, __: float, plain: Callable[[], Any]) -> Any:
        if not ran:
            ran.append(False)
            with other.once("job", slot="a").attempt(again="theirs") as theirs:
                ran.append(bool(theirs))
        return plain()

    Script(client, "try_acquire", late)
    with client.once("job", slot="a").attempt(again="ours") as ours:
        assert isinstance(ours, Skipped)
    assert ran == [False, True]
    assert client.inspect("job") is None


def test_a_skip_is_told_with_the_job_and_a_conflict_with_the_store(client: Client, other: Client) -> None:
    seen: list[Any] = []
    client.on_event(lambda event: seen.append(event.job) if isinstance(event, events.RunSkipped) else None)
    client.once("report:{user}", slot="a")(lambda user: user)(7)
    client.once("report:{user}", slot="a")(lambda user: user)(7)
    client.once("report:{user}", slot="a", group="reports")(lambda user: user)(7)
    assert seen == ["report:{user}", "reports"]
    with pytest.raises(Conflict) as caught, client.once("report:7", slot="a", on_conflict="raise").attempt():
        """Never entered."""
    assert (caught.value.name, caught.value.backend) == ("report:7", client._twin._open().backend.label)


def test_a_store_that_stays_away_is_an_error_of_the_attempt(store: ManualStore, client: Client) -> None:
    client._twin._connect_timeout = 0.0
    for _ in range(1_000):
        store.faults.refuse_next("read")
    with pytest.raises(BackendUnavailable), client.once("job", slot="a").attempt():
        """Never entered."""
    assert store.faults.calls == ["read"]


@pytest.mark.parametrize(
    ("seconds", "tick"), [(-60, "02:00"), (-61, "01:00"), (-1, "02:00"), (0, "02:00"), (1, "02:00"), (3540, "03:00")]
)
def test_a_tick_counts_a_minute_before_its_time(seconds: float, tick: str) -> None:
    slots = slots_for(every=None, cron="0 * * * *", slot=None, tz="UTC")
    two = datetime(2026, 11, 15, 2, tzinfo=UTC).timestamp()
    assert slots.at(two + seconds).label == f"2026-11-15T{tick}:00+00:00"


def test_a_period_of_a_second_is_the_shortest() -> None:
    assert slots_for(every=1, cron=None, slot=None, tz="UTC").at(7.9).label == "1970-01-01T00:00:07+00:00"
    with pytest.raises(ConfigurationError, match="at least a second"):
        slots_for(every=0.999, cron=None, slot=None, tz="UTC")


# --- options that there are not


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda client: client.once("x", slot="a", colour=3), "once"),
        (lambda client: client.election("x", colour=3), "election"),
        (lambda client: client.idempotency("x", colour=3), "idempotency"),
        (lambda client: client.partitions("x", colour=3), "partitions"),
        (lambda client: client.cache("x", colour=3), "cache"),
    ],
    ids=["once", "election", "idempotency", "partitions", "cache"],
)
def test_a_word_that_is_no_option_is_refused_by_the_pattern_that_was_meant(
    client: Client, call: Callable[[Any], object], where: str
) -> None:
    with pytest.raises(TypeError, match=rf"{where}\(\) has no option 'colour'; see help\(client.{where}\)"):
        call(client)


# --- elections


def term_of(election: Election) -> object:
    """A function, because type checkers take a property that was None to stay so."""
    return election.term


def test_an_election_has_its_term_while_it_leads(client: Client) -> None:
    election = client.election("boss")
    assert term_of(election) is None
    with election.lead() as term:
        assert getattr(term_of(election), "fence", None) == term.fence
        assert repr(election) == "<Election 'boss' leading>"
        assert term.step_down() is True
        assert term.step_down() is False
        assert term_of(election) is None
    assert repr(election) == "<Election 'boss'>"


def test_the_end_of_a_term_is_told_after_it_was_given_back(client: Client, other: Client) -> None:
    seen: list[Any] = []
    with client.election("boss", on_lost=lambda loss: seen.append((str(loss.reason), other.inspect("boss")))).lead():
        """That is enough."""
    assert seen == [("released", None)]


def test_an_interruption_before_the_body_gives_the_term_back(client: Client, other: Client) -> None:
    losses: list[Any] = []

    def elected(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with client.election("boss", on_elected=elected, on_lost=losses.append).lead():
            raise AssertionError("the body runs")
    assert other.inspect("boss") is None
    assert len(losses) == 1


def test_without_a_callback_for_new_leaders_nobody_looks_for_them(store: ManualStore, client: Client) -> None:
    with client.election("boss", on_elected=lambda _: None, on_lost=lambda _: None).lead():
        store.pass_time(20)
    assert "inspect" not in store.faults.calls


def test_an_observer_that_was_stopped_is_at_its_end_also_before_its_first_look(
    store: ManualStore, client: Client
) -> None:
    observation = client.election("boss").observe()
    observation.stop()
    assert list(observation) == []
    assert store.faults.calls == []


# --- shares


def test_a_wait_for_a_change_ends_with_its_time(store: ManualStore, client: Client) -> None:
    with client.partitions("orders", 1, retry=30) as share:
        share.owned()
        began = store.clock.now()
        assert not share.wait_change(5)
        assert store.clock.now() - began >= 5


def test_when_a_member_leaves_nothing_of_it_is_left(store: ManualStore, client: Client) -> None:
    with client.partitions("orders", 2) as share:
        assert len(share.owned()) == 2
    eventually(lambda: not [one for one in threading.enumerate() if one.name == "leasehold partitions"])
    assert store.memory.list("") == []
    asked = len(store.faults.calls)
    store.pass_time(10)
    assert len(store.faults.calls) == asked


def test_a_member_that_is_interrupted_while_it_joins_leaves_nothing(store: ManualStore, client: Client) -> None:
    Script(client, "inspect", lambda *_: fails(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), client.partitions("orders", 2):
        raise AssertionError("the body runs")
    assert store.memory.list("") == []


def test_a_partition_that_is_leaving_says_so_until_its_worker_releases_it(
    store: ManualStore, client: Client, other: Client
) -> None:
    with client.partitions("orders", 2, retry=1, grace=1_000) as first, other.partitions("orders", 2, retry=1):
        eventually(lambda: _turned(store) and any(partition.leaving for partition in first.owned()))
        (leaving,) = [partition for partition in first.owned() if partition.leaving]
        until = leaving._twin._leave_by
        assert until is not None
        assert store.clock.now() < until <= store.clock.now() + 1_000
        store.pass_time(5)
        assert leaving._twin._leave_by == until
        assert repr(leaving).endswith("leaving>")
        assert leaving.release()
        with pytest.raises(LeaseLost):
            leaving.check()


def _turned(store: ManualStore) -> bool:
    store.pass_time(0.2)
    return True


# --- results


def test_why_a_job_was_not_run_is_in_the_error(client: Client) -> None:
    assert run(client, "a")
    result = client.once("job", slot="a").run(lambda: None)
    with pytest.raises(AlreadyRun) as caught:
        _ = result.value
    assert (caught.value.name, caught.value.skipped) == ("job", result.skipped)
    assert str(result.skipped) in repr(result)
    client.pause("other", reason="audit", duration="1m")
    paused = client.once("other", slot="a").run(lambda: None)
    with pytest.raises(Exception, match="audit") as refused:
        _ = paused.value
    assert getattr(refused.value, "retry_after", None) == pytest.approx(60, abs=1)


# --- files of keys


def test_of_two_that_make_a_file_at_once_the_first_counts_and_nothing_else_is_left(tmp_path: Path) -> None:
    place = tmp_path / "key"
    retry_key._create(place, "first\n")
    retry_key._create(place, "second\n")
    assert place.read_text() == "first\n"
    assert list(tmp_path.iterdir()) == [place]
    assert RetryKey.kept_in(place).value == "first"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr("leasehold._patterns.retry_key.os.fsync", full)
        RetryKey.kept_in(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_on_the_disk_with_its_name_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append("folder" if (tmp_path / "key").exists() else "file")
        real(descriptor)

    monkeypatch.setattr("leasehold._patterns.retry_key.os.fsync", note)
    RetryKey.kept_in(tmp_path / "key")
    assert synced == ["file", "folder"]
    assert str(RetryKey("k")) == "k"
    assert repr(RetryKey("k")) == "RetryKey('k')"


def test_a_holder_of_a_record_is_a_process(client: Client) -> None:
    assert run(client, "a", reason="the report")
    last = client.last_run("job")
    assert last is not None
    own = client._twin._holder("the report")
    assert last.runner == Holder(own.host, own.pid, "first", "the report")
