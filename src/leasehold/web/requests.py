"""Reading what a request brings, within limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["BadRequest", "form_fields", "json_fields"]

LARGEST = 16 * 1024
MOST_FIELDS = 20


class BadRequest(Exception):
    """The body of a request cannot be read."""


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a form."""
    try:
        text = (await _body(request)).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError as error:
        raise BadRequest("the form cannot be read") from error


async def json_fields(request: Request) -> dict[str, Any]:
    """The fields of a JSON object."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequest("send a JSON object, with Content-Type: application/json")
    try:
        fields = json.loads(await _body(request))
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not JSON") from error
    if not isinstance(fields, dict):
        raise BadRequest("the body is not a JSON object")
    return fields


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise BadRequest(f"the body is larger than {LARGEST} bytes")
    return body
