"""Hears of hand-overs: one connection for messages per client (in a Cluster: per server), opened when somebody waits.

The releasing script makes the next waiter the holder and publishes that on the channel of the waiter's client. Here the
message finds its waiter. A message may be lost, and a connection may die: every waiter asks again within its re-check
in any case, so that costs time, never the lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold.backends.redis.commands import pack
from leasehold.errors import BackendError

if TYPE_CHECKING:
    from leasehold.backends.redis.courier import Courier
    from leasehold.backends.redis.keys import Keys
    from leasehold.backends.redis.wire import Ear, Node
    from leasehold.spi import Runtime, Signal

__all__ = ["Handed", "Pushes", "Waiter"]

PATIENCE = 2.0
MOST_CHANNELS = 256


@dataclass(frozen=True, slots=True)
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
class _Line:
    """A connection for messages to one server, and which channels are confirmed on it."""

    opened: Signal
    ear: Ear | None = None
    confirmed: dict[str, Signal] = field(default_factory=dict)
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
        node = self._courier.topology.known(keys.slot_key)
        line = None if node is None else self._lines.get(node)
        if line is None:
            return ""
        channel = self._channel_for(keys)
        confirmed = line.confirmed.get(channel)
        return self._how + channel if confirmed is not None and confirmed.is_set() else ""

    async def listen(self, keys: Keys) -> None:
        """See to it that messages about this lock are heard. If that cannot be, waiters ask more often."""
        if self._denied:
            return
        try:
            node = await self._courier.node_for(keys)
            line = await self._line(node)
            if line is not None and not await self._subscribe(line, self._channel_for(keys)):
                self._drop(node, line)  # it does not answer: the next one who waits makes a new one
        except BackendError:
            return

    async def _line(self, node: Node) -> _Line | None:
        line, ours = self._reserve(node)
        if not ours:
            await self._runtime.wait(line.opened, self._runtime.now() + PATIENCE)
            return None if line.ear is None or line.failed else line
        try:
            line.ear = await self._courier.wire.listen(
                node, lambda message: self._hear(line, message), lambda: self._lost(node, line)
            )
        except BaseException:
            self._drop(node, line)
            raise
        finally:
            line.opened.set()
        return line

    def _reserve(self, node: Node) -> tuple[_Line, bool]:
        """The line to this server, and whether it is ours to open."""
        with self._guard:
            line = self._lines.get(node)
            if line is not None:
                return line, False
            line = self._lines[node] = _Line(self._runtime.signal())
            return line, True

    async def _subscribe(self, line: _Line, channel: str) -> bool:
        """Whether the server confirms that it sends us what is said on this channel."""
        with self._guard:
            confirmed = line.confirmed.get(channel)
            new = confirmed is None
            if confirmed is None:
                confirmed = line.confirmed[channel] = self._runtime.signal()
        if new and line.ear is not None:
            self._trim(line)
            line.ear.send(pack("SSUBSCRIBE" if self._sharded else "SUBSCRIBE", channel))
        return await self._runtime.wait(confirmed, self._runtime.now() + PATIENCE)

    def _trim(self, line: _Line) -> None:
        """In a Cluster every lock has a channel of its own: give up those that nobody waits on any more."""
        if len(line.confirmed) <= MOST_CHANNELS:
            return
        needed = {self._channel_for(waiter.keys) for waiter in list(self._waiters.values())}
        for channel in [channel for channel in list(line.confirmed) if channel not in needed]:
            if line.ear is not None and line.confirmed.pop(channel, None) is not None:
                line.closing.add(channel)
                line.ear.send(pack("SUNSUBSCRIBE", channel))

    def _channel_for(self, keys: Keys) -> str:
        return f"{keys.base}:p:{self._id}" if self._sharded else self._channel

    def doubt(self, keys: Keys) -> None:
        """A hand-over was found only by asking, or a place was given up although its waiter lives.

        Perhaps the server cannot reach us: a connection that nobody writes on can be dead for hours without a word.
        So the subscription is asked for once more; until it is confirmed nobody relies on it.
        """
        node = self._courier.topology.known(keys.slot_key)
        line = None if node is None else self._lines.get(node)
        if line is None or line.ear is None:
            return
        channel = self._channel_for(keys)
        with self._guard:
            confirmed = line.confirmed.get(channel)
            if confirmed is None or not confirmed.is_set():
                return  # it is being asked for
            line.confirmed[channel] = self._runtime.signal()
        line.ear.send(pack("SSUBSCRIBE" if self._sharded else "SUBSCRIBE", channel))

    def _hear(self, line: _Line, message: Any) -> None:
        """Called by the wire for everything that arrives."""
        if isinstance(message, Exception):
            self._denied = True  # NOPERM: this account may not subscribe
            refused, line.confirmed = line.confirmed, {}
            for signal in refused.values():
                signal.set()
            return
        kind, channel = message[0], message[1]
        if kind in (b"subscribe", b"ssubscribe"):
            confirmed = line.confirmed.get(channel.decode())
            if confirmed is not None:
                confirmed.set()
        elif kind == b"sunsubscribe":
            if channel.decode() in line.closing:
                line.closing.discard(channel.decode())
            else:  # the slot has moved to another server
                line.confirmed.pop(channel.decode(), None)
        elif kind in (b"message", b"smessage"):
            self._deliver(message[2].decode().split("\n"))

    def _deliver(self, parts: list[str]) -> None:
        waiter = self._waiters.get(parts[1])
        if waiter is None:
            return  # it has given up; its withdrawal gives back what it was handed
        if parts[0] == "g":
            waiter.handed = Handed(int(parts[2]), int(parts[3]), parts[4] == "1", int(parts[5]) / 1000)
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
        """Hear no more."""
        for node, line in list(self._lines.items()):
            self._drop(node, line)
