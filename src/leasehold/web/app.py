"""`dashboard`: the ASGI application. It mounts under any path, and needs no lifespan of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from leasehold import connect
from leasehold._blocking import Client
from leasehold.errors import ConfigurationError
from leasehold.web.api import Api
from leasehold.web.audit import Audit
from leasehold.web.board import Board
from leasehold.web.protection import Protection, Tokens
from leasehold.web.site import Site
from leasehold.web.source import Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from starlette.types import ASGIApp

    from leasehold.web.auth import Auth

__all__ = ["dashboard"]


def dashboard(
    client_or_url: Client | str | None = None,
    /,
    *,
    auth: Auth,
    namespace: str | None = None,
    database: str | None = None,
    elections: Sequence[str] = ("election:*", "leader:*"),
    jobs: Sequence[str] = (),
    audit: str | Path | None = None,
    hosts: Iterable[str] | None = None,
    secret: str | None = None,
    title: str = "leasehold",
) -> ASGIApp:
    """The dashboard of one store as an ASGI application, to be mounted under any path.

    `auth` is given the connection of each request and returns a `Viewer`, or None to refuse it; only a viewer with
    `Role.WRITE` can change anything. `database` is the URL of the database with the queues of `leasehold.sql.Queue`.
    `elections` and `jobs` are names, or patterns with * for names that were seen: a store cannot tell the lock of an
    election from another one. `audit` is a file to which every order is appended. `hosts` are the names that the
    dashboard answers under (any). `secret` is needed where several processes serve the same dashboard.
    """
    if not callable(auth):
        raise ConfigurationError(
            "the dashboard needs auth=: a callable that is given the request and returns a Viewer, or None to refuse it"
        )
    own = not isinstance(client_or_url, Client)
    client = _client(client_or_url, namespace)
    board = Board(
        Source(client, database),
        Audit(None if audit is None else Path(audit)),
        Tokens(secret),
        elections=elections,
        jobs=jobs,
        title=title,
    )
    routes = [*Site(board).routes(), *Api(board).routes()]

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        yield
        if own:
            client.close()

    return Protection(Starlette(routes=routes, lifespan=lifespan), auth, hosts)


def _client(given: Any, namespace: str | None) -> Client:
    if isinstance(given, Client):
        if namespace is not None:
            raise ConfigurationError("a client has its namespace already; leave namespace= out, or give a URL")
        return given
    if given is not None and not isinstance(given, str):
        raise ConfigurationError(
            f"the dashboard takes a URL or a client of leasehold.connect(), not {type(given).__name__}; "
            "beside an async client, give it the same URL"
        )
    return connect(given, namespace=namespace, label="leasehold dashboard")
