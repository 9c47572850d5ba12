"""A dashboard that is really served, a program that speaks to it, and names that others could have chosen."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from leasehold.cli.ui import serving
from leasehold.web import Role, Viewer, dashboard

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EVIL", "Caller", "Program", "dashboard_at", "program", "within"]

EVIL = (
    '<script>window.pwned = 1</script>',
    '"><img src=x onerror="window.pwned = 2">',
    "'; window.pwned = 3; //",
    "line one\nline two\r\n\ttabbed",
    "\u202egnitirw desrever\u202c \u2066isolated",
    "../../etc/passwd?x=1#y&z=%2e%2e",
    "nul \x00 and \\u0000 and \\x00",
    "{{ 7 * 7 }} {% raw %} &amp;lt;",
    "שלום ∂ مرحبا",
    "javascript:window.pwned=4",
)  # fmt: skip


class Program(httpx.Client):
    """Speaks to the JSON interface as a program does: the cookie and the token come from `/session`."""

    def order(self, action: str, /, **fields: Any) -> httpx.Response:
        """Give an order with a token of one's own."""
        token = self.get("api/v1/session").json()["token"] or ""
        return self.post(f"api/v1/{action}", json=fields, headers={"X-Leasehold-Token": token})

    def facts(self, page: str, /, **query: str) -> Any:
        """The facts of a page."""
        return self.get(f"api/v1/{page}", params=query).json()


def program(address: str, **options: Any) -> Program:
    """A program at this address."""
    return Program(base_url=address, timeout=30, **options)


@contextmanager
def dashboard_at(client_or_url: Any, *, role: Role = Role.WRITE, **options: Any) -> Iterator[str]:
    """Serve a dashboard; everybody is ana, with this role, unless `auth` says otherwise."""
    options.setdefault("auth", lambda _: Viewer("ana", role))
    with serving(dashboard(client_or_url, **options), "127.0.0.1", 0) as address:
        yield address


class Caller:
    """Asks an application without a server between: quick, and in a loop of its own that lasts as long as this."""

    def __init__(self, app: Any) -> None:
        self._runner = asyncio.Runner()
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")

    def get(self, path: str, **options: Any) -> httpx.Response:
        """One request."""
        return self._runner.run(self._http.get(path, **options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        """One request."""
        return self._runner.run(self._http.post(path, **options))

    def order(self, action: str, /, **fields: Any) -> httpx.Response:
        """Give an order with a token of one's own."""
        token = self.get("/api/v1/session").json()["token"] or ""
        return self.post(f"/api/v1/{action}", json=fields, headers={"X-Leasehold-Token": token})

    def facts(self, page: str, /, **query: str) -> Any:
        """The facts of a page."""
        return self.get(f"/api/v1/{page}", params=query).json()

    def close(self) -> None:
        """End the loop."""
        self._runner.run(self._http.aclose())
        self._runner.close()


@contextmanager
def within(client_or_url: Any, **options: Any) -> Iterator[Caller]:
    """Ask a dashboard; everybody is ana and may write, unless `auth` says otherwise."""
    options.setdefault("auth", lambda _: Viewer("ana", Role.WRITE))
    caller = Caller(dashboard(client_or_url, **options))
    try:
        yield caller
    finally:
        caller.close()
