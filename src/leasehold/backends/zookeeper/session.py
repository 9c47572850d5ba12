"""One session of the ensemble: connected, in doubt or over; what stands in it, and how long it is believed.

The session timeout belongs to a ttl, so all claims with the same ttl share one. SUSPENDED is doubt: the connection is
lost, the session may live. LOST is loss: the ensemble has ended it, and with it every node.
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

from leasehold.backends.zookeeper.belief import Belief, session_timeout
from leasehold.backends.zookeeper.standing import News
from leasehold.backends.zookeeper.wire import Reply, Wire
from leasehold.errors import BackendUnavailable
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.backends.zookeeper.nodes import Paths
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.backends.zookeeper.standing import Registry, Standing
    from leasehold.spi import Runtime, Signal

__all__ = ["UNCONFIRMED", "Link", "Session"]

SHORTEST_SILENCE = 0.4  # a server may be slow for so long before another one is tried
UNCONFIRMED = Loss(LossReason.UNCONFIRMED, "its session was not confirmed in time")
_ENDED = Loss(LossReason.SESSION_ENDED, "the ensemble ended the session")


class Link(Enum):
    """The state of the connection."""

    OPENING = "opening"
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the connection is lost, the session may live
    OVER = "over"  # the session is over


class Session:
    """One session. `wake` calls the steward."""

    def __init__(
        self,
        ttl: float,
        wake: Callable[[], None],
        *,
        settings: Settings,
        paths: Paths,
        registry: Registry,
        runtime: Runtime,
    ) -> None:
        self.ttl = ttl
        self.wake = wake
        self.link = Link.OPENING
        self.settled: Signal = runtime.signal()  # up while connected, and when it is over
        self.belief = Belief(session_timeout(ttl), runtime.now())
        self.floor: int | None = None  # what fences are counted from; known while it is watched
        self.standings: dict[str, Standing] = {}
        self.promised: dict[str, float] = {}  # who was given this session and is on the way to it, and until when
        self.unwanted: dict[Standing, float] = {}  # to be deleted, and since when
        self.keepsakes: dict[str, float] = {}  # nodes that tell why a claim was broken, and until when
        self.quiet_until = math.inf  # nothing expires before
        self.is_retired = False  # to be closed when nothing stands in it
        self.probed = -math.inf
        self.failure: Exception | None = None  # why there will be no session
        self.why_over: Loss | None = None  # what its grants are answered with once it is over
        self._wire: Wire | None = None
        self._settings = settings
        self._mutex = threading.RLock()
        self._now = runtime.now
        self._paths = paths
        self._registry = registry
        self._watchers: dict[str, dict[Standing, None]] = {}
        self._unanswered: deque[float] = deque()
        self._suspended_at = self._opened = self.belief.touched

    def is_connected(self) -> bool:
        """Whether something can be sent."""
        return self.link is Link.CONNECTED

    def is_over(self) -> bool:
        """Whether the session has ended, and everything in it."""
        return self.link is Link.OVER

    # --- the connection; what may take a moment is done by the steward

    def start(self) -> None:
        """Begin to connect, if that was not done yet."""
        if self._wire is None:
            self._wire = Wire(self._settings, self.belief.timeout, self._on_ready, self._on_state)
            self._wire.start()

    def cut(self) -> None:
        """Drop the connection, so that another server is tried."""
        if self._wire is not None:
            self._wire.cut()

    def is_lost(self, now: float) -> bool:
        """Whether no grant in it is believed any more, and no server answers.

        A process that was paused gets the time of one answer to find out whether the session has lived on.
        """
        if now < max(self.belief.until, self._opened + self.belief.ttl):
            return False
        if self.link is Link.SUSPENDED:
            return now - self._suspended_at > self.patience
        return self.is_stalled(now)

    def relinquish(self) -> None:
        """Let the ensemble end it: each ping and each new connection would keep its nodes in the way for longer.

        The ensemble may still receive what we send, although its answers do not arrive; so it is asked to close it.
        """
        self.why_over = UNCONFIRMED
        self.abandon()
        if self._wire is not None:
            self._wire.cut()
            threading.Thread(target=self._wire.close_elsewhere, name="leasehold zookeeper end", daemon=True).start()

    def close(self) -> None:
        """End it. With a connection there is a goodbye, and the ensemble removes its nodes at once."""
        goodbye = self.is_connected()
        self.abandon()
        if self._wire is not None:
            self._wire.close(goodbye=goodbye)

    @property
    def id(self) -> int | None:
        """The ensemble's number for this session."""
        return None if self._wire is None else self._wire.session_id

    @property
    def last_zxid(self) -> int:
        """The highest transaction number seen in this session."""
        return 0 if self._wire is None else self._wire.last_zxid

    @property
    def trouble(self) -> str:
        """Why no server could be reached, in the words of the operating system."""
        return "" if self._wire is None else self._wire.trouble

    # --- asking

    def send(
        self,
        request: Any,
        *,
        proves: bool = False,
        signal: Signal | None = None,
        then: Callable[[Reply], None] | None = None,
    ) -> Reply:
        """Send it. `proves`: an answer shows that the leader knows this session."""
        wire = self._wire
        if wire is None or self.link is not Link.CONNECTED:
            raise BackendUnavailable("there is no connection to the ZooKeeper ensemble")
        now = self._now()
        reply = Reply(now, signal, then, self._on_proof if proves else self._on_answer)
        self._unanswered.append(now)
        wire.send(request, reply)
        return reply

    def watch(self, path: str, standing: Standing) -> Callable[[Reply], None]:
        """What to do with the answer to a request that watches a path."""
        return partial(self._on_watched, path, standing)

    def is_stalled(self, now: float) -> bool:
        """Whether the server has been silent for so long that another one should be tried."""
        if self.link is not Link.CONNECTED or not self._unanswered:
            return False
        return now - self._unanswered[0] > self.patience

    @property
    def patience(self) -> float:
        """How long an answer may take."""
        return max(SHORTEST_SILENCE, self.belief.timeout / 6)

    # --- standings

    def admit(self, standing: Standing) -> None:
        """Know this claim from now on."""
        self.standings[standing.claim.owner] = standing
        self._registry.standings[standing.claim.owner] = standing
        self.expires_at(standing.expires)

    def expires_at(self, instant: float) -> None:
        """Something may expire then. Not needed for what only lasts longer than before."""
        if instant < self.quiet_until:
            self.quiet_until = instant
            self.wake()

    def extend(self, standing: Standing, until: float) -> bool:
        """Let a claim stand longer; False if it was given up before."""
        with self._mutex:
            if not standing.wanted:
                return False
            standing.expires = max(standing.expires, until)
            return True

    def expire(self, standing: Standing, now: float) -> bool:
        """Give a claim up if its time is over; True if it is given up now or was before."""
        with self._mutex:
            if standing.wanted and standing.expires <= now:
                self.give_up(standing)
            return not standing.wanted

    def give_up(self, standing: Standing) -> None:
        """This claim is not wanted any more; the steward deletes its node unless somebody else does."""
        standing.wanted = False
        self.unwanted.setdefault(standing, self._now())

    def give_up_waiters(self) -> None:
        """The client is closed: no claim of it is granted any more."""
        for standing in list(self.standings.values()):
            if standing.fence is None:
                self.give_up(standing)
                standing.signal.set()

    def forget(self, standing: Standing) -> None:
        """There is nothing left of this claim."""
        owner = standing.claim.owner
        self.unwanted.pop(standing, None)
        if self.standings.get(owner) is standing:
            self.standings.pop(owner, None)
        if self._registry.standings.get(owner) is standing:
            self._registry.standings.pop(owner, None)
        for name in (standing.name, *tuple(standing.line.watched)):
            self._watchers.get(f"{standing.parent}/{name}", {}).pop(standing, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of ours stands in it, or is about to."""
        if self.standings or self.unwanted or self.keepsakes:
            return False
        now = self._now()
        return all(until <= now for until in list(self.promised.values()))

    # --- on the connection's thread; nothing is sent from here

    def _on_answer(self, _: Reply) -> None:
        if self._unanswered:
            self._unanswered.popleft()

    def _on_proof(self, reply: Reply) -> None:
        self._on_answer(reply)
        if reply.error is None:
            self.belief.answered(reply.sent)

    def _on_watched(self, path: str, standing: Standing, reply: Reply) -> None:
        if reply.error is None and reply.value is not None:
            self._watchers.setdefault(path, {})[standing] = None
            if path == standing.path:
                standing.watches_itself = True

    def on_floor(self, reply: Reply) -> None:
        """What fences are counted from; an event that comes later makes it unknown again."""
        if reply.error is None:
            self.floor = int(reply.value[0])

    def on_no_floor(self, reply: Reply) -> None:
        """Nobody has ever raised the fences."""
        if reply.error is None and reply.value is None:
            self.floor = 0

    def on_event(self, event: Any) -> None:
        """A watch has fired; it does so once."""
        if event.type == EventType.NONE:
            return  # the connection is lost; every standing is told by `_suspend`
        if event.path == self._paths.fence:
            self.floor = None
            return
        news = News.GONE if event.type == EventType.DELETED else News.CHANGED
        name = event.path.rpartition("/")[2]
        for standing in self._watchers.pop(event.path, ()):
            standing.on_event(news, name)

    def _on_ready(self, timeout: float) -> None:
        """Connected, and allowed to send."""
        if self.link is Link.OPENING or timeout < self.belief.timeout:  # each server has bounds of its own
            self.belief.timeout = timeout
        if self.link is Link.OPENING:
            self._opened = self._now()
        self.belief.reconnected(self._suspended_at)
        self.link = Link.CONNECTED
        self.settled.set()
        for standing in list(self.standings.values()):
            standing.signal.set()
        self.wake()

    def _on_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._suspend()
        elif state == KazooState.LOST:
            self.abandon()

    def _suspend(self) -> None:
        self.link = Link.SUSPENDED
        self._suspended_at = self._now()
        self.floor = None
        self.settled.clear()
        self._unanswered.clear()
        self._watchers.clear()
        for standing in list(self.standings.values()):
            standing.on_suspended()
        self.wake()

    def abandon(self) -> None:
        """Nothing of this session is believed any more."""
        if self._wire is not None:
            if self._wire.is_refused:
                self.failure = AuthFailedError()
            self._wire.end()
        self.link = Link.OVER
        self.why_over = self.why_over or _ENDED
        self.keepsakes.clear()
        for standing in [*list(self.standings.values()), *list(self.unwanted)]:
            standing.vanish()
            standing.signal.set()
        self.settled.set()
        self.wake()
