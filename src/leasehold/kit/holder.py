"""One stored form of a holder, for every store: a JSON object with a version.

    {"v":1,"host":"db-3","pid":4711,"label":"nightly","reason":"report of May","user":"ana"}

It is read by people with the store's own tools and by `inspect`; nothing decides by it. A reader ignores fields that it
does not know, so that a newer writer can add some, and never fails: another program may have written the text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leasehold._lazy import lazy
from leasehold.values import Holder

if TYPE_CHECKING:
    import json
else:
    json = lazy("json")

__all__ = ["holder_fields", "holder_from_fields", "holder_from_json", "holder_to_json"]

VERSION = 1


def holder_fields(holder: Holder) -> dict[str, Any]:
    """The object as a dictionary, for a store that adds fields of its own; facts that are not known are left out."""
    fields: dict[str, Any] = {"v": VERSION, "host": holder.host, "pid": holder.pid}
    if holder.label is not None:
        fields["label"] = holder.label
    if holder.reason is not None:
        fields["reason"] = holder.reason
    if holder.user is not None:
        fields["user"] = holder.user
    return fields


def holder_from_fields(fields: Any) -> Holder | None:
    """The holder that such an object describes, whatever else is in it; None for anything else."""
    try:
        facts = (None if (fact := fields.get(name)) is None else str(fact) for name in ("label", "reason", "user"))
        return Holder(str(fields["host"]), int(fields["pid"]), *facts)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


@lru_cache(1024)
def holder_to_json(holder: Holder) -> str:
    """ASCII, so that its length in bytes is its length."""
    return json.dumps(holder_fields(holder), ensure_ascii=True, separators=(",", ":"))


@lru_cache(1024)
def holder_from_json(value: str | bytes) -> Holder | None:
    """None for what is not such an object."""
    try:
        return holder_from_fields(json.loads(value))
    except ValueError:
        return None
