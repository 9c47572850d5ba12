"""One attempt at an idempotency key, step by step: lost races, begins in doubt, what is told, and what is left."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

from leasehold import (
    AcquireTimeout,
    AttemptExpired,
    BackendRejected,
    ConfigurationError,
    InFlight,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    events,
)
from leasehold._patterns.idempotency_states import Begin
from leasehold.testing.manual import ManualStore
from tests.unit.test_core_time import Script

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._blocking import Client
    from leasehold._blocking.idempotency import Idempotency

NAME = "idempotency:3:pay:k"


@pytest.fixture
def keys(client: Client) -> Idempotency:
    return client.idempotency("pay")


def heard_by(client: Client, kind: Any) -> list[Any]:
    heard: list[Any] = []
    client.on_event(lambda event: heard.append(event) if isinstance(event, kind) else None)
    return heard


@pytest.mark.parametrize(("result", "is_kept"), [("abc", True), ("abcd", False)])
def test_a_result_may_have_as_many_bytes_as_was_said(client: Client, result: str, is_kept: bool) -> None:
    keys = client.idempotency("pay", max_size=5)
    with suppress(ConfigurationError), keys.attempt("k") as attempt:
        assert attempt.complete(result) == result
        assert is_kept
    with keys.attempt("k") as again:
        assert again.replayed
        if is_kept:
            assert again.result == result


def test_every_refusal_is_told_with_its_reason_and_names_the_store(client: Client, other: Client) -> None:
    told = heard_by(client, events.KeyRefused)
    careful = client.idempotency("pay", on_expired="refuse")
    with other.idempotency("pay").attempt("k", "one"):
        with pytest.raises(InFlight) as busy, careful.attempt("k", "one"):
            """Never entered."""
        with pytest.raises(KeyReused) as reused, careful.attempt("k", "two"):
            """Never entered."""
    with pytest.raises(KeyboardInterrupt), other.idempotency("pay").attempt("k", "one"):
        raise KeyboardInterrupt
    with pytest.raises(AttemptExpired) as expired, careful.attempt("k", "one"):
        """Never entered."""
    assert told == [events.KeyRefused(NAME, reason) for reason in ("in_progress", "mismatch", "expired")]
    for caught in (busy, reused, expired):
        assert (caught.value.name, caught.value.backend) == (NAME, client._twin._open().backend.label)
    assert client.locks() == [], "a refusal under the lock gives it back"


def test_a_key_that_is_completed_while_its_lock_was_waited_for_is_replayed(
    monkeypatch: pytest.MonkeyPatch, client: Client, keys: Idempotency, other: Client
) -> None:
    told = heard_by(client, (events.Replayed, events.KeyRefused))

    class Busy:
        async def _acquire_until(self, deadline: float) -> None:
            with other.idempotency("pay").attempt("k") as first:
                first.complete("theirs")
            raise AcquireTimeout("the first attempt has the lock", name=NAME)

    monkeypatch.setattr(keys._twin, "_lock", lambda _: Busy())
    with keys.attempt("k") as attempt:
        assert (attempt.replayed, attempt.result, attempt.lease) == (True, "theirs", None)
    assert told == [events.Replayed(NAME)]


@pytest.mark.parametrize(("ahead", "is_late"), [(-1, False), (0, False), (1, True), (2, True)])
def test_an_attempt_does_not_begin_where_a_later_fence_has_read(
    store: ManualStore, client: Client, keys: Idempotency, ahead: int, is_late: bool
) -> None:
    def read(key: str, fence: int, plain: Callable[[], Any]) -> Any:
        if fence:
            store.memory.read(key, fence + ahead)
        return plain()

    with keys.attempt("before"):
        """So that fences are above 1."""
    Script(client, "read", cast("Any", read))
    if is_late:
        store.faults.calls.clear()
        with pytest.raises(LeaseLost, match="another attempt with this key began meanwhile") as lost, keys.attempt("k"):
            pytest.fail("the work began")
        assert not lost.value.completed
        assert "write" not in store.faults.calls
    else:
        with keys.attempt("k") as attempt:
            attempt.complete(1)
    assert client.locks() == []


def test_an_attempt_whose_begin_comes_after_a_later_one_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, client: Client, keys: Idempotency
) -> None:
    async def begin(*_: object) -> Begin:
        return Begin.TAKEN

    monkeypatch.setattr(keys._twin, "_begin", begin)
    with pytest.raises(LeaseLost, match="another attempt with this key began meanwhile") as lost, keys.attempt("k"):
        pytest.fail("the work began")
    assert not lost.value.completed
    assert client.locks() == []


@pytest.mark.parametrize("vanished", [False, True])
def test_a_begin_in_doubt_is_taken_back_unless_an_earlier_attempt_vanished(
    store: ManualStore, monkeypatch: pytest.MonkeyPatch, keys: Idempotency, vanished: bool
) -> None:
    """Else the next attempt would take this one for one that vanished, or not know of the one that did."""
    if vanished:
        with pytest.raises(KeyboardInterrupt), keys.attempt("k"):
            raise KeyboardInterrupt
    fences: list[int] = []
    plain = keys._twin._begin

    async def begin(opened: Any, lease: Any, entry: Any) -> Begin:
        fences.append(lease.fence)
        outcome = await plain(opened, lease, entry)
        return outcome if len(fences) > 1 else Begin.IN_DOUBT

    monkeypatch.setattr(keys._twin, "_begin", begin)
    store.faults.calls.clear()
    with keys.attempt("k") as attempt:
        assert (attempt.abandoned, attempt.fence) == (vanished, fences[-1])
        taken_back = [] if vanished else ["write"]
        round_ = ["try_acquire", "read", "write"]
        assert store.faults.calls == ["read", *round_, *taken_back, "release", *round_]
        attempt.complete(1)
    assert fences[0] < fences[1], "a copy of the first begin is older than the result"


def test_an_attempt_knows_its_own_begin_again_and_does_not_take_it_for_one_that_vanished(client: Client) -> None:
    keys = client.idempotency("pay", on_expired="refuse")
    told = heard_by(client, events.NotRecorded)
    writes: list[object] = []

    def write(record: object, _: object, plain: Callable[[], Any]) -> Any:
        writes.append(record)

        async def go() -> Any:
            if len(writes) == 3:
                raise BackendRejected("no rights")  # so the begin is not taken back
            done = await plain()
            if len(writes) == 1:
                raise OutcomeUnknown("no answer")
            return done

        return go()

    backend: Any = client._twin._open().backend
    plain = backend.write

    async def scripted(record: object) -> Any:
        return await write(record, None, lambda: plain(record))

    backend.write = scripted
    with keys.attempt("k") as attempt:
        assert not attempt.abandoned
        attempt.complete("done")
    assert len(writes) == 5
    (missed,) = told
    assert (missed.name, missed.error) == (NAME, "no rights")


@pytest.mark.parametrize("completes", [True, False])
def test_a_loss_does_not_interrupt_what_follows_a_result_and_does_interrupt_the_work(completes: bool) -> None:
    went_on: list[bool] = []

    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client, client.idempotency("pay").attempt("k") as attempt:
            if completes:
                assert await attempt.complete("done") == "done"
            assert attempt.lease is not None
            store.lose(attempt.lease)
            for _ in range(50):
                await asyncio.sleep(0)
            went_on.append(True)

    if completes:
        asyncio.run(main())
    else:
        with pytest.raises(LeaseLost):
            asyncio.run(main())
    assert went_on == [True] * completes


def test_a_completion_outside_its_block_is_refused(keys: Idempotency) -> None:
    with pytest.raises(RuntimeError, match="belongs inside the block"):
        keys.attempt("k").complete(1)


def test_a_completion_after_another_attempt_began_says_that_the_work_was_done(
    store: ManualStore, client: Client, other: Client, keys: Idempotency
) -> None:
    with pytest.raises(LeaseLost) as ended, keys.attempt("k") as attempt:
        assert attempt.lease is not None
        store.lose(attempt.lease)
        with other.idempotency("pay").attempt("k") as second:
            assert second.abandoned
            second.complete("theirs")
        with pytest.raises(LeaseLost, match="not kept") as late:
            attempt.complete("ours")
        assert late.value.completed
        raise late.value
    assert ended.value.name == NAME
    with keys.attempt("k") as again:
        assert again.result == "theirs"
