"""Notifications of hand-overs: one subscription per client (in a Cluster: per server), opened by the first waiter.

The releasing script makes the next waiter the holder and publishes that on the channel of the waiter's client. Here the
message finds its waiter. A message may be lost, and a connection may die: every waiter calls the server again within
its re-check in any case, so that costs time, never the lock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.errors import error_code
from leasehold.errors import BackendError

if TYPE_CHECKING:
    from leasehold._backends.redis.keys import Keys
    from leasehold._backends.redis.router import Router
    from leasehold._backends.redis.wire import Node, Subscription
    from leasehold.spi import Runtime, Signal

__all__ = ["HandOver", "Listener", "Waiter"]

PATIENCE = 2.0  # a connection that does not confirm a subscription for so long is dead
MOST_CHANNELS = 256


@dataclass(slots=True)
class HandOver:
    """A grant that a message brought; `at` is the server's time in milliseconds."""

    fence: int
    at: int
    abandoned: bool
    ttl: float
    spare: int = 0  # fences behind its own that no other grant gets


@dataclass(slots=True)
class Waiter:
    """A claim in the queue. Its latest call, sent at `sent` and stamped `stamp` by the server, dates a hand-over."""

    signal: Signal
    keys: Keys
    sent: float = 0.0
    stamp: int = 0
    handed: HandOver | None = None


@dataclass(slots=True)
class _Channel:
    """A subscription that was requested at `requested`."""

    requested: float
    confirmed: Signal


@dataclass(slots=True)
class _Source:
    """One server that notifies us: the connection for its messages, and the channels on it."""

    opened: Signal
    subscription: Subscription | None = None
    channels: dict[str, _Channel] = field(default_factory=dict)
    closing: set[str] = field(default_factory=set)  # unsubscribed by us; the confirmation has still to arrive
    failed: bool = False


class Listener:
    """The waiters of one client, and the subscriptions that wake them. `sources` is empty until one is needed."""

    def __init__(self, router: Router, runtime: Runtime, *, direct: bool, prefix: str) -> None:
        """`direct`: a message may bring the grant itself; otherwise it only makes the waiter call the server."""
        self._router = router
        self._runtime = runtime
        self._sharded = router.topology.sharded
        self._how = ("g" if direct else "w").upper() if self._sharded else ("g" if direct else "w")
        self._id = runtime.owner()
        self._channel = f"{prefix}push:{self._id}"
        self._guard = runtime.guard()
        self.sources: dict[Node, _Source] = {}
        self._waiters: dict[str, Waiter] = {}
        self._denied = False  # this account may not subscribe: every waiter polls
        self._closed = False

    # --- waiters

    def add(self, owner: str, waiter: Waiter) -> None:
        """From now on a message for this owner wakes this waiter."""
        self._waiters[owner] = waiter

    def waiter(self, owner: str) -> Waiter | None:
        """The waiter with this owner value."""
        return self._waiters.get(owner)

    def remove(self, owner: str) -> None:
        """It does not wait any more."""
        self._waiters.pop(owner, None)

    # --- the subscriptions

    def wake_address(self, keys: Keys) -> str:
        """How the server can wake our waiters for this lock, as `acquire.lua` takes it; empty if it cannot now."""
        if not self.sources:
            return ""
        node = self._router.topology.known(keys.slot_key)
        source = None if node is None else self.sources.get(node)
        if source is None:
            return ""
        name = self._channel_for(keys)
        channel = source.channels.get(name)
        return self._how + name if channel is not None and channel.confirmed.is_set() else ""

    async def listen(self, keys: Keys, patience: float, until: float = math.inf) -> None:
        """Have the messages about this lock arrive, but do not wait for that longer than `patience`.

        A waiter that cannot be woken polls more often. It must not lose its place by waiting for a connection; nor the
        time for its own call, so half of what is left until the end of that call is not touched.
        """
        if self._denied:
            return
        try:
            node = await self._router.node_for(keys, until)
            now = self._runtime.now()
            until = now + (until - now) / 2
            patience = min(patience, until - now)
            source = await self._source(node, patience, until)
            if source is not None and not await self._subscribe(source, self._channel_for(keys), patience):
                self._drop(node, source)  # it is dead: the next waiter opens another one
        except BackendError:
            return

    async def _source(self, node: Node, patience: float, until: float) -> _Source | None:
        source, ours = self._reserve(node)
        if not ours:
            await self._runtime.wait(source.opened, self._runtime.now() + patience)
            return None if source.subscription is None or source.failed else source
        try:
            source.subscription = await self._router.wire.subscribe(
                node, lambda message: self._received(node, source, message), lambda: self._lost(node, source), until
            )
        except BaseException:
            self._drop(node, source)
            raise
        finally:
            source.opened.set()
        if source.failed or self._closed:  # dropped meanwhile, when there was no subscription to close yet
            self._drop(node, source)
            return None
        return source

    def _reserve(self, node: Node) -> tuple[_Source, bool]:
        """The source of this server, and whether it is ours to open."""
        with self._guard:
            source = self.sources.get(node)
            if source is not None:
                return source, False
            source = self.sources[node] = _Source(self._runtime.signal())
            return source, True

    async def _subscribe(self, source: _Source, name: str, patience: float) -> bool:
        """Whether this channel is confirmed, or its confirmation can still be expected."""
        now = self._runtime.now()
        with self._guard:
            channel = source.channels.get(name)
            new = channel is None
            if channel is None:
                channel = source.channels[name] = _Channel(now, self._runtime.signal())
        if new:
            self._trim(source)
            self._request(source, name)
        dead_at = channel.requested + PATIENCE
        confirmed = await self._runtime.wait(channel.confirmed, min(now + patience, dead_at))
        return confirmed or self._runtime.now() < dead_at

    def _request(self, source: _Source, name: str) -> None:
        if source.subscription is not None:
            source.subscription.send(pack("SSUBSCRIBE" if self._sharded else "SUBSCRIBE", name))

    def _trim(self, source: _Source) -> None:
        """In a Cluster every lock has a channel of its own: unsubscribe from those without a waiter."""
        if len(source.channels) <= MOST_CHANNELS:
            return
        needed = {self._channel_for(waiter.keys) for waiter in list(self._waiters.values())}
        for name in [name for name in list(source.channels) if name not in needed]:
            if source.subscription is not None and source.channels.pop(name, None) is not None:
                source.closing.add(name)
                source.subscription.send(pack("SUNSUBSCRIBE", name))

    def _channel_for(self, keys: Keys) -> str:
        return f"{keys.base}:p:{self._id}" if self._sharded else self._channel

    def verify(self, keys: Keys) -> None:
        """Subscribe once more, because a message is missing.

        A hand-over was found only by polling, or a live waiter lost its place. A connection without traffic can be dead
        for hours and look alive. Until the new subscription is confirmed, no waiter relies on it.
        """
        node = self._router.topology.known(keys.slot_key)
        source = None if node is None else self.sources.get(node)
        name = self._channel_for(keys)
        channel = None if source is None else source.channels.get(name)
        if node is None or source is None or channel is None or not channel.confirmed.is_set():
            return  # a confirmation is being waited for already
        source.channels[name] = _Channel(self._runtime.now(), self._runtime.signal())
        try:
            self._request(source, name)
        except BackendError:
            self._drop(node, source)

    # --- called by the wire

    def _received(self, node: Node, source: _Source, message: Any) -> None:
        if isinstance(message, Exception):
            self._refused(node, source, str(message))
            return
        kind, name = message[0], message[1].decode()
        if kind in (b"subscribe", b"ssubscribe"):
            if name in source.channels:
                source.channels[name].confirmed.set()
        elif kind == b"sunsubscribe":
            if name in source.closing:
                source.closing.discard(name)
            else:  # the slot has moved to another server
                source.channels.pop(name, None)
        elif kind in (b"message", b"smessage"):
            self._deliver(message[2])

    def _refused(self, node: Node, source: _Source, why: str) -> None:
        """A subscription was refused. The reply does not name it, so none is relied on that was not confirmed."""
        if error_code(why) == "NOPERM" or "unknown command" in why:
            self._denied = True
        if error_code(why) == "MOVED":
            self._router.redirected(why, node)  # the next waiter subscribes there
        for name, channel in list(source.channels.items()):
            if self._denied or not channel.confirmed.is_set():
                source.channels.pop(name, None)
                channel.confirmed.set()  # a waiter that waits for it polls, and subscribes again later

    def _deliver(self, message: bytes) -> None:
        try:
            kind, owner, *fields = message.decode().split("\n")
            handed = None
            if kind == "g":
                fence, at, left, ttl = fields
                spare = int(left[1:]) if left.startswith("r") else 0  # see queue.lua
                handed = HandOver(int(fence), int(at), left == "1", int(ttl) / 1000, spare)
        except ValueError:
            return  # not ours: any program with the right to publish can publish here
        waiter = self._waiters.get(owner)
        if waiter is None:
            return  # its claim was given up; the withdrawal gives back the grant
        if handed is not None:
            waiter.handed = handed
        waiter.signal.set()

    def _lost(self, node: Node, source: _Source) -> None:
        """The connection ended: all waiters poll at once, and subscribe anew."""
        self._drop(node, source)
        for waiter in list(self._waiters.values()):
            waiter.signal.set()

    def _drop(self, node: Node, source: _Source) -> None:
        source.failed = True
        with self._guard:
            if self.sources.get(node) is source:
                del self.sources[node]
        if source.subscription is not None:
            source.subscription.close()

    def close(self) -> None:
        """Receive no more. Each waiter is woken; its next call raises that the client is closed."""
        self._closed = True
        for node, source in list(self.sources.items()):
            self._drop(node, source)
            source.opened.set()
            for channel in list(source.channels.values()):
                channel.confirmed.set()
        for waiter in list(self._waiters.values()):
            waiter.signal.set()
