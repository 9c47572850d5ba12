"""PostgreSQL as a store: lease rows by default, advisory locks with `?mode=session`. Needs psycopg 3."""

from leasehold.backends.postgres.store import adopt, open_url

__all__ = ["adopt", "open_url"]
