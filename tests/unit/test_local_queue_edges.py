"""The local queue at its edges: lines without a delegate, locks that do not line up, lines that are forgotten."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leasehold import AcquireTimeout, OutcomeUnknown, events
from leasehold._backoff import QUEUE_OR_POLL
from leasehold._core.acquire import _Attempt
from leasehold._core.local_acquire import LocalAttempt
from leasehold._core.local_queue import SWEEP_AT_LEAST, LocalQueue, LocalQueues, LocalWaiter
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.spi import Place
from leasehold.values import Holder, Loss, LossReason, Refusal
from tests.unit.test_calls_step_by_step import NOW, Steps, granted, placed, steps  # noqa: F401 - a fixture
from tests.unit.test_local_queue import Scene, story


@story
async def test_who_comes_to_a_line_without_a_delegate_asks_the_store(scene: Scene) -> None:
    first = await scene.batch(1)
    assert scene.line.delegate is None
    second = asyncio.create_task(scene.client.lock("x").acquire())
    await scene.until(lambda: scene.line.place is not None)
    assert (await scene.in_the_store())[1] == 1
    assert await first.release()
    assert await (await second).release()
    assert scene.is_empty()


def places(marks: bool, **options: Any) -> int:
    """How many places three waiters have in the store."""
    found: list[int] = []

    @story
    async def play(scene: Scene) -> None:
        held = await scene.other.lock("x").acquire()
        local = scene.client._open().local
        assert local is not None
        local.marks = marks
        scene.tasks = [asyncio.create_task(scene.client.lock("x", **options).acquire()) for _ in range(3)]
        await scene.until(lambda: scene.waiting == 3)
        found.append((await scene.in_the_store())[1])
        await held.release()
        for task in scene.tasks:
            await (await task).release()
        assert scene.is_empty()

    play()
    return found[0]


@pytest.mark.parametrize("marks", [True, False], ids=["server", "embedded"])
@pytest.mark.parametrize(
    ("options", "number"),
    [({}, 1), ({"fair": "strict"}, 3), ({"renew": False}, 3)],
    ids=["plain", "strict", "not renewed"],
)
def test_who_shares_a_place_in_the_store(marks: bool, options: dict[str, Any], number: int) -> None:
    assert places(marks, **options) == number


def idle_line(key: str) -> LocalQueue:
    spec: Any = SimpleNamespace(key=key, ttl=30.0, holder=None)
    return LocalQueue(spec)


@story
async def test_who_stands_in_line_is_told_who_has_the_lock(scene: Scene) -> None:
    scene.other = scene.store.connect_async(ttl=3600, label="elsewhere")
    held = await scene.other.lock("x").acquire()
    await scene.come(1)
    await scene.until(lambda: scene.line.place is not None)
    last = asyncio.create_task(scene.client.lock("x").acquire(5))
    await scene.until(lambda: scene.waiting == 2)
    scene.store.clock.advance(1.1)
    await scene.until(lambda: scene.line.refusal is not None)
    scene.store.clock.advance(6)
    with pytest.raises(AcquireTimeout) as late:
        await asyncio.wait_for(last, 60)
    assert late.value.holder is not None
    assert late.value.holder.label == "elsewhere"
    await held.release()


@story
async def test_lines_that_nobody_will_come_back_to_are_forgotten_in_time(scene: Scene) -> None:
    local = scene.client._open().local
    assert local is not None
    busy: Any = idle_line("busy")
    busy.delegate = object()
    local.queues["busy"] = busy
    for number in range(SWEEP_AT_LEAST - 2):
        local.queues[str(number)] = idle_line(str(number))
    await (await scene.client.lock("x").acquire()).release()
    assert len(local.queues) == SWEEP_AT_LEAST - 1
    local.queues["one more"] = idle_line("one more")
    await (await scene.client.lock("x").acquire()).release()
    assert list(local.queues) == ["busy"]
    assert local._sweep_at == SWEEP_AT_LEAST + 2
    local.queues.clear()


@story
async def test_a_forked_child_forgets_who_stands_in_line(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(2)
    local = scene.client._open().local
    assert local is not None
    queues = dict(local.queues)
    local.bury()
    assert local.queues == {}
    local.queues.update(queues)
    await held.release()


def test_a_grant_of_the_line_that_is_over_when_it_arrives_serves_nobody_and_is_asked_for_again(
    steps: Steps,  # noqa: F811
) -> None:
    def late(place: Any) -> Any:
        steps.store.clock.advance(30)
        return granted(spare=9)(place)

    steps.answers("join", placed(0.4))
    steps.answers("turn", late, granted(spare=9))
    lease = steps.client.lock("x", slow_wait=None).acquire(None)
    assert [verb for verb, _ in steps.calls] == ["join", "turn", "withdraw", "join", "turn"]
    assert lease.remaining() > 29


@pytest.mark.parametrize("is_silent", [True, False])
def test_doubt_about_a_grant_of_the_line_goes_with_it_to_whoever_is_served(
    steps: Steps,  # noqa: F811
    is_silent: bool,
) -> None:
    """A copy of the request may still be under way: the release has to withdraw the claim as well."""
    steps.answers("join", placed(0.4))
    steps.answers("turn", *[OutcomeUnknown("no answer")] * is_silent, granted(spare=9))
    lease = steps.client.lock("x", slow_wait=None).acquire(5)
    assert lease._twin._tenure.doubtful is is_silent


@pytest.mark.parametrize("is_known", [True, False])
def test_whoever_takes_a_place_over_takes_over_all_that_is_known_of_its_claim(
    steps: Steps,  # noqa: F811
    is_known: bool,
) -> None:
    spec = steps.client.lock("x")._twin._spec
    one, other = (_Attempt(steps.opened, spec, NOW + 5, QUEUE_OR_POLL) for _ in range(2))
    claim = one._fresh_claim()
    one._traceless, one._doubt, one._silent = False, is_known, is_known
    other._fresh_claim()
    other._doubt, other._silent = not is_known, not is_known
    other.adopt(one)
    assert other._claim is claim
    assert (other._doubt, other._silent, other._traceless) == (is_known, is_known, False)
    assert one._traceless, "it is not to be withdrawn by whoever left"


@pytest.mark.parametrize("renew", [True, False])
def test_a_lock_that_is_not_renewed_is_not_renewed_after_a_wait_either(renew: bool) -> None:
    @story
    async def play(scene: Scene) -> None:
        held = await scene.other.lock("x").acquire()
        await scene.come(1, renew=renew)
        await held.release()
        lease = await scene.tasks[0]
        assert lease._tenure.renewable is renew
        await lease.release()

    play()


@story
async def test_a_slow_wait_in_a_line_says_how_many_are_ahead_here_and_in_the_store(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    third = asyncio.create_task(scene.other.lock("x").acquire())
    await scene.until(lambda: "join" in scene.calls[1:])
    await scene.come(3, slow_wait=2.0)
    scene.store.clock.advance(2.0)

    def warned() -> list[events.Waiting]:
        return [event for event in scene.asked if isinstance(event, events.Waiting)]

    await scene.until(lambda: len(warned()) == 3)
    assert sorted((event.ahead, event.waited) for event in warned()) == [(1, 2.0), (2, 2.0), (3, 2.0)]
    await held.release()
    await (await third).release()


@story
async def test_a_batch_is_not_passed_on_by_a_process_that_is_about_to_end(scene: Scene) -> None:
    first = await scene.batch(3)
    scene.client._open().waiting_calls.freeze()
    before = len(scene.calls)
    assert await first.release()
    assert "release" in scene.calls[before:], "others may have it"
    assert [task.done() for task in scene.tasks] == [True, False, False]
    scene.client._open().waiting_calls.is_frozen = False


class Served:
    """A call that was served by its own process; its claim is still in the store."""

    def __init__(self, *, traceless: bool, loss: Loss | None = None, fails: BaseException | None = None) -> None:
        self.notes: list[str] = []
        self._traceless = traceless
        self._fails = fails
        self._claim = "claim"
        self._runtime: Any = SimpleNamespace(shielded=self._shielded)
        self._opened: Any = SimpleNamespace(
            keeper=SimpleNamespace(decide=lambda _: loss), events=SimpleNamespace(listeners=())
        )

    async def _shielded(self, operation: Any) -> Any:
        self.notes.append("shielded")
        return await operation()

    async def _withdraw(self, claim: object) -> None:
        self.notes.append(f"withdraw {claim}")
        if self._fails is not None:
            raise self._fails

    def leave(self, _: object) -> None:
        self.notes.append("leave")


@pytest.mark.parametrize(
    ("facts", "notes", "is_held"),
    [
        ({"traceless": True}, ["leave"], True),
        ({"traceless": False}, ["leave", "withdraw claim"], True),
        ({"traceless": True, "loss": Loss(LossReason.EXPIRED)}, ["leave", "give back"], False),
        ({"traceless": False, "loss": Loss(LossReason.EXPIRED)}, ["leave", "withdraw claim", "give back"], False),
    ],
)
def test_a_call_that_was_served_leaves_no_place_behind_and_does_not_use_what_is_over(
    facts: dict[str, Any], notes: list[str], is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, tenure = Served(**facts), object()

    async def give_back(_: object, what: object) -> None:
        assert what is tenure
        call.notes.append("give back")

    monkeypatch.setattr("leasehold._core.local_acquire.give_back", give_back)
    monkeypatch.setattr("leasehold._core.local_acquire.is_logged", lambda _: False)
    picked = run(LocalAttempt._pick_up(call, call, tenure))  # type: ignore[arg-type]
    assert picked is (tenure if is_held else None)
    assert call.notes == notes


def test_a_call_that_is_interrupted_when_it_was_served_gives_the_lock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    call, tenure = Served(traceless=False, fails=KeyboardInterrupt()), object()

    async def give_back(_: object, what: object) -> None:
        call.notes.append("give back")

    monkeypatch.setattr("leasehold._core.local_acquire.give_back", give_back)
    with pytest.raises(KeyboardInterrupt):
        run(LocalAttempt._pick_up(call, call, tenure))  # type: ignore[arg-type]
    assert call.notes == ["leave", "withdraw claim", "shielded", "give back"]


# --- the pieces by themselves


class Caller:
    """A call of acquire, as far as a queue knows it."""

    is_alone = False

    def __init__(self, key: str = "ns:x") -> None:
        self.spec: Any = SimpleNamespace(key=key, ttl=30.0, holder=Holder("h", 1), in_batches=True)
        self.waiter: Any = None
        self.adopted: list[Any] = []

    def adopt(self, other: Any) -> None:
        self.adopted.append(other)

    def give_up_claim(self) -> None:
        """Its claim is of the tenure."""


def queues() -> LocalQueues:
    keeper, nothing = SimpleNamespace(guard=nullcontext()), object()
    return LocalQueues(ThreadRuntime(), cast("Any", nothing), cast("Any", keeper), cast("Any", nothing))


def queued(number: int) -> tuple[LocalQueues, LocalQueue, list[Any]]:
    """The queues of a client, one of them, and those who wait there; the first to come is the delegate."""
    local = queues()
    callers: list[Any] = [Caller() for _ in range(number)]
    assert not local.enter(callers[0])
    for caller in callers[1:]:
        assert local.enter(caller)
    queue: Any = local.queues["ns:x"]
    return local, queue, callers


def test_all_who_wait_are_sent_away_and_told_and_the_next_one_begins_a_queue_of_its_own() -> None:
    local, queue, callers = queued(3)
    local.send_away(queue)
    assert [(each.waiter.is_sent_away, each.waiter.signal.is_set()) for each in callers] == [(True, True)] * 3
    assert not queue.waiting
    assert local.queues == {}
    late = Caller()
    assert not local.enter(late)
    local.send_away(queue)
    assert local.queues == {"ns:x": late}, "the queue that was given up is not that of the name any more"


def test_a_delegate_that_leaves_is_replaced_by_the_last_to_arrive_with_its_place() -> None:
    local, queue, callers = queued(4)
    first, last = callers[0], callers[3]
    place = Place(cast("Any", object()), ThreadRuntime().signal(), 5.0, ahead=2)
    local.keep_place(first.waiter, place)
    assert [queue.ahead_of(each.waiter) for each in callers] == [2, 3, 4, 5]
    queue.failure = "away"
    local.leave(first)
    assert (queue.delegate, queue.place, queue.is_asking) == (last.waiter, place, False)
    assert not queue.failure
    assert (last.adopted, last.waiter.signal.is_set(), first.waiter) == ([first], True, None)
    assert callers[1].adopted == callers[2].adopted == []
    local.leave(callers[1])
    assert (queue.delegate, last.adopted) == (last.waiter, [first]), "who is no delegate has nothing to leave"
    local.leave(callers[2])
    local.leave(last)
    assert (queue.delegate, queue.place, local.queues) == (None, None, {})
    local.leave(last)


def test_a_delegate_whose_request_is_under_way_has_no_place_to_leave() -> None:
    local, queue, callers = queued(2)
    assert queue.is_asking
    assert not queue.is_resting
    local.leave(callers[0])
    assert (queue.delegate, queue.is_asking, callers[1].adopted) == (callers[1].waiter, False, [])
    assert queue.is_resting


def test_a_call_that_only_asked_is_forgotten_with_its_answer_or_when_it_leaves() -> None:
    for leaves in (True, False):
        local, other, call = queues(), Caller("ns:y"), Caller()
        assert not local.enter(call)
        assert not local.enter(other)
        if leaves:
            local.leave(call)
        else:
            assert not local.has_become_delegate(call, Refusal("ns:x"))
        assert local.queues == {"ns:y": other}


@pytest.mark.parametrize(
    ("waiting", "arrived", "is_asking", "served"),
    [
        (0, 9, False, None),
        (2, 9, False, 0),
        (2, 9, True, 1),
        (1, 9, True, None),
        (2, 1, True, None),
        (2, 0, False, None),
    ],
)
def test_a_batch_serves_the_first_of_those_who_waited_when_it_began(
    waiting: int, arrived: int, is_asking: bool, served: int | None
) -> None:
    queue = LocalQueue(Caller().spec)
    waiters = [LocalWaiter(queue, Caller(), ThreadRuntime().signal(), "") for _ in range(waiting)]
    queue.waiting.extend(waiters)
    queue.is_asking, queue.delegate = is_asking, waiters[0] if waiters else None
    found = queue.next_waiter(cast("Any", SimpleNamespace(last=arrived)))
    assert found is (None if served is None else waiters[served])


@pytest.mark.parametrize(("waiting", "wanted"), [(0, 0), (1, 0), (2, 1), (65, 64), (66, 64)])
def test_a_place_asks_for_as_many_fences_as_a_batch_may_need(waiting: int, wanted: int) -> None:
    queue = LocalQueue(Caller().spec)
    queue.waiting.extend([cast("Any", object())] * waiting)
    assert queue.fences_wanted == wanted
