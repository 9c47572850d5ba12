"""One claim and its node: what became of it, and what is known about the line it stands in.

Three threads meet here: whoever asks for the claim, the connection's thread, which brings answers and events, and the
steward, who takes away what nobody wants. Each field has one writer, or is written once; what two threads decide
together (wanted or not, there or not) is written first and read afterwards by both, so that one of them always sees it.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kazoo.exceptions import BadVersionError, ConnectionLoss, NoNodeError

from leasehold.backends.zookeeper.line import Line
from leasehold.backends.zookeeper.nodes import Facts, node_id, node_prefix, parse_node

if TYPE_CHECKING:
    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.wire import Reply
    from leasehold.spi import Signal
    from leasehold.values import Claim, Holder

__all__ = ["News", "Registry", "Stage", "Standing", "registry_for"]


class Stage(Enum):
    """What is known about the node."""

    NEW = "new"  # nothing was sent yet
    SENT = "sent"  # it is being made
    DOUBT = "doubt"  # the connection was lost before the answer came: it may be there
    STANDING = "standing"  # it is there
    GONE = "gone"  # it is not there, and no request of ours will make it


class News(Enum):
    """What a watch can tell."""

    GONE = "gone"
    CHANGED = "changed"
    DOUBT = "doubt"  # the connection was lost, and every watch with it


class Standing:
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
        "ghosts",
        "holder",
        "holder_name",
        "id",
        "line",
        "name",
        "news",
        "over",
        "parent",
        "sequence",
        "session",
        "signal",
        "stage",
        "version",
        "waited",
        "wanted",
        "watches_itself",
    )

    def __init__(self, claim: Claim, session: Session, parent: str, signal: Signal, now: float) -> None:
        self.claim = claim
        self.session = session
        self.parent = parent
        self.id = node_id(claim.owner)
        self.signal = signal
        self.line = Line(claim.mode, claim.capacity)
        self.stage = Stage.NEW
        self.failure: Exception | None = None  # why the node could not be made
        self.name = ""
        self.sequence = -1
        self.czxid = 0
        self.version = 0  # of the node's content, as far as we wrote it
        self.floor = 0  # what is written in the node
        self.fence: int | None = None  # set once: it is granted
        self.waited = False
        self.broken: str | None = None
        self.wanted = True
        self.deleting = False
        self.ghosts: list[str] = []  # nodes of older sessions for the same claim, to be deleted with this one
        self.over: Signal | None = None  # raised when the node is gone
        self.expires = now + claim.ttl
        self.watches_itself = False
        self.news: deque[tuple[News, str]] = deque()
        self.holder: Holder | None = None  # who is in the way
        self.holder_name: str | None = None

    def is_at(self, stage: Stage) -> bool:
        """Whether this is what is known about the node now; another thread may learn more at any moment."""
        return self.stage is stage

    @property
    def may_be_there(self) -> bool:
        """Whether there may be a node of it, now or later."""
        return self.stage not in (Stage.NEW, Stage.GONE) and not self.session.is_over()

    @property
    def path(self) -> str:
        """Where the node is."""
        return f"{self.parent}/{self.name}"

    @property
    def prefix(self) -> str:
        """Where it is to be made; the ensemble appends the number."""
        return f"{self.parent}/{node_prefix(self.claim)}"

    def facts(self, floor: int, *, granted: bool = False) -> bytes:
        """What to write in the node."""
        self.floor = floor
        return Facts(self.claim.holder, self.session.belief.timeout, floor, granted).encode()

    # --- on the connection's thread

    def on_created(self, reply: Reply) -> None:
        """The node was made, or could not be made, or nobody knows."""
        if reply.error is None:
            path, stat = reply.value
            self.adopt(path.rpartition("/")[2], stat.czxid, stat.version)
        elif isinstance(reply.error, ConnectionLoss):
            self.failure, self.stage = reply.error, Stage.DOUBT
        else:
            self.failure, self.stage = reply.error, Stage.GONE
        if not self.wanted:  # it may have been given up for good before its creation was even sent
            self.session.give_up(self)
            self.session.wake()

    def adopt(self, name: str, czxid: int, version: int) -> None:
        """This node is ours."""
        self.name, self.sequence = name, parse_node(name).sequence
        self.czxid, self.version = czxid, version
        self.failure, self.stage = None, Stage.STANDING

    def on_deleted(self, reply: Reply) -> None:
        """The node is gone, or has to be deleted again."""
        self.deleting = False
        if reply.error is None or isinstance(reply.error, NoNodeError):
            self.vanish()
        elif not isinstance(reply.error, BadVersionError):  # then whoever asked reads it first
            self.session.wake()

    def on_written(self, reply: Reply) -> None:
        """If somebody else has written too, the node is read with the next renewal."""
        if reply.error is not None:
            self.watches_itself = False

    def on_event(self, news: News, name: str) -> None:
        """Something that is watched for this claim has changed."""
        if name == self.name:
            self.watches_itself = False
            if news is News.GONE:
                self.vanish()
        else:
            self.news.append((news, name))
        self.signal.set()

    def on_suspended(self) -> None:
        """The connection is lost, and all watches."""
        self.watches_itself = False
        self.news.append((News.DOUBT, ""))

    def vanish(self) -> None:
        """The node is not there any more. Who was granted is remembered, to be told at its next renewal."""
        self.stage = Stage.GONE
        if self.fence is None or not self.wanted:
            self.session.forget(self)
        if self.over is not None:
            self.over.set()

    # --- by whoever asks

    def read_news(self) -> None:
        """Apply what watches have told to the line."""
        while self.news:
            news, name = self.news.popleft()
            if news is News.GONE:
                self.line.gone(name)
            elif news is News.CHANGED:
                self.line.watched.discard(name)
            else:
                self.line.forget_watches()


@dataclass(slots=True)
class Registry:
    """The claims of this process at one ensemble, by owner: a claim may be asked for through any client."""

    standings: dict[str, Standing] = field(default_factory=dict)
    withdrawn: dict[str, float] = field(default_factory=dict)  # a late copy of the request is refused until then
    sweep_at: int = 256  # how many withdrawn ones there have to be before the old ones are looked for

    def withdraw(self, owner: str, until: float, now: float) -> None:
        """Refuse this owner for a while."""
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
_GRAVEYARD: list[Registry] = []


def registry_for(identity: str) -> Registry:
    """The claims at this ensemble."""
    return _REGISTRIES.setdefault(identity, Registry())


def _leave_everything_to_the_parent() -> None:
    """In a forked child: the parent's nodes are not ours, and nothing of them may be finalised here."""
    _GRAVEYARD.extend(_REGISTRIES.values())
    _REGISTRIES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_everything_to_the_parent)
