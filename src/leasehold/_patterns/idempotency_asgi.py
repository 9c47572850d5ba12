"""Idempotency keys for HTTP: an ASGI middleware that answers a repeated request with the stored response.

    app = IdempotencyMiddleware(
        app,
        connect_async(url).idempotency("payments", keep="24h"),
        principal=lambda scope: scope["user"].id,
    )

A response is held back until it is stored, so that no caller sees an answer that a retry would contradict. One that is
larger than `max_response_size` cannot be: from there on it is passed through as it comes. At its end the key is
completed without a response, so the request is never carried out twice, but a retry gets 409 instead of a replay.

Pure ASGI; needs no framework. The application runs under the lease of the key: if that is lost, it is cancelled.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from leasehold._face.lock_spec import is_whole
from leasehold._patterns.idempotency import AsyncIdempotency
from leasehold._patterns.idempotency_events import KeyRefused, NotRecorded
from leasehold._patterns.idempotency_http import (
    HEADER,
    REPLAYED,
    Answer,
    is_kept,
    key_of_request,
    parse_key,
    problem,
    restored,
    stored,
)
from leasehold.errors import (
    AttemptExpired,
    BackendError,
    ClientClosed,
    ConfigurationError,
    InFlight,
    KeyReused,
    LeaseLost,
    ResultNotKept,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping

    from leasehold._patterns.keyed_attempt import AsyncKeyedAttempt
    from leasehold.spi import Runtime

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]
    Principal = Callable[[Scope], str | Awaitable[str | None] | None]

__all__ = ["IdempotencyMiddleware"]

METHODS = frozenset({"POST", "PATCH"})
KEPT_HEADERS = (
    "content-type", "content-encoding", "content-language", "etag", "last-modified", "link", "location", "vary",
)  # fmt: skip
MAX_REQUEST = 1024 * 1024
MAX_RESPONSE = 64 * 1024
ATTEMPT = "leasehold.attempt"
_MISSING: Any = object()


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path


def _query_and_body(scope: Scope, body: bytes) -> bytes:
    query: bytes = scope.get("query_string", b"")
    return len(query).to_bytes(8, "big") + query + body


class IdempotencyMiddleware:
    """Answers a request whose `Idempotency-Key` was seen before with the stored response.

    `principal(scope)` names the caller, and may be awaited: one caller's key never replays another's response. It must
    be given; None, on purpose, lets all callers share their keys. A caller for whom it returns None is passed on
    without protection. `route(scope)` is the path unless given. `methods`: those that are protected. `required`: a
    request without a key is answered with 400; otherwise it is passed on. `applies(scope)`: False leaves a request
    alone. `fingerprint(scope, body)`: what must be the same in every request with the key; the query and the body bytes
    unless given. `keep_status(status)`: which responses are stored; a 5xx, an exception and a refusal of the moment are
    dropped, so that a retry runs. `keep_headers`: those that are stored. `scope["leasehold.attempt"]` is the attempt,
    with its fence.

    Answers, as problem+json: 400 for a missing or invalid key, 413 for a body larger than `max_request_size`, 422 for
    another payload, 409 with Retry-After while the first request is in flight, 409 without where its outcome is unknown
    or its response was too large to keep, 503 when the store does not answer. A replay has `Idempotent-Replayed: true`.
    """

    def __init__(
        self,
        app: App,
        idempotency: AsyncIdempotency,
        *,
        principal: Principal | None = _MISSING,
        route: Callable[[Scope], str] = _path,
        methods: Collection[str] = METHODS,
        required: bool = True,
        applies: Callable[[Scope], bool] | None = None,
        fingerprint: Callable[[Scope, bytes], object] = _query_and_body,
        keep_status: Callable[[int], bool] = is_kept,
        keep_headers: Iterable[str] = KEPT_HEADERS,
        max_request_size: int = MAX_REQUEST,
        max_response_size: int = MAX_RESPONSE,
    ) -> None:
        if principal is _MISSING:
            raise ConfigurationError(
                "principal must be given: a function of the ASGI scope that names the caller, so that one caller's key "
                "never replays another's response; None lets all callers share their keys"
            )
        if not isinstance(idempotency, AsyncIdempotency):
            raise ConfigurationError(
                f"idempotency must come from connect_async(...).idempotency(...), not be {type(idempotency).__name__}"
            )
        for what, size in (("max_request_size", max_request_size), ("max_response_size", max_response_size)):
            if not is_whole(size) or size < 0:
                raise ConfigurationError(f"{what} must be a whole number of bytes, not {size!r}")
        self._app = app
        self._keys = idempotency
        self._principal: Principal | None = principal
        self._route = route
        self._methods = frozenset(methods)
        self._required = required
        self._applies = applies
        self._fingerprint = fingerprint
        self._keep_status = keep_status
        self._keep_headers = frozenset(name.lower().encode() for name in keep_headers)
        self._max_request = max_request_size
        self._max_response = max_response_size

    def _report_missing(self) -> None:
        events = self._keys._client._events
        if events.wanted(KeyRefused):
            events.emit(KeyRefused(self._keys.scope, "missing"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        principal = await self._principal_of(scope) if self._is_protected(scope) else None
        if principal is None:
            await self._app(scope, receive, send)
            return
        found = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == HEADER.lower().encode()]
        if not found and not self._required:
            await self._app(scope, receive, send)
            return
        key = parse_key(found[0]) if len(found) == 1 else None
        if key is None:
            text = f"send one {HEADER} of 1 to 255 printable ASCII characters, the same with every retry of a request"
            self._report_missing()
            await _send(send, problem(400, text))
            return
        body = await self._body(receive)
        if body is None:
            return  # the caller went away before the request was complete
        if len(body) > self._max_request:
            await _send(send, problem(413, f"a request with {HEADER} may have {self._max_request} bytes at most"))
            return
        name = key_of_request(principal, scope["method"], self._route(scope), key)
        attempt = self._keys.attempt(name, self._fingerprint(scope, body))
        await self._attempt(attempt, scope, _Body(body, receive, self._keys._client._runtime), send)

    def _is_protected(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] not in self._methods:
            return False
        return self._applies is None or self._applies(scope)

    async def _principal_of(self, scope: Scope) -> str | None:
        if self._principal is None:
            return ""
        answer = self._principal(scope)
        return await answer if inspect.isawaitable(answer) else answer

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, or so much of it that it is too large; None if the caller went away."""
        parts, size = [], 0
        while size <= self._max_request:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if not message.get("more_body", False):
                break
        return b"".join(parts)

    async def _attempt(self, attempt: AsyncKeyedAttempt, scope: Scope, body: _Body, send: Send) -> None:
        try:
            await attempt.__aenter__()
        except (InFlight, KeyReused, AttemptExpired, LeaseLost, BackendError, ClientClosed) as refusal:
            await _send(send, _refusal(refusal))
            return
        if attempt.replayed:
            await _send(send, _replay(attempt))
            return
        response = _Response(self, attempt, body, send)
        inner = {**scope, ATTEMPT: attempt, "extensions": _plain_extensions(scope)}
        try:
            try:
                await self._app(inner, body.receive, response.send)
            except GeneratorExit:
                raise
            except BaseException as error:
                await attempt.__aexit__(type(error), error, error.__traceback__)
                raise
            await response.end()
            await attempt.__aexit__(None, None, None)
        except LeaseLost as lost:
            if lost.name != attempt._name:
                raise  # of a lock of the application
            if not response.is_sent:
                await _send(send, _refusal(lost))


class _Body:
    """The body of the request, read already, for the application.

    That the caller has gone away is not passed on while the response is held back: the work goes on to its end, and its
    response is stored for the retry. It is passed on to an application whose response is passed through.
    """

    def __init__(self, body: bytes, receive: Receive, runtime: Runtime) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._runtime = runtime
        self._passed_through = runtime.signal()

    def pass_through(self) -> None:
        """From now on the application may learn that its caller has gone."""
        self._passed_through.set()

    async def receive(self) -> Message:
        """The next message."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._runtime.wait(self._passed_through, None)
        return await self._receive()


class _Response:
    """The response on its way out: held back until it is stored, or passed through once it is too large."""

    def __init__(self, middleware: IdempotencyMiddleware, attempt: AsyncKeyedAttempt, body: _Body, send: Send) -> None:
        self._middleware = middleware
        self._attempt = attempt
        self._request = body
        self._send = send
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._is_complete = False
        self.is_sent = False  # the caller has got something

    async def send(self, message: Message) -> None:
        """Take one message of the application."""
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
        elif message["type"] != "http.response.body" or self._start is None or self._is_complete:
            await self._send(message)
        else:
            await self._take(self._start, message.get("body", b""), more=message.get("more_body", False))

    async def end(self) -> None:
        """The application has returned; if its response is not complete, pass on what there is of it."""
        if self._start is not None and not self._is_complete:
            await self._pass_through(self._start, more=True)

    async def _take(self, start: Message, body: bytes, *, more: bool) -> None:
        self._parts.append(body)
        self._size += len(body)
        if more:
            if self.is_sent or self._size > self._middleware._max_response:
                await self._pass_through(start, more=True)
            return
        self._is_complete = True
        lost = await self._store(start)
        await self._attempt._settle()
        if lost is None or self.is_sent:
            await self._pass_through(start, more=False)
        else:
            self.is_sent = True
            await _send(self._send, _refusal(lost))
        self._request.pass_through()

    async def _store(self, start: Message) -> LeaseLost | None:
        """Complete the key before the caller gets the end of the response; a loss: another attempt's result counts.

        Where the store does not answer, the caller gets its response all the same: the work is done, and a caller that
        got an answer does not repeat its request.
        """
        attempt, status = self._attempt, start["status"]
        if not self._middleware._keep_status(status):
            return None
        fits = not self.is_sent and self._size <= self._middleware._max_response
        headers = tuple((bytes(name), bytes(value)) for name, value in start.get("headers", ()))
        answer = Answer(status, headers, b"".join(self._parts)) if fits else None
        result = None if answer is None else stored(answer, self._middleware._keep_headers)
        try:
            await attempt._finish(result, kept=fits)
        except LeaseLost as lost:
            return lost
        except BackendError as failure:
            attempt._emit(NotRecorded(attempt._name, str(failure)))
        return None

    async def _pass_through(self, start: Message, *, more: bool) -> None:
        if not self.is_sent:
            self.is_sent = True
            if more:
                self._request.pass_through()
            await self._send(start)
        body, self._parts = b"".join(self._parts), []
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


async def _send(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body})


def _plain_extensions(scope: Scope) -> dict[str, Any]:
    """Without ways to respond that go past this middleware, such as sending a file by its name."""
    extensions: dict[str, Any] = scope.get("extensions") or {}
    return {name: value for name, value in extensions.items() if not name.startswith("http.response.")}


def _replay(attempt: AsyncKeyedAttempt) -> Answer:
    try:
        return restored(attempt.result)
    except ResultNotKept:
        text = "this request was carried out, but its response was too large to be kept for a replay"
        return problem(409, text, title="Response not kept", headers=[REPLAYED])


def _refusal(error: Exception) -> Answer:
    """The answer to a request that is not carried out, or whose result does not count."""
    if isinstance(error, InFlight):
        return problem(409, "the first request with this key is still running", retry_after=error.retry_after)
    if isinstance(error, KeyReused):
        return problem(422, f"this {HEADER} was sent before with another request; use a new key for a new request")
    if isinstance(error, AttemptExpired):
        text = (
            "an earlier request with this key was interrupted, and may have been carried out or not; do not repeat it"
        )
        return problem(409, text, title="Outcome unknown")
    text = "whether this request was carried out before could not be found out; repeat it with the same key"
    return problem(503, text, retry_after=1.0)
