"""`client.idempotency` in both faces, on a memory store whose clocks are turned by hand."""

from __future__ import annotations

import asyncio
import logging
import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import (
    AttemptExpired,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    InFlight,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    ResultNotKept,
    UnsupportedCapability,
)
from leasehold._runtimes.threads import run
from leasehold.testing.faults import Faults, _Rule
from leasehold.testing.manual import ManualStore
from leasehold.values import Capability
from tests.waiting import eventually

if TYPE_CHECKING:
    from leasehold._blocking import Client
    from leasehold._blocking.idempotency import Idempotency
    from leasehold.values import Record


@pytest.fixture
def keys(client: Client) -> Idempotency:
    return client.idempotency("charges")


def complete(keys: Idempotency, result: Any = "done", fingerprint: Any = None) -> None:
    with keys.attempt("k", fingerprint) as attempt:
        assert not attempt.replayed
        attempt.complete(result)


def replay(keys: Idempotency) -> Any:
    with keys.attempt("k") as attempt:
        assert attempt.replayed
        return attempt.result


# --- results


def test_a_replay_costs_one_request_and_takes_no_lock(store: ManualStore, keys: Idempotency) -> None:
    complete(keys)
    store.faults.calls.clear()
    with keys.attempt("k") as attempt:
        assert (attempt.replayed, attempt.result, attempt.key) == (True, "done", "k")
        assert (attempt.lease, attempt.fence, attempt.protected) == (None, None, True)
        attempt.check()
        with pytest.raises(RuntimeError, match="replayed already"):
            attempt.complete("another")
    assert store.faults.calls == ["read"]


def test_an_attempt_that_runs_is_six_requests(store: ManualStore, keys: Idempotency) -> None:
    complete(keys)
    assert store.faults.calls == ["read", "try_acquire", "read", "write", "write", "release"]


def test_complete_returns_what_every_replay_will(keys: Idempotency) -> None:
    with keys.attempt("k") as attempt:
        with pytest.raises(RuntimeError, match="no result yet"):
            assert attempt.result
        assert attempt.complete({"ids": (1, 2), 3: None}) == {"ids": [1, 2], "3": None}
        assert attempt.result == {"ids": [1, 2], "3": None}
        with pytest.raises(RuntimeError, match="completed already"):
            attempt.complete("another")
    assert replay(keys) == {"ids": [1, 2], "3": None}


def test_what_was_completed_is_kept_although_the_block_fails_afterwards(keys: Idempotency) -> None:
    with pytest.raises(ZeroDivisionError), keys.attempt("k") as attempt:
        attempt.complete("paid")
        raise ZeroDivisionError
    assert replay(keys) == "paid"


@pytest.mark.parametrize(
    ("result", "why"), [("x" * 101, "103 bytes"), (object(), "JSON value"), (float("nan"), "JSON")]
)
def test_a_result_that_cannot_be_kept_completes_the_key_without_it(client: Client, result: Any, why: str) -> None:
    keys = client.idempotency("charges", max_size=100)
    with pytest.raises(ConfigurationError, match=why), keys.attempt("k") as attempt:
        attempt.complete(result)
    with keys.attempt("k") as again:
        assert again.replayed
        with pytest.raises(ResultNotKept):
            assert again.result


def test_the_payload_is_not_stored(store: ManualStore, keys: Idempotency) -> None:
    complete(keys, "done", {"card": "4242424242424242"})
    record = store.memory.read("leasehold:idempotency:7:charges:k").record
    assert record is not None
    assert b"4242" not in record.value


def test_an_attempt_is_good_for_one_block(keys: Idempotency) -> None:
    attempt = keys.attempt("k")
    with pytest.raises(RuntimeError, match="inside the block"):
        attempt.complete()
    with attempt:
        attempt.complete()
    with pytest.raises(TypeError, match="used up"), attempt:
        pass


# --- in flight, expired


def test_a_key_in_flight_names_its_holder_and_when_to_ask_again(store: ManualStore, keys: Idempotency) -> None:
    with keys.attempt("k") as attempt:
        store.pass_time(7)
        with store.connect() as other, pytest.raises(InFlight) as caught, other.idempotency("charges").attempt("k"):
            pass
        assert caught.value.retry_after == pytest.approx(7)
        assert caught.value.holder is not None
        assert caught.value.holder.label == "first"
        assert caught.value.name == "idempotency:7:charges:k"
        with pytest.raises(ConfigurationError, match="can never pass"):
            attempt.check(need=3600)
        attempt.complete()


def test_an_interrupted_attempt_is_in_doubt_and_not_dropped(client: Client, keys: Idempotency) -> None:
    with pytest.raises(KeyboardInterrupt), keys.attempt("k"):
        raise KeyboardInterrupt
    careful = client.idempotency("charges", on_expired="refuse")
    with pytest.raises(AttemptExpired, match="forget"), careful.attempt("k"):
        pass
    with keys.attempt("k") as again:
        assert again.abandoned
        again.complete()


def test_other_work_is_refused_also_after_the_first_attempt_vanished(keys: Idempotency) -> None:
    with pytest.raises(KeyboardInterrupt), keys.attempt("k", "one"):
        raise KeyboardInterrupt
    with pytest.raises(KeyReused), keys.attempt("k", "two"):
        pass


@pytest.mark.parametrize("nothing", ["", b"", {}, [], 0, False], ids=repr)
@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_a_payload_without_anything_in_it_is_another_than_one_with_something(
    keys: Idempotency, nothing: Any, is_first: bool
) -> None:
    payloads = [nothing, "something"] if is_first else ["something", nothing]
    complete(keys, "done", payloads[0])
    with pytest.raises(KeyReused), keys.attempt("k", payloads[1]):
        pass
    for same in (payloads[0], None):  # None: the caller does not say what it is about
        with keys.attempt("k", same) as again:
            assert again.replayed


@pytest.mark.parametrize(("options", "kept"), [({"keep": "10m"}, 600.0), ({}, 86_400.0)])
def test_inspect_tells_how_old_a_record_is_and_how_long_it_stays(
    store: ManualStore, client: Client, options: Any, kept: float
) -> None:
    keys = client.idempotency("charges", **options)

    def shown() -> tuple[Any, ...]:
        state = keys.inspect("k")
        assert state is not None
        assert (state.scope, state.key) == ("charges", "k")
        return state.state, state.since, state.expires_in

    assert keys.inspect("k") is None
    with keys.attempt("k") as attempt:
        assert shown() == ("in progress", 0.0, pytest.approx(kept))
        store.pass_time(7)
        assert shown() == ("in progress", pytest.approx(7.0), pytest.approx(kept - 7))
        attempt.complete()
        assert shown() == ("completed", pytest.approx(0.0), pytest.approx(kept))
    store.pass_time(60)
    assert shown() == ("completed", pytest.approx(60.0), pytest.approx(kept - 60))
    store.pass_time(kept)
    assert keys.inspect("k") is None


def test_forget_allows_another_attempt_but_not_while_one_runs(client: Client, keys: Idempotency) -> None:
    with keys.attempt("k"), pytest.raises(InFlight):
        keys.forget("k")
    complete(keys, 1)
    assert keys.forget("k") is True
    assert keys.forget("k") is False
    complete(client.idempotency("charges", on_expired="refuse"), 2)


def test_waiting_for_the_one_in_flight_ends_with_in_flight(store: ManualStore, client: Client) -> None:
    with client.idempotency("charges").attempt("k") as attempt, store.clock.running():
        with pytest.raises(InFlight), client.idempotency("charges", wait=0.05).attempt("k"):
            pass
        attempt.complete()


# --- a store that does not answer


def test_an_outage_is_raised_or_let_through(store: ManualStore, client: Client, caplog: Any) -> None:
    closed = client.idempotency("charges", outage_after=0)
    store.faults.refuse_next("read")
    with pytest.raises(BackendUnavailable), closed.attempt("k"):
        pass
    opened = client.idempotency("charges", outage="open", outage_after=0)
    store.faults.refuse_next("read")
    with caplog.at_level(logging.WARNING, "leasehold"), opened.attempt("k") as attempt:
        assert (attempt.protected, attempt.replayed, attempt.lease) == (False, False, None)
        assert attempt.complete((1,)) == [1]
        assert attempt.result == [1]
    assert "without protection" in caplog.text
    with closed.attempt("k") as later:
        assert not later.replayed  # nothing was stored


def test_a_store_that_is_away_is_not_asked_again_where_the_pause_would_outlast_the_time(
    store: ManualStore, client: Client
) -> None:
    keys = client.idempotency("charges", outage_after=0.005)  # the first pause is of 10 ms at least
    store.faults.refuse_next("read")
    with pytest.raises(BackendUnavailable), keys.attempt("k"):
        pass
    assert store.faults.calls == ["read"]


def test_a_store_that_rejects_is_no_outage(store: ManualStore, client: Client) -> None:
    store.faults.reject_next("read")
    with pytest.raises(BackendError, match="an error"), client.idempotency("charges", outage="open").attempt("k"):
        pass


def test_an_attempt_that_could_not_begin_leaves_neither_lock_nor_record(store: ManualStore, client: Client) -> None:
    careful = client.idempotency("charges", on_expired="refuse", outage_after=0)
    store.faults.drop_next_reply("write")
    with pytest.raises(BackendError), careful.attempt("k"):
        pass
    complete(careful)


def test_a_completion_of_unknown_outcome_leaves_the_key_in_doubt(store: ManualStore, client: Client) -> None:
    careful = client.idempotency("charges", on_expired="refuse")
    with store.clock.running(), pytest.raises(BackendError) as caught, careful.attempt("k") as attempt:
        store.faults.reject_next("write")
        attempt.complete("paid")
    assert "may not be stored" in "".join(caught.value.__notes__)
    with pytest.raises(AttemptExpired), careful.attempt("k"):
        pass


def test_a_lost_lease_ends_the_block_with_an_error(store: ManualStore, keys: Idempotency) -> None:
    with pytest.raises(LeaseLost), keys.attempt("k") as attempt:
        store.lose(attempt.lease)  # type: ignore[arg-type]
        with pytest.raises(LeaseLost):
            attempt.check()


class NthFault(Faults):
    """One request, by its number, goes wrong in one way; the store is away from then on for so many more."""

    def __init__(self, number: int, kind: str, length: int) -> None:
        super().__init__()
        self._numbers = range(number, number + length)
        self._kind = kind

    def next_for(self, verb: str) -> Any:
        self.calls.append(verb)
        return _Rule(verb, self._kind) if len(self.calls) in self._numbers else None


@pytest.mark.parametrize("kind", ["drop reply", "drop request", "refuse", "reject"])
@pytest.mark.parametrize("length", [1, 1000])
@pytest.mark.parametrize("number", range(1, 7))
def test_whatever_request_fails_a_result_that_was_confirmed_is_the_only_one(
    number: int, length: int, kind: str
) -> None:
    store = ManualStore()
    healthy = store.faults
    store.faults = NthFault(number, kind, length)
    work: list[int] = []
    confirmed: list[int] = []

    def attempt(client: Client) -> int:
        with client.idempotency("charges", outage_after=0.05).attempt("k", "payload") as attempt:
            if not attempt.replayed:
                work.append(len(work))
                confirmed.append(attempt.complete(work[-1]))
            return attempt.result  # type: ignore[no-any-return]

    with store.clock.running():
        with store.connect(ttl=0.4) as failing:
            failing._twin._connect_timeout = 0.1
            with suppress(BackendError, LeaseLost, InFlight):
                attempt(failing)
        store.faults = healthy
        with store.connect() as client:
            eventually(lambda: client.inspect("idempotency:7:charges:k") is None)
            results = [attempt(client), attempt(client)]
    assert results[0] == results[1]
    assert set(confirmed) <= set(results)
    assert len(work) <= 2


# --- the decorator


def test_a_decorated_function_runs_once_per_key(client: Client) -> None:
    calls: list[Any] = []

    @client.idempotency("charges").once_per("{order}", fingerprint="{amount}")
    def charge(order: str, amount: int, lease: leasehold.Lease | None = None) -> tuple[str, int]:
        assert lease is not None
        calls.append((order, amount))
        return (order, amount)

    assert charge("a", 1) == charge(order="a", amount=1) == ["a", 1]  # type: ignore[comparison-overlap]
    assert charge("b", 1) == ["b", 1]  # type: ignore[comparison-overlap]
    with pytest.raises(KeyReused):
        charge("a", 2)
    assert calls == [("a", 1), ("b", 1)]
    assert charge.__name__ == "charge"


def test_a_decorated_coroutine_runs_once_per_key(store: ManualStore) -> None:
    async def main() -> None:
        calls = 0
        async with store.connect_async() as client:

            @client.idempotency("charges").once_per("{order}")
            async def charge(order: str) -> str:
                nonlocal calls
                calls += 1
                return f"{order} {calls}"

            assert [await charge("a"), await charge("a"), await charge("b")] == ["a 1", "a 1", "b 2"]
            with pytest.raises(ConfigurationError, match="not async"):
                client.idempotency("charges").once_per("{order}")(lambda order: order)

    asyncio.run(main())


def test_a_decorator_checks_its_template_and_its_function(keys: Idempotency) -> None:
    def charge(order: str) -> str:
        return order

    async def charge_later(order: str) -> str:
        return order

    with pytest.raises(ConfigurationError, match="takes order"):
        keys.once_per("{other}")(charge)
    with pytest.raises(ConfigurationError, match="is async"):
        keys.once_per("{order}")(charge_later)


# --- bad input


@pytest.mark.parametrize(
    "options",
    [
        {"keep": 0},
        {"keep": "soon"},
        {"ttl": 0},
        {"wait": -1},
        {"on_expired": "hope"},
        {"outage": "half"},
        {"outage_after": "x"},
        {"max_size": 0},
        {"max_size": True},
    ],
)
def test_bad_options_are_refused_before_any_request(store: ManualStore, client: Client, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        client.idempotency("charges", **options)
    assert store.faults.calls == []


@pytest.mark.parametrize("key", ["", None, 7, "x" * 256, "\ud800"])
def test_bad_keys_are_refused_before_any_request(store: ManualStore, keys: Idempotency, key: Any) -> None:
    with pytest.raises(ConfigurationError, match="idempotency key"):
        keys.attempt(key)
    assert store.faults.calls == []


def test_a_scope_is_short_text(client: Client) -> None:
    for scope in ("", "x" * 129):
        with pytest.raises(ConfigurationError):
            client.idempotency(scope)
    assert client.idempotency("charges").scope == "charges"


def test_a_store_without_records_is_refused_at_once(store: ManualStore) -> None:
    class NoRecords:
        def open_backend(self, runtime: Any) -> Any:
            backend: Any = store.memory.open_backend(runtime)
            backend.capabilities -= {Capability.RECORD}
            return backend

    with leasehold.connect(NoRecords()) as client, pytest.raises(UnsupportedCapability, match="record"):
        client.idempotency("charges")


def test_keys_refuse_pickling_and_have_a_short_form(keys: Idempotency) -> None:
    with pytest.raises(TypeError, match="client"):
        pickle.dumps(keys)
    assert repr(keys) == "<Idempotency 'charges'>"
    with keys.attempt("k") as attempt:
        assert repr(attempt) == "<KeyedAttempt 'idempotency:7:charges:k' open>"
        attempt.complete()
        assert repr(attempt).endswith("completed>")


def test_a_copy_of_the_begin_that_arrives_after_the_result_does_not_undo_it() -> None:
    """The answer to the record that begins the work got lost, and a copy of it is still under way."""
    with ManualStore().connect() as client:
        backend: Any = client._twin._open().backend
        write = backend.write
        late: list[Record] = []

        async def lose_the_first(record: Record) -> bool:
            if late:
                return bool(await write(record))
            late.append(record)
            raise OutcomeUnknown("no answer")

        backend.write = lose_the_first
        keys = client.idempotency("charges")
        runs: list[int | None] = []
        for _ in range(2):
            with keys.attempt("order-42") as attempt:
                if not attempt.replayed:
                    runs.append(attempt.fence)
                    assert not attempt.abandoned, "what it found was its own"
                    attempt.complete("charged")
            run(write(late[0]))
        assert len(runs) == 1
        assert attempt.result == "charged"
