"""The nodes of a simulated ensemble, and what a request makes of them: plain data, without time or network.

The leader turns a request into a transaction that says what every changed node is afterwards; members only apply it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.protocol.serialization import Create2, Delete, Exists, GetChildren, GetData, SetData
from kazoo.protocol.states import EventType, ZnodeStat

from leasehold._backends.zookeeper.wire import CreateContainer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Node", "Transaction", "Tree", "change", "closing", "removal"]

EPHEMERAL, SEQUENTIAL = 1, 2  # bits of what a creation asks for
CONTAINER_OWNER = -(2**63)  # what a container has in place of a session


class Node(NamedTuple):
    """A node. `creations` counts the children it ever had; `children` those that it has."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    version: int = 0
    creations: int = 0
    children: int = 0
    owner: int = 0

    @property
    def stat(self) -> ZnodeStat:
        """As clients see it."""
        changes, owner = 2 * self.creations - self.children, max(self.owner, 0)
        return ZnodeStat(
            self.czxid, self.mzxid, self.ctime, self.mtime, self.version, changes, 0, owner,
            len(self.data), self.children, self.pzxid,
        )  # fmt: skip

    @property
    def is_idle_container(self) -> bool:
        """Whether the ensemble removes it some day."""
        return self.owner == CONTAINER_OWNER and self.creations > 0 and not self.children

    @property
    def is_unused_container(self) -> bool:
        """Whether it stays, because it never had a child."""
        return self.owner == CONTAINER_OWNER and not self.creations


class Transaction(NamedTuple):
    """What every changed node is afterwards, None if it is gone; and which session it ends."""

    zxid: int
    nodes: tuple[tuple[str, Node | None], ...] = ()
    events: tuple[tuple[str, str], ...] = ()  # paths, and what a watch of each is told
    ends: int = 0


class Tree:
    """The nodes as one member has them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, 0, 0)}
        self.names: dict[str, set[str]] = {}  # of children, by parent
        self.owned: dict[int, dict[str, None]] = {}  # ephemeral nodes, by session

    def apply(self, transaction: Transaction) -> None:
        """The next transaction."""
        for path, node in transaction.nodes:
            before = self.nodes.get(path)
            if node is None:
                assert before is not None
                del self.nodes[path]
                self.names[parent_of(path)].discard(path.rpartition("/")[2])
                self.owned.get(before.owner, {}).pop(path, None)
                continue
            self.nodes[path] = node
            if before is None:
                self.names.setdefault(parent_of(path), set()).add(path.rpartition("/")[2])
                if node.owner > 0:
                    self.owned.setdefault(node.owner, {})[path] = None
        self.owned.pop(transaction.ends, None)

    def below(self, path: str) -> list[str]:
        """The names of a node's children; a real server has them in no particular order."""
        return sorted(self.names.get(path, ()))

    def read(self, request: Any) -> Any:
        """The answer to a read."""
        node = self.nodes.get(request.path)
        if node is None:
            if isinstance(request, Exists):
                return None
            raise NoNodeError
        if isinstance(request, GetChildren):
            return self.below(request.path)
        return (node.data, node.stat) if isinstance(request, GetData) else node.stat


def parent_of(path: str) -> str:
    """The path of its parent."""
    return path.rpartition("/")[0] or "/"


def change(tree: Tree, request: Any, zxid: int, session: int, now: int) -> tuple[Transaction, Any]:
    """What a request for a change does, and its answer; raises what the server refuses it with."""
    if isinstance(request, Create2):  # and with it the creation of a container
        return _create(tree, request, zxid, session, now)
    if isinstance(request, Delete):
        return _delete(tree, request, zxid), True
    if isinstance(request, SetData):
        return _write(tree, request, zxid, now)
    raise AssertionError(f"the simulated ensemble does not know {request}")


def _create(tree: Tree, request: Any, zxid: int, session: int, now: int) -> tuple[Transaction, Any]:
    above = parent_of(request.path)
    parent = tree.nodes.get(above)
    if parent is None:
        raise NoNodeError
    path, owner = request.path, 0
    if isinstance(request, CreateContainer):
        owner = CONTAINER_OWNER
    else:
        if request.flags & SEQUENTIAL:
            path += f"{parent.creations:010d}"
        if request.flags & EPHEMERAL:
            owner = session
    if path in tree.nodes:
        raise NodeExistsError
    if parent.owner > 0:
        raise NoChildrenForEphemeralsError
    node = Node(request.data, zxid, zxid, zxid, now, now, owner=owner)
    changed = parent._replace(creations=parent.creations + 1, children=parent.children + 1, pzxid=zxid)
    events = ((path, EventType.CREATED), (above, EventType.CHILD))
    return Transaction(zxid, ((path, node), (above, changed)), events), (path, node.stat)


def _delete(tree: Tree, request: Any, zxid: int) -> Transaction:
    node = tree.nodes.get(request.path)
    if node is None:
        raise NoNodeError
    if request.version not in (-1, node.version):
        raise BadVersionError
    if node.children:
        raise NotEmptyError
    return removal(tree, [request.path], zxid)


def _write(tree: Tree, request: Any, zxid: int, now: int) -> tuple[Transaction, Any]:
    node = tree.nodes.get(request.path)
    if node is None:
        raise NoNodeError
    if request.version not in (-1, node.version):
        raise BadVersionError
    written = node._replace(data=request.data, version=node.version + 1, mzxid=zxid, mtime=now)
    done = Transaction(zxid, ((request.path, written),), ((request.path, EventType.CHANGED),))
    return done, written.stat


def removal(tree: Tree, paths: list[str], zxid: int, ends: int = 0) -> Transaction:
    """These nodes are gone."""
    return Transaction(zxid, tuple(_without(tree, paths, zxid)), tuple(_told(paths)), ends)


def closing(tree: Tree, session: int, zxid: int) -> Transaction:
    """A session is over, and with it its nodes."""
    return removal(tree, list(tree.owned.get(session, ())), zxid, session)


def _without(tree: Tree, paths: list[str], zxid: int) -> Iterator[tuple[str, Node | None]]:
    parents: dict[str, Node] = {}
    for path in paths:
        above = parent_of(path)
        parent = parents.get(above, tree.nodes[above])
        parents[above] = parent._replace(children=parent.children - 1, pzxid=zxid)
        yield path, None
    yield from parents.items()


def _told(paths: list[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        yield path, EventType.DELETED
        yield parent_of(path), EventType.CHILD
