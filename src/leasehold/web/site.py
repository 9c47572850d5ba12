"""The pages in the browser: drawn by the server, kept fresh by server-sent events, changed by forms."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import anyio
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from leasehold.errors import BackendError, LeaseholdError
from leasehold.web.actions import ACTIONS, perform
from leasehold.web.drawing import FILES, draw
from leasehold.web.pages import PAGES
from leasehold.web.protection import viewer_of
from leasehold.web.requests import BadRequest, form_fields
from leasehold.web.source import INTERVAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request

    from leasehold.web.actions import Action
    from leasehold.web.auth import Viewer
    from leasehold.web.board import Board
    from leasehold.web.pages import Page

__all__ = ["Site"]

MOST_STREAMS = 100
FIXED = ("name", "fence", "slot", "queue", "job")
FRAMES = 150  # of one stream, five minutes; the browser then opens another, and is asked again who it is


class Site:
    """Answers browsers."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._streams = 0

    def routes(self) -> list[Route]:
        """The pages, all on one level, so that their links are relative."""
        return [
            Route("/", self._page(PAGES["locks"])),
            *(Route(f"/{page.name}", self._page(page)) for page in PAGES.values()),
            *(Route(f"/{action.name}", self._form(action)) for action in ACTIONS.values()),
            *(Route(f"/{action.name}", self._order(action), methods=["POST"]) for action in ACTIONS.values()),
            Route("/stream", self._stream),
            Route("/static/{name}", _static),
        ]

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            facts, status = await self._facts(page, request.query_params)
            return self._full(request, page.name, status, page=page, facts=facts, notice=_notice(request))

        return show

    async def _facts(self, page: Page, query: Mapping[str, str]) -> tuple[dict[str, Any], int]:
        """The facts of a page, or an error in their place."""
        try:
            return await page.collect(self._board, query), 200
        except LeaseholdError as error:
            return {"failed": str(error)}, 503 if isinstance(error, BackendError) else 422

    def _full(self, request: Request, template: str, status: int = 200, **facts: Any) -> Response:
        asked = [(name, value) for name, value in request.query_params.multi_items() if name != "of"]
        live = urlencode([("of", facts["page"].name), *asked]) if "page" in facts else ""
        text = draw(
            template,
            **self._common(request.query_params, viewer_of(request)),
            **{"page": None, "notice": None, "live": live, "layout": "layout.html", **facts},
        )
        return HTMLResponse(text, status)

    def _common(self, query: Mapping[str, str], viewer: Viewer) -> dict[str, Any]:
        return {
            "title": self._board.title,
            "store": self._board.source.client.store,
            "pages": [page for page in PAGES.values() if page.in_menu],
            "viewer": viewer,
            "query": dict(query),
        }

    # --- live

    async def _stream(self, request: Request) -> Response:
        page = PAGES.get(request.query_params.get("of", ""))
        if page is None:
            return PlainTextResponse("There is no such page.\n", 404)
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Too many look at this already; reload the page to see it anew.\n", 503)
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._frames(request, page), media_type="text/event-stream", headers=headers)

    async def _frames(self, request: Request, page: Page) -> AsyncIterator[str]:
        """The page's changing part, again and again."""
        common = self._common(request.query_params, viewer_of(request))
        self._streams += 1
        try:
            for _ in range(FRAMES):
                facts, _status = await self._facts(page, request.query_params)
                text = draw(page.name, **common, page=page, facts=facts, layout="fragment.html")
                yield f"event: page\ndata: {json.dumps(text)}\n\n"
                await anyio.sleep(INTERVAL)
        finally:
            self._streams -= 1

    # --- orders

    def _form(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        """What a viewer fills in before an order: what the link does not say already."""

        async def ask(request: Request) -> Response:
            if not viewer_of(request).may_write:
                return self._refused(request, 403, "Your role is read-only: you may look, and change nothing.")
            holding = None
            if action.name == "break":
                facts, status = await self._facts(PAGES["lock"], request.query_params)
                holding = _holding(facts, request.query_params.get("fence", ""))
                if holding is None:
                    why = facts.get("failed") or "This lock is not held with this fence: there is nothing to break."
                    return self._refused(request, status if "failed" in facts else 404, why)
            tokens = self._board.tokens
            session = tokens.session(request)
            token = tokens.token(session, viewer_of(request))
            fixed = _fixed(action, request.query_params)
            response = self._full(request, "order", action=action, holding=holding, fixed=fixed, token=token)
            tokens.remember(request, response, session)
            return response

        return ask

    def _order(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def order(request: Request) -> Response:
            try:
                typed = await form_fields(request)
            except BadRequest as error:
                return self._refused(request, 400, str(error))
            fields: dict[str, str] = typed | _fixed(action, request.query_params)
            outcome = await perform(self._board, request, action, fields, typed.get("token", ""))
            if not outcome.done:
                return self._refused(request, 409 if outcome.status == 200 else outcome.status, outcome.message)
            back = {name: fields[name] for name in ("name", "queue") if name in fields}
            return RedirectResponse(f"{action.page}?{urlencode(back | {'done': action.name})}", 303)

        return order

    def _refused(self, request: Request, status: int, message: str) -> Response:
        return self._full(request, "refused", status, message=message)


def _notice(request: Request) -> str | None:
    """What has just been done, on the page that follows; a link on another site cannot claim it."""
    action = ACTIONS.get(request.query_params.get("done", ""))
    own = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    return action.done if action is not None and own else None


def _fixed(action: Action, query: Mapping[str, str]) -> dict[str, str]:
    """What the link says already. It stays in the address: a form would change the ends of lines in a name."""
    return {field: query[field] for field in action.fields if field in FIXED and query.get(field)}


def _holding(facts: dict[str, Any], fence: str) -> dict[str, Any] | None:
    """The grant with this fence, from the facts of a lock."""
    holdings: list[dict[str, Any]] = (facts.get("lock") or {}).get("holdings", [])
    return next((each for each in holdings if str(each["fence"]) == fence), None)


async def _static(request: Request) -> Response:
    found = FILES.get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("There is no such file.\n", 404)
    content, kind = found
    return Response(content, media_type=kind)
