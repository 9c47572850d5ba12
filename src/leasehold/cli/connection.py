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
    from leasehold.cli.output import Console

__all__ = ["announce", "open_client", "refuse_private_store"]

VARIABLE = "LEASEHOLD_URL"
NO_STORE = (
    f"no store given. Add `--url local:` for the embedded file of this user on this host, "
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


def announce(client: Client, console: Console) -> None:
    """Name the store that is looked at; a file that does not exist may be a slip of the pen."""
    console.note(f"store: {client.store}")
    if client.store.startswith(("local:", "sqlite:")):
        from leasehold.cli.doctor_file import file_of  # noqa: PLC0415 - only for stores that are files

        if not file_of(client.store).exists():
            console.note("this file does not exist: nothing has ever been locked in it")


def refuse_private_store(client: Client) -> None:
    """A command is a process of its own, and a memory store ends at its borders: each would get every lock."""
    if client.store.startswith("memory:"):
        raise ConfigurationError(
            f"{client.store} is a store inside this process alone: every other command would get the same lock, and "
            "all would run. Use local: or sqlite:////path between processes, a server between hosts"
        )
