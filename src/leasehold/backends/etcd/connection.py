"""A client of an etcd cluster: which member to ask, with which token, for how long, and what a failure means.

It knows members and messages, not locks. One member is asked until it fails; then the next. A request is sent to
another member only if it surely was not applied or only reads, and every call has a deadline.

A verb of the store may take several calls, and each of them must end when the verb must: `until` around a verb is
obeyed by every call inside it, on this thread or in this task, and so none can be forgotten.
"""

from __future__ import annotations

import math
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

from leasehold.backends.etcd import answers, messages
from leasehold.backends.etcd.messages import Method
from leasehold.backends.etcd.trouble import (
    CallFailed,
    is_elsewhere,
    is_stale_token,
    is_surely_not_applied,
    translated,
)
from leasehold.backends.etcd.wire import time_in
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.etcd.answers import LeaseAnswer, RangeAnswer, TxnAnswer
    from leasehold.backends.etcd.wire import Metadata, Stream, Wire
    from leasehold.spi import Runtime

__all__ = ["CALL_TIMEOUT", "Connection", "limit", "until"]

CALL_TIMEOUT = 3.0
CLOCK_KEPT = 10.0  # how long the difference between our clock and a member's is believed
WITH_LEADER: Metadata = (("hasleader", "true"),)  # a member without a leader says so at once, and does not wait for one

_limit: ContextVar[float] = ContextVar("leasehold_etcd_until", default=math.inf)


class until:  # noqa: N801 - it reads as one would say it: with until(instant)
    """Every call inside ends by this instant of the runtime's clock.

    Every verb says one, also where there is none (infinity): a signal handler that raises may leave an old one behind.
    """

    __slots__ = ("_before", "_instant")

    def __init__(self, instant: float) -> None:
        self._instant = instant

    def __enter__(self) -> None:
        self._before = _limit.set(self._instant)

    def __exit__(self, *_: object) -> None:
        _limit.reset(self._before)


def limit() -> float:
    """When the verb that runs now must be over."""
    return _limit.get()


class Connection:
    """Calls to a cluster."""

    def __init__(
        self, wires: Sequence[Wire], runtime: Runtime, label: str, user: str | None = None, password: str | None = None
    ) -> None:
        self._wires = wires
        self._runtime = runtime
        self.label = label
        self._user = user
        self._password = password
        self._metadata: Metadata | None = WITH_LEADER if user is None else None
        self._current = 0
        self._closed = False
        self._clock = (0.0, 0.0)  # until when it is believed, and what to add to our clock

    # --- calls

    async def txn(self, request: bytes, timeout: float = CALL_TIMEOUT, *, reads: bool = False) -> TxnAnswer:
        """A transaction; `reads`: it changes nothing, whatever its conditions say."""
        return answers.read_txn(await self.call(Method.TXN, request, timeout, reads=reads))

    async def range(self, request: bytes) -> RangeAnswer:
        """A read."""
        return answers.read_range(await self.call(Method.RANGE, request, reads=True))

    async def grant(self, lease: int, ttl: int, timeout: float = CALL_TIMEOUT) -> int:
        """Make a lease; the seconds that were granted. Without an answer, what may be there has no keys and ends."""
        try:
            answer = await self.call(Method.LEASE_GRANT, messages.lease_grant(lease, ttl), timeout)
        except OutcomeUnknown as unknown:
            raise BackendUnavailable(str(unknown), backend=self.label) from None
        return answers.read_lease(answer).ttl

    async def keep_alive(self, lease: int, timeout: float) -> LeaseAnswer:
        """Let a lease begin anew, which may be asked twice. One request, one stream: what comes back answers it."""
        request = messages.lease_id(lease)
        return answers.read_lease(await self.call(Method.LEASE_KEEP_ALIVE, request, timeout, reads=True))

    async def time_to_live(self, lease: int) -> LeaseAnswer:
        """The seconds that a lease has left."""
        request = messages.lease_id(lease)
        return answers.read_lease(await self.call(Method.LEASE_TIME_TO_LIVE, request, reads=True))

    async def revoke(self, lease: int, timeout: float = CALL_TIMEOUT) -> None:
        """End a lease with all its keys; also while the client is being closed."""
        await self._call(Method.LEASE_REVOKE, messages.lease_id(lease), timeout, reads=False)

    async def call(self, method: str, request: bytes, timeout: float = CALL_TIMEOUT, *, reads: bool = False) -> bytes:
        """Ask one member, or the next if the request surely was not applied."""
        if self._closed:
            raise ClientClosed(backend=self.label)
        return await self._call(method, request, timeout, reads=reads)

    async def _call(self, method: str, request: bytes, timeout: float, *, reads: bool) -> bytes:
        deadline = min(self._runtime.now() + timeout, limit())
        tries, renewed = len(self._wires), False
        while True:
            metadata = self._metadata or await self._authenticate(self.time_left(deadline))
            place = self._current
            try:
                return await self._wires[place].call(
                    method, request, self.time_left(deadline), metadata, to_its_end=reads and method == Method.TXN
                )
            except CallFailed as failure:
                if self._closed:
                    raise ClientClosed(backend=self.label) from None
                timeout = deadline - self._runtime.now()
                if self._user is not None and not renewed and is_stale_token(failure):
                    self._metadata, renewed = None, True
                    continue
                if is_elsewhere(failure):
                    self._move_on(place)
                tries -= 1
                again = is_surely_not_applied(failure) or (reads and failure.code == "UNAVAILABLE")
                if not again or tries <= 0 or timeout <= 0:
                    raise translated(failure, self.label, reads=reads) from None

    async def call_member(self, place: int, method: str, request: bytes, timeout: float = CALL_TIMEOUT) -> bytes:
        """Ask this member and no other."""
        if self._closed:
            raise ClientClosed(backend=self.label)
        metadata = self._metadata or await self._authenticate(timeout)
        try:
            return await self._wires[place].call(method, request, timeout, metadata)
        except CallFailed as failure:
            raise translated(failure, self.label, reads=True) from None

    async def stream(self, method: str) -> tuple[int, Stream]:
        """Begin a call that goes on, with the member that is asked now; its place, to give up on it later."""
        if self._closed:
            raise ClientClosed(backend=self.label)
        metadata = self._metadata or await self._authenticate(CALL_TIMEOUT)
        place = self._current
        return place, self._wires[place].stream(method, metadata)

    def give_up_on(self, place: int) -> None:
        """This member did not do; ask the next one from now on."""
        self._move_on(place)

    async def time(self) -> float:
        """The time of day of the member that is asked; its clock is the one that all clients share."""
        kept, difference = self._clock
        now = self._runtime.now()
        if now < kept:
            return now + difference
        if self._closed:
            raise ClientClosed(backend=self.label)
        try:
            told = time_in(await self._wires[self._current].date(CALL_TIMEOUT))
        except OSError as error:
            self._move_on(self._current)
            raise BackendUnavailable(f"etcd did not tell the time: {error}", backend=self.label) from None
        if told is None:
            raise BackendRejected(
                "etcd does not tell the time over HTTP on its client port; name its HTTP port: ?http_port=N",
                backend=self.label,
            )
        self._clock = (now + CLOCK_KEPT, told - self._runtime.now())
        return told

    async def clock_of(self, place: int) -> float | None:
        """How many seconds this member's time of day is ahead of ours; None where it does not tell."""
        try:
            told = time_in(await self._wires[place].date(CALL_TIMEOUT))
        except OSError:
            return None
        return None if told is None else told - time.time()

    def time_left(self, deadline: float) -> float:
        """The seconds until then; an error if there are none, and so nothing can be sent."""
        left = deadline - self._runtime.now()
        if left <= 0:
            raise BackendUnavailable("there was no time left to ask etcd", backend=self.label)
        return left

    def refuse(self) -> None:
        """The client is being closed: let no new call begin."""
        self._closed = True

    async def close(self) -> None:
        """Hang up; calls that are under way end with `ClientClosed`."""
        self._closed = True
        for wire in self._wires:
            await wire.close()

    # --- which member, which token

    @property
    def members(self) -> int:
        """How many members were named."""
        return len(self._wires)

    def _move_on(self, failed: int) -> None:
        if self._current == failed:
            self._current = (failed + 1) % len(self._wires)

    async def _authenticate(self, timeout: float) -> Metadata:
        request = messages.authenticate(self._user or "", self._password or "")
        place = self._current
        try:
            answer = await self._wires[place].call(Method.AUTHENTICATE, request, timeout, WITH_LEADER)
        except CallFailed as failure:
            self._move_on(place)
            if self._closed:
                raise ClientClosed(backend=self.label) from None
            if failure.code == "FAILED_PRECONDITION":
                raise BackendRejected(
                    "this etcd has no users; leave user and password out", backend=self.label
                ) from None
            raise translated(failure, self.label, reads=True) from None
        self._metadata = (*WITH_LEADER, ("token", answers.read_token(answer)))
        return self._metadata
