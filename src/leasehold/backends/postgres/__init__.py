"""PostgreSQL as a store: lease rows by default, grants bound to a session with `?mode=session`. Needs psycopg 3.

`store` reads URLs, pools and engines; `backend` and `session` are the two modes over `base`, which they share;
`statements` are the calls, `sql/` the functions in the database; `pool`, `adopted_pool` and `connection` carry them
over a `wire`; `notifications` wakes waiters and `queue` batches their turns; `errors` says what an error means for a
lock.
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
    try:
        from leasehold.backends.postgres import store  # noqa: PLC0415 - printing the tables needs no driver
    except ImportError as error:
        raise ConfigurationError(f"PostgreSQL needs psycopg 3: pip install 'leasehold[postgres]' ({error})") from None
    return store.open_url(url)


def adopt(client: object, options: Mapping[str, str]) -> Store:
    """A pool of psycopg_pool or asyncpg, or an engine of SQLAlchemy that uses psycopg or asyncpg."""
    from leasehold.backends.postgres import adopted_pool  # noqa: PLC0415 - printing the tables needs none of this

    return adopted_pool.adopt(client, options)
