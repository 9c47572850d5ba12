"""The embedded SQLite store; `backend` is where to start reading, `schema.sql` says what the tables mean."""

from leasehold._backends.sqlite.backend import SqliteBackend
from leasehold._backends.sqlite.store import SqliteStore, open_url

__all__ = ["SqliteBackend", "SqliteStore", "open_url"]
