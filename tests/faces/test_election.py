"""`client.election` in both faces, on a memory store whose clock is turned by hand."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import AcquireTimeout, ClientClosed, Leader, LeaseLost, events
from leasehold._patterns.callbacks import Watch
from leasehold._patterns.observation import leader_of
from leasehold.errors import BackendUnavailable, ConfigurationError
from leasehold.events import Renewed
from leasehold.testing.manual import ManualStore
from leasehold.values import Holder, Holding, LockState, LossReason, Mode
from tests.waiting import eventually

if TYPE_CHECKING:
    from leasehold._blocking import Client
    from leasehold._blocking.election import Election, Term
    from leasehold._patterns.election import AsyncTerm
    from leasehold.values import Loss


def leads(election: Election) -> bool:
    """A function, because type checkers take a property that was true to stay so."""
    return election.is_leader


def can_lead(election: Election) -> bool:
    try:
        with election.lead(timeout=0):
            return True
    except AcquireTimeout:
        return False


# --- timings


@pytest.mark.parametrize(
    ("timings", "word"),
    [
        ({"ttl": 10}, "ttl longer"),
        ({"renew_deadline": 15}, "ttl longer"),
        ({"renew_deadline": 14.9}, "14.845 s of 15 s"),
        ({"renew_deadline": 2.4}, "retry shorter"),
        ({"retry": "9s"}, "retry shorter"),
        ({"retry": 0}, "more than 0"),
        ({"ttl": 0.01}, "ttl must be"),
        ({"renew_deadline": -1}, "renew_deadline must be"),
        ({"retry": "soon"}, "retry must look like"),
    ],
)
def test_timings_in_the_wrong_order_are_refused_with_what_to_change(
    client: Client, store: ManualStore, timings: dict[str, Any], word: str
) -> None:
    with pytest.raises(ConfigurationError, match=word):
        client.election("x", **timings)
    assert store.faults.calls == []


def test_the_defaults_are_those_of_client_go(client: Client) -> None:
    with client.election("x").lead() as term:
        assert term.ttl == 15
        assert term.remaining() == 10


def test_a_need_that_the_term_can_never_meet_is_a_mistake_of_the_program(client: Client) -> None:
    with client.election("x").lead() as term:
        term.check(need=9)
        with pytest.raises(ConfigurationError, match="at most 10 s are sure"):
            term.check(need=11)


# --- the end of a term


def test_is_leader_ends_with_the_renew_deadline_and_the_lease_later(
    store: ManualStore, client: Client, other: Client
) -> None:
    election, candidate = client.election("x"), other.election("x")
    with pytest.raises(LeaseLost) as lost, election.lead() as term:
        store.pass_time(60)
        assert leads(election)
        store.faults.cut()
        store.clock.advance(10)
        assert not election.is_leader
        assert election.term is None
        assert term.lost.is_set()
        store.faults.heal()
        assert not can_lead(candidate)
    assert lost.value.completed
    assert can_lead(candidate)  # it was given back, although its ttl is not over


def test_a_renewal_that_is_confirmed_after_the_deadline_does_not_let_another_in_while_the_body_stops(
    store: ManualStore, client: Client, other: Client
) -> None:
    """Both leases are renewed by one call, which may last as long as the later deadline of the two."""
    election, candidate = client.election("x", retry=5), other.election("x")
    renewed: list[str] = []
    with pytest.raises(LeaseLost), client.lock("y", ttl=15).hold(), election.lead():
        store.faults.delay_next_reply(7, "renew")
        store.clock.advance(5)
        eventually(lambda: store.faults.delayed == 1)
        store.faults.cut()
        store.clock.advance(5)
        assert not election.is_leader
        store.faults.heal()
        unsubscribe = client.on_event(lambda event: renewed.append(event.name) if isinstance(event, Renewed) else None)
        store.clock.advance(2.5)
        eventually(lambda: "y" in renewed)  # reported after all that follows from the answer was done
        unsubscribe()
        assert "release" not in store.faults.calls
        assert not can_lead(candidate)
    assert can_lead(candidate)


def test_an_error_of_the_body_resigns_and_is_not_hidden(client: Client, other: Client) -> None:
    losses: list[Loss] = []
    with pytest.raises(KeyError), client.election("x", on_lost=losses.append).lead():
        raise KeyError
    assert [loss.reason for loss in losses] == [LossReason.RELEASED]
    assert can_lead(other.election("x"))


def test_stepping_down_tells_a_body_in_another_thread_and_waits_for_its_end(client: Client, other: Client) -> None:
    election, candidate = client.election("x"), other.election("x")
    terms: list[Term] = []
    may_end = threading.Event()

    def lead() -> None:
        with election.lead() as term:
            terms.append(term)
            assert term.lost.wait(30)
            assert may_end.wait(30)

    thread = threading.Thread(target=lead)
    thread.start()
    eventually(lambda: terms)
    assert terms[0].step_down()
    assert not election.is_leader
    assert terms[0].loss is not None
    assert terms[0].loss.reason is LossReason.RELEASED
    with pytest.raises(LeaseLost, match="stepped down"):
        terms[0].check()
    assert not can_lead(candidate)
    may_end.set()
    thread.join()
    assert can_lead(candidate)


def test_stepping_down_is_no_error_in_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "leasehold"), client.election("x").lead() as term:
        term.step_down()
    assert caplog.records == []


def test_a_term_that_was_dropped_is_not_kept_by_its_election(store: ManualStore, client: Client, other: Client) -> None:
    election = client.election("x")
    leading = election.lead()
    leading.__enter__()
    assert leads(election)
    del leading
    assert not election.is_leader
    store.clock.advance(16)
    assert can_lead(other.election("x"))


# --- callbacks


def test_callbacks_come_in_order_and_an_error_in_one_changes_nothing(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def elected(term: Term) -> None:
        calls.append(f"elected {term.remaining():g}")
        raise ValueError("a callback")

    def lost(loss: Loss) -> None:
        calls.append(f"lost {loss.reason}")
        raise ValueError("another")

    election = client.election("x", on_elected=elected, on_lost=lost)
    with election.lead():
        calls.append("body")
    assert calls == ["elected 10", "body", "lost released"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_a_loss_is_called_back_while_the_body_still_runs_and_only_once(store: ManualStore, client: Client) -> None:
    losses: list[Loss] = []
    with pytest.raises(LeaseLost), client.election("x", on_lost=losses.append).lead():
        store.faults.cut()
        store.clock.advance(11)
        eventually(lambda: losses)
        store.faults.heal()
    assert len(losses) == 1
    assert losses[0].reason in (LossReason.EXPIRED, LossReason.UNCONFIRMED)


# --- run


@pytest.mark.timeout(60)
def test_run_leads_again_after_a_loss_and_ends_with_an_error_of_its_function(
    store: ManualStore, client: Client
) -> None:
    fences: list[int] = []

    def body(term: Term) -> None:
        fences.append(term.fence)
        if len(fences) == 3:
            raise KeyError("enough")
        if len(fences) == 1:
            store.clock.advance(20)  # as after a pause
            term.check()
            raise AssertionError("it goes on after a loss")

    with store.clock.running(), pytest.raises(KeyError, match="enough"):
        client.election("x", ttl=1.5, renew_deadline=1, retry=0.01).run(body)
    assert fences == sorted(set(fences))
    assert len(fences) == 3


@pytest.mark.timeout(60)
def test_a_loss_of_another_lease_ends_run(store: ManualStore, client: Client) -> None:
    def body(_: Term) -> None:
        with client.lock("other", renew=False, ttl=1).hold() as lease:
            store.clock.advance(2)
            lease.check()

    with pytest.raises(LeaseLost, match="'other'"):
        client.election("x").run(body)
    assert client.inspect("x") is None


@pytest.mark.timeout(60)
def test_an_error_of_the_store_in_the_function_ends_run_but_one_in_the_campaign_does_not(
    store: ManualStore, client: Client
) -> None:
    store.faults.reject_next("release")
    calls = 0

    def body(_: Term) -> None:
        nonlocal calls
        calls += 1
        raise BackendUnavailable("from the function")

    client._twin._connect_timeout = 0.0
    store.faults.refuse_next("join")
    seen: list[Any] = []
    client.on_event(seen.append)
    with store.clock.running(), pytest.raises(BackendUnavailable, match="from the function"):
        client.election("x", retry=0.01).run(body)
    assert calls == 1
    away = [event for event in seen if isinstance(event, events.StoreUnreachable)]
    assert (away[-1].name, away[-1].remaining) == ("x", 0.01)


def test_run_lets_others_campaign_before_it_leads_again(store: ManualStore, client: Client) -> None:
    terms: list[Term] = []

    def body(term: Term) -> None:
        terms.append(term)
        if len(terms) == 2:
            raise KeyError("enough")

    def run() -> None:
        with pytest.raises(KeyError, match="enough"):
            client.election("x").run(body)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: len(client._twin._open().waiting_calls._calls) == 1)
    assert len(terms) == 1
    assert client.inspect("x") is None
    store.clock.advance(1.9)
    assert len(terms) == 1
    store.clock.advance(0.6)
    thread.join()


def test_when_run_has_ended_nobody_looks_for_leaders_any_more(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(_: Term) -> None:
        raise KeyError("enough")

    stop, stopped = Watch.stop, list[Watch]()

    def note(watch: Watch) -> None:
        stopped.append(watch)
        stop(watch)

    monkeypatch.setattr(Watch, "stop", note)
    with pytest.raises(KeyError):
        client.election("x", on_new_leader=lambda _: None).run(body)
    assert len(stopped) == 1
    eventually(lambda: not [one for one in threading.enumerate() if one.name == "leasehold observer"])


def test_a_campaign_that_failed_leaves_nobody_who_looks_for_leaders(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Watch] = []
    monkeypatch.setattr(Watch, "stop", lambda watch: stopped.append(watch))  # noqa: PLW0108 - a method
    with client.election("x").lead(), pytest.raises(AcquireTimeout):
        with other.election("x", on_new_leader=lambda _: None).lead(timeout=0):
            """Never entered."""
    assert len(stopped) == 2, "that of the campaign that failed, and that of the one that won"


def test_the_reason_of_an_election_is_shown(client: Client, other: Client) -> None:
    with client.election("x", reason="sends the mail").lead():
        (holding,) = other.inspect("x").holdings  # type: ignore[union-attr]
        assert holding.holder.reason == "sends the mail"


@pytest.mark.parametrize(
    ("facts", "leads"), [({}, True), ({"broken": "by an operator"}, False), ({"cooling": True}, False)]
)
def test_a_leader_that_was_ended_or_has_resigned_is_not_shown(facts: dict[str, Any], leads: bool) -> None:
    holder = Holder("h", 1)
    state = LockState("x", Mode.EXCLUSIVE, 1, (Holding(holder, 7, 1.0, 1.0, **facts),), ())
    assert leader_of("x", state) == (Leader("x", holder, 7) if leads else None)


def test_closing_the_client_ends_run(store: ManualStore, other: Client) -> None:
    client = store.connect()
    ended: list[BaseException] = []

    def run() -> None:
        try:
            client.election("x").run(lambda term: term.lost.wait())
        except ClientClosed as error:
            ended.append(error)

    with other.election("x").lead():
        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: (state := other.inspect("x")) is not None and len(state.waiting) == 1)
        client.close()
        thread.join()
    assert len(ended) == 1


def test_coroutine_functions_are_refused_where_nothing_would_await_them(client: Client) -> None:
    async def body(_: object) -> None:
        raise AssertionError("called")

    with pytest.raises(ConfigurationError, match="the function is async"):
        client.election("x").run(body)
    for option in ("on_elected", "on_lost", "on_new_leader"):
        callback: dict[str, Any] = {option: body}
        with pytest.raises(ConfigurationError, match=f"{option} is async"):
            client.election("x", **callback)
    assert client.inspect("x") is None


# --- observers


def test_an_observer_sees_changes_and_outlasts_an_outage(store: ManualStore, client: Client, other: Client) -> None:
    observation = other.election("x", retry=0.02).observe()
    seen: list[Leader | None] = []

    def follow() -> None:
        seen.extend(observation)

    with store.clock.running():
        thread = threading.Thread(target=follow)
        thread.start()
        eventually(lambda: len(seen) == 1)
        with client.election("x").lead() as term:
            eventually(lambda: len(seen) == 2)
            store.faults.refuse_next("inspect")
            store.faults.refuse_next("inspect")
            before = len(store.faults.calls)
            eventually(lambda: len(store.faults.calls) > before + 4)
        eventually(lambda: len(seen) == 3)
        observation.stop()
        thread.join()
    holder = client._twin._holder(None)
    assert seen == [None, Leader("x", holder, term.fence), None]


def test_the_first_look_of_an_observer_must_succeed(store: ManualStore, client: Client) -> None:
    store.faults.refuse_next("inspect")
    store.faults.refuse_next("inspect")
    with pytest.raises(BackendUnavailable):
        next(client.election("x").observe())


def test_an_election_and_its_terms_stay_in_their_process(client: Client) -> None:
    election = client.election("x")
    with pytest.raises(TypeError, match="belongs to its client"):
        pickle.dumps(election)
    leading = election.lead()
    with leading as term, pytest.raises(TypeError, match="belongs to this process"):
        pickle.dumps(term)
    with pytest.raises(TypeError, match="call lead"):
        leading.__enter__()
    assert (repr(election), repr(term).split()[0]) == ("<Election 'x'>", "<Term")


# --- the async face


def test_an_async_body_is_cancelled_at_the_renew_deadline(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async() as client:
            losses: list[Loss] = []

            async def lost(loss: Loss) -> None:
                await asyncio.sleep(0)
                losses.append(loss)

            election = client.election("x", on_lost=lost)
            with pytest.raises(LeaseLost) as error:
                async with election.lead():
                    store.faults.cut()
                    store.clock.advance(10)
                    try:
                        await asyncio.sleep(30)
                    finally:
                        assert not election.is_leader
                        store.faults.heal()
            assert not error.value.completed
            while not losses:
                await asyncio.sleep(0.001)
            assert len(losses) == 1

    asyncio.run(story())


def test_cancelling_run_resigns(store: ManualStore, other: Client) -> None:
    async def story() -> None:
        async with store.connect_async() as client:
            elected = asyncio.Event()

            async def body(_: AsyncTerm) -> None:
                await asyncio.sleep(30)

            async def note(_: AsyncTerm) -> None:
                elected.set()

            task = asyncio.create_task(client.election("x", on_elected=note).run(body))
            await elected.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(story())
    assert can_lead(other.election("x"))


def test_stepping_down_from_another_task_cancels_the_body_and_from_the_body_does_not(store: ManualStore) -> None:
    async def story() -> None:
        async with store.connect_async() as client:
            election = client.election("x")
            terms: list[AsyncTerm] = []

            async def lead() -> None:
                async with election.lead() as term:
                    terms.append(term)
                    await asyncio.sleep(30)

            task = asyncio.create_task(lead())
            while not terms:
                await asyncio.sleep(0.001)
            assert terms[0].step_down()
            with pytest.raises(LeaseLost) as lost:
                await task
            assert (lost.value.reason, lost.value.completed) == (LossReason.RELEASED, False)
            async with election.lead() as term:
                term.step_down()
                await asyncio.sleep(0.02)

    asyncio.run(story())
