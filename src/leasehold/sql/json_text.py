"""What a program hands over to be kept in a row: a JSON value of limited size."""

from __future__ import annotations

import json

from leasehold.errors import ConfigurationError

__all__ = ["json_text"]


def json_text(value: object, what: str, limit: int, *, parts: str, reference: str) -> str:
    """The value as JSON, in ASCII; the errors say what to hand over instead: `parts` of it, or a `reference` to it."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"a {what} is kept as JSON, which cannot write this {type(value).__name__} ({error}): {parts}"
        ) from error
    if len(text) > limit:
        raise ConfigurationError(
            f"the {what} has {len(text)} bytes as JSON, and max_{what} is {limit}: keep what is large in a table of "
            f"your own, and {reference}"
        )
    return text
