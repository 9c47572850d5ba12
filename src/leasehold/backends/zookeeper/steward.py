"""The steward: one thread per client that keeps its sessions honest. It never waits for an answer.

It starts connections, sends a probe in time, tries another server when one falls silent, gives up a session that is not
believed any more, and deletes the node of every claim that is not wanted any more: withdrawn, or not renewed within its
ttl. A session would keep such a node for ever: it is kept alive by kazoo's own thread, also while the program hangs. So
this must not depend on an event loop.

A node whose deletion is not confirmed within the session timeout, although there is a connection, ends its session:
the ensemble then removes it. The thread ends with its last session.
"""

from __future__ import annotations

import logging
import math
import threading
from _thread import start_new_thread
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, Sync

from leasehold.backends.zookeeper.nodes import node_prefix
from leasehold.backends.zookeeper.standing import Stage
from leasehold.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.standing import Standing
    from leasehold.backends.zookeeper.wire import Reply

__all__ = ["Steward"]

logger = logging.getLogger("leasehold.zookeeper")

LONGEST_SLEEP = 1.0  # timers stop while the host is suspended
PROBE_AGAIN = 1 / 12  # of the session timeout, while a probe is not answered


class Steward:
    """Looks after the sessions of one client."""

    def __init__(self, now: Callable[[], float], root: str) -> None:
        self._now = now
        self._root = root
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._sessions: list[Session] = []
        self._mutex = threading.RLock()
        self._worker: int | None = None
        self._is_closing = False

    def wake(self) -> None:
        """Something has to be done. May be called from any thread, and from a signal handler."""
        self._bell.put(None)

    def look_after(self, session: Session) -> None:
        """A new session."""
        self._sessions.append(session)
        self._start_if_needed()

    def close(self) -> bool:
        """End every session, as soon as nothing that was granted stands in it; False if that takes a while."""
        self._is_closing = True
        self._start_if_needed()
        return not any(_has_to_stay(session) for session in list(self._sessions))

    def retire(self) -> None:
        """Nobody refers to the client any more; called by a finalizer, so nothing is done here."""
        self._is_closing = True
        self.wake()

    @property
    def is_busy(self) -> bool:
        """Whether there are sessions left."""
        return bool(self._sessions)

    def _start_if_needed(self) -> None:
        """There is one thread at most: a second one finds that out by itself.

        It is started from another thread, because a signal handler that raises inside `Thread.start` breaks it.
        """
        if self._worker is None and self._sessions:
            thread = threading.Thread(target=self._work, name="leasehold steward", daemon=True)
            start_new_thread(thread.start, ())
        self.wake()

    # --- on the steward's thread

    def _work(self) -> None:
        with self._mutex:
            if self._worker is not None:
                return
            self._worker = threading.get_ident()
        while True:
            wake = self._attend(self._now())
            if self._retire():
                return
            self._wait(wake)

    def _retire(self) -> bool:
        with self._mutex:
            if not self._sessions:
                self._worker = None
            return self._worker is None

    def _wait(self, wake: float) -> None:
        try:
            self._bell.get(timeout=min(max(wake - self._now(), 0.0), LONGEST_SLEEP))
            while True:
                self._bell.get_nowait()
        except Empty:
            return

    def _attend(self, now: float) -> float:
        wake = math.inf
        for session in list(self._sessions):
            try:
                wake = min(wake, self._attend_to(session, now))
            except BackendUnavailable:  # the connection was lost just now; its thread will say so
                wake = min(wake, now + session.patience)
            except Exception:
                logger.exception("the steward of a ZooKeeper session failed and goes on")
                wake = min(wake, now + LONGEST_SLEEP)
        return wake

    def _attend_to(self, session: Session, now: float) -> float:
        session.start()
        _expire(session, now)
        if session.is_lost(now):
            logger.info("a ZooKeeper session was not confirmed for too long; it is given up")
            session.relinquish()
        if self._may_end(session):
            self._end(session)
            return math.inf
        if not session.is_connected():
            return min(session.quiet_until, now + session.patience)
        if session.is_stalled(now):
            logger.info("a ZooKeeper server has been silent for too long; trying another one")
            session.cut()
            return now + session.patience
        if self._clear_away(session, now):
            self._end(session)
            return math.inf
        return min(self._probe(session, now), session.quiet_until, now + session.patience)

    def _probe(self, session: Session, now: float) -> float:
        """Ask the leader for a sign of life if it is time; when to do so next."""
        again = session.probed + session.belief.timeout * PROBE_AGAIN
        if now >= session.belief.next_probe() and now >= again:
            session.probed = now
            session.send(Sync(self._root), proves=True)
            return now + session.belief.timeout * PROBE_AGAIN
        return max(session.belief.next_probe(), again)

    def _clear_away(self, session: Session, now: float) -> bool:
        """Delete what nobody wants. True if one could not be deleted for so long that the session has to end."""
        for path, until in list(session.keepsakes.items()):
            if now >= until:
                session.keepsakes.pop(path, None)
                session.send(Delete(path, -1), proves=True)
        for standing, since in list(session.unwanted.items()):
            if now - since > session.belief.timeout:
                logger.warning("a node could not be deleted; its ZooKeeper session is given up")
                return True
            self._delete(standing)
        return False

    def _delete(self, standing: Standing) -> None:
        session = standing.session
        if standing.stage in (Stage.NEW, Stage.GONE):
            standing.vanish()
        elif standing.deleting:
            return
        elif standing.stage is Stage.STANDING:
            standing.deleting = True
            for name in standing.ghosts:
                session.send(Delete(f"{standing.parent}/{name}", -1), proves=True)
            session.send(Delete(standing.path, -1), proves=True, then=standing.on_deleted)
        elif standing.stage is Stage.SENT:
            standing.deleting = True
            session.send(Sync(standing.parent), proves=True, then=partial(_never_sent, standing))
        elif standing.stage is Stage.DOUBT:
            standing.deleting = True
            session.send(Sync(standing.parent), proves=True)
            session.send(GetChildren(standing.parent, None), then=partial(_found_or_not, standing))

    # --- the end

    def _may_end(self, session: Session) -> bool:
        if session.is_over():
            return not session.standings
        return (self._is_closing or session.is_retired) and not _has_to_stay(session)

    def _end(self, session: Session) -> None:
        try:
            session.close()
        finally:
            self._sessions.remove(session)


def _has_to_stay(session: Session) -> bool:
    """Whether something was granted and not released: that is left to its ttl."""
    if session.keepsakes:
        return True
    return any(standing.fence is not None and standing.wanted for standing in list(session.standings.values()))


def _expire(session: Session, now: float) -> None:
    """Give up every claim that was not asked for, or not renewed, in time."""
    if now < session.quiet_until:
        return
    session.quiet_until = math.inf
    for standing in list(session.standings.values()):
        if standing.stage is Stage.GONE and standing.expires <= now:
            session.forget(standing)
        elif not session.expire(standing, now):
            session.quiet_until = min(session.quiet_until, standing.expires)


def _never_sent(standing: Standing, reply: Reply) -> None:
    """Answers come in order: if there is still none for the creation, its caller was interrupted before it was sent."""
    standing.deleting = False
    if reply.error is None and standing.stage is Stage.SENT:
        standing.vanish()
    else:
        standing.session.wake()


def _found_or_not(standing: Standing, reply: Reply) -> None:
    """After a doubt, on the connection's thread: the node is there, or was never made and never will be.

    An older session may have left another one for the same claim. Which is which does not matter: all have to go.
    """
    standing.deleting = False
    if reply.error is not None and not isinstance(reply.error, NoNodeError):
        return
    prefix = node_prefix(standing.claim)
    names = [name for name in reply.value or () if name.startswith(prefix)]
    if names:
        standing.ghosts = names[1:]
        standing.adopt(names[0], 0, -1)
        standing.session.wake()
    else:
        standing.vanish()
