"""The gRPC channels to one member: the one in use, when to replace it, and when to close the old ones.

A connection can be dead without an error: the other side is gone, or a firewall between has forgotten it. gRPC sends a
ping every ten seconds, because etcd allows no more, which is too late for a short ttl. So when a call timed out, and no
other call on its channel was answered meanwhile, the next call opens a new channel. The old one is closed only when the
calls on it must be over: perhaps the member was slow and the channel is fine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["Channel", "ChannelPool"]

YOUNG = 1.0  # a channel is not replaced within this time: a member that hangs would get one for every call
LEAST_WAIT = 0.25  # seconds; a call with less time than this proves nothing about its channel
GRACE = 10.0  # seconds after which the calls on a replaced channel are over, unless calls may take longer


class Channel:
    """One channel, with its prepared methods and the instant of the last answer."""

    __slots__ = ("answered_at", "grpc", "methods", "opened_at")

    def __init__(self, grpc: Any, now: float) -> None:
        self.grpc = grpc
        self.methods: dict[str, Callable[..., Any]] = {}
        self.opened_at = self.answered_at = now

    def method(self, name: str) -> Callable[..., Any]:
        """Prepare a call with one request and one response; look into `methods` first."""
        prepared: Callable[..., Any] = self.grpc.unary_unary(name)
        self.methods[name] = prepared
        return prepared


class ChannelPool:
    """The channel to one member that is in use (`current`), and those that were replaced."""

    def __init__(
        self,
        connect: Callable[[], Any],
        now: Callable[[], float],
        guard: AbstractContextManager[object],
        grace: float = GRACE,
    ) -> None:
        self._connect = connect
        self._now = now
        self._guard = guard
        self._grace = grace
        self.current: Channel | None = None
        self._old: list[tuple[float, Channel]] = []  # from when on each may be closed

    def open(self) -> Channel:
        """The channel to use; it is opened if there is none."""
        with self._guard:
            if self.current is None:
                self.current = Channel(self._connect(), self._now())
            return self.current

    def timed_out(self, channel: Channel, timeout: float) -> Any | None:
        """A call got no answer for so long. Returns a channel of gRPC that is to be closed now, if there is one."""
        now = self._now()
        with self._guard:
            is_dead = is_silent(channel, timeout, now)
            if is_dead and self.current is channel:
                self.current = None
                self._old.append((now + self._grace, channel))
            if self._old and self._old[0][0] <= now:
                return self._old.pop(0)[1].grpc
        return None

    def take_all(self) -> list[Any]:
        """All channels, to be closed: the client is closed."""
        with self._guard:
            current, old = self.current, self._old
            self.current, self._old = None, []
        return _all_of(old, current)

    def dropped(self) -> list[Any]:
        """All channels, to be closed by a finalizer: no other thread has them, and no lock is taken."""
        return _all_of(self._old, self.current)


def is_silent(channel: Channel, timeout: float, now: float) -> bool:
    """Whether a call without an answer for so long means that the channel may be dead."""
    return timeout >= LEAST_WAIT and channel.answered_at <= now - timeout and channel.opened_at <= now - YOUNG


def _all_of(old: list[tuple[float, Channel]], current: Channel | None) -> list[Any]:
    return [channel.grpc for _, channel in old] + ([] if current is None else [current.grpc])
