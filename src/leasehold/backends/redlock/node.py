"""One node as a client sees it: whether it answers, what time it has, who it is. It decides nothing about locks.

A face (blocking or asyncio) brings `Lines`: the connections to one node. A `Question` is one call to one node that can
be put to many nodes at once; an answer that comes after the decision is still read, and what has to be said *behind* an
unanswered question goes out on the same connection, so that it arrives after it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.backends.redis.commands import pack
from leasehold.backends.redis.trouble import from_reply
from leasehold.backends.redlock.scripts import NAMES, script
from leasehold.backends.redlock.unsaid import Unsaid
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.backends.redis.wire import Node as Address
    from leasehold.backends.redlock.calls import Call

__all__ = ["LINE_TIMEOUT", "Lines", "Node", "Question", "checked", "lacks_script", "meaning"]

LINE_TIMEOUT = 2.0  # a connection that owes an answer for longer is given up
MISSES = 2  # so many unanswered questions in a row, and the node is left out until it answers a probe


class Question(Protocol):
    """One call to one node; also a request of the runtime's `scatter`."""

    node: Node

    async def perform(self) -> Any:
        """Ask and wait for the answer to the last part of the call."""

    def behind(self, call: Call) -> None:
        """Send another call after this one on the same connection; nobody waits for its answer."""

    def finish(self) -> None:
        """Nobody waits for the answer any more. It is still read when it comes."""

    def drop(self) -> None:
        """The caller was interrupted, perhaps in the middle of sending or reading."""


class Lines(Protocol):
    """The connections to one node."""

    @property
    def is_ready(self) -> bool:
        """Whether a question can be sent without connecting first."""

    @property
    def is_owed(self) -> bool:
        """Whether any answer is still to come."""

    async def open(self) -> None:
        """Connect, so that one more question can be sent."""

    def question(self, node: Node, call: Call, until: float) -> Question:
        """A question for this node; connecting for it ends by then, an instant of `time.monotonic`."""

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        """Send commands and wait for all replies, without a hurry; on a new connection if it must be fresh."""

    def close(self) -> None:
        """Close every connection."""


@dataclass(eq=False)
class Node:
    """One node. `trouble` is why it is left out for now; None as long as it answers."""

    address: Address
    lines: Lines
    trouble: BackendError | None = None
    run_id: str | None = None
    offset: float | None = None  # its time minus our monotonic time, in seconds
    misses: int = 0
    lost_at: float = -math.inf  # when it was left out last; what was sent before may still arrive
    opening: bool = False
    unsaid: Unsaid = field(default_factory=Unsaid)

    def __str__(self) -> str:
        return str(self.address)

    @property
    def is_up(self) -> bool:
        """Whether it is asked."""
        return self.trouble is None and self.run_id is not None

    def answered(self) -> None:
        """It is alive."""
        self.misses = 0

    def missed(self) -> None:
        """It did not answer in time. One such hiccup is forgiven."""
        self.misses += 1
        if self.misses >= MISSES:
            self.failed(BackendUnavailable(f"{self} does not answer", backend=str(self)))

    def failed(self, error: Exception) -> None:
        """Leave it out until it answers a probe."""
        self.misses = 0
        self.lost_at = time.monotonic()
        if not isinstance(error, BackendError):
            error = BackendUnavailable(f"{self}: {error}", backend=str(self))
        self.trouble = error

    def may_get_late(self, ttl: float) -> bool:
        """Whether a request of the last ttl may still be under way to it: unanswered, or lost with its connection."""
        return self.lines.is_owed or time.monotonic() - self.lost_at < ttl + LINE_TIMEOUT

    def say_later(self, call: Call) -> None:
        """It may not have got this. If that matters, it is told when it is back, unless the ttl was quicker."""
        self.unsaid.keep(call)

    async def say_now(self, now: float) -> None:
        """Tell it what it has missed; with the texts of the scripts, which it may not know any more."""
        calls = self.unsaid.take(now)
        if not calls:
            return
        try:
            await self.lines.exchange(b"".join(call.whole for call in calls), sum(call.count for call in calls))
        except BaseException:
            for call in calls:
                self.unsaid.keep(call)
            raise

    def told_time(self, time_us: int, now: float) -> None:
        """It said what time it has."""
        self.offset = time_us / 1_000_000 - now

    async def get_to_know(self, greeting: Call, now: Callable[[], float]) -> None:
        """Ask on a fresh connection who is there, and what time it has."""
        (info,) = await self.lines.exchange(pack("INFO", "replication"), 1, fresh=True)
        facts = dict(line.partition(b":")[::2] for line in checked(info, str(self)).split(b"\r\n") if b":" in line)
        if facts.get(b"role") != b"master":
            primary = f"{facts.get(b'master_host', b'?').decode()}:{facts.get(b'master_port', b'?').decode()}"
            raise BackendRejected(
                f"{self} is a replica of {primary}: the nodes of redlock: must be independent primaries",
                backend=str(self),
            )
        known = pack("SCRIPT", "EXISTS", *(script(name).digest for name in NAMES))
        there, reply = await self.lines.exchange(known + greeting.whole, 2)
        run_id, time_us, _, _ = checked(reply, str(self))
        self.told_time(time_us, now())
        if not isinstance(there, list) or 0 in there:
            loads = [pack("SCRIPT", "LOAD", script(name).text) for name in NAMES]
            await self.lines.exchange(b"".join(loads), len(loads))
        self.run_id = run_id.decode()
        self.trouble = None
        self.misses = 0


def lacks_script(replies: Sequence[Any]) -> bool:
    """Whether the scripts have to be sent with their texts; not every part needs to lack its own."""
    return any(isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT") for reply in replies)


def meaning(call: Call, replies: list[Any], label: str) -> Any:
    """What a node answered to a call, or the error that it is. One part of many that failed is not the whole."""
    if call.all and not all(isinstance(reply, Exception) for reply in replies):
        return replies
    reply = replies[-1]
    return from_reply(str(reply), label) if isinstance(reply, Exception) else reply


def checked(reply: Any, label: str) -> Any:
    """The reply, or the error that it is."""
    if isinstance(reply, Exception):
        raise from_reply(str(reply), label)
    return reply
