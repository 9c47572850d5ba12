"""Opening the store that the arguments name."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from leasehold.blocking import connect
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.blocking import Client

__all__ = ["open_client"]

VARIABLE = "LEASEHOLD_URL"
NO_STORE = (
    f"no store was named. Add `--url local:` for the embedded file of this user on this host, "
    f"`--url sqlite:////path` for one that the whole host shares, or the URL of a server; or set {VARIABLE}. There is "
    "no silent default: fifty servers that each locked a private file would run the job fifty times"
)


def open_client(arguments: Namespace, *, label: str | None = None) -> Client:
    """A client; no I/O yet. Without --url the environment variable LEASEHOLD_URL decides, and there is no default."""
    if not arguments.url and not os.environ.get(VARIABLE):
        raise ConfigurationError(NO_STORE)
    ttl = getattr(arguments, "ttl", None)
    gc.enable()  # all is loaded
    options = {} if ttl is None else {"ttl": ttl}
    return connect(arguments.url, namespace=arguments.namespace, label=label, **options)
