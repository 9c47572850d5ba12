"""A connection to the database that a URL names, for tools: programs open their own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from leasehold.errors import BackendUnavailable, ConfigurationError

__all__ = ["database_name", "open_database"]

_POSTGRESQL = ("postgresql", "postgres")
_MYSQL = ("mysql", "mariadb")
PATIENCE = 10  # seconds, for a server that does not answer


def open_database(url: str) -> Any:
    """A connection of psycopg, PyMySQL or sqlite3: to postgresql://, mysql://, mariadb://, or to a file of SQLite.

    It opens transactions by itself, and commits on demand. A file that does not exist is not made.
    """
    scheme = _scheme(url)
    if scheme == "sqlite":
        return _open_file(_path(url))
    try:
        return _open_postgresql(url) if scheme in _POSTGRESQL else _open_mysql(url)
    except ImportError as error:
        driver = "psycopg" if scheme in _POSTGRESQL else "PyMySQL"
        raise ConfigurationError(f"{scheme}:// needs {driver}, which is not installed: pip install {driver}") from error
    except ConfigurationError:
        raise
    except Exception as error:
        raise BackendUnavailable(f"{database_name(url)} cannot be reached: {error}") from error


def database_name(url: str) -> str:
    """What may be shown of a URL: nothing that could be a password."""
    scheme = _scheme(url)
    if scheme == "sqlite":
        return f"sqlite {_path(url)}"
    parts = urlsplit(url)
    return f"{scheme}://{parts.hostname or 'localhost'}{parts.path}"


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    if not found:
        return "sqlite"
    if scheme not in (*_POSTGRESQL, *_MYSQL, "sqlite"):
        raise ConfigurationError(
            f"queues are not in {scheme}://; name a database with postgresql://, mysql://, mariadb://, or the path of "
            "a SQLite file"
        )
    return scheme


def _path(url: str) -> Path:
    """As SQLAlchemy writes it: three slashes before a relative path, four before an absolute one."""
    if "://" not in url:
        return Path(url)
    return Path(unquote(url.partition("://")[2].removeprefix("/").partition("?")[0]))


def _open_file(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {str(path)!r}; nothing was made. Check the path")
    return sqlite3.connect(path, timeout=PATIENCE)


def _open_postgresql(url: str) -> Any:
    import psycopg  # noqa: PLC0415 - only for its users

    return psycopg.connect(url, connect_timeout=PATIENCE)


def _open_mysql(url: str) -> Any:
    import pymysql  # noqa: PLC0415

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    unknown = set(options) - {"charset", "unix_socket"}
    if unknown:
        raise ConfigurationError(f"unknown option {sorted(unknown)[0]!r} in the URL of the database")
    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.removeprefix("/")),
        connect_timeout=PATIENCE,
        **options,
    )
