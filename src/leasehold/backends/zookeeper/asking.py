"""Waiting for answers, and saying in leasehold's words what went wrong. It knows no protocol.

Every wait has two limits: the store's own, and `until`, after which the caller has no use for the answer. What is
answered later is noted by the connection's thread, and wakes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    SessionExpiredError,
    SessionMovedError,
    UnimplementedError,
)

from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, LeaseholdError, OutcomeUnknown

if TYPE_CHECKING:
    from types import TracebackType

    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime, Signal

__all__ = ["Asker", "Calls"]

CONNECT_PATIENCE = 3.0
SHORTEST_CALL, LONGEST_CALL = 2.0, 5.0

_REJECTIONS = {
    NoAuthError: "this account may not do that below the store's root; give it the rights cdrw there",
    AuthFailedError: "ZooKeeper refused the credentials",
    InvalidACLError: "ZooKeeper refused the acl; acl=creator needs a user and password, or a client certificate",
    UnimplementedError: "this ZooKeeper is too old; container nodes came with version 3.5.3",
}


class Calls:
    """The calls of one client: `with calls:` around each, which `close` ends with `ClientClosed` wherever it waits."""

    def __init__(self, runtime: Runtime, label: str) -> None:
        self._runtime = runtime
        self._label = label
        self._waits: dict[object, Signal] = {}
        self.is_closed = False

    async def wait(self, signal: Signal, deadline: float) -> None:
        """Wait for the signal, the deadline or the end of the client."""
        wait = object()
        self._waits[wait] = signal
        try:
            if not self.is_closed:  # asked after the entry is made: `close` sees the entry, or this sees that it closed
                await self._runtime.wait(signal, deadline)
        finally:
            del self._waits[wait]

    def close(self) -> None:
        """No call begins any more, and none waits any longer."""
        self.is_closed = True
        for signal in list(self._waits.values()):
            signal.set()

    def __enter__(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._label)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_closed and isinstance(error, (BackendUnavailable, OutcomeUnknown)):
            raise ClientClosed(backend=self._label) from None


class Asker:
    """Waits for the answers of one client's sessions, for a bounded time."""

    def __init__(self, runtime: Runtime, calls: Calls, label: str) -> None:
        self._runtime = runtime
        self._calls = calls
        self._trouble = ""  # why the last connection failed; a new session has no answer yet when time is short
        self.label = label

    async def connected(self, session: Session, until: float) -> bool:
        """Wait for the connection; False if the session is over."""
        if session.is_connected():
            self._trouble = ""
            return True
        await self._calls.wait(session.settled, min(self._runtime.now() + CONNECT_PATIENCE, until))
        if session.is_over():
            if session.failure is not None:
                raise self.translated(session.failure)
            return False
        if not session.is_connected():
            self._trouble = session.trouble or self._trouble
            why = f" ({self._trouble})" if self._trouble else ""
            raise BackendUnavailable(f"no server of {self.label} could be reached{why}", backend=self.label)
        return True

    async def finished(self, session: Session, reply: Reply, until: float) -> Reply:
        """Wait until it is answered, whatever the answer is."""
        if not reply.done:
            signal = reply.signal
            assert signal is not None  # noqa: S101 - for the type checker
            await self._calls.wait(signal, self.deadline(session, until))
            if not reply.done:
                raise OutcomeUnknown(f"no answer from {self.label}", backend=self.label)
        return reply

    async def answer(self, session: Session, reply: Reply, until: float) -> Any:
        """The answer, or the error in our words."""
        if not reply.done:
            await self.finished(session, reply, until)
        if reply.error is not None:
            raise self.translated(reply.error)
        return reply.value

    def translated(self, error: Exception) -> LeaseholdError:
        """What it means for a lock."""
        if isinstance(error, LeaseholdError):
            return error
        if isinstance(error, SessionExpiredError):  # whatever was made in it is gone with it
            return BackendUnavailable(f"{self.label} ended the session; ask again", backend=self.label)
        if isinstance(error, (ConnectionLoss, SessionMovedError)):
            return OutcomeUnknown(f"the connection to {self.label} was lost before the answer came", backend=self.label)
        for kind, sentence in _REJECTIONS.items():
            if isinstance(error, kind):
                return BackendRejected(f"{self.label}: {sentence}", backend=self.label)
        if isinstance(error, KazooException):
            return BackendRejected(f"{self.label} answered with {type(error).__name__}", backend=self.label)
        return OutcomeUnknown(f"{self.label}: {type(error).__name__}: {error}", backend=self.label)

    async def raised(self, session: Session, signal: Signal, until: float) -> None:
        """Wait for something that the connection's thread or the steward announces."""
        await self._calls.wait(signal, self.deadline(session, until))

    def deadline(self, session: Session, until: float) -> float:
        """How long an answer is waited for, beginning now."""
        patience = min(max(session.belief.timeout / 3, SHORTEST_CALL), LONGEST_CALL)
        return min(self._runtime.now() + patience, until)
