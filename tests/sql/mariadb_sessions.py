"""Plain sessions with MariaDB for tests, at a level of isolation."""

from __future__ import annotations

from typing import Any

import pymysql
import sqlalchemy

__all__ = ["LEVELS", "SEE_COMMITS", "connect", "run"]

SEE_COMMITS = ["READ UNCOMMITTED", "READ COMMITTED"]
LEVELS = [*SEE_COMMITS, "REPEATABLE READ", "SNAPSHOT ISOLATION", "SERIALIZABLE"]


def connect(url: str, level: str | None = None, **options: Any) -> pymysql.Connection[Any]:
    """With autocommit off, as PyMySQL has it by default."""
    parts = sqlalchemy.make_url(url)
    login = {"host": parts.host, "port": parts.port, "user": parts.username, "database": parts.database}
    connection = pymysql.connect(**{**login, **options})
    if level is not None:
        snapshot = level == "SNAPSHOT ISOLATION"
        run(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {'REPEATABLE READ' if snapshot else level}")
        run(connection, f"SET SESSION innodb_snapshot_isolation = {int(snapshot)}")
    return connection


def run(connection: pymysql.Connection[Any], *statements: str) -> list[tuple[Any, ...]]:
    """Execute all of them; the rows of the last, if it gives any."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []
