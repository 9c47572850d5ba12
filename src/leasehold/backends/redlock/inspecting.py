"""Who holds a lock, put together from what each node says. A lock is shown when a majority may have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._core.quorum import majority
from leasehold.backends.redis.facts import read_holder
from leasehold.backends.redlock.calls import LOCK
from leasehold.backends.redlock.node import checked
from leasehold.errors import BackendError
from leasehold.values import Holder, Holding, LockState, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.redlock.calls import Calls
    from leasehold.backends.redlock.node import Node
    from leasehold.backends.redlock.nodes import Nodes
    from leasehold.spi import Runtime

__all__ = ["kept_by_majority", "sweep", "to_states"]

UNKNOWN = Holder("unknown", 0)
PATIENCE = 60.0


def to_states(keys: Sequence[str], answers: Sequence[Any]) -> list[LockState]:
    """The locks that are held, of those that were looked at."""
    unheard = sum(not isinstance(answer, list) for answer in answers)
    seen: dict[tuple[int, int], list[list[Any]]] = {}
    for answer in answers:
        if isinstance(answer, list):
            for start in range(0, len(answer), 6):
                part = answer[start : start + 6]
                seen.setdefault((part[0], part[1]), []).append(part)
    states = []
    for (place, fence), parts in sorted(seen.items()):
        if len(parts) + unheard >= majority(len(answers)):
            states.append(_state(keys[place], fence, parts, len(answers), unheard))
    return states


def _state(key: str, fence: int, parts: list[list[Any]], nodes: int, unheard: int) -> LockState:
    broken = next((part[4] for part in parts if part[4]), b"")
    left = kept_by_majority([part[3] / 1000 for part in parts], nodes, unheard)
    holding = Holding(
        holder=read_holder(parts[0][5]) or UNKNOWN,
        fence=fence,
        held_for=max(part[2] for part in parts) / 1e6,
        expires_in=left,
        broken=broken.decode(errors="replace") or None,
    )
    return LockState(key, Mode.EXCLUSIVE, 1, (holding,), ())


def kept_by_majority(times: Sequence[float], nodes: int, unheard: int = 0) -> float:
    """For how long a lock is kept, given the time it has left on each node that has it.

    It lasts until the majority is gone. Nodes that were not heard may have it too, for as long as the best of the rest.
    """
    needed = majority(nodes) - unheard
    if not times or len(times) < needed:
        return 0.0
    return sorted(times, reverse=True)[max(needed, 1) - 1]


class _Sweep:
    """All held locks of one node, beside others."""

    def __init__(self, node: Node, calls: Calls, prefix: str) -> None:
        self._node = node
        self._calls = calls
        self._prefix = prefix

    async def perform(self) -> dict[str, list[Any]]:
        """Key by key what `look` says."""
        if self._node.trouble is not None:
            raise self._node.trouble
        found: dict[str, list[Any]] = {}
        cursor = b"0"
        while True:
            cursor, page = await self._ask(self._calls.scan(cursor, self._prefix))
            keys = [text.decode()[len(LOCK) :] for text in page]
            if keys:
                reply = await self._ask(self._calls.look(keys).whole)
                for start in range(0, len(reply), 6):
                    found[keys[reply[start]]] = [0, *reply[start + 1 : start + 6]]
            if cursor == b"0":
                return found

    async def _ask(self, payload: bytes) -> Any:
        (reply,) = await self._node.lines.exchange(payload, 1)
        return checked(reply, str(self._node))


async def sweep(nodes: Nodes, calls: Calls, prefix: str, runtime: Runtime) -> dict[str, list[Any]]:
    """For every key that any node holds, what each node says of it; None for a node that was not heard."""
    requests = [_Sweep(node, calls, prefix) for node in nodes.all]
    answers = await runtime.scatter(requests, lambda some: None not in some, runtime.now() + PATIENCE)
    heard = [answer for answer in answers if isinstance(answer, dict)]
    if len(heard) < nodes.majority:
        trouble = next((answer for answer in answers if isinstance(answer, BackendError)), None)
        raise trouble or BackendError(f"{nodes.label}: too few nodes answered", backend=nodes.label)
    keys = {key for found in heard for key in found}
    return {key: [answer.get(key, []) if isinstance(answer, dict) else None for answer in answers] for key in keys}
