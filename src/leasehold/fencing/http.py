"""The client's side of a fence over HTTP: the header that carries it, and what a refusal means.

Knows no HTTP library: headers are a dictionary, and a response is anything with `status_code` and `headers`, as those
of httpx and requests are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leasehold.errors import ConfigurationError
from leasehold.fencing.token import feed_back, refused, token_of
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease

__all__ = ["HEADER", "fence_headers", "fence_hooks", "fence_hooks_async", "parse_fence", "raise_if_stale"]

HEADER = "Fencing-Token"
PRECONDITION_FAILED = 412
_ANYTHING = "the resource"  # what the service calls it is the service's business


class Response(Protocol):
    """What is needed of a response."""

    @property
    def status_code(self) -> int:
        """The status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, found in whatever case."""


def fence_headers(lease: Lease | AsyncLease | int) -> dict[str, str]:
    """The header that carries the fence of this lease, for any HTTP client."""
    token = token_of(lease, _ANYTHING)
    if token.shared:
        raise ConfigurationError("this lease is shared with others; a service takes the fence of an exclusive one only")
    return {HEADER: str(token.fence)}


def raise_if_stale(response: Response, lease: Lease | AsyncLease | int) -> None:
    """Raise `StaleFence` if the service refused the fence; a 412 about something else is left alone."""
    if response.status_code != PRECONDITION_FAILED:
        return
    highest = parse_fence(response.headers.get(HEADER) or response.headers.get(HEADER.lower()) or "")
    if highest is not None:
        raise feed_back(lease, refused(token_of(lease, _ANYTHING), highest))


def fence_hooks(lease: Lease | AsyncLease | int) -> dict[str, list[Callable[..., Any]]]:
    """For `httpx.Client(event_hooks=...)`: send the fence with every request, and raise `StaleFence` for a refusal."""
    headers = fence_headers(lease)

    def send(request: Any) -> None:
        request.headers.update(headers)

    def check(response: Any) -> None:
        raise_if_stale(response, lease)

    return {"request": [send], "response": [check]}


def fence_hooks_async(lease: Lease | AsyncLease | int) -> dict[str, list[Callable[..., Awaitable[None]]]]:
    """The same for `httpx.AsyncClient(event_hooks=...)`."""
    headers = fence_headers(lease)

    async def send(request: Any) -> None:
        request.headers.update(headers)

    async def check(response: Any) -> None:
        raise_if_stale(response, lease)

    return {"request": [send], "response": [check]}


def parse_fence(text: str) -> int | None:
    """The number in a header, or None if it is no fence: digits only, no sign, no leading zero, at most 2^53 - 1."""
    if not text.isascii() or not text.isdigit() or text.startswith("0") or len(text) > len(str(MAX_FENCE)):
        return None
    number = int(text)
    return number if number <= MAX_FENCE else None
