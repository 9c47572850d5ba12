"""Time in the core: what a call may take, what a late answer is worth; a scripted store, a clock turned by hand."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import AcquireTimeout, BackendUnavailable, ClientClosed, LeaseLost, OutcomeUnknown, events
from leasehold._core.backoff import GRACE
from leasehold.testing import ManualStore
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._blocking import Client


class Script:
    """Stands in the way of one verb of a client's store: each call of it is answered by the script."""

    def __init__(self, client: Client, verb: str, answer: Callable[[Any, float, Callable[[], Any]], Any]) -> None:
        self.untils: list[float] = []
        self.options: list[dict[str, Any]] = []
        backend: Any = client._twin._open().backend
        plain = getattr(backend, verb)

        async def scripted(subject: Any, until: float = math.inf, /, **options: Any) -> Any:
            self.untils.append(until)
            self.options.append(options)
            given = answer(subject, until, lambda: plain(subject, until, **options))
            return await given if hasattr(given, "__await__") else given

        setattr(backend, verb, scripted)


def fails(error: BaseException) -> Any:
    raise error


class Turning:
    """Turns the clock until a call in another thread has ended."""

    def __init__(self, store: ManualStore, call: Callable[[], Any]) -> None:
        self.result: Any = None

        def perform() -> None:
            try:
                self.result = call()
            except Exception as error:
                self.result = error

        thread = threading.Thread(target=perform, daemon=True)
        thread.start()
        for _ in range(20_000):
            if not thread.is_alive():
                return
            store.clock.advance(0.01)
            time.sleep(0.001)
        raise AssertionError("the call did not end")


def test_a_second_try_after_the_deadline_gets_only_what_is_left_of_the_grace() -> None:
    store = ManualStore()
    with store.connect() as client:
        began = store.clock.now()
        script = Script(client, "try_acquire", lambda *_: fails(OutcomeUnknown("no answer")))
        call = Turning(store, client.lock("x").try_acquire)
        assert isinstance(call.result, OutcomeUnknown)
        assert len(script.untils) > 1
        assert max(script.untils) <= began + 2 * GRACE  # the deadline of a single try is when it began
        assert max(script.untils) - min(script.untils) < 0.001, "every try has the same end"
        assert store.clock.now() < began + 3 * GRACE


def test_a_release_in_doubt_that_is_answered_after_the_deadline_does_not_claim_to_have_freed() -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        lease = client.lock("x", ttl=2).acquire()
        taken: list[Any] = []

        def answer(grant: object, until: float, plain: Callable[[], Any]) -> Any:
            if not taken:
                taken.append(None)
                raise OutcomeUnknown("no answer")
            store.clock.advance(3)  # the answer comes when the ttl is over and another has the lock
            taken.append(other.lock("x").acquire(0))
            return plain()

        Script(client, "release", answer)
        call = Turning(store, lease.release)
        assert call.result is False
        taken[-1].check()
        taken[-1].release()


@pytest.mark.parametrize("doubts", [0, 1])
def test_a_release_that_got_no_answer_stays_unknown_when_the_store_cannot_be_reached_any_more(doubts: int) -> None:
    """It did not: the last failure was raised, and that one was surely not applied."""
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x", ttl=60).acquire()
        asked: list[object] = []

        def answer(grant: object, _: float, __: Callable[[], Any]) -> Any:
            asked.append(grant)
            raise OutcomeUnknown("no answer") if len(asked) <= doubts else BackendUnavailable("gone", backend="b")

        Script(client, "release", answer)
        for _ in range(2):  # the doubt is the lease's, not the call's
            call = Turning(store, lease.release)
            assert isinstance(call.result, OutcomeUnknown if doubts else BackendUnavailable)
            assert call.result.backend == "b"
            assert "gone" in str(call.result)
        assert len(asked) > doubts + 2


@pytest.mark.parametrize("timeout", [0, 2])
def test_an_acquire_that_got_no_answer_stays_unknown_when_the_store_cannot_be_reached_any_more(timeout: float) -> None:
    """What was surely not applied later does not undo the doubt: the first request may have taken the lock."""
    store = ManualStore()
    with store.connect() as client:
        asked: list[object] = []

        def answer(claim: object, _: float, __: Callable[[], Any]) -> Any:
            asked.append(claim)
            raise OutcomeUnknown("no answer") if len(asked) == 1 else BackendUnavailable("refused")

        Script(client, "join" if timeout else "try_acquire", answer)
        call = Turning(store, lambda: client.lock("x").acquire(timeout))
        assert isinstance(call.result, OutcomeUnknown)
        assert len(asked) > 1
        assert len(set(map(id, asked))) == 1, "one claim, so that its withdrawal covers every copy"


def test_closing_wakes_a_waiter_in_another_thread_at_once_and_leaves_nothing_in_the_queue() -> None:
    store = ManualStore()
    with store.connect() as other, other.lock("x").hold():
        client = store.connect()
        ended: list[BaseException] = []

        def wait() -> None:
            with pytest.raises(ClientClosed) as raised:
                client.lock("x").acquire(None)
            ended.append(raised.value)

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: (state := other.inspect("x")) is not None and len(state.waiting) == 1)
        client.close()
        thread.join(10)
        assert not thread.is_alive()
        assert not isinstance(ended[0], ConnectionError)
        state = other.inspect("x")
        assert state is not None
        assert not state.waiting


def test_the_client_can_be_closed_by_a_signal_handler_of_its_own_waiting_thread() -> None:
    """It does not wait for itself; here the handler is played by the store, in the same thread."""
    store = ManualStore()
    with store.connect() as other, other.lock("x").hold():
        client = store.connect()
        calls: list[int] = []

        def answer(place: object, until: float, plain: Callable[[], Any]) -> Any:
            calls.append(1)
            client.close()
            return plain()

        Script(client, "turn", answer)
        call = Turning(store, lambda: client.lock("x").acquire(None))
        assert isinstance(call.result, ClientClosed)
        assert calls == [1]


def test_a_release_in_the_background_wakes_the_next_waiter_and_is_one_event() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client, store.connect() as other:
        client.on_event(seen.append)
        store.faults.cut()  # the script below stands before it
        store.faults.heal()
        lease = client.lock("x", ttl=3600).acquire()
        away = [True]
        Script(
            client,
            "release",
            lambda grant, until, plain: fails(BackendUnavailable("away")) if away[0] else plain(),
        )
        assert isinstance(Turning(store, lease.release).result, BackendUnavailable)
        away[0] = False
        got = Turning(store, lambda: other.lock("x").acquire(30))
        got.result.release()
        eventually(lambda: any(isinstance(event, events.Released) for event in seen))
        assert lease.release() is True
        assert sum(isinstance(event, events.Released) for event in seen) == 1
        assert lease.loss is None


def test_the_end_of_a_block_in_an_outage_is_a_warning_that_promises_another_try() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client:
        client.on_event(seen.append)

        def block() -> None:
            with client.lock("x", ttl=3600).hold():
                store.faults.cut()

        assert Turning(store, block).result is None
        (failure,) = [event for event in seen if isinstance(event, events.ReleaseFailed)]
        assert "tried again" in str(failure)
        store.faults.heal()
        got = Turning(store, lambda: client.lock("x").acquire(30))
        got.result.release()


def test_a_renewal_that_is_answered_after_the_deadline_gives_its_grant_back() -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        lease = client.lock("x", ttl=2, renew=False).acquire()
        store.clock.advance(1)
        Script(client, "renew", answered_late(store))
        with pytest.raises(LeaseLost):
            lease.renew()
        other.lock("x").acquire(0).release()  # the store would have kept it for another half second


def test_a_renewal_in_the_background_that_is_answered_after_the_deadline_gives_its_grant_back() -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        lease = client.lock("x", ttl=2).acquire()
        script = Script(client, "renew", answered_late(store))
        store.clock.advance(0.7)
        eventually(lambda: bool(script.untils) and lease.lost.is_set())
        eventually(lambda: other.inspect("x") is None)


def test_a_renewal_that_is_answered_when_the_loss_is_known_is_given_back_as_well() -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        lease = client.lock("x", ttl=2).acquire()
        late = answered_late(store)

        async def known_to_be_lost(subject: object, until: float, plain: Callable[[], Any]) -> Any:
            answer = await late(subject, until, plain)
            assert lease.lost.is_set()
            return answer

        Script(client, "renew", known_to_be_lost)
        store.clock.advance(0.7)
        eventually(lambda: other.inspect("x") is None)


def test_a_renewal_by_hand_counts_from_before_it_was_sent() -> None:
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x", ttl=10, renew=False).acquire()
        store.clock.advance(3)
        Script(client, "renew", answered_late(store))
        left = lease.renew()
        assert left == lease.remaining()
        assert 8 < left < 8.5, "the store counts from before its answer was under way"
        lease.release()


def test_an_unexpected_error_is_a_renewal_that_failed_and_is_tried_again() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client:
        client.on_event(seen.append)
        lease = client.lock("x", ttl=30).acquire()
        script = Script(client, "renew", lambda *_: fails(ZeroDivisionError("a bug of a driver")))
        for tries in range(1, 10):  # more than may be under way at once
            store.clock.advance(10.1 if tries == 1 else 2.1)
            eventually(lambda tries=tries: len(script.untils) >= tries)  # type: ignore[misc]
        assert not lease.lost.is_set()
        failed = [event for event in seen if isinstance(event, events.RenewalFailed)]
        assert [event.error for event in failed] == ["a bug of a driver"]
        lease.release()


def test_a_renewal_by_hand_does_not_wait_for_a_mute_store_beyond_the_lease() -> None:
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x", ttl=10, renew=False).acquire()
        ends = store.clock.now() + lease.remaining()
        script = Script(client, "renew", lambda *_: fails(OutcomeUnknown("no answer")))
        with pytest.raises(OutcomeUnknown):
            lease.renew()
        assert script.untils == [pytest.approx(ends)]
        lease.release()


def answered_late(store: ManualStore) -> Callable[[Any, float, Callable[[], Any]], Any]:
    """The store renews at once, and its answer arrives when the deadline has passed, but not the new ttl."""

    async def late(_: object, __: float, plain: Callable[[], Any]) -> Any:
        answer = await plain()
        store.clock.advance(1.5)
        return answer

    return late


def test_every_outage_of_a_lease_is_announced() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client:
        client.on_event(seen.append)
        lease = client.lock("x", ttl=6).acquire()
        for number in (1, 2):
            store.faults.refuse_next("renew")
            store.pass_time(4)
            eventually(lambda: sum(isinstance(event, events.RenewalFailed) for event in seen) == number)  # noqa: B023
        lease.check()
        lease.release()


def test_a_timeout_names_the_holder_as_before() -> None:
    store = ManualStore()
    with store.connect(label="first") as client, client.lock("x").hold():
        call = Turning(store, lambda: store.connect().lock("x").acquire(0.5))
        assert isinstance(call.result, AcquireTimeout)
        assert "first" in str(call.result)
