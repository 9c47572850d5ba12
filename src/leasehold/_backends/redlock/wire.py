"""What the store needs of the connections to one node, in either face.

A `NodeRequest` is one call to one node; requests to many nodes are under way at once. An answer that comes after the
decision is still read, and a call *after* an unanswered request goes out on the same connection, so that it arrives
after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backends.redis.errors import error_from_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.redlock.calls import Call
    from leasehold._backends.redlock.node import Node

__all__ = ["SILENCE_LIMIT", "NodeRequest", "NodeWire", "checked", "lacks_script", "reply_or_error"]

SILENCE_LIMIT = 2.0  # a connection that has not answered for longer is closed


class NodeRequest(Protocol):
    """One call to one node; also a request of the runtime's `scatter`."""

    node: Node

    async def perform(self) -> Any:
        """Send, and wait for the answer to the last part of the call."""

    def send_after(self, call: Call) -> None:
        """Send another call after this one on the same connection; its answer is not waited for."""

    def finish(self) -> None:
        """The answer is not waited for any more. It is still read when it comes."""

    def abort(self) -> None:
        """The caller was interrupted, perhaps in the middle of sending or reading."""


class NodeWire(Protocol):
    """The connections to one node."""

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent without connecting first."""

    @property
    def has_pending(self) -> bool:
        """Whether any answer is still to come."""

    async def open(self) -> None:
        """Connect, so that one more request can be sent."""

    def request(self, node: Node, call: Call, until: float) -> NodeRequest:
        """A request to this node; connecting for it ends by then, an instant of `time.monotonic`."""

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        """Send commands and wait for all replies, up to `SILENCE_LIMIT`; `fresh`: on a new connection."""

    def close(self) -> None:
        """Close every connection."""


def lacks_script(replies: Sequence[Any]) -> bool:
    """Whether the scripts have to be sent with their texts; one part of the call without its script is enough."""
    for reply in replies:  # noqa: SIM110 - `any` makes a generator for each answer, and nearly all have one reply
        if isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT"):
            return True
    return False


def reply_or_error(call: Call, replies: list[Any], label: str) -> Any:
    """The answer of a node to a call, or the error that it is. One part of many that failed is not the whole."""
    if call.all and not all(isinstance(reply, Exception) for reply in replies):
        return replies
    reply = replies[-1]
    return error_from_reply(str(reply), label) if isinstance(reply, Exception) else reply


def checked(reply: Any, label: str) -> Any:
    """The reply; an error reply is raised."""
    if isinstance(reply, Exception):
        raise error_from_reply(str(reply), label)
    return reply
