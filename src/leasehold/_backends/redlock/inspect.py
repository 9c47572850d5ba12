"""The state of locks, put together from the answers of all nodes. A lock is shown when a majority may have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.inspect import read_holder
from leasehold._backends.redlock.calls import LOCK
from leasehold._backends.redlock.wire import checked
from leasehold._core.quorum import majority
from leasehold.errors import BackendError, OutcomeUnknown
from leasehold.values import Holder, Holding, LockState, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.redlock.calls import Calls
    from leasehold._backends.redlock.node import Node
    from leasehold._backends.redlock.nodes import Nodes
    from leasehold.spi import Runtime

__all__ = ["kept_by_majority", "require_majority", "sweep", "to_states"]

UNKNOWN = Holder("unknown", 0)
PATIENCE = 60.0


def to_states(keys: Sequence[str], answers: Sequence[Any]) -> list[LockState]:
    """The locks that are held, of these keys."""
    missing = sum(not isinstance(answer, list) for answer in answers)
    seen: dict[tuple[int, int], list[list[Any]]] = {}
    for answer in answers:
        if isinstance(answer, list):
            for start in range(0, len(answer), 6):
                part = answer[start : start + 6]
                seen.setdefault((part[0], part[1]), []).append(part)
    states = []
    for (place, fence), parts in sorted(seen.items()):
        if len(parts) + missing >= majority(len(answers)):
            states.append(_state(keys[place], fence, parts, len(answers), missing))
    return states


def _state(key: str, fence: int, parts: list[list[Any]], nodes: int, missing: int) -> LockState:
    broken = next((part[4] for part in parts if part[4]), b"")
    left = kept_by_majority([part[3] / 1000 for part in parts], nodes, missing)
    holding = Holding(
        holder=read_holder(parts[0][5]) or UNKNOWN,
        fence=fence,
        held_for=max(part[2] for part in parts) / 1e6,
        expires_in=left,
        broken=broken.decode(errors="replace") or None,
    )
    return LockState(key, Mode.EXCLUSIVE, 1, (holding,), ())


def kept_by_majority(times: Sequence[float], nodes: int, missing: int = 0) -> float:
    """For how long a lock is kept, given the time it has left on each node that has it.

    It lasts until the majority is gone. Nodes without an answer may have it too, for as long as the best of the rest.
    """
    needed = majority(nodes) - missing
    if not times or len(times) < needed:
        return 0.0
    return sorted(times, reverse=True)[max(needed, 1) - 1]


def require_majority(answers: Sequence[Any], names: Sequence[str], label: str) -> None:
    """Raise `OutcomeUnknown` where only a minority answered."""
    needed = majority(len(answers))
    errors = [
        (str(answer) or type(answer).__name__) if answer is not None else f"{name} did not answer in time"
        for name, answer in zip(names, answers, strict=True)
        if answer is None or isinstance(answer, Exception)
    ]
    if len(answers) - len(errors) < needed:
        raise OutcomeUnknown(
            f"{label}: {len(errors)} of {len(answers)} nodes did not answer, and {needed} are needed: "
            f"{'; '.join(dict.fromkeys(errors))}",
            backend=label,
        )


class _Sweep:
    """All held locks of one node, beside others."""

    def __init__(self, node: Node, calls: Calls, prefix: str) -> None:
        self._node = node
        self._calls = calls
        self._prefix = prefix

    async def perform(self) -> dict[str, list[Any]]:
        """The reply of `look`, key by key."""
        if self._node.failure is not None:
            raise self._node.failure
        found: dict[str, list[Any]] = {}
        cursor = b"0"
        while True:
            cursor, page = await self._command(self._calls.scan(cursor, self._prefix))
            keys = [text.decode()[len(LOCK) :] for text in page]
            if keys:
                reply = await self._command(self._calls.look(keys).whole)
                for start in range(0, len(reply), 6):
                    found[keys[reply[start]]] = [0, *reply[start + 1 : start + 6]]
            if cursor == b"0":
                return found

    async def _command(self, payload: bytes) -> Any:
        (reply,) = await self._node.wire.exchange(payload, 1)
        return checked(reply, str(self._node))


async def sweep(nodes: Nodes, calls: Calls, prefix: str, runtime: Runtime) -> dict[str, list[Any]]:
    """For every key that any node holds, the answer of each node; None for a node that gave none."""
    requests = [_Sweep(node, calls, prefix) for node in nodes.all]
    answers = await runtime.scatter(requests, lambda some: None not in some, runtime.now() + PATIENCE)
    answered = [answer for answer in answers if isinstance(answer, dict)]
    if len(answered) < nodes.majority:
        error = next((answer for answer in answers if isinstance(answer, BackendError)), None)
        raise error or BackendError(
            f"{nodes.label}: {len(answered)} of {len(nodes)} nodes answered, and {nodes.majority} are needed",
            backend=nodes.label,
        )
    keys = {key for found in answered for key in found}
    return {key: [answer.get(key, []) if isinstance(answer, dict) else None for answer in answers] for key in keys}
