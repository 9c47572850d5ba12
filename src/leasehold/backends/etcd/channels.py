"""The channel in use to one member, and when to give up on it. It knows gRPC channels only as things to close.

A connection can be dead without anybody being told: the other side is gone, or something between has forgotten it.
gRPC asks for a sign of life every ten seconds, because etcd allows no more, which is too late for a short ttl. So a
call that got no answer in time, on a channel that has said nothing since, makes the next call open a new one. The old
one is closed only when the calls on it must be over: it may be the member that was slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["Channel", "Channels"]

YOUNG = 1.0  # a channel is not given up on within this time: a member that hangs would get one for every call
LEAST_WAIT = 0.25  # seconds; a call with less time than this proves nothing about its channel
GRACE = 10.0  # longer than any call takes


class Channel:
    """One channel with the calls that were prepared on it."""

    __slots__ = ("grpc", "heard", "methods", "opened")

    def __init__(self, grpc: Any, now: float) -> None:
        self.grpc = grpc
        self.methods: dict[str, Callable[..., Any]] = {}
        self.opened = self.heard = now

    def method(self, name: str) -> Callable[..., Any]:
        """A call with one request and one answer."""
        ask = self.methods.get(name)
        if ask is None:
            ask = self.methods[name] = self.grpc.unary_unary(name)
        return ask


class Channels:
    """The channel of one wire that is in use, and those that were given up on."""

    def __init__(
        self, connect: Callable[[], Any], now: Callable[[], float], guard: AbstractContextManager[object]
    ) -> None:
        self._connect = connect
        self._now = now
        self._guard = guard
        self._current: Channel | None = None
        self._old: list[tuple[float, Channel]] = []  # from when on each may be closed

    def current(self) -> Channel:
        """The one to use; it is opened when there is none."""
        return self._current or self._open()

    def _open(self) -> Channel:
        with self._guard:
            if self._current is None:
                self._current = Channel(self._connect(), self._now())
            return self._current

    def answered(self, channel: Channel) -> None:
        """Something was heard on it."""
        channel.heard = self._now()

    def unanswered(self, channel: Channel, timeout: float) -> Any | None:
        """A call got no answer for so long. Returns a channel of gRPC that is to be closed now, if there is one."""
        now = self._now()
        with self._guard:
            is_dead = is_silent(channel, timeout, now)
            if is_dead and self._current is channel:
                self._current = None
                self._old.append((now + GRACE, channel))
            if self._old and self._old[0][0] <= now:
                return self._old.pop(0)[1].grpc
        return None

    def hang_up(self) -> list[Any]:
        """All that are to be closed: nobody wants to call any more."""
        with self._guard:
            current, old = self._current, self._old
            self._current, self._old = None, []
        return _all_of(old, current)

    def dropped(self) -> list[Any]:
        """All that are to be closed, for a finalizer: no other thread has these channels, and no lock is taken."""
        return _all_of(self._old, self._current)


def is_silent(channel: Channel, timeout: float, now: float) -> bool:
    """Whether a call without an answer for so long means that the channel is dead."""
    return timeout >= LEAST_WAIT and channel.heard <= now - timeout and channel.opened <= now - YOUNG


def _all_of(old: list[tuple[float, Channel]], current: Channel | None) -> list[Any]:
    return [channel.grpc for _, channel in old] + ([] if current is None else [current.grpc])
