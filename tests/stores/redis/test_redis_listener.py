"""Messages about hand-overs: who is woken by which, and which subscriptions are relied on. Without a server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.keys import Keys, Names
from leasehold._backends.redis.notifications import MOST_CHANNELS, PATIENCE, HandOver, Listener, Waiter
from leasehold._backends.redis.wire import Node
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from tests.stores.support import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

ONE, TWO = Node("h1"), Node("h2")
NAMES = Names("leasehold:", compat=False)
KEYS = NAMES.keys("app:x")


class Guard:
    """No threads here."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Link:
    """A connection for messages."""

    def __init__(self, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        self.on_message, self.on_lost = on_message, on_lost
        self.sent: list[bytes] = []
        self.is_closed = False
        self.fails: Exception | None = None
        self.confirms = True

    def send(self, payload: bytes) -> None:
        if self.fails is not None:
            raise self.fails
        self.sent.append(payload)
        words = payload.split(b"\r\n")[2::2]
        if self.confirms:
            self.on_message([words[0].lower(), words[1], 1])

    def close(self) -> None:
        self.is_closed = True


class World:
    """The runtime, the router, its topology and its wire in one. A wait passes the time, or does what is planned."""

    def __init__(self, *, sharded: bool = False) -> None:
        self.sharded = sharded
        self.topology = self.wire = self
        self.time = 100.0
        self.node: Node | None = ONE
        self.links: list[Any] = []
        self.plan: list[Callable[[], object]] = []
        self.limits: list[float] = []
        self.fails: BaseException | None = None
        self.confirms = True
        self.redirections: list[tuple[str, Node]] = []

    def now(self) -> float:
        return self.time

    def owner(self) -> str:
        return "client"

    def guard(self) -> Guard:
        return Guard()

    def signal(self) -> Flag:
        return Flag()

    async def wait(self, signal: Flag, deadline: float) -> bool:
        if self.plan:
            self.plan.pop(0)()
        if not signal.up:
            self.time = max(self.time, deadline)
        return signal.up

    def known(self, _: bytes) -> Node | None:
        return self.node

    async def node_for(self, _: Keys, until: float) -> Node:
        if self.node is None:
            raise BackendUnavailable("no server")
        return self.node

    def redirected(self, text: str, sender: Node) -> Node:
        self.redirections.append((text, sender))
        self.node = TWO
        return TWO

    async def subscribe(
        self, _: Node, on_message: Callable[[Any], None], on_lost: Callable[[], None], until: float
    ) -> Link:
        self.limits.append(until - self.time)
        if self.plan:
            self.plan.pop(0)()
        if self.fails is not None:
            raise self.fails
        link = Link(on_message, on_lost)
        link.confirms = self.confirms
        self.links.append(link)
        return link

    def listener(self, *, direct: bool = True) -> Listener:
        this: Any = self
        return Listener(this, this, direct=direct, prefix="leasehold:")

    def waiter(self, listener: Listener, owner: str = "o", keys: Keys = KEYS) -> Waiter:
        signal: Any = Flag()
        waiter = Waiter(signal, keys)
        listener.add(owner, waiter)
        return waiter


@pytest.fixture
def world() -> World:
    return World()


def listen(listener: Listener, keys: Keys = KEYS, patience: float = 1.0, until: float = math.inf) -> str:
    run(listener.listen(keys, patience, until))
    return listener.wake_address(keys)


CHANNEL = "leasehold:push:client"


# --- subscriptions


@pytest.mark.parametrize(
    ("sharded", "direct", "address"),
    [
        (False, True, f"g{CHANNEL}"),
        (False, False, f"w{CHANNEL}"),
        (True, True, "Gleasehold:{app:x}:p:client"),
        (True, False, "Wleasehold:{app:x}:p:client"),
    ],
)
def test_waiter_is_woken_through_the_channel_of_its_client_or_of_its_slot(
    sharded: bool, direct: bool, address: str
) -> None:
    world = World(sharded=sharded)
    listener = world.listener(direct=direct)
    assert listener.wake_address(KEYS) == ""
    assert listen(listener) == address
    assert world.links[0].sent == [pack("SSUBSCRIBE" if sharded else "SUBSCRIBE", address[1:])]
    assert listen(listener) == address
    assert len(world.links) == len(world.links[0].sent) == 1, "it is subscribed to once"


def test_no_channel_is_relied_on_before_it_is_confirmed(world: World) -> None:
    world.confirms = False
    listener = world.listener()
    assert listen(listener) == ""
    world.links[0].on_message([b"subscribe", b"another", 1])
    assert listener.wake_address(KEYS) == ""
    world.links[0].on_message([b"subscribe", CHANNEL.encode(), 1])
    assert listener.wake_address(KEYS) == f"g{CHANNEL}"
    world.node = TWO
    assert listener.wake_address(KEYS) == "", "another server has the name now"
    world.node = None
    assert listener.wake_address(KEYS) == ""


def test_confirmation_is_waited_for_as_long_as_the_place_allows_and_its_connection_is_dead_after_its_patience(
    world: World,
) -> None:
    world.confirms = False
    listener = world.listener()
    listen(listener, patience=0.5)
    assert world.time == pytest.approx(100.5)
    assert not world.links[0].is_closed, "it may still come"
    listen(listener, patience=PATIENCE)
    assert world.time == pytest.approx(100.0 + PATIENCE)
    assert world.links[0].is_closed
    world.confirms = True
    assert listen(listener) == f"g{CHANNEL}", "the next one opens another connection"
    assert len(world.links) == 2


def test_half_of_the_time_of_a_call_is_left_for_the_call_itself(world: World) -> None:
    world.confirms = False
    listen(world.listener(), patience=5.0, until=101.0)
    assert world.limits == [pytest.approx(0.5)]
    assert world.time == pytest.approx(100.5)


def test_connection_that_another_waiter_opens_is_waited_for_and_shared(world: World) -> None:
    listener = world.listener()
    source, _ = listener._reserve(ONE)
    assert listen(listener, patience=0.5) == ""
    assert world.time == pytest.approx(100.5)
    link = Link(print, print)

    def is_open() -> None:
        source.subscription = link
        link.on_message = lambda message: listener._received(ONE, source, message)
        source.opened.set()

    world.plan = [is_open]
    assert listen(listener) == f"g{CHANNEL}"
    assert world.links == []


@pytest.mark.parametrize("error", [BackendUnavailable("away"), BackendRejected("no"), OutcomeUnknown("silent")])
def test_waiter_that_cannot_subscribe_polls_and_the_next_one_tries_again(world: World, error: Exception) -> None:
    world.fails = error
    listener = world.listener()
    assert listen(listener) == ""
    assert listener.sources == {}
    world.fails = None
    assert listen(listener) == f"g{CHANNEL}"
    world.node = None
    listen(listener)


def test_interrupted_opening_leaves_nobody_waiting_for_it(world: World) -> None:
    world.fails = KeyboardInterrupt()
    listener = world.listener()
    opened: list[Any] = []
    world.plan = [lambda: opened.append(listener.sources[ONE].opened)]
    with pytest.raises(KeyboardInterrupt):
        listen(listener)
    assert listener.sources == {}
    assert opened[0].up


def test_connection_that_opens_after_its_client_was_closed_is_closed(world: World) -> None:
    listener = world.listener()
    world.plan = [listener.close]
    for link in range(2):
        assert listen(listener) == ""
        assert world.links[link].is_closed
        assert listener.sources == {}


def test_connection_that_is_lost_while_it_opens_is_closed_and_not_relied_on(world: World) -> None:
    listener = world.listener()
    world.plan = [lambda: listener._lost(ONE, listener.sources[ONE])]
    assert listen(listener) == ""
    assert world.links[0].is_closed
    assert world.links[0].sent == [], "nothing is subscribed to there"
    assert listener.sources == {}
    assert listen(listener) == f"g{CHANNEL}", "the next waiter opens another one"


def test_connection_that_another_waiter_opened_and_lost_at_once_is_not_subscribed_on(world: World) -> None:
    listener = world.listener()
    source, _ = listener._reserve(ONE)
    link = Link(print, print)

    def is_open_and_lost() -> None:
        source.subscription = link
        listener._lost(ONE, source)
        source.opened.set()

    world.plan = [is_open_and_lost]
    assert listen(listener) == ""
    assert link.sent == []
    assert world.links == [], "it is left to the next waiter, which has its own time"


def test_connection_that_breaks_while_it_is_subscribed_on_is_given_up(world: World) -> None:
    listener = world.listener()
    listen(listener)
    world.links[0].fails = OutcomeUnknown("it broke")
    listener.verify(KEYS)
    assert world.links[0].is_closed
    assert listener.sources == {}


def test_channel_whose_message_is_missing_is_not_relied_on_until_it_is_confirmed_again(world: World) -> None:
    listener = world.listener()
    listen(listener)
    world.links[0].confirms = False
    listener.verify(KEYS)
    assert listener.wake_address(KEYS) == ""
    assert len(world.links[0].sent) == 2
    listener.verify(KEYS)
    assert len(world.links[0].sent) == 2, "a confirmation is waited for already"
    world.links[0].on_message([b"subscribe", CHANNEL.encode(), 1])
    assert listener.wake_address(KEYS)


def test_channels_of_names_without_a_waiter_are_given_up_when_there_are_too_many() -> None:
    world = World(sharded=True)
    listener = world.listener()
    world.waiter(listener)
    for place in range(MOST_CHANNELS - 1):
        listen(listener, NAMES.keys(f"app:{place}"))
    listen(listener)
    (source,) = listener.sources.values()
    assert len(source.channels) == MOST_CHANNELS
    last = NAMES.keys("app:last")
    world.waiter(listener, "p", last)
    assert listen(listener, last)
    assert set(source.channels) == {"leasehold:{app:x}:p:client", "leasehold:{app:last}:p:client"}
    left = [payload for payload in world.links[0].sent if b"SUNSUBSCRIBE" in payload]
    assert len(left) == MOST_CHANNELS - 1
    again = NAMES.keys("app:0")
    assert not source.closing, "each was confirmed"
    assert listen(listener, again)


def test_channel_that_is_needed_again_before_its_unsubscription_is_confirmed_stays() -> None:
    world = World(sharded=True)
    listener = world.listener()
    for place in range(MOST_CHANNELS):
        listen(listener, NAMES.keys(f"app:{place}"))
    first = NAMES.keys("app:0")
    world.links[0].confirms = False
    listen(listener)  # one too many
    world.waiter(listener, keys=first)
    listen(listener, first)
    name = f"{first.base}:p:client".encode()
    world.links[0].on_message([b"sunsubscribe", name, 0])
    world.links[0].on_message([b"ssubscribe", name, 1])
    assert listener.wake_address(first)


def test_unsubscription_that_nobody_asked_for_means_that_the_slot_has_moved() -> None:
    world = World(sharded=True)
    listener = world.listener()
    listen(listener)
    name = f"{KEYS.base}:p:client".encode()
    world.links[0].on_message([b"sunsubscribe", name, 0])
    assert listener.wake_address(KEYS) == ""
    listen(listener)
    (source,) = listener.sources.values()
    source.closing.add(name.decode())
    world.links[0].on_message([b"sunsubscribe", name, 0])
    assert listener.wake_address(KEYS) != "", "this one was ours, from before"
    world.links[0].on_message([b"sunsubscribe", name, 0])
    assert listener.wake_address(KEYS) == ""


@pytest.mark.parametrize("why", ["NOPERM no channel", "ERR unknown command 'SSUBSCRIBE'"])
def test_account_that_may_not_subscribe_is_not_asked_again(world: World, why: str) -> None:
    listener = world.listener()
    listen(listener)
    world.links[0].on_message(Exception(why))
    assert listen(listener) == ""
    assert len(world.links[0].sent) == 1


def test_refused_subscription_is_one_that_was_not_confirmed() -> None:
    world = World(sharded=True)
    listener = world.listener()
    listen(listener)
    other = NAMES.keys("app:y")
    world.links[0].confirms = False
    world.plan = [lambda: None, lambda: world.links[0].on_message(Exception("MOVED 5 h2:6379"))]
    run(listener.listen(other, 5.0))
    assert world.time == 100.0, "it is not waited for"
    assert world.redirections == [("MOVED 5 h2:6379", ONE)]
    world.node = ONE
    assert listener.wake_address(KEYS), "one that was confirmed stays"
    assert listener.wake_address(other) == ""
    world.links[0].confirms = True
    assert listen(listener, other), "it is asked for again"


# --- messages


def message(*lines: str) -> list[bytes]:
    return [b"message", CHANNEL.encode(), "\n".join(lines).encode()]


@pytest.mark.parametrize(
    ("kind", "fields", "handed"),
    [
        ("message", ("7", "9000", "0", "30000"), HandOver(7, 9000, abandoned=False, ttl=30.0)),
        ("smessage", ("7", "9000", "1", "30500"), HandOver(7, 9000, abandoned=True, ttl=30.5)),
        ("message", ("7", "9000", "r64", "30000"), HandOver(7, 9000, abandoned=False, ttl=30.0, spare=64)),
    ],
)
def test_message_brings_the_grant_to_the_waiter_that_it_names(
    world: World, kind: str, fields: tuple[str, ...], handed: HandOver
) -> None:
    listener = world.listener()
    listen(listener)
    waiter, other = world.waiter(listener), world.waiter(listener, "p")
    _, channel, text = message("g", "o", *fields)
    world.links[0].on_message([kind.encode(), channel, text])
    assert waiter.handed == handed
    assert waiter.signal.is_set()
    assert (other.handed, other.signal.is_set()) == (None, False)


def test_message_without_a_grant_only_wakes(world: World) -> None:
    listener = world.listener()
    listen(listener)
    waiter = world.waiter(listener)
    waiter.handed = handed = HandOver(1, 2, abandoned=False, ttl=3.0)
    world.links[0].on_message(message("w", "o"))
    assert (waiter.handed, waiter.signal.is_set()) == (handed, True)


@pytest.mark.parametrize(
    "lines", [("g", "o"), ("g", "o", "1", "2", "0", "x"), ("g", "o", "1", "2", "0", "3", "4"), ("",), ("w", "p")]
)
def test_message_of_others_wakes_nobody(world: World, lines: tuple[str, ...]) -> None:
    listener = world.listener()
    listen(listener)
    waiter = world.waiter(listener)
    world.links[0].on_message(message(*lines))
    assert (waiter.handed, waiter.signal.is_set()) == (None, False)


def test_message_for_a_claim_that_was_given_up_is_dropped(world: World) -> None:
    listener = world.listener()
    listen(listener)
    waiter = world.waiter(listener)
    assert listener.waiter("o") is waiter
    listener.remove("o")
    listener.remove("o")
    assert listener.waiter("o") is None
    world.links[0].on_message(message("w", "o"))
    assert not waiter.signal.is_set()


# --- ends


def test_every_waiter_asks_when_the_connection_for_messages_ends(world: World) -> None:
    listener = world.listener()
    listen(listener)
    waiters = [world.waiter(listener), world.waiter(listener, "p")]
    world.links[0].on_lost()
    assert [waiter.signal.is_set() for waiter in waiters] == [True, True]
    assert listener.wake_address(KEYS) == ""
    assert listen(listener)
    world.links[0].on_lost()  # the old one, which says so once more
    assert listener.wake_address(KEYS) != ""
    assert not world.links[1].is_closed


def test_closed_client_wakes_its_waiters_and_those_that_wait_for_a_subscription(world: World) -> None:
    world.confirms = False
    listener = world.listener()
    listen(listener)
    waiter = world.waiter(listener)
    (source,) = listener.sources.values()
    (channel,) = source.channels.values()
    opening, _ = listener._reserve(TWO)
    listener.close()
    assert opening.opened.is_set()
    assert world.links[0].is_closed
    assert waiter.signal.is_set()
    assert channel.confirmed.is_set()
    assert source.opened.is_set()
