"""What the patterns do when nothing is said, that what is said arrives, and what is told of it."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    AcquireTimeout,
    BackendRejected,
    ConfigurationError,
    IdempotencyMiddleware,
    LeaseLost,
    connect_async,
    events,
)
from leasehold._core.validity import margin
from leasehold._log import INFO, WARNING
from leasehold._patterns.cache import _checked, _number
from leasehold._patterns.cache_build import HOLD_OFF, ROUNDS
from leasehold._patterns.election import check_timings
from leasehold._patterns.partitions import _retry_seconds
from leasehold._patterns.term import Timings
from leasehold._runtimes.threads import run
from leasehold.testing.manual import ManualStore
from leasehold.values import Record
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._blocking import Client

DAY = 86_400


# --- what counts when nothing is said


def test_a_cache_without_options_keeps_values_for_ten_minutes(client: Client) -> None:
    policy = client.cache("prices")._twin._policy
    assert (policy.ttl, policy.stale, policy.stale_if_error) == (600, 600, 600)
    assert (policy.beta, policy.jitter, policy.max_size) == (1.0, 0.1, 500_000)
    assert policy.longest_stale == 600
    given = client.cache("prices", ttl=60, stale=5, stale_if_error=900)._twin._policy
    assert (given.stale, given.stale_if_error, given.longest_stale) == (5, 900, 900)
    assert client.cache("prices", ttl=60, stale=7)._twin._policy.stale_if_error == 7
    assert (HOLD_OFF, ROUNDS) == (1.0, 3)
    with pytest.raises(ConfigurationError, match="beta must be a number from 0 to 100"):
        client.cache("prices", beta=101)
    with pytest.raises(ConfigurationError, match="jitter must be a number from 0 to 1"):
        client.cache("prices", jitter=1.01)


def test_keys_without_options_are_replayed_for_a_day_and_refused_in_an_outage(client: Client) -> None:
    keys = client.idempotency("charges")._twin
    assert (keys._keep, keys._wait, keys._on_expired, keys._max_size) == (DAY, 0.0, "run", 65_536)
    assert (keys._outage, keys._outage_after, keys._ttl) == ("closed", 2.0, 30)


def test_a_job_without_options_is_skipped_by_others_and_left_open_by_a_failure(client: Client) -> None:
    job = client.once("job", every="1d")._twin
    assert (job._on_conflict, job._on_failure, job._keep, job._timeout) == ("skip", "open", 0.0, ...)
    assert job._slots.at(0.0).label == "1970-01-01T00:00:00+00:00"


def test_an_election_without_options_has_the_timings_of_client_go(client: Client) -> None:
    assert client.election("x")._twin._timings == Timings(15.0, 10.0, 2.0)
    given = client.election("x", ttl=30, renew_deadline=20, retry=5)._twin
    assert given._timings == Timings(30.0, 20.0, 5.0)
    assert given._lock.ttl == 30
    observation = given.observe()
    assert (observation._every, observation._jitter) == (5.0, 1.2)


def test_a_share_without_options_looks_ten_times_in_a_ttl_and_waits_for_one(client: Client) -> None:
    share = client.partitions("orders")._twin
    assert (share.count, share._retry, share._grace) == (64, 3.0, 30.0)
    given = client.partitions("orders", 5, ttl=10, retry=4, grace=0)._twin
    assert (given.count, given._retry, given._grace, given._members_lock.ttl) == (5, 4.0, 0.0, 10.0)
    assert given._members_lock._spec.capacity == 500


@pytest.mark.parametrize(("given", "seconds"), [(None, 3.0), ("10s", 10.0), (30, 30.0), (0.001, 0.001)])
def test_how_often_a_member_looks(given: Any, seconds: float) -> None:
    assert _retry_seconds(given, 30.0) == seconds


def test_the_middleware_without_options_protects_post_and_patch() -> None:
    async def app(*_: object) -> None:
        """Never called."""

    made: Any = IdempotencyMiddleware(app, connect_async("memory://").idempotency("shop"), principal=None)
    assert made._methods == {"POST", "PATCH"}
    assert (made._required, made._applies) == (True, None)
    assert (made._max_request, made._max_response) == (1_048_576, 65_536)
    assert made._keep_headers == {
        b"content-type", b"content-encoding", b"content-language", b"etag", b"last-modified", b"link", b"location",
        b"vary",
    }  # fmt: skip
    assert made._route({"path": "/charge"}) == "/charge"
    payloads = {made._fingerprint({"query_string": query}, body) for query, body in ((b"a", b"b"), (b"", b"ab"))}
    assert len({*payloads, made._fingerprint({}, b"b")}) == 3, "a query is a part of the payload, and not of the body"
    with pytest.raises(ConfigurationError, match="max_response_size"):
        IdempotencyMiddleware(app, made._keys, principal=None, max_response_size=-1)
    with pytest.raises(ConfigurationError, match="max_request_size"):
        IdempotencyMiddleware(app, made._keys, principal=None, max_request_size=True)


# --- what is said arrives


def held_by(client: Client, use: Callable[[], object]) -> list[tuple[str, str | None]]:
    """The locks that were taken, with their groups."""
    seen: list[tuple[str, str | None]] = []
    stop = client.on_event(
        lambda event: seen.append((event.name, event.group)) if isinstance(event, events.Acquired) else None
    )
    use()
    stop()
    return seen


def test_the_locks_of_patterns_have_groups_of_few_values(client: Client) -> None:
    def complete() -> None:
        with client.idempotency("charges").attempt("k") as attempt:
            attempt.complete()

    def lead(**options: Any) -> None:
        with client.election("boss", **options).lead():
            """That is enough."""

    def share() -> None:
        with client.partitions("orders", 1):
            """That is enough."""

    long = "n" * 300
    uses: tuple[tuple[Callable[[], object], list[tuple[str, str | None]]], ...] = (
        (lambda: client.cache("prices").get("x", lambda: 1), [("cache:6:prices:x", "cache:prices")]),
        (lambda: client.cache(long).put("x", 1), [(f"cache:300:{long}:x", f"cache:{long}"[:256])]),
        (complete, [("idempotency:7:charges:k", "idempotency:charges")]),
        (lambda: client.once("job", slot="a").run(lambda: 1), [("job", "job")]),
        (lambda: client.once("job", slot="b", group="jobs").run(lambda: 1), [("job", "jobs")]),
        (lambda: client.once("report:{user}", slot="c")(lambda user: user)(7), [("report:7", "report:{user}")]),
        (lead, [("boss", None)]),
        (lambda: lead(group="bosses"), [("boss", "bosses")]),
        (share, [("orders/members", "orders"), ("orders/0", "orders")]),
    )
    for use, expected in uses:
        assert held_by(client, use) == expected


def test_the_ttl_and_the_reason_of_a_pattern_are_those_of_its_lock(client: Client, other: Client) -> None:
    def told(name: str) -> tuple[float, str | None]:
        state = other.inspect(name)
        assert state is not None
        (holding,) = state.holdings
        return holding.expires_in, holding.holder.reason

    seen: list[Any] = []
    client.cache("prices", lock_ttl=7).get("x", lambda: seen.append(told("cache:6:prices:x")))
    with client.idempotency("charges", ttl=8).attempt("k") as attempt:
        seen.append(told("idempotency:7:charges:k"))
        attempt.complete()
    client.once("job", slot="x", ttl=9, reason="why").run(lambda: seen.append(told("job")))
    with client.partitions("orders", 1, ttl=11, reason="because"):
        seen.extend([told("orders/members"), told("orders/0")])
    assert seen == [(7, None), (8, None), (9, "why"), (11, "because"), (11, "because")]


def test_a_job_waits_in_standby_for_as_long_as_was_said(store: ManualStore, client: Client, other: Client) -> None:
    with client.once("job", slot="x").attempt():
        began = store.clock.now()
        with pytest.raises(AcquireTimeout):
            other.once("job", slot="x", on_conflict="standby", timeout=7).run(lambda: 1)
        assert store.clock.now() - began == pytest.approx(7, abs=0.5)


@pytest.mark.parametrize("state", ["completed", "in progress"])
def test_a_key_is_remembered_for_as_long_as_was_said(store: ManualStore, client: Client, state: str) -> None:
    """Also one whose attempt vanished: while it is remembered, `on_expired` decides."""
    keys = client.idempotency("charges", keep="3d", on_expired="refuse")
    with pytest.raises(KeyboardInterrupt), keys.attempt("k") as attempt:
        if state == "completed":
            attempt.complete("done")
        raise KeyboardInterrupt
    record = store.memory.read("leasehold:idempotency:7:charges:k").record
    assert record is not None
    assert record.ttl == pytest.approx(3 * DAY)
    found = keys.inspect("k")
    assert found is not None
    assert found.state == state


@pytest.mark.parametrize("after", [0, 5])
def test_the_age_of_a_key_is_that_of_the_stores_clock(store: ManualStore, client: Client, after: float) -> None:
    store.set_wall(datetime(2026, 11, 15, 12, tzinfo=UTC))
    keys = client.idempotency("charges")
    with keys.attempt("k") as attempt:
        store.clock.advance(3)
        found = keys.inspect("k")
        assert found is not None
        assert found.since == pytest.approx(3)
        attempt.complete()
    store.clock.advance(after)
    found = keys.inspect("k")
    assert found is not None
    assert found.since == pytest.approx(after)
    assert found.expires_in == pytest.approx(DAY - after)
    assert keys.inspect("other") is None


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [(0, True), (100, True), (0.5, True), (100.1, False), (-0.1, False), (True, False), ("1", False)],
)
def test_a_number_has_its_bounds(value: Any, is_taken: bool) -> None:
    if is_taken:
        assert _number(value, "beta", 0, 100) == value
        return
    with pytest.raises(ConfigurationError, match="beta must be a number from 0 to 100"):
        _number(value, "beta", 0, 100)


@pytest.mark.parametrize("module", ["pickle", "_pickle", "marshal"])
def test_what_can_run_code_in_a_reader_is_no_encoding(module: str) -> None:
    def dumps(_: object) -> bytes:
        return b""

    dumps.__module__ = module
    with pytest.raises(ConfigurationError, match="does not take pickle"):
        _checked(dumps)


# --- caches


def test_a_draw_of_nothing_is_a_draw(store: ManualStore, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers are from 0 up to 1, and there is no logarithm of 0."""
    cache = client.cache("prices", ttl=60, jitter=0)
    cache.put("x", 7)
    store.clock.advance(40)
    monkeypatch.setattr("leasehold._runtimes.threads.ThreadRuntime.random", lambda _: 0.0)
    assert cache.get("x", lambda: 8) == 7


def test_who_shares_a_build_does_not_get_the_timeout_of_the_one_that_led_it() -> None:
    store, values = ManualStore(autojump=None), list[Any]()
    with store.connect() as client, store.connect() as other:
        lease = other.lock("cache:6:prices:x").acquire()

        def get(timeout: float) -> None:
            values.append(_caught(lambda: client.cache("prices", timeout=timeout).get("x", lambda: timeout)))

        leading, sharing = (threading.Thread(target=get, args=[timeout]) for timeout in (5, 500))
        leading.start()
        eventually(lambda: (state := other.inspect("cache:6:prices:x")) is not None and state.waiting)
        sharing.start()
        eventually(lambda: [build for build in client._twin._open().builds.values() if build.signals])
        store.clock.advance(5.1)
        leading.join()
        lease.release()
        sharing.join()
    assert isinstance(values[0], AcquireTimeout)
    assert values[1:] == [500]


def _caught(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except AcquireTimeout as error:
        return error


def test_a_value_that_another_built_and_that_has_expired_since_is_built_again(
    store: ManualStore, client: Client, other: Client
) -> None:
    cache = client.cache("prices", ttl=60, jitter=0, stale=0)
    lock = cache._twin._client.lock
    built: list[Any] = []

    def late_lock(name: str, **options: Any) -> Any:
        if not built:
            built.append(other.cache("prices", ttl=60, jitter=0).get("x", lambda: "theirs"))
            store.clock.advance(61)
        return lock(name, **options)

    cache._twin._client.lock = late_lock  # type: ignore[method-assign]
    assert cache.get("x", lambda: "ours") == "ours"


def test_a_builder_that_was_late_gives_out_its_own_value_where_the_newer_one_is_gone(
    store: ManualStore, client: Client, other: Client
) -> None:
    def build() -> str:
        (tenure,) = client._twin._open().keeper.tenures()
        store.memory.release(tenure.grant)  # as if its ttl had passed
        other.cache("prices", ttl=1, jitter=0, stale=0, stale_if_error=60).put("x", "newer")
        store.clock.advance(2)
        return "late"

    assert client.cache("prices", ttl=1, jitter=0, stale=0, stale_if_error=60).get("x", build) == "late"


def test_each_read_of_a_cache_is_told_once(client: Client, other: Client) -> None:
    seen: list[str] = []
    client.on_event(lambda event: seen.append(event.found) if isinstance(event, events.CacheRead) else None)
    cache = client.cache("prices")
    with pytest.raises(KeyboardInterrupt):
        cache.get("x", _interrupt)
    go = threading.Event()
    calls = [
        threading.Thread(target=lambda: _caught_interrupt(lambda: cache.get("x", lambda: (go.wait(30), _interrupt()))))
    ]
    calls[0].start()
    eventually(lambda: len(seen) == 2)
    calls.append(threading.Thread(target=lambda: cache.get("x", lambda: 1)))  # shares, and has to look again
    calls[1].start()
    eventually(lambda: [build for build in client._twin._open().builds.values() if build.signals])
    go.set()
    for call in calls:
        call.join()
    cache.get("x", lambda: 2)
    assert seen == ["miss", "miss", "miss", "hit"]


def _interrupt() -> Any:
    raise KeyboardInterrupt


def _caught_interrupt(call: Callable[[], Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        call()


def test_a_store_that_hesitates_once_gets_what_was_built_all_the_same(
    store: ManualStore, client: Client, other: Client
) -> None:
    for number, trouble in enumerate(("drop_next_reply", "drop_next_request", "refuse_next")):
        getattr(store.faults, trouble)("write")
        assert client.cache("prices").get(f"{number}", lambda number=number: number) == number  # type: ignore[misc]
        assert other.cache("prices").get(f"{number}", lambda: "again") == number  # type: ignore[comparison-overlap]


# --- keys


def test_with_outage_open_a_result_that_was_not_stored_is_returned_and_told(store: ManualStore, client: Client) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    with client.idempotency("charges", outage="open", ttl=1).attempt("k") as attempt:
        for _ in range(100):
            store.faults.refuse_next("write")
        assert attempt.complete("paid") == "paid"
        assert attempt.result == "paid"
    (told,) = [event for event in seen if isinstance(event, events.NotRecorded)]
    assert told.name == "idempotency:7:charges:k"
    assert not [event for event in seen if isinstance(event, events.Completed)]


def test_with_outage_open_a_store_that_refuses_a_result_is_no_outage(store: ManualStore, client: Client) -> None:
    with pytest.raises(BackendRejected), client.idempotency("charges", outage="open").attempt("k") as attempt:
        store.faults.reject_next("write")
        attempt.complete("paid")


@pytest.mark.parametrize("trouble", ["drop_next_reply", "drop_next_request", "refuse_next"])
@pytest.mark.parametrize("completes", [True, False])
def test_a_store_that_hesitates_once_at_the_end_of_an_attempt_gets_it_recorded(
    store: ManualStore, client: Client, trouble: str, completes: bool
) -> None:
    keys = client.idempotency("charges", on_expired="refuse")
    with keys.attempt("k") as attempt:
        getattr(store.faults, trouble)("write")
        if completes:
            attempt.complete("done")
    with keys.attempt("k") as again:
        assert again.replayed is completes
        assert not again.abandoned


def test_a_loss_after_the_result_was_stored_is_no_error(store: ManualStore, client: Client) -> None:
    seen: list[Any] = []
    client.on_event(seen.append)
    keys = client.idempotency("charges")
    with keys.attempt("k") as attempt:
        attempt.complete("done")
        assert attempt.lease is not None
        store.lose(attempt.lease)
    (completed,) = [event for event in seen if isinstance(event, events.Completed)]
    assert (completed.name, completed.fence) == ("idempotency:7:charges:k", attempt.fence)
    with pytest.raises(ZeroDivisionError), keys.attempt("other") as attempt:
        attempt.complete("done")
        raise ZeroDivisionError


def test_a_key_that_vanished_stays_abandoned_when_its_next_attempt_has_to_begin_twice(
    store: ManualStore, client: Client
) -> None:
    keys = client.idempotency("charges")
    with pytest.raises(KeyboardInterrupt), keys.attempt("k"):
        raise KeyboardInterrupt
    store.faults.drop_next_reply("write")
    with keys.attempt("k") as attempt:
        assert attempt.abandoned
        attempt.complete()


# --- elections and shares


def test_a_campaign_and_its_success_are_told(client: Client) -> None:
    seen: list[Any] = []
    client.on_event(
        lambda event: seen.append(event) if isinstance(event, events.Campaigning | events.Elected) else None
    )
    with client.election("boss", group="bosses").lead() as term:
        """That is enough."""
    assert seen == [events.Campaigning("boss", "bosses"), events.Elected("boss", term.fence, "bosses")]


def test_a_new_leader_is_told_at_once_also_if_it_is_this_one() -> None:
    store, leaders, done = ManualStore(autojump=None), list[Any](), threading.Event()
    with store.connect() as client, store.connect() as other:

        def lead() -> None:
            with client.election("boss", on_new_leader=leaders.append).lead():
                done.wait(60)

        leading = threading.Thread(target=lead)
        with other.election("boss").lead() as before:
            leading.start()
            eventually(lambda: leaders)
            eventually(lambda: (state := other.inspect("boss")) is not None and state.waiting)
        try:
            eventually(lambda: len(leaders) == 2)  # although no time has passed
        finally:
            done.set()
            leading.join()
    assert leaders[0].fence == before.fence < leaders[1].fence


def test_after_a_hint_the_leader_is_looked_for_once_and_then_at_its_turns_again() -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client:
        observation, waiting = client.election("boss", retry=1).observe(), client._twin._open().waiting_calls

        def rests_after(looks: int) -> bool:
            return store.faults.calls.count("inspect") >= looks and waiting.number == 1

        following = threading.Thread(target=lambda: list(observation))
        following.start()
        try:
            eventually(lambda: rests_after(1))
            observation._twin._look_now()
            eventually(lambda: rests_after(2))
            store.clock.advance(60)
            eventually(lambda: rests_after(3))
        finally:
            observation.stop()
            following.join()
    assert store.faults.calls.count("inspect") == 3


def test_who_looks_for_leaders_in_vain_says_so_once(
    store: ManualStore, client: Client, other: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with other.election("boss").lead(), caplog.at_level(logging.ERROR, "leasehold"):
        store.faults.reject_next("inspect")
        with pytest.raises(AcquireTimeout):
            with client.election("boss", on_new_leader=lambda _: None).lead(timeout=3):
                """Never entered."""
        eventually(lambda: caplog.records)
    assert "cannot look who leads 'boss' any more" in caplog.text


def test_partitions_are_told_with_their_index_and_fence(client: Client) -> None:
    seen: list[Any] = []
    client.on_event(lambda event: seen.append(event) if isinstance(event, events.PartitionTaken) else None)
    with client.partitions("orders", 2) as share:
        assert seen == [events.PartitionTaken(each.name, "orders", each.index, each.fence) for each in share.owned()]


def test_when_the_store_answers_again_a_share_says_so(store: ManualStore, client: Client) -> None:
    seen: list[Any] = []
    with client.partitions("orders", 1, retry=1) as share:
        client.on_event(lambda event: seen.append(event) if isinstance(event, events.StoreReached) else None)
        for _ in range(2):
            store.faults.reject_next("inspect")
        for _ in range(100):
            store.pass_time(0.5)
        eventually(lambda: seen)
        assert share._twin._failures == 0
    assert seen == [events.StoreReached("orders", 2)]


# --- what is logged


def test_only_what_somebody_has_to_look_at_is_a_warning() -> None:
    levels: dict[Any, int] = {
        events.BuildFailed: WARNING, events.FillRefused: WARNING, events.FillFailed: WARNING,
        events.Unprotected: WARNING, events.NotRecorded: WARNING, events.Elected: INFO, events.RunSkipped: INFO,
    }  # fmt: skip
    quiet: tuple[Any, ...] = (
        events.CacheRead, events.Built, events.Completed, events.KeyRefused, events.Replayed, events.Campaigning,
        events.PartitionTaken, events.RunEnded,
    )  # fmt: skip
    for kind, level in levels.items():
        assert kind.level == level, kind
    for each in quiet:
        assert each.level < INFO, each


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (events.CacheRead("c:x", "c", "stale"), "read 'c:x': stale"),
        (events.Built("c:x", 7, 0.5), "built 'c:x' in 0.500 s, with fence 7"),
        (
            events.BuildFailed("c:x", ValueError("secret"), True),
            "building 'c:x' failed with ValueError; the value before it is given out",
        ),
        (events.BuildFailed("c:x", ValueError("secret"), False), "building 'c:x' failed with ValueError"),
        (
            events.FillRefused("c:x", 7),
            "'c:x' was not stored under fence 7: it was changed while it was being built",
        ),
        (events.FillFailed("c:x", "no route"), "'c:x' was built, but may not be stored: no route"),
        (events.Completed("k", 7), "completed 'k', with fence 7"),
        (events.KeyRefused("k", "mismatch"), "refused an attempt at 'k': mismatch"),
        (events.Replayed("k"), "replayed the result of 'k'"),
        (
            events.Unprotected("k", "no route"),
            "'k' runs without protection, because the store did not answer: no route",
        ),
        (events.NotRecorded("k", "no route"), "the end of the attempt at 'k' may not be recorded: no route"),
        (events.Campaigning("x", None), "a candidate for 'x' begins its campaign"),
        (events.Elected("x", 7, None), "elected as the leader of 'x', with fence 7"),
        (events.PartitionTaken("x/3", "x", 3, 7), "took partition 3 of 'x', with fence 7"),
        (events.RunEnded("x", "j", "s", 7, 0.5, False, True), "the run of 'x' for slot s ended after 0.500 s"),
        (
            events.RunEnded("x", "j", "s", 7, 0.5, True, False),
            "the run of 'x' for slot s failed after 0.500 s, and may not be recorded",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.Event) else "",
)
def test_what_happened_is_said_in_a_sentence(event: events.Event, sentence: str) -> None:
    assert str(event) == sentence


def test_a_lock_that_is_behind_the_fences_of_its_records_is_no_lost_state(store: ManualStore, client: Client) -> None:
    """The lock catches up with fences that `put` and `forget` have used up, in a few rounds and without an error."""
    store.memory.write(Record("leasehold:cache:6:prices:x", b"{}\n", 5, 3600.0))
    assert client.cache("prices").get("x", lambda: 1) == 1


# --- edges


@pytest.mark.parametrize(("less", "is_refused"), [(0.0, True), (0.001, False), (-0.001, True)])
def test_a_leader_has_to_stop_before_the_part_of_the_ttl_that_is_sure_is_over(less: float, is_refused: bool) -> None:
    longest = 15.0 - margin(15.0)
    if is_refused:
        with pytest.raises(ConfigurationError, match="must be shorter than the part of the ttl that is sure"):
            check_timings(15.0, longest - less, 2.0)
    else:
        assert check_timings(15.0, longest - less, 2.0) == Timings(15.0, longest - less, 2.0)


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 5.0), (0.5, 5.5), (1.0, 6.0)])
def test_a_candidate_lets_others_come_first_for_a_pause_that_is_drawn_by_lot(
    client: Client, monkeypatch: pytest.MonkeyPatch, drawn: float, pause: float
) -> None:
    election = client.election("x", ttl=60, renew_deadline=30, retry=5)._twin
    opened = election._client._open()
    told: list[Any] = []

    async def note(who: object, seconds: float) -> None:
        told.append((who, seconds))
        raise KeyboardInterrupt

    monkeypatch.setattr(opened.runtime, "random", lambda: drawn)
    monkeypatch.setattr(opened.waiting_calls, "pause", note)
    monkeypatch.setattr(opened.waiting_calls, "ended", told.append)
    with pytest.raises(KeyboardInterrupt):
        run(election._pause())
    assert told == [(election, pytest.approx(pause)), election]


def test_what_is_put_or_forgotten_has_the_fence_of_its_lock_and_a_mark_stays_for_a_second(
    store: ManualStore, client: Client
) -> None:
    prices = client.cache("prices", ttl=60, stale=40, stale_if_error=5, jitter=0)
    fences: list[int] = []
    client.on_event(lambda event: fences.append(event.fence) if isinstance(event, events.Acquired) else None)
    kept: list[tuple[int, float]] = []
    changes: list[Callable[[], object]] = [
        lambda: prices.put("a", 1),
        lambda: prices.put("a", 2),
        lambda: prices.forget("a"),
    ]
    for change in changes:
        change()
        record = store.memory.read("leasehold:cache:6:prices:a").record
        assert record is not None
        kept.append((record.fence, record.ttl))
    assert [fence for fence, _ in kept] == fences
    assert [ttl for _, ttl in kept] == pytest.approx([100, 100, 1])


@pytest.mark.parametrize(
    ("given", "stale", "after_errors", "longest"),
    [
        ({"stale": 0}, 0, 0, 0),
        ({"stale": 0, "stale_if_error": 7}, 0, 7, 7),
        ({"stale": 9, "stale_if_error": 0}, 9, 0, 9),
        ({"stale_if_error": 0}, 60, 0, 60),
    ],
)
def test_a_value_that_is_never_given_out_late_is_not_one_of_which_nothing_was_said(
    client: Client, given: dict[str, Any], stale: float, after_errors: float, longest: float
) -> None:
    policy = client.cache("prices", ttl=60, **given)._twin._policy
    assert (policy.stale, policy.stale_if_error, policy.longest_stale) == (stale, after_errors, longest)


def test_a_text_takes_as_many_bytes_in_a_cache_as_in_utf_8(client: Client) -> None:
    prices = client.cache("prices", max_size=4)
    assert prices._twin._policy.encode("é") == b'"\xc3\xa9"'
    prices.put("a", "é")
    with pytest.raises(ConfigurationError, match="5 bytes"):
        prices.put("a", "éa")


def test_a_campaign_that_was_lost_is_used_up(client: Client, other: Client) -> None:
    with other.election("x").lead():
        leading = client.election("x").lead(timeout=0)
        for error in (AcquireTimeout, TypeError):
            with pytest.raises(error), leading:
                """Never entered."""
    with pytest.raises(TypeError, match="call lead"), leading:
        """Never entered."""


@pytest.mark.parametrize(
    ("name", "loss", "is_own"),
    [("x", "gone", True), ("x", None, False), ("another", "gone", False), ("another", None, False)],
)
def test_a_loss_ends_a_term_of_run_only_if_it_is_that_of_the_term(
    client: Client, name: str, loss: str | None, is_own: bool
) -> None:
    leading: Any = client.election("x").lead()._twin
    assert not leading._was_ended_by(LeaseLost("lost", name="x")), "there is no term yet"
    leading._term = SimpleNamespace(name="x", loss=loss)
    assert leading._was_ended_by(LeaseLost("lost", name=name)) is is_own
