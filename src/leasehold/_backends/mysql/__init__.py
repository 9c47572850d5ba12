"""MySQL and MariaDB as a store: lease rows by default, grants bound to a session with `?mode=session`. Needs PyMySQL.

`store` reads URLs; `backend` and `session` are the two modes over `base`, which they share; `rows` holds the rows of
one name while they are decided upon, `statements` is the SQL; `pool` and `connection` carry it, in the form of
`packets`; `notifications` wakes waiters; `errors` says what an error means for a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from leasehold.spi import Store
    from leasehold.store_url import StoreURL

__all__ = ["open_url"]


def open_url(url: StoreURL) -> Store:
    """`mysql://user:password@host:3306/database`, also `mariadb://` and with `+pymysql`."""
    try:
        from leasehold._backends.mysql import store  # noqa: PLC0415 - printing the tables needs no driver
    except ImportError as error:
        raise ConfigurationError(f"MySQL needs PyMySQL: pip install 'leasehold[mysql]' ({error})") from None
    return store.open_url(url)
