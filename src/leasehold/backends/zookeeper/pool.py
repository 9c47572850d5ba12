"""The sessions of one client: one for each distinct ttl, rounded up, and at most eight."""

from __future__ import annotations

import math
import threading
import weakref
from typing import TYPE_CHECKING

from leasehold.backends.zookeeper.session import Session
from leasehold.backends.zookeeper.steward import Steward
from leasehold.errors import BackendRejected, ClientClosed

if TYPE_CHECKING:
    from leasehold.backends.zookeeper.nodes import Paths
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.backends.zookeeper.standing import Registry
    from leasehold.spi import Runtime

__all__ = ["Pool", "rounded"]

MOST_SESSIONS = 8
CLOSE_PATIENCE = 5.0
PROMISED = 5.0  # how long a session waits for whoever asked for it; longer than anybody waits for its connection


def rounded(ttl: float) -> float:
    """A ttl with two digits, rounded up: nearly equal ones share a session."""
    step = 10.0 ** (math.floor(math.log10(ttl)) - 1)
    return round(math.ceil(round(ttl / step, 6)) * step, 6)


class Pool:
    """Opens sessions, and shares them."""

    def __init__(self, settings: Settings, paths: Paths, registry: Registry, runtime: Runtime) -> None:
        self._settings = settings
        self._paths = paths
        self._registry = registry
        self._runtime = runtime
        self._sessions: dict[float, Session] = {}
        self._mutex = threading.RLock()
        self._steward = Steward(runtime.now, paths.root)
        weakref.finalize(self, self._steward.retire).atexit = False  # a client that was dropped without being closed
        self._is_closed = False

    def session_for(self, ttl: float, comer: str) -> Session:
        """A session in which a claim with this ttl can stand; it may not be connected yet.

        It is kept for whoever comes, until something of theirs stands in it.
        """
        with self._mutex:
            session = self._find_or_open(rounded(ttl))
            session.promised[comer] = self._runtime.now() + PROMISED
            return session

    def any_session(self, ttl: float) -> Session:
        """Whatever is open, for questions that make nothing; else one for this ttl."""
        for session in list(self._sessions.values()):
            if session.is_connected():
                return session
        return self.session_for(ttl, "a question")

    async def close(self) -> None:
        """Let go of all sessions. What is granted stays until its ttl is over; what waits is withdrawn."""
        with self._mutex:
            self._is_closed = True
        for session in list(self._sessions.values()):
            session.give_up_waiters()
        if self._steward.close():
            deadline = self._runtime.now() + CLOSE_PATIENCE
            while self._steward.is_busy and self._runtime.now() < deadline:
                await self._runtime.sleep(0.001)

    def wake(self) -> None:
        """Call the steward."""
        self._steward.wake()

    # --- under the mutex

    def _find_or_open(self, wanted: float) -> Session:
        if self._is_closed:
            raise ClientClosed(backend=self._settings.label)
        session = self._sessions.get(wanted)
        if session is not None and not session.is_over():
            return session
        if len(self._sessions) >= MOST_SESSIONS and wanted not in self._sessions:
            session = self._make_room(wanted)
            if session is not None:
                return session
        session = Session(
            wanted,
            self._steward.wake,
            settings=self._settings,
            paths=self._paths,
            registry=self._registry,
            runtime=self._runtime,
        )
        self._steward.look_after(session)
        self._sessions[wanted] = session
        return session

    def _make_room(self, wanted: float) -> Session | None:
        """One with a longer ttl does too; else an idle one has to go."""
        longer = [ttl for ttl, session in self._sessions.items() if ttl >= wanted and not session.is_over()]
        if longer:
            return self._sessions[min(longer)]
        for ttl, session in list(self._sessions.items()):
            if session.is_over() or session.is_idle:
                session.is_retired = True
                del self._sessions[ttl]
                self._steward.wake()
                return None
        raise BackendRejected(
            f"this client uses {MOST_SESSIONS} different ttls at the same time, and each needs a session of its own; "
            "use fewer different ttls, or another client for some of them",
            backend=self._settings.label,
        )
