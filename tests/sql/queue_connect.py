"""A plain connection to the database of a url, by its usual driver."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["connect"]


def connect(url: str) -> Any:
    """Of psycopg, PyMySQL or sqlite3."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
    if parts.scheme == "postgresql":
        import psycopg

        return psycopg.connect(url)
    import pymysql

    return pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=unquote(parts.username or ""), database=parts.path[1:]
    )
