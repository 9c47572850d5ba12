"""The OpenAPI document of `/api/v1`, made from the tables of pages and actions."""

from __future__ import annotations

from typing import Any

from leasehold import __version__
from leasehold.web.actions import ACTIONS
from leasehold.web.pages import PAGES

__all__ = ["document"]

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


READING = {"error": _or_null(TEXT), "age": NUMBER}

SCHEMAS = {
    "Holder": _object(host=TEXT, pid=WHOLE, label=_or_null(TEXT), reason=_or_null(TEXT)),
    "Pause": _object(reason=TEXT, by=TEXT, expires_in=_or_null(NUMBER), paused_for=_or_null(NUMBER)),
    "Holding": _object(
        holder=_named("Holder"), fence=WHOLE, held_for=NUMBER, expires_in=NUMBER, ttl_seen=NUMBER,
        renewed_ago=_or_null(NUMBER), broken=_or_null(TEXT), cooling=FLAG,
    ),
    "Lock": _object(
        name=TEXT, state={"enum": ["held", "free", "paused", "broken", "cooling"]}, mode=TEXT,
        capacity=_or_null(WHOLE), holdings=_list(_named("Holding")), waiters=WHOLE,
        waiting=_list(_named("Holder")), paused=_or_null(_named("Pause")),
    ),
    "Grant": _object(
        fence=WHOLE, holder=TEXT, began=NUMBER, seen=NUMBER, left=NUMBER, ttl=NUMBER, renewed=_or_null(NUMBER),
        ended=_or_null(NUMBER), end=_or_null(TEXT), broken=_or_null(TEXT),
    ),
    "Run": _object(
        slot=TEXT, outcome=TEXT, runner=_named("Holder"), finished=NUMBER, began=_or_null(NUMBER),
        fence=_or_null(WHOLE), closed=FLAG, again=_or_null(TEXT), forgotten=_or_null(TEXT),
    ),
    "Error": _object(error=_or_null(TEXT)),
    "Outcome": _object(done=FLAG, message=TEXT),
    "Session": _object(viewer=TEXT, role={"enum": ["read", "write"]}, token=_or_null(TEXT)),
    "locks": _object(
        **READING, queues=FLAG, totals=_object(names=WHOLE, held=WHOLE, waiters=WHOLE, paused=WHOLE, longest=NUMBER),
        found=WHOLE, page=WHOLE, pages=WHOLE, locks=_list(_named("Lock")),
    ),
    "lock": _object(
        error=_or_null(TEXT), name=TEXT, lock=_or_null(_named("Lock")), queues=FLAG, pausable=FLAG,
        last_run=_or_null(_named("Run")), grants=_list(_named("Grant")), seen_since=NUMBER,
    ),
    "leaders": _object(
        **READING, patterns=_list(TEXT), found=WHOLE,
        leaders=_list(_object(name=TEXT, leader=_or_null(_named("Holding")), candidates=WHOLE, terms_seen=WHOLE)),
    ),
    "jobs": _object(
        error=_or_null(TEXT), supported=FLAG, pausable=FLAG,
        jobs=_list(_object(
            name=TEXT, running=_or_null(_named("Holder")), paused=_or_null(_named("Pause")),
            last_run=_or_null(_named("Run")),
        )),
    ),
    "keys": _object(
        error=_or_null(TEXT), supported=FLAG, running=_list(_object(scope=TEXT, key=TEXT, name=TEXT, fence=WHOLE)),
        asked=_or_null(_object(scope=TEXT, key=TEXT)), answer=_or_null(_object(found=FLAG)),
    ),
    "queue": _object(
        error=_or_null(TEXT), supported=FLAG, database=_or_null(TEXT), queue=_or_null(TEXT),
        queues=_list(
            _object(queue=TEXT, ready=WHOLE, delayed=WHOLE, claimed=WHOLE, done=WHOLE, dead=WHOLE, lag=NUMBER)
        ),
        jobs=_list(_object(id=WHOLE, queue=TEXT, key=_or_null(TEXT), state=TEXT, attempts=WHOLE)),
    ),
    "partitions": _object(
        **READING, supported=FLAG,
        groups=_list(_object(
            name=TEXT, count=WHOLE, free=WHOLE,
            members=_list(_object(holder=_named("Holder"), member_for=NUMBER, fence=WHOLE, owned=WHOLE)),
            partitions=_list(_object(index=WHOLE, member=_or_null(WHOLE), fence=_or_null(WHOLE), owned=FLAG)),
        )),
    ),
    "doctor": _object(
        error=_or_null(TEXT), findings=_list(_object(check=TEXT, level=TEXT, found=TEXT, why=TEXT, advice=TEXT)),
        capabilities={"type": "object", "additionalProperties": FLAG},
    ),
    "audit": _object(
        error=_or_null(TEXT), file=_or_null(TEXT),
        entries=_list(_object(
            time=TEXT, viewer=TEXT, address=TEXT, action=TEXT, target=TEXT, outcome=TEXT, reason=TEXT,
            fence=_or_null(WHOLE), detail=TEXT,
        )),
    ),
}  # fmt: skip


def document() -> dict[str, Any]:
    """The whole document."""
    reads: Schema = {
        f"/{page.name}": {
            "get": {
                "operationId": f"get_{page.name}",
                "summary": page.title,
                "parameters": [
                    {"name": name, "in": "query", "description": meaning, "schema": TEXT}
                    for name, meaning in page.parameters.items()
                ],
                "responses": {"200": _answer("The facts.", page.name), **_REFUSALS},
            }
        }
        for page in PAGES.values()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "leasehold dashboard",
            "version": __version__,
            "description": "Durations are in seconds. A write needs the header X-Leasehold-Token, from /session.",
        },
        "servers": [{"url": "."}],
        "paths": {**reads, **{f"/{name}": {"post": _write(name)} for name in ACTIONS}, "/session": _SESSION},
        "components": {"schemas": SCHEMAS},
    }


def _answer(description: str, schema: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": _named(schema)}}}


_REFUSALS = {
    "401": {"description": "Who are you?"},
    "403": {"description": "This viewer may not do this."},
    "422": _answer("A parameter makes no sense.", "Error"),
    "503": _answer("The store does not answer.", "Error"),
}

_SESSION: Schema = {
    "get": {
        "operationId": "get_session",
        "summary": "Who is asking, and the token of a write",
        "responses": {"200": _answer("The viewer; its cookie belongs to the token.", "Session")},
    }
}


def _write(name: str) -> Schema:
    action = ACTIONS[name]
    body = {
        "type": "object",
        "properties": {
            field: {
                "description": meaning,
                **(WHOLE if field in ("fence", "job") else FLAG if field == "now" else TEXT),
            }
            for field, meaning in action.fields.items()
        },
        "required": [field for field in action.fields if field not in action.optional],
    }
    token = {"name": "X-Leasehold-Token", "in": "header", "required": True, "schema": TEXT}
    return {
        "operationId": f"order_{name}",
        "summary": action.summary,
        "parameters": [token],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": _answer("`done` is false if there was nothing to do.", "Outcome"),
            "400": _answer("The body cannot be read.", "Outcome"),
            "403": _answer("Read-only, or without the token.", "Outcome"),
            "409": _answer("The store refused it.", "Outcome"),
            "422": _answer("A field is missing or wrong.", "Outcome"),
            "503": _answer("The store does not answer.", "Outcome"),
        },
    }
