"""Hears of hand-overs: one connection for messages per client (in a Cluster: per server), opened when somebody waits.

The releasing script makes the next waiter the holder and publishes that on the channel of the waiter's client. Here the
message finds its waiter. A message may be lost, and a connection may die: every waiter asks again within its re-check
in any case, so that costs time, never the lock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold.backends.redis.commands import pack
from leasehold.backends.redis.trouble import prefix_of
from leasehold.errors import BackendError

if TYPE_CHECKING:
    from leasehold.backends.redis.courier import Courier
    from leasehold.backends.redis.keys import Keys
    from leasehold.backends.redis.wire import Ear, Node
    from leasehold.spi import Runtime, Signal

__all__ = ["Handed", "Pushes", "Waiter"]

PATIENCE = 2.0  # a connection that does not confirm a subscription for so long is dead
MOST_CHANNELS = 256


@dataclass(slots=True)
class Handed:
    """A grant that was made by a message; `at` is the server's time in milliseconds."""

    fence: int
    at: int
    abandoned: bool
    ttl: float


@dataclass(slots=True)
class Waiter:
    """One claim that waits. Its own exchange, sent at `sent` and stamped `told` by the server, dates the grant."""

    signal: Signal
    keys: Keys
    sent: float = 0.0
    told: int = 0
    handed: Handed | None = None


@dataclass(slots=True)
class _Channel:
    """A subscription that was asked for at `asked`."""

    asked: float
    confirmed: Signal


@dataclass(slots=True)
class _Line:
    """A connection for messages to one server, and the channels that we hear on it."""

    opened: Signal
    ear: Ear | None = None
    channels: dict[str, _Channel] = field(default_factory=dict)
    closing: set[str] = field(default_factory=set)  # given up by us; its end has still to be confirmed
    failed: bool = False


class Pushes:
    """The waiters of one client, and what they hear."""

    def __init__(self, courier: Courier, runtime: Runtime, *, direct: bool, prefix: str) -> None:
        """`direct`: a message may make us the holder; otherwise it only tells us to ask."""
        self._courier = courier
        self._runtime = runtime
        self._sharded = courier.topology.sharded
        self._how = ("g" if direct else "w").upper() if self._sharded else ("g" if direct else "w")
        self._id = runtime.owner()
        self._channel = f"{prefix}push:{self._id}"
        self._guard = runtime.guard()
        self._lines: dict[Node, _Line] = {}
        self._waiters: dict[str, Waiter] = {}
        self._denied = False  # this account may not subscribe: every waiter asks for itself
        self._closed = False

    # --- waiters

    def expect(self, owner: str, waiter: Waiter) -> None:
        """From now on a message for this owner is for this waiter."""
        self._waiters[owner] = waiter

    def waiter(self, owner: str) -> Waiter | None:
        """Who waits under this owner value."""
        return self._waiters.get(owner)

    def forget(self, owner: str) -> None:
        """It does not wait any more."""
        self._waiters.pop(owner, None)

    # --- the connection

    def how_to_call(self, keys: Keys) -> str:
        """What to tell the server about how to reach our waiters; empty if it cannot now."""
        if not self._lines:
            return ""
        node = self._courier.topology.known(keys.slot_key)
        line = None if node is None else self._lines.get(node)
        if line is None:
            return ""
        name = self._channel_for(keys)
        channel = line.channels.get(name)
        return self._how + name if channel is not None and channel.confirmed.is_set() else ""

    async def listen(self, keys: Keys, patience: float, until: float = math.inf) -> None:
        """See to it that messages about this lock are heard, but do not wait for that longer than `patience`.

        A waiter that cannot be told asks more often. It must not lose its place by waiting for a connection; nor the
        time to ask, so half of what is left until the end of its call is not touched.
        """
        if self._denied:
            return
        try:
            node = await self._courier.node_for(keys, until)
            now = self._runtime.now()
            until = now + (until - now) / 2
            patience = min(patience, until - now)
            line = await self._line(node, patience, until)
            if line is not None and not await self._subscribe(line, self._channel_for(keys), patience):
                self._drop(node, line)  # it is dead: the next one who waits makes a new one
        except BackendError:
            return

    async def _line(self, node: Node, patience: float, until: float) -> _Line | None:
        line, ours = self._reserve(node)
        if not ours:
            await self._runtime.wait(line.opened, self._runtime.now() + patience)
            return None if line.ear is None or line.failed else line
        try:
            line.ear = await self._courier.wire.listen(
                node, lambda message: self._hear(node, line, message), lambda: self._lost(node, line), until
            )
        except BaseException:
            self._drop(node, line)
            raise
        finally:
            line.opened.set()
        if line.failed or self._closed:  # given up meanwhile, by somebody who had nothing to close yet
            self._drop(node, line)
            return None
        return line

    def _reserve(self, node: Node) -> tuple[_Line, bool]:
        """The line to this server, and whether it is ours to open."""
        with self._guard:
            line = self._lines.get(node)
            if line is not None:
                return line, False
            line = self._lines[node] = _Line(self._runtime.signal())
            return line, True

    async def _subscribe(self, line: _Line, name: str, patience: float) -> bool:
        """Whether the server sends us what is said on this channel, or can still be expected to confirm it."""
        now = self._runtime.now()
        with self._guard:
            channel = line.channels.get(name)
            new = channel is None
            if channel is None:
                channel = line.channels[name] = _Channel(now, self._runtime.signal())
        if new:
            self._trim(line)
            self._ask_for(line, name)
        dead_at = channel.asked + PATIENCE
        confirmed = await self._runtime.wait(channel.confirmed, min(now + patience, dead_at))
        return confirmed or self._runtime.now() < dead_at

    def _ask_for(self, line: _Line, name: str) -> None:
        if line.ear is not None:
            line.ear.send(pack("SSUBSCRIBE" if self._sharded else "SUBSCRIBE", name))

    def _trim(self, line: _Line) -> None:
        """In a Cluster every lock has a channel of its own: give up those that nobody waits on any more."""
        if len(line.channels) <= MOST_CHANNELS:
            return
        needed = {self._channel_for(waiter.keys) for waiter in list(self._waiters.values())}
        for name in [name for name in list(line.channels) if name not in needed]:
            if line.ear is not None and line.channels.pop(name, None) is not None:
                line.closing.add(name)
                line.ear.send(pack("SUNSUBSCRIBE", name))

    def _channel_for(self, keys: Keys) -> str:
        return f"{keys.base}:p:{self._id}" if self._sharded else self._channel

    def doubt(self, keys: Keys) -> None:
        """A hand-over was found only by asking, or a place was given up although its waiter lives.

        Perhaps the server cannot reach us: a connection that nobody writes on can be dead for hours without a word.
        So the subscription is asked for once more; until it is confirmed nobody relies on it.
        """
        node = self._courier.topology.known(keys.slot_key)
        line = None if node is None else self._lines.get(node)
        name = self._channel_for(keys)
        channel = None if line is None else line.channels.get(name)
        if node is None or line is None or channel is None or not channel.confirmed.is_set():
            return  # it is being asked for
        line.channels[name] = _Channel(self._runtime.now(), self._runtime.signal())
        try:
            self._ask_for(line, name)
        except BackendError:
            self._drop(node, line)

    def _hear(self, node: Node, line: _Line, message: Any) -> None:
        """Called by the wire for everything that arrives."""
        if isinstance(message, Exception):
            self._refused(node, line, str(message))
            return
        kind, name = message[0], message[1].decode()
        if kind in (b"subscribe", b"ssubscribe"):
            if name in line.channels:
                line.channels[name].confirmed.set()
        elif kind == b"sunsubscribe":
            if name in line.closing:
                line.closing.discard(name)
            else:  # the slot has moved to another server
                line.channels.pop(name, None)
        elif kind in (b"message", b"smessage"):
            self._deliver(message[2])

    def _refused(self, node: Node, line: _Line, why: str) -> None:
        """A subscription was refused; which one is not said, so none is relied on that was not confirmed."""
        if prefix_of(why) == "NOPERM" or "unknown command" in why:
            self._denied = True
        if prefix_of(why) == "MOVED":
            self._courier.redirected(why, node)  # the next one who waits listens there
        for name, channel in list(line.channels.items()):
            if self._denied or not channel.confirmed.is_set():
                line.channels.pop(name, None)
                channel.confirmed.set()  # whoever waits for it asks for itself, and tries again later

    def _deliver(self, message: bytes) -> None:
        try:
            kind, owner, *facts = message.decode().split("\n")
            handed = None
            if kind == "g":
                fence, at, abandoned, ttl = facts
                handed = Handed(int(fence), int(at), abandoned == "1", int(ttl) / 1000)
        except ValueError:
            return  # not ours: whoever may publish can publish here
        waiter = self._waiters.get(owner)
        if waiter is None:
            return  # it has given up; its withdrawal gives back what it was handed
        if handed is not None:
            waiter.handed = handed
        waiter.signal.set()

    def _lost(self, node: Node, line: _Line) -> None:
        """The connection ended: everybody asks at once, and listens anew."""
        self._drop(node, line)
        for waiter in list(self._waiters.values()):
            waiter.signal.set()

    def _drop(self, node: Node, line: _Line) -> None:
        line.failed = True
        with self._guard:
            if self._lines.get(node) is line:
                del self._lines[node]
        if line.ear is not None:
            line.ear.close()

    def close(self) -> None:
        """Hear no more. Whoever waits asks once more, and is told that the client is closed."""
        self._closed = True
        for node, line in list(self._lines.items()):
            self._drop(node, line)
            line.opened.set()
            for channel in list(line.channels.values()):
                channel.confirmed.set()
        for waiter in list(self._waiters.values()):
            waiter.signal.set()
