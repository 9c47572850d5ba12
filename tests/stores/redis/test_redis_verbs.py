"""What each verb of the Redis store sends, and what it makes of the reply. Without a server."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from leasehold._backends.redis.backend import HOUR_US, LONGEST_PLACE, SLICE, RedisBackend
from leasehold._backends.redis.keys import Names
from leasehold._backends.redis.notifications import HandOver, Waiter
from leasehold._backends.redis.options import Options
from leasehold._backends.redis.scripts import script
from leasehold._backends.redis.wire import Node
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ModeConflict, OutcomeUnknown
from leasehold.kit.holder import holder_to_json
from leasehold.kit.pauses import pause_to_json
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Pause, Reading, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

ANA = Holder("db-3", 7, "nightly", "report")
STORED = holder_to_json(ANA).encode()
SCRIPTS = {
    script(name).digest: name
    for name in ("acquire", "break", "inspect", "pause", "raise_fence", "read_record", "release", "renew", "withdraw",
                 "write_record")
}  # fmt: skip


class Sent:
    """One call, taken apart again."""

    def __init__(self, call: Any, timeout: float, until: float) -> None:
        lengths, words = call.short.split(b"\r\n")[1::2], call.short.split(b"\r\n")[2::2]
        assert call.short.startswith(b"*%d\r\n" % len(words))
        assert lengths[: len(words)] == [b"$%d" % len(word) for word in words]
        assert call.whole.startswith(b"*%d\r\n$4\r\nEVAL\r\n" % len(words))
        self.name = SCRIPTS[words[1]]
        count = int(words[2])
        self.keys = [word.decode() for word in words[3 : 3 + count]]
        self.words = [word.decode() for word in words[3 + count :]]
        self.timeout, self.until = timeout, until


class World:
    """Router, topology, wire and runtime in one: replies in turn."""

    sharded = False

    def __init__(self, *replies: Any, **options: Any) -> None:
        self.replies = list(replies)
        self.sent: list[Sent] = []
        self.topology = self.wire = self
        self.time = 100.0
        self.patience: list[float] = []
        this: Any = self
        options = {"prefix": "app:", **options}
        self.store = RedisBackend(this, Names(options["prefix"], compat=False), Options(**options), this, "redis://x")

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def owner(self) -> str:
        return "client"

    def guard(self) -> Any:
        return SimpleNamespace(__enter__=None)

    def signal(self) -> Any:
        return SimpleNamespace(set=lambda: None)

    def known(self, _: bytes) -> Node:
        return Node("h")

    async def node_for(self, *_: Any) -> Node:
        return Node("h")

    async def execute(self, call: Any, timeout: float, until: float = math.inf) -> Any:
        self.sent.append(Sent(call, timeout, until))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def execute_replicated(self, call: Any, replicas: int, patience: float, timeout: float, until: float) -> Any:
        self.patience.append(patience)
        return (await self.execute(call, timeout, until)), replicas if not self.replies else self.replies.pop(0)

    async def execute_all(self, calls: Sequence[Any], timeout: float, until: float) -> list[Any]:
        return [await self.execute(call, timeout, until) for call in calls]


CLAIM = Claim("ns:x", "o" * 32, 30.0, Mode.EXCLUSIVE, 1, 0.0, ANA)
GRANTED = [1, 41, 0, 9_000, 30_000, 0, 0]
REFUSED = [0, 3, 26_500, STORED, 0]


def queued(ahead: int = 1, left: int = 26_500, stored: bytes = STORED, off: int = 0) -> list[Any]:
    return [2, ahead, 9_000, left, stored, off]


# --- what a claim sends


def test_claim_is_sent_with_all_that_it_says() -> None:
    world = World(GRANTED, fence_floor=5)
    claim = replace(CLAIM, ttl=12.5, min_hold=0.25, spare=8)
    run(world.store.try_acquire(claim, 107.0))
    (sent,) = world.sent
    assert sent.name == "acquire"
    assert sent.keys == [
        "app:{ns:x}", "app:{ns:x}:s", "app:{ns:x}:q", "app:{ns:x}:w", "app:{ns:x}:z", "app:{ns:x}:d",
        f"app:{{ns:x}}:x:{claim.owner}",
    ]  # fmt: skip
    assert sent.words == ["0:8", claim.owner, "12500", "x", "0", "250", holder_to_json(ANA), "5"]
    assert (sent.timeout, sent.until) == (2.0, 107.0)


@pytest.mark.parametrize(
    ("changes", "place", "word"),
    [
        ({"ttl": 20.0}, 2, "20000"),
        ({"ttl": 0.0004}, 2, "1"),
        ({"mode": Mode.SHARED}, 3, "s"),
        ({"mode": Mode.PERMIT, "capacity": 3}, 4, "3"),
        ({"min_hold": 1.5}, 5, "1500"),
        ({"holder": Holder("h", 1)}, 6, holder_to_json(Holder("h", 1))),
        ({"owner": "p" * 16}, 1, "p" * 16),
        ({"owner": "p" * 32}, 1, "p" * 32),
    ],
)
def test_claim_that_says_something_else_about_the_same_name_is_not_sent_as_the_one_before(
    changes: dict[str, Any], place: int, word: str
) -> None:
    """The call for a name is packed once, and used again for the next claim of the same terms."""
    world = World(REFUSED, REFUSED, REFUSED)
    for claim in (CLAIM, replace(CLAIM, **changes), CLAIM):
        run(world.store.try_acquire(claim))
    first, other, again = [sent.words for sent in world.sent]
    assert other[place] == word
    assert first == again


def test_capacity_of_a_semaphore_is_part_of_its_terms() -> None:
    world = World(GRANTED, GRANTED)
    for capacity in (2, 3):
        run(world.store.try_acquire(replace(CLAIM, mode=Mode.PERMIT, capacity=capacity)))
    assert [sent.words[3:5] for sent in world.sent] == [["p", "2"], ["p", "3"]]


@pytest.mark.parametrize(
    ("ttl", "answer_timeout", "timeout"),
    [
        (30.0, 2.0, 2.0),
        (4.0, 2.0, 2.0),
        (3.0, 2.0, 1.5),
        (0.4, 2.0, 0.25),
        (0.4, 0.1, 0.1),
        (0.1, 0.1, 0.1),
        (30.0, 0.1, 0.1),
    ],
)
def test_answer_is_waited_for_as_long_as_it_is_of_use(ttl: float, answer_timeout: float, timeout: float) -> None:
    world = World(GRANTED, 1, 1, [1], answer_timeout=answer_timeout)
    claim = replace(CLAIM, ttl=ttl)
    run(world.store.try_acquire(claim))
    run(world.store.release(Grant(claim, 41, ttl)))
    run(world.store.withdraw(claim))
    run(world.store.renew([Grant(claim, 41, ttl)]))
    assert [sent.timeout for sent in world.sent] == pytest.approx([timeout] * 4)


def test_fence_of_each_grant_is_the_hint_of_the_next_claim() -> None:
    world = World([1, 41, 0, 9_000, 30_000, 0, 6], GRANTED, GRANTED)
    for _ in range(3):
        run(world.store.try_acquire(CLAIM))
    assert [sent.words[7] for sent in world.sent] == ["0", "47", "47"], "it rises, and has the spare ones behind it"


def test_fence_that_was_raised_ahead_of_the_clock_is_no_hint_for_other_names() -> None:
    far = 9_000 * 1000 + HOUR_US
    world = World([1, far - 1, 0, 9_000, 30_000, 0, 0], [1, far + 5, 0, 9_000, 30_000, 0, 0], GRANTED)
    for _ in range(3):
        run(world.store.try_acquire(CLAIM))
    assert [sent.words[7] for sent in world.sent] == ["0", str(far - 1), str(far - 1)]


# --- what it makes of the reply


@pytest.mark.parametrize(("abandoned", "spare"), [(0, 0), (1, 0), (0, 8)])
def test_grant_counts_from_before_the_call(abandoned: int, spare: int) -> None:
    world = World([1, 41, abandoned, 9_000, 30_000, 0, spare])
    assert run(world.store.try_acquire(CLAIM)) == Grant(CLAIM, 41, 30.0, None, abandoned == 1, spare)


PAUSED = pause_to_json(Holder("h", 1, "ana", "moving")).encode()


@pytest.mark.parametrize(
    ("reply", "refusal"),
    [
        (REFUSED, Refusal("ns:x", ANA, 26.5, 3)),
        ([0, 0, -2, b"", 0], Refusal("ns:x")),
        ([0, 0, 500, b"of another program", 0], Refusal("ns:x", None, 0.5)),
        ([0, 2, 5_000, PAUSED, 0], Refusal("ns:x", None, 5.0, 2, None, Pause("moving", "ana", 5.0))),
        ([0, 0, 7_000, STORED, 7_000], Refusal("ns:x", ANA, 7.0)),
    ],
)
def test_refusal_names_what_is_in_the_way_and_when_it_may_be_over(reply: list[Any], refusal: Refusal) -> None:
    assert run(World(reply).store.try_acquire(CLAIM)) == refusal


def test_refusal_of_a_server_that_holds_off_says_so() -> None:
    refusal = run(World([0, 0, 7_000, b"", 7_000]).store.try_acquire(CLAIM))
    assert isinstance(refusal, Refusal)
    assert "another 7 s" in str(refusal.why)


@pytest.mark.parametrize(
    ("kind", "claim", "there"),
    [(b"3", CLAIM, (Mode.PERMIT, 3)), (b"2", replace(CLAIM, mode=Mode.PERMIT, capacity=5), (Mode.PERMIT, 2))],
)
def test_name_in_use_as_something_else_says_as_what_and_for_how_many(
    kind: bytes, claim: Claim, there: tuple[Mode, int]
) -> None:
    with pytest.raises(ModeConflict, match=str(there[1])):
        run(World([3, kind]).store.try_acquire(claim))


@pytest.mark.parametrize(
    ("kind", "claim", "error"),
    [
        (b"3", CLAIM, ModeConflict),
        (b"0", replace(CLAIM, mode=Mode.PERMIT, capacity=3), ModeConflict),
        (b"2", replace(CLAIM, mode=Mode.PERMIT, capacity=3), ModeConflict),
        (b"0", CLAIM, BackendRejected),
    ],
)
def test_name_in_use_as_something_else_is_an_error(kind: bytes, claim: Claim, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        run(World([3, kind]).store.try_acquire(claim))
    assert type(caught.value) is error


@pytest.mark.parametrize("step", ["join", "turn"])
def test_name_in_use_as_something_else_is_an_error_for_a_waiter_too(step: str) -> None:
    world = World([3, b"3"])
    subject: Any = CLAIM if step == "join" else Place(CLAIM, world.signal(), 1.0, 0)
    world.store._listener.listen = nothing  # type: ignore[method-assign, assignment]
    with pytest.raises(ModeConflict):
        run(getattr(world.store, step)(subject))
    assert world.store._listener.waiter(CLAIM.owner) is None


async def nothing(*_: Any) -> None:
    pass


# --- places


class Hearing:
    """Whether the waiters can be woken, and for how long that was tried."""

    def __init__(self, world: World, address: str) -> None:
        self.tried: list[tuple[float, float]] = []
        self.verified = 0
        listener: Any = world.store._listener
        listener.sources = {"h": None} if address else {}
        listener.wake_address = lambda _: address
        listener.listen = self.listen
        listener.verify = self.verify

    async def listen(self, _: Any, patience: float, until: float) -> None:
        self.tried.append((patience, until))

    def verify(self, _: Any) -> None:
        self.verified += 1


@pytest.mark.parametrize(
    ("ttl", "ahead", "left", "woken", "recheck"),
    [
        (30.0, 1, 26_500, True, LONGEST_PLACE / 3),
        (30.0, 0, 26_500, True, LONGEST_PLACE / 3),
        (30.0, 0, 500, True, 0.501),
        (30.0, 1, 500, True, LONGEST_PLACE / 3),
        (30.0, 0, 0, True, LONGEST_PLACE / 3),
        (3.0, 1, 26_500, True, 1.0),
        (30.0, 0, 26_500, False, 0.1),
        (30.0, 1, 26_500, False, 0.5),
        (0.9, 1, 26_500, False, 0.3),
        (30.0, 0, 50, False, 0.051),
    ],
)
def test_place_is_looked_after_in_time(ttl: float, ahead: int, left: int, woken: bool, recheck: float) -> None:
    world = World(REFUSED, queued(ahead, left))
    Hearing(world, "gchannel" if woken else "")
    world.replies = world.replies[1:] if woken else world.replies
    place = run(world.store.join(replace(CLAIM, ttl=ttl)))
    assert isinstance(place, Place)
    assert place.recheck == pytest.approx(recheck)
    assert place.ahead == ahead


@pytest.mark.parametrize(
    ("stored", "left", "off", "holder", "retry_after", "paused", "holds_off"),
    [
        (STORED, 5_000, 0, ANA, 5.0, None, False),
        (STORED, -1, 0, ANA, None, None, False),
        (b"", 7_000, 7_000, None, 7.0, None, True),
        (b"", -2, 7_000, None, 7.0, None, True),
        (PAUSED, 5_000, 0, None, 5.0, Pause("moving", "ana", 5.0), False),
        (STORED, 7_000, 7_000, ANA, 7.0, None, False),
    ],
)
def test_place_names_what_is_waited_for(
    stored: bytes,
    left: int,
    off: int,
    holder: Holder | None,
    retry_after: float | None,
    paused: Pause | None,
    holds_off: bool,
) -> None:
    world = World(queued(0, left, stored, off))
    Hearing(world, "gchannel")
    place = run(world.store.join(CLAIM))
    assert isinstance(place, Place)
    assert (place.holder, place.retry_after, place.paused) == (holder, retry_after, paused)
    assert ("another 7 s" in str(place.why)) is holds_off


def test_first_claim_that_has_to_wait_is_tried_before_a_connection_for_messages_is_opened() -> None:
    world = World(GRANTED)
    hearing = Hearing(world, "")
    assert isinstance(run(world.store.join(CLAIM, 107.0)), Grant)
    assert (world.sent[0].words[0], world.sent[0].until, hearing.tried) == ("0", 107.0, [])
    world.replies = [REFUSED, queued()]
    place = run(world.store.join(CLAIM, 107.0))
    assert isinstance(place, Place)
    assert [sent.words[0] for sent in world.sent[1:]] == ["0", "1"]
    assert hearing.tried == [(1.0, 107.0)], "a sixth of what a place lives"
    assert world.sent[2].words[8:] == ["6000", ""]


def test_claim_whose_client_can_be_woken_takes_its_place_at_once() -> None:
    world = World(queued())
    hearing = Hearing(world, "gchannel")
    assert isinstance(run(world.store.join(replace(CLAIM, ttl=3.0), 107.0)), Place)
    assert world.sent[0].words[0] == "1"
    assert world.sent[0].words[8:] == ["3000", "gchannel"], "how long it lives, and how to wake it"
    assert hearing.tried == []
    waiter = world.store._listener.waiter(CLAIM.owner)
    assert waiter is not None
    assert (waiter.sent, waiter.stamp) == (100.0, 9_000)


def test_hand_over_is_dated_by_when_the_call_was_sent_and_not_by_its_answer() -> None:
    class Slow(World):
        async def execute(self, call: Any, timeout: float, until: float = math.inf) -> Any:
            self.time += 5.0
            return await super().execute(call, timeout, until)

    world = Slow(queued())
    Hearing(world, "gchannel")
    run(world.store.turn(Place(CLAIM, world.signal(), 1.0, 0)))
    waiter = world.store._listener.waiter(CLAIM.owner)
    assert waiter is not None
    assert waiter.sent == 100.0, "the server may have stamped it at once"


def test_closed_store_wakes_every_waiter() -> None:
    world = World()
    closed: list[str] = []

    async def close() -> None:
        closed.append("wire")

    cast("Any", world).close = close
    for owner in ("o1", "o2"):
        signal: Any = SimpleNamespace(set=lambda owner=owner: closed.append(owner))
        world.store._listener.add(owner, Waiter(signal, world.store._names.keys("ns:x")))
    run(world.store.close())
    assert closed == ["o1", "o2", "wire"]


def test_call_for_a_place_says_how_to_wake_the_waiter_as_of_now() -> None:
    world = World(queued(), queued(), queued())
    for address in ("gone", "gtwo", ""):
        Hearing(world, address)
        run(world.store.turn(Place(CLAIM, world.signal(), 1.0, 0)))
    assert [sent.words[9] for sent in world.sent] == ["gone", "gtwo", ""]


def test_turn_without_a_way_to_be_woken_tries_to_listen_again() -> None:
    world = World(queued())
    hearing = Hearing(world, "")
    place = run(world.store.turn(Place(CLAIM, world.signal(), 1.0, 0), 107.0))
    assert isinstance(place, Place)
    assert hearing.tried == [(1.0, 107.0)]
    assert (world.sent[0].words[0], world.sent[0].until) == ("2", 107.0)


def test_turn_of_a_waiter_that_is_not_known_any_more_wakes_the_place_that_asks() -> None:
    world = World(queued())
    Hearing(world, "gchannel")
    place = Place(CLAIM, world.signal(), 1.0, 0)
    run(world.store.turn(place))
    waiter = world.store._listener.waiter(CLAIM.owner)
    assert waiter is not None
    assert waiter.signal is place.signal


@pytest.mark.parametrize(
    ("reply", "verified"),
    [
        ([1, 41, 0, 9_000, 30_000, 1, 0], 1),  # it was ours already, and no message said so
        ([1, 41, 0, 9_000, 30_000, 0, 0], 0),
        (REFUSED, 1),  # it was passed over
    ],
)
def test_subscription_is_doubted_when_a_hand_over_was_found_by_asking(reply: list[Any], verified: int) -> None:
    world = World(reply)
    hearing = Hearing(world, "gchannel")
    run(world.store.turn(Place(CLAIM, world.signal(), 1.0, 0)))
    assert hearing.verified == verified
    assert world.store._listener.waiter(CLAIM.owner) is None, "it waits no more"


def test_refusal_of_a_first_call_is_no_doubt_about_the_subscription() -> None:
    world = World(REFUSED)
    hearing = Hearing(world, "gchannel")
    assert isinstance(run(world.store.join(CLAIM)), Refusal)
    assert hearing.verified == 0


@pytest.mark.parametrize(
    ("sent", "stamp", "at", "is_believed"),
    [
        (99.9, 9_000, 9_050, True),
        (99.9, 0, 9_050, False),  # its call was never stamped
        (99.9, 0, 50, False),
        (99.9, 9_000, 8_999, False),  # the clock of the server went back
        (99.9, 9_000, 9_900, False),  # or ahead
        (96.0, 9_000, 12_900, False),  # our process stood still for longer than half a place's life
        (97.5, 9_000, 9_900, False),  # it was taken up late
        (97.5, 9_000, 11_000, True),
    ],
)
def test_hand_over_is_believed_where_the_clocks_agree(sent: float, stamp: int, at: int, is_believed: bool) -> None:
    world = World(GRANTED)
    Hearing(world, "gchannel")
    waiter = Waiter(world.signal(), world.store._names.keys("ns:x"), sent, stamp)
    waiter.handed = HandOver(41, at, abandoned=True, ttl=3.0, spare=6)
    world.store._listener.add(CLAIM.owner, waiter)
    granted = run(world.store.turn(Place(CLAIM, waiter.signal, 1.0, 0)))
    assert isinstance(granted, Grant)
    assert (granted.since is not None) is is_believed
    assert len(world.sent) == (not is_believed), "otherwise a call confirms it"
    if is_believed:
        assert (granted.fence, granted.ttl, granted.abandoned, granted.spare) == (41, 3.0, True, 6)
        assert world.store._highest == 47
    assert world.store._listener.waiter(CLAIM.owner) is None


# --- renew, release, withdraw


@pytest.mark.parametrize("step", ["believed no more", "while the call was under way"])
def test_hand_over_that_a_call_replaces_is_not_used_again(step: str) -> None:
    world = World(queued() if step == "believed no more" else [1, 41, 0, 9_000, 30_000, 1, 0])
    hearing = Hearing(world, "gchannel")
    waiter = Waiter(world.signal(), world.store._names.keys("ns:x"), 96.0, 9_000)
    message = HandOver(41, 12_900, abandoned=True, ttl=3.0)
    world.store._listener.add(CLAIM.owner, waiter)
    execute = world.execute

    async def arriving(call: Any, timeout: float, until: float = math.inf) -> Any:
        waiter.handed = message
        return await execute(call, timeout, until)

    if step == "believed no more":
        waiter.handed = message
        assert isinstance(run(world.store.turn(Place(CLAIM, waiter.signal, 1.0, 0))), Place)
        assert waiter.handed is None, "the next turn asks as well"
    else:
        world.execute = arriving  # type: ignore[method-assign]
        assert isinstance(run(world.store.turn(Place(CLAIM, waiter.signal, 1.0, 0))), Grant)
        assert hearing.verified == 0, "a message did arrive, so the subscription is alive"


def test_grant_for_a_claim_window_is_whole_after_its_renewal_also_without_an_instant() -> None:
    world = World([1])
    world.execute_all = answers(world)  # type: ignore[method-assign]
    assert run(world.store.renew([Grant(CLAIM, 41, 3.0, None, True, 6)])) == [Grant(CLAIM, 41, 30.0, None, True, 6)]


def test_channel_for_messages_has_the_prefix_of_the_store() -> None:
    listener: Any = World(prefix="mine:").store._listener
    assert listener._channel == "mine:push:client"


def test_renewals_are_answered_one_by_one() -> None:
    whole, window = Grant(CLAIM, 41, 30.0), Grant(CLAIM, 42, 3.0, 99.0, True, 6)
    silent = OutcomeUnknown("silent")
    world = World([1], [1], [0], [2, b"stuck"], silent)
    world.execute_all = answers(world)  # type: ignore[method-assign]
    first, second, third, fourth, fifth = run(world.store.renew([whole, window, whole, whole, whole], 107.0))
    world.replies = [[1]]
    assert run(world.store.renew([Grant(CLAIM, 43, 30.0, 99.0)], 107.0)) == [Grant(CLAIM, 43, 30.0)]
    assert first is whole
    assert second == Grant(CLAIM, 42, 30.0, None, True, 6), "it counts from now, and for the whole ttl"
    assert isinstance(third, Loss)
    assert third.reason is LossReason.TAKEN
    assert fourth == Loss(LossReason.BROKEN, "stuck")
    assert fifth is silent
    assert world.sent[1].words == [CLAIM.owner, "42", "30000"]
    assert world.sent[1].keys[6] == f"app:{{ns:x}}:x:{CLAIM.owner}"
    assert {sent.until for sent in world.sent} == {107.0}
    assert run(world.store.renew([])) == []


def answers(world: World) -> Any:
    async def execute_all(calls: Sequence[Any], timeout: float, until: float) -> list[Any]:
        world.sent += [Sent(call, timeout, until) for call in calls]
        return world.replies[: len(calls)]

    return execute_all


def test_many_renewals_leave_the_loop_free_in_between_and_the_shortest_ttl_decides_their_time() -> None:
    turns: list[float] = []
    world = World(*([[1]] * (2 * SLICE + 1)))

    async def sleep(seconds: float) -> None:
        turns.append(seconds)

    world.sleep = sleep  # type: ignore[method-assign]
    grants = [Grant(CLAIM, 41, 30.0)] * (2 * SLICE) + [Grant(replace(CLAIM, ttl=3.0), 41, 3.0)]
    assert len(run(world.store.renew(grants))) == 2 * SLICE + 1
    assert turns == [0, 0]
    assert {sent.timeout for sent in world.sent} == {1.5}


@pytest.mark.parametrize(
    ("reply", "answer"), [(1, True), (0, False), ([2, b"stuck"], Loss(LossReason.BROKEN, "stuck"))]
)
def test_release_says_what_the_script_says(reply: Any, answer: Any) -> None:
    world = World(reply)
    assert run(world.store.release(Grant(CLAIM, 41, 30.0), 107.0)) == answer
    (sent,) = world.sent
    assert (sent.name, sent.words, sent.until) == ("release", [CLAIM.owner, "41"], 107.0)
    assert sent.keys[6] == f"app:{{ns:x}}:x:{CLAIM.owner}"


def test_release_of_another_claim_of_the_name_is_its_own() -> None:
    world = World(1, 1, 1, 1)
    for owner, ttl in (("o" * 32, 30.0), ("o" * 32, 1.0), ("p" * 32, 1.0), ("q" * 16, 1.0)):
        run(world.store.release(Grant(replace(CLAIM, owner=owner, ttl=ttl), 41, ttl)))
    assert [sent.words[0] for sent in world.sent] == ["o" * 32, "o" * 32, "p" * 32, "q" * 16]
    assert [sent.timeout for sent in world.sent] == [2.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(("doubt", "mark"), [(True, "30000"), (False, "0")])
def test_withdrawal_leaves_a_mark_for_one_ttl_where_there_is_doubt(doubt: bool, mark: str) -> None:
    world = World(1)
    world.store._listener.add(CLAIM.owner, Waiter(world.signal(), world.store._names.keys("ns:x")))
    run(world.store.withdraw(CLAIM, 107.0, doubt=doubt))
    (sent,) = world.sent
    assert (sent.name, sent.words, sent.until) == ("withdraw", [CLAIM.owner, mark], 107.0)
    assert world.store._listener.waiter(CLAIM.owner) is None


# --- strict, acks


def test_strict_claim_says_for_how_long_nothing_is_granted_after_the_server_has_changed() -> None:
    world = World(GRANTED, REFUSED, strict=45.0)
    run(world.store.try_acquire(CLAIM, 107.0))
    assert world.sent[0].words[8:] == ["6000", "", "45000"]
    run(world.store.try_acquire(replace(CLAIM, ttl=60.0)))
    assert world.sent[1].words[10] == "60000", "no lease is longer than the hold-off"


@pytest.mark.parametrize(
    ("step", "ttl", "patience"), [("try", 30.0, 5.0), ("join", 30.0, 3.0), ("join", 2.0, 1.0), ("join", 0.5, 0.25)]
)
def test_replicas_are_waited_for_no_longer_than_the_place_lives(step: str, ttl: float, patience: float) -> None:
    world = World(queued(), acks=2, acks_timeout=5.0)
    Hearing(world, "wchannel")
    claim = replace(CLAIM, ttl=ttl)
    if step == "try":
        world.replies = [GRANTED]
        run(world.store.try_acquire(claim))
    else:
        run(world.store.join(claim))
    assert world.patience == [patience]


@pytest.mark.parametrize("spare", [0, 8])
def test_claim_that_does_not_wait_gives_the_replicas_their_whole_time(spare: int) -> None:
    world = World(GRANTED, acks=2, acks_timeout=5.0)
    run(world.store.try_acquire(replace(CLAIM, ttl=2.0, spare=spare)))
    assert (world.patience, world.sent[0].words[0]) == ([5.0], "0:8" if spare else "0")


def test_grant_that_too_few_replicas_have_is_undone() -> None:
    world = World(GRANTED, 1, 1, acks=2)
    with pytest.raises(BackendUnavailable, match="1 of 2 replicas acknowledged the grant, and it was undone"):
        run(world.store.try_acquire(CLAIM, 107.0))
    assert [(sent.name, sent.until) for sent in world.sent] == [("acquire", 107.0), ("withdraw", 107.0)]
    world = World(GRANTED, 2, acks=2)
    assert isinstance(run(world.store.try_acquire(CLAIM)), Grant)


def test_grant_whose_replicas_cannot_be_known_is_undone_and_a_refusal_needs_none() -> None:
    world = World(GRANTED, BackendRejected("NOPERM wait"), 1, acks=2)
    with pytest.raises(BackendRejected, match="NOPERM wait"):
        run(world.store.try_acquire(CLAIM))
    assert [sent.name for sent in world.sent] == ["acquire", "withdraw"]
    world = World(REFUSED, 0, acks=2)
    assert isinstance(run(world.store.try_acquire(CLAIM)), Refusal)


# --- operators, records


def held(owner: str, mode: str, fence: int) -> list[bytes]:
    return [owner.encode(), mode.encode(), b"%d" % fence, b"0", b"1000", b"", b"0", STORED]


@pytest.mark.parametrize(
    ("holders", "fence", "broken"),
    [
        ([held("a", "x", 41)], 41, "a"),
        ([held("a", "x", 41)], 44, "a"),  # its process may have passed it on under a spare one
        ([held("a", "x", 41)], 40, None),
        ([held("a", "s", 41), held("b", "s", 42)], 42, "b"),
        ([held("a", "s", 41)], 44, None),
        ([held("", "x", 0)], 41, None),
        ([], 41, None),
    ],
)
def test_break_is_sent_for_the_holder_of_that_fence(holders: list[list[bytes]], fence: int, broken: str | None) -> None:
    world = World([b"0", [word for holder in holders for word in holder], []], 1)
    assert run(world.store.break_("ns:x", fence, "stuck", now=True)) is (broken is not None)
    assert [sent.words for sent in world.sent[1:]] == ([] if broken is None else [[broken, str(fence), "stuck", "1"]])
    if broken:
        assert world.sent[1].keys[6] == f"app:{{ns:x}}:x:{broken}"


@pytest.mark.parametrize(("now", "word", "reply"), [(True, "1", 0), (False, "0", 1)])
def test_break_says_whether_it_is_at_once_and_whether_it_was_done(now: bool, word: str, reply: int) -> None:
    world = World([b"0", held("a", "x", 41), []], reply)
    assert run(world.store.break_("ns:x", 41, "stuck", now=now)) is (reply == 1)
    assert world.sent[1].words[3] == word


def test_pause_and_resume_are_one_script() -> None:
    world = World(1, 1, 0)
    run(world.store.pause("ns:x", ANA, 2.5))
    assert run(world.store.resume("ns:x")) is True
    assert run(world.store.resume("ns:x")) is False
    assert [sent.words for sent in world.sent] == [["2500", pause_to_json(ANA)], ["0", ""], ["0", ""]]
    assert world.sent[0].keys[6] == "app:{ns:x}:x:pause"


def test_records_are_read_and_written_under_their_fence() -> None:
    world = World([b"value", 2_500, 41, 7_500_000], [None, 0, 42, 7_500_000], 1, 0)
    assert run(world.store.read("ns:x", 40)) == Reading(Record("ns:x", b"value", 41, 2.5), 41, 7.5)
    assert run(world.store.read("ns:x")) == Reading(None, 42, 7.5)
    record = Record("ns:x", b"value", 41, 2.5)
    assert run(world.store.write(record)) is True
    assert run(world.store.write(record)) is False
    assert [(sent.keys, sent.words) for sent in world.sent] == [
        (["app:{ns:x}:r"], ["40"]),
        (["app:{ns:x}:r"], ["0"]),
        (["app:{ns:x}:r"], ["value", "41", "2500"]),
        (["app:{ns:x}:r"], ["value", "41", "2500"]),
    ]


def test_raised_fence_is_what_the_script_says() -> None:
    world = World(99)
    assert run(world.store.raise_fence("ns:x", 41)) == 99
    assert world.sent[0].words == ["41"]
