"""A ZooKeeper ensemble as its clients see it: a leader, members that apply what it has done, sessions in ticks.

Changes are made by the leader, one after the other, and every member applies them in that order, a little later: what
it is asked to read may be old. A member answers the requests of one connection in their order, and tells a watch
before it answers what came after the change. Of sessions the leader alone decides. It hears of them from the members
every half tick, and ends one in the first tick in which its timeout is over; a new leader gives all of them their whole
time again.

A leader that is cut off goes on answering reads, pings and `sync` until it knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import SessionExpiredError, SessionMovedError, ZookeeperError
from kazoo.protocol.serialization import Close, Sync

from verification.simulation.zookeeper.member import Member
from verification.simulation.zookeeper.tree import Transaction, Tree, change, closing, removal

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.world import World

__all__ = ["EPOCH_MS", "MEMBERS", "SimEnsemble"]

EPOCH_MS = 1_600_000_000_000
MEMBERS = 3
LONGEST_IDLE = 20.0  # seconds after which a container without children is removed at the latest
LONGEST_SESSION = 36_000.0


@dataclass(slots=True)
class LeaderSession:
    """A session, as the leader counts it."""

    timeout: float
    owner: int  # the member through which it may change something
    expires: float = 0.0  # on the leader's clock
    looked_at: float = math.inf  # when that is compared with the clock next


class SimEnsemble:
    """The members. Times are those of the world, but for the leader's clock, which has a rate of its own."""

    def __init__(self, world: World, *, tick: float = 0.1, members: int = MEMBERS) -> None:
        self.world = world
        self.tick = tick
        self.epoch = 1
        self.counter = 0
        self.tree = Tree()  # with everything that was done
        self.log: list[Transaction] = []
        self.sessions: dict[int, LeaderSession] = {}
        self.leader = 0
        self.rate = 1.0  # of the leader's clock
        self.is_electing = False
        self.on_change: Callable[[str], None] | None = None
        self.members = [Member(self, number) for number in range(members)]
        self._numbers = 0

    @property
    def zxid(self) -> int:
        """Of the last transaction."""
        return self.epoch << 32 | self.counter

    # --- faults

    def elect(self, leader: int, seconds: float) -> None:
        """Another leader; until it is one, no member serves but those that do not know of it."""
        self.epoch, self.counter, self.leader, self.is_electing = self.epoch + 1, 0, leader, True
        for member in self.members:
            if not member.is_stale_leader:
                member.drop_clients()
        self.world.after(seconds, partial(self._elected, self.epoch))

    def _elected(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self.is_electing = False
        self.rate = 1.0 + 0.001 * (2 * self.world.random.random() - 1)
        for number, session in list(self.sessions.items()):
            session.looked_at = math.inf
            self.touch(number, session.timeout)
        for member in self.members:
            member.catch_up()

    # --- at the leader

    def bounded(self, timeout: float) -> float:
        """The session timeout that is granted."""
        return min(max(timeout, 2 * self.tick), LONGEST_SESSION)

    def open_session(self, timeout: float, owner: int) -> int:
        """The number of a new session."""
        self._numbers += 1
        number = self._numbers
        self.sessions[number] = LeaderSession(timeout, owner)
        self.touch(number, timeout)
        self.commit(Transaction(self._next()))
        return number

    def move_session(self, number: int, timeout: float, owner: int) -> bool:
        """Through another connection from now on; False if it has ended."""
        session = self.sessions.get(number)
        if session is None:
            return False
        session.owner, session.timeout = owner, timeout
        self.touch(number, timeout)
        return True

    def touch(self, number: int, timeout: float) -> None:
        """It was seen."""
        session = self.sessions.get(number)
        if session is not None:
            clock = self.world.now * self.rate
            session.expires = (math.floor((clock + timeout) / self.tick) + 1) * self.tick
            self._look_again(number, session)

    def _look_again(self, number: int, session: LeaderSession) -> None:
        moment = max(session.expires / self.rate, self.world.now + 1e-6)
        if moment < session.looked_at:
            session.looked_at = moment
            self.world.at(moment, partial(self._look, number, moment))

    def _look(self, number: int, moment: float) -> None:
        session = self.sessions.get(number)
        if session is None or session.looked_at != moment:
            return
        session.looked_at = math.inf
        if self.is_electing:  # there is no leader to do so; the next one begins anew
            return
        if self.world.now * self.rate >= session.expires - 1e-9:
            self.world.note("ensemble", "session", number, "expired")
            self.end_session(number)
        else:
            self._look_again(number, session)

    def end_session(self, number: int) -> None:
        """With all its nodes."""
        del self.sessions[number]
        self.commit(closing(self.tree, number, self._next()))

    def perform(self, number: int, member: int, request: Any) -> Any:
        """Do what passes the leader: changes, and `sync`. An error is returned."""
        if isinstance(request, Sync) and member != self.leader:  # of another member's clients it knows nothing then
            return request.path
        session = self.sessions.get(number)
        if session is None:
            return SessionExpiredError()
        if session.owner != member:
            return SessionMovedError()
        if isinstance(request, Sync):
            return request.path
        if isinstance(request, Close):
            self.end_session(number)
            return None
        zxid = self._next()
        try:
            done, answer = change(self.tree, request, zxid, number, EPOCH_MS + int(1000 * self.world.now))
        except ZookeeperError as error:
            done, answer = Transaction(zxid), error  # a refusal has a number, too
        self.commit(done)
        return answer

    def _next(self) -> int:
        self.counter += 1
        return self.zxid

    def commit(self, done: Transaction) -> None:
        """From now on it cannot be undone; members apply it when they hear of it."""
        self.tree.apply(done)
        self.log.append(done)
        for member in self.members:
            member.down.send(partial(member.apply, len(self.log)))
        for path, node in done.nodes:
            if node is not None and node.is_idle_container:
                self.world.after(LONGEST_IDLE * self.world.random.random() ** 4, partial(self._remove, path))
            if self.on_change is not None:
                self.on_change(path)

    def _remove(self, path: str) -> None:
        """A container, if it has no children still."""
        node = self.tree.nodes.get(path)
        if node is None or not node.is_idle_container:
            return
        if self.is_electing:
            self.world.after(1.0, partial(self._remove, path))
        else:
            self.commit(removal(self.tree, [path], self._next()))

    def resume(self) -> None:
        """Someone is there again: what was held up goes on."""
        for member in self.members:
            member.down.resume()
            member.up.resume()
