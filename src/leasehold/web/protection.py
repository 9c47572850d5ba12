"""What stands before every page: the host name, the viewer, the origin of a write, and the headers of each answer.

A browser sends credentials with every request, also from a page of a stranger. So a write is refused unless it comes
from a page of our own origin (`Sec-Fetch-Site`, `Origin`) and repeats a token that only our pages contain; the token
belongs to a cookie that is not sent along from other sites.
"""

from __future__ import annotations

import hmac
import inspect
import logging
import secrets
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse

from leasehold._shown import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from leasehold.web.auth import Auth, Viewer

__all__ = ["COOKIE", "Protection", "Tokens", "viewer_of"]

logger = logging.getLogger("leasehold.web")

COOKIE = "leasehold_session"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
STATIC = "/static/"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def viewer_of(connection: HTTPConnection) -> Viewer:
    """Who looks; there is always one behind the protection."""
    viewer: Viewer = connection.scope["leasehold.viewer"]
    return viewer


class Protection:
    """Wraps the application: refuses foreign host names, unknown viewers and writes from other sites."""

    def __init__(self, app: ASGIApp, auth: Auth, hosts: Iterable[str] | None) -> None:
        self._app = app
        self._auth = auth
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send, keep=_path(scope).startswith(STATIC))
        refusal = self._wrong_host(scope) or await self._unknown_viewer(scope) or _foreign_write(scope)
        try:
            await (refusal or self._app)(scope, receive, send)
        except Exception:  # the answer was 500; the server may be set to log nothing
            logger.exception("%s of the dashboard failed; please report it", printable(_path(scope)))

    def _wrong_host(self, scope: Scope) -> Response | None:
        """A page of another site whose name points at this address must not read from it (DNS rebinding)."""
        name = _host_name(Headers(scope=scope).get("host", ""))
        if self._hosts is None or name in self._hosts or _is_address(name):
            return None
        return PlainTextResponse(
            f"This dashboard does not answer under the name {printable(name)!r}. "
            "Use one of its own names, or start it with --allow-host.\n",
            421,
        )

    async def _unknown_viewer(self, scope: Scope) -> Response | None:
        viewer = self._auth(HTTPConnection(scope))
        if inspect.isawaitable(viewer):
            viewer = await viewer
        if viewer is not None:
            scope["leasehold.viewer"] = viewer
            return None
        challenge = getattr(self._auth, "challenge", None)
        if challenge is None:
            return PlainTextResponse("You may not see this dashboard.\n", 403)
        return PlainTextResponse("Who are you?\n", 401, {"WWW-Authenticate": challenge})


def _foreign_write(scope: Scope) -> Response | None:
    headers = Headers(scope=scope)
    if scope["method"] in SAFE:
        return None
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site in (None, "same-origin") and (origin is None or urlsplit(origin).netloc == headers.get("host")):
        return None
    return PlainTextResponse(
        "Refused: this request was not sent by a page of this dashboard. Behind a proxy, let it pass the Host header "
        "on as it is.\n",
        403,
    )


def _host_name(host: str) -> str:
    """Without the port; an IPv6 address keeps its brackets."""
    name = host.lower()
    return name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]


def _is_address(name: str) -> bool:
    """An address is nothing that a foreign name server could point here."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _with_headers(send: Send, *, keep: bool) -> Send:
    """Send with our headers; only files that are the same for all viewers may be kept by caches."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers["Cache-Control"] = "public, max-age=31536000, immutable" if keep else "no-store"
        await send(message)

    return sending


class Tokens:
    """Tokens for writes: an HMAC over the browser's cookie and the viewer's name, so that nothing has to be kept.

    Processes that serve the same dashboard need the same `secret`.
    """

    def __init__(self, secret: str | None) -> None:
        self._key = (secret or secrets.token_hex(32)).encode()

    def session(self, request: Request) -> str:
        """The value of the browser's cookie, or a new one that has to be set."""
        return request.cookies.get(COOKIE) or secrets.token_urlsafe(24)

    def token(self, session: str, viewer: Viewer) -> str:
        """What a write has to repeat."""
        return hmac.digest(self._key, f"{session}\0{viewer.name}".encode(), "sha256").hex()

    def is_right(self, request: Request, given: str) -> bool:
        """Whether the token belongs to the cookie and the viewer of this request."""
        session = request.cookies.get(COOKIE)
        if not session or not given.isascii():
            return False
        return hmac.compare_digest(self.token(session, viewer_of(request)), given)

    def remember(self, request: Request, response: Response, session: str) -> None:
        """Set the cookie, for this dashboard alone."""
        response.set_cookie(
            COOKIE,
            session,
            path=f"{request.scope.get('root_path', '')}/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
