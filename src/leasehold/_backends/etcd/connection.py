"""Calls to an etcd cluster: to which member, with which token, for how long, and what a failure means.

One member is used until it fails; then the next. Within one call a request goes to another member only if it surely was
not applied or only reads, and every call has a deadline.

A verb of the store may take several calls, and each of them must end when the verb must. The deadline of a verb is kept
in a context variable (`until` around the verb), which every call inside it obeys, on this thread or in this task: so no
call can miss it.
"""

from __future__ import annotations

import math
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.errors import (
    CallFailed,
    is_stale_token,
    is_surely_not_applied,
    may_work_elsewhere,
    to_backend_error,
)
from leasehold._backends.etcd.rpc import Method
from leasehold._backends.etcd.wire import time_in
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.etcd.rpc import LeaseResponse, RangeResponse, TxnResponse
    from leasehold._backends.etcd.wire import Metadata, Stream, Wire
    from leasehold.spi import Runtime

__all__ = ["ANSWER_TIMEOUT", "Connection", "limit", "until"]

ANSWER_TIMEOUT = 3.0
CLOCK_KEPT = 10.0  # seconds for which the difference between our clock and a member's is kept
SLOW = 1.0  # an answer that took longer, or that was read after a standstill, does not tell that difference
WITH_LEADER: Metadata = (("hasleader", "true"),)  # a member without a leader refuses at once, and does not wait for one

_limit: ContextVar[float] = ContextVar("leasehold_etcd_until", default=math.inf)
limit = _limit.get  # the deadline of the verb that runs now


class until:  # noqa: N801 - reads as a phrase: with until(instant)
    """Every call inside ends by this instant of the runtime's clock.

    Every verb sets one, also where there is none (infinity): an exception out of a signal handler may leave an old one
    behind.
    """

    __slots__ = ("_before", "_instant")

    def __init__(self, instant: float) -> None:
        self._instant = instant

    def __enter__(self) -> None:
        self._before = _limit.set(self._instant)

    def __exit__(self, *_: object) -> None:
        _limit.reset(self._before)


class Connection:
    """Calls to a cluster. `answer_timeout` is how long one answer may take where the caller gives no time."""

    def __init__(
        self,
        wires: Sequence[Wire],
        runtime: Runtime,
        label: str,
        user: str | None = None,
        password: str | None = None,
        *,
        answer_timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self._wires = wires
        self._runtime = runtime
        self.label = label
        self.answer_timeout = answer_timeout
        self._user = user
        self._password = password
        self._metadata: Metadata | None = WITH_LEADER if user is None else None
        self._current = 0
        self._closed = False
        self._clock = (0.0, 0.0)  # until when it is kept, and what to add to our clock

    # --- calls

    async def txn(self, request: bytes, timeout: float | None = None, *, reads: bool = False) -> TxnResponse:
        """A transaction; `reads`: it changes nothing, whatever its conditions say."""
        return rpc.read_txn(await self.call(Method.TXN, request, timeout, reads=reads))

    async def range(self, request: bytes) -> RangeResponse:
        """A read."""
        return rpc.read_range(await self.call(Method.RANGE, request, reads=True))

    async def grant(self, lease: int, ttl: int) -> int:
        """Make a lease; the seconds that were granted. One that was made without an answer has no keys, and expires."""
        try:
            response = await self.call(Method.LEASE_GRANT, rpc.lease_grant(lease, ttl))
        except OutcomeUnknown as unknown:
            raise BackendUnavailable(str(unknown), backend=self.label) from None
        return rpc.read_lease(response).ttl

    async def keep_alive(self, lease: int, timeout: float | None = None) -> LeaseResponse:
        """Let the time of a lease begin anew, which may be repeated. One request on a stream of its own."""
        request = rpc.lease_id(lease)
        return rpc.read_lease(await self.call(Method.LEASE_KEEP_ALIVE, request, timeout, reads=True))

    async def time_to_live(self, lease: int) -> LeaseResponse:
        """The seconds that a lease has left."""
        request = rpc.lease_id(lease)
        return rpc.read_lease(await self.call(Method.LEASE_TIME_TO_LIVE, request, reads=True))

    async def revoke(self, lease: int, timeout: float | None = None) -> None:
        """End a lease with all its keys; also while the client is being closed."""
        await self.call(Method.LEASE_REVOKE, rpc.lease_id(lease), timeout, while_closing=True)

    async def call(
        self,
        method: str,
        request: bytes,
        timeout: float | None = None,
        *,
        reads: bool = False,
        while_closing: bool = False,
    ) -> bytes:
        """Send a request to one member, and to the next if it surely was not applied."""
        if self._closed and not while_closing:
            raise ClientClosed(backend=self.label)
        now = self._runtime.now
        deadline = min(now() + (timeout or self.answer_timeout), limit())
        tries, has_new_token = len(self._wires), False
        while True:
            metadata = self._metadata or await self._authenticate(self.time_left(deadline))
            left = deadline - now()
            if left <= 0:
                raise self._no_time()
            place = self._current
            try:
                return await self._wires[place].call(
                    method, request, left, metadata, uncancelled=reads and method == Method.TXN
                )
            except CallFailed as failure:
                if self._closed and not while_closing:
                    raise ClientClosed(backend=self.label) from None
                if self._user is not None and not has_new_token and is_stale_token(failure):
                    self._metadata, has_new_token = None, True
                    continue
                if may_work_elsewhere(failure):
                    self.move_on(place)
                tries -= 1
                again = is_surely_not_applied(failure) or (reads and failure.code == "UNAVAILABLE")
                if not again or tries <= 0 or deadline - now() <= 0:
                    raise to_backend_error(failure, self.label, reads=reads) from None

    async def call_member(self, place: int, method: str, request: bytes) -> bytes:
        """Send a request to this member and to no other."""
        if self._closed:
            raise ClientClosed(backend=self.label)
        metadata = self._metadata or await self._authenticate(self.answer_timeout)
        try:
            return await self._wires[place].call(method, request, self.answer_timeout, metadata)
        except CallFailed as failure:
            raise to_backend_error(failure, self.label, reads=True) from None

    async def stream(self, method: str) -> tuple[int, Stream]:
        """Begin a stream to the member in use; its place is for `move_on`, should the stream fail."""
        if self._closed:
            raise ClientClosed(backend=self.label)
        metadata = self._metadata or await self._authenticate(self.answer_timeout)
        place = self._current
        return place, self._wires[place].stream(method, metadata)

    # --- time

    def time_left(self, deadline: float) -> float:
        """The seconds until then; an error if there are none, and so nothing can be sent."""
        left = deadline - self._runtime.now()
        if left <= 0:
            raise self._no_time()
        return left

    def _no_time(self) -> BackendUnavailable:
        return BackendUnavailable(
            f"{self.label}: there was no time left for the request; allow more", backend=self.label
        )

    async def time(self) -> float:
        """The time of day of the member in use; its clock is the one that all clients share."""
        kept, difference = self._clock
        now = self._runtime.now()
        if now < kept:
            return now + difference
        if self._closed:
            raise ClientClosed(backend=self.label)
        try:
            found = time_in(await self._wires[self._current].date(self.answer_timeout))
        except OSError as error:
            self.move_on(self._current)
            raise BackendUnavailable(
                f"{self.label}: the time of day could not be read over HTTP: {error}; try again", backend=self.label
            ) from None
        if found is None:
            raise BackendRejected(
                f"{self.label} gives no time of day over HTTP on its client port; name its HTTP port: ?http_port=N",
                backend=self.label,
            )
        if (answered := self._runtime.now()) <= now + SLOW:
            self._clock = (now + CLOCK_KEPT, found - answered)
        return found

    async def clock_of(self, place: int) -> float | None:
        """How many seconds this member's time of day is ahead of ours; None where it gives none."""
        try:
            found = time_in(await self._wires[place].date(self.answer_timeout))
        except OSError:
            return None
        return None if found is None else found - time.time()

    # --- the end

    def refuse(self) -> None:
        """The client is being closed: let no new call begin."""
        self._closed = True

    async def close(self) -> None:
        """Close all channels; calls that are under way end with `ClientClosed`."""
        self._closed = True
        for wire in self._wires:
            await wire.close()

    # --- which member, which token

    @property
    def members(self) -> int:
        """How many members the URL has."""
        return len(self._wires)

    def move_on(self, failed: int) -> None:
        """This member failed; use the next one from now on."""
        if self._current == failed:
            self._current = (failed + 1) % len(self._wires)

    async def _authenticate(self, timeout: float) -> Metadata:
        request = rpc.authenticate(self._user or "", self._password or "")
        place = self._current
        try:
            response = await self._wires[place].call(Method.AUTHENTICATE, request, timeout, WITH_LEADER)
        except CallFailed as failure:
            self.move_on(place)
            if self._closed:
                raise ClientClosed(backend=self.label) from None
            if failure.code == "FAILED_PRECONDITION":
                raise BackendRejected(
                    f"{self.label} has no users: authentication is not enabled; leave user and password out of the URL",
                    backend=self.label,
                ) from None
            raise to_backend_error(failure, self.label, reads=True) from None
        self._metadata = (*WITH_LEADER, ("token", rpc.read_token(response)))
        return self._metadata
