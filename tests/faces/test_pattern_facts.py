"""What objects of the patterns answer: for how long something is ours, which store an error is of, whose a record is."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from leasehold import (
    AlreadyRun,
    AlreadyRunning,
    BackendRejected,
    ClientClosed,
    ConfigurationError,
    LeaseLost,
    Paused,
)
from leasehold._patterns.callbacks import Callbacks, Watch
from leasehold._runtimes.threads import run
from leasehold.testing.manual import ManualStore
from leasehold.values import Holder, Leader, Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from leasehold._blocking import Client


# For how long it is ours


@pytest.mark.parametrize(
    "begin",
    [
        lambda client: client.once("x", slot="a", ttl=20).attempt(),
        lambda client: client.partitions("x", 1, ttl=20),
        lambda client: client.idempotency("x", ttl=20).attempt("k"),
        lambda client: client.election("x", ttl=30, renew_deadline=20).lead(),
    ],
    ids=["a run", "a partition", "an attempt at a key", "a term"],
)
def test_what_is_checked_is_ours_for_as_long_as_it_is_needed(begin: Callable[[Any], Any]) -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client, begin(client) as begun:
        ours = begun.owned()[0] if hasattr(begun, "owned") else begun
        ours.check(15)
        for need in (25, "25s"):
            with pytest.raises((LeaseLost, ConfigurationError)):
                ours.check(need)


@pytest.mark.parametrize("what", ["run", "partition", "key", "term"])
def test_what_is_checked_on_a_loop_is_ours_for_as_long_as_it_is_needed(what: str) -> None:
    store = ManualStore(autojump=None)

    async def story() -> None:
        async with store.connect_async() as client:
            begin: Any = {
                "run": lambda: client.once("x", slot="a", ttl=20).attempt(),
                "partition": lambda: client.partitions("x", 1, ttl=20),
                "key": lambda: client.idempotency("x", ttl=20).attempt("k"),
                "term": lambda: client.election("x", ttl=30, renew_deadline=20).lead(),
            }[what]
            async with begin() as begun:
                ours = begun.owned()[0] if what == "partition" else begun
                ours.check(15)
                with pytest.raises((LeaseLost, ConfigurationError)):
                    ours.check(25)

    asyncio.run(story())


# Which store an error is of


def test_a_job_that_was_not_run_says_in_which_store_and_for_how_long(client: Client, other: Client) -> None:
    backend = client._twin._open().backend.label
    assert backend
    job = client.once("job", slot="a", on_conflict="raise")
    assert job.run(lambda: 1)
    with pytest.raises(AlreadyRun) as ran, job.attempt():
        """Never entered."""
    assert (ran.value.name, ran.value.backend) == ("job", backend)
    with other.once("job", slot="b").attempt(), pytest.raises(AlreadyRunning) as running:
        client.once("job", slot="b", on_conflict="raise").run(lambda: 1)
    assert (running.value.name, running.value.backend) == ("job", backend)
    client.pause("job", reason="stocktaking", duration=90)
    with pytest.raises(Paused) as paused, client.once("job", slot="c", on_conflict="raise").attempt():
        """Never entered."""
    assert (paused.value.name, paused.value.backend) == ("job", backend)
    assert paused.value.retry_after is not None
    assert 80 < paused.value.retry_after <= 90
    assert paused.value.pause is not None
    assert paused.value.pause.reason == "stocktaking"


# Records of jobs


def test_a_slot_that_is_remembered_in_two_ways_is_forgotten_in_both(store: ManualStore, client: Client) -> None:
    store.set_wall(datetime(2026, 11, 15, 12, tzinfo=UTC))
    label = "2026-11-15T00:00:00+00:00"

    def runs() -> list[bool]:
        ways: list[Any] = [{"every": "1d"}, {"slot": label}, {"slot": "other"}]
        return [bool(client.once("job", **way).run(lambda: None)) for way in ways]

    assert runs() == [True, True, True]
    assert runs() == [False, False, False]
    assert client.forget("job", slot=label, reason="empty")
    assert runs() == [True, True, False]


def test_the_last_run_of_a_job_is_the_one_that_ended_last_whatever_its_fence(store: ManualStore, client: Client) -> None:
    store.set_wall(datetime(2026, 11, 15, 12, tzinfo=UTC))
    for key, slot, finished, fence in (("once:3:job", "later", 20.0, 1), ("once-last:job", "earlier", 10.0, 9)):
        facts = {"slot": slot, "start": 0.0, "runner": ["h", 1, None, None], "finished": finished, "failed": False}
        store.memory.write(Record(f"leasehold:{key}", json.dumps({**facts, "fence": fence}).encode(), fence, 3600.0))
    last = client.last_run("job")
    assert last is not None
    assert (last.slot, last.finished, last.fence) == ("later", 20.0, 1)


# Who looks for leaders


@pytest.mark.parametrize(
    ("error", "is_told"), [(ClientClosed("closed"), False), (BackendRejected("no rights"), True)]
)
def test_who_looks_for_leaders_ends_quietly_with_its_client_and_not_with_trouble(
    error: Exception, is_told: bool, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    leaders = [Leader("boss", Holder("a", 1, "first", None), 7), None, Leader("boss", Holder("b", 2, "second", None), 9)]

    async def changes() -> AsyncIterator[Leader | None]:
        for leader in leaders:
            yield leader
        raise error

    watch = Watch(Callbacks("boss", None, None, seen.append), cast("Any", changes()), "boss")
    with caplog.at_level(logging.ERROR, "leasehold"):
        run(watch.follow())
    assert seen == [leaders[0], leaders[2]]
    assert ("cannot look who leads 'boss' any more" in caplog.text) is is_told
