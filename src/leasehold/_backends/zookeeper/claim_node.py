"""One claim and its node: what is known about the node, and about the queue that it is in.

Three threads meet here: the caller's; the connection's, which delivers answers and notifications; and the session
worker, which deletes nodes that are not wanted any more. Each field has one writer, or is written once. What two
threads decide together (wanted or not, present or not) is written first and read afterwards by both, so that at least
one of them sees both.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kazoo.exceptions import BadVersionError, ConnectionLoss, NoNodeError

from leasehold._backends.zookeeper.keys import encode_node, node_prefix, parse_node
from leasehold._backends.zookeeper.queue import QueueView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold._backends.zookeeper.keys import Sibling
    from leasehold._backends.zookeeper.session import Session
    from leasehold._backends.zookeeper.wire import Reply
    from leasehold.spi import Signal
    from leasehold.values import Claim, Holder

__all__ = ["ClaimNode", "ClaimState", "Notification", "Registry", "registry_for"]


class ClaimState(Enum):
    """What is known about the node."""

    NEW = "new"  # nothing was sent yet
    SENT = "sent"  # the creation was sent
    DOUBT = "doubt"  # the connection was lost before the answer arrived: the node may exist
    PRESENT = "present"  # the node exists
    GONE = "gone"  # the node does not exist, and no request of ours will create it


class Notification(Enum):
    """What became of a watch."""

    GONE = "gone"
    CHANGED = "changed"
    WATCHES_LOST = "watches lost"  # the connection was lost, and every watch with it


class ClaimNode:
    """A claim in one session."""

    __slots__ = (
        "broken",
        "claim",
        "czxid",
        "deleting",
        "expires",
        "failure",
        "fence",
        "floor",
        "gone",
        "has_waited",
        "holder",
        "holder_name",
        "id",
        "is_watched",
        "name",
        "notifications",
        "parent",
        "predecessor",
        "prefix",
        "queue",
        "sequence",
        "session",
        "signal",
        "stale_nodes",
        "state",
        "version",
        "wanted",
    )

    def __init__(self, claim: Claim, session: Session, parent: str, signal: Signal, now: float) -> None:
        self.claim = claim
        self.session = session
        self.parent = parent
        self.prefix = node_prefix(claim)  # of the name; the ensemble appends the number
        self.id = self.prefix.split("-")[1]
        self.signal = signal
        self.queue = QueueView(claim.mode, claim.capacity)
        self.state = ClaimState.NEW
        self.failure: Exception | None = None  # why the node could not be created
        self.name = ""
        self.sequence = -1
        # The claim right before it, if it is one of this session, for as long as it waits.
        self.predecessor: ClaimNode | None = None
        self.czxid = 0
        self.version = 0  # of the node's data, as far as we wrote it
        self.floor = 0  # of the fence, as the node's data has it
        self.fence: int | None = None  # set once, with the grant
        self.has_waited = False
        self.broken: str | None = None  # the operator's reason
        self.wanted = True
        self.deleting = False
        self.stale_nodes: list[str] = []  # of older sessions for the same claim, to be deleted with this node
        self.gone: Signal | None = None  # set when the node is gone
        self.expires = now + claim.ttl
        self.is_watched = False
        self.notifications: deque[tuple[Notification, str]] = deque()
        self.holder: Holder | None = None  # of the node that is first in the queue
        self.holder_name: str | None = None

    def is_at(self, state: ClaimState) -> bool:
        """Whether this is known about the node now; another thread may learn more at any moment."""
        return self.state is state

    @property
    def may_exist(self) -> bool:
        """Whether the node may exist, now or later."""
        return self.state not in (ClaimState.NEW, ClaimState.GONE) and not self.session.is_over()

    @property
    def path(self) -> str:
        """The path of the node."""
        return f"{self.parent}/{self.name}"

    def data(self, floor: int, *, granted: bool = False) -> bytes:
        """What to write into the node."""
        self.floor = floor
        return encode_node(self.claim.holder, self.session.validity.timeout, floor, granted)

    # --- on the connection's thread

    def on_created(self, reply: Reply) -> None:
        """The answer to the creation."""
        if reply.error is None:
            path, stat = reply.value
            self.adopt(path.rpartition("/")[2], stat.czxid, stat.version)
            self.session.created(self)
        elif isinstance(reply.error, ConnectionLoss):
            self.failure, self.state = reply.error, ClaimState.DOUBT
        else:
            self.failure, self.state = reply.error, ClaimState.GONE
        if not self.wanted:  # it may have been given up for good before its creation was even sent
            self.session.give_up(self)
            self.session.wake()

    def adopt(self, name: str, czxid: int, version: int) -> None:
        """The node exists, and has this name."""
        self.name, self.sequence = name, parse_node(name).sequence
        self.czxid, self.version = czxid, version
        self.failure, self.state = None, ClaimState.PRESENT

    def on_deleted(self, reply: Reply) -> None:
        """The answer to the deletion; after an error it has to be sent again."""
        self.deleting = False
        if reply.error is None or isinstance(reply.error, NoNodeError):
            self.mark_gone()
        elif not isinstance(reply.error, BadVersionError):  # the caller reads the node first, and then tries again
            self.session.wake()

    def on_written(self, reply: Reply) -> None:
        """The answer to a write; if another client wrote before, the next renewal reads the node."""
        if reply.error is not None:
            self.is_watched = False

    def on_notification(self, notification: Notification, name: str) -> None:
        """A watch of this claim has fired."""
        if name == self.name:
            self.is_watched = False
            if notification is Notification.GONE:
                self.mark_gone()
        else:
            self.notifications.append((notification, name))
        self.signal.set()

    def on_suspended(self) -> None:
        """The connection is lost, and every watch with it."""
        self.is_watched = False
        self.notifications.append((Notification.WATCHES_LOST, ""))

    def mark_gone(self) -> None:
        """The node does not exist any more. A grant stays known, so that its next renewal answers the loss."""
        self.state = ClaimState.GONE
        if self.fence is None or not self.wanted:
            self.session.forget(self)
        if self.gone is not None:
            self.gone.set()

    # --- on the caller's thread

    def listed(self, siblings: Iterable[Sibling]) -> None:
        """The queue as it is now."""
        queue, session = self.queue, self.session
        queue.listed(siblings, self.sequence)
        self.predecessor = before = session.claim_at(f"{self.parent}/{queue.ahead[-1].name}") if queue.ahead else None
        if before is not None and before.sequence + 1 == self.sequence:
            session.mixed.discard(self.parent)

    def follow(self, last: ClaimNode, reply: Reply) -> bool:
        """Take the place right behind another claim of this session; False if that cannot be known without a listing.

        Numbers of one parent rise, and none is given twice while the parent exists. If the other node, looked at after
        this one was created, is the same as ever, so is the parent. With consecutive numbers, all that are before this
        claim are then the other one and those before that.
        """
        if self.sequence != last.sequence + 1:
            self.session.mixed.add(self.parent)
            return False
        if reply.error is not None or reply.value is None or reply.value.czxid != last.czxid:
            return False
        if not last.queue.is_listed:
            return False
        self.queue.follows(last.queue, parse_node(last.name))
        self.predecessor = last
        self.holder, self.holder_name = last.holder, self.queue.first  # as it saw it
        return True

    def gone_ahead(self, name: str) -> None:
        """A node ahead is gone. If it was that of a claim of this session, it is known whether that one has held."""
        predecessor = self.predecessor
        if predecessor is not None and predecessor.name == name:
            self.predecessor = None
            if predecessor.fence is not None:  # so all before it were gone
                self.queue.granted(name)
        self.queue.gone(name)

    def apply_notifications(self) -> None:
        """Bring the view of the queue up to date."""
        while self.notifications:
            notification, name = self.notifications.popleft()
            if notification is Notification.GONE:
                self.gone_ahead(name)
            elif notification is Notification.CHANGED:
                self.queue.watched.discard(name)
            else:
                self.queue.watches_lost()


@dataclass(slots=True)
class Registry:
    """The claims of this process at one ensemble, by owner: a claim may be repeated through any client."""

    nodes: dict[str, ClaimNode] = field(default_factory=dict)
    withdrawn: dict[str, float] = field(default_factory=dict)  # a late copy of the request is refused until then
    lost_until: float = 0.0  # nodes of a session that was lost may be there until then
    sweep_at: int = 256  # the number of withdrawn owners at which expired ones are removed

    def withdraw(self, owner: str, until: float, now: float) -> None:
        """Refuse this owner until then."""
        self.withdrawn[owner] = until
        if len(self.withdrawn) >= self.sweep_at:
            for known, ends in list(self.withdrawn.items()):
                if ends <= now:
                    self.withdrawn.pop(known, None)
            self.sweep_at = max(256, 2 * len(self.withdrawn))

    def is_withdrawn(self, owner: str, now: float) -> bool:
        """Whether a request of this owner comes too late."""
        return self.withdrawn.get(owner, now) > now


_REGISTRIES: dict[str, Registry] = {}
_OF_THE_PARENT: list[Registry] = []  # of the process that this one was forked from


def registry_for(identity: str) -> Registry:
    """The claims at this ensemble."""
    return _REGISTRIES.setdefault(identity, Registry())


def _start_empty() -> None:
    """In a forked child: the nodes are the parent's, and kept alive here so that none of them is finalised."""
    _OF_THE_PARENT.extend(_REGISTRIES.values())
    _REGISTRIES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_empty)
