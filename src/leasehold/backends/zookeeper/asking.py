"""Waiting for answers, and saying in leasehold's words what went wrong. It knows no protocol."""

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

from leasehold.errors import BackendRejected, BackendUnavailable, LeaseholdError, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime

__all__ = ["Asker"]

CONNECT_PATIENCE = 3.0
SHORTEST_CALL, LONGEST_CALL = 2.0, 5.0

_REJECTIONS = {
    NoAuthError: "this account may not do that below the store's root; give it the rights cdrw there",
    AuthFailedError: "ZooKeeper refused the credentials",
    InvalidACLError: "ZooKeeper refused the acl; acl=creator needs a user and password, or a client certificate",
    UnimplementedError: "this ZooKeeper is too old; container nodes came with version 3.5.3",
}


class Asker:
    """Waits for the answers of one client's sessions, for a bounded time."""

    def __init__(self, runtime: Runtime, label: str) -> None:
        self._runtime = runtime
        self.label = label

    async def connected(self, session: Session) -> bool:
        """Wait for the connection; False if the session is over."""
        if session.is_connected():
            return True
        await self._runtime.wait(session.settled, self._runtime.now() + CONNECT_PATIENCE)
        if session.is_over():
            if session.failure is not None:
                raise self.translated(session.failure)
            return False
        if not session.is_connected():
            why = f" ({session.trouble})" if session.trouble else ""
            raise BackendUnavailable(f"no server of {self.label} could be reached{why}", backend=self.label)
        return True

    async def finished(self, session: Session, reply: Reply) -> Reply:
        """Wait until it is answered, whatever the answer is."""
        if not reply.done:
            signal = reply.signal
            assert signal is not None  # noqa: S101 - for the type checker
            await self._runtime.wait(signal, self._deadline(session))
            if not reply.done:
                raise OutcomeUnknown(f"no answer from {self.label}", backend=self.label)
        return reply

    async def answer(self, session: Session, reply: Reply) -> Any:
        """The answer, or the error in our words."""
        if not reply.done:
            await self.finished(session, reply)
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

    def patience(self, session: Session) -> float:
        """How long a call may take."""
        return min(max(session.belief.timeout / 3, SHORTEST_CALL), LONGEST_CALL)

    def _deadline(self, session: Session) -> float:
        return self._runtime.now() + self.patience(session)
