"""`client.cache` in both faces, on a memory store whose clocks are turned by hand."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import AcquireTimeout, events
from leasehold.errors import BackendError, ClientClosed, ConfigurationError, FenceAhead, UnsupportedCapability
from leasehold.testing.manual import ManualStore
from leasehold.values import Capability, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold._blocking import Client
    from leasehold._blocking.cache import Cache

KEY = "leasehold:cache:6:prices:x"


@pytest.fixture
def client(store: ManualStore) -> Iterator[Client]:
    with store.connect(ttl=3600) as client:
        yield client


@pytest.fixture
def other(store: ManualStore) -> Iterator[Client]:
    with store.connect(ttl=3600) as client:
        yield client


class Source:
    """Counts its builds."""

    def __init__(self) -> None:
        self.builds = 0
        self.error: BaseException | None = None
        self.before: Callable[[], object] = lambda: None

    def __call__(self) -> Any:
        self.builds += 1
        self.before()
        if self.error is not None:
            raise self.error
        return {"build": self.builds}


@pytest.fixture
def source() -> Source:
    return Source()


def make(client: Client, **options: Any) -> Cache:
    return client.cache("prices", **{"ttl": 60, "jitter": 0, **options})


def until(condition: Callable[[], object]) -> None:
    for _ in range(4000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen")


class Call:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error

    def join(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.value


# --- when


def test_a_value_is_fresh_for_its_ttl_and_built_again_by_the_next_reader(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    cache = make(client)
    assert cache.get("x", source) == {"build": 1}
    store.clock.advance(59.9)
    assert make(other).get("x", source) == {"build": 1}
    store.clock.advance(0.1)
    assert make(other).get("x", source) == {"build": 2}
    assert cache.get("x", source) == {"build": 2}


def test_a_slow_build_is_begun_early_by_some_draw(store: ManualStore, client: Client, source: Source) -> None:
    source.before = lambda: store.clock.advance(10)
    cache = make(client, beta=100)
    cache.get("x", source)
    store.clock.advance(20)
    assert cache.get("x", source) == {"build": 1}
    store.clock.advance(11)
    until(lambda: cache.get("x", source)["build"] == 2)  # half a minute early, where a build takes 10 and beta is 100
    never = make(client, beta=0)
    store.clock.advance(40)
    for _ in range(100):
        assert never.get("x", source) == {"build": source.builds}


def test_jitter_ends_values_early_that_were_made_together(store: ManualStore, client: Client, source: Source) -> None:
    cache = make(client, jitter=1, stale=0)
    for number in range(20):
        cache.get(str(number), source)
    store.clock.advance(30)
    for number in range(20):
        cache.get(str(number), source)
    assert 20 < source.builds < 40


def test_a_value_that_expired_long_ago_is_not_given_out(store: ManualStore, client: Client, source: Source) -> None:
    cache = make(client, stale=10)
    cache.get("x", source)
    store.clock.advance(70.1)
    assert cache.get("x", source) == {"build": 2}


# --- who


def test_a_reader_who_comes_while_another_process_builds_gets_the_present_value(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    cache, theirs = make(client), make(other)
    cache.get("x", source)
    store.clock.advance(61)
    seen: list[Any] = []
    source.before = lambda: seen.extend([theirs.get("x", source), cache.get("x", source)])
    assert cache.get("x", source) == {"build": 2}
    assert seen == [{"build": 1}, {"build": 1}]


def test_who_gets_the_lock_reads_again_and_does_not_build_twice(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    cache, theirs = make(client), make(other)
    cache.get("x", source)
    store.clock.advance(61)
    lock = theirs._twin._client.lock
    built: list[Any] = []

    def late_lock(name: str, **options: Any) -> Any:
        if not built:
            built.append(cache.get("x", source))  # between the other's look and its try-lock
        return lock(name, **options)

    theirs._twin._client.lock = late_lock  # type: ignore[method-assign]
    assert theirs.get("x", source) == {"build": 2}
    assert source.builds == 2


def test_first_callers_on_many_threads_and_two_clients_share_one_build(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    go = threading.Event()
    source.before = lambda: go.wait(30)
    cache, theirs = make(client), make(other)
    calls = [Call(lambda: cache.get("x", source))]
    until(lambda: source.builds == 1)
    calls += [Call(lambda: cache.get("x", source)) for _ in range(5)]
    calls += [Call(lambda: theirs.get("x", source)) for _ in range(5)]
    until(lambda: _waiting(store) == 1 and _sharing(client) == 5 and _sharing(other) == 4)
    go.set()
    values = [call.join() for call in calls]
    assert values == [{"build": 1}] * 11
    assert len({id(value) for value in values}) == 11, "nobody changes what another has"
    assert not client._twin._open().builds


def _waiting(store: ManualStore) -> int:
    states = store.memory.list("")
    return len(states[0].waiting) if states else 0


def _sharing(client: Client) -> int:
    return sum(len(build.signals) for build in client._twin._open().builds.values())


def test_an_error_of_the_build_is_raised_to_all_who_share_it(client: Client, source: Source) -> None:
    go = threading.Event()
    source.before = lambda: go.wait(30)
    source.error = LookupError("no such price")
    cache = make(client)
    calls = [Call(lambda: cache.get("x", source))]
    until(lambda: source.builds == 1)
    calls += [Call(lambda: cache.get("x", source)) for _ in range(3)]
    until(lambda: _sharing(client) == 3)
    go.set()
    for call in calls:
        with pytest.raises(LookupError, match="no such price"):
            call.join()
    assert source.builds == 1
    source.error = None
    assert cache.get("x", source) == {"build": 2}


def test_when_the_builder_is_interrupted_one_who_waited_builds(client: Client, source: Source) -> None:
    go = threading.Event()
    source.before = lambda: go.wait(30)
    source.error = KeyboardInterrupt()
    cache = make(client)
    first = Call(lambda: cache.get("x", source))
    until(lambda: source.builds == 1)
    waiting = Call(lambda: cache.get("x", lambda: "built by the other"))
    until(lambda: _sharing(client) == 1)
    go.set()
    with pytest.raises(KeyboardInterrupt):
        first.join()
    assert waiting.join() == "built by the other"
    assert client.inspect("cache:6:prices:x") is None


def test_a_caller_without_a_value_waits_no_longer_than_its_timeout(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    go = threading.Event()
    source.before = lambda: go.wait(30)
    building = Call(lambda: make(client).get("x", source))
    until(lambda: source.builds == 1)
    sharing = Call(lambda: make(client, timeout=5).get("x", source))
    waiting = Call(lambda: make(other, timeout=5).get("x", source))
    until(lambda: _sharing(client) == 1 and _waiting(store) == 1)
    store.clock.advance(5.1)
    for call in (sharing, waiting):
        with pytest.raises(AcquireTimeout, match="prices") as raised:
            call.join()
        assert raised.value.waited == pytest.approx(5.1)
        assert raised.value.name == "cache:6:prices:x"
    go.set()
    assert building.join() == {"build": 1}


def test_a_build_that_asks_for_itself_is_refused(client: Client) -> None:
    cache = make(client)
    with pytest.raises(ConfigurationError, match="very value"):
        cache.get("x", lambda: cache.get("x", lambda: 1))


def test_closing_the_client_ends_those_who_wait(client: Client, source: Source) -> None:
    go = threading.Event()
    source.before = lambda: go.wait(30)
    cache = make(client)
    building = Call(lambda: cache.get("x", source))
    until(lambda: source.builds == 1)
    sharing = Call(lambda: cache.get("x", source))
    until(lambda: _sharing(client) == 1)
    with pytest.warns(ResourceWarning, match="cache:6:prices:x"):
        client.close()
    with pytest.raises(ClientClosed):
        sharing.join()
    go.set()
    assert building.join() == {"build": 1}, "what is built is given out, stored or not"


# --- fences


def test_a_late_fill_is_refused_and_the_builder_gets_what_is_there(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)

    def pause() -> None:
        source.before = lambda: None
        store.memory.release(_grant(store, client))  # as if its ttl had passed while it was paused
        assert make(other).get("x", lambda: "newer") == "newer"

    source.before = pause
    assert make(client).get("x", source) == "newer"
    assert make(other).get("x", source) == "newer"
    refused = [event for event in seen if isinstance(event, events.FillRefused)]
    assert [(event.name, event.fence > 0) for event in refused] == [("cache:6:prices:x", True)]


def _grant(store: ManualStore, client: Client) -> Any:
    (tenure,) = client._twin._open().keeper.tenures()
    return tenure.grant


def test_a_forget_during_a_build_is_not_undone_by_it_nor_by_those_who_share_it(
    client: Client, other: Client, source: Source
) -> None:
    go = threading.Event()
    source.before = lambda: go.wait(30)
    cache = make(client)
    building = Call(lambda: cache.get("x", source))
    until(lambda: source.builds == 1)
    make(other).forget("x")
    later = Call(lambda: cache.get("x", lambda: "after"))
    until(lambda: len(other.inspect("cache:6:prices:x").waiting) == 1)  # type: ignore[union-attr]
    go.set()
    assert building.join() == {"build": 1}
    assert later.join() == "after", "who asks after the forget gets nothing older"
    assert cache.get("x", source) == "after"


def test_put_is_read_by_all_and_lives_for_the_ttl(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    make(client, stale=0).put("x", [1, None])
    assert make(other, stale=0).get("x", source) == [1, None]
    store.clock.advance(60)
    assert make(other, stale=0).get("x", source) == {"build": 1}


def test_a_value_lives_for_its_ttl_from_the_end_of_its_build(
    store: ManualStore, client: Client, source: Source
) -> None:
    source.before = lambda: store.clock.advance(50)
    cache = make(client, beta=0)
    cache.get("x", source)
    store.clock.advance(59.9)
    assert cache.get("x", source) == {"build": 1}


def test_a_value_that_was_put_is_built_as_early_as_the_one_before_it(
    store: ManualStore, client: Client, source: Source
) -> None:
    source.before = lambda: store.clock.advance(10)
    cache = make(client, beta=100)
    cache.get("x", source)
    cache.put("x", {"build": 0})
    store.clock.advance(31)
    until(lambda: cache.get("x", source)["build"] == 2)


def test_a_value_that_was_put_serves_after_an_error_for_as_long_as_one_that_was_built(
    store: ManualStore, client: Client, source: Source
) -> None:
    cache = make(client, stale=10, stale_if_error=1000)
    cache.put("x", "put")
    store.clock.advance(500)
    source.error = LookupError()
    assert cache.get("x", source) == "put"


def test_after_a_put_a_build_that_failed_before_it_holds_nobody_off(
    store: ManualStore, client: Client, source: Source
) -> None:
    cache = make(client, ttl=0.4)
    cache.get("x", source)
    store.clock.advance(0.5)
    source.error = LookupError()
    assert cache.get("x", source) == {"build": 1}
    cache.put("x", "put")
    store.clock.advance(0.5)
    source.error = None
    assert cache.get("x", source) == {"build": 3}


def test_keys_whose_builds_failed_long_ago_are_forgotten(
    store: ManualStore, client: Client, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold._patterns.cache_build.MANY", 1)
    cache = make(client)
    for key in ("x", "y"):
        cache.get(key, source)
    store.clock.advance(61)
    source.error = LookupError()
    for key in ("x", "y"):
        assert cache.get(key, source) in ({"build": 1}, {"build": 2})
        store.clock.advance(2)
    assert list(cache._twin._hold_off) == ["leasehold:cache:6:prices:y"]


def test_a_refresh_waits_no_longer_than_the_timeout_of_the_cache(
    store: ManualStore, client: Client, other: Client, source: Source
) -> None:
    go = threading.Event()
    source.before = lambda: go.wait(30)
    building = Call(lambda: make(client).get("x", source))
    until(lambda: source.builds == 1)
    refreshing = Call(lambda: make(other, timeout=5).refresh("x", lambda: 1))
    until(lambda: _waiting(store) == 1)
    store.clock.advance(5.1)
    with pytest.raises(AcquireTimeout, match="prices"):
        refreshing.join()
    go.set()
    building.join()


def test_forget_drops_stale_values_too(store: ManualStore, client: Client, source: Source) -> None:
    cache = make(client, stale_if_error=3600)
    cache.get("x", source)
    cache.forget("x")
    source.error = LookupError()
    with pytest.raises(LookupError):
        cache.get("x", source)


def test_refresh_raises_the_error_of_its_build_and_leaves_the_value(client: Client, source: Source) -> None:
    cache = make(client)
    cache.get("x", source)
    source.error = LookupError()
    with pytest.raises(LookupError):
        cache.refresh("x", source)
    assert cache.get("x", source) == {"build": 1}
    source.error = None
    assert cache.refresh("x", source) == {"build": 3}


def test_a_store_whose_fences_went_back_is_an_error_and_not_a_loop(store: ManualStore, client: Client) -> None:
    store.memory.write(Record(KEY, b"{}\n", 2**50, 3600.0))
    with pytest.raises(FenceAhead, match=rf"leasehold fence raise cache:6:prices:x {2**50} ") as ahead:
        make(client).get("x", lambda: 1)
    assert ahead.value.highest == 2**50
    assert ahead.value.fence is not None
    assert ahead.value.fence < 2**50
    assert f"stored under fence {2**50}, and its lock gives out {ahead.value.fence}" in str(ahead.value)
    client.raise_fence("cache:6:prices:x", 2**50, reason="a test")
    assert make(client).get("x", lambda: 1) == 1


# --- errors


def test_a_failed_build_gives_the_stale_value_a_warning_and_a_pause(
    store: ManualStore, client: Client, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    cache = make(client)
    cache.get("x", source)
    store.clock.advance(61)
    source.error = LookupError("with a password in it")
    with caplog.at_level(logging.WARNING, "leasehold"):
        assert cache.get("x", source) == {"build": 1}
    assert "LookupError" in caplog.text
    assert "password" not in caplog.text
    assert [event.served for event in seen if isinstance(event, events.BuildFailed)] == [True]
    assert cache.get("x", source) == {"build": 1}
    assert source.builds == 2, "it is not tried again at once"
    store.clock.advance(1.1)
    source.error = None
    assert cache.get("x", source) == {"build": 3}


def test_stale_if_error_may_be_longer_than_stale_or_nothing(store: ManualStore, client: Client, source: Source) -> None:
    cache, strict = make(client, stale=10, stale_if_error=1000), make(client, stale=10, stale_if_error=0)
    cache.get("x", source)
    store.clock.advance(500)
    source.error = LookupError()
    assert cache.get("x", source) == {"build": 1}
    assert cache.get("x", source) == {"build": 1}
    assert source.builds == 2
    store.clock.advance(2)
    with pytest.raises(LookupError):
        strict.get("x", source)
    store.clock.advance(600)
    with pytest.raises(LookupError):
        cache.get("x", source)


def test_without_stale_if_error_a_value_serves_after_an_error_for_as_long_as_it_is_stale(
    store: ManualStore, client: Client, source: Source
) -> None:
    cache = make(client, stale=10)
    cache.get("x", source)
    source.error = LookupError()
    store.clock.advance(69)
    assert cache.get("x", source) == {"build": 1}
    store.clock.advance(1.5)
    with pytest.raises(LookupError):
        cache.get("x", source)


def test_a_value_that_runs_out_while_its_build_fails_is_not_given_out(
    store: ManualStore, client: Client, source: Source
) -> None:
    cache = make(client, stale=10)
    cache.get("x", source)
    store.clock.advance(65)
    source.before, source.error = lambda: store.clock.advance(6), LookupError()
    with pytest.raises(LookupError):
        cache.get("x", source)


def test_a_build_is_reported_with_its_fence_and_its_time(store: ManualStore, client: Client, source: Source) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    source.before = lambda: store.clock.advance(3)
    make(client).get("x", source)
    (built,) = [event for event in seen if isinstance(event, events.Built)]
    (acquired,) = [event for event in seen if isinstance(event, events.Acquired)]
    assert (built.name, built.fence) == ("cache:6:prices:x", acquired.fence)
    assert built.took == pytest.approx(3)


def test_an_error_while_the_value_is_fresh_is_no_trouble_for_anybody(
    store: ManualStore, client: Client, source: Source
) -> None:
    source.before = lambda: store.clock.advance(10)
    cache = make(client, beta=100, stale=0, stale_if_error=0)
    cache.get("x", source)
    store.clock.advance(31)
    source.before = lambda: None
    source.error = LookupError()
    until(lambda: cache.get("x", source) == {"build": 1} and source.builds > 1)


def test_a_store_that_fails_costs_nothing_while_there_is_a_value(
    store: ManualStore, client: Client, source: Source
) -> None:
    cache = make(client)
    cache.get("x", source)
    store.clock.advance(61)
    store.faults.reject_next("try_acquire")
    assert cache.get("x", source) == {"build": 1}
    assert source.builds == 1


def test_what_could_not_be_stored_is_given_out_with_a_warning(
    store: ManualStore, client: Client, source: Source
) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    source.before = lambda: store.faults.reject_next("write")
    assert make(client).get("x", source) == {"build": 1}
    assert any(isinstance(event, events.FillFailed) for event in seen)


def test_a_value_that_is_too_large_is_given_out_and_not_stored(client: Client) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    cache = make(client, max_size=10)
    assert cache.get("x", lambda: "x" * 100) == "x" * 100
    assert cache.get("x", lambda: "short") == "short"
    assert [event.reason for event in seen if isinstance(event, events.FillFailed)] == [
        "102 bytes are more than max_size=10"
    ]
    with pytest.raises(ConfigurationError, match="max_size"):
        cache.put("x", "x" * 100)
    cache.put("x", "8 bytes.")  # and two quotes
    assert cache.get("x", lambda: "other") == "8 bytes."
    assert cache.get("y", lambda: "8 bytes.") == cache.get("y", lambda: "other")


def test_a_value_that_cannot_be_read_is_built_again(store: ManualStore, client: Client, source: Source) -> None:
    store.memory.write(Record(KEY, b"somebody else's", 0, 3600.0))
    assert make(client).get("x", source) == {"build": 1}
    strange = make(client, encode=lambda value: b"\xff" + repr(value).encode(), decode=lambda data: data[1:].decode())
    strange.put("x", 7)
    assert strange.get("x", source) == "7"
    assert make(client).get("x", source) == {"build": 2}


# --- values and options


def test_all_callers_get_what_the_encoding_makes_of_a_value(client: Client) -> None:
    cache = make(client)
    assert cache.get("x", lambda: (1, 2)) == [1, 2], "also the one that built it"  # type: ignore[comparison-overlap]
    assert cache.get("x", lambda: (1, 2)) == [1, 2]  # type: ignore[comparison-overlap]
    assert cache.get("none", lambda: None) is None
    assert cache.get("none", lambda: 1) is None, "None is a value"


def test_what_json_cannot_express_is_an_error_that_tells_what_to_do(client: Client) -> None:
    with pytest.raises(TypeError) as caught:
        make(client).get("x", object)
    assert "encode=" in caught.value.__notes__[0]


def test_the_stored_record_holds_json_and_nothing_of_the_holder(store: ManualStore, client: Client) -> None:
    make(client).get("x", lambda: {"price": "7 €"})
    record = store.memory.read(KEY, 0).record
    assert record is not None
    head, payload = record.value.split(b"\n")
    assert json.loads(payload) == {"price": "7 €"}
    assert set(json.loads(head)) == {"form", "expires", "took", "fence"}


def test_names_and_keys_that_read_the_same_when_joined_are_different_values(client: Client) -> None:
    client.cache("a:b").put("c", 1)
    client.cache("a").put("b:c", 2)
    assert client.cache("a:b").get("c", lambda: 0) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": 0},
        {"stale": -1},
        {"stale_if_error": "soon"},
        {"beta": -1},
        {"beta": float("nan")},
        {"jitter": 1.5},
        {"jitter": True},
        {"lock_ttl": 0},
        {"timeout": -1},
        {"max_size": 0},
        {"max_size": 1.5},
        {"encode": repr},
        {"encode": pickle.dumps, "decode": pickle.loads},
    ],
)
def test_bad_options_are_refused_before_any_question(store: ManualStore, client: Client, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        make(client, **options)
    assert store.faults.calls == []


@pytest.mark.parametrize("key", ["", 7, "k" * 513])
def test_bad_keys_are_refused_before_any_question(store: ManualStore, client: Client, key: Any) -> None:
    cache = make(client)
    for call in (lambda: cache.get(key, lambda: 1), lambda: cache.put(key, 1), lambda: cache.forget(key)):
        with pytest.raises(ConfigurationError):
            call()
    assert store.faults.calls == []


def test_an_encoder_that_gives_text_is_refused(client: Client) -> None:
    cache = make(client, encode=str, decode=str)
    with pytest.raises(ConfigurationError, match="bytes"):
        cache.get("x", lambda: 1)


def test_a_store_without_records_is_refused_at_once(store: ManualStore) -> None:
    class NoRecords:
        def open_backend(self, runtime: Any) -> Any:
            backend: Any = store.memory.open_backend(runtime)
            backend.capabilities -= {Capability.RECORD}
            return backend

    with leasehold.connect(NoRecords()) as client, pytest.raises(UnsupportedCapability, match="record"):
        client.cache("prices")


def test_a_cache_refuses_pickling_and_has_a_name(client: Client) -> None:
    cache = make(client)
    assert (cache.name, repr(cache)) == ("prices", "<Cache 'prices' ttl=60>")
    with pytest.raises(TypeError, match="client"):
        pickle.dumps(cache)


# --- decorators and the async face


def test_the_decorator_makes_keys_from_arguments(client: Client) -> None:
    calls: list[str] = []

    class Shop:
        number = 1

        @make(client).cached("{self.number}:{sku}")
        def price(self, sku: str, *, net: bool = True) -> int:
            """What it costs."""
            calls.append(sku)
            return len(calls)

    shop = Shop()
    assert [shop.price("a"), shop.price("a"), shop.price("b")] == [1, 1, 2]
    assert shop.price.__doc__ == "What it costs."
    assert shop.price.key("a") == "1:a"
    assert shop.price.refresh("a") == 3
    shop.price.forget("b")
    assert [shop.price("a"), shop.price("b")] == [3, 4]
    assert "price of 'prices'" in repr(shop.price)


def test_the_wrong_kind_of_function_is_refused(store: ManualStore, client: Client) -> None:
    async def late() -> int:
        return 1

    cache: Any = make(client)
    with pytest.raises(ConfigurationError, match="async"):
        cache.cached("x")(late)
    with pytest.raises(ConfigurationError, match="async"):
        cache.get("x", late)
    with pytest.raises(ConfigurationError, match="sku"):
        cache.cached("{sku}")(lambda: None)

    async def story() -> None:
        async with store.connect_async() as other:
            with pytest.raises(ConfigurationError, match="async"):
                other.cache("prices").cached("x")(lambda: 1)  # type: ignore[arg-type,return-value]
            with pytest.raises(ConfigurationError, match="async"):
                await other.cache("prices").get("x", lambda: 1)  # type: ignore[arg-type,return-value]

    asyncio.run(story())


def test_the_async_face_does_the_same(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async() as client:
            cache = client.cache("prices", ttl=60, jitter=0)
            calls: list[str] = []

            @cache.cached("{sku}")
            async def price(sku: str) -> int:
                calls.append(sku)
                return len(calls)

            assert [await price("a"), await price("a"), await price("b")] == [1, 1, 2]
            assert await price.refresh("a") == 3
            await price.forget("b")
            assert [await price("a"), await price("b")] == [3, 4]
            await cache.put("a", 9)
            assert await price("a") == 9
            assert "price of 'prices'" in repr(price)

    asyncio.run(story())


def test_tasks_share_one_build_and_a_cancelled_one_does_not_end_it(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async(ttl=3600) as client:
            cache = client.cache("prices")
            go, builds = asyncio.Event(), []

            async def build() -> str:
                builds.append(1)
                await go.wait()
                return "built"

            tasks = [asyncio.create_task(cache.get("x", build)) for _ in range(10)]
            while sum(len(build.signals) for build in client._open().builds.values()) < 9:
                await asyncio.sleep(0.001)
            tasks[5].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[5]
            go.set()
            assert await asyncio.gather(*tasks[:5], *tasks[6:]) == ["built"] * 9
            assert len(builds) == 1

    asyncio.run(story())


def test_a_cancelled_builder_leaves_the_lock_free_and_another_builds(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async(ttl=3600) as client:
            cache = client.cache("prices")

            async def build() -> str:
                await asyncio.sleep(3600)
                return "never"

            async def quick() -> str:
                return "quick"

            builder = asyncio.create_task(cache.get("x", build))
            while await client.inspect("cache:6:prices:x") is None:
                await asyncio.sleep(0.001)
            waiter = asyncio.create_task(cache.get("x", quick))
            while not sum(len(build.signals) for build in client._open().builds.values()):
                await asyncio.sleep(0.001)
            builder.cancel()
            began = store.clock.now()
            with pytest.raises(asyncio.CancelledError):
                await builder
            assert await waiter == "quick"
            assert store.clock.now() - began < 3600, "the lock was kept for its ttl"
            assert await client.inspect("cache:6:prices:x") is None

    asyncio.run(story())


def test_an_error_of_the_store_is_raised_where_there_is_nothing_to_give_out(
    store: ManualStore, client: Client, source: Source
) -> None:
    store.faults.reject_next("read")
    with pytest.raises(BackendError):
        make(client).get("x", source)
    store.faults.reject_next("join")
    with pytest.raises(BackendError):
        make(client).get("x", source)
    assert source.builds == 0
