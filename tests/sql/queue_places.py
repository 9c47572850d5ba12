"""Databases with queues in them, for tests: one of each kind for a whole file, emptied for every test."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from leasehold.sql import queue_schema
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import EVERY_DESK, fresh_schema, make_desk

if TYPE_CHECKING:
    import pytest

    from tests.sql.desks import Desk

__all__ = ["DATABASES", "EVERY_QUEUE_DESK", "PLAIN", "clear", "let_all_be_due", "queue_url"]

PLAIN = {"postgresql": "psycopg", "mysql": "pymysql", "sqlite": "sqlite3"}
DATABASES = list(PLAIN)
EVERY_QUEUE_DESK = EVERY_DESK
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def queue_url(request: pytest.FixtureRequest, database: str) -> str:
    """The url of a new database that has the table already."""
    if database == "postgresql":
        url = fresh_schema(request.getfixturevalue("postgres"))
    elif database == "mysql":
        url = fresh_mariadb(request.getfixturevalue("mariadb"))
    else:
        folder = tempfile.TemporaryDirectory(prefix="leasehold-queue-", dir=_FOLDER)
        request.addfinalizer(folder.cleanup)
        url = f"sqlite:///{folder.name}/data.db"
    desk = make_desk(PLAIN[database], url)
    try:
        for statement in queue_schema(database).split(";\n"):
            if statement.strip():
                with desk.begin() as tx:
                    desk.run(tx, statement)
        with desk.begin() as tx:
            desk.run(tx, "CREATE TABLE effect (job BIGINT NOT NULL, fence BIGINT NOT NULL, at_place INTEGER)")
    finally:
        desk.close()
    return url


def clear(desk: Desk) -> None:
    """Empty the tables."""
    with desk.begin() as tx:
        desk.run(tx, "DELETE FROM leasehold_queue")
        desk.run(tx, "DELETE FROM effect")


def let_all_be_due(desk: Desk) -> None:
    """As if time had passed: pauses are over, and so are claims."""
    with desk.begin() as tx:
        desk.run(tx, "UPDATE leasehold_queue SET due_at = enqueued_at WHERE due_at IS NOT NULL")


def rows(desk: Desk, question: str) -> list[tuple[Any, ...]]:
    """The answer to a question."""
    with desk.begin() as tx:
        return desk.run(tx, question)
