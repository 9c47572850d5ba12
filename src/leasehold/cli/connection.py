"""Opening the store that the arguments name."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from leasehold._blocking import connect
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold._blocking import Client
    from leasehold.cli.output import Console

__all__ = ["announce", "open_client", "refuse_absent_store", "refuse_private_store"]

VARIABLES = ("LEASEHOLD_URL", "LEASEHOLD_URL_FILE")
NO_STORE = (
    "no store given. Add `--url local:` for the embedded file of this user on this host, "
    "`--url sqlite:////path` for one that the whole host shares, or the URL of a server; or set LEASEHOLD_URL, or "
    "LEASEHOLD_URL_FILE to the path of a file that holds it. There is no silent default: fifty servers that each "
    "locked a private file would run the job fifty times"
)


def open_client(arguments: Namespace, *, label: str | None = None) -> Client:
    """A client; no I/O yet. Without --url the environment decides, and there is no default."""
    if not arguments.url and not any(os.environ.get(variable) for variable in VARIABLES):
        raise ConfigurationError(NO_STORE)
    ttl = getattr(arguments, "ttl", None)
    gc.enable()  # all is loaded
    options = {} if ttl is None else {"ttl": ttl}
    return connect(arguments.url or None, namespace=arguments.namespace, label=label, **options)


def announce(client: Client, console: Console) -> None:
    """Name the store that is shown; one that does not exist yet may have a misspelt name."""
    console.note(f"store: {client.store}")
    if not client.exists():
        console.note("this store does not exist: nothing has ever been locked in it")
    elif client.is_private:
        console.note("this store is inside this process alone: the locks of other processes are not in it")


def refuse_absent_store(client: Client) -> None:
    """What an operator changes is there already: a store that would have to be created has a misspelt name."""
    if not client.exists():
        raise ConfigurationError(
            f"{client.store} does not exist; nothing was changed. Check the name, or create the store with: "
            "leasehold doctor --try"
        )


def refuse_private_store(client: Client) -> None:
    """A command is a process of its own: in a store inside one process, every command would get every lock."""
    if client.is_private:
        raise ConfigurationError(
            f"{client.store} is a store inside one process: every other command would get the same lock, and all "
            "would run. Use local: or sqlite:////path between processes, a server between hosts"
        )
