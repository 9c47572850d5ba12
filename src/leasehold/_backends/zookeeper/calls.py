"""The open calls of one client: every wait for an answer is bounded, and ends when the client is closed.

A wait has two limits: the store's own, and `until`, after which the caller has no use for the answer. An answer that
arrives later is recorded by the connection's thread and wakes no caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.zookeeper.errors import session_ended, translated
from leasehold.errors import BackendUnavailable, ClientClosed, LeaseholdError, OutcomeUnknown

if TYPE_CHECKING:
    from types import TracebackType

    from leasehold._backends.zookeeper.session import Session
    from leasehold._backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime, Signal

__all__ = ["Calls"]

CONNECT_TIMEOUT = 3.0
SHORTEST_ANSWER_TIMEOUT, LONGEST_ANSWER_TIMEOUT = 2.0, 5.0


class Calls:
    """`with calls:` around each call: `close` ends it with `ClientClosed` wherever it waits."""

    def __init__(self, runtime: Runtime, label: str) -> None:
        self._runtime = runtime
        self._waits: dict[object, Signal] = {}
        self._last_failure = ""  # of a connection; a new session has none of its own yet when time is short
        self.label = label
        self.is_closed = False

    def close(self) -> None:
        """Refuse new calls, and end every wait."""
        self.is_closed = True
        for signal in list(self._waits.values()):
            signal.set()

    def __enter__(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self.label)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_closed and isinstance(error, (BackendUnavailable, OutcomeUnknown)):
            raise ClientClosed(backend=self.label) from None

    # --- waiting

    async def wait(self, signal: Signal, deadline: float) -> None:
        """Wait for the signal, the deadline or the end of the client."""
        wait = object()
        self._waits[wait] = signal
        try:
            if not self.is_closed:  # read after the entry is made: `close` sees the entry, or this line sees `close`
                await self._runtime.wait(signal, deadline)
        finally:
            del self._waits[wait]

    async def connected(self, session: Session, until: float) -> bool:
        """Wait for the connection; False if the session is over."""
        if session.is_connected():
            self._last_failure = ""
            return True
        await self.wait(session.settled, min(self._runtime.now() + CONNECT_TIMEOUT, until))
        if session.is_over():
            if session.failure is not None:
                raise self.translated(session.failure)
            return False
        if not session.is_connected():
            self._last_failure = session.connect_failure or self._last_failure
            why = f" ({self._last_failure})" if self._last_failure else ""
            raise BackendUnavailable(
                f"no server of {self.label} could be reached{why}; check that one runs and that the URL names it",
                backend=self.label,
            )
        return True

    async def connect(self, session: Session, until: float) -> None:
        """Wait for the connection; raises if the session is over."""
        if session.is_connected():
            self._last_failure = ""
        elif not await self.connected(session, until):
            raise session_ended(self.label)

    async def finished(self, session: Session, reply: Reply, until: float) -> Reply:
        """Wait for the answer or the error of a request."""
        if not reply.done:
            signal = reply.signal
            assert signal is not None  # noqa: S101 - for the type checker
            await self.wait(signal, self.deadline(session, until))
            if not reply.done:
                raise OutcomeUnknown(f"{self.label} did not answer in time", backend=self.label)
        return reply

    async def answer(self, session: Session, reply: Reply, until: float) -> Any:
        """The answer; an error of the server is raised as ours."""
        if not reply.done:
            await self.finished(session, reply, until)
        if reply.error is not None:
            raise self.translated(reply.error)
        return reply.value

    def deadline(self, session: Session, until: float) -> float:
        """Until when an answer that is awaited from now on may take."""
        timeout = min(max(session.validity.timeout / 3, SHORTEST_ANSWER_TIMEOUT), LONGEST_ANSWER_TIMEOUT)
        return min(self._runtime.now() + timeout, until)

    def translated(self, error: Exception) -> LeaseholdError:
        """Our error for one of kazoo's."""
        return translated(error, self.label)
