"""A call ends by the instant that its caller gave, and a closed client lets nobody wait."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold._backends.sqlite import backend as module
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.values import Grant
from tests.stores.sqlite.sqlite_support import Verbs, claim, granted, placed
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 30.0  # of the store itself in these tests: whoever is back within a third of it obeyed its caller
SHORT = 0.2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Verbs]:
    monkeypatch.setattr(module, "PATIENCE", PATIENCE)
    verbs = Verbs(path)
    yield verbs
    verbs.close()


@pytest.mark.parametrize("verb", ["try_acquire", "join", "turn", "renew", "release", "withdraw"])
def test_call_on_a_file_that_another_program_locked_ends_by_its_limit(store: Verbs, path: Path, verb: str) -> None:
    grant, other = granted(store.try_acquire(claim())), claim("ns:other")
    place = placed(store.join(claim()))
    subject = {"turn": place, "renew": grant, "release": grant}.get(verb, other)
    with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(BackendUnavailable, match="locked by another connection"):
            getattr(store, verb)(subject, until=ThreadRuntime().now() + SHORT)
        took = time.monotonic() - started
    assert SHORT <= took < PATIENCE / 3


def test_limit_that_has_passed_still_leaves_one_try(store: Verbs) -> None:
    assert store.release(granted(store.try_acquire(claim(), until=0.0)), until=0.0)


def test_first_call_on_a_locked_file_ends_by_its_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", PATIENCE)
    with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN EXCLUSIVE")
        started = time.monotonic()
        late = Verbs(path)
        with pytest.raises(BackendUnavailable, match="locked by another connection"):
            late.join(claim(), until=ThreadRuntime().now() + SHORT)
        assert time.monotonic() - started < PATIENCE / 3
        late.close()


def test_renewal_of_many_that_is_cut_short_says_for_each_what_happened(
    store: Verbs, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    grants = [granted(store.try_acquire(claim(f"ns:{number}"))) for number in range(5)]
    blocker = sqlite3.connect(path, isolation_level=None)
    renew, calls = store.backend._ledger.renew, []

    def renew_then_block(connection: sqlite3.Connection, some: list[Grant]) -> object:
        answer = renew(connection, some)
        calls.append(len(some))
        blocker.execute("BEGIN IMMEDIATE")  # before the next batch
        return answer

    monkeypatch.setattr(store.backend._ledger, "renew", renew_then_block)
    answers = store.renew(*grants, until=ThreadRuntime().now() + SHORT)
    blocker.close()
    assert calls == [2]
    assert [isinstance(answer, Grant) for answer in answers] == [True, True, False, False, False]
    assert all(isinstance(answer, BackendUnavailable) for answer in answers[2:])


@pytest.mark.parametrize("error", [OutcomeUnknown("the disk failed"), BackendRejected("no right")])
def test_a_part_of_many_renewals_that_fails_in_any_way_costs_those_before_it_nothing(
    store: Verbs, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    grants = [granted(store.try_acquire(claim(f"ns:{number}"))) for number in range(5)]
    renew, calls = store.backend._ledger.renew, list[int]()

    def fail_second(connection: sqlite3.Connection, some: list[Grant]) -> object:
        calls.append(len(some))
        if len(calls) == 2:
            raise error
        return renew(connection, some)

    monkeypatch.setattr(store.backend._ledger, "renew", fail_second)
    answers = store.renew(*grants)
    assert calls == [2, 2]
    assert [answer.fence if isinstance(answer, Grant) else answer for answer in answers] == [
        grants[0].fence, grants[1].fence, error, error, error,
    ]  # fmt: skip
    calls[:] = [0]
    with pytest.raises(type(error)):
        store.renew(*grants)


def test_verbs_of_a_closed_backend_raise_client_closed_with_its_store(path: Path) -> None:
    store = Verbs(path)
    grant = granted(store.try_acquire(claim()))
    store.close()
    for call in (lambda: store.join(claim()), lambda: store.release(grant), lambda: store.renew(grant), store.inspect):
        with pytest.raises(ClientClosed) as caught:
            call()
        assert caught.value.backend == "sqlite: test"
        assert not isinstance(caught.value, BackendError)


def test_call_that_waits_for_a_locked_file_ends_when_its_client_is_closed(store: Verbs, path: Path) -> None:
    granted(store.try_acquire(claim()))
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            store.try_acquire(claim())
        except BaseException as error:
            raised.append(error)

    with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        time.sleep(0.05)
        store.close()
        waiter.join(PATIENCE / 3)
    assert [type(error) for error in raised] == [ClientClosed]


def test_blocking_waiter_of_a_closed_client_ends_at_once(path: Path) -> None:
    raised: list[BaseException] = []
    with leasehold.connect(f"sqlite:///{path}") as holder, holder.lock("name", ttl=20).hold():
        client = leasehold.connect(f"sqlite:///{path}")

        def wait() -> None:
            try:
                client.lock("name").acquire(timeout=None)
            except BaseException as error:
                raised.append(error)

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        eventually(lambda: len((holder.inspect("name") or pytest.fail("not held")).waiting) == 1)
        client.close()
        waiter.join(20)
        assert not waiter.is_alive()
    assert [type(error) for error in raised] == [ClientClosed]


def test_asyncio_waiter_of_a_closed_client_ends_at_once(path: Path) -> None:
    url = f"sqlite:///{path}"

    async def main() -> None:
        async with leasehold.connect_async(url) as holder, holder.lock("name", ttl=20).hold():
            client = leasehold.connect_async(url)
            waiter = asyncio.create_task(client.lock("name").acquire(timeout=None))
            while len((await holder.inspect("name") or pytest.fail("not held")).waiting) != 1:
                await asyncio.sleep(0.005)
            await client.close()
            with pytest.raises(ClientClosed):
                await asyncio.wait_for(waiter, 20)

    asyncio.run(main())


def test_closing_raises_the_signal_of_every_waiter(path: Path) -> None:
    store = Verbs(path)
    granted(store.try_acquire(claim()))
    places = [placed(store.join(claim())) for _ in range(3)]
    store.close()
    assert all(place.signal.is_set() for place in places)
