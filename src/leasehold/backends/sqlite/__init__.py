"""The embedded SQLite store; `backend` is where to start reading, `schema.sql` says what the tables mean."""

from leasehold.backends.sqlite.backend import SqliteBackend
from leasehold.backends.sqlite.store import SqliteStore, open_url

__all__ = ["SqliteBackend", "SqliteStore", "open_url"]
