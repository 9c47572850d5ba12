"""Every call that wants a lock ends with exactly one event; each row says which, with all that it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold import AcquireTimeout, BackendRejected, BackendUnavailable, Backoff, OutcomeUnknown, events
from leasehold.testing import ManualStore
from tests.unit.test_core_time import Script, Turning, fails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold import Lock

    Call = Callable[[Lock], Any]


class Interrupted(BaseException):
    """What a signal handler raises."""


class Story:
    """A client, its listener, and another client that is in the way."""

    def __init__(self) -> None:
        self.store = ManualStore()
        self.client, self.other = self.store.connect(), self.store.connect(label="other")
        self.seen: list[events.Event] = []
        self.client.on_event(self.seen.append)

    def end_of(self, call: Callable[[], Any]) -> events.Event:
        """The last event of a call that fails."""
        with pytest.raises((Exception, Interrupted)):
            call()
        ends = [event for event in self.seen if isinstance(event, ENDS)]
        assert len(ends) == 1
        return ends[0]


ENDS = (events.Acquired, events.TimedOut, events.Refused, events.AcquireFailed)


@pytest.fixture
def story() -> Iterator[Story]:
    made = Story()
    yield made
    made.store.close()


def busy(story: Story) -> None:
    """Somebody else has the lock for as long as the story lasts."""
    story.lease = story.other.lock("x", ttl=3600).acquire()  # type: ignore[attr-defined]


def test_a_grant_at_once_has_no_number_of_a_wait(story: Story) -> None:
    lease = story.client.lock("x", group="jobs").acquire(5)
    assert story.seen == [events.Acquired("x", lease.fence, 0.0, "jobs", "exclusive", 0)]
    lease.release()


@pytest.mark.parametrize(("of", "mode"), [("read", "shared"), ("write", "exclusive")])
def test_the_end_of_a_call_says_how_it_wanted_the_lock(story: Story, of: str, mode: str) -> None:
    busy(story)
    assert getattr(story.client.rwlock("x", group="jobs"), of).try_acquire() is None
    assert story.seen == [events.Refused("x", 0.0, "jobs", mode, 0)]


def test_a_call_without_time_that_is_refused_is_an_end_at_once(story: Story) -> None:
    busy(story)
    end = story.end_of(lambda: story.client.lock("x", group="jobs").acquire(0))
    assert end == events.TimedOut("x", 0.0, "jobs", "exclusive", 0, at_once=True)


@pytest.mark.parametrize("backoff", [None, Backoff((0.1,), longest=0.1, jitter="none")], ids=["queue", "backoff"])
def test_a_wait_that_is_given_up_has_the_number_of_its_beginning(story: Story, backoff: Backoff | None) -> None:
    busy(story)
    lock = story.client.lock("x", group="jobs", slow_wait=None)
    end = Turning(story.store, lambda: lock.acquire(0.5, backoff=backoff))
    assert isinstance(end.result, AcquireTimeout)
    began, timed_out = story.seen
    assert isinstance(began, events.WaitBegan)
    assert (began.name, began.group, began.mode) == ("x", "jobs", "exclusive")
    assert isinstance(timed_out, events.TimedOut)
    assert (timed_out.call, timed_out.at_once) == (began.call, False)
    assert began.call != 0
    assert 0.5 <= timed_out.waited < 0.6
    assert end.result.waited == timed_out.waited


def test_a_grant_after_a_wait_has_the_number_of_its_beginning(story: Story) -> None:
    lease = story.other.lock("x", ttl=0.5, renew=False).acquire()
    got = Turning(story.store, lambda: story.client.lock("x", slow_wait=None).acquire(5)).result
    began, acquired = story.seen
    assert isinstance(began, events.WaitBegan)
    assert isinstance(acquired, events.Acquired)
    assert acquired.call == began.call != 0
    assert 0.4 <= acquired.waited <= 1.6
    assert got.release()
    assert lease.release() is False


CALLS: list[tuple[str, Call]] = [
    ("try_acquire", lambda lock: lock.try_acquire()),
    ("try_acquire", lambda lock: lock.acquire(0)),
    ("join", lambda lock: lock.acquire(5)),
]


@pytest.mark.parametrize(("verb", "call"), CALLS, ids=["try", "at once", "wait"])
@pytest.mark.parametrize(
    ("error", "cancelled"), [(BackendRejected("no rights"), False), (Interrupted(), True)], ids=["rejected", "signal"]
)
def test_a_call_that_ends_by_an_error_says_so_and_whether_it_was_interrupted(
    story: Story, verb: str, call: Call, error: BaseException, cancelled: bool
) -> None:
    Script(story.client, verb, lambda *_: fails(error))
    end = story.end_of(lambda: call(story.client.lock("x", group="jobs")))
    assert isinstance(end, events.AcquireFailed)
    assert (end.name, end.waited, end.cancelled) == ("x", 0.0, cancelled)
    assert (end.group, end.mode, end.call) == ("jobs", "exclusive", 0)
    assert end.error == ("Interrupted" if cancelled else str(error))


def test_a_call_that_is_ended_by_an_error_without_words_says_its_kind(story: Story) -> None:
    def gives_up(*_: object) -> None:
        raise LookupError

    busy(story)
    end = story.end_of(lambda: story.client.lock("x", group="jobs").acquire(5, on_wait=gives_up))
    assert isinstance(end, events.AcquireFailed)
    assert (end.error, end.cancelled, end.group) == ("LookupError", False, "jobs")
    assert end.call == next(event.call for event in story.seen if isinstance(event, events.WaitBegan))


@pytest.mark.parametrize(("verb", "call"), CALLS, ids=["try", "at once", "wait"])
def test_an_error_names_the_lock_that_was_wanted(story: Story, verb: str, call: Call) -> None:
    for error in (BackendRejected("no rights"), BackendUnavailable("away"), OutcomeUnknown("no answer")):
        Script(story.client, verb, lambda *_, error=error: fails(error))
        raised = Turning(story.store, lambda: call(story.client.lock("x"))).result
        assert type(raised) is type(error)
        assert raised.name == "x"


@pytest.mark.parametrize(("verb", "call"), CALLS, ids=["try", "at once", "wait"])
def test_a_call_that_is_over_is_known_to_nobody_any_more(story: Story, verb: str, call: Call) -> None:
    """`close` would wait for it."""
    Script(story.client, verb, lambda *_: fails(OutcomeUnknown("no answer")))
    failed = Turning(story.store, lambda: call(story.client.lock("x")))
    assert isinstance(failed.result, OutcomeUnknown)
    assert not list(story.client._twin._open().waiting_calls._calls)
    (end,) = [event for event in story.seen if isinstance(event, ENDS)]
    (began,) = [event for event in story.seen if isinstance(event, events.WaitBegan)]
    assert isinstance(end, events.AcquireFailed)
    assert end.call == began.call != 0


def test_a_plain_lock_does_not_enter_a_reentrant_one_of_the_same_name(story: Story) -> None:
    """Whoever did not ask for that relies on being refused."""
    with story.client.lock("x", reentrant=True).hold():
        assert story.client.lock("x").try_acquire() is None
        with pytest.raises(AcquireTimeout):
            story.client.lock("x").acquire(0)


def test_a_reentrant_lock_is_entered_again_by_every_kind_of_call(story: Story) -> None:
    lock = story.client.lock("x", reentrant=True)
    with lock.hold() as first:
        for again in (lock.try_acquire(), lock.acquire(0), lock.acquire(5)):
            assert again is not None
            assert again.fence == first.fence
            assert again.release()
        first.check()
    assert story.other.lock("x").try_acquire() is not None


@pytest.mark.parametrize("how", ["release", "loss", "time"])
def test_a_reentrant_lock_that_is_over_is_not_entered_again_though_its_lease_is_still_referred_to(
    story: Story, how: str
) -> None:
    """The caller would hold nothing."""
    lock = story.client.lock("x", reentrant=True, renew=False)
    first = lock.acquire()
    match how:
        case "release":
            first.release()
        case "loss":
            story.store.lose(first)
        case "time":
            story.store.clock.advance(31)
    for again in (lock.acquire(0), lock.try_acquire()):
        assert again is not None
        assert again.fence > first.fence
        again.check()
    assert story.client.inspect("x") is not None
    first.release()
