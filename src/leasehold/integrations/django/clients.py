"""One client per process, made from the settings when it is first asked for; it does no I/O before its first lock."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from django.conf import settings

from leasehold import AsyncClient, Client, connect, connect_async
from leasehold.errors import ConfigurationError
from leasehold.integrations._options import WEB_TIMEOUT, ClientOptions, read_options

__all__ = ["SETTING", "aclient", "client", "forget_clients", "read_settings"]

SETTING = "LEASEHOLD"


def read_settings() -> tuple[Any, ClientOptions]:
    """The URL and the options of `settings.LEASEHOLD`; without a URL there, `LEASEHOLD_URL` of the environment counts.

    A request waits 5 seconds for a lock, unless TIMEOUT says otherwise.
    """
    found = getattr(settings, SETTING, {})
    if not isinstance(found, Mapping):
        raise ConfigurationError(f"settings.{SETTING} must be a dictionary such as {{'URL': ...}}, not {found!r}")
    url, options = read_options(found, f"settings.{SETTING}")
    return url, {"timeout": WEB_TIMEOUT, **options}


@cache
def client() -> Client:
    """The client of this process, for everything that blocks; a forked worker goes on with connections of its own."""
    url, options = read_settings()
    return connect(url, **options)


@cache
def aclient() -> AsyncClient:
    """The same for async views."""
    url, options = read_settings()
    return connect_async(url, **options)


def forget_clients(*, setting: str, **_: object) -> None:
    """When a test changes the settings."""
    if setting == SETTING:
        client.cache_clear()
        aclient.cache_clear()
