"""The session worker: one thread per client that keeps its sessions alive and clean. It never waits for an answer.

It starts connections, sends a probe in time, tries another server when one falls silent, ends a session that is lost,
and deletes the node of every claim that is not wanted any more: withdrawn, or not renewed within its ttl. The session
would keep such a node for ever, because kazoo's own thread keeps the session alive also while the program hangs. So
this must not depend on an event loop.

A node whose deletion is not confirmed within the session timeout, although there is a connection, ends its session: the
ensemble then removes it. The thread ends with its last session.
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

from leasehold._backends.zookeeper.claim_node import ClaimState
from leasehold.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.zookeeper.claim_node import ClaimNode
    from leasehold._backends.zookeeper.session import Session
    from leasehold._backends.zookeeper.wire import Reply

__all__ = ["SessionWorker"]

logger = logging.getLogger("leasehold.zookeeper")

LONGEST_SLEEP = 1.0  # timers stop while the host is suspended
PROBE_AGAIN = 1 / 12  # of the session timeout, while a probe is not answered


class SessionWorker:
    """Keeps the sessions of one client."""

    def __init__(self, now: Callable[[], float], root: str) -> None:
        self._now = now
        self._root = root
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._sessions: list[Session] = []
        self._mutex = threading.RLock()
        self._thread: int | None = None
        self._is_closing = False

    def wake(self) -> None:
        """Make it look at its sessions now. May be called from any thread, and from a signal handler."""
        self._wakeups.put(None)

    def add(self, session: Session) -> None:
        """Keep a new session."""
        self._sessions.append(session)
        self._start_if_needed()

    def close(self) -> bool:
        """End every session as soon as it has no grants; False if some have, so that it takes a while."""
        self._is_closing = True
        self._start_if_needed()
        return not any(_has_grants(session) for session in list(self._sessions))

    def retire(self) -> None:
        """The client was garbage-collected; this runs in its finalizer, so all work is left to the thread."""
        self._is_closing = True
        self.wake()

    @property
    def is_busy(self) -> bool:
        """Whether there are sessions left."""
        return bool(self._sessions)

    def _start_if_needed(self) -> None:
        """Two calls may start two threads; the second one finds the first and ends.

        It is started from another thread, because a signal handler that raises inside `Thread.start` breaks it.
        """
        if self._thread is None and self._sessions:
            thread = threading.Thread(target=self._work, name="leasehold zookeeper worker", daemon=True)
            start_new_thread(thread.start, ())
        self.wake()

    # --- on the worker's thread

    def visit_all(self) -> float | None:
        """Look at every session; when to do so again at the latest, or None once there are none left."""
        wake = self._visit_all(self._now())
        return None if self._ends() else wake

    def _work(self) -> None:
        with self._mutex:
            if self._thread is not None:
                return
            self._thread = threading.get_ident()
        while True:
            wake = self.visit_all()
            if wake is None:
                return
            self._sleep(wake)

    def _ends(self) -> bool:
        with self._mutex:
            if not self._sessions:
                self._thread = None
            return self._thread is None

    def _sleep(self, wake: float) -> None:
        try:
            self._wakeups.get(timeout=min(max(wake - self._now(), 0.0), LONGEST_SLEEP))
            while True:
                self._wakeups.get_nowait()
        except Empty:
            return

    def _visit_all(self, now: float) -> float:
        """When to do so again at the latest."""
        wake = math.inf
        for session in list(self._sessions):
            try:
                wake = min(wake, self._visit(session, now))
            except BackendUnavailable:  # the connection was lost just now; its thread will report that
                wake = min(wake, now + session.silence_limit)
            except Exception:
                logger.exception("the worker of a ZooKeeper session failed; it goes on in a second")
                wake = min(wake, now + LONGEST_SLEEP)
        return wake

    def _visit(self, session: Session, now: float) -> float:
        session.start()
        _expire(session, now)
        if session.is_lost(now):
            logger.info("a ZooKeeper session was not confirmed in time; its grants are lost, and it is closed")
            session.relinquish()
        if self._may_end(session):
            self._end(session)
            return math.inf
        if not session.is_connected():
            return min(session.next_expiry, now + session.silence_limit)
        if session.is_stalled(now):
            logger.info("a ZooKeeper server has been silent for too long; trying another one")
            session.cut()
            return now + session.silence_limit
        if self._clean(session, now):
            self._end(session)
            return math.inf
        return min(self._probe(session, now), session.next_expiry, now + session.silence_limit)

    def _probe(self, session: Session, now: float) -> float:
        """Send the leader a request if it is time; when to do so next."""
        validity = session.validity
        again = session.last_probe + validity.timeout * PROBE_AGAIN
        if now >= validity.next_probe() and now >= again:
            session.last_probe = now
            session.send(Sync(self._root), confirms=True)
            return now + validity.timeout * PROBE_AGAIN
        return max(validity.next_probe(), again)

    def _clean(self, session: Session, now: float) -> bool:
        """Delete nodes that are not wanted. True if one could not be deleted for so long that the session must end."""
        for path, until in list(session.break_notes.items()):
            if now >= until:
                session.break_notes.pop(path, None)
                session.send(Delete(path, -1), confirms=True)
        for node, since in list(session.unwanted.items()):
            if now - since > session.validity.timeout:
                logger.warning(
                    "a node could not be deleted, so its ZooKeeper session is closed; does the account have the right "
                    "to delete (d) below the store's root?"
                )
                return True
            self._delete(node)
        return False

    def _delete(self, node: ClaimNode) -> None:
        session = node.session
        if node.state in (ClaimState.NEW, ClaimState.GONE):
            node.mark_gone()
        elif node.deleting:
            return
        elif node.state is ClaimState.PRESENT:
            node.deleting = True
            for name in node.stale_nodes:
                session.send(Delete(f"{node.parent}/{name}", -1), confirms=True)
            session.send(Delete(node.path, -1), confirms=True, then=node.on_deleted)
        elif node.state is ClaimState.SENT:
            node.deleting = True
            session.send(Sync(node.parent), confirms=True, then=partial(_never_sent, node))
        elif node.state is ClaimState.DOUBT:
            node.deleting = True
            session.send(Sync(node.parent), confirms=True)
            session.send(GetChildren(node.parent, None), then=partial(_found_or_not, node))

    # --- the end

    def _may_end(self, session: Session) -> bool:
        if session.is_over():
            return not session.nodes
        return (self._is_closing or session.is_retired) and not _has_grants(session)

    def _end(self, session: Session) -> None:
        try:
            session.close()
        finally:
            self._sessions.remove(session)


def _has_grants(session: Session) -> bool:
    """Whether it has grants that were not released, or notes about broken ones: those are left to their ttl."""
    if session.break_notes:
        return True
    return any(node.fence is not None and node.wanted for node in list(session.nodes.values()))


def _expire(session: Session, now: float) -> None:
    """Give up every claim that was not repeated, or not renewed, in time.

    A grant that is gone is only forgotten. A claim whose creation was refused is no grant: its caller may be about to
    create the missing parent and the node after all, and has to find out then that the claim was given up.
    """
    if now < session.next_expiry:
        return
    session.next_expiry = math.inf
    for node in list(session.nodes.values()):
        if node.state is ClaimState.GONE and node.fence is not None and node.expires <= now:
            session.forget(node)
        elif not session.expire(node, now):
            session.next_expiry = min(session.next_expiry, node.expires)


def _never_sent(node: ClaimNode, reply: Reply) -> None:
    """Answers come in order: if the creation has none by now, its caller was interrupted before it was sent."""
    node.deleting = False
    if reply.error is None and node.state is ClaimState.SENT:
        node.mark_gone()
    else:
        node.session.wake()


def _found_or_not(node: ClaimNode, reply: Reply) -> None:
    """After a doubt, on the connection's thread: the node is there, or was never made and never will be.

    An older session may have left another one for the same claim. All of them are deleted, in any order.
    """
    node.deleting = False
    if reply.error is not None and not isinstance(reply.error, NoNodeError):
        return
    names = [name for name in reply.value or () if name.startswith(node.prefix)]
    if names:
        node.stale_nodes = names[1:]
        node.adopt(names[0], 0, -1)
        node.session.wake()
    else:
        node.mark_gone()
