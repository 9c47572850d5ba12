"""The options of a client as a framework's configuration has them: the names of `connect`, under a prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, cast

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold._durations import Duration

__all__ = ["WEB_TIMEOUT", "ClientOptions", "read_options"]

WEB_TIMEOUT = 5.0  # a request that waits for ever for a lock would keep a worker for ever


class ClientOptions(TypedDict, total=False):
    """What `connect` takes besides the URL; it explains them."""

    namespace: str | None
    ttl: Duration
    timeout: Duration | None
    label: str | None
    slow_wait: Duration | None
    slow_wait_level: int | str


def read_options(found: Mapping[str, Any], where: str) -> tuple[object, ClientOptions]:
    """The URL (or store), and the other options; `found` has the names of `connect` in capitals, and `URL`."""
    words = {name.lower(): value for name, value in found.items()}
    url = words.pop("url", None)
    unknown = sorted(words.keys() - ClientOptions.__optional_keys__)
    if unknown:
        known = ", ".join(sorted(name.upper() for name in ("url", *ClientOptions.__optional_keys__)))
        raise ConfigurationError(f"{where} has {unknown[0].upper()!r}, which is no option; it takes {known}")
    return url, cast("ClientOptions", words)
