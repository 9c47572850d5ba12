"""The way between a process and the members of a simulated cluster: the `Wire` that the shipped protocol talks to.

Requests and answers are lost or late, and a request can be applied long after its caller gave up. A stream of watches
ends with an error, or falls silent.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd.errors import CallFailed
from verification.simulation.etcd.server import EPOCH
from verification.simulation.network import Fate

if TYPE_CHECKING:
    from leasehold._backends.etcd.wire import Metadata
    from verification.simulation.etcd.server import SimEtcd
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime

__all__ = ["SimEtcdWire"]

REFUSED = CallFailed("UNAVAILABLE", "failed to connect to all addresses")
NO_LEADER = CallFailed("UNAVAILABLE", "etcdserver: no leader")
BROKEN = CallFailed("UNAVAILABLE", "connection reset by peer")
CLOSED = CallFailed("CANCELLED", "the channel is closed")


class SimEtcdWire:
    """The channel of one process to one member."""

    def __init__(self, link: Link, runtime: SimRuntime, server: SimEtcd, member: int) -> None:
        self.link = link
        self.runtime = runtime
        self.server = server
        self.member = member
        self._streams: list[SimStream] = []
        self._closed = False

    async def call(
        self,
        method: str,
        request: bytes,
        timeout: float,
        metadata: Metadata,  # noqa: ARG002 - there are no users
        *,
        uncancelled: bool = False,  # noqa: ARG002 - it always goes on
    ) -> bytes:
        """See `Wire`."""
        link, server, world = self.link, self.server, self.link.process.world
        deadline = self.runtime.now() + min(timeout, link.timeout)
        fate = link.fate()
        ambush, link.ambush = link.ambush, None
        if ambush is not None:
            ambush()
        if self._closed:
            raise CLOSED
        if fate is Fate.REFUSED or server.is_down[self.member]:
            await self.runtime.sleep(min(link.delay(), deadline - self.runtime.now()))
            raise _again(REFUSED)
        answered = self.runtime.signal()
        answers: list[bytes | CallFailed] = []

        def arrive() -> None:
            if link.cut and fate is not Fate.ZOMBIE:
                return
            if server.is_down[self.member]:
                world.after(link.delay(), lambda: come_back(BROKEN))
                return
            if server.stalled_until[self.member] > world.now:
                world.at(server.stalled_until[self.member], arrive)
                return
            if self.member in server.stale and "KeepAlive" not in method:
                if world.random.random() < 0.5:  # it knows by now; else it waits for a majority that does not hear it
                    world.after(link.delay(), lambda: come_back(NO_LEADER))
                return
            try:
                answer: bytes | CallFailed = server.call(self.member, method, request)
            except CallFailed as failure:
                answer = failure
            world.note(link.process.name, "ran", method.rpartition("/")[2], server.revision, fate.value)
            if fate is Fate.REPLY_LOST or link.cut:
                return
            late = link.timeout * 2 * world.random.random() if fate is Fate.REPLY_LATE else 0.0
            world.after(link.delay() + late, lambda: come_back(answer))

        def come_back(answer: bytes | CallFailed) -> None:
            if not link.cut:
                answers.append(answer)
                answered.set()

        if fate is not Fate.REQUEST_LOST and not link.cut:
            late = server.latest_copy * world.random.random() if fate is Fate.ZOMBIE else 0.0
            world.after(link.delay() + late, arrive)
        if not await self.runtime.wait(answered, deadline):
            link.trouble()
            raise CallFailed("DEADLINE_EXCEEDED", "no answer in time")
        if isinstance(answers[0], CallFailed):
            raise _again(answers[0])
        return answers[0]

    def stream(self, method: str, metadata: Metadata) -> SimStream:  # noqa: ARG002 - there is one kind, and no users
        """See `Wire`."""
        stream = SimStream(self)
        self._streams.append(stream)
        return stream

    async def date(self, timeout: float) -> str:  # noqa: ARG002 - it is here at once, or not at all
        """See `Wire`."""
        await self.runtime.sleep(2 * self.link.delay())
        if self.link.cut or self.server.is_down[self.member]:
            raise OSError("no route to host")
        seconds = EPOCH + self.link.process.world.now
        return f"HTTP/1.1 200 OK\r\nDate: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime(seconds))}\r\n\r\n"

    async def close(self) -> None:
        """See `Wire`."""
        self._closed = True
        for stream in self._streams:
            stream.close()


class SimStream:
    """A stream of watches; messages are received by a task of the process."""

    def __init__(self, wire: SimEtcdWire) -> None:
        self._wire = wire
        self._world = wire.link.process.world
        self._number = self._world.next_number()
        self._inbox: deque[bytes | CallFailed | None] = deque()
        self._something = wire.runtime.signal()
        self._is_silent = False
        if wire.server.is_down[wire.member]:
            self._fail()

    def send(self, request: bytes) -> None:
        """See `Stream`."""
        link, server = self._wire.link, self._wire.server

        def arrive() -> None:
            if link.cut:
                self._is_silent = self._is_silent or self._world.random.random() < 0.5
            elif server.is_down[self._wire.member]:
                self._fail()
            elif not self._is_silent:
                server.watch(self._number, request, self._hear)

        self._world.after(link.delay(), arrive)

    def _hear(self, message: bytes) -> None:
        link = self._wire.link
        if link.cut or self._world.random.random() < link.weather.reply_loss:
            link.trouble(link.timeout)
            self._wire.server.end_stream(self._number)
            self._is_silent = True
            if self._world.random.random() < 0.7:
                self._fail()
            return
        self._world.after(link.delay(), lambda: self._receive(message))

    def lose(self) -> None:
        """A fault of the server."""
        self._wire.server.end_stream(self._number)
        self._fail()

    def _fail(self) -> None:
        self._world.after(self._wire.link.delay(), lambda: self._receive(BROKEN))

    def _receive(self, message: bytes | CallFailed | None) -> None:
        self._inbox.append(message)
        self._something.set()

    async def receive(self) -> bytes | None:
        """See `Stream`."""
        while not self._inbox:
            self._something.clear()
            await self._wire.runtime.wait(self._something, None)
        message: Any = self._inbox.popleft()
        if isinstance(message, CallFailed):
            raise _again(message)
        return message  # type: ignore[no-any-return]

    def close(self) -> None:
        """See `Stream`."""
        self._wire.server.end_stream(self._number)
        self._receive(None)


def _again(failure: CallFailed) -> CallFailed:
    """A new one: an exception keeps the frames through which it was raised."""
    return CallFailed(failure.code, failure.details)
