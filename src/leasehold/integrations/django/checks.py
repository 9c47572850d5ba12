"""What `manage.py check` says about the settings, without asking the store: `leasehold doctor` does that."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning  # noqa: A004 - the names of Django
from django.db import connections

from leasehold import connect
from leasehold.errors import ConfigurationError
from leasehold.integrations.django.clients import SETTING, read_settings
from leasehold.store_url import StoreURL

__all__ = ["check_settings"]

PGBOUNCER_PORT = 6432
POSTGRES = ("postgres", "postgresql")


def check_settings(**_: Any) -> list[CheckMessage]:
    """All findings."""
    try:
        url, options = read_settings()
        connect(url, **options)
    except ConfigurationError as error:
        return [Error(str(error), hint=f"Set {SETTING} = {{'URL': ...}}.", id="leasehold.E001")]
    url = os.environ.get("LEASEHOLD_URL") if url is None else url
    found = _check_url(StoreURL.parse(url)) if isinstance(url, str) else []
    return found + _check_atomic_requests()


def _check_url(url: StoreURL) -> list[CheckMessage]:
    if url.scheme == "memory":
        text = "The locks are inside one process: the workers of this project do not exclude one another."
        return [
            Warning(text, hint="Use a store that they share, such as redis:// or the database.", id="leasehold.W001")
        ]
    if url.scheme in ("local", "sqlite") and not settings.DEBUG:
        text = "The locks are in a file of this host: workers on other hosts do not see them."
        return [Warning(text, hint="Silence this if there is one host only.", id="leasehold.W002")]
    if url.scheme.partition("+")[0] in POSTGRES and url.options.get("mode") == "session" and _may_be_pooled(url):
        text = "mode=session keeps locks in a session of the server, and a pooler gives the session to others."
        hint = "Connect past PgBouncer, or leave mode=session out: the default needs no session."
        return [Warning(text, hint=hint, id="leasehold.W003")]
    return []


def _may_be_pooled(url: StoreURL) -> bool:
    """The usual port of PgBouncer, or a database of the settings at this address that is set up for it."""
    if url.port == PGBOUNCER_PORT:
        return True
    return any(
        database.get("DISABLE_SERVER_SIDE_CURSORS")
        and (database.get("HOST") or "") == url.host
        and str(database.get("PORT") or "") == str(url.port or "")
        for database in connections.settings.values()
    )


def _check_atomic_requests() -> list[CheckMessage]:
    return [
        Info(
            f"Views run inside a transaction of {alias!r} (ATOMIC_REQUESTS), where hold() refuses to take a lock.",
            hint="Put @transaction.non_atomic_requests on views with locks, and atomic() inside the lock.",
            id="leasehold.I001",
        )
        for alias, database in connections.settings.items()
        if database.get("ATOMIC_REQUESTS")
    ]
