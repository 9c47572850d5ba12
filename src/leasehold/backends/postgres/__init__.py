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
    from types import ModuleType

    from leasehold.spi import Store
    from leasehold.store_url import StoreURL

__all__ = ["adopt", "open_url"]


def open_url(url: StoreURL) -> Store:
    """`postgresql://user:password@host:5432/database`, also `postgres://` and `postgresql+psycopg://`."""
    store: Store = _loaded().open_url(url)
    return store


def adopt(client: object, options: Mapping[str, str]) -> Store:
    """A pool of psycopg_pool, or an engine of SQLAlchemy that uses psycopg."""
    store: Store = _loaded().adopt(client, options)
    return store


def _loaded() -> ModuleType:
    try:
        from leasehold.backends.postgres import store  # noqa: PLC0415 - printing the tables needs no driver
    except ImportError as error:
        raise ConfigurationError(f"PostgreSQL needs psycopg 3: pip install 'leasehold[postgres]' ({error})") from None
    return store
