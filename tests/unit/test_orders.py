"""What an operator's order sends to the store, word for word, and the event that tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    BackendRejected,
    BackendUnavailable,
    ConfigurationError,
    Holder,
    Holding,
    LockState,
    Mode,
    OutcomeUnknown,
    UnsupportedCapability,
    events,
)
from leasehold._face.lock import AsyncLock
from leasehold.findings import Finding, Level
from leasehold.testing import ManualStore
from leasehold.values import MAX_FENCE, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold import Client

AWAY, SILENT, REJECTED = BackendUnavailable("away"), OutcomeUnknown("no answer", backend="b"), BackendRejected("no")
ROOM = 2**40  # what a fence that is raised has to leave for later grants
FOUND = Finding("clock", Level.OK, "", "")
HOLDING = Holding(Holder("h", 1), 7, 1.0, 2.0)


class Orders:
    """A client whose store notes each request and answers by a script; the last answer is given again."""

    def __init__(self) -> None:
        self.store = ManualStore(autojump=None)
        self.client: Client = self.store.connect(namespace="a:b", label="ops")
        self.sent: list[tuple[Any, ...]] = []
        self.seen: list[events.Event] = []
        self.answers: list[Any] = [True]
        self.client.on_event(self.seen.append)
        backend: Any = self.client._twin._open().backend
        for verb in ("break_", "raise_fence", "pause", "resume", "inspect", "list", "examine"):
            setattr(backend, verb, self._verb(verb))

    def _verb(self, verb: str) -> Callable[..., Any]:
        async def scripted(*given: Any, **options: Any) -> Any:
            self.sent.append((verb, *given, *options.items()))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return scripted


@pytest.fixture
def orders() -> Iterator[Orders]:
    made = Orders()
    yield made
    made.store.close()


def test_a_break_names_the_grant_and_who_wants_it(orders: Orders) -> None:
    assert orders.client.break_lock("x:1", fence=7, reason="stuck", by="ana") is True
    assert orders.client.break_lock("x:1", fence=MAX_FENCE, reason="stuck", by="ana", now=True) is True
    orders.answers = [False]
    assert orders.client.break_lock("x:1", fence=8, reason="stuck", by="ana") is False
    assert orders.sent == [
        ("break_", "a%3Ab:x:1", 7, "stuck (by ana)", ("now", False)),
        ("break_", "a%3Ab:x:1", MAX_FENCE, "stuck (by ana)", ("now", True)),
        ("break_", "a%3Ab:x:1", 8, "stuck (by ana)", ("now", False)),
    ]
    assert orders.seen == [events.Broken("x:1", fence, "stuck", "ana") for fence in (7, MAX_FENCE)]
    with pytest.raises(ConfigurationError, match="the number that inspect"):
        orders.client.break_lock("x", fence=MAX_FENCE + 1, reason="stuck")


def test_a_fence_is_raised_to_what_the_store_says_and_leaves_room_for_later_ones(orders: Orders) -> None:
    orders.answers = [50]
    assert orders.client.raise_fence("x", 7, reason="restored", by="ana") == 50
    assert orders.client.raise_fence("x", MAX_FENCE - ROOM, reason="restored", by="ana") == 50
    assert orders.sent == [("raise_fence", "a%3Ab:x", 7), ("raise_fence", "a%3Ab:x", MAX_FENCE - ROOM)]
    assert orders.seen == [events.FenceRaised("x", 50, "restored", "ana")] * 2
    with pytest.raises(ConfigurationError, match="the number that the resource has seen"):
        orders.client.raise_fence("x", MAX_FENCE - ROOM + 1, reason="restored")


@pytest.mark.parametrize(
    ("duration", "seconds", "told"), [(None, UNLIMITED, None), ("2m", 120.0, 120.0), (0.1, 0.1, 0.1)]
)
def test_a_pause_says_who_and_why_and_for_how_long(
    orders: Orders, duration: Any, seconds: float, told: float | None
) -> None:
    orders.client.pause("x", reason="moving", by="ana", duration=duration)
    ((verb, key, holder, lasts),) = orders.sent
    us = orders.client._twin._holder(None)
    assert (verb, key, lasts) == ("pause", "a%3Ab:x", seconds)
    assert holder == Holder(us.host, us.pid, "ana", "moving")
    assert orders.seen == [events.NamePaused("x", "moving", "ana", told)]


def test_a_pause_without_a_name_is_by_this_process_and_no_pause_lasts_for_no_time(orders: Orders) -> None:
    orders.client.pause("x", reason="moving")
    us = str(orders.client._twin._holder(None))
    assert us.startswith("ops on ")
    assert orders.sent[0][2].label == us
    for duration in (0, -1, 0.05):
        with pytest.raises(ConfigurationError, match=r"^duration must be at least"):
            orders.client.pause("x", reason="moving", duration=duration)
    assert len(orders.sent) == 1


def test_a_pause_by_a_process_with_a_long_label_is_cut_to_what_is_kept() -> None:
    store = ManualStore(autojump=None)
    with store.connect(label="x" * 256) as client:
        client.pause("x", reason="moving")
        state = client.inspect("x")
        assert state is not None
        assert state.paused is not None
        assert state.paused.by == "x" * 256


@pytest.mark.parametrize(
    ("answers", "raised", "sent"),
    [
        ([None], None, 1),
        ([AWAY, None], None, 2),
        ([SILENT, None], None, 2),
        ([AWAY, SILENT], OutcomeUnknown, 2),
        ([SILENT, AWAY], BackendUnavailable, 2),
        ([REJECTED], BackendRejected, 1),
    ],
)
def test_a_pause_may_be_sent_twice_and_is_told_of_when_it_is_confirmed(
    orders: Orders, answers: list[Any], raised: type[Exception] | None, sent: int
) -> None:
    orders.answers = answers
    if raised is None:
        orders.client.pause("x", reason="moving")
    else:
        with pytest.raises(raised):
            orders.client.pause("x", reason="moving")
    assert len(orders.sent) == sent
    assert len(orders.seen) == (raised is None)


@pytest.mark.parametrize("was_paused", [True, False])
def test_a_resumption_is_told_of_if_there_was_a_pause(orders: Orders, was_paused: bool) -> None:
    orders.answers = [was_paused]
    assert orders.client.resume("x", by="ana") is was_paused
    assert orders.sent == [("resume", "a%3Ab:x")]
    assert orders.seen == [events.NameResumed("x", "ana")] * was_paused


def test_locks_are_shown_by_the_names_that_users_gave_them(orders: Orders) -> None:
    stored = LockState("a%3Ab:x:1", Mode.EXCLUSIVE, 1, (HOLDING,), ())
    shown = LockState("x:1", Mode.EXCLUSIVE, 1, (HOLDING,), ())
    orders.answers = [stored, None, [stored, stored], []]
    assert orders.client.inspect("x:1") == shown
    assert orders.client.inspect("y") is None
    assert list(orders.client.locks("x:")) == [shown, shown]
    assert list(orders.client.locks()) == []
    assert orders.sent == [
        ("inspect", "a%3Ab:x:1"), ("inspect", "a%3Ab:y"), ("list", "a%3Ab:x:"), ("list", "a%3Ab:"),
    ]  # fmt: skip


@pytest.mark.parametrize("look", [lambda client: client.inspect("x"), lambda client: client.locks()])
@pytest.mark.parametrize(
    ("answers", "raised", "sent"),
    [
        ([AWAY, []], None, 2),
        ([SILENT, []], None, 2),
        ([AWAY, AWAY], BackendUnavailable, 2),
        ([AWAY, SILENT], BackendUnavailable, 2),
        ([REJECTED], BackendRejected, 1),
        ([AWAY, REJECTED], BackendRejected, 2),
    ],
)
def test_a_look_is_repeated_once_and_never_ends_in_doubt(
    orders: Orders, look: Callable[[Client], Any], answers: list[Any], raised: type[Exception] | None, sent: int
) -> None:
    orders.answers = [None if answer == [] and look.__code__.co_names[0] == "inspect" else answer for answer in answers]
    if raised is None:
        assert not look(orders.client)
    else:
        with pytest.raises(raised) as failed:
            look(orders.client)
        assert type(failed.value) is raised
        if answers[-1] is SILENT:
            assert (str(failed.value), failed.value.backend) == ("no answer", "b")  # type: ignore[attr-defined]
    assert len(orders.sent) == sent


def test_what_a_store_finds_out_about_itself_is_passed_on(orders: Orders) -> None:
    orders.answers = [[FOUND]]
    assert list(orders.client.examine()) == [FOUND]


@pytest.mark.parametrize("name", ["", "x" * 513, 7])
@pytest.mark.parametrize(
    "order",
    [
        lambda client, name: client.inspect(name),
        lambda client, name: client.break_lock(name, fence=1, reason="r"),
        lambda client, name: client.raise_fence(name, 1, reason="r"),
        lambda client, name: client.highest_fence(name),
        lambda client, name: client.pause(name, reason="r"),
        lambda client, name: client.resume(name),
        lambda client, name: client.last_run(name),
        lambda client, name: client.forget(name, slot="s", reason="r"),
        lambda client, name: client.lock(name),
    ],
    ids=["inspect", "break", "raise", "highest", "pause", "resume", "last_run", "forget", "lock"],
)
def test_what_is_no_name_is_refused_before_anything_is_sent(
    orders: Orders, order: Callable[[Client, Any], Any], name: Any
) -> None:
    with pytest.raises(ConfigurationError, match="a lock name"):
        order(orders.client, name)
    assert orders.sent == []


@pytest.mark.parametrize(
    "order",
    [
        lambda client, by: client.break_lock("x", fence=1, reason="r", by=by),
        lambda client, by: client.raise_fence("x", 1, reason="r", by=by),
        lambda client, by: client.pause("x", reason="r", by=by),
        lambda client, by: client.resume("x", by=by),
        lambda client, by: client.forget("x", slot="s", reason="r", by=by),
    ],
    ids=["break", "raise", "pause", "resume", "forget"],
)
def test_who_gives_an_order_is_a_short_text(orders: Orders, order: Callable[[Client, Any], Any]) -> None:
    for by in (7, "x" * 257):
        with pytest.raises(ConfigurationError, match=r"^by (must be text|has 257 characters)"):
            order(orders.client, by)
    assert orders.sent == []


def test_the_highest_fence_is_looked_for_without_disturbing_anybody(orders: Orders) -> None:
    orders.answers = [500]
    with orders.client.lock("x").hold() as lease:
        assert orders.client.highest_fence("x") == 500
        found = orders.client.highest_fence()
    assert found > lease.fence
    assert orders.sent == [("raise_fence", "a%3Ab:x", 1)]
    assert not [event for event in orders.seen if isinstance(event, events.FenceRaised)]
    probes = [event.name for event in orders.seen if isinstance(event, events.Acquired) and event.name != "x"]
    assert len(set(probes)) == 2, "two who look at the same time do not meet"
    assert all(name.startswith("leasehold/fence/") for name in probes)


def test_the_highest_fence_is_waited_for_as_long_as_new_nodes_do_not_vote(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    plain = AsyncLock.hold

    def hold(lock: AsyncLock, *words: Any, **options: Any) -> Any:
        given.append((words, options))
        return plain(lock, *words, **options)

    monkeypatch.setattr(AsyncLock, "hold", hold)
    orders.answers = [3]
    assert orders.client.highest_fence("x") == 3
    assert given == [((), {"timeout": 60.0})]


@pytest.mark.parametrize("verb", ["inspect", "locks", "break_lock", "raise_fence", "pause", "resume"])
def test_an_order_that_a_store_cannot_follow_is_refused(verb: str, orders: Orders) -> None:
    given: dict[str, Any] = {
        "inspect": {"name": "x"}, "locks": {}, "break_lock": {"name": "x", "fence": 1, "reason": "r"},
        "raise_fence": {"name": "x", "fence": 1, "reason": "r"}, "pause": {"name": "x", "reason": "r"},
        "resume": {"name": "x"},
    }  # fmt: skip
    backend: Any = orders.client._twin._open().backend
    backend._inner = Poor()
    with pytest.raises(UnsupportedCapability, match="poor: has no"):
        getattr(orders.client, verb)(**given[verb])
    assert orders.sent == []


class Poor:
    """A store that promises nothing."""

    capabilities: frozenset[Any] = frozenset()
    label = "poor:"

    async def close(self) -> None: ...
