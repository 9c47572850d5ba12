"""The JSON interface at `/api/v1`: the facts of each page, the orders, and a description of both as OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse
from starlette.routing import Route

from leasehold.errors import BackendError, LeaseholdError
from leasehold.web.actions import ACTIONS, perform
from leasehold.web.openapi import document
from leasehold.web.pages import PAGES
from leasehold.web.protection import viewer_of
from leasehold.web.requests import BadRequest, json_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from leasehold.web.actions import Action
    from leasehold.web.board import Board
    from leasehold.web.pages import Page

__all__ = ["Api"]

ROOT = "/api/v1"
TOKEN_HEADER = "X-Leasehold-Token"  # noqa: S105 - its name, not a token


class Api:
    """Answers programs."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def routes(self) -> list[Route]:
        """All of them below /api/v1."""
        return [
            Route(f"{ROOT}/openapi.json", self._openapi),
            Route(f"{ROOT}/session", self._session),
            *(Route(f"{ROOT}/{page.name}", self._reader(page)) for page in PAGES.values()),
            *(Route(f"{ROOT}/{action.name}", self._writer(action), methods=["POST"]) for action in ACTIONS.values()),
        ]

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse(document())

    async def _session(self, request: Request) -> Response:
        """The viewer, and the token that a write needs in its header."""
        viewer, tokens = viewer_of(request), self._board.tokens
        session = tokens.session(request)
        token = tokens.token(session, viewer) if viewer.may_write else None
        response = JSONResponse({"viewer": viewer.name, "role": str(viewer.role), "token": token})
        tokens.remember(request, response, session)
        return response

    def _reader(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def read(request: Request) -> Response:
            try:
                facts = await page.collect(self._board, request.query_params)
            except BackendError as error:
                return JSONResponse({"error": str(error)}, 503)
            except LeaseholdError as error:
                return JSONResponse({"error": str(error)}, 422)
            return JSONResponse(facts, 503 if facts.get("error") else 200)

        return read

    def _writer(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def write(request: Request) -> Response:
            try:
                fields = await json_fields(request)
            except BadRequest as error:
                return JSONResponse({"done": False, "message": str(error)}, 400)
            token = request.headers.get(TOKEN_HEADER, "")
            outcome = await perform(self._board, request, action, fields, token)
            return JSONResponse({"done": outcome.done, "message": outcome.message}, outcome.status)

        return write
