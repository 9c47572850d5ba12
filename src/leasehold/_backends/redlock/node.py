"""One node as a client sees it: whether it answers, what time it has, which process it is. It decides nothing."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leasehold._backends.redis.calls import pack
from leasehold._backends.redlock.scripts import NAMES, script
from leasehold._backends.redlock.undelivered import Undelivered
from leasehold._backends.redlock.wire import SILENCE_LIMIT, checked
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.redis.wire import Node as Address
    from leasehold._backends.redlock.calls import Call
    from leasehold._backends.redlock.wire import NodeWire

__all__ = ["Node"]

MISSES = 2  # so many unanswered requests in a row, and the node is left out until it answers a probe


@dataclass(eq=False)
class Node:
    """One node. `failure` is why it is left out for now; None as long as it answers."""

    address: Address
    wire: NodeWire
    failure: BackendError | None = None
    run_id: str | None = None
    offset: float | None = None  # its time minus our monotonic time, in seconds
    misses: int = 0
    lost_at: float = -math.inf  # when it was left out last; what was sent before may still arrive
    opening: bool = False
    undelivered: Undelivered = field(default_factory=Undelivered)
    clock: Callable[[], float] = time.monotonic

    def __str__(self) -> str:
        return str(self.address)

    @property
    def is_up(self) -> bool:
        """Whether requests go to it."""
        return self.failure is None and self.run_id is not None

    def missed(self) -> None:
        """It did not answer in time. One such hiccup is forgiven."""
        self.misses += 1
        if self.misses >= MISSES:
            self.failed(BackendUnavailable(f"{self} does not answer", backend=str(self)))

    def failed(self, error: Exception) -> None:
        """Leave it out until it answers a probe."""
        self.misses = 0
        self.lost_at = self.clock()
        if not isinstance(error, BackendError):
            error = BackendUnavailable(f"{self}: {error}", backend=str(self))
        self.failure = error

    def may_receive_late(self, ttl: float) -> bool:
        """Whether a request of the last ttl may still be under way to it: unanswered, or lost with its connection."""
        return self.wire.has_pending or self.clock() - self.lost_at < ttl + SILENCE_LIMIT

    def deliver_later(self, call: Call) -> None:
        """It may have missed this call. A call that matters is sent again when it is back, within its ttl."""
        self.undelivered.keep(call)

    async def deliver_missed(self, now: float) -> None:
        """Send the calls that it missed; with the texts of the scripts, which a node that was away may have lost."""
        calls = self.undelivered.take(now)
        if not calls:
            return
        try:
            await self.wire.exchange(b"".join(call.whole for call in calls), sum(call.count for call in calls))
        except BaseException:
            for call in calls:
                self.undelivered.keep(call)
            raise

    def note_time(self, time_us: int, now: float) -> None:
        """It reported its time."""
        self.offset = time_us / 1_000_000 - now

    async def introduce(self, greeting: Call, now: Callable[[], float]) -> None:
        """Find out on a fresh connection which process it is and what time it has, and give it the scripts."""
        (info,) = await self.wire.exchange(pack("INFO", "replication"), 1, fresh=True)
        fields = dict(line.partition(b":")[::2] for line in checked(info, str(self)).split(b"\r\n") if b":" in line)
        if fields.get(b"role") != b"master":
            primary = f"{fields.get(b'master_host', b'?').decode()}:{fields.get(b'master_port', b'?').decode()}"
            raise BackendRejected(
                f"{self} is a replica of {primary}: the nodes of redlock: must be independent primaries; "
                "put another server into the URL",
                backend=str(self),
            )
        known = pack("SCRIPT", "EXISTS", *(script(name).digest for name in NAMES))
        there, reply = await self.wire.exchange(known + greeting.whole, 2)
        run_id, time_us, _, _ = checked(reply, str(self))
        self.note_time(time_us, now())
        if not isinstance(there, list) or 0 in there:
            loads = [pack("SCRIPT", "LOAD", script(name).text) for name in NAMES]
            await self.wire.exchange(b"".join(loads), len(loads))
        self.run_id = run_id.decode()
        self.failure = None
        self.misses = 0
