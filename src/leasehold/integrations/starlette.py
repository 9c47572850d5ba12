"""Starlette: a client that lives as long as the application, and answers to the errors of locks.

locks = Locks("redis://localhost")
app = Starlette(routes=routes, lifespan=locks.lifespan)
locks.answer_errors(app)

async def pay(request):
    async with locks.client.lock(f"cart:{request.path_params['cart_id']}").hold():
        ...
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Unpack

from starlette.responses import Response

from leasehold import AsyncClient, connect_async
from leasehold.errors import ConfigurationError
from leasehold.integrations._options import WEB_TIMEOUT, ClientOptions
from leasehold.integrations._refusals import ANSWERED, answer_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.requests import Request

__all__ = ["Locks"]


class Locks:
    """The locks of one application: made at import, opened by its `lifespan`, and given back when it stops.

    Takes what `connect_async` takes, or a client of it. Unless `timeout` says otherwise, a request waits 5 seconds for
    a lock and is then refused.
    """

    def __init__(self, url_or_client: object = None, /, **options: Unpack[ClientOptions]) -> None:
        if isinstance(url_or_client, AsyncClient) and options:
            raise ConfigurationError("a client has its options already; give them to connect_async()")
        self._target = url_or_client
        self._options: ClientOptions = {"timeout": WEB_TIMEOUT, **options}
        self._client: AsyncClient | None = None

    @property
    def client(self) -> AsyncClient:
        """The client of the running application."""
        if self._client is None:
            raise ConfigurationError(
                "the application has not started, so its locks have no client: say lifespan=locks.lifespan when you "
                "make it, or `async with locks.lifespan(app): yield` in a lifespan of your own; a TestClient starts "
                "the application in its `with` block only"
            )
        return self._client

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Open the client for the life of the application; at its end every lease is given back."""
        if self._client is not None:
            raise ConfigurationError("these locks belong to an application that runs already; make others")
        self._check(app)
        client = self._target if isinstance(self._target, AsyncClient) else connect_async(self._target, **self._options)
        self._client = client
        try:
            yield
        finally:
            self._client = None
            await client.close(release=True)

    def answer_errors(self, app: Starlette) -> None:
        """Answer busy locks with 409, paused ones with 423, late writers with 412, and lost leases and stores with 503.

        As problem+json, with Retry-After where a repetition is of use. Errors that are mistakes of the program stay
        what they are.
        """
        for kind in ANSWERED:
            app.add_exception_handler(kind, _answer)

    def _check(self, app: Starlette) -> None:
        """Before the application starts; for frameworks that can check more."""


async def _answer(_: Request, error: Exception) -> Response:
    answer = answer_to(error)
    if answer is None:
        raise error
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
    return Response(answer.body, answer.status, headers)
