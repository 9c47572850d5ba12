"""The service's side of a fence over HTTP: an ASGI middleware that refuses a late caller with 412.

    app = FenceMiddleware(
        app,
        resource=lambda scope: scope["path"],
        authenticated=lambda scope: scope.get("user") is not None,
        register=RedisRegister(redis.asyncio.Redis()),
    )

A request is looked at before it is handled. A handler that is paused *after* that can still write late: what it writes
to must check the fence itself (`guard_async(tx, fence_of(scope), resource=...)`), and the `StaleFence` which that
raises is answered with 412, too. Pure ASGI; needs no framework.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.errors import StaleFence
from leasehold.fencing.checks import note_passed
from leasehold.fencing.http import HEADER, PRECONDITION_FAILED, parse_fence
from leasehold.fencing.redis import AsyncFencedRedis
from leasehold.fencing.token import refused, token_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, MutableMapping

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["FenceMiddleware", "MemoryRegister", "RedisRegister", "Register", "fence_of"]

KEY = "leasehold.fence"
SERVER_ERROR = 500
WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_NAME = HEADER.lower().encode()
_TITLES = {
    400: "Bad fence",
    403: "Fence of an unknown caller",
    412: "Stale fence",
    428: "Fence required",
}


class Register(Protocol):
    """What remembers the highest fence of each resource, for all processes of the service."""

    async def raise_fence(self, resource: str, fence: int) -> None:
        """Let it pass and remember it, or raise `StaleFence`."""


class MemoryRegister:
    """Remembers in this process, and forgets with it: for tests, and for services of one process."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}

    async def raise_fence(self, resource: str, fence: int) -> None:
        """Let it pass and remember it, or raise `StaleFence`."""
        highest = self._highest.get(resource, 0)
        if fence < highest:
            raise refused(token_of(fence, resource), highest)
        self._highest[resource] = fence
        note_passed()


class RedisRegister:
    """Remembers in Redis; `client` is the user's own, of `redis.asyncio`."""

    def __init__(self, client: Any, *, keep_ms: int | None = None) -> None:
        self._client = client
        self._keep_ms = keep_ms

    async def raise_fence(self, resource: str, fence: int) -> None:
        """Let it pass and remember it, or raise `StaleFence`."""
        await AsyncFencedRedis(self._client, fence, resource=resource, keep_ms=self._keep_ms).raise_fence()


def fence_of(scope: Scope) -> int:
    """The fence of the request, for the guard of what the handler writes to; `request.scope` in most frameworks."""
    fence: int = scope[KEY]
    return fence


class FenceMiddleware:
    """Refuses requests whose fence is older than one that was seen before.

    `resource` names what a request writes to, or None if it needs no fence. `authenticated` decides whether the caller
    is known, and may be awaited: a fence is trusted input, because a caller that may send any number can lock out all
    others with a very high one, so the number of an unknown caller is not looked at. `register` remembers the highest
    fence; None leaves that to the guard of the handler. `methods` are the ones that write. Not `required`: requests
    without a fence are let through.

    Answers 412 with the highest fence seen, as header and in a JSON body; 428 without a fence, 400 for what is no
    fence, 403 for a fence from an unknown caller.
    """

    def __init__(
        self,
        app: App,
        *,
        resource: Callable[[Scope], str | None],
        authenticated: Callable[[Scope], bool | Awaitable[bool]],
        register: Register | None = None,
        methods: Collection[str] = WRITING,
        required: bool = True,
    ) -> None:
        self._app = app
        self._resource = resource
        self._authenticated = authenticated
        self._register = register
        self._methods = frozenset(methods)
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        resource = self._resource(scope)
        found = [value for name, value in scope["headers"] if name.lower() == _NAME]
        if resource is None or not (found or self._required):
            await self._app(scope, receive, send)
        elif not found:
            await _refuse(send, 428, f"send the fence of your lease as {HEADER}")
        elif not await self._is_known(scope):
            await _refuse(send, 403, f"{HEADER} is taken from authenticated callers only")
        else:
            fence = parse_fence(found[0].decode("latin-1")) if len(found) == 1 else None
            if fence is None:
                await _refuse(send, 400, f"{HEADER} must be one whole number from 1 to 2^53 - 1")
            else:
                await self._pass(scope, receive, send, resource=resource, fence=fence)

    async def _is_known(self, scope: Scope) -> bool:
        answer = self._authenticated(scope)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, *, resource: str, fence: int) -> None:
        answer = _Answer(send)
        try:
            if self._register is not None:
                await self._register.raise_fence(resource, fence)
            await self._app({**scope, KEY: fence}, receive, answer.take)
        except StaleFence as refusal:
            if answer.is_sent:
                raise
            await _refuse_stale(send, fence, refusal)
        except Exception:
            await answer.let_go()
            raise
        else:
            await answer.let_go()


class _Answer:
    """The answer of the application on its way out.

    One with status 500 is held back until the application is done: frameworks send it for an exception, and raise that
    afterwards; if it is a `StaleFence`, the caller gets a 412 instead.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[MutableMapping[str, Any]] = []
        self.is_sent = False

    async def take(self, message: MutableMapping[str, Any]) -> None:
        if self._held or (not self.is_sent and message.get("status") == SERVER_ERROR):
            self._held.append(message)
        else:
            self.is_sent = True
            await self._send(message)

    async def let_go(self) -> None:
        for message in self._held:
            await self._send(message)


async def _refuse_stale(send: Send, fence: int, refusal: StaleFence) -> None:
    highest = refusal.highest
    facts = {"fence": fence, "highest": highest}
    text = "another holder of the lock came later; stop, and do not repeat the request"
    headers = [] if highest is None else [(_NAME, str(highest).encode())]
    await _refuse(send, PRECONDITION_FAILED, text, facts, headers)


async def _refuse(
    send: Send,
    status: int,
    text: str,
    facts: dict[str, Any] | None = None,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    problem = {"title": _TITLES[status], "status": status, "detail": text, **(facts or {})}
    body = json.dumps(problem).encode()
    usual = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*usual, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
