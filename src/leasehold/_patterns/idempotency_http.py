"""The HTTP contract of idempotency keys: the header, what is stored of a response, and the answers that refuse.

The header is a structured-field string, as in the draft of the IETF (`Idempotency-Key: "8e03978e"`), or bare, as most
services take it; both forms of one key are the same key. Pure functions: nothing here receives or sends.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "HEADER",
    "REPLAYED",
    "Answer",
    "header_text",
    "is_kept",
    "key_of_request",
    "parse_key",
    "problem",
    "restored",
    "stored",
]

HEADER = "Idempotency-Key"
REPLAYED = (b"idempotent-replayed", b"true")
MAX_KEY = 255
SERVER_ERROR = 500
NO_CONTENT = frozenset({204, 304})
# Answers of the moment: the caller, its rights, its payload or what it has seen were refused, or it was asked to come
# back later.
NOT_KEPT = frozenset({401, 403, 405, 408, 409, 412, 413, 415, 422, 423, 425, 428, 429})

_BARE = re.compile(r"""[!#-+\--:<-\[\]-~]+""")  # visible ASCII without quotes, commas, semicolons and backslashes
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_TITLES = {
    400: "Idempotency key missing or invalid",
    409: "Request in flight",
    413: "Request too large",
    422: "Idempotency key reused",
    503: "Idempotency not available",
}

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    headers: tuple[Header, ...]
    body: bytes


def parse_key(text: str) -> str | None:
    """The key in a header's value; None if it is neither a structured string nor a bare word, or too long."""
    text = text.strip(" \t")
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    elif _BARE.fullmatch(text) is not None:
        key = text
    else:
        return None
    return key if 1 <= len(key) <= MAX_KEY else None


def header_text(key: str, *, quoted: bool) -> str:
    """The value of the header for a key; bare where it can be, unless `quoted`."""
    bare = _BARE.fullmatch(key) is not None
    text = key if bare and not quoted else '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'
    if parse_key(text) != key:
        raise ConfigurationError(f"an idempotency key is 1 to {MAX_KEY} printable ASCII characters, not {key!r}")
    return text


def key_of_request(principal: str, method: str, route: str, key: str) -> str:
    """What the store knows a request by: a hash, so that neither the principal nor the key is stored."""
    return hashlib.sha256(json.dumps([principal, method, route, key]).encode()).hexdigest()


def is_kept(status: int) -> bool:
    """Whether a response with this status is stored and replayed, rather than dropped so that a retry runs again."""
    return status < SERVER_ERROR and status not in NOT_KEPT


def stored(answer: Answer, keep_headers: Collection[bytes]) -> dict[str, Any]:
    """The response as a JSON value, with the chosen headers only."""
    return {
        "status": answer.status,
        "headers": [
            [name.decode("latin-1"), value.decode("latin-1")]
            for name, value in answer.headers
            if name.lower() in keep_headers
        ],
        "body": base64.b64encode(answer.body).decode(),
    }


def restored(facts: dict[str, Any]) -> Answer:
    """The stored response, marked as replayed."""
    body = base64.b64decode(facts["body"])
    headers: list[Header] = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in facts["headers"]]
    if facts["status"] not in NO_CONTENT:
        headers.append((b"content-length", str(len(body)).encode()))
    return Answer(facts["status"], (*headers, REPLAYED), body)


def problem(
    status: int,
    detail: str,
    *,
    title: str | None = None,
    retry_after: float | None = None,
    headers: Iterable[Header] = (),
) -> Answer:
    """A refusal as `application/problem+json`."""
    body = json.dumps({"title": title or _TITLES[status], "status": status, "detail": detail}).encode()
    usual = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        usual.append((b"retry-after", str(max(1, math.ceil(retry_after))).encode()))
    return Answer(status, (*usual, *headers), body)
