"""The blocking wire: a few plain sockets, each used by one thread at a time.

A connection whose exchange was interrupted is closed, never used again: the reply that is still to come belongs to
nobody. A new one is opened by a thread of its own, because nothing else can leave a slow name server, a silent host or
a mute greeting in time; a connection that came too late for its caller is kept for the next one.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold.backends.redis.blocking_link import BlockingEar, BlockingLink
from leasehold.backends.redis.wire import is_hasty, no_time, stepped
from leasehold.errors import BackendUnavailable, ClientClosed, LeaseholdError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.backends.redis.wire import Dialer, Ear, Node
    from leasehold.spi import Runtime, Signal

__all__ = ["FRESH", "BlockingLink", "BlockingWire"]

MOST_IDLE = 8  # connections kept for later; more are opened while more threads talk at once
FRESH = 1.0  # one that was used within this time is taken to be alive


class Opening:
    """A connection that a thread opens for one that waits. If the wait is over first, it is `left` to others."""

    __slots__ = ("error", "left", "link", "over")

    def __init__(self, over: Signal) -> None:
        self.over = over
        self.link: BlockingLink | None = None
        self.error: LeaseholdError | None = None
        self.left = False


class BlockingRequest:
    """A question that has to connect first. That blocks, so it cannot share a thread with those to other servers."""

    def __init__(self, wire: BlockingWire, node: Node, commands: Sequence[bytes], timeout: float, until: float) -> None:
        self._wire, self._node = wire, node
        self._payload, self._count = b"".join(commands), len(commands)
        self._timeout, self._until = timeout, until

    async def perform(self) -> list[Any]:
        """Ask and wait."""
        return await self._wire.exchange(self._node, self._payload, self._count, self._timeout, self._until)


class BlockingQuestion(BlockingRequest):
    """A question on a connection that is there: it can be sent now and collected later."""

    def __init__(
        self, wire: BlockingWire, link: BlockingLink, commands: Sequence[bytes], timeout: float, until: float
    ) -> None:
        super().__init__(wire, link.node, commands, timeout, until)
        self._link = link
        self._replies: list[Any] = []

    async def perform(self) -> list[Any]:
        """Ask and wait."""
        return self._wire.talk(self._link, self._payload, self._count, self._timeout, self._until)

    def send(self) -> None:
        """Send without waiting."""
        left = self._wire.left(self._until)
        if left <= 0:
            self._wire.give_back(self._link)
            raise no_time(self._link.label)
        self._link.set_timeout(stepped(self._timeout, left))
        self._link.send(self._payload)

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._link.fileno()

    def receive(self) -> tuple[list[Any]] | None:
        """Read what is there. The connection goes back only with the last reply; otherwise it ends with this object."""
        link = self._link
        try:
            link.feed()
        except OutcomeUnknown:
            self._wire.broke(self._node)
            raise
        link.take_replies(self._replies, self._count)
        if len(self._replies) < self._count:
            return None
        self._wire.give_back(link)
        return (self._replies,)


class BlockingWire:
    """Connections for threads."""

    def __init__(self, dialer: Dialer, runtime: Runtime, label: str) -> None:
        self._dialer = dialer
        self._runtime = runtime
        self._label = label
        self._guard = runtime.guard()
        self._idle: dict[Node, deque[BlockingLink]] = {}
        self._links: dict[int, weakref.ref[BlockingLink]] = {}  # idle or in use
        self._openings: set[Opening] = set()
        self._closed = False

    def left(self, until: float) -> float:
        """See `Wire`."""
        return until - self._runtime.now()

    async def exchange(
        self,
        node: Node,
        payload: bytes,
        count: int,
        timeout: float,
        until: float = math.inf,
        *,
        alone: bool = False,  # noqa: ARG002 - it always is
    ) -> list[Any]:
        """Send commands and wait for so many replies."""
        if self._closed:
            raise ClientClosed(backend=self._label)
        link = self._idle_link(node) or await self._open(node, until)
        return self.talk(link, payload, count, timeout, until)

    def talk(self, link: BlockingLink, payload: bytes, count: int, timeout: float, until: float) -> list[Any]:
        """The same on a connection of the caller's, which is kept for later."""
        limit = timeout
        if until != math.inf:
            left = until - self._runtime.now()
            if left <= 0:
                self.give_back(link)
                raise no_time(self._label)
            limit = stepped(timeout, left)
        try:
            link.set_timeout(limit)
            replies = link.exchange(payload, count)
        except OutcomeUnknown:
            link.close()
            self.broke(link.node, hasty=is_hasty(limit, timeout))
            raise
        except BaseException:
            link.close()
            raise
        self.give_back(link)
        return replies

    def request(
        self, node: Node, commands: Sequence[bytes], timeout: float, until: float = math.inf
    ) -> BlockingRequest:
        """In one write: nobody else waits on the same connection."""
        link = None if self._closed else self._idle_link(node)
        if link is None:
            return BlockingRequest(self, node, commands, timeout, until)
        return BlockingQuestion(self, link, commands, timeout, until)

    async def listen(
        self, node: Node, hear: Callable[[list[Any]], None], lost: Callable[[], None], until: float = math.inf
    ) -> Ear:
        """A connection for messages."""
        if self._closed:
            raise ClientClosed(backend=self._label)
        return BlockingEar(await self._open(node, until), self._runtime, hear, lost)

    # --- opening

    async def _open(self, node: Node, until: float) -> BlockingLink:
        """A new connection, if there is one in time."""
        opening = Opening(self._runtime.signal())
        self._openings.add(opening)
        try:
            await self._start(node, opening)
            if not self._closed:  # it was asked before the opening was known to `close`
                await self._runtime.wait(opening.over, None if until == math.inf else until)
        finally:
            self._openings.discard(opening)
            with self._guard:
                link, error = opening.link, opening.error
                opening.left = link is None
        if self._closed:
            if link is not None:
                link.close()
            raise ClientClosed(backend=self._label)
        if error is not None:
            raise error
        if link is None:
            raise BackendUnavailable(f"{self._label} cannot be reached: no connection in time", backend=self._label)
        return link

    async def _start(self, node: Node, opening: Opening) -> None:
        connecting = self._connect(node, opening)
        try:
            self._runtime.spawn(connecting, "leasehold redis connection")
        except RuntimeError:  # no more threads: the interpreter ends, or there are too many
            connecting.close()
            await self._connect(node, opening)

    async def _connect(self, node: Node, opening: Opening) -> None:
        try:
            link = BlockingLink(self._dialer, node, self._label)
        except LeaseholdError as error:
            opening.error = error
        else:
            number = id(link)
            self._links[number] = weakref.ref(link, lambda _: self._links.pop(number, None))
            with self._guard:
                opening.link = link
                left = opening.left
            if left:
                self.give_back(link)
        finally:
            opening.over.set()

    # --- those that nobody uses

    def _idle_link(self, node: Node) -> BlockingLink | None:
        """A connection that nobody uses; the one used last, which is the likeliest to be alive."""
        idle = self._idle.get(node)
        if idle is None:
            return None
        while True:
            try:
                link = idle.pop()
            except IndexError:
                return None
            now = time.monotonic()
            if now - link.used_at < FRESH or link.is_quiet():
                link.used_at = now
                return link
            link.close()

    def give_back(self, link: BlockingLink) -> None:
        """Keep it for later."""
        idle = self._idle.get(link.node)
        if idle is None:
            idle = self._idle.setdefault(link.node, deque())
        if self._closed or len(idle) >= MOST_IDLE:
            link.close()
            return
        link.used_at = time.monotonic()
        idle.append(link)

    def broke(self, node: Node, *, hasty: bool = False) -> None:
        """A connection to this server died: the idle ones most likely died too, and would cost an attempt each."""
        if self._closed:
            raise ClientClosed(backend=self._label)
        if not hasty:
            self.distrust(node)

    def distrust(self, node: Node) -> None:
        """See `Wire`."""
        idle: deque[BlockingLink] = self._idle.get(node, deque())
        while idle:
            with suppress(IndexError):  # another thread was quicker
                idle.pop().close()

    async def close(self) -> None:
        """Close what is idle, and interrupt the rest: each is closed by the thread that uses it."""
        self._closed = True
        for opening in tuple(self._openings):
            opening.over.set()
        for idle in tuple(self._idle.values()):
            while idle:
                with suppress(IndexError):
                    idle.pop().close()
        for known in tuple(self._links.values()):
            link = known()
            if link is not None:
                link.interrupt()
