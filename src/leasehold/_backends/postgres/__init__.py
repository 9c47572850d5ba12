"""PostgreSQL as a store: lease rows by default, grants bound to a session with `?mode=session`.

`store` reads URLs, which need psycopg 3; `adopted_pool` takes what a `lender` lends: pools and engines over psycopg or
asyncpg. `backend` and `session` are the two modes over `base`, which they share; `statements` are the calls, `sql/` the
functions in the database. `executor` sends them over a connection of either `driver`: `connection` with its `wire` is
psycopg's, `asyncpg_connection` the other. `notifications` wakes waiters and `queue` batches their turns; `errors` says
what an error means for a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.spi import Store
    from leasehold.store_url import StoreURL

__all__ = ["adopt", "open_url"]


def open_url(url: StoreURL) -> Store:
    """`postgresql://user:password@host:5432/database`, also `postgres://` and `postgresql+psycopg://`."""
    if url.scheme == "postgresql+asyncpg":
        raise ConfigurationError(
            "over asyncpg leasehold uses a pool or an engine of your own, and no URL: pass connect_async() what "
            "asyncpg.create_pool() or create_async_engine() gave; or write postgresql:// for connections with psycopg"
        )
    try:
        from leasehold._backends.postgres import store  # noqa: PLC0415 - printing the tables needs no driver
    except ImportError as error:
        raise ConfigurationError(
            f"PostgreSQL by URL needs psycopg 3: pip install 'leasehold[postgres]'; a program with "
            f"asyncpg passes its pool instead, to connect_async() ({error})"
        ) from None
    return store.open_url(url)


def adopt(client: object, options: Mapping[str, str]) -> Store:
    """A pool of psycopg_pool or asyncpg, or an engine of SQLAlchemy that uses psycopg or asyncpg."""
    from leasehold._backends.postgres import adopted_pool  # noqa: PLC0415 - printing the tables needs none of this

    return adopted_pool.adopt(client, options)
