"""The document of the JSON interface promises what the answers have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from leasehold.sql import Queue
from leasehold.web.openapi import document
from tests.web.serving import within

if TYPE_CHECKING:
    from pathlib import Path

    import leasehold

BESIDE = {
    "Lock": {"stalled"},
    "jobs": {"age"},
    "keys": {"age", "found"},
    "keys.running": {"broken", "cooling", "expires_in", "held_for", "holder", "renewed_ago", "ttl_seen"},
    "keys.answer": {"expires_in", "since", "state"},
    "queue": {"state"},
    "queue.jobs": {"age", "changed", "due_in", "fence", "last_error", "worker"},
}  # what an answer may have and the document does not promise


def beside(value: Any, schema: dict[str, Any], path: str, found: dict[str, set[str]]) -> dict[str, set[str]]:
    """What an answer has beside what its schema names, by place."""
    schemas = document()["components"]["schemas"]
    if "$ref" in schema:
        path = schema["$ref"].rpartition("/")[2]
        schema = schemas[path]
    if "anyOf" in schema:
        return found if value is None else beside(value, schema["anyOf"][0], path, found)
    if "properties" in schema:
        more = set(value) - set(schema["properties"])
        if more:
            found.setdefault(path, set()).update(more)
        for name, inner in schema["properties"].items():
            beside(value[name], inner, f"{path}.{name}", found)
    for item in value if "items" in schema else ():
        beside(item, schema["items"], path, found)
    return found


def test_the_document_names_what_the_answers_have(client: leasehold.Client, tmp_path: Path) -> None:
    path, queue = str(tmp_path / "app.db"), Queue("refunds", max_attempts=1)
    with closing(sqlite3.connect(path)) as database:
        queue.create_tables(database)
        queue.enqueue(database, {}, key="order")
        for job in queue.claim(database):
            queue.fail(database, job, "HTTP 502")
        database.commit()
    queries = {"lock": {"name": "boss"}, "keys": {"scope": "pay", "key": "k"}, "queue": {"queue": "refunds"}}
    found: dict[str, set[str]] = {}
    client.once("report", slot="1").run(lambda: None)
    client.pause("report", reason="audit")
    with (
        within(client, database=path, jobs=["report"], elections=["boss"]) as caller,
        client.lock("boss", reason="why").hold(),
        client.partitions("orders", 2),
        client.idempotency("pay").attempt("k"),
    ):
        caller.order("resume", name="nothing")
        for page in ("locks", "lock", "leaders", "jobs", "keys", "queue", "partitions", "doctor", "audit", "session"):
            name = "Session" if page == "session" else page
            beside(caller.facts(page, **queries.get(page, {})), {"$ref": f"#/components/schemas/{name}"}, page, found)
        beside(caller.facts("lock", name="report"), {"$ref": "#/components/schemas/lock"}, "lock", found)
        beside(caller.order("resume", name="nothing").json(), {"$ref": "#/components/schemas/Outcome"}, "", found)
    assert found == BESIDE
