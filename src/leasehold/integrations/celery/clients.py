"""One client per application and process, made from its configuration: `leasehold_url`, `leasehold_ttl`, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from celery import signals

from leasehold import Client, connect
from leasehold.integrations._options import ClientOptions, read_options

if TYPE_CHECKING:
    from celery import Celery

__all__ = ["PREFIX", "client_of", "close_client"]

PREFIX = "leasehold_"
_MISSING = object()
_CLIENTS: WeakKeyDictionary[Celery, Client] = WeakKeyDictionary()


def client_of(app: Celery) -> Client:
    """The client of this application; a child of the pool goes on with connections of its own."""
    client = _CLIENTS.get(app)
    if client is None:
        names = ("url", *ClientOptions.__optional_keys__)
        found = {name: value for name in names if (value := app.conf.get(PREFIX + name, _MISSING)) is not _MISSING}
        url, options = read_options(found, "the configuration leasehold_*")
        client = _CLIENTS[app] = connect(url, **options)
    return client


def close_client(app: Celery) -> None:
    """Give back what is held, for a process that is about to end; later calls would open another client."""
    client = _CLIENTS.pop(app, None)
    if client is not None:
        client.close(release=True)


@signals.worker_process_shutdown.connect
@signals.worker_shutdown.connect
def _leave(**_: object) -> None:
    for app in list(_CLIENTS):
        close_client(app)
