"""The sessions of one client: one for each distinct ttl, rounded up, and at most eight."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from typing import TYPE_CHECKING

from leasehold._backends.zookeeper.session import Session
from leasehold._backends.zookeeper.session_worker import SessionWorker
from leasehold._backends.zookeeper.wire import KazooWire
from leasehold.errors import BackendRejected, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.zookeeper.claim_node import Registry
    from leasehold._backends.zookeeper.keys import Paths
    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.wire import OpenWire
    from leasehold.spi import Runtime

__all__ = ["Pool", "rounded"]

MOST_SESSIONS = 8
CLOSE_TIMEOUT = 5.0
RESERVED_FOR = 5.0  # a session is not closed as idle for so long after it was chosen; longer than any connect timeout


@functools.lru_cache(256)
def rounded(ttl: float) -> float:
    """A ttl with two digits, rounded up: nearly equal ones share a session."""
    step = 10.0 ** (math.floor(math.log10(ttl)) - 1)
    return round(math.ceil(round(ttl / step, 6)) * step, 6)


class Pool:
    """Opens sessions, and shares them. `make_worker` makes the worker that keeps them: a thread by default."""

    def __init__(
        self,
        options: Options,
        paths: Paths,
        registry: Registry,
        runtime: Runtime,
        *,
        open_wire: OpenWire = KazooWire,
        make_worker: Callable[[Callable[[], float], str], SessionWorker] = SessionWorker,
    ) -> None:
        self._options = options
        self._paths = paths
        self._registry = registry
        self._runtime = runtime
        self._sessions: dict[float, Session] = {}
        self._mutex = threading.RLock()
        self._open_wire = open_wire
        self._worker = make_worker(runtime.now, paths.root)
        weakref.finalize(self, self._worker.retire).atexit = False  # a client that was dropped without being closed
        self._is_closed = False

    def session_for(self, ttl: float, reserved_by: str) -> Session:
        """A session for a claim with this ttl; it may not be connected yet.

        It is reserved until the caller has added a node to it, or a few seconds have passed.
        """
        wanted = rounded(ttl)
        with self._mutex:
            session = self._sessions.get(wanted)
            if session is None or session.is_over() or self._is_closed:
                session = self._open(wanted)
            session.reserved[reserved_by] = self._runtime.now() + RESERVED_FOR
            return session

    def any_session(self, ttl: float) -> Session:
        """Any open session, for requests that create nothing; else one for this ttl."""
        for session in list(self._sessions.values()):
            if session.is_connected():
                return session
        return self.session_for(ttl, "a read")

    async def close(self) -> None:
        """Let go of all sessions. A grant stays until its ttl is over; a waiter is withdrawn."""
        with self._mutex:
            self._is_closed = True
        for session in list(self._sessions.values()):
            session.give_up_waiters()
        if self._worker.close():
            deadline = self._runtime.now() + CLOSE_TIMEOUT
            while self._worker.is_busy and self._runtime.now() < deadline:
                await self._runtime.sleep(0.001)

    # --- under the mutex

    def _open(self, wanted: float) -> Session:
        if self._is_closed:
            raise ClientClosed(backend=self._options.label)
        if len(self._sessions) >= MOST_SESSIONS and wanted not in self._sessions:
            longer = self._make_room(wanted)
            if longer is not None:
                return longer
        session = Session(
            wanted,
            self._worker.wake,
            options=self._options,
            paths=self._paths,
            registry=self._registry,
            runtime=self._runtime,
            open_wire=self._open_wire,
        )
        self._worker.add(session)
        self._sessions[wanted] = session
        return session

    def _make_room(self, wanted: float) -> Session | None:
        """A session with a longer ttl, which serves as well; None after an idle one was closed instead."""
        longer = [ttl for ttl, session in self._sessions.items() if ttl >= wanted and not session.is_over()]
        if longer:
            return self._sessions[min(longer)]
        for ttl, session in list(self._sessions.items()):
            if session.is_over() or session.is_idle:
                session.is_retired = True
                del self._sessions[ttl]
                self._worker.wake()
                return None
        raise BackendRejected(
            f"this client uses {MOST_SESSIONS} different ttls at the same time, and each needs a session of its own; "
            "use fewer different ttls, or another client for some of them",
            backend=self._options.label,
        )
