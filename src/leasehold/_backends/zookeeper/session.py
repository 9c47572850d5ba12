"""One session of the ensemble: its connection, the claims in it, and for how long it proves them.

The session timeout follows from a ttl, so all claims with the same ttl share one session. kazoo's SUSPENDED is doubt:
the connection is lost, the session may live. LOST is loss: the ensemble has ended it, and with it every node.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import AuthFailedError
from kazoo.protocol.states import EventType, KazooState

from leasehold._backends.zookeeper.claim_node import ClaimState, Notification
from leasehold._backends.zookeeper.validity import Validity, session_timeout
from leasehold._backends.zookeeper.wire import KazooWire, Reply
from leasehold.errors import BackendUnavailable
from leasehold.values import Loss, LossReason, Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.zookeeper.claim_node import ClaimNode, Registry
    from leasehold._backends.zookeeper.keys import Paths
    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.wire import OpenWire, Wire
    from leasehold.spi import Runtime, Signal

__all__ = ["UNCONFIRMED", "Session", "State"]

SHORTEST_SILENCE = 0.4  # a server may be slow for so long before another one is tried
UNCONFIRMED = Loss(LossReason.UNCONFIRMED, "its ZooKeeper session was not confirmed in time")
_ENDED = Loss(LossReason.SESSION_ENDED, "the ensemble ended its ZooKeeper session")


class State(Enum):
    """Of the connection, and with it of the session."""

    OPENING = "opening"
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the connection is lost, the session may live
    OVER = "over"  # the session has ended


class Session:
    """One session. `wake` wakes the session worker."""

    def __init__(
        self,
        ttl: float,
        wake: Callable[[], None],
        *,
        options: Options,
        paths: Paths,
        registry: Registry,
        runtime: Runtime,
        open_wire: OpenWire = KazooWire,
    ) -> None:
        self.wake = wake
        self.state = State.OPENING
        self.settled: Signal = runtime.signal()  # set while connected, and when it is over
        self.validity = Validity(session_timeout(ttl), runtime.now())
        self.fence_floor: int | None = None  # known while it is watched
        self.nodes: dict[str, ClaimNode] = {}
        self.reserved: dict[str, float] = {}  # by callers that are about to add a node, and until when
        self.unwanted: dict[ClaimNode, float] = {}  # to be deleted, and since when
        self.break_notes: dict[str, float] = {}  # nodes with the reason of a break, and until when they are kept
        self.next_expiry = math.inf  # no claim expires before
        self.is_retired = False  # to be closed when it has no nodes
        self.last_probe = -math.inf
        self.failure: Exception | None = None  # why the ensemble refused the session
        self.loss: Loss | None = None  # the answer to renewals of its grants once it is over
        self._wire: Wire | None = None
        self._open_wire = open_wire
        self._options = options
        self._mutex = threading.RLock()
        self._now = runtime.now
        self._paths = paths
        self._registry = registry
        self._watchers: dict[str, dict[ClaimNode, None]] = {}
        self._created: dict[str, ClaimNode] = {}  # by path
        self._newest: dict[str, ClaimNode] = {}  # by parent: the claim whose creation was sent last
        self.mixed: set[str] = set()  # parents where other sessions create claims between ours
        self._unanswered: deque[float] = deque()
        self._suspended_at = self._opened = self.validity.touched

    def is_connected(self) -> bool:
        """Whether requests can be sent."""
        return self.state is State.CONNECTED

    def is_over(self) -> bool:
        """Whether the session has ended, and every node in it is gone."""
        return self.state is State.OVER

    # --- the connection; the session worker does what may take a moment

    def start(self) -> None:
        """Begin to connect, once."""
        if self._wire is None:
            self._wire = self._open_wire(self._options, self.validity.timeout, self._on_ready, self._on_state)
            self._wire.start()

    def cut(self) -> None:
        """Drop the connection, so that another server is tried."""
        if self._wire is not None:
            self._wire.cut()

    def is_lost(self, now: float) -> bool:
        """Whether none of its grants is valid any more, and no server answers.

        A process that was paused gets the time of one answer to find out whether the session has lived on.
        """
        if now < max(self.validity.until, self._opened + self.validity.ttl):
            return False
        if self.state is State.SUSPENDED:
            return now - self._suspended_at > self.silence_limit
        return self.is_stalled(now)

    def relinquish(self) -> None:
        """End a session that is lost: each ping and each new connection would keep its nodes in the way for longer.

        The ensemble may still receive requests, although its answers do not arrive; so it gets a request to close it.
        """
        self.loss = UNCONFIRMED
        self.mark_over()
        if self._wire is not None:
            self._wire.cut()
            self._wire.close_elsewhere()

    def close(self) -> None:
        """End it. Over a connection the ensemble is notified, and removes its nodes at once."""
        notify = self.is_connected()
        self.mark_over()
        if self._wire is not None:
            self._wire.close(notify=notify)

    @property
    def id(self) -> int | None:
        """The ensemble's number for this session."""
        return None if self._wire is None else self._wire.session_id

    @property
    def last_zxid(self) -> int:
        """The highest transaction number seen in this session."""
        return 0 if self._wire is None else self._wire.last_zxid

    @property
    def connect_failure(self) -> str:
        """Why no server could be reached, as the operating system describes it."""
        return "" if self._wire is None else self._wire.connect_failure

    # --- requests

    def send(
        self,
        request: Any,
        *,
        confirms: bool = False,
        signal: Signal | None = None,
        then: Callable[[Reply], None] | None = None,
    ) -> Reply:
        """Send a request. `confirms`: it passes the leader, so that its answer confirms the session."""
        wire = self._wire
        if wire is None or self.state is not State.CONNECTED:
            raise BackendUnavailable(f"there is no connection to {self._options.label}; try again")
        now = self._now()
        reply = Reply(now, signal, then, self._on_confirmation if confirms else self._on_answer)
        self._unanswered.append(now)
        wire.send(request, reply)
        return reply

    def watcher(self, path: str, node: ClaimNode) -> Callable[[Reply], None]:
        """What to do with the answer to a request that watches a path for a claim."""
        return partial(self._on_watched, path, node)

    def is_stalled(self, now: float) -> bool:
        """Whether the server has been silent for so long that another one has to be tried."""
        if self.state is not State.CONNECTED or not self._unanswered:
            return False
        return now - self._unanswered[0] > self.silence_limit

    @property
    def silence_limit(self) -> float:
        """How long one answer may take."""
        return max(SHORTEST_SILENCE, self.validity.timeout / 6)

    # --- claims

    def admit(self, node: ClaimNode) -> None:
        """Add a claim."""
        self.nodes[node.claim.owner] = node
        self._registry.nodes[node.claim.owner] = node
        if node.expires < self.next_expiry:
            self.expires_at(node.expires)

    def expires_at(self, instant: float) -> None:
        """A claim or a break note may expire then. Not needed for one that only lasts longer than before."""
        if instant < self.next_expiry:
            self.next_expiry = instant
            self.wake()

    def extend(self, node: ClaimNode, until: float) -> bool:
        """Keep a claim for longer; False if it was given up before."""
        with self._mutex:
            if not node.wanted:
                return False
            node.expires = max(node.expires, until)
            return True

    def expire(self, node: ClaimNode, now: float) -> bool:
        """Give a claim up if its time is over; True if it is given up now or was before."""
        with self._mutex:
            if node.wanted and node.expires <= now:
                self.give_up(node)
            return not node.wanted

    def give_up(self, node: ClaimNode) -> None:
        """This claim is not wanted any more; the session worker deletes its node unless the caller does."""
        node.wanted = False
        self.unwanted.setdefault(node, self._now())

    def give_up_waiters(self) -> None:
        """The client is closed: none of its claims is granted any more."""
        for node in list(self.nodes.values()):
            if node.fence is None:
                self.give_up(node)
                node.signal.set()

    def forget(self, node: ClaimNode) -> None:
        """Remove a claim that has no node any more."""
        owner = node.claim.owner
        self.unwanted.pop(node, None)
        if self.nodes.get(owner) is node:
            self.nodes.pop(owner, None)
        if self._registry.nodes.get(owner) is node:
            self._registry.nodes.pop(owner, None)
        self._created.pop(node.path, None)
        if self._newest.get(node.parent) is node:
            self._newest.pop(node.parent, None)
            self.mixed.discard(node.parent)
        for name in (node.name, *tuple(node.queue.watched)):
            self._watchers.get(f"{node.parent}/{name}", {}).pop(node, None)

    def last_before(self, node: ClaimNode) -> ClaimNode | None:
        """The claim of this session that a new one will most likely come right behind, if there is one."""
        last, self._newest[node.parent] = self._newest.get(node.parent), node
        if last is None or last is node or node.parent in self.mixed or self._now() < self._registry.lost_until:
            return None
        are_exclusive = node.claim.mode is last.claim.mode is Mode.EXCLUSIVE
        return last if are_exclusive and last.state is ClaimState.PRESENT and last.wanted else None

    def claim_at(self, path: str) -> ClaimNode | None:
        """The claim of this session that has this node."""
        return self._created.get(path)

    @property
    def is_idle(self) -> bool:
        """Whether it has no nodes of ours, and none is about to be added."""
        if self.nodes or self.unwanted or self.break_notes:
            return False
        now = self._now()
        return all(until <= now for until in list(self.reserved.values()))

    # --- on the connection's thread; nothing is sent from here

    def _on_answer(self, _: Reply) -> None:
        if self._unanswered:
            self._unanswered.popleft()

    def _on_confirmation(self, reply: Reply) -> None:
        self._on_answer(reply)
        if reply.error is None:
            self.validity.answered(reply.sent)

    def created(self, node: ClaimNode) -> None:
        """A node of ours exists."""
        self._created[node.path] = node

    def _on_watched(self, path: str, node: ClaimNode, reply: Reply) -> None:
        if reply.error is None and reply.value is not None:
            self._watchers.setdefault(path, {})[node] = None
            if path == node.path:
                node.is_watched = True

    def on_fence_floor(self, reply: Reply) -> None:
        """The floor of all fences; an event that comes later makes it unknown again."""
        if reply.error is None:
            self.fence_floor = int(reply.value[0])

    def on_no_fence_floor(self, reply: Reply) -> None:
        """The fences of this root were never raised."""
        if reply.error is None and reply.value is None:
            self.fence_floor = 0

    def on_event(self, event: Any) -> None:
        """A watch has fired; it does so once."""
        if event.type == EventType.NONE:
            return  # the connection is lost; `_suspend` notifies every claim
        if event.path == self._paths.fence:
            self.fence_floor = None
            return
        notification = Notification.GONE if event.type == EventType.DELETED else Notification.CHANGED
        name = event.path.rpartition("/")[2]
        for node in self._watchers.pop(event.path, ()):
            node.on_notification(notification, name)

    def _on_ready(self, timeout: float) -> None:
        """Connected, and allowed to send."""
        if self.state is State.OPENING or timeout < self.validity.timeout:  # each server has bounds of its own
            self.validity.negotiated(timeout)
        if self.state is State.OPENING:
            self._opened = self._now()
        self.validity.reconnected(self._suspended_at)
        self.state = State.CONNECTED
        self.settled.set()
        for node in list(self.nodes.values()):
            node.signal.set()
        self.wake()

    def _on_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._suspend()
        elif state == KazooState.LOST:
            self.mark_over()

    def _suspend(self) -> None:
        self.state = State.SUSPENDED
        self._suspended_at = self._now()
        self.fence_floor = None
        self.settled.clear()
        self._unanswered.clear()
        self._watchers.clear()
        for node in list(self.nodes.values()):
            node.on_suspended()
        self.wake()

    def mark_over(self) -> None:
        """The session has ended: none of its grants is valid any more."""
        if self._wire is not None:
            if self._wire.is_refused:
                self.failure = AuthFailedError()
            self._wire.end()
        self.state = State.OVER
        self.loss = self.loss or _ENDED
        if self.nodes:  # they may stay for a while, and those claims that come back list the queue to remove them
            self._registry.lost_until = self._now() + 2 * self.validity.timeout
        self.break_notes.clear()
        for node in [*list(self.nodes.values()), *list(self.unwanted)]:
            node.mark_gone()
            node.signal.set()
        self.settled.set()
        self.wake()
