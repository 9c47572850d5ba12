"""Which grants linger, until when a parked one may be used, and what becomes of it when a call is interrupted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendUnavailable, OutcomeUnknown, events
from leasehold._core import linger
from leasehold._core.linger import LingeringTenure
from leasehold._core.states import State
from leasehold._core.validity import believed_until
from leasehold._runtimes.threads import run
from leasehold.testing import ManualStore
from tests.unit.test_calls_step_by_step import NOW, Steps, granted, placed, steps  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold import Lease


class Interrupted(BaseException):
    """What a signal handler raises."""


def tenure_of(lease: Lease) -> Any:
    return lease._twin._tenure


def after(seconds: float, answer: Callable[[Any], Any], scene: Steps) -> Callable[[Any], Any]:
    """The answer takes so long."""

    def late(subject: Any) -> Any:
        scene.store.clock.advance(seconds)
        return answer(subject)

    return late


@pytest.mark.parametrize(
    ("join", "turn", "lingers"),
    [
        ([granted(spare=9)], [], True),
        ([granted(spare=0)], [], False),
        ([placed(0.4)], [granted(spare=9)], False),  # most likely somebody else waits as well
        ([OutcomeUnknown("no answer"), granted(spare=9)], [], False),  # the first request may still arrive
        ([BackendUnavailable("away"), granted(spare=9)], [], False),
    ],
    ids=["at once", "no fences", "after a wait", "in doubt", "after an outage"],
)
def test_only_a_grant_that_came_at_once_and_without_doubt_lingers(
    steps: Steps,  # noqa: F811
    join: list[Any],
    turn: list[Any],
    lingers: bool,
) -> None:
    steps.answers("join", *join)
    steps.answers("turn", *(turn or [granted()]))
    lease = steps.client.lock("x", linger=0.5).acquire(5)
    assert isinstance(tenure_of(lease), LingeringTenure) is lingers
    lease.release()
    assert bool(steps.opened.parked) is lingers


@pytest.mark.parametrize("linger_for", [None, 0.5])
def test_a_grant_of_either_kind_counts_from_before_its_request_or_from_when_the_store_says(
    steps: Steps,  # noqa: F811
    linger_for: float | None,
) -> None:
    steps.answers("join", after(5.0, granted(spare=9), steps), granted(spare=9, since=NOW + 1))
    leases = [steps.client.lock(name, linger=linger_for).acquire(60) for name in "xy"]
    assert [tenure_of(lease).deadline for lease in leases] == [believed_until(NOW, 30.0), believed_until(NOW + 1, 30.0)]


@pytest.mark.parametrize("linger_for", [None, 0.5])
def test_a_grant_of_either_kind_that_is_over_when_it_arrives_is_withdrawn_and_asked_for_again(
    steps: Steps,  # noqa: F811
    linger_for: float | None,
) -> None:
    steps.answers("join", after(30.0, granted(spare=9), steps), granted(spare=9))
    lease = steps.client.lock("x", linger=linger_for).acquire(None)
    assert [verb for verb, _ in steps.calls] == ["join", "withdraw", "join"]
    assert lease.remaining() > 29


def test_a_call_that_takes_a_parked_lease_says_so_as_any_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "leasehold")
    with ManualStore(autojump=None).connect() as client:
        lock = client.lock("x", linger=0.5, group="jobs")
        first = lock.acquire()
        first.release()
        lock.acquire().release()
        said = [text for text in caplog.messages if text.startswith("acquired")]
        assert said == [f"acquired 'x' with fence {first.fence + more} after 0.000 s" for more in (0, 1)]
        seen: list[Any] = []
        client.on_event(seen.append)
        lock.acquire().release()
        assert seen[0] == events.Acquired("x", first.fence + 2, 0.0, "jobs", "exclusive", 0)


def test_a_parked_lease_is_trusted_no_longer_than_the_grant_whatever_max_hold_its_next_holder_has() -> None:
    with ManualStore(autojump=None).connect() as client:
        client.lock("x", linger=0.5).acquire().release()
        lease = client.lock("x", max_hold=3600).acquire()
        assert tenure_of(lease).deadline == believed_until(NOW, 30.0)
        assert tenure_of(lease).ends == NOW + 3600
        lease.release()


@pytest.mark.parametrize("call", [lambda lock: lock.acquire(5), lambda lock: lock.try_acquire()])
@pytest.mark.parametrize("is_taken", [True, False])
def test_a_call_that_is_interrupted_while_it_takes_a_parked_lease_leaves_the_lock_free(
    call: Any, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = linger._take

    def interrupted(*given: Any) -> bool:
        if is_taken:
            assert plain(*given)
        raise Interrupted

    store = ManualStore(autojump=None)
    with store.connect() as client, store.connect() as other:
        lock = client.lock("x", linger=0.5)
        lock.acquire().release()
        monkeypatch.setattr(linger, "_take", interrupted)
        with pytest.raises(Interrupted):
            call(lock)
        assert client._twin._open().parked == {}
        lease = other.lock("x").try_acquire()
        assert lease is not None
        lease.release()


def test_a_parked_lease_that_another_call_took_meanwhile_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = linger._take
    with ManualStore(autojump=None).connect() as client:
        lock = client.lock("x", linger=0.5)
        lock.acquire().release()
        taken: list[Any] = []

        def overtaken(*given: Any) -> bool:
            monkeypatch.setattr(linger, "_take", plain)
            taken.append(lock.acquire())
            return plain(*given)

        monkeypatch.setattr(linger, "_take", overtaken)
        assert lock.try_acquire() is None
        (lease,) = taken
        lease.check()
        state = client.inspect("x")
        assert state is not None
        assert lease.release()


class Released:
    """Two parked leases; `untils` has until when each release was sent, and the first may be interrupted."""

    def __init__(self, *, interrupted: bool = False, takes: float = 0.0) -> None:
        self.store = ManualStore(autojump=None)
        self.client = self.store.connect()
        for name in "xy":
            self.client.lock(name, linger=0.5).acquire().release()
        self.opened = self.client._twin._open()
        self.untils: list[float] = []
        self.interrupted, self.takes = interrupted, takes
        backend: Any = self.opened.backend
        self.plain = backend.release
        backend.release = self._release

    async def _release(self, grant: Any, until: float, /) -> Any:
        self.untils.append(round(until - NOW, 6))
        if self.interrupted:
            self.interrupted = False
            raise Interrupted
        self.store.clock.advance(self.takes)
        return await self.plain(grant, until)


@pytest.mark.parametrize(("limit", "untils"), [(None, [1.0, 1.0]), (0.9, [0.9, 0.9]), (9.0, [1.0, 1.0])])
def test_all_that_is_parked_is_given_back_within_one_grace(limit: float | None, untils: list[float]) -> None:
    scene = Released(takes=0.3)
    run(scene.opened.end_parked(*([] if limit is None else [NOW + limit])))
    assert scene.untils == untils
    assert scene.opened.parked == {}
    scene.store.close()


def test_an_interruption_does_not_keep_what_is_parked_from_being_given_back() -> None:
    ways: list[Any] = [lambda opened: opened.end_parked(), lambda opened: opened.unpark("leasehold:x")]
    for give_back in ways:
        scene = Released(interrupted=True)
        with pytest.raises(Interrupted):
            run(give_back(scene.opened))
        with scene.store.connect() as other:
            lease = other.lock("x").try_acquire()
            assert lease is not None
            lease.release()
        scene.store.close()


def test_what_is_given_back_is_not_renewed_meanwhile() -> None:
    scene = Released()
    parked = scene.opened.parked["leasehold:x"]
    assert parked.stop_lingering()
    assert parked.state is State.RELEASING
    assert not parked.wants_renewal(NOW + 20)
    assert parked.stop_lingering(), "it may be repeated"
    run(parked.go_back())
    assert len(scene.untils) == 1
    run(scene.opened.unpark("leasehold:x"))
    assert len(scene.untils) == 1
    scene.store.close()


def test_the_keeper_looks_again_at_the_very_end_of_a_stay_and_not_a_second_later() -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client:
        lock = client.lock("x", linger=0.5, ttl=12)
        keeper = client._twin._open().keeper
        lock.acquire().release()
        (parked,) = client._twin._open().parked.values()
        assert parked.next_action() == NOW + 0.5
        assert keeper._survey(NOW)[2] == NOW + 0.5
        lease = lock.acquire()
        assert tenure_of(lease) is parked
        assert parked.next_action() == NOW + 4.0, "it has a holder: its next renewal is what matters"
        lease.release()
        (following,) = client._twin._open().parked.values()
        assert following.next_action() == NOW + 0.5, "counted from the first release"
